"""Short vectors between many pairs: rays and shapes, clouds of points, kernels; and the gradient of each example."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from scripts.programs.case import Case, f32

Arrays = tuple[jax.Array, ...]


def boxes(origin: jax.Array, along: jax.Array, low: jax.Array, high: jax.Array) -> Arrays:
    """How many boxes each ray meets, and how far away the nearest one is."""
    near = (low - origin[:, None]) / along[:, None]
    far = (high - origin[:, None]) / along[:, None]
    enters, leaves = jnp.max(jnp.minimum(near, far), -1), jnp.min(jnp.maximum(near, far), -1)
    return jnp.sum((enters <= leaves) & (leaves > 0), 1), jnp.min(jnp.where(enters <= leaves, enters, jnp.inf), 1)


def triangles(origin: jax.Array, along: jax.Array, corners: jax.Array) -> Arrays:
    """The nearest triangle that each ray meets."""
    first, second = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    across, start = jnp.cross(along[:, None], second[None]), origin[:, None] - corners[None, :, 0]
    inverse, around = 1 / jnp.sum(first * across, -1), jnp.cross(start, first[None])
    u = inverse * jnp.sum(start * across, -1)
    v = inverse * jnp.sum(along[:, None] * around, -1)
    distance = inverse * jnp.sum(second * around, -1)
    met = jnp.where((u >= 0) & (v >= 0) & (u + v <= 1) & (distance > 1e-4), distance, jnp.inf)
    return jnp.min(met, 1), jnp.argmin(met, 1)


def clouds(first: jax.Array, second: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The distance of two clouds of points, and its gradient."""

    def distance(first: jax.Array) -> jax.Array:
        square = jnp.sum((first[:, :, None] - second[:, None]) ** 2, -1)
        return jnp.mean(jnp.min(square, 1)) + jnp.mean(jnp.min(square, 2))

    return jax.value_and_grad(distance)(first)


def kernels(x: jax.Array, centres: jax.Array, weights: jax.Array) -> tuple[jax.Array, Arrays]:
    """A sum of radial functions, and its gradient in their centres and weights."""

    def loss(centres: jax.Array, weights: jax.Array) -> jax.Array:
        near = jnp.exp(-jnp.sum((x[:, None] - centres[None]) ** 2, -1))
        return jnp.mean((near @ weights) ** 2)

    return jax.value_and_grad(loss, argnums=(0, 1))(centres, weights)


def private_layers(weights: Arrays, x: jax.Array, y: jax.Array) -> Arrays:
    """Gradients of two layers, of which no example has more than its share."""

    def loss(weights: Arrays, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.mean((jnp.tanh(x @ weights[0]) @ weights[1] - y) ** 2)

    each = jax.vmap(jax.grad(loss), (None, 0, 0))(weights, x, y)
    share = jnp.minimum(1.0, lax.rsqrt(sum(jnp.sum(g**2, (1, 2)) for g in each)))
    return tuple(jnp.einsum("b,bij->ij", share, g) / len(x) for g in each)


RAYS, CORNERS, POINTS = f32(512, 3), f32(128, 3, 3), f32(4, 512, 3)

CASES = (
    Case("vectors_boxes", boxes, (RAYS, RAYS, f32(256, 3), f32(256, 3))),
    Case("vectors_triangles", triangles, (RAYS, RAYS, CORNERS)),
    Case("vectors_clouds", clouds, (POINTS, POINTS)),
    Case("vectors_kernels", kernels, (f32(512, 4), f32(256, 4), f32(256))),
    Case("vectors_private", private_layers, ((f32(128, 256), f32(256, 32)), f32(32, 128), f32(32, 32))),
)
