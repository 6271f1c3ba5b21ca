"""Loops of the table of loops (`loop_table`) from many fields: filters, codes, sampling, paths in graphs, learning."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from scripts.bench.loop_table import Array, loop, rounds
from scripts.programs.case import f32, s32, words

N = 4096


# ---- lanes


@loop("lanes", f32(256, 4), f32(30, 256, 2), heavy=True)
def kalman_filters(x: Array, seen: Array) -> Any:
    """A place and a speed in two dimensions for each lane."""
    move, look = jnp.eye(4) + 0.1 * jnp.eye(4, k=2), jnp.eye(2, 4)

    def step(state: Any, z: Array) -> Any:
        x, p = state
        x, p = x @ move.T, move @ p @ move.T + 0.01 * jnp.eye(4)
        s = look @ p @ look.T + 0.1 * jnp.eye(2)
        a, b, c, d = s[:, 0, 0], s[:, 0, 1], s[:, 1, 0], s[:, 1, 1]
        turned = jnp.stack([jnp.stack([d, -b], -1), jnp.stack([-c, a], -1)], -2)
        gain = p @ look.T @ (turned / (a * d - b * c)[:, None, None])
        x = x + jnp.einsum("nij,nj->ni", gain, z - x @ look.T)
        return (x, p - gain @ look @ p), x

    return lax.scan(step, (x, jnp.broadcast_to(jnp.eye(4), (256, 4, 4))), seen)


@loop("lanes", f32(N, 3, low=-10, high=10), heavy=True)
def attractor_until_high(points: Array) -> Any:
    """Fourth order, each lane until its third coordinate is large."""

    def slope(q: Array) -> Array:
        x, y, z = q
        return jnp.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

    def step(s: Any) -> Any:
        q, n = s
        a = slope(q)
        b = slope(q + 0.005 * a)
        c = slope(q + 0.005 * b)
        return q + 0.01 / 6 * (a + 2 * b + 2 * c + slope(q + 0.01 * c)), n + 1

    return jax.vmap(lambda q: lax.while_loop(lambda s: (s[0][2] < 35) & (s[1] < 200), step, (q, 0)))(points)


@loop("lanes", f32(200, 128), heavy=True)
def filter_bank(signals: Array) -> Any:
    """Four filters of second order one after another, for each channel."""

    def step(held: Array, x: Array) -> Any:
        out = []
        for k in range(4):
            y = (0.2 + 0.1 * k) * x + held[2 * k]
            out += [0.3 * x - 0.4 * y + held[2 * k + 1], 0.2 * x - 0.1 * y]
            x = y
        return jnp.stack(out), x

    return lax.scan(step, jnp.zeros((8, 128)), signals)


@loop("lanes", words(16, 1024), heavy=True)
def mixed_words(message: Array) -> Any:
    """Sixty-four rounds like those of SHA-256, with its window of sixteen words and a table of constants."""
    table = jnp.array([(i * 2654435761) % 2**32 for i in range(64)], jnp.uint32)

    def turned(x: Array, n: int) -> Array:
        return (x >> n) | (x << (32 - n))

    def step(i: Array, s: Any) -> Any:
        w, (a, b, c, d, e, f, g, h) = s
        one = h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & f) ^ (~e & g)) + table[i] + w[0]
        two = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))
        new = w[0] + (turned(w[1], 7) ^ (w[1] >> 3)) + w[9] + (turned(w[14], 17) ^ (w[14] >> 10))
        return jnp.concatenate([w[1:], new[None]]), (one + two, a, b, c, d + one, e, f, g)

    start = tuple(jnp.full(1024, i * 1234567 + 99, jnp.uint32) for i in range(8))
    return lax.fori_loop(0, 64, step, (message, start))[1]


@loop("lanes", f32(512))
def three_rounds_ago(x: Array) -> Any:
    """A history that is written and read in each round."""

    def step(i: Array, s: Any) -> Any:
        x, rows = s
        rows = lax.dynamic_update_slice(rows, x[None], (i, 0))
        return 0.5 * x + jnp.sin(rows[jnp.maximum(i - 3, 0)]), rows

    return lax.fori_loop(0, 50, step, (x, jnp.zeros((50, 512))))


@loop("lanes", f32(256, 6, 6, low=-0.3, high=0.3), heavy=True)
def cholesky_each(a: Array) -> Any:
    """A column of each lane's matrix in each round."""
    a = jnp.einsum("nij,nkj->nik", a, a) + jnp.eye(6)
    r = jnp.arange(6)

    def step(j: Array, a: Array) -> Array:
        column = lax.dynamic_index_in_dim(a, j, 2, False)
        scaled = jnp.where(r >= j, column * lax.rsqrt(lax.dynamic_index_in_dim(column, j, 1, True)), 0)
        below = jnp.where(r > j, scaled, 0)
        return jnp.where(r == j, scaled[:, :, None], a - below[:, :, None] * below[:, None, :])

    return lax.fori_loop(0, 6, step, a)


