"""Loops of the table of loops (`loop_table`) whose rounds are small products or change a few elements: descent,
filters, relaxations, walks over a table."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from scripts.bench.loop_table import Array, loop, rounds
from scripts.programs.case import f32, s32


@loop("block", f32(256, 32), s32(256, low=0, high=2), couples=("reduce",), heavy=True)
def logistic_adam(x: Array, y: Array) -> Any:
    """A logistic regression by Adam."""
    label = y.astype(jnp.float32)

    def loss(w: Array, b: Array) -> Array:
        z = x @ w + b
        return jnp.mean(jnp.logaddexp(0.0, z) - label * z)

    def moved(state: Any, slope: Array, n: Array) -> Any:
        value, mean, square = state
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope * slope
        step = (mean / (1 - 0.9**n)) / (jnp.sqrt(square / (1 - 0.999**n)) + 1e-8)
        return value - 0.01 * step, mean, square

    def step(state: Any, n: Array) -> Any:
        for_w, for_b = state
        slopes = jax.grad(loss, (0, 1))(for_w[0], for_b[0])
        return (moved(for_w, slopes[0], n), moved(for_b, slopes[1], n)), None

    zero = jnp.zeros(32)
    start = ((zero, zero, zero), (jnp.float32(0), jnp.float32(0), jnp.float32(0)))
    return lax.scan(step, start, 1.0 + jnp.arange(100.0))[0]


@loop("block", f32(512, 8), f32(512), couples=("reduce",))
def least_squares(x: Array, y: Array) -> Any:
    """A linear regression by descent."""
    return rounds(100, lambda w: w - 0.05 * jax.grad(lambda w: jnp.mean((x @ w - y) ** 2))(w), jnp.zeros(8))


@loop("block", f32(64, 64, low=-1, high=1), f32(64), couples=("reduce",))
def shrinking(a: Array, b: Array) -> Any:
    """Sparse coefficients by steps that shrink them, with momentum."""

    def step(x: Array, y: Array, t: Array) -> Any:
        new = y - 0.005 * (a.T @ (a @ y - b))
        new = jnp.sign(new) * jnp.maximum(jnp.abs(new) - 0.01, 0)
        following = (1 + jnp.sqrt(1 + 4 * t * t)) / 2
        return new, new + (t - 1) / following * (new - x), following

    return rounds(60, step, (b * 0, b * 0, jnp.float32(1)))[0]


@loop("block", f32(32, 32), couples=("dot",))
def subspace(a: Array) -> Any:
    """Four vectors that a matrix turns."""

    def step(v: Array) -> Array:
        w = (a + a.T) @ v
        return w / jnp.linalg.norm(w, axis=0, keepdims=True)

    return rounds(60, step, a[:, :4])


@loop("block", f32(16, 16), f32(16, 16), couples=("dot",))
def squashed_products(a: Array, b: Array) -> Any:
    """A small matrix that another one multiplies each round."""
    return rounds(50, lambda b: 0.5 * jnp.tanh(a @ b), b)


@loop("block", f32(60), couples=("dot",))
def kalman_of_sixteen(seen: Array) -> Any:
    """A Kalman filter of sixteen values, of which one is seen."""
    moves = jnp.eye(16) + 0.1 * jnp.eye(16, k=1) + 0.01

    def step(state: Any, z: Array) -> Any:
        x, spread = state
        x, spread = moves @ x, moves @ spread @ moves.T + 0.01 * jnp.eye(16)
        gain = spread[:, 0] / (spread[0, 0] + 0.1)
        x = x + gain * (z - x[0])
        return (x, spread - gain[:, None] * spread[0][None]), x

    return lax.scan(step, (jnp.zeros(16), jnp.eye(16)), seen)[1]


@loop("lanes", f32(48, 64), f32(64, 16), f32(48, 16), f32(48, 16), f32(48, 64), heavy=True)
def selective_states(x: Array, a: Array, b: Array, c: Array, dt: Array) -> Any:
    """A state-space scan whose decay no round changes."""

    def step(h: Array, row: Any) -> Any:
        x, b, c, dt = row
        wide = jax.nn.softplus(dt)[:, None]
        h = jnp.exp(-jnp.exp(a) * wide) * h + wide * b[None] * x[:, None]
        return h, h @ c

    return lax.scan(step, jnp.zeros((64, 16)), (x, b, c, dt))[1]


@loop("block", s32(256, low=0, high=256), couples=("gather",))
def halved_paths(parent: Array) -> Any:
    """A forest whose nodes are led to their parents' parents, one after another."""
    return lax.fori_loop(0, 256, lambda i, p: p.at[i].set(jnp.minimum(p[i], p[p[i]])), parent)


@loop("block", s32(500, low=0, high=64), couples=("gather", "dynamic-slice"))
def counted_so_far(numbers: Array) -> Any:
    """How often each number was there before."""
    return lax.scan(lambda t, x: (t.at[x].add(1), t[x]), jnp.zeros(64, jnp.int32), numbers)


@loop("block", s32(64, low=0, high=26), s32(64, low=0, high=26), couples=("concatenate",))
def common_subsequence(a: Array, b: Array) -> Any:
    """The longest one of two words, a row of the table each round."""

    def row(before: Array, letter: Array) -> Any:
        with_it = jnp.concatenate([jnp.zeros(1, jnp.int32), before[:-1]]) + 1
        return lax.cummax(jnp.maximum(jnp.where(letter == b, with_it, before), before)), None

    return lax.scan(row, jnp.zeros(64, jnp.int32), a)[0]
