"""Loops of the table of loops (`loop_table`) by the method that they are: tables, lattices, chains, solvers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from scripts.bench.loop_table import Array, loop, rounds
from scripts.programs.case import f32, s32, words

# ---- dynamic programs over tables


@loop("block", f32(40, low=1, high=9), s32(40, low=1, high=30), couples=("gather",))
def knapsack(worth: Array, weight: Array) -> Any:
    """The best worth for each of 256 capacities, an item a round."""
    room = jnp.arange(256)

    def step(best: Array, item: Any) -> Any:
        worth, weight = item
        with_it = jnp.where(room >= weight, best[jnp.clip(room - weight, 0, 255)] + worth, 0.0)
        return jnp.maximum(best, with_it), None

    return lax.scan(step, jnp.zeros(256), (worth, weight))[0]


@loop("block", s32(16, 40, low=0, high=4), s32(16, 40, low=0, high=4), couples=("concatenate",))
def smith_waterman(a: Array, b: Array) -> Any:
    """The best local alignment of sixteen pairs, an anti-diagonal a round."""
    place = jnp.arange(40)

    def step(state: Any, number: Array) -> Any:
        before, last, best = state
        other = number - place
        is_inside = (other >= 0) & (other < 40)
        same = a == b[:, jnp.clip(other, 0, 39)]
        zero = jnp.zeros((16, 1))
        up = jnp.concatenate([zero, last[:, :-1]], axis=1)
        diagonal = jnp.concatenate([zero, before[:, :-1]], axis=1)
        score = jnp.maximum(jnp.maximum(diagonal + jnp.where(same, 2.0, -1.0), jnp.maximum(up, last) - 1.0), 0.0)
        score = jnp.where(is_inside, score, 0.0)
        return (last, score, jnp.maximum(best, score.max(axis=1))), None

    zeros = jnp.zeros((16, 40))
    return lax.scan(step, (zeros, zeros, jnp.zeros(16)), jnp.arange(79))[0][2]


@loop("lanes", f32(50, 64, 13, low=-5, high=0))
def ctc_forward(scores: Array) -> Any:
    """The score of a label of six letters in 64 recordings of fifty frames."""
    skips = jnp.where((jnp.arange(13) % 2 == 1) & (jnp.arange(13) > 1), 0.0, -1e9)

    def step(alpha: Array, frame: Array) -> Any:
        one = jnp.concatenate([jnp.full((64, 1), -1e9), alpha[:, :-1]], axis=1)
        two = jnp.concatenate([jnp.full((64, 2), -1e9), alpha[:, :-2]], axis=1) + skips
        return jnp.logaddexp(jnp.logaddexp(alpha, one), two) + frame, None

    return lax.scan(step, jnp.full((64, 13), -1e9).at[:, 0].set(0.0), scores)[0]


@loop("block", f32(24, 40), f32(24), couples=("reduce",))
def viterbi_path(emit: Array, start: Array) -> Any:
    """The best path, by pointers back that each round of the first loop stacks."""
    move = jnp.cos(jnp.arange(576.0)).reshape(24, 24)

    def forward(score: Array, emit: Array) -> Any:
        through = score[:, None] + move
        return through.max(0) + emit, through.argmax(0)

    last, back = lax.scan(forward, start, emit.T)
    end = last.argmax()
    return lax.scan(lambda at, back: (back[at], at), end, back, reverse=True)[1]


@loop("lanes", f32(64, 12), f32(64, 12), heavy=True)
def soft_warping(a: Array, b: Array) -> Any:
    """Soft dynamic time warping of 64 pairs, rows of the table in an inner scan."""

    def one(a: Array, b: Array) -> Array:
        def row(before: Array, x: Array) -> Any:
            def cell(left: Any, column: Any) -> Any:
                up, diagonal, y = column
                least = -0.1 * jnp.log(jnp.exp(-10 * left) + jnp.exp(-10 * up) + jnp.exp(-10 * diagonal) + 1e-20)
                here = (x - y) ** 2 + least
                return here, here

            diagonals = jnp.concatenate([jnp.zeros(1), before[:-1]])
            after = lax.scan(cell, jnp.float32(1.0), (before, diagonals, b))[1]
            return after, None

        return lax.scan(row, jnp.ones(12), a)[0][-1]

    return jax.vmap(one)(a, b)


@loop("lanes", words(1024), words(1024, 24))
def bit_distances(pattern: Array, text: Array) -> Any:
    """Myers' edit distance by bits, 24 letters of a text for each lane."""

    def step(state: Any, letter: Array) -> Any:
        plus, minus, score = state
        equal = ~(pattern ^ letter)
        across = (((equal & plus) + plus) ^ plus) | equal | minus
        up, down = minus | ~(across | plus), plus & across
        score = score + ((up >> 31) & 1).astype(jnp.int32) - ((down >> 31) & 1).astype(jnp.int32)
        up, down = (up << 1) | 1, down << 1
        return (down | ~(across | up), up & across, score), None

    start = (jnp.full(1024, 0xFFFFFFFF, jnp.uint32), jnp.zeros(1024, jnp.uint32), jnp.full(1024, 32))
    return lax.scan(step, start, text.T)[0][2]