@loop("lanes", f32(100, 512, low=2, high=3), f32(100, 512, low=-1, high=1), f32(100, 512))
def tridiagonal(middle: Array, side: Array, right: Array) -> Any:
    """Thomas' elimination, from the start and back from the end."""

    def down(s: Any, x: Any) -> Any:
        c, d = s
        a, b, r = x
        m = b - a * c
        c, d = 0.5 / m, (r - a * d) / m
        return (c, d), (c, d)

    def up(x: Array, s: Any) -> Any:
        c, d = s
        x = d - c * x
        return x, x

    none = jnp.zeros(512)
    kept = lax.scan(down, (none, none), (side, middle, right))[1]
    return lax.scan(up, none, kept, reverse=True)[1]


@loop("lanes", f32(256, 10), words(2), heavy=True)
def bandits(truth: Array, key: Array) -> Any:
    """Ten arms for each lane, drawn by what they are thought to be worth."""

    def step(s: Any, key: Array) -> Any:
        worth, n = s
        one, two = jax.random.split(key)
        chosen = jax.nn.one_hot(jax.random.categorical(one, worth), 10)
        paid = (truth * chosen).sum(1) + jax.random.normal(two, (256,))
        n = n + chosen
        return (worth + chosen * (paid[:, None] - worth) / jnp.maximum(n, 1), n), paid

    none = jnp.zeros((256, 10))
    return lax.scan(step, (none, none), jax.random.split(key, 20))


@loop("lanes", s32(128, low=0, high=8), f32(128, 30, low=0, high=1))
def learned_tables(start: Array, drawn: Array) -> Any:
    """A table of eight states and four actions for each lane, by what follows each action."""

    def one(start: Array, drawn: Array) -> Any:
        def step(s: Any, u: Array) -> Any:
            worth, at = s
            action = jnp.where(u < 0.1, (u * 40).astype(jnp.int32) % 4, worth[at].argmax())
            then = (at * 3 + action + 1) % 8
            paid = (then == 5).astype(jnp.float32)
            better = paid + 0.9 * worth[then].max() - worth[at, action]
            return (worth.at[at, action].add(0.1 * better), then), paid

        return lax.scan(step, (jnp.zeros((8, 4)), start), drawn)

    return jax.vmap(one)(start, drawn)


# ---- one block, or all


@loop("block", f32(32, 4), f32(4, 32, 32, low=0, high=1), couples=("dot", "reduce"))
def value_iteration(paid: Array, moves: Array) -> Any:
    """What states are worth, until that is settled."""
    moves = moves / moves.sum(-1, keepdims=True)

    def step(s: Any) -> Any:
        v, _, i = s
        new = (paid + 0.9 * jnp.einsum("ast,t->sa", moves, v)).max(1)
        return new, jnp.abs(new - v).max(), i + 1

    return lax.while_loop(lambda s: (s[1] > 1e-4) & (s[2] < 200), step, (jnp.zeros(32), jnp.float32(1), 0))


@loop("block", s32(32, 32, low=0, high=2), words(2), couples=("slice", "concatenate", "pad"))
def ising(spins: Array, key: Array) -> Any:
    """White and black places in turn, with numbers drawn inside."""
    i, j = jnp.indices((32, 32))

    def step(t: Array, s: Array) -> Array:
        for colour in (0, 1):
            u = jax.random.uniform(jax.random.fold_in(key, 2 * t + colour), (32, 32))
            n = jnp.roll(s, 1, 0) + jnp.roll(s, -1, 0) + jnp.roll(s, 1, 1) + jnp.roll(s, -1, 1)
            turns = (u < jnp.exp(-0.8 * (s * n).astype(jnp.float32))) & ((i + j) % 2 == colour)
            s = jnp.where(turns, -s, s)
        return s

    return lax.fori_loop(0, 15, step, 2 * spins - 1)


@loop("block", f32(48, 48, low=0, high=1), couples=("dynamic-slice",))
def all_ways(d: Array) -> Any:
    """Floyd and Warshall's shortest ways."""
    return lax.fori_loop(0, 48, lambda k, d: jnp.minimum(d, d[:, k, None] + d[k, None, :]), d)


