"""Loops whose lanes need each other, of the table of loops (`loop_table`)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from scripts.bench.loop_table import Array, loop, rounds
from scripts.programs.case import f32, of, s32

# ---- one block: lanes need each other, the state is small


@loop("block", f32(128, low=0.1, high=1), f32(128, 128), couples=("dot",))
def power_iteration(x: Array, m: Array) -> Any:
    """The largest eigenvector of a matrix."""

    def step(x: Array) -> Array:
        y = m @ x
        return y * lax.rsqrt((y * y).sum() + 1e-6)

    return rounds(50, step, x)


@loop("block", f32(512), couples=("pad", "slice", "concatenate"))
def rod(u: Array) -> Any:
    """Heat along a rod whose ends are cold."""
    return rounds(200, lambda u: u + 0.2 * (jnp.pad(u[1:], (0, 1)) + jnp.pad(u[:-1], (1, 0)) - 2 * u), u)


@loop("block", f32(512), f32(512), couples=("slice", "concatenate", "pad"))
def ring_of_springs(x: Array, v: Array) -> Any:
    """Neighbours pull, around a ring."""

    def step(x: Array, v: Array) -> Any:
        v = v + 0.1 * (jnp.roll(x, 1) + jnp.roll(x, -1) - 2 * x)
        return x + 0.1 * v, v

    return rounds(100, step, (x, v))


@loop("block", f32(64, 3), f32(64, low=0.1, high=1), couples=("reduce", "broadcast", "dot", "reshape"), heavy=True)
def n_body(x: Array, mass: Array) -> Any:
    """Bodies that attract each other."""

    def step(x: Array, v: Array) -> Any:
        apart = x[None] - x[:, None]
        near = (apart**2).sum(-1) + 1e-2
        v = v + 0.001 * (apart * (mass[None] * lax.rsqrt(near) / near)[..., None]).sum(1)
        return x + 0.001 * v, v

    return rounds(30, step, (x, jnp.zeros_like(x)))


@loop("block", f32(256, low=0.1, high=9), couples=("reduce",))
def newton_until(x: Array) -> Any:
    """Square roots, until all are good."""
    state = (jnp.ones_like(x), jnp.ones_like(x) * 9)
    found = lax.while_loop(
        lambda s: jnp.max(jnp.abs(s[0] - s[1])) > 1e-5, lambda s: (0.5 * (s[0] + x / s[0]), s[0]), state
    )
    return found[0]


@loop("block", f32(16, 16), f32(16), couples=("dot", "reduce"))
def conjugate_gradients(a: Array, b: Array) -> Any:
    """A small system, a fixed number of rounds."""
    m = a @ a.T + 16 * jnp.eye(16)

    def step(x: Array, r: Array, p: Array) -> Any:
        q = m @ p
        rr = r @ r
        t = rr / (p @ q + 1e-20)
        left = r - t * q
        return x + t * p, left, left + (left @ left) / (rr + 1e-20) * p

    return rounds(12, step, (jnp.zeros_like(b), b, b))[0]


@loop("block", f32(48), f32(48, 192), f32(48, 192), f32(25, 48), couples=("dot",), heavy=True)
def lstm_of_one(h: Array, w: Array, u: Array, xs: Array) -> Any:
    """A cell of 48 units, one sequence."""

    def step(state: Any, x: Array) -> Any:
        h, c = state
        g = x @ w + h @ u
        i, f, o, n = jnp.split(g, 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(n)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(step, (h, jnp.zeros_like(h)), xs)


@loop("block", of("bool", 24, 24), couples=("pad", "slice", "concatenate", "reduce-window"))
def life(cells: Array) -> Any:
    """Conway's, on a torus."""

    def step(c: Array) -> Array:
        n = c.astype(jnp.int32)
        around = sum(jnp.roll(jnp.roll(n, a, 0), b, 1) for a in (-1, 0, 1) for b in (-1, 0, 1)) - n
        return (around == 3) | (c & (around == 2))

    return rounds(30, step, cells)


@loop("block", f32(64, low=0, high=1), f32(64, 64, low=0, high=1), couples=("dot", "reduce"))
def page_rank(x: Array, links: Array) -> Any:
    """Until it is settled, or a hundred rounds have been made."""
    links = links / links.sum(0)

    def step(state: Any) -> Any:
        x, _, i = state
        y = 0.85 * (links @ x) + 0.15 / 64
        return y, jnp.abs(y - x).sum(), i + 1

    return lax.while_loop(lambda s: (s[1] > 1e-6) & (s[2] < 100), step, (x, jnp.float32(1), 0))[0]