# ---- graphs


@loop("block", f32(64, 64, low=0.1, high=5), couples=("reduce",))
def dijkstra(way: Array) -> Any:
    """The shortest ways from the first node: the nearest open one is settled each round."""

    def step(far: Array, is_open: Array) -> Any:
        near = jnp.argmin(jnp.where(is_open, far, jnp.inf))
        return jnp.minimum(far, far[near] + way[near]), is_open.at[near].set(False)

    return rounds(64, step, (jnp.full(64, jnp.inf).at[0].set(0.0), jnp.ones(64, bool)))[0]


@loop("launches", s32(400, low=0, high=256), s32(400, low=0, high=256), couples=("scatter",))
def components(a: Array, b: Array) -> Any:
    """The least node of each component, until nothing changes."""

    def step(state: Any) -> Any:
        label, _ = state
        least = jnp.minimum(label[a], label[b])
        new = label.at[a].min(least).at[b].min(least)
        return new, (new != label).any()

    return lax.while_loop(lambda s: s[1], step, (jnp.arange(256), jnp.bool_(True)))[0]


# ---- lattices


def _shifted(x: Array, by: tuple[int, int]) -> Array:
    return jnp.roll(x, by, axis=(0, 1))


@loop("grid", f32(9, 24, 24, low=0.05, high=0.15), couples=("concatenate",), heavy=True)
def lattice_boltzmann(f: Array) -> Any:
    """Nine directions of a fluid on a small torus."""
    ways = ((0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1))
    shares = (4 / 9, *(1 / 9,) * 4, *(1 / 36,) * 4)

    def step(f: Array) -> Array:
        f = jnp.stack([_shifted(f[n], way) for n, way in enumerate(ways)])
        mass = f.sum(0)
        x = sum(way[0] * f[n] for n, way in enumerate(ways)) / mass
        y = sum(way[1] * f[n] for n, way in enumerate(ways)) / mass
        speed = x * x + y * y
        still = []
        for (a, b), share in zip(ways, shares, strict=True):
            along = a * x + b * y
            still.append(share * mass * (1 + 3 * along + 4.5 * along * along - 1.5 * speed))
        return f + (jnp.stack(still) - f) / 0.8

    return rounds(30, step, f)


@loop("grid", f32(48, 48, low=0.9, high=1.1), f32(48, 48), f32(48, 48), couples=("concatenate",), heavy=True)
def shallow_water(h: Array, u: Array, v: Array) -> Any:
    """Height and two speeds of water on a torus."""

    def slope(x: Array, axis: int) -> Array:
        return 0.5 * (jnp.roll(x, -1, axis) - jnp.roll(x, 1, axis))

    def step(h: Array, u: Array, v: Array) -> Any:
        u = u - 0.05 * (u * slope(u, 0) + v * slope(u, 1) + 9.8 * slope(h, 0))
        v = v - 0.05 * (u * slope(v, 0) + v * slope(v, 1) + 9.8 * slope(h, 1))
        return h - 0.05 * (slope(h * u, 0) + slope(h * v, 1)), 0.99 * u, 0.99 * v

    return rounds(40, step, (h, u * 0.1, v * 0.1))