@loop("block", f32(64, 64), f32(64), couples=("sort", "gather", "reduce", "slice", "concatenate"))
def beams(move: Array, start: Array) -> Any:
    """The eight best sequences, with the way back."""

    def step(s: Any, _: None) -> Any:
        score, at = s
        score, k = lax.top_k((score[:, None] + move[at]).reshape(-1), 8)
        return (score, k % 64), k // 64

    return lax.scan(step, tuple(lax.top_k(start, 8)), None, length=16)


@loop("block", f32(256, low=-0.9, high=0.9), f32(256), couples=("slice", "concatenate", "pad", "reduce-window"))
def scans_inside(a: Array, x: Array) -> Any:
    """A linear recurrence by `associative_scan` in each round."""

    def joined(p: Any, q: Any) -> Any:
        return p[0] * q[0], q[0] * p[1] + q[1]

    return rounds(10, lambda x: jnp.tanh(lax.associative_scan(joined, (a, x))[1]), x)


@loop("block", f32(64, 8), f32(64), f32(8, 16), f32(16), couples=("dot", "reduce"))
def trained_inside(x: Array, y: Array, first: Array, second: Array) -> Any:
    """A small network, its loss and gradient."""

    def loss(p: Any) -> Any:
        return ((jnp.tanh(x @ p[0]) @ p[1] - y) ** 2).mean()

    def step(p: Any, _: None) -> Any:
        worth, g = jax.value_and_grad(loss)(p)
        return jax.tree.map(lambda a, b: a - 0.05 * b, p, g), worth

    return lax.scan(step, (first, second), None, length=30)


@loop("block", f32(128, low=-1, high=1), f32(128, low=-1, high=1), f32(128, low=0.5, high=1), couples=("scatter",))
def particles_on_a_grid(x: Array, v: Array, charge: Array) -> Any:
    """Charges are summed in cells, and a field moves them on."""

    def step(x: Array, v: Array) -> Any:
        cell = jnp.floor((x + 1) * 16).astype(jnp.int32) % 32
        held = jnp.zeros(32).at[cell].add(charge)
        v = v - 0.1 * (jnp.cumsum(held - held.mean()) / 32)[cell]
        return (x + 0.1 * v + 1) % 2.0 - 1, v

    return rounds(20, step, (x, v))


@loop("block", f32(512, 2), f32(8, 2), couples=("scatter", "reduce"))
def small_clusters(points: Array, centres: Array) -> Any:
    """The nearest centre of each point, and the means of those that belong together."""

    def step(c: Array) -> Array:
        at = ((points[:, None] - c[None]) ** 2).sum(-1).argmin(1)
        total = jax.ops.segment_sum(points, at, 8)
        n = jax.ops.segment_sum(jnp.ones(512), at, 8)
        return jnp.where(n[:, None] > 0, total / jnp.maximum(n, 1)[:, None], c)

    return rounds(10, step, centres)


@loop("grid", f32(512, 512, low=0, high=1), f32(512, 512, low=0, high=0.2), couples=("slice", "concatenate", "pad"))
def gray_scott(u: Array, v: Array) -> Any:
    """Reaction and diffusion on a torus."""

    def spread(a: Array) -> Array:
        return jnp.roll(a, 1, 0) + jnp.roll(a, -1, 0) + jnp.roll(a, 1, 1) + jnp.roll(a, -1, 1) - 4 * a

    def step(u: Array, v: Array) -> Any:
        r = 0.2 * u * v * v
        return u + 0.16 * spread(u) - r + 0.007 * (1 - u), v + 0.08 * spread(v) + r - 0.02 * v

    return rounds(20, step, (u, v))


# ---- launches


@loop(
    "launches", s32(1024, low=0, high=128), s32(1024, low=0, high=128), f32(1024, low=0, high=1), couples=("scatter",)
)
def bellman_ford(start: Array, end: Array, length: Array) -> Any:
    """Shortest ways from one place, edge by edge."""
    d = jnp.full(128, 1e9).at[0].set(0)
    return rounds(20, lambda d: d.at[end].min(d[start] + length), d)


@loop("lanes", s32(128, 24, low=0, high=4), s32(128, 24, low=0, high=4))
def edit_distances(a: Array, b: Array) -> Any:
    """Rows of a table, cell by cell, for each pair of words."""

    def one(a: Array, b: Array) -> Any:
        def row(before: Array, at: Array) -> Any:
            def cell(left: Array, x: Any) -> Any:
                letter, up, corner = x
                new = jnp.minimum(jnp.minimum(left + 1, up + 1), corner + (at != letter))
                return new, new

            rest = lax.scan(cell, before[0] + 1, (b, before[1:], before[:-1]))[1]
            return jnp.concatenate([before[:1] + 1, rest]), None

        return lax.scan(row, jnp.arange(25), a)[0][-1]

    return jax.vmap(one)(a, b)
