"""Stencils: fields whose points look at their neighbours, with the halo put on in several ways."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from scripts.programs.case import Case, f32


def periodic(field: jax.Array) -> jax.Array:
    """A halo of one by concatenation, then five points."""
    tall = jnp.concatenate([field[-1:], field, field[:1]], axis=0)
    wide = jnp.concatenate([tall[:, -1:], tall, tall[:, :1]], axis=1)
    around = wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]
    return field + 0.1 * (around - 4.0 * field)


def rolled(field: jax.Array, speed: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A wave equation's step, with neighbours by `roll`."""
    around = sum(jnp.roll(field, by, axis) for axis in (0, 1) for by in (-1, 1))
    faster = speed + 0.1 * (around - 4.0 * field)
    return field + 0.1 * faster, faster


def padded(field: jax.Array) -> jax.Array:
    """Nine points inside a wall of zeros."""
    wide = jnp.pad(field, 1)
    rows, columns = field.shape
    parts = [wide[a : a + rows, b : b + columns] for a in range(3) for b in range(3)]
    weights = (0.05, 0.2, 0.05, 0.2, -1.0, 0.2, 0.05, 0.2, 0.05)
    return sum((w * p for w, p in zip(weights, parts, strict=True)), jnp.zeros_like(field))


def upwind(field: jax.Array, across: jax.Array, down: jax.Array) -> jax.Array:
    """Transport by a wind that comes from either side; edges are repeated."""
    wide = jnp.pad(field, 1, mode="edge")
    west, east = field - wide[1:-1, :-2], wide[1:-1, 2:] - field
    north, south = field - wide[:-2, 1:-1], wide[2:, 1:-1] - field
    flow = jnp.where(across > 0, across * west, across * east) + jnp.where(down > 0, down * north, down * south)
    return field - 0.1 * flow


def reaction(u: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Ten steps of Gray and Scott's reaction on a ring of rows, in a loop."""

    def laplace(x: jax.Array) -> jax.Array:
        tall = jnp.concatenate([x[-1:], x, x[:1]], axis=0)
        wide = jnp.concatenate([x[:, -1:], x, x[:, :1]], axis=1)
        return tall[:-2] + tall[2:] + wide[:, :-2] + wide[:, 2:] - 4.0 * x

    def step(_: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        a, b = state
        rate = a * b * b
        return a + 0.16 * laplace(a) - rate + 0.035 * (1.0 - a), b + 0.08 * laplace(b) + rate - 0.1 * b

    return lax.fori_loop(0, 10, step, (u, v))


PLANE = f32(1024, 1024, low=0.0, high=1.0)

CASES = (
    Case("stencil_periodic", periodic, (PLANE,)),
    Case("stencil_rolled", rolled, (PLANE, PLANE)),
    Case("stencil_padded", padded, (PLANE,)),
    Case("stencil_upwind", upwind, (PLANE, f32(1024, 1024), f32(1024, 1024))),
    Case("stencil_reaction", reaction, (f32(512, 512, low=0.0, high=1.0), f32(512, 512, low=0.0, high=1.0))),
)