@loop("block", f32(24, 24, 3), f32(24, 24, 3), couples=("multiply",), heavy=True)
def cloth(place: Array, before: Array) -> Any:
    """Verlet's steps of a cloth whose springs pull along two directions."""

    def pull(place: Array, axis: int) -> Array:
        way = jnp.diff(place, axis=axis)
        length = jnp.sqrt((way * way).sum(-1, keepdims=True) + 1e-6)
        force = way * (1 - 0.1 / length)
        pads = [(0, 0)] * 3
        first, last = list(pads), list(pads)
        first[axis], last[axis] = (0, 1), (1, 0)
        return jnp.pad(force, first) - jnp.pad(force, last)

    def step(place: Array, before: Array) -> Any:
        force = pull(place, 0) + pull(place, 1) + jnp.array([0.0, -0.01, 0.0])
        return place + 0.99 * (place - before) + 0.01 * force, place

    return rounds(40, step, (place, before))[0]


# ---- particles


@loop("grid", f32(96, 2, low=0, high=10), f32(96, 2), couples=("reduce",), heavy=True)
def lennard_jones(place: Array, speed: Array) -> Any:
    """Atoms in a box whose sides meet."""

    def force(place: Array) -> Array:
        way = place[:, None] - place[None]
        way = way - 10.0 * jnp.round(way / 10.0)
        square = (way * way).sum(-1) + 1.0
        near = 1.0 / (square * square * square)
        return ((24 * (2 * near * near - near) / square)[..., None] * way).sum(1)

    def step(place: Array, speed: Array) -> Any:
        speed = speed + 0.001 * force(place)
        return (place + 0.01 * speed) % 10.0, speed

    return rounds(20, step, (place, speed))


@loop("block", f32(30), f32(256), couples=("reduce", "gather"))
def particle_filter(seen: Array, start: Array) -> Any:
    """Particles that are weighed by what is seen, and drawn again by their weights."""

    def step(state: Any, seen: Array) -> Any:
        x, number = state
        x = 0.9 * x + 0.3 * jnp.sin(12.9898 * (number + jnp.arange(256.0)))
        weight = jnp.exp(-0.5 * (x - seen) ** 2)
        up_to = jnp.cumsum(weight / weight.sum())
        places = (jnp.arange(256.0) + 0.5) / 256
        chosen = (up_to[None] < places[:, None]).sum(1)
        x = x[jnp.clip(chosen, 0, 255)]
        return (x, number + 1), x.mean()

    return lax.scan(step, (start, jnp.float32(0)), seen)[1]


# ---- chains of random numbers


@loop("lanes", f32(256, 3), words(2), heavy=True)
def hamiltonian(start: Array, key: Array) -> Any:
    """Hamiltonian Monte Carlo in three dimensions, five leapfrog steps a round."""

    def slope(q: Array) -> Array:
        return q + 0.5 * jnp.sin(3 * q)

    def energy(q: Array, p: Array) -> Array:
        return (0.5 * q * q - jnp.cos(3 * q) / 6 + 0.5 * p * p).sum(-1)

    def step(q: Array, key: Array) -> Any:
        key, one, two = jax.random.split(key, 3)
        p = jax.random.normal(one, (256, 3))

        def leap(q: Array, m: Array) -> Any:
            m = m - 0.05 * slope(q)
            q = q + 0.1 * m
            return q, m - 0.05 * slope(q)

        new, m = rounds(5, leap, (q, p))
        takes = jnp.log(jax.random.uniform(two, (256,))) < energy(q, p) - energy(new, m)
        return jnp.where(takes[:, None], new, q), key

    return rounds(10, step, (start, key))[0]


