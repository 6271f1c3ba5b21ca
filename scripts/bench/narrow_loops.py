"""Loops of the table of loops (`loop_table`) in half precision, and such that end once all lanes are done."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from scripts.bench.loop_table import Array, loop, rounds
from scripts.programs.case import f32, of

N = 4096
half = jnp.float16


# ---- halves


@loop("lanes", of("float16", N, low=0, high=1))
def f16_logistic(x: Array) -> Any:
    """A logistic map, whose roundings are its noise."""
    return rounds(64, lambda x: half(3.5) * x * (1 - x), x)


@loop("lanes", of("float16", N), of("float16", N))
def f16_leaky(x: Array, y: Array) -> Any:
    """Two units that hold each other back, each cut off below."""

    def step(x: Array, y: Array) -> Any:
        a, b = x - half(0.25) * y, y - half(0.25) * x
        return jnp.where(a > 0, a, half(0.125) * a), jnp.where(b > 0, b, half(0.125) * b)

    return rounds(50, step, (x, y))


@loop("lanes", of("float16", N), of("float16", 50, N))
def f16_recurrent(h: Array, xs: Array) -> Any:
    """A unit with tanh over a sequence."""
    return lax.scan(lambda h, x: ((z := jnp.tanh(half(0.5) * h + x)), z), h, xs)


@loop("lanes", of("float16", N), of("float16", N))
def f16_descent(w: Array, v: Array) -> Any:
    """Descent with momentum, clipped."""

    def step(w: Array, v: Array) -> Any:
        v = half(0.875) * v - half(0.0625) * jnp.clip(w, -1, 1)
        return w + v, v

    return rounds(50, step, (w, v))


@loop("lanes", of("float16", 1003), of("float16", 1003))
def f16_quotients(x: Array, y: Array) -> Any:
    """Continued fractions of an odd number of lanes."""
    return rounds(40, lambda x, y: (half(1) / (1 + jnp.abs(x)), jnp.sqrt(jnp.abs(y)) + half(0.5)), (x, y))


# ---- until all are done


@loop("block", f32(512, 3, low=-1, high=1), of("bool", 512), couples=("reduce",))
def done_in_space(state: Array, done: Array) -> Any:
    """Points in three dimensions, until all have left a ball."""

    def step(c: Any) -> Any:
        state, done, i = c
        x, y, z = state[:, 0], state[:, 1], state[:, 2]
        moved = jnp.stack([x + 0.1 * (y - x), y + 0.1 * (x - z), z * 1.1], 1)
        state = jnp.where(done[:, None], state, moved)
        return state, done | ((state**2).sum(1) > 4), i + 1

    return lax.while_loop(lambda c: (c[2] < 100) & jnp.any(~c[1]), step, (state, done, 0))


@loop("block", f32(1024, low=1, high=50), couples=("reduce",))
def done_halving(x: Array) -> Any:
    """Halved until the last is below one."""

    def step(c: Any) -> Any:
        x, n = c
        return jnp.where(x < 1, x, x * 0.5), n + (x >= 1)

    return lax.while_loop(lambda c: jnp.any(c[0] >= 1), step, (x, jnp.zeros(x.shape, jnp.int32)))


@loop("block", f32(512, 4, low=-0.1, high=0.1), couples=("reduce",), heavy=True)
def done_carts(state: Array) -> Any:
    """Poles on carts, until all have fallen."""

    def step(c: Any) -> Any:
        s, done, reward, i = c
        x, v, th, w = (s[:, k] for k in range(4))
        force = jnp.where(th > 0, 10.0, -10.0)
        t = (force + 0.05 * w * w * jnp.sin(th)) / 1.1
        turn = (9.8 * jnp.sin(th) - jnp.cos(th) * t) / (0.5 * (4 / 3 - 0.1 * jnp.cos(th) ** 2 / 1.1))
        push = t - 0.05 * turn * jnp.cos(th) / 1.1
        moved = jnp.stack([x + 0.02 * v, v + 0.02 * push, th + 0.02 * w, w + 0.02 * turn], 1)
        s = jnp.where(done[:, None], s, moved)
        return s, done | (jnp.abs(s[:, 2]) > 0.2) | (jnp.abs(s[:, 0]) > 2.4), reward + jnp.where(done, 0.0, 1.0), i + 1

    start = (state, jnp.zeros(512, bool), jnp.zeros(512), 0)
    return lax.while_loop(lambda c: (c[3] < 200) & jnp.any(~c[1]), step, start)[2]


@loop("lanes", f32(512, 2, low=-1, high=1))
def done_each(state: Array) -> Any:
    """As often as each needs."""

    def one(s: Array) -> Any:
        def step(c: Any) -> Any:
            s, n = c
            return jnp.stack([s[0] + 0.1 * s[1], s[1] + 0.1 * s[0]]), n + 1

        return lax.while_loop(lambda c: (jnp.abs(c[0]).max() < 2) & (c[1] < 60), step, (s, 0))

    return jax.vmap(one)(state)
