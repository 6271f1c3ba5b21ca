"""Loops of the table of loops (`loop_table`) by what they carry: branches, histories, halves, counts of their own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from scripts.bench.loop_table import Array, loop, rounds
from scripts.programs.case import f32, of, s32, words

N = 4096

# ---- lanes that end by themselves


@loop("lanes", f32(256, low=0.5, high=2), heavy=True)
def rk45_adaptive(start: Array) -> Any:
    """Dormand and Prince's steps, each lane with its own."""

    def slope(t: Array, y: Array) -> Array:
        return -2.0 * y + jnp.sin(t)

    def step(state: Any) -> Any:
        t, y, h = state
        a = slope(t, y)
        b = slope(t + h / 5, y + h * a / 5)
        c = slope(t + 3 * h / 10, y + h * (3 / 40 * a + 9 / 40 * b))
        d = slope(t + 4 * h / 5, y + h * (44 / 45 * a - 56 / 15 * b + 32 / 9 * c))
        e = slope(t + 8 * h / 9, y + h * (2.9526 * a - 11.5958 * b + 9.8229 * c - 0.2908 * d))
        new = y + h * (35 / 384 * a + 500 / 1113 * c + 125 / 192 * d - 2187 / 6784 * e)
        error = jnp.abs(h * (71 / 57600 * a - 71 / 16695 * c + 71 / 1920 * d - 0.0508 * e))
        is_good = error < 1e-2
        h = h * jnp.clip(0.9 * (1e-2 / (error + 1e-12)) ** 0.2, 0.2, 5.0)
        return jnp.where(is_good, t + h, t), jnp.where(is_good, new, y), h

    def one(y: Array) -> Any:
        return lax.while_loop(lambda s: s[0] < 2.0, step, (jnp.float32(0), y, jnp.float32(0.1)))

    return jax.vmap(one)(start)


@loop("lanes", f32(1024, low=0.1, high=4))
def vmapped_exit(x: Array) -> Any:
    """Growth until it is large, at most thirty rounds."""

    def one(x: Array) -> Any:
        return lax.while_loop(lambda s: (s[0] < 100.0) & (s[1] < 30), lambda s: (s[0] * 1.5 + x, s[1] + 1), (x, 0))

    return jax.vmap(one)(x)


@loop("lanes", f32(512, 3, low=-1, high=1), f32(512, low=0.5, high=1), heavy=True)
def rays(towards: Array, radius: Array) -> Any:
    """Rays that go on as far as nothing can be."""

    def one(towards: Array, radius: Array) -> Any:
        way = towards / jnp.linalg.norm(towards)

        def free(t: Array) -> Array:
            x, y, z = t * way
            return jnp.minimum(jnp.sqrt(x * x + y * y + (z - 3) ** 2) - radius, y + 1.0)

        def goes_on(s: Any) -> Any:
            return (free(s[0]) > 1e-3) & (s[1] < 64) & (s[0] < 20)

        return lax.while_loop(goes_on, lambda s: (s[0] + free(s[0]), s[1] + 1), (jnp.float32(0), 0))

    return jax.vmap(one)(towards, radius)


@loop("lanes", f32(1024, low=1, high=2), of("int8", 1024, low=0, high=20))
def counted_in_bytes(x: Array, n: Array) -> Any:
    """As often as each lane says, in a byte."""

    def one(x: Array, n: Array) -> Any:
        return lax.while_loop(lambda s: s[1] > 0, lambda s: (s[0] * 1.1, s[1] - jnp.int8(1)), (x, n))

    return jax.vmap(one)(x, n)


@loop("block", f32(512, 2, low=-1, high=1), of("bool", 512), couples=("reduce",))
def done_mask(state: Array, done: Array) -> Any:
    """Until all are done; what is paid in each round is a float, to which nothing may be added in vain."""

    def step(c: Any) -> Any:
        state, done, paid, i = c
        v = state[:, 1] - 0.1 * state[:, 0] ** 3
        moved = jnp.stack([state[:, 0] + 0.1 * v, v], 1)
        state = jnp.where(done[:, None], state, moved)
        return state, done | (jnp.abs(state[:, 0]) > 1.5), paid + jnp.where(done, 0.0, 1.0), i + 1

    return lax.while_loop(lambda c: (c[3] < 100) & jnp.any(~c[1]), step, (state, done, jnp.zeros(512), 0))[:3]