@loop("grid", s32(24, 24, low=0, high=2), words(2), couples=("concatenate",), heavy=True)
def checkerboard(spins: Array, key: Array) -> Any:
    """Gibbs sampling of spins, the even cells and then the odd ones."""
    is_even = (jnp.arange(24)[:, None] + jnp.arange(24)) % 2 == 0

    def step(spins: Array, key: Array) -> Any:
        key, one, two = jax.random.split(key, 3)
        for draw, mask in ((one, is_even), (two, ~is_even)):
            near = sum(_shifted(2 * spins - 1, by) for by in ((0, 1), (1, 0), (0, -1), (-1, 0)))
            up = jax.nn.sigmoid(0.8 * near.astype(jnp.float32))
            spins = jnp.where(mask, (jax.random.uniform(draw, (24, 24)) < up).astype(jnp.int32), spins)
        return spins, key

    return rounds(12, step, (spins, key))[0]


# ---- solvers and learning


@loop("block", f32(4096, low=0, high=6.28), f32(4096, low=0, high=0.9), couples=("reduce",))
def kepler(mean: Array, bend: Array) -> Any:
    """Kepler's equation by Newton's method: lanes that are near enough stay."""

    def step(state: Any) -> Any:
        angle, _, n = state
        rest = angle - bend * jnp.sin(angle) - mean
        is_far = jnp.abs(rest) > 1e-5
        return jnp.where(is_far, angle - rest / (1 - bend * jnp.cos(angle)), angle), is_far, n + 1

    return lax.while_loop(lambda s: s[1].any() & (s[2] < 20), step, (mean, jnp.ones(4096, bool), jnp.int32(0)))[0]


@loop("block", f32(256), f32(4), couples=("reduce",), heavy=True)
def mixture(x: Array, middle: Array) -> Any:
    """Expectation and maximization of four bells over 256 numbers."""

    def step(middle: Array, width: Array, share: Array) -> Any:
        near = share * jnp.exp(-0.5 * (x[:, None] - middle) ** 2 / width) / jnp.sqrt(width)
        own = near / (near.sum(1, keepdims=True) + 1e-9)
        count = own.sum(0) + 1e-6
        new = (own * x[:, None]).sum(0) / count
        return new, (own * (x[:, None] - new) ** 2).sum(0) / count + 1e-3, count / 256

    return rounds(25, step, (middle, jnp.ones(4), jnp.full(4, 0.25)))


@loop("block", f32(20, 32), f32(32, 32), f32(32, 32), couples=("dot", "reduce"))
def remembering(words_in: Array, w: Array, u: Array) -> Any:
    """A cell that looks back at all that it was."""

    def step(state: Any, x: Array) -> Any:
        h, past, n = state
        score = jnp.where(jnp.arange(20) < n, past @ h / 5.7, -1e9)
        weight = jnp.exp(score - score.max())
        seen = (weight / weight.sum()) @ past
        h = jnp.tanh(w @ x + u @ (h + seen))
        return (h, past.at[n].set(h), n + 1), None

    return lax.scan(step, (jnp.zeros(32), jnp.zeros((20, 32)), jnp.int32(0)), words_in)[0][0]


@loop("lanes", f32(128, 12, 4), s32(128, low=0, high=12), words(2))
def sarsa(q: Array, start: Array, key: Array) -> Any:
    """State, action, reward: a table for each lane, read and written by `q[lane, s]`."""
    lane = jnp.arange(128)

    def step(q: Array, s: Array, key: Array) -> Any:
        key, draw = jax.random.split(key)
        explores = jax.random.uniform(draw, (128,)) < 0.1
        action = jnp.where(explores, s % 4, jnp.argmax(q[lane, s], axis=-1))
        after = (5 * s + action + 1) % 12
        best = q[lane, after].max(axis=-1)
        paid = (after == 0).astype(jnp.float32)
        return q.at[lane, s, action].add(0.1 * (paid + 0.9 * best - q[lane, s, action])), after, key

    return rounds(30, step, (q, start, key))[0]
