"""Forces between bodies, all of them with all others, written in the ways that people write them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from scripts.programs.case import Case, f32

SOFT = 1e-3
BODIES, SHORT = 1024, 0.01


def accelerations(position: jax.Array, mass: jax.Array) -> jax.Array:
    """Newton's law, softened."""
    away = position[None] - position[:, None]
    square = jnp.sum(away**2, axis=-1) + SOFT
    return jnp.sum(away * (mass[None, :, None] * square[..., None] ** -1.5), axis=1)


def leapfrog(position: jax.Array, velocity: jax.Array, mass: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A step of the kick, drift and kick scheme."""
    half = velocity + 0.5 * SHORT * accelerations(position, mass)
    moved = position + SHORT * half
    return moved, half + 0.5 * SHORT * accelerations(moved, mass)


def orbits(position: jax.Array, velocity: jax.Array, mass: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Twenty steps in a loop."""

    def step(state: tuple[jax.Array, jax.Array], _: None) -> tuple[tuple[jax.Array, jax.Array], None]:
        return leapfrog(*state, mass), None

    return lax.scan(step, (position, velocity), None, length=20)[0]


def energy(position: jax.Array, velocity: jax.Array, mass: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Kinetic and potential energy."""
    away = position[None] - position[:, None]
    distance = jnp.sqrt(jnp.sum(away**2, axis=-1) + SOFT)
    pairs = mass[:, None] * mass[None] / distance
    return 0.5 * jnp.sum(mass[:, None] * velocity**2), -0.5 * jnp.sum(pairs - jnp.diag(jnp.diag(pairs)))


def lennard_jones(position: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The energy of a fluid in a periodic box, and its gradient by reverse differentiation."""

    def potential(at: jax.Array) -> jax.Array:
        away = at[None] - at[:, None]
        away = away - jnp.round(away)
        square = jnp.sum(away**2, axis=-1) + jnp.eye(at.shape[0])
        inverse = (0.01 / square) ** 3
        return 2.0 * jnp.sum((inverse**2 - inverse) * (1.0 - jnp.eye(at.shape[0])))

    return jax.value_and_grad(potential)(position)


def by_columns(x: jax.Array, y: jax.Array, z: jax.Array, mass: jax.Array) -> tuple[jax.Array, ...]:
    """The same forces with a vector for each coordinate."""
    dx, dy, dz = (v[None] - v[:, None] for v in (x, y, z))
    weight = mass[None] * lax.rsqrt(dx * dx + dy * dy + dz * dz + SOFT) ** 3
    return tuple(jnp.sum(d * weight, axis=1) for d in (dx, dy, dz))


PLACES, MASS, COLUMN = f32(BODIES, 3), f32(BODIES, low=0.5, high=2.0), f32(BODIES)

CASES = (
    Case("bodies_step", leapfrog, (PLACES, PLACES, MASS)),
    Case("bodies_loop", orbits, (PLACES, PLACES, MASS)),
    Case("bodies_energy", energy, (PLACES, PLACES, MASS)),
    Case("bodies_fluid", lennard_jones, (f32(512, 3, low=0.0, high=1.0),)),
    Case("bodies_columns", by_columns, (COLUMN, COLUMN, COLUMN, MASS)),
)
