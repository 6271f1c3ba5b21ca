"""Reading and writing at computed places, and data that only moves."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from scripts.programs.case import Case, f32, of, s32


def embed(table: jax.Array, positions: jax.Array, tokens: jax.Array) -> jax.Array:
    """Rows of a table by token, scaled, plus a position's row: a gather that feeds arithmetic."""
    width = table.shape[1]
    return jnp.take(table, tokens, axis=0) * jnp.sqrt(jnp.float32(width)) + positions[: tokens.shape[1]]


def embed_one_hot(table: jax.Array, tokens: jax.Array) -> jax.Array:
    """The same rows by a product with one-hot rows."""
    return jax.nn.one_hot(tokens, table.shape[0], dtype=table.dtype) @ table


def embed_gradient(table: jax.Array, tokens: jax.Array, weight: jax.Array) -> jax.Array:
    """The gradient of a gather: a scatter that adds."""
    gradient: jax.Array = jax.grad(lambda table: jnp.sum(jnp.tanh(table[tokens]) * weight))(table)
    return gradient


def segment_sums(values: jax.Array, segments: jax.Array, *, count: int) -> tuple[jax.Array, jax.Array]:
    """Sums by segment and the size of each."""
    ones = jnp.ones(segments.shape, jnp.int32)
    return jax.ops.segment_sum(values, segments, count), jax.ops.segment_sum(ones, segments, count)


def write_rows(x: jax.Array, places: jax.Array, rows: jax.Array) -> jax.Array:
    """Rows written at given, different places."""
    return jnp.tanh(x).at[places].set(rows * 2.0, unique_indices=True)


def window(x: jax.Array, start: jax.Array) -> jax.Array:
    """A window at a computed place, scaled and written back."""
    part = lax.dynamic_slice(x, (start, 3), (10, 40))
    return lax.dynamic_update_slice(x, jnp.exp(-part), (start, 3))


