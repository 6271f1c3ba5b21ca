"""Loops of the table of loops (`loop_table`) on lattices and tables: spins, fires, fronts, alignments, histograms."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from scripts.bench.loop_table import Array, loop, rounds
from scripts.programs.case import f32, of, s32, words


def _around(x: Array) -> list[Array]:
    """The four neighbours of each cell of a torus."""
    return [jnp.roll(x, by, axis) for axis in (0, 1) for by in (1, -1)]


def _is_even(size: int) -> Array:
    return (jnp.indices((size, size)).sum(0) % 2) == 0


@loop("grid", s32(64, 64, low=0, high=2), words(2), couples=("reduce",), heavy=True)
def ising_halves(spins: Array, key: Array) -> Any:
    """Metropolis steps of spins, the even cells and then the odd ones, and the mean of each round."""

    def half(s: Array, key: Array, mask: Array) -> Array:
        change = 2.0 * s * sum(_around(s))
        return jnp.where(mask & (jax.random.uniform(key, s.shape) < jnp.exp(-0.44 * change)), -s, s)

    def step(s: Array, key: Array) -> Any:
        first, second = jax.random.split(key)
        s = half(half(s, first, _is_even(64)), second, ~_is_even(64))
        return s, s.mean()

    return lax.scan(step, 2.0 * spins - 1, jax.random.split(key, 50))


@loop("grid", s32(48, 48, low=0, high=3), words(2), couples=("concatenate",), heavy=True)
def potts(spins: Array, key: Array) -> Any:
    """Gibbs sampling of spins of three kinds."""

    def half(s: Array, key: Array, mask: Array) -> Array:
        near = jnp.stack([sum((n == kind).astype(jnp.float32) for n in _around(s)) for kind in range(3)])
        drawn = jax.random.uniform(key, (3, 48, 48), minval=1e-6, maxval=1.0)
        return jnp.where(mask, (near - jnp.log(-jnp.log(drawn))).argmax(0).astype(jnp.int32), s)

    def step(s: Array, key: Array) -> Any:
        first, second = jax.random.split(key)
        return half(half(s, first, _is_even(48)), second, ~_is_even(48)), None

    return lax.scan(step, spins, jax.random.split(key, 20))[0]


@loop("grid", of("uint8", 64, 64, low=0, high=3), words(2), couples=("concatenate",))
def forest_fire(cells: Array, key: Array) -> Any:
    """Trees that grow, and burn where a neighbour does."""

    def step(cells: Array, key: Array) -> Any:
        burns = sum((n == 2).astype(jnp.int32) for n in _around(cells)) > 0
        drawn = jax.random.uniform(key, (64, 64))
        lit = (cells == 1) & (burns | (drawn < 1e-3))
        grown = jnp.where((cells == 0) & (drawn > 0.97), 1, cells)
        return jnp.where(cells == 2, 0, jnp.where(lit, 2, grown)).astype(jnp.uint8), None

    return lax.scan(step, cells, jax.random.split(key, 30))[0]


@loop("block", f32(64, 64), couples=("concatenate",))
def level_set(height: Array) -> Any:
    """A front that moves along its normal, upwind."""

    def step(p: Array) -> Array:
        sides = [(p - jnp.roll(p, 1, axis), jnp.roll(p, -1, axis) - p) for axis in (0, 1)]
        squares = [jnp.maximum(jnp.maximum(a, 0) ** 2, jnp.minimum(b, 0) ** 2) for a, b in sides]
        return p - 0.1 * jnp.sqrt(squares[0] + squares[1] + 1e-12)

    return rounds(50, step, height)


@loop("block", s32(40, 40, low=0, high=8), couples=("pad",))
def sandpile(grains: Array) -> Any:
    """Cells that topple until none has four grains."""

    def step(state: Any) -> Any:
        topples = (state[0] >= 4).astype(jnp.int32)
        wide = jnp.pad(topples, 1)
        near = wide[2:, 1:-1] + wide[:-2, 1:-1] + wide[1:-1, 2:] + wide[1:-1, :-2]
        grains = state[0] - 4 * topples + near
        return grains, (grains >= 4).any()

    return lax.while_loop(lambda s: s[1], step, (grains, jnp.bool_(True)))[0]


@loop("block", f32(300), s32(300, low=0, high=64), words(2), couples=("scatter",))
def fading_histogram(x: Array, at: Array, key: Array) -> Any:
    """A histogram of weighted numbers that fades."""

    def step(sums: Array, key: Array) -> Any:
        return 0.5 * sums + jnp.zeros(64).at[at].add(x * jax.random.uniform(key, (300,))), None

    return lax.scan(step, jnp.zeros(64), jax.random.split(key, 30))[0]


@loop("lanes", s32(64, 24, low=0, high=4), s32(64, 24, low=0, high=4))
def needleman_wunsch(a: Array, b: Array) -> Any:
    """The best global alignment of 64 pairs, rows of the table in an inner scan with a column before them."""

    def one(a: Array, b: Array) -> Array:
        def row(before: Array, given: Any) -> Any:
            number, letter = given
            first = -1.0 * (number + 1).astype(jnp.float32)

            def cell(left: Array, column: Any) -> Any:
                up, diagonal, other = column
                here = jnp.maximum(diagonal + jnp.where(letter == other, 2.0, -1.0), jnp.maximum(up, left) - 1.0)
                return here, here

            after = lax.scan(cell, first, (before[1:], before[:-1], b))[1]
            return jnp.concatenate([first[None], after]), None

        return lax.scan(row, -1.0 * jnp.arange(25.0), (jnp.arange(24), a))[0][-1]

    return jax.vmap(one)(a, b)


@loop("lanes", f32(128, 6), f32(128, 6), heavy=True)
def chains_of_links(angle: Array, speed: Array) -> Any:
    """Chains of six links that hang from each other."""

    def step(angle: Array, speed: Array) -> Any:
        before = jnp.concatenate([jnp.zeros((128, 1)), angle[:, :-1]], 1)
        after = jnp.concatenate([angle[:, 1:], angle[:, -1:]], 1)
        speed = speed + 0.01 * (jnp.sin(before - angle) + jnp.sin(after - angle) - 0.98 * jnp.sin(angle))
        return angle + 0.01 * speed, speed

    return rounds(100, step, (angle, speed))
