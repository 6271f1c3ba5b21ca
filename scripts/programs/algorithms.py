"""Algorithms that are not layers: chains of scatters, squared lengths, sorted sums, small matrices of many filters."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
from jax import lax

from scripts.programs.case import Case, f32, of, s32, words

Arrays = tuple[jax.Array, ...]


def conjugate_gradients(matrix: jax.Array, right: jax.Array) -> Arrays:
    """Four steps, written out: products of the matrix with a vector, and squared lengths of residuals."""
    x, residual, direction, length = jnp.zeros_like(right), right, right, right @ right
    for _ in range(4):
        image = matrix @ direction
        step = length / (direction @ image)
        x, residual = x + step * direction, residual - step * image
        after = residual @ residual
        direction, length = residual + after / length * direction, after
    return x, length


def deposit(places: jax.Array, charges: jax.Array) -> jax.Array:
    """Charges of particles on the four corners of their cells, on a grid without ends."""
    scaled = places * 64
    cell = jnp.floor(scaled).astype(jnp.int32)
    part = scaled - cell
    grid = jnp.zeros((64, 64))
    for a, b in itertools.product((0, 1), repeat=2):
        share = (part[:, 0] if a else 1 - part[:, 0]) * (part[:, 1] if b else 1 - part[:, 1])
        grid = grid.at[(cell[:, 0] + a) % 64, (cell[:, 1] + b) % 64].add(charges * share)
    return grid


def hash_encoding_gradient(places: jax.Array, table: jax.Array, wanted: jax.Array) -> Arrays:
    """The gradient of a table that is read at four corners of each of two levels."""

    def loss(table: jax.Array) -> jax.Array:
        levels = []
        for level, rows in enumerate(table):
            scaled = places * (16 * 1.5**level)
            cell = jnp.floor(scaled)
            part, cell, total = scaled - cell, cell.astype(jnp.uint32), jnp.zeros((len(places), 2))
            for a, b in itertools.product((0, 1), repeat=2):
                row = ((cell[:, 0] + a) ^ ((cell[:, 1] + b) * jnp.uint32(2654435761))) % len(rows)
                share = (part[:, 0] if a else 1 - part[:, 0]) * (part[:, 1] if b else 1 - part[:, 1])
                total = total + table[level, row] * share[:, None]
            levels.append(total)
        return jnp.mean((jnp.concatenate(levels, -1) - wanted) ** 2)

    return jax.value_and_grad(loss)(table)


def viterbi(emissions: jax.Array, moves: jax.Array) -> Arrays:
    """The best path of states: a loop forward that notes where from, and one back."""

    def forward(best: jax.Array, emission: jax.Array) -> tuple[jax.Array, jax.Array]:
        through = best[:, :, None] + moves[None]
        return through.max(1) + emission, through.argmax(1)

    def back(state: jax.Array, origin: jax.Array) -> tuple[jax.Array, jax.Array]:
        before = jnp.take_along_axis(origin, state[:, None], 1)[:, 0]
        return before, state

    best, origins = lax.scan(forward, emissions[:, 0], emissions[:, 1:].swapaxes(0, 1))
    first, path = lax.scan(back, best.argmax(-1), origins, reverse=True)
    return best.max(-1), jnp.concatenate([first[None], path], 0)


def particle_filter(states: jax.Array, weights: jax.Array, seen: jax.Array, key: jax.Array) -> Arrays:
    """Particles move, are weighed by a measurement, and are drawn again at even distances."""
    noise, start = jax.random.split(jax.random.wrap_key_data(key))
    states = jnp.concatenate([states[:, :2] + 0.1 * states[:, 2:], states[:, 2:]], 1)
    states = states + 0.05 * jax.random.normal(noise, states.shape)
    share = jax.nn.softmax(weights - 0.5 * ((states[:, :2] - seen) ** 2).sum(-1) / 0.04)
    places = (jnp.arange(len(states)) + jax.random.uniform(start)) / len(states)
    drawn = jnp.searchsorted(jnp.cumsum(share), places)
    return states[drawn], (states * share[:, None]).sum(0), 1 / (share * share).sum()


def packed_sequences(lengths: jax.Array, tokens: jax.Array) -> Arrays:
    """Sequences behind each other in rows of one length, with the number of each and the place in it."""
    ends = jnp.cumsum(lengths)
    place = jnp.arange(32_768)
    number = jnp.minimum(jnp.searchsorted(ends, place, side="right"), len(lengths) - 1)
    offset = place - (ends - lengths)[number]
    inside = place < ends[-1]
    found = (tokens[number, jnp.minimum(offset, tokens.shape[1] - 1)], number + 1, offset)
    return tuple(jnp.where(inside, a, 0).reshape(16, 2048) for a in found)


def plaquettes(links: jax.Array) -> Arrays:
    """Traces of the smallest loops of a lattice with complex matrices of 2 by 2 on its links."""

    def turned(a: jax.Array) -> jax.Array:
        return jnp.conj(a.swapaxes(-1, -2))

    total = jnp.zeros(links.shape[:4])
    for m, n in itertools.combinations(range(4), 2):
        there = links[..., m, :, :] @ jnp.roll(links[..., n, :, :], -1, m)
        back = turned(jnp.roll(links[..., m, :, :], -1, n)) @ turned(links[..., n, :, :])
        total = total + jnp.real(jnp.trace(there @ back, axis1=-2, axis2=-1))
    return total.mean(), total


def preference_gradient(chosen: jax.Array, rejected: jax.Array, good: jax.Array, bad: jax.Array) -> Arrays:
    """Direct preference optimization: the loss of two answers' logits, and its gradient."""

    def score(logits: jax.Array, labels: jax.Array) -> jax.Array:
        each = jnp.take_along_axis(jax.nn.log_softmax(logits.astype(jnp.float32)), labels[..., None], -1)
        return (each[..., 0] * (labels > 0)).sum(-1)

    def loss(chosen: jax.Array, rejected: jax.Array) -> jax.Array:
        return -jax.nn.log_sigmoid(0.1 * (score(chosen, good) - score(rejected, bad))).mean()

    return jax.value_and_grad(loss, (0, 1))(chosen, rejected)