# ---- branches, and policies that choose


@loop("lanes", f32(1024))
def branch_by_round(x: Array) -> Any:
    """Another thing in each third round."""

    def step(i: Array, x: Array) -> Array:
        out: Array = lax.cond(i % 3 == 0, lambda x: x * 2 - 1, lambda x: jnp.sin(x) + 0.1, x)
        return out

    return lax.fori_loop(0, 60, step, x)


@loop("lanes", f32(1024), f32(1024))
def branch_of_pairs(x: Array, v: Array) -> Any:
    """A spring that is struck in each fourth round."""

    def step(i: Array, s: Any) -> Any:
        return lax.cond(i % 4 == 3, lambda s: (s[0], -0.5 * s[1]), lambda s: (s[0] + 0.1 * s[1], s[1] - 0.1 * s[0]), s)

    return lax.fori_loop(0, 60, step, (x, v))


@loop("lanes", f32(1024))
def one_of_three(x: Array) -> Any:
    """Three things in turn."""
    return lax.fori_loop(
        0, 60, lambda i, x: lax.switch(i % 3, [lambda x: x + 1, lambda x: x * 0.5, lambda x: -x], x), x
    )


@loop("lanes", f32(256, 4, low=-0.1, high=0.1), f32(4, 8), f32(8, 5), heavy=True)
def greedy_policy(state: Array, first: Array, second: Array) -> Any:
    """The greatest vote of five pushes."""

    def step(s: Array) -> Array:
        push = (jnp.argmax(jnp.tanh(s @ first) @ second, axis=-1) - 2).astype(jnp.float32)
        x, v, a, w = s[:, 0], s[:, 1], s[:, 2], s[:, 3]
        return jnp.stack([x + 0.02 * v, v + 0.02 * (push - a), a + 0.02 * w, w - push * 0.01], 1)

    return rounds(30, step, state)


@loop("lanes", f32(256, 4, low=-0.1, high=0.1), f32(4, 8), f32(8, 2), words(2), heavy=True)
def sampled_policy(state: Array, first: Array, second: Array, key: Array) -> Any:
    """A push that is drawn from a network's votes; all pushes and places."""

    def step(s: Array, key: Array) -> Any:
        chosen = jax.random.categorical(key, jnp.tanh(s @ first) @ second)
        push = jnp.where(chosen == 1, 1.0, -1.0)
        x, v, a, w = s[:, 0], s[:, 1], s[:, 2], s[:, 3]
        w = w + 0.02 * (9.8 * jnp.sin(a) - push * jnp.cos(a))
        s = jnp.stack([x + 0.02 * v, v + 0.02 * (push - a), a + 0.02 * w, w], 1)
        return s, (chosen, s[:, 0])

    return lax.scan(step, state, jax.random.split(key, 20))


@loop("lanes", f32(512, 6))
def least_of_six(x: Array) -> Any:
    """The least of each row is raised, and its place summed."""

    def step(x: Array, n: Array) -> Any:
        at = jnp.argmin(x, 1)
        return jnp.where(jnp.arange(6)[None] == at[:, None], x + 1.5, x * 0.99), n + at

    return rounds(30, step, (x, jnp.zeros(512, jnp.int32)))


# ---- numbers of other types


@loop("lanes", of("float16", N), of("float16", 64, N))
def f16_filter(y: Array, xs: Array) -> Any:
    """A filter in half precision."""
    return lax.scan(lambda y, x: ((z := y * jnp.float16(0.75) + x * jnp.float16(0.25)), z), y, xs)


@loop("lanes", of("float16", N, low=-1, high=1))
def f16_exp(x: Array) -> Any:
    """Exponentials in half precision."""
    return rounds(50, lambda x: jnp.exp(-x * x) - jnp.float16(0.5), x)