def cache_update(
    keys: jax.Array, values: jax.Array, key: jax.Array, value: jax.Array, position: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """One position of a key-value cache overwritten in place."""
    start = (0, position, 0, 0)
    keys = lax.dynamic_update_slice(keys, key.astype(keys.dtype), start)
    values = lax.dynamic_update_slice(values, (value * 0.5).astype(values.dtype), start)
    return keys, values


def rotate_half(x: jax.Array, positions: jax.Array) -> jax.Array:
    """Rotary position embedding of [batch, length, heads, size]."""
    half = x.shape[-1] // 2
    frequency = 1.0 / (10000.0 ** (jnp.arange(half, dtype=jnp.float32) / half))
    angle = positions[:, :, None, None].astype(jnp.float32) * frequency
    first, second = x[..., :half], x[..., half:]
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return jnp.concatenate((first * cos - second * sin, second * cos + first * sin), axis=-1)


def shuffle(x: jax.Array) -> jax.Array:
    """Space to depth and a transpose of what comes out, then rows backwards."""
    batch, height, width, channels = x.shape
    blocks = x.reshape(batch, height // 2, 2, width // 2, 2, channels)
    depth = blocks.transpose(0, 1, 3, 2, 4, 5).reshape(batch, height // 2, width // 2, 4 * channels)
    return jnp.flip(depth.transpose(0, 3, 1, 2), axis=2) + 1.0


def transpose_add(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A matrix added to its neighbour's transpose, and the row sums of that."""
    total = x + 2.0 * y.T
    return total, jnp.sum(total, axis=1)


def join(x: jax.Array, y: jax.Array, z: jax.Array) -> jax.Array:
    """Three computed pieces joined, then padded between and around."""
    joined = jnp.concatenate((jnp.sin(x), y * y, jnp.maximum(z, 0.0)), axis=1)
    return lax.pad(joined, jnp.float32(-1.0), ((1, 2, 0), (0, 3, 1))) * 0.5


def life(cells: jax.Array) -> jax.Array:
    """A generation of the game of life on a torus, on bytes."""
    rows = cells + jnp.roll(cells, 1, 0) + jnp.roll(cells, -1, 0)
    around = rows + jnp.roll(rows, 1, 1) + jnp.roll(rows, -1, 1) - cells
    return ((around == 3) | ((cells == 1) & (around == 2))).astype(cells.dtype)


def pairwise_forces(position: jax.Array, mass: jax.Array) -> jax.Array:
    """Gravity of all bodies on all bodies: two broadcasts that must not become arrays in memory."""
    difference = position[None, :, :] - position[:, None, :]
    square = jnp.sum(jnp.square(difference), axis=-1) + 1e-2
    strength = mass[None, :] * square**-1.5
    return jnp.sum(difference * strength[..., None], axis=1)


def k_means(points: jax.Array, centers: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One round of k-means: distances by a matrix product, the nearest center, new centers."""
    products = points @ centers.T
    distance = jnp.sum(jnp.square(points), 1)[:, None] - 2.0 * products + jnp.sum(jnp.square(centers), 1)[None, :]
    nearest = jnp.argmin(distance, axis=1)
    member = jax.nn.one_hot(nearest, centers.shape[0])
    return (member.T @ points) / jnp.maximum(jnp.sum(member, axis=0), 1.0)[:, None], nearest


def cosine_basis(size: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """The orthonormal matrix of the discrete cosine transform, a constant of the program."""
    frequency, place = np.arange(size)[:, None], np.arange(size)[None, :]
    basis = np.cos(np.pi * (2 * place + 1) * frequency / (2 * size)) * np.sqrt(2 / size)
    basis[0] /= np.sqrt(2)
    rounded: np.ndarray[tuple[int, int], np.dtype[np.float32]] = basis.astype(np.float32)
    return rounded


def compress_blocks(image: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The cosine transform of 8 by 8 blocks, its small terms dropped; and how many terms are left."""
    height, width = image.shape
    basis = jnp.asarray(cosine_basis(8))
    blocks = image.reshape(height // 8, 8, width // 8, 8).transpose(0, 2, 1, 3)
    terms = jnp.einsum("ki,xyij,lj->xykl", basis, blocks, basis)
    large = jnp.abs(terms) > 1.0
    return jnp.where(large, terms, 0.0), jnp.sum(large, dtype=jnp.int32)


CACHE = of("bfloat16", 2, 64, 4, 16)
CASES = [
    Case("embed", embed, (f32(1000, 96), f32(64, 96), s32(4, 33, low=0, high=1000)), ("short", "frames")),
    Case("embed_one_hot", embed_one_hot, (f32(101, 48), s32(60, low=0, high=101))),
    Case("embed_gradient", embed_gradient, (f32(200, 31), s32(50, low=0, high=200), f32(50, 31))),
    Case("segment_sums", partial(segment_sums, count=17), (f32(300, 5), s32(300, low=0, high=17))),
    Case("write_rows", write_rows, (f32(40, 65), s32(1, low=0, high=40), f32(1, 65))),
    Case("window", window, (f32(50, 60), s32(low=0, high=60))),
    Case(
        "cache_update",
        cache_update,
        (CACHE, CACHE, f32(2, 1, 4, 16), f32(2, 1, 4, 16), s32(low=0, high=64)),
        ("short", "frames"),
        donate=(0, 1),
    ),
    Case("rotate_half", rotate_half, (f32(2, 33, 4, 64), s32(2, 33, low=0, high=500))),
    Case("shuffle", shuffle, (f32(3, 18, 22, 5),)),
    Case("transpose_add", transpose_add, (f32(130, 70), f32(70, 130))),
    Case("join", join, (f32(33, 10), f32(33, 7), f32(33, 20)), ("classic",)),
    Case("life", life, (of("uint8", 65, 96, low=0, high=2),)),
    Case("pairwise_forces", pairwise_forces, (f32(150, 3), f32(150, low=0.5, high=2.0))),
    Case("compress_blocks", compress_blocks, (f32(64, 40),)),
    Case("k_means", k_means, (f32(500, 8), f32(11, 8))),
]
