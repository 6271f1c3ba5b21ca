"""Random numbers as JAX programs have drawn them over the years: a custom call, arithmetic, or one HLO instruction.

All three go through the layout of JAX's first ThreeFry: counts 0..2n-1 are cut into two halves, the block function
turns both halves into random words, and these are joined again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.random import threefry2x32_p

Block: TypeAlias = Callable[[jax.Array, jax.Array, jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
"""ThreeFry-2x32: two key words and two arrays of counts to two arrays of random words."""


def custom_call_block(
    key0: jax.Array, key1: jax.Array, count0: jax.Array, count1: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """ThreeFry as a call to `cu_threefry2x32`, as JAX on a GPU wrote it when the paper was written.

    The kernel takes four arrays of one length; that length is also its opaque descriptor, a 64-bit integer.
    """
    (length,) = count0.shape
    descriptor = struct.pack("<q", length)
    if max(descriptor) >= 0x80:
        raise ValueError(f"length {length} does not fit a descriptor of ASCII bytes")
    words = jax.ShapeDtypeStruct((length,), jnp.uint32)
    call = jax.ffi.ffi_call(
        "cu_threefry2x32",
        (words, words),
        custom_call_api_version=2,
        legacy_backend_config=descriptor.decode("ascii"),
        vmap_method="broadcast_all",
    )
    random0, random1 = call(jnp.broadcast_to(key0, (length,)), jnp.broadcast_to(key1, (length,)), count0, count1)
    return random0, random1


def arithmetic_block(
    key0: jax.Array, key1: jax.Array, count0: jax.Array, count1: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """ThreeFry as shifts, additions and exclusive ors; JAX unrolls its rounds for GPUs and loops over them for CPUs."""
    random0, random1 = threefry2x32_p.bind(key0, key1, count0, count1)
    return random0, random1


def random_words(key: jax.Array, size: int, block: Block) -> jax.Array:
    """`size` random 32-bit words (an even number) from a key of two words."""
    counts = lax.iota(jnp.uint32, size)
    return jnp.concatenate(block(key[0], key[1], counts[: size // 2], counts[size // 2 :]))


def split(key: jax.Array, block: Block) -> tuple[jax.Array, jax.Array]:
    """Two new keys from one."""
    keys = random_words(key, 4, block).reshape(2, 2)
    return keys[0], keys[1]


def uniform(words: jax.Array, low: float, high: float) -> jax.Array:
    """Floats in [low, high) from random words: 23 bits become the mantissa of a number in [1, 2)."""
    bits = lax.shift_right_logical(words, jnp.uint32(9)) | jnp.uint32(0x3F800000)
    unit = lax.bitcast_convert_type(bits, jnp.float32) - 1.0
    return jnp.maximum(low, unit * (high - low) + low)
