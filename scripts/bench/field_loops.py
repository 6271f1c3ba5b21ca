"""Loops of the table of loops (`loop_table`) of fields and methods: waves, heat, chemistry, optimisers, filters, small
matrices, models of hidden states."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from scripts.bench.loop_table import Array, loop, rounds
from scripts.programs.case import f32, of, s32, words


@loop("block", f32(256), f32(256), couples=("concatenate",), heavy=True)
def schroedinger(real: Array, imaginary: Array) -> Any:
    """A wave packet in a well: real and imaginary parts in turns."""
    place = (jnp.arange(256.0) - 128) / 64
    well = 0.5 * place * place

    def energy(x: Array) -> Array:
        return -0.5 * (jnp.roll(x, 1) + jnp.roll(x, -1) - 2 * x) + well * x

    def step(real: Array, imaginary: Array) -> Any:
        real = real + 0.05 * energy(imaginary)
        imaginary = imaginary - 0.05 * energy(real)
        return real, imaginary

    return rounds(100, step, (real, imaginary))


@loop("block", f32(24, 24), couples=("reduce",), heavy=True)
def pcg_grid(b: Array) -> Any:
    """Conjugate gradients on a grid with a diagonal before them."""
    diagonal = 4.0 + jnp.abs(jnp.sin(jnp.arange(24.0)))[:, None]

    def apply(x: Array) -> Array:
        wide = jnp.pad(x, 1)
        return diagonal * x - wide[2:, 1:-1] - wide[:-2, 1:-1] - wide[1:-1, 2:] - wide[1:-1, :-2]

    def step(x: Array, r: Array, p: Array, z: Array) -> Any:
        ap, rz = apply(p), (r * z).sum()
        alpha = rz / ((p * ap).sum() + 1e-20)
        x, r = x + alpha * p, r - alpha * ap
        z = r / diagonal
        return x, r, z + (r * z).sum() / (rz + 1e-20) * p, z

    z = b / diagonal
    return rounds(15, step, (jnp.zeros((24, 24)), b, z, z))[0]


@loop("launches", f32(32, 32), couples=("while",), heavy=True)
def adi_heat(u: Array) -> Any:
    """Heat by alternating directions: tridiagonal solutions along rows, then along columns."""
    a = 0.25

    def solved(rows: Array) -> Array:
        def down(before: Any, d: Array) -> Any:
            c, e = before
            m = 1 / (1 + 2 * a + a * c)
            c, e = -a * m, (d + a * e) * m
            return (c, e), (c, e)

        zero = jnp.zeros(32)
        _, (c, e) = lax.scan(down, (zero, zero), rows.T)

        def up(x: Array, given: Any) -> Any:
            x = given[1] - given[0] * x
            return x, x

        return lax.scan(up, zero, (c, e), reverse=True)[1].T

    return rounds(10, lambda u: solved(solved(u).T).T, u)


@loop(
    "launches",
    f32(6, 6, low=0.1, high=1),
    f32(6, 5, low=0.1, high=1),
    s32(40, low=0, high=5),
    couples=("dynamic-update-slice",),
)
def em_hmm(move: Array, emit: Array, seen: Array) -> Any:
    """Baum-Welch for a model of six states: forward and backward in scans, then new tables."""

    def step(move: Array, emit: Array) -> Any:
        move = move / move.sum(1, keepdims=True)
        emit = emit / emit.sum(1, keepdims=True)
        likely = emit.T[seen]

        def forward(a: Array, e: Array) -> Any:
            a = (a @ move) * e
            a = a / a.sum()
            return a, a

        def backward(b: Array, e: Array) -> Any:
            new = move @ (b * e)
            return new / new.sum(), b

        _, alpha = lax.scan(forward, jnp.full(6, 1 / 6), likely)
        _, beta = lax.scan(backward, jnp.full(6, 1 / 6), likely, reverse=True)
        gamma = alpha * beta
        gamma = gamma / gamma.sum(1, keepdims=True)
        pairs = alpha[:-1, :, None] * move * (likely * beta)[1:, None, :]
        pairs = pairs / pairs.sum((1, 2), keepdims=True)
        counts = jax.nn.one_hot(seen, 5).T @ gamma
        return pairs.sum(0) + 1e-3, counts.T + 1e-3

    return rounds(5, step, (move, emit))


@loop("block", f32(3, 20, 20), couples=("concatenate",), heavy=True)
def brusselator(u: Array) -> Any:
    """Three chemicals that react and spread on a torus."""

    def spread(x: Array) -> Array:
        return sum(jnp.roll(x, by, axis) for axis in (0, 1) for by in (1, -1)) - 4 * x

    def step(u: Array) -> Array:
        a, b, c = u
        speed = a * a * b
        new = (a + 0.01 * (1 + speed - 4 * a + spread(a)), b + 0.01 * (3 * a - speed + 0.5 * spread(b)))
        return jnp.stack([*new, c + 0.01 * (a - c + 0.1 * spread(c))])

    return rounds(60, step, u)


@loop("block", f32(128), couples=("concatenate",), heavy=True)
def burgers(u: Array) -> Any:
    """A shock, by the flux of Lax and Friedrichs with a limiter."""

    def step(u: Array) -> Array:
        left, right = jnp.roll(u, 1), jnp.roll(u, -1)
        slope = jnp.where((u - left) * (right - u) > 0, jnp.minimum(jnp.abs(u - left), jnp.abs(right - u)), 0)
        slope = slope * jnp.sign(right - u)
        low, high = u + 0.5 * slope, jnp.roll(u - 0.5 * slope, -1)
        speed = jnp.maximum(jnp.abs(low), jnp.abs(high))
        flux = 0.25 * (low * low + high * high) - 0.5 * speed * (high - low)
        return u - 0.1 * (flux - jnp.roll(flux, 1))

    return rounds(80, step, u)


@loop("launches", f32(64), couples=("pad",), heavy=True)
def nelder_step(x: Array) -> Any:
    """Gradient descent with a line search that halves until the loss falls."""

    def loss(x: Array) -> Array:
        return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()

    def step(x: Array) -> Array:
        value, slope = jax.value_and_grad(loss)(x)
        steep = (slope * slope).sum()

        def smaller(t: Array) -> Array:
            return t * 0.5

        t = lax.while_loop(lambda t: (loss(x - t * slope) > value - 0.5 * t * steep) & (t > 1e-8), smaller, 1.0)
        return x - t * slope

    return rounds(10, step, x)


@loop("block", f32(10, 10), f32(10), couples=("reduce",))
def bfgs(matrix: Array, x: Array) -> Any:
    """Quasi-Newton steps on a small quadratic."""
    a = matrix @ matrix.T + jnp.eye(10)

    def step(x: Array, h: Array) -> Any:
        g = a @ x
        d = -h @ g
        t = -(g @ d) / (d @ a @ d + 1e-12)
        s, y = t * d, t * (a @ d)
        rho = 1 / (y @ s + 1e-12)
        left = jnp.eye(10) - rho * jnp.outer(s, y)
        return x + s, left @ h @ left.T + rho * jnp.outer(s, s)

    return rounds(12, step, (x, jnp.eye(10)))


@loop("lanes", f32(512, 4), f32(512, 4), heavy=True)
def biquads(x: Array, state: Array) -> Any:
    """Four filters of second order, one after another, on 512 channels."""

    def step(s: Array, sample: Array) -> Any:
        out, new = sample, []
        for n in range(4):
            y = 0.2 * out + s[:, n]
            new.append(0.3 * out - 0.4 * y + 0.1 * s[:, (n + 1) % 4])
            out = y
        return jnp.stack(new, 1), out

    return lax.scan(step, state, jnp.tile(x, (1, 16)).T)


@loop("lanes", f32(256, 3, 3), f32(256, 3), heavy=True)
def solved_each(a: Array, b: Array) -> Any:
    """Newton steps whose linear systems of 3 x 3 are solved by cofactors."""

    def step(x: Array) -> Array:
        m = a + jnp.eye(3) * (4 + x[:, :, None] ** 2)
        c = jnp.stack([jnp.cross(m[:, 1], m[:, 2]), jnp.cross(m[:, 2], m[:, 0]), jnp.cross(m[:, 0], m[:, 1])], 2)
        value = jnp.einsum("bij,bj->bi", a, x) + x**3 - b
        return x - jnp.einsum("bij,bj->bi", c, value) / (m[:, 0] * c[:, :, 0]).sum(1, keepdims=True)

    return rounds(10, step, jnp.zeros((256, 3)))


@loop("block", f32(16, 16), couples=("dot",))
def matrix_sign(a: Array) -> Any:
    """Newton and Schulz on a matrix of 16 x 16."""
    start = a / jnp.sqrt((a * a).sum())
    return rounds(20, lambda x: 1.5 * x - 0.5 * x @ x.T @ x, start)


@loop("block", f32(12, 12), couples=("reduce",))
def jacobi_turns(a: Array) -> Any:
    """Turns that make a symmetric matrix diagonal, at the places of its greatest element."""
    start = a + a.T

    def step(m: Array) -> Array:
        off = jnp.abs(jnp.triu(m, 1))
        place = off.argmax()
        p, q = place // 12, place % 12
        angle = 0.5 * jnp.arctan2(2 * m[p, q], m[q, q] - m[p, p])
        c, s = jnp.cos(angle), jnp.sin(angle)
        rows = m.at[p].set(c * m[p] - s * m[q]).at[q].set(s * m[p] + c * m[q])
        return rows.at[:, p].set(c * rows[:, p] - s * rows[:, q]).at[:, q].set(s * rows[:, p] + c * rows[:, q])

    return rounds(30, step, start)


@loop("lanes", f32(1024), words(2), heavy=True)
def heston(x: Array, key: Array) -> Any:
    """Paths of a price with a variance of its own, keys split inside."""

    def step(state: Any, _: Array) -> Any:
        s, v, key = state
        key, first, second = jax.random.split(key, 3)
        a, b = jax.random.normal(first, (1024,)), jax.random.normal(second, (1024,))
        root = jnp.sqrt(jnp.maximum(v, 0) * 0.01)
        s = s * jnp.exp(-0.005 * v + root * a)
        return (s, v + 0.02 * (0.04 - v) + 0.3 * root * (0.7 * b - 0.7 * a), key), None

    return lax.scan(step, (1 + 0 * x, 0.04 + 0 * x, key), jnp.arange(40))[0][0]


@loop("lanes", s32(512, low=0, high=1000), heavy=False)
def branch_machine(x: Array) -> Any:
    """A small machine: what a word does depends on its lowest bits."""
    ways = [lambda x: x * 3 + 1, lambda x: x // 2, lambda x: x ^ 85, lambda x: x - 7]

    def one(x: Array) -> Array:
        return rounds(40, lambda x: lax.switch(x & 3, ways, x), x)

    return jax.vmap(one)(x)


@loop("launches", f32(96), words(2), couples=("topk",))
def sorted_tournament(x: Array, key: Array) -> Any:
    """A genetic search: the better half stays, its copies change."""

    def step(x: Array, key: Array) -> Any:
        score = jnp.cos(3 * x) - 0.1 * x * x
        _, best = lax.top_k(score, 48)
        parents = x[best]
        return jnp.concatenate([parents, parents + 0.1 * jax.random.normal(key, (48,))]), score.max()

    return lax.scan(step, x, jax.random.split(key, 30))


@loop("block", of("int8", 64, 64, low=0, high=2), couples=("pad",))
def s8_life(cells: Array) -> Any:
    """Life with borders, in bytes."""

    def step(c: Array) -> Array:
        wide = jnp.pad(c, 1)
        near = sum(wide[1 + i : 65 + i, 1 + j : 65 + j] for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
        return ((near == 3) | ((c == 1) & (near == 2))).astype(jnp.int8)

    return rounds(50, step, cells)


@loop("block", of("bfloat16", 64), of("bfloat16", 64, 64), couples=("dot",))
def bf16_hopfield(x: Array, w: Array) -> Any:
    """A network of Hopfield in bf16."""
    return rounds(30, lambda x: jnp.tanh((w @ x).astype(jnp.bfloat16)), x)


@loop("lanes", of("float16", 256, 8), of("float16", 256, 8), heavy=True)
def f16_gru(x: Array, h: Array) -> Any:
    """Gates in f16 with stacked outputs."""

    def step(h: Array, x: Array) -> Any:
        z = jax.nn.sigmoid(x + h)
        r = jax.nn.sigmoid(x - h)
        h = (1 - z) * h + z * jnp.tanh(x + r * h)
        return h, h.sum(1)

    return lax.scan(step, h, jnp.tile(x[None], (30, 1, 1)))


@loop("lanes", f32(128, 2), heavy=True)
def rk23_until(x: Array) -> Any:
    """Van der Pol with steps that fit the error, each lane until its own end."""

    def slope(y: Array) -> Array:
        return jnp.stack([y[1], 5 * (1 - y[0] ** 2) * y[1] - y[0]])

    def one(y: Array) -> Array:
        def step(state: Any) -> Any:
            t, h, y = state
            a = slope(y)
            b = slope(y + 0.5 * h * a)
            c = slope(y + 0.75 * h * b)
            new = y + h * (2 * a + 3 * b + 4 * c) / 9
            d = slope(new)
            error = jnp.abs(h * (-5 / 72 * a + b / 12 + c / 9 - d / 8)).max()
            good = error < 1e-3
            grow = jnp.clip(0.9 * (1e-3 / (error + 1e-12)) ** (1 / 3), 0.2, 5.0)
            return jnp.where(good, t + h, t), jnp.minimum(h * grow, 0.5), jnp.where(good, new, y)

        return lax.while_loop(lambda s: s[0] < 3.0, step, (0.0, 0.1, y))[2]

    return jax.vmap(one)(x)


@loop("block", f32(100, 2), couples=("reduce",), heavy=True)
def swarm(x: Array) -> Any:
    """Particles drawn to their own best place and to the best of all."""

    def loss(x: Array) -> Array:
        return (x * x - 10 * jnp.cos(6.28 * x)).sum(-1)

    def step(x: Array, v: Array, own: Array) -> Any:
        best = own[loss(own).argmin()]
        v = 0.7 * v + 0.5 * (own - x) + 0.5 * (best - x)
        x = x + v
        return x, v, jnp.where((loss(x) < loss(own))[:, None], x, own)

    return rounds(40, step, (x, jnp.zeros((100, 2)), x))


@loop("block", f32(64, 16), couples=("reduce",))
def running_norm(x: Array) -> Any:
    """Cumulative sums and a softmax, again and again."""

    def step(x: Array) -> Array:
        x = jnp.cumsum(x, 1) / 16
        return jax.nn.softmax(x, 1) - 1 / 16 + 0.5 * x

    return rounds(25, step, x)
