"""One token at a time: attention over a cache of keys and values that grows in place."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from scripts.programs.case import Case, f32, of, s32

Cache = tuple[jax.Array, jax.Array]


def attend(query: jax.Array, keys: jax.Array, values: jax.Array, at: jax.Array) -> jax.Array:
    """Heads [b, h, d] over a cache [b, t, h, d] up to a place."""
    scores = jnp.einsum("bhd,bthd->bht", query, keys) * query.shape[-1] ** -0.5
    scores = jnp.where(jnp.arange(keys.shape[1]) <= at, scores, -1e9)
    return jnp.einsum("bht,bthd->bhd", jax.nn.softmax(scores, axis=-1), values)


def decode(
    query: jax.Array, key: jax.Array, value: jax.Array, keys: jax.Array, values: jax.Array, at: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Write the new key and value, then attend."""
    keys = lax.dynamic_update_slice(keys, key[:, None], (0, at, 0, 0))
    values = lax.dynamic_update_slice(values, value[:, None], (0, at, 0, 0))
    return attend(query, keys, values, at), keys, values


def turned(x: jax.Array, at: jax.Array) -> jax.Array:
    """Rotary positions for heads [b, h, d]."""
    half = x.shape[-1] // 2
    angle = at * 10000.0 ** (-jnp.arange(half) / half)
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate(
        [first * jnp.cos(angle) - second * jnp.sin(angle), second * jnp.cos(angle) + first * jnp.sin(angle)], axis=-1
    )


def decode_rotary(
    query: jax.Array, key: jax.Array, value: jax.Array, keys: jax.Array, values: jax.Array, at: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    return decode(turned(query, at), turned(key, at), value, keys, values, at)


def decode_grouped(
    query: jax.Array, key: jax.Array, value: jax.Array, keys: jax.Array, values: jax.Array, at: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Several queries share a head of the cache."""
    keys = keys.at[:, at].set(key)
    values = values.at[:, at].set(value)
    more = query.shape[1] // keys.shape[2]
    wide = jnp.repeat(keys, more, axis=2), jnp.repeat(values, more, axis=2)
    return attend(query, *wide, at), keys, values


def decode_scattered(
    query: jax.Array, key: jax.Array, value: jax.Array, keys: jax.Array, values: jax.Array, places: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Each sequence of the batch stands at a place of its own."""
    rows = jnp.arange(query.shape[0])
    keys, values = keys.at[rows, places].set(key), values.at[rows, places].set(value)
    return attend(query, keys, values, places[:, None, None]), keys, values


def decode_loop(
    query: jax.Array, keys: jax.Array, values: jax.Array, weight: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Eight tokens in a loop; the next query comes from the last result."""

    def step(at: jax.Array, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        now, cache_k, cache_v = state
        out, cache_k, cache_v = decode(now, now * 0.5, now * 2.0, cache_k, cache_v, at)
        return jnp.tanh(jnp.einsum("bhd,de->bhe", out, weight)), cache_k, cache_v

    found = lax.fori_loop(0, 8, step, (query, keys, values))
    return found[0], found[1], found[2]


HEADS, CACHE, AT = f32(4, 8, 64), f32(4, 512, 8, 64), s32(low=0, high=512)
HALF = of("bfloat16", 4, 8, 64), of("bfloat16", 4, 512, 8, 64)

CASES = (
    Case("decode_cache", decode, (HEADS, HEADS, HEADS, CACHE, CACHE, AT), donate=(3, 4)),
    Case("decode_rotary", decode_rotary, (HEADS, HEADS, HEADS, CACHE, CACHE, AT), donate=(3, 4)),
    Case(
        "decode_grouped",
        decode_grouped,
        (f32(4, 8, 64), f32(4, 2, 64), f32(4, 2, 64), f32(4, 512, 2, 64), f32(4, 512, 2, 64), AT),
        donate=(3, 4),
    ),
    Case(
        "decode_scattered",
        decode_scattered,
        (HALF[0], HALF[0], HALF[0], HALF[1], HALF[1], s32(4, high=512)),
        donate=(3, 4),
    ),
    Case("decode_loop", decode_loop, (HEADS, CACHE, CACHE, f32(64, 64, low=-0.1, high=0.1)), donate=(1, 2)),
)
