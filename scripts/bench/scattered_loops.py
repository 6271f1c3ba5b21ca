"""Loops of the table of loops (`loop_table`) whose rounds bring updates to places that they compute, or that look
numbers up: graphs, clusters that grow, deposits, counts, ciphers, checks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from scripts.bench.loop_table import Array, loop, rounds
from scripts.programs.case import f32, of, s32, words


@loop("launches", s32(700, low=0, high=200), s32(700, low=0, high=200), couples=("scatter",))
def breadth_first(source: Array, target: Array) -> Any:
    """Distances from node 0 along edges, until nothing changes."""

    def step(state: Any) -> Any:
        distance, level, _ = state
        reached = (distance[source] == level) & (distance[target] < 0)
        hit = jnp.zeros(200, bool).at[target].max(reached)
        return jnp.where(hit & (distance < 0), level + 1, distance), level + 1, hit.any()

    start = jnp.full(200, -1).at[0].set(0)
    return lax.while_loop(lambda s: s[2], step, (start, 0, jnp.bool_(True)))[0]


@loop("block", words(2), couples=("scatter",), heavy=True)
def dla(key: Array) -> Any:
    """Diffusion-limited aggregation: walkers stop beside the cluster, and others start where they were."""
    size, walkers = 32, 64

    def step(state: Any, key: Array) -> Any:
        grid, x, y = state
        first, second = jax.random.split(key)
        way = jax.random.randint(first, (walkers,), 0, 4)
        x = (x + jnp.where(way == 0, 1, jnp.where(way == 1, -1, 0))) % size
        y = (y + jnp.where(way == 2, 1, jnp.where(way == 3, -1, 0))) % size
        across, along = (jnp.roll(grid, 1, axis) + jnp.roll(grid, -1, axis) for axis in (0, 1))
        near = across + along > 0
        stops = near[x, y]
        grid = grid.at[x, y].max(stops.astype(jnp.int32))
        fresh = jax.random.randint(second, (2, walkers), 0, size)
        return (grid, jnp.where(stops, fresh[0], x), jnp.where(stops, fresh[1], y)), stops.sum()

    grid = jnp.zeros((size, size), jnp.int32).at[size // 2, size // 2].set(1)
    x, y = jax.random.randint(key, (2, walkers), 0, size)
    return lax.scan(step, (grid, x, y), jax.random.split(key, 60))


@loop("block", f32(256, low=0, high=63), f32(256), couples=("scatter",), heavy=True)
def particle_in_cell(x: Array, v: Array) -> Any:
    """Charges on a ring of cells: deposit, field, push."""
    cells = 64

    def step(x: Array, v: Array) -> Any:
        left = jnp.floor(x).astype(jnp.int32) % cells
        part = x - jnp.floor(x)
        density = jnp.zeros(cells).at[left].add(1 - part).at[(left + 1) % cells].add(part)
        density = density - density.mean()
        field = -jnp.cumsum(density)
        pull = field[left] * (1 - part) + field[(left + 1) % cells] * part
        v = v + 0.01 * pull
        return jnp.mod(x + 0.05 * v, cells), v

    return rounds(40, step, (x, v))


@loop("block", s32(500, low=0, high=300), s32(500, low=0, high=300), f32(500, low=0, high=1), couples=("scatter",))
def label_propagation(a: Array, b: Array, weight: Array) -> Any:
    """The heaviest neighbour's label of each node."""

    def step(label: Array) -> Array:
        best = jnp.zeros(300).at[a].max(weight + 0.001 * label[b])
        chosen = jnp.where(weight + 0.001 * label[b] >= best[a], label[b], -1.0)
        return jnp.maximum(label, jnp.full(300, -1.0).at[a].max(chosen))

    return rounds(20, step, jnp.arange(300.0))


@loop("block", s32(256, low=0, high=256), couples=("scatter",))
def permuted(order: Array) -> Any:
    """A permutation applied again and again, by writing each element where it goes."""
    order = jnp.argsort(order)

    def step(x: Array) -> Array:
        return jnp.zeros(256, jnp.int32).at[order].set(x * 5 + 1, unique_indices=True)

    return rounds(60, step, jnp.arange(256, dtype=jnp.int32))


@loop("block", f32(128), s32(128, low=0, high=16), words(2), couples=("scatter",))
def last_writer(x: Array, at: Array, key: Array) -> Any:
    """A small table in which the last of the writers of a place stays."""

    def step(state: Any, shift: Array) -> Any:
        table, x = state
        table = table.at[(at + shift) % 16].set(x)
        return (table, x * 0.9 + table[at] * 0.1), table.sum()

    shifts = jax.random.randint(key, (50,), 0, 16)
    return lax.scan(step, (jnp.zeros(16), x), shifts)


@loop(
    "block", of("uint8", 48, 48, low=0, high=2), s32(40, low=0, high=48), s32(40, low=0, high=48), couples=("scatter",)
)
def langton(cells: Array, x: Array, y: Array) -> Any:
    """Ants that turn by the colour of their cell, and change it."""
    dx, dy = jnp.array([0, 1, 0, -1]), jnp.array([1, 0, -1, 0])

    def step(cells: Array, x: Array, y: Array, way: Array) -> Any:
        here = cells[x, y]
        way = (way + jnp.where(here > 0, 1, 3)) % 4
        cells = cells.at[x, y].set(1 - here)
        return cells, (x + dx[way]) % 48, (y + dy[way]) % 48, way

    return rounds(100, step, (cells, x, y, jnp.zeros(40, jnp.int32)))