@loop("lanes", of("bfloat16", N), of("bfloat16", N), heavy=True)
def bf16_adam(weights: Array, slopes: Array) -> Any:
    """Adam with all of its state in bf16."""

    def step(w: Array, m: Array, v: Array) -> Any:
        g = slopes * w
        m = m * jnp.bfloat16(0.9) + g * jnp.bfloat16(0.1)
        v = v * jnp.bfloat16(0.99) + g * g * jnp.bfloat16(0.01)
        return w - jnp.bfloat16(0.01) * m / (jnp.sqrt(v) + jnp.bfloat16(1e-3)), m, v

    return rounds(50, step, (weights, jnp.zeros_like(weights), jnp.zeros_like(weights)))


@loop("lanes", s32(N))
def s32_generator(x: Array) -> Any:
    """A congruential generator whose numbers are kept."""

    def step(c: Array, _: None) -> Any:
        c = c * 1103515245 + 12345
        return c, (c >> 16) & 0x7FFF

    return lax.scan(step, x, None, length=64)


@loop("lanes", of("uint8", N))
def u8_mix(x: Array) -> Any:
    """Bytes that are mixed."""
    return rounds(100, lambda x: (x * jnp.uint8(5) + jnp.uint8(7)) ^ (x >> 3), x)


@loop("lanes", of("complex64", 512), of("complex64", 40, 512))
def turned_and_pushed(z: Array, pushes: Array) -> Any:
    """Complex numbers that turn, and how far they are."""
    turn = jnp.exp(jnp.complex64(0.1j))
    return lax.scan(lambda z, u: ((w := z * turn + u), jnp.abs(w)), z, pushes)


@loop("lanes", f32(N), f32(30, N), of("int8", 30, N), of("bool", 30, N), of("float16", 30, N))
def rows_of_four_types(c: Array, a: Array, b: Array, is_halved: Array, e: Array) -> Any:
    """Read from the end, and three written."""

    def step(c: Any, x: Any) -> Any:
        a, b, is_halved, e = x
        c = jnp.where(is_halved, c * 0.5, c) + 0.1 * a * b + e
        return c, (c.astype(jnp.float16), b + 1, ~is_halved)

    return lax.scan(step, c, (a, b, is_halved, e), reverse=True)


# ---- tables, rows and windows


@loop("lanes", f32(1024), f32(64, 1024), s32(50, low=0, high=64))
def rows_by_number(x: Array, table: Array, at: Array) -> Any:
    """A row at a computed place in each round."""
    return lax.scan(lambda x, i: (x * 0.5 + lax.dynamic_index_in_dim(table, (i * 7 + 3) % 64, 0, False), None), x, at)[
        0
    ]


@loop("lanes", f32(32, 16, 64), f32(16, 64))
def filled_cache(cache: Array, x: Array) -> Any:
    """A cache of 32 places of which twenty are written."""

    def step(i: Array, s: Any) -> Any:
        cache, x = s
        return lax.dynamic_update_slice(cache, x[None], (i, 0, 0)), x * 0.9 + 0.1

    return lax.fori_loop(0, 20, step, (cache, x))


@loop("lanes", f32(64, 32), s32(64, low=0, high=32))
def looked_up(table: Array, at: Array) -> Any:
    """Each lane in its own row."""

    def step(at: Array, total: Array) -> Any:
        return (at * 5 + 1) % 32, total + jnp.take_along_axis(table, at[:, None], 1)[:, 0]

    return rounds(50, step, (at, jnp.zeros(64)))


@loop("lanes", f32(256))
def history_read(x: Array) -> Any:
    """What was written a round ago is read."""

    def step(i: Array, s: Any) -> Any:
        x, rows = s
        x = 0.5 * x + 0.3 * rows[i - 1] + 0.1
        return x, rows.at[i].set(x)

    return lax.fori_loop(1, 40, step, (x, jnp.zeros((40, 256))))


