"""Simulation with random numbers drawn by `jax.random`."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from scripts.programs.case import Case, f32, words


def option_price(key: jax.Array, spot: jax.Array, strike: jax.Array, volatility: jax.Array) -> jax.Array:
    """The mean payoff of call options over random paths to their end."""
    normal = jax.random.normal(key, (1000, spot.shape[0]))
    end = spot * jnp.exp(-0.5 * jnp.square(volatility) + volatility * normal)
    return jnp.mean(jnp.maximum(end - strike, 0.0), axis=0)


def dropout(key: jax.Array, x: jax.Array) -> jax.Array:
    """Dropout of a fifth of the values, with a GELU before it."""
    keep = jax.random.bernoulli(key, 0.8, x.shape)
    return jnp.where(keep, jax.nn.gelu(x) / 0.8, 0.0)


def estimate_pi(key: jax.Array) -> jax.Array:
    """The share of random points that lie in a circle, times four."""
    points = jax.random.uniform(key, (10001, 2))
    inside = jnp.sum(jnp.square(points), axis=-1) <= 1.0
    return 4.0 * jnp.mean(inside.astype(jnp.float32))


def sample_tokens(key: jax.Array, logits: jax.Array) -> jax.Array:
    """A token per row by its probability, by adding Gumbel noise and taking the largest."""
    return jax.random.categorical(key, logits / 0.7, axis=-1)


def dice(key: jax.Array) -> jax.Array:
    """Random integers from 0 to 5, by rejection-free modulo."""
    return jax.random.randint(key, (777,), 0, 6)


PRICE = f32(63, low=80.0, high=120.0)
CASES = [
    Case("option_price", option_price, (words(2), PRICE, PRICE, f32(63, low=0.1, high=0.4))),
    Case("dropout", dropout, (words(2), f32(64, 300)), ("short", "frames")),
    Case("estimate_pi", estimate_pi, (words(2),), platform="cpu"),
    Case("sample_tokens", sample_tokens, (words(2), f32(16, 1000))),
    Case("dice", dice, (words(2),)),
]