@loop("block", f32(60, 8), s32(90, low=0, high=60), s32(90, low=0, high=60), couples=("scatter",), heavy=True)
def message_passing(nodes: Array, source: Array, target: Array) -> Any:
    """Features of neighbours added up along edges, rows at a time."""

    def step(nodes: Array) -> Array:
        sent = jnp.tanh(nodes[source])
        return 0.5 * nodes + 0.1 * jnp.zeros((60, 8)).at[target].add(sent)

    return rounds(20, step, nodes)


@loop("lanes", of("uint32", 2048), heavy=True)
def crc_table(data: Array) -> Any:
    """CRC-32 of four bytes of each word, from a table that a loop makes."""

    def entry(n: Array) -> Array:
        return rounds(8, lambda c: jnp.where(c & 1, jnp.uint32(0xEDB88320) ^ (c >> 1), c >> 1), n)

    table = entry(jnp.arange(256, dtype=jnp.uint32))

    def step(crc: Array, left: Array) -> Any:
        return table[(crc ^ left) & 255] ^ (crc >> 8), left >> 8

    return rounds(4, step, (jnp.full((2048,), 0xFFFFFFFF, jnp.uint32), data))[0]


@loop("lanes", of("uint8", 256, 64), heavy=False)
def crc_bytes(data: Array) -> Any:
    """CRC-32 of 256 rows of bytes, by a table of constants."""
    table = jnp.arange(256, dtype=jnp.uint32)
    for _ in range(8):
        table = jnp.where(table & 1, jnp.uint32(0xEDB88320) ^ (table >> 1), table >> 1)

    def step(crc: Array, byte: Array) -> Any:
        return table[(crc ^ byte.astype(jnp.uint32)) & 255] ^ (crc >> 8), None

    return lax.scan(step, jnp.full((256,), 0xFFFFFFFF, jnp.uint32), data.T)[0]


@loop("lanes", of("uint32", 512, 2), of("uint32", 4), heavy=True)
def tea(block: Array, key: Array) -> Any:
    """The Tiny Encryption Algorithm on 512 blocks."""

    def step(i: Array, state: Any) -> Any:
        a, b = state
        total = (i.astype(jnp.uint32) + 1) * jnp.uint32(0x9E3779B9)
        a = a + (((b << 4) + key[0]) ^ (b + total) ^ ((b >> 5) + key[1]))
        b = b + (((a << 4) + key[2]) ^ (a + total) ^ ((a >> 5) + key[3]))
        return a, b

    return jnp.stack(lax.fori_loop(0, 32, step, (block[:, 0], block[:, 1])), 1)


@loop("lanes", of("uint32", 512, 16), heavy=True)
def chacha(state: Array) -> Any:
    """Twenty rounds of ChaCha on 512 states."""

    def quarter(x: list[Array], a: int, b: int, c: int, d: int) -> None:
        for p, q, r, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[p] = x[p] + x[q]
            x[r] = x[r] ^ x[p]
            x[r] = (x[r] << by) | (x[r] >> (32 - by))

    def step(_: Array, words: Any) -> Any:
        x = list(words)
        for four in ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)):
            quarter(x, *four)
        for four in ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)):
            quarter(x, *four)
        return tuple(x)

    start = tuple(state[:, n] for n in range(16))
    return jnp.stack([a + b for a, b in zip(lax.fori_loop(0, 10, step, start), start, strict=True)], 1)


@loop("lanes", of("uint32", 256, 16), heavy=True)
def sha_schedule(words_: Array) -> Any:
    """Rounds of SHA-256 on 256 messages, with the words in a ring."""

    def turn(x: Array, by: int) -> Array:
        return (x >> by) | (x << (32 - by))

    def step(state: Any, _: Array) -> Any:
        a, b, c, d, e, f, g, h, w = state
        first = h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + w[:, 0] + jnp.uint32(0x428A2F98)
        second = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))
        x, y = w[:, 1], w[:, 14]
        new = w[:, 0] + (turn(x, 7) ^ turn(x, 18) ^ (x >> 3)) + w[:, 9] + (turn(y, 17) ^ turn(y, 19) ^ (y >> 10))
        w = jnp.concatenate([w[:, 1:], new[:, None]], 1)
        return (first + second, a, b, c, d + first, e, f, g, w), None

    start = tuple(jnp.full((256,), 0x6A09E667 + 7 * n, jnp.uint32) for n in range(8))
    return lax.scan(step, (*start, words_), jnp.arange(64))[0][:8]


@loop("block", of("uint32", 8), couples=("reduce",))
def rc4(key: Array) -> Any:
    """The key schedule of RC4: swaps in a table of 256, at places that depend on the table."""

    def step(i: Array, state: Any) -> Any:
        table, j = state
        here = table[i]
        j = (j + here + key[i % 8]) & 255
        there = table[j]
        return table.at[i].set(there).at[j].set(here), j

    return lax.fori_loop(0, 256, step, (jnp.arange(256, dtype=jnp.uint32), jnp.uint32(0)))[0]
