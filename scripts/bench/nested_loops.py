"""Loops in rounds of loops, and rounds that read a row or a column of their state, of the table of loops
(`loop_table`)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from scripts.bench.loop_table import Array, loop, rounds
from scripts.programs.case import f32, of


@loop("lanes", of("uint8", 4096), of("uint8", 32, 4096))
def byte_checks(check: Array, words: Array) -> Any:
    """Cyclic redundancy checks of bytes, bit by bit."""

    def byte(c: Array, x: Array) -> Any:
        shifted = lax.fori_loop(0, 8, lambda _, c: jnp.where(c & 128 != 0, (c << 1) ^ jnp.uint8(7), c << 1), c ^ x)
        return shifted, None

    return lax.scan(byte, check, words)[0]


@loop("lanes", f32(512), f32(6, 7, 512))
def there_and_back(c: Array, xs: Array) -> Any:
    """Two inner loops in each round, the second from the end of what the first made."""

    def outer(c: Array, row: Array) -> Any:
        c, ys = lax.scan(lambda c, x: ((d := 0.9 * c + x), d), c, row)
        return lax.scan(lambda c, y: ((d := 0.5 * c - y), d * d), c, ys, reverse=True)

    return lax.scan(outer, c, xs)


@loop("lanes", f32(256), f32(3, 4, 5, 256))
def three_deep(c: Array, xs: Array) -> Any:
    """A loop in a loop in a loop."""

    def middle(c: Array, x: Array) -> Any:
        c, y = lax.scan(lambda c, x: ((d := 0.9 * c + x), d), c, x)
        return jnp.tanh(c), y

    def outer(c: Array, x: Array) -> Any:
        c, y = lax.scan(middle, c, x)
        return 0.5 * c, y

    return lax.scan(outer, c, xs)


@loop("lanes", f32(1024, low=0.5, high=2))
def nested_early_exit(a: Array) -> Any:
    """Each round is a loop in which every lane ends by itself: roots, to a tolerance."""

    def root(a: Array) -> Any:
        def step(state: Any) -> Any:
            r, n = state
            return 0.5 * (r + a / r), n + 1

        return lax.while_loop(lambda s: (jnp.abs(s[0] * s[0] - a) > 1e-4 * a) & (s[1] < 40), step, (a, 0))

    def outer(a: Array, _: None) -> Any:
        r, n = jax.vmap(root)(a)
        return 0.4 * a + r, n

    return lax.scan(outer, a, None, length=20)


@loop("lanes", *(f32(512, 8) for _ in range(3)), f32(512, 8, low=-1, high=1))
def two_sweeps(a: Array, b: Array, c: Array, d: Array) -> Any:
    """Small tridiagonal systems: forth, and back again."""

    def forth(state: Any, row: Any) -> Any:
        above, right = state
        a, b, c, d = row
        m = 1 / (b - a * above)
        new = (c * m, (d - a * right) * m)
        return new, new

    def back(x: Array, row: Any) -> Any:
        new = row[1] - row[0] * x
        return new, new

    zero = jnp.zeros(512)
    made = lax.scan(forth, (zero, zero), (a.T, jnp.abs(b).T + 4, c.T, d.T))[1]
    return lax.scan(back, zero, made, reverse=True)[1].T


@loop("lanes", f32(1024, low=0.5, high=1.5))
def binomial_tree(price: Array) -> Any:
    """Options by a tree, from its leaves to its root."""
    leaves = jnp.maximum(price[:, None] * jnp.exp(0.1 * (jnp.arange(17) - 8.0)) - 1, 0)

    def step(p: Array) -> Array:
        return jnp.concatenate([0.99 * (0.5 * p[:, 1:] + 0.5 * p[:, :-1]), p[:, -1:] * 0.9], 1)

    return rounds(16, step, leaves)[:, 0]


@loop("lanes", f32(1024), f32(1024), heavy=True)
def gradient_of_pendulums(x: Array, v: Array) -> Any:
    """What the end of a simulation owes to its beginning."""

    def end(x: Array, v: Array) -> Array:
        def step(state: Any, _: None) -> Any:
            x, v = state
            v = v - 0.05 * jnp.sin(x)
            return (x + 0.05 * v, v), None

        (x, v), _ = lax.scan(step, (x, v), None, length=20)
        return (x * x + v).sum()

    return jax.grad(end, (0, 1))(x, v)


@loop("block", f32(64, 64, low=0, high=1), couples=("dynamic-slice",))
def shortest_ways(d: Array) -> Any:
    """All pairs, by way of one place after another."""

    def step(k: Array, d: Array) -> Array:
        return jnp.minimum(d, lax.dynamic_slice(d, (0, k), (64, 1)) + lax.dynamic_slice(d, (k, 0), (1, 64)))

    return lax.fori_loop(0, 64, step, d)


@loop("block", f32(32, 32), couples=("dynamic-slice", "gather"))
def gauss_jordan(a: Array) -> Any:
    """The inverse of a matrix, column by column."""

    def step(k: Array, state: Any) -> Any:
        a, b = state
        row, other, column = a[k] / a[k, k], b[k] / a[k, k], a[:, k]
        here = (jnp.arange(32) == k)[:, None]
        return jnp.where(here, row, a - column[:, None] * row), jnp.where(here, other, b - column[:, None] * other)

    return lax.fori_loop(0, 32, step, (a + 32 * jnp.eye(32), jnp.eye(32)))[1]


@loop("block", f32(32, 32), couples=("dot", "dynamic-slice", "gather"))
def cholesky_columns(a: Array) -> Any:
    """A factor of a matrix, column by column."""
    m = a @ a.T + 32 * jnp.eye(32)

    def step(k: Array, done: Array) -> Array:
        column = m[:, k] - done @ done[k]
        root = jnp.sqrt(jnp.maximum(column[k], 1e-6))
        return done.at[:, k].set(jnp.where(jnp.arange(32) >= k, column / root, 0))

    return lax.fori_loop(0, 32, step, jnp.zeros((32, 32)))