@loop("lanes", f32(1024), f32(1024))
def ring_buffer(x: Array, first: Array) -> Any:
    """Eight rounds ago."""

    def step(i: Array, s: Any) -> Any:
        x, rows = s
        x = 0.7 * x + 0.2 * rows[i % 8]
        return x, rows.at[i % 8].set(x)

    return lax.fori_loop(0, 64, step, (x, jnp.zeros((8, 1024)) + first))


@loop("lanes", f32(1024), s32(), s32())
def bounds_from_outside(x: Array, first: Array, last: Array) -> Any:
    """As many rounds as the caller says."""
    return lax.fori_loop(first, last + 20, lambda i, x: x * 0.9 + i, x)


@loop("lanes", f32(100, 1024), of("bool", 100, 1024))
def advantages(rewards: Array, done: Array) -> Any:
    """Generalised advantages, from the end."""

    def step(c: Any, x: Any) -> Any:
        a, after = c
        r, ends = x
        a = r + 0.99 * after * ~ends - 0.9 * after + 0.9405 * ~ends * a
        return (a, r), (a, a + after)

    return lax.scan(step, (jnp.zeros(1024), jnp.zeros(1024)), (rewards, done), reverse=True)[1]


# ---- one block, and loops within loops


@loop("block", f32(16), f32(128, 16), f32(128), couples=("dot", "reduce"), heavy=True)
def adam_loss(weights: Array, x: Array, y: Array) -> Any:
    """Adam on least squares, with the loss of each round."""

    def loss(w: Array) -> Any:
        return ((x @ w - y) ** 2).mean()

    def step(s: Any, _: None) -> Any:
        w, m, v, t = s
        worth, g = jax.value_and_grad(loss)(w)
        m, v, t = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g, t + 1
        w = w - 0.01 * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8)
        return (w, m, v, t), worth

    start = (weights, jnp.zeros_like(weights), jnp.zeros_like(weights), jnp.float32(0))
    return lax.scan(step, start, None, length=50)


@loop("block", f32(8, 16), f32(16, 16), f32(30, 8, 16), couples=("dot", "reduce"), heavy=True)
def attention_rounds(h: Array, w: Array, xs: Array) -> Any:
    """Eight queries look at eight rows in each round."""

    def step(h: Array, x: Array) -> Any:
        a = jax.nn.softmax((h @ w) @ x.T / 4.0, axis=-1)
        return jnp.tanh(a @ x + 0.5 * h), a.max()

    return lax.scan(step, h, xs)


@loop("block", s32(64, low=0, high=1000), couples=("slice", "concatenate", "pad", "dynamic-update-slice"))
def sorted_by_neighbours(x: Array) -> Any:
    """Neighbours change places, odd and even ones in turn."""

    def step(i: Array, x: Array) -> Array:
        low, high = jnp.minimum(x[:-1], x[1:]), jnp.maximum(x[:-1], x[1:])
        turn = (jnp.arange(63) + i) % 2 == 0
        left = jnp.concatenate([jnp.where(turn, low, x[:-1]), x[-1:]])
        return jnp.where(jnp.pad(turn, (1, 0)), jnp.pad(high, (1, 0)), left)

    return lax.fori_loop(0, 64, step, x)


@loop("launches", f32(1024, low=0.1, high=4), couples=("while",))
def lanes_in_lanes(x: Array) -> Any:
    """A root until it is good, in each of twenty rounds."""

    def one(x: Array) -> Any:
        def root(s: Array) -> Any:
            return lax.while_loop(lambda t: jnp.abs(t * t - x) > 1e-3 * x, lambda t: 0.5 * (t + x / t), s)

        return lax.fori_loop(0, 20, lambda i, t: root(t * 1.5 + 0.1), x)

    return jax.vmap(one)(x)


@loop("lanes", f32(256), f32(8, 10, 256))
def scan_of_scans(c: Array, xs: Array) -> Any:
    """Rows within tables, with what both make."""

    def outer(c: Array, row: Array) -> Any:
        c, ys = lax.scan(lambda c, x: ((d := 0.9 * c + x), d * d), c, row)
        return c * 0.5, (ys, c)

    return lax.scan(outer, c, xs)