@loop("block", f32(200), couples=("reduce",))
def centred(x: Array) -> Any:
    """Each round takes the mean away and bends what is left."""
    return rounds(40, lambda x: jnp.tanh(1.1 * (x - x.mean())), x)


@loop("block", f32(40, 40), couples=("pad", "slice", "concatenate"))
def small_plate(u: Array) -> Any:
    """The heat stencil on a small plate."""

    def step(u: Array) -> Array:
        p = jnp.pad(u, 1)
        return u + 0.2 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * u)

    return rounds(60, step, u)


@loop(
    "block", f32(32, low=0.1, high=1), f32(32, 32, low=0.1, high=1), f32(32, low=0.1, high=1), couples=("dot", "reduce")
)
def sinkhorn(a: Array, k: Array, b: Array) -> Any:
    """Rows and columns in turn."""
    return rounds(30, lambda u, v: ((n := a / (k @ v)), b / (k.T @ n)), (jnp.ones(32), jnp.ones(32)))


@loop("block", s32(100, low=0, high=100), couples=("gather",))
def pointer_jumping(to: Array) -> Any:
    """Each looks where the one it points to points."""
    return rounds(7, lambda to: to[to], to)


@loop("block", f32(20, 30), f32(20), couples=("reduce",))
def viterbi(emit: Array, start: Array) -> Any:
    """The best path's score through twenty states."""
    move = jnp.sin(jnp.arange(400.0)).reshape(20, 20)
    return lax.scan(lambda s, e: ((s[:, None] + move).max(0) + e, None), start, emit.T)[0]


# ---- all blocks together: more than one block owns, and L2 holds it


@loop("grid", f32(2048, low=0.1, high=1), f32(2048, 2048), couples=("dot",))
def large_power_iteration(x: Array, m: Array) -> Any:
    """The largest eigenvector of a large matrix."""

    def step(x: Array) -> Array:
        y = m @ x
        return y * lax.rsqrt((y * y).sum() + 1e-6)

    return rounds(20, step, x)


@loop("grid", f32(256, 256), couples=("pad", "slice", "concatenate"))
def plate(u: Array) -> Any:
    """The heat stencil on a plate of 256 KB."""

    def step(u: Array) -> Array:
        p = jnp.pad(u, 1)
        return u + 0.2 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * u)

    return rounds(60, step, u)


@loop("grid", f32(30000), couples=("reverse",))
def mirrored(x: Array) -> Any:
    """Each end looks at the other."""
    return rounds(40, lambda x: jnp.tanh(x[::-1] + 0.1 * x), x)


# ---- what no kernel of ours can hold, or launches do sooner


@loop("launches", f32(256, 256), f32(256, 256), couples=("dot",))
def large_products(x: Array, m: Array) -> Any:
    """A library multiplies in each round."""
    return rounds(10, lambda x: jnp.tanh(x @ m), x)


@loop("launches", f32(512), couples=("sort",))
def sorted_each_round(x: Array) -> Any:
    """A sort in each round."""
    return rounds(10, lambda x: jnp.sort(x * -1.1 + 0.5), x)


@loop("launches", f32(2048, 2048), couples=("pad", "slice", "concatenate"))
def large_plate(u: Array) -> Any:
    """A plate that no cache next to a multiprocessor holds."""

    def step(u: Array) -> Array:
        p = jnp.pad(u, 1)
        return u + 0.2 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * u)

    return rounds(10, step, u)


@loop("launches", f32(4096, 64), f32(16, 64), couples=("dot", "reduce", "sort"))
def k_means(points: Array, centres: Array) -> Any:
    """Assignment and means."""

    def step(c: Array) -> Array:
        near = ((points[:, None] - c[None]) ** 2).sum(-1).argmin(1)
        one = jax.nn.one_hot(near, 16)
        return (one.T @ points) / (one.sum(0)[:, None] + 1e-6)

    return rounds(5, step, centres)


@loop("launches", f32(256, 256), f32(256, 256), couples=("dot",))
def long_products(x: Array, m: Array) -> Any:
    """More rounds than one graph holds; they forget how operands were rounded."""
    return rounds(400, lambda x: jnp.tanh(0.02 * (x @ m)) + 0.1, x)


@loop("launches", f32(256, 256), f32(256, 256), couples=("dot", "reduce"))
def products_until(x: Array, m: Array) -> Any:
    """Until nothing moves: the data decide."""

    def step(state: Any) -> Any:
        i, x, _ = state
        y = jnp.tanh(0.02 * (x @ m)) + 0.1
        return i + 1, y, jnp.abs(y - x).max()

    return lax.while_loop(lambda s: (s[2] > 1e-4) & (s[0] < 60), step, (0, x, jnp.float32(1)))[1]
