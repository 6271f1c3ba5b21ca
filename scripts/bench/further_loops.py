"""Further loops of the table of loops (`loop_table`): other physics, codes, filters and cells."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from scripts.bench.loop_table import Array, loop, rounds
from scripts.programs.case import f32, of, s32, words

N = 4096


@loop("lanes", f32(N, low=0.5, high=1), f32(N, low=0, high=0.1), heavy=True)
def sir(s: Array, i: Array) -> Any:
    """Susceptible, infected, recovered."""

    def step(s: Any, i: Any, r: Any) -> Any:
        new = 0.3 * s * i
        rec = 0.1 * i
        return s - 0.1 * new, i + 0.1 * (new - rec), r + 0.1 * rec

    return rounds(200, step, (s, i, jnp.zeros_like(s)))


@loop("block", f32(512), f32(512), couples=("slice", "concatenate", "pad"))
def wave_equation(u: Array, v: Array) -> Any:
    """A string, around a ring."""

    def step(u: Array, v: Array) -> Any:
        v = v + 0.1 * (jnp.roll(u, 1) + jnp.roll(u, -1) - 2 * u)
        return u + 0.1 * v, v

    return rounds(100, step, (u, v))


@loop("block", f32(64, low=-3, high=3), f32(64), couples=("reduce",), heavy=True)
def kuramoto(th: Array, w: Array) -> Any:
    """Oscillators that pull each other into step."""
    return rounds(50, lambda t: t + 0.05 * (w + 0.5 * jnp.sin(t[None] - t[:, None]).mean(1)), th)


@loop("lanes", s32(N, low=1, high=10000), s32(N, low=1, high=10000))
def gcd(a: Array, b: Array) -> Any:
    """Euclid, each pair until it is done."""

    def one(a: Any, b: Any) -> Any:
        return lax.while_loop(lambda s: s[1] != 0, lambda s: (s[1], s[0] % s[1]), (a, b))[0]

    return jax.vmap(one)(a, b)


@loop("lanes", words(N), f32(N))
def lcg_walk(s: Array, x: Array) -> Any:
    """A walk by a linear congruential generator."""

    def step(s: Any, x: Any) -> Any:
        s = s * jnp.uint32(1664525) + jnp.uint32(1013904223)
        return s, x + jnp.where((s >> 31) == 1, 1.0, -1.0)

    return rounds(200, step, (s, x))


@loop("lanes", f32(512, 8, low=0.1, high=1), f32(8, 8, low=0.1, high=1), f32(40, 512, 8, low=0.1, high=1), heavy=True)
def hmm_forward(a: Array, moves: Array, obs: Array) -> Any:
    """Eight states, with the likelihood of each observation."""
    moves = moves / moves.sum(1, keepdims=True)

    def step(a: Any, o: Any) -> Any:
        a = (a @ moves) * o
        s = a.sum(-1, keepdims=True)
        return a / s, jnp.log(s[:, 0])

    return lax.scan(step, a, obs)


@loop("block", of("uint8", 256, low=0, high=2), couples=("slice", "concatenate", "pad"))
def rule_110(c: Array) -> Any:
    """A cellular automaton of bytes."""

    def step(c: Any) -> Any:
        n = 4 * jnp.roll(c, 1) + 2 * c + jnp.roll(c, -1)
        return ((110 >> n.astype(jnp.int32)) & 1).astype(jnp.uint8)

    return rounds(60, step, c)


@loop("lanes", f32(N), of("bfloat16", 60, N), s32(60, N))
def mixed_scan(c: Array, xs: Array, ks: Array) -> Any:
    """Rows of several types are read, and written."""

    def step(c: Any, x: Any) -> Any:
        a, k = x
        c = c * 0.9 + a.astype(jnp.float32)
        return c, (c.astype(jnp.bfloat16), k + 1, c > 0)

    return lax.scan(step, c, (xs, ks))


@loop("lanes", f32(N))
def written_rows(x: Array) -> Any:
    """A row of results in each round."""

    def step(i: Any, s: Any) -> Any:
        x, ys = s
        x = 0.99 * x + 0.1
        return x, lax.dynamic_update_slice(ys, x[None], (i, 0))

    return lax.fori_loop(0, 60, step, (x, jnp.zeros((60, N))))


@loop("lanes", of("bfloat16", N))
def bf16_map(x: Array) -> Any:
    """In bfloat16."""
    return rounds(100, lambda x: x * jnp.bfloat16(0.9) + jnp.bfloat16(0.1) * x * x, x)


@loop("lanes", of("int8", N, low=-50, high=50), of("int8", 64, N, low=-3, high=3))
def s8_scan(x: Array, s: Array) -> Any:
    """Bytes that wrap."""
    return lax.scan(lambda x, u: ((y := x + u), y ^ 3), x, s)


@loop("lanes", f32(N, 6), f32(6, 6), f32(6, 6), f32(20, N, 6), heavy=True)
def small_rnn(h: Array, w: Array, u: Array, xs: Array) -> Any:
    """A cell of six units for each row."""
    return lax.scan(lambda h, x: ((k := jnp.tanh(h @ w + x @ u)), k[:, 0]), h, xs)


@loop("lanes", f32(512, 4), f32(512, 4), f32(4, 16), f32(4, 16), f32(20, 512, 4), heavy=True)
def small_lstm(h: Array, c: Array, w: Array, u: Array, xs: Array) -> Any:
    """A cell of four units for each row."""

    def step(s: Any, x: Any) -> Any:
        h, c = s
        g = x @ w + h @ u
        i, f, o, n = jnp.split(g, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(n)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(step, (h, c), xs)


@loop("lanes", f32(N, 4), f32(N, 3, low=-0.1, high=0.1), heavy=True)
def quaternions(q: Array, w: Array) -> Any:
    """Turning bodies."""

    def step(q: Any) -> Any:
        a, b, c, d = q[:, 0], q[:, 1], q[:, 2], q[:, 3]
        x, y, z = w[:, 0], w[:, 1], w[:, 2]
        dq = jnp.stack([-b * x - c * y - d * z, a * x + c * z - d * y, a * y - b * z + d * x, a * z + b * y - c * x], 1)
        q = q + 0.5 * dq
        return q / jnp.linalg.norm(q, axis=1, keepdims=True)

    return rounds(50, step, q)


@loop("lanes", f32(1024, 3, 3, low=-0.2, high=0.2), f32(1024, 3))
def rotations(r: Array, v: Array) -> Any:
    """Small matrices by vectors."""
    return rounds(40, lambda v: jnp.einsum("nij,nj->ni", r + jnp.eye(3), v) * 0.9, v)


@loop("lanes", f32(N, 5))
def horner(c: Array) -> Any:
    """Roots of polynomials, downhill."""

    def step(x: Any) -> Any:
        return x - 0.1 * ((((c[:, 4] * x + c[:, 3]) * x + c[:, 2]) * x + c[:, 1]) * x + c[:, 0])

    return rounds(60, step, jnp.zeros(c.shape[0]))


@loop("lanes", words(N))
def prefix_code(x: Array) -> Any:
    """How many ones a word begins with."""

    def one(x: Any) -> Any:
        return lax.while_loop(lambda s: (s[0] & 1) == 1, lambda s: (s[0] >> 1, s[1] + 1), (x, 0))[1]

    return jax.vmap(one)(x)


@loop("lanes", f32(N, low=0.1, high=2))
def arithmetic_geometric(x: Array) -> Any:
    """Two means that meet."""
    return rounds(12, lambda a, b: ((a + b) / 2, jnp.sqrt(a * b)), (x, jnp.ones_like(x)))


@loop("block", f32(128, low=0.1, high=1), couples=("reduce",))
def softmax_iter(x: Array) -> Any:
    """A softmax of itself."""
    return rounds(30, lambda x: jax.nn.softmax(x * 3), x)


@loop("block", f32(32, 32), couples=("reduce", "dot"))
def gram_schmidt(a: Array) -> Any:
    """Rows that become orthogonal."""

    def step(i: Any, q: Any) -> Any:
        v = q[i]
        v = v / (jnp.sqrt((v * v).sum()) + 1e-6)
        p = q @ v
        return jnp.where((jnp.arange(32) > i)[:, None], q - p[:, None] * v[None], q)

    return lax.fori_loop(0, 32, step, a)


@loop("lanes", f32(64, 100, low=0.2, high=1), s32(64))
def last_seen(xs: Array, ks: Array) -> Any:
    """The largest so far, and where."""

    def step(c: Any, x: Any) -> Any:
        best, at, i = c
        return (jnp.maximum(best, x), jnp.where(x > best, i, at), i + 1), best

    return lax.scan(step, (jnp.zeros(64), jnp.zeros(64, jnp.int32), 0), xs.T)


@loop("lanes", f32(1024, 3, 3, low=-0.2, high=0.2), heavy=True)
def batched_inverse(a: Array) -> Any:
    """Inverses by Newton's and Schulz's rule, a fixed number of rounds."""
    m = a + jnp.eye(3)
    return rounds(20, lambda x: x @ (2 * jnp.eye(3) - m @ x), jnp.swapaxes(m, 1, 2) / 4)


@loop("lanes", f32(1024, 3, 3, low=-0.2, high=0.2), heavy=True)
def inverse_until_good(a: Array) -> Any:
    """Each until it is good."""

    def one(a: Array) -> Any:
        m = a + jnp.eye(3)

        def step(s: Any) -> Any:
            return s[0] @ (2 * jnp.eye(3) - m @ s[0]), s[1] + 1

        def goes_on(s: Any) -> Any:
            return (jnp.max(jnp.abs(jnp.eye(3) - m @ s[0])) > 1e-5) & (s[1] < 30)

        return lax.while_loop(goes_on, step, (m.T / 4, 0))[0]

    return jax.vmap(one)(a)


@loop("lanes", s32(1024, 3, 3, low=-3, high=3))
def integer_powers(a: Array) -> Any:
    """Powers of small matrices of integers, modulo a prime."""
    return rounds(10, lambda x: (x @ a) % 1009, a)


@loop("lanes", of("complex64", N), of("complex64", N))
def complex_until_far(z: Array, c: Array) -> Any:
    """How many rounds complex numbers stay near."""

    def step(z: Array, n: Array) -> Any:
        far = jnp.abs(z) > 2
        return jnp.where(far, z, z * z + c), n + ~far

    return rounds(50, step, (z, jnp.zeros(z.shape, jnp.int32)))


@loop("grid", s32(128, 128, high=3), couples=("slice", "concatenate", "pad"))
def cyclic(cells: Array) -> Any:
    """Each kind of cell eats the one before it."""

    def step(cells: Array) -> Any:
        eater = (cells + 1) % 3
        near = [jnp.roll(cells, place, (0, 1)) == eater for place in ((0, 1), (0, -1), (1, 0), (-1, 0))]
        return jnp.where(near[0] | near[1] | near[2] | near[3], eater, cells)

    return rounds(30, step, cells)


@loop("grid", f32(256, 256), f32(256, 256), f32(256, 256), couples=("dynamic-update-slice",))
def fields(e: Array, h: Array, g: Array) -> Any:
    """An electric and a magnetic field in a box, updated at the places inside of it."""

    def step(e: Array, h: Array, g: Array) -> Any:
        h = h.at[:, :-1].add(-0.5 * (e[:, 1:] - e[:, :-1]))
        g = g.at[:-1].add(0.5 * (e[1:] - e[:-1]))
        e = e.at[1:, 1:].add(0.5 * (g[1:, 1:] - g[:-1, 1:] - h[1:, 1:] + h[1:, :-1]))
        return e, h, g

    return rounds(40, step, (e, h, g))
