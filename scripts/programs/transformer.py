"""A transformer block as language models have it: forward, one decoding step on a cache, and a training step."""

from __future__ import annotations

from functools import partial
from typing import Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from scripts.programs.case import Arg, Case, of, s32
from scripts.programs.indexing import rotate_half
from scripts.programs.normalization import rms_norm
from scripts.programs.softmax import attention, softmax

T = TypeVar("T")


class Block(NamedTuple, Generic[T]):
    """The parameters of a block."""

    norm1: T
    query: T
    key: T
    value: T
    out: T
    norm2: T
    gate: T
    up: T
    down: T


def heads(x: jax.Array, weight: jax.Array, size: int) -> jax.Array:
    """A projection cut into heads."""
    projected = x @ weight
    return projected.reshape(*projected.shape[:-1], -1, size)


def feed_forward(x: jax.Array, block: Block[jax.Array]) -> jax.Array:
    """The gated part of a block, with its residual."""
    normal = rms_norm(x, block.norm2)
    hidden = jax.nn.silu(normal @ block.gate) * (normal @ block.up)
    return x + hidden @ block.down


def apply(block: Block[jax.Array], x: jax.Array, *, size: int) -> jax.Array:
    """The block on [batch, length, width]."""
    normal = rms_norm(x, block.norm1)
    positions = jnp.broadcast_to(jnp.arange(x.shape[1], dtype=jnp.int32), x.shape[:2])
    query = rotate_half(heads(normal, block.query, size), positions).astype(x.dtype)
    key = rotate_half(heads(normal, block.key, size), positions).astype(x.dtype)
    mixed = attention(query, key, heads(normal, block.value, size))
    return feed_forward(x + mixed @ block.out, block)


def decode(
    block: Block[jax.Array], keys: jax.Array, values: jax.Array, x: jax.Array, position: jax.Array, *, size: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The block on one new token [batch, 1, width], with the keys and values of the tokens before it in a cache."""
    batch, length = keys.shape[:2]
    normal = rms_norm(x, block.norm1)
    positions = jnp.broadcast_to(position, (batch, 1))
    query = rotate_half(heads(normal, block.query, size), positions).astype(x.dtype)
    key = rotate_half(heads(normal, block.key, size), positions).astype(x.dtype)
    keys = lax.dynamic_update_slice(keys, key, (0, position, 0, 0))
    values = lax.dynamic_update_slice(values, heads(normal, block.value, size), (0, position, 0, 0))
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, keys).astype(jnp.float32) * size**-0.5
    seen = lax.broadcasted_iota(jnp.int32, (1, 1, 1, length), 3) <= position
    weights = softmax(jnp.where(seen, scores, jnp.float32(-1e30))).astype(x.dtype)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, values).reshape(batch, 1, -1)
    return feed_forward(x + mixed @ block.out, block), keys, values


def train_step(
    block: Block[jax.Array], x: jax.Array, target: jax.Array, *, size: int
) -> tuple[Block[jax.Array], jax.Array]:
    """One step of gradient descent on the squared error of the block's output."""

    def loss(block: Block[jax.Array]) -> jax.Array:
        return jnp.mean(jnp.square((apply(block, x, size=size) - target).astype(jnp.float32)))

    value, gradient = jax.value_and_grad(loss)(block)
    return jax.tree.map(lambda p, g: p - 0.1 * g, block, gradient), value


def parameters(width: int, hidden: int, dtype: str) -> Block[Arg]:
    """The parameters of a block of a given width."""

    def weight(*shape: int) -> Arg:
        return of(dtype, *shape, low=-0.1, high=0.1)

    norm = of(dtype, width, low=0.5, high=1.5)
    square = weight(width, width)
    return Block(
        norm, square, square, square, square, norm, weight(width, hidden), weight(width, hidden), weight(hidden, width)
    )


SMALL = parameters(64, 172, "float32")
HALF = parameters(64, 172, "bfloat16")
CACHE = of("float32", 2, 48, 4, 16)
CASES = [
    Case("transformer_block", partial(apply, size=16), (SMALL, of("float32", 2, 33, 64)), ("short", "frames")),
    Case("transformer_block_bf16", partial(apply, size=16), (HALF, of("bfloat16", 2, 33, 64))),
    Case(
        "transformer_decode",
        partial(decode, size=16),
        (SMALL, CACHE, CACHE, of("float32", 2, 1, 64), s32(low=0, high=48)),
        ("short", "frames"),
        donate=(1, 2),
    ),
    Case(
        "transformer_train_step",
        partial(train_step, size=16),
        (SMALL, of("float32", 2, 33, 64), of("float32", 2, 33, 64)),
        donate=(0,),
    ),
]

LONG = of("bfloat16", 8, 2048, 16, 64)
PAGES = [
    Case(
        "decode",
        partial(decode, size=64),
        (parameters(1024, 2816, "bfloat16"), LONG, LONG, of("bfloat16", 8, 1, 1024), s32(low=0, high=2048)),
    ),
]
