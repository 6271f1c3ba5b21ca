"""Loops of the table of loops (`loop_table`) that estimate: optimisers with a memory, control, transport, decoding, and
particles that push each other."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from scripts.bench.loop_table import Array, loop, rounds
from scripts.programs.case import f32


@loop("block", f32(16, low=-1, high=1), f32(20, 32, 16, low=-1, high=1), couples=("dot", "reduce", "sort"), heavy=True)
def evolving_covariance(middle: Array, draws: Array) -> Any:
    """Steps of an evolution strategy with all of the covariance, kept by its factor; better points weigh more."""

    def worth(x: Array) -> Array:
        return ((x - 0.3) ** 2 * (1 + jnp.arange(16.0))).sum(-1)

    def step(state: Any, drawn: Array) -> Any:
        middle, factor, size = state
        turned = drawn @ factor.T
        points = middle + size * turned
        value = worth(points)
        rank = (value[:, None] > value[None]).sum(1)
        weight = jnp.maximum(0.0, jnp.log(16.5) - jnp.log(1.0 + rank))
        weight = weight / weight.sum()
        mean = weight @ drawn
        second = (drawn * weight[:, None]).T @ drawn
        factor = 0.95 * factor + 0.05 * (factor @ (0.5 * (second + jnp.eye(16))))
        size = size * jnp.exp(0.2 * (jnp.sqrt((mean**2).sum()) - 0.6))
        return (middle + size * (weight @ turned), factor, size), value.min()

    return lax.scan(step, (middle, jnp.eye(16), jnp.float32(0.5)), draws)


@loop("block", f32(64, low=-1, high=1), couples=("reduce", "slice", "concatenate", "dynamic-slice"), heavy=True)
def limited_memory(start: Array) -> Any:
    """Limited-memory BFGS on a chain of Rosenbrock's valleys: the two loops over eight kept pairs."""

    def worth(x: Array) -> Array:
        return (10 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()

    def step(x: Array, slope: Array, moves: Array, turns: Array, scale: Array) -> Any:
        way, shares = slope, []
        for k in range(7, -1, -1):
            share = scale[k] * (moves[k] * way).sum()
            way = way - share * turns[k]
            shares.append(share)
        way = way * jnp.maximum(0.01, (moves[7] * turns[7]).sum() / ((turns[7] ** 2).sum() + 1e-6))
        for k in range(8):
            back = scale[k] * (turns[k] * way).sum()
            way = way + (shares[7 - k] - back) * moves[k]
        new = x - 0.2 * way
        then = jax.grad(worth)(new)
        move, turn = new - x, then - slope
        kept = 1 / jnp.maximum((move * turn).sum(), 1e-6)
        moves, turns = (jnp.concatenate([a[1:], b[None]]) for a, b in ((moves, move), (turns, turn)))
        return new, then, moves, turns, jnp.concatenate([scale[1:], kept[None]])

    none = jnp.zeros((8, 64))
    return rounds(40, step, (start, jax.grad(worth)(start), none, none, jnp.zeros(8)))[0]


@loop("block", f32(8, 8, low=-0.3, high=0.3), f32(8, 1), couples=("dot", "reduce"))
def riccati(a: Array, b: Array) -> Any:
    """The cost to go of a linear system with one input: no system of equations is solved."""

    def step(p: Array) -> Array:
        gain = (b.T @ p @ a) / (1.0 + (b.T @ p @ b)[0, 0])
        return jnp.eye(8) + a.T @ p @ (a - b @ gain)

    return rounds(60, step, jnp.eye(8))


@loop("block", f32(48, 48), f32(48, low=0.5, high=1), f32(48, low=0.5, high=1), couples=("reduce",), heavy=True)
def transport_of_logarithms(cost: Array, rows: Array, columns: Array) -> Any:
    """Sinkhorn's steps on logarithms."""
    rows, columns = (jnp.log(x / x.sum()) for x in (rows, columns))

    def step(f: Array, g: Array) -> Any:
        f = rows - jax.nn.logsumexp(g[None] - 10 * cost, axis=1)
        return f, columns - jax.nn.logsumexp(f[:, None] - 10 * cost, axis=0)

    return rounds(40, step, (rows * 0, columns * 0))


@loop("block", f32(256, low=-1, high=1), f32(256, low=-0.5, high=0.5), couples=("slice", "concatenate"), heavy=True)
def ring_of_neurons(v: Array, w: Array) -> Any:
    """FitzHugh and Nagumo's neurons in a ring, each coupled with the next ones."""

    def step(v: Array, w: Array) -> Any:
        spread = jnp.roll(v, 1) + jnp.roll(v, -1) - 2 * v
        new = v + 0.05 * (v - v**3 / 3 - w + 0.5 + 0.8 * spread)
        return new, w + 0.05 * 0.08 * (v + 0.7 - 0.8 * w)

    return rounds(200, step, (v, w))


@loop("block", f32(96, low=-0.1, high=0.1), couples=("reduce",), heavy=True)
def smoothed_particles(shift: Array) -> Any:
    """A gas in a tube as particles, each smoothed over its neighbours."""
    place = jnp.arange(96.0) / 96 + 0.02 * shift

    def step(x: Array, v: Array) -> Any:
        apart = x[:, None] - x[None]
        q = apart * 32
        near = jnp.exp(-q * q)
        density = near.sum(1)
        pressure = 0.1 / density
        push = ((pressure[:, None] + pressure[None]) * q * near).sum(1)
        thick = ((v[None] - v[:, None]) * near).sum(1) / density
        v = v + 0.002 * push + 0.05 * thick
        return x + 0.002 * v, v

    return rounds(60, step, (place, place * 0))


@loop("block", f32(60, 24, low=-1, high=1), f32(24, 24, low=-1, high=1), couples=("reduce", "gather", "dynamic-slice"))
def best_tags(scores: Array, turns: Array) -> Any:
    """The best tags of a sentence under a random field, forwards and then back."""

    def forward(best: Array, score: Array) -> Any:
        ways = best[:, None] + turns
        return ways.max(0) + score, ways.argmax(0).astype(jnp.int32)

    best, came = lax.scan(forward, scores[0], scores[1:])
    last = best.argmax().astype(jnp.int32)

    def back(tag: Array, row: Array) -> Any:
        return row[tag], tag

    first, tags = lax.scan(back, last, came, reverse=True)
    return first, tags, best.max()