def wavelet_denoising(images: jax.Array) -> jax.Array:
    """One level of Haar wavelets, small details taken away, and back."""

    def apart(x: jax.Array) -> Arrays:
        return (x[..., 0::2] + x[..., 1::2]) * 0.5**0.5, (x[..., 0::2] - x[..., 1::2]) * 0.5**0.5

    def together(low: jax.Array, high: jax.Array) -> jax.Array:
        both = jnp.stack([(low + high) * 0.5**0.5, (low - high) * 0.5**0.5], -1)
        return both.reshape(*low.shape[:-1], -1)

    def turned(x: jax.Array) -> jax.Array:
        return x.swapaxes(-1, -2)

    def less(x: jax.Array) -> jax.Array:
        return jnp.sign(x) * jnp.maximum(jnp.abs(x) - 0.1, 0)

    low, high = apart(images)
    (smooth, rows), (columns, both) = apart(turned(low)), apart(turned(high))
    low, high = turned(together(smooth, less(rows))), turned(together(less(columns), less(both)))
    return together(low, high)


def clusters_of_batches(points: jax.Array, centres: jax.Array, counts: jax.Array) -> Arrays:
    """A step of k-means on a part of the points: centres move by the share of what is new."""
    distances = ((points[:, None] - centres[None]) ** 2).sum(-1)
    member = jax.nn.one_hot(distances.argmin(-1), len(centres))
    new = member.sum(0)
    counts = counts + new
    centres = centres + (member.T @ points - new[:, None] * centres) / jnp.maximum(counts, 1)[:, None]
    return centres, counts, distances.min(-1).mean()


CASES: tuple[Case, ...] = (
    Case("part_conjugate_gradients", conjugate_gradients, (f32(1000, 1000), f32(1000))),
    Case("part_deposit", deposit, (f32(65_536, 2, low=0, high=1), f32(65_536))),
    Case("part_hash_encoding", hash_encoding_gradient, (f32(8192, 2, low=0, high=1), f32(2, 4096, 2), f32(8192, 4))),
    Case("part_viterbi", viterbi, (f32(16, 64, 24), f32(24, 24))),
    Case("part_particle_filter", particle_filter, (f32(4096, 4), f32(4096), f32(2), words(2))),
    Case("part_packed_sequences", packed_sequences, (s32(512, low=0, high=64), s32(512, 256, high=1000))),
    Case("part_plaquettes", plaquettes, (of("complex64", 8, 8, 8, 8, 4, 2, 2),)),
    Case(
        "part_preferences",
        preference_gradient,
        (*(of("bfloat16", 4, 128, 2048) for _ in range(2)), *(s32(4, 128, high=2048) for _ in range(2))),
    ),
    Case("part_wavelets", wavelet_denoising, (f32(16, 256, 256),)),
    Case("part_clusters_of_batches", clusters_of_batches, (f32(8192, 16), f32(64, 16), f32(64))),
)


def rank_correlation(first: jax.Array, second: jax.Array) -> jax.Array:
    """Spearman's correlation of rows: the ranks of each are two sorts with positions."""
    ranks = [jnp.argsort(jnp.argsort(x, 1), 1).astype(jnp.float32) for x in (first, second)]
    away = [r - r.mean(1, keepdims=True) for r in ranks]
    return (away[0] * away[1]).sum(1) / jnp.sqrt((away[0] ** 2).sum(1) * (away[1] ** 2).sum(1))


def similarity(first: jax.Array, second: jax.Array) -> Arrays:
    """Cosine similarity of long rows, their distance, and whether their largest elements stand at the same place."""
    cosine = (first * second).sum(-1) / jnp.sqrt((first * first).sum(-1) * (second * second).sum(-1))
    same = first.argmax(-1) == second.argmax(-1)
    return cosine, (1 - cosine).mean(), jnp.abs(first - second).mean(-1), same


CASES = (
    *CASES,
    Case("part_rank_correlation", rank_correlation, (f32(1024, 512), f32(1024, 512))),
    Case("part_similarity", similarity, (f32(128, 65536), f32(128, 65536))),
)
