"""Steps of recurrent models whose state is a matrix: each updates the state, and multiplies it by a vector."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from scripts.programs.case import Case, f32

Step = tuple[jax.Array, jax.Array]


def retention(query: jax.Array, state: jax.Array, key: jax.Array, value: jax.Array, decay: jax.Array) -> Step:
    """One token of a retention layer."""
    state = state * decay[None, :, None, None] + jnp.swapaxes(key, -1, -2) * value
    return query @ state, state


def state_space(state: jax.Array, decay: jax.Array, x: jax.Array, write: jax.Array, read: jax.Array) -> Step:
    """One token of a state space model with a scalar decay for each head."""
    state = state * jnp.exp(decay)[..., None, None] + x[..., None] * write[:, None, None]
    return jnp.einsum("bhpn,bn->bhp", state, read), state


def weighted_keys(
    state: jax.Array, query: jax.Array, key: jax.Array, value: jax.Array, decay: jax.Array, bonus: jax.Array
) -> Step:
    """One token of a linear attention that reads before it writes, with a bonus for the token itself."""
    new = key[..., None] * value[..., None, :]
    read = jnp.einsum("bhk,bhkv->bhv", query, state + bonus[None, ..., None] * new)
    return read, state * decay[..., None] + new


def delta_rule(state: jax.Array, query: jax.Array, key: jax.Array, value: jax.Array, rate: jax.Array) -> Step:
    """One token of a fast weight that learns what it has predicted wrongly."""
    error = (value - jnp.einsum("bhk,bhkv->bhv", key, state)) * rate[..., None]
    state = state + key[..., None] * error[..., None, :]
    return jnp.einsum("bhk,bhkv->bhv", query, state), state


def rank_one(matrix: jax.Array, x: jax.Array, y: jax.Array, z: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """An update of rank one, and products of the result from both sides."""
    matrix = matrix + jnp.outer(x, y)
    return matrix @ z, z @ matrix, matrix


HEADS, WIDE = f32(8, 16, 64), f32(8, 16, 64, 64)
DECAY = f32(4, 32, low=-1.0, high=-0.1)

CASES = (
    Case(
        "states_retention", retention, (f32(2, 8, 1, 64), f32(2, 8, 64, 64), *[f32(2, 8, 1, 64)] * 2, f32(8, low=0.8))
    ),
    Case("states_space", state_space, (f32(4, 32, 64, 128), DECAY, f32(4, 32, 64), f32(4, 128), f32(4, 128))),
    Case("states_weighted_keys", weighted_keys, (WIDE, HEADS, HEADS, HEADS, f32(8, 16, 64, low=0.5), f32(16, 64))),
    Case("states_delta_rule", delta_rule, (WIDE, HEADS, HEADS, HEADS, f32(8, 16, low=0.1))),
    Case("states_rank_one", rank_one, (f32(512, 512), f32(512), f32(512), f32(512))),
)
