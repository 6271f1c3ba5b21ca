"""Points and the centres that they belong to."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from scripts.programs.case import Case, f32


def distances(points: jax.Array, centres: jax.Array) -> jax.Array:
    return jnp.sum((points[:, None] - centres[None]) ** 2, axis=-1)


def step_one_hot(points: jax.Array, centres: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Lloyd's step with a matrix of who belongs where."""
    nearest = jnp.argmin(distances(points, centres), axis=1)
    member = jax.nn.one_hot(nearest, centres.shape[0], dtype=points.dtype)
    return (member.T @ points) / jnp.maximum(member.sum(0), 1.0)[:, None], nearest


def step_segments(points: jax.Array, centres: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The same with sums by segment, and distances by a product."""
    square = jnp.sum(points**2, 1)[:, None] - 2.0 * points @ centres.T + jnp.sum(centres**2, 1)[None]
    nearest = jnp.argmin(square, axis=1)
    total = jax.ops.segment_sum(points, nearest, centres.shape[0])
    count = jax.ops.segment_sum(jnp.ones(points.shape[0]), nearest, centres.shape[0])
    return total / jnp.maximum(count, 1.0)[:, None], nearest


def soft(points: jax.Array, centres: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Fuzzy membership: a softmax over the centres."""
    weight = jax.nn.softmax(-distances(points, centres), axis=1)
    return (weight.T @ points) / weight.sum(0)[:, None], weight


def mixture(
    points: jax.Array, means: jax.Array, spread: jax.Array, share: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """A step of expectation and maximisation for Gaussians with a variance for each dimension."""
    away = (points[:, None] - means[None]) ** 2 / spread[None]
    logs = jnp.log(share) - 0.5 * (away.sum(-1) + jnp.log(spread).sum(-1))
    weight = jnp.exp(logs - jax.nn.logsumexp(logs, axis=1, keepdims=True))
    total = weight.sum(0)[:, None]
    mean = weight.T @ points / total
    return mean, weight.T @ points**2 / total - mean**2 + 1e-3, total[:, 0] / points.shape[0]


def repeated(points: jax.Array, centres: jax.Array) -> jax.Array:
    """Ten steps in a loop."""
    return lax.fori_loop(0, 10, lambda _, now: step_one_hot(points, now)[0], centres)


POINTS, CENTRES = f32(8192, 16), f32(32, 16)

CASES = (
    Case("clusters_one_hot", step_one_hot, (POINTS, CENTRES)),
    Case("clusters_segments", step_segments, (POINTS, CENTRES)),
    Case("clusters_soft", soft, (POINTS, CENTRES)),
    Case("clusters_mixture", mixture, (POINTS, CENTRES, f32(32, 16, low=0.5, high=2.0), f32(32, low=0.01, high=0.1))),
    Case("clusters_loop", repeated, (POINTS, CENTRES)),
)
