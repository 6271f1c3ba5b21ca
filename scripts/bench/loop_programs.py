"""Loops whose lanes do not need each other, of the table of loops (`loop_table`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from scripts.bench.loop_table import Array, loop, rounds
from scripts.programs.case import f32, of, s32, words

N = 4096

# ---- lanes: physics


@loop("lanes", f32(N, low=-1, high=1), f32(N, low=-1, high=1))
def pendulums(angle: Array, speed: Array) -> Any:
    """Semi-implicit Euler."""

    def step(angle: Array, speed: Array) -> Any:
        speed = speed - 0.01 * jnp.sin(angle)
        return angle + 0.01 * speed, speed

    return rounds(200, step, (angle, speed))


def _runge_kutta(slope: Callable[[Any], Any], state: Any, h: float) -> Any:
    def moved(by: Any, times: float) -> Any:
        return jax.tree.map(lambda a, b: a + times * b, state, by)

    one = slope(state)
    two = slope(moved(one, h / 2))
    three = slope(moved(two, h / 2))
    four = slope(moved(three, h))
    return jax.tree.map(lambda a, p, q, r, s: a + h / 6 * (p + 2 * q + 2 * r + s), state, one, two, three, four)


@loop("lanes", f32(N, low=0.5, high=2), f32(N, low=0.5, high=2), heavy=True)
def lotka_volterra_rk4(prey: Array, hunters: Array) -> Any:
    """Prey and hunters, fourth order."""

    def slope(state: Any) -> Any:
        a, b = state
        return 1.1 * a - 0.4 * a * b, 0.1 * a * b - 0.4 * b

    return rounds(200, lambda a, b: _runge_kutta(slope, (a, b), 0.01), (prey, hunters))


@loop("lanes", f32(N, 3, low=-1, high=1), heavy=True)
def lorenz(points: Array) -> Any:
    """The attractor, its three coordinates in one array."""

    def slope(p: Array) -> Array:
        x, y, z = p[:, 0], p[:, 1], p[:, 2]
        return jnp.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], axis=1)

    return rounds(100, lambda p: _runge_kutta(slope, p, 0.01), points)


@loop("lanes", f32(N, 4, low=-0.5, high=0.5), heavy=True)
def double_pendulums(state: Array) -> Any:
    """Two rods each, by the Lagrangian."""

    def step(s: Array) -> Array:
        a, b, u, v = s[:, 0], s[:, 1], s[:, 2], s[:, 3]
        d = a - b
        low = 3 - jnp.cos(2 * d)
        du = (-19.6 * jnp.sin(a) - 9.8 * jnp.sin(a - 2 * b) - 2 * jnp.sin(d) * (v * v + u * u * jnp.cos(d))) / low
        dv = 2 * jnp.sin(d) * (2 * u * u + 19.6 * jnp.cos(a) + v * v * jnp.cos(d)) / low
        return jnp.stack([a + 0.01 * u, b + 0.01 * v, u + 0.01 * du, v + 0.01 * dv], axis=1)

    return rounds(100, step, state)


@loop("lanes", f32(N, low=-1, high=1), f32(N, low=0.5, high=1))
def mountain_cars(place: Array, speed: Array) -> Any:
    """Push in the direction of the speed; a car that has arrived stays."""

    def step(place: Array, speed: Array) -> Any:
        fast = jnp.clip(speed + 0.001 * jnp.sign(speed) - 0.0025 * jnp.cos(3 * place), -0.07, 0.07)
        moved = jnp.clip(place + fast, -1.2, 0.6)
        done = place >= 0.5
        return jnp.where(done, place, moved), jnp.where(done, speed, fast)

    return rounds(200, step, (place, speed))


@loop("lanes", f32(N, 2, 3, low=-1, high=1), heavy=True)
def orbits(state: Array) -> Any:
    """Places and speeds around a sun, as one array of two vectors for each planet."""

    def step(s: Array) -> Array:
        x, v = s[:, 0], s[:, 1]
        r = jnp.sqrt((x * x).sum(-1, keepdims=True) + 0.01)
        v = v - 0.01 * x / (r * r * r)
        return jnp.stack([x + 0.01 * v, v], axis=1)

    return rounds(100, step, state)


@loop("lanes", f32(N, low=-0.5, high=0.5), f32(N), heavy=True)
def neurons(v: Array, push: Array) -> Any:
    """FitzHugh and Nagumo's, with the number of spikes."""

    def step(v: Array, w: Array, spikes: Array) -> Any:
        new = v + 0.1 * (v - v * v * v / 3 - w + push)
        w = w + 0.1 * 0.08 * (v + 0.7 - 0.8 * w)
        return new, w, spikes + ((new > 1) & (v <= 1))

    return rounds(200, step, (v, jnp.zeros_like(v), jnp.zeros(v.shape, jnp.int32)))


@loop("lanes", f32(64, 64, low=-2, high=1), f32(64, 64, low=-1, high=1))
def julia(a: Array, b: Array) -> Any:
    """How many rounds points of a plane stay near."""

    def step(a: Array, b: Array, n: Array) -> Any:
        near = a * a + b * b < 4
        return jnp.where(near, a * a - b * b - 0.8, a), jnp.where(near, 2 * a * b + 0.156, b), n + near

    return rounds(100, step, (a, b, jnp.zeros(a.shape, jnp.int32)))[2]


# ---- lanes: what is read and written on the way


@loop("lanes", f32(N), f32(100, N))
def integrated(x: Array, pushes: Array) -> Any:
    """A row of pushes for each round; all places on the way."""
    return lax.scan(lambda x, push: ((x := 0.9 * x + push), x), x, pushes)


@loop("lanes", f32(N, 2), f32(100, N))
def filtered(state: Array, signals: Array) -> Any:
    """A filter of second order for each channel."""

    def step(s: Array, x: Array) -> Any:
        y = 0.2 * x + 0.3 * s[:, 0] - 0.1 * s[:, 1]
        return jnp.stack([0.7 * x + s[:, 1], y], axis=1), y

    return lax.scan(step, state, signals)


@loop("lanes", f32(N), f32(50, N), of("bool", 50, N))
def returns(last: Array, rewards: Array, done: Array) -> Any:
    """Discounted returns, from the end."""

    def step(after: Array, at: Any) -> Any:
        reward, ends = at
        now = reward + 0.99 * jnp.where(ends, 0.0, after)
        return now, now

    return lax.scan(step, last, (rewards, done), reverse=True)


@loop("lanes", of("bfloat16", N), of("bfloat16", 64, N))
def bf16_averages(mean: Array, samples: Array) -> Any:
    """Moving averages in bf16."""
    return lax.scan(lambda m, x: ((m := m * 0.9375 + x * 0.0625), m), mean, samples)


@loop("lanes", of("float16", N), of("float16", N))
def f16_oscillators(x: Array, v: Array) -> Any:
    """In half precision."""
    return rounds(64, lambda x, v: (x + 0.0625 * v, v - 0.0625 * x), (x, v))


@loop("lanes", f32(N, low=0.1, high=0.9), s32(N))
def logistic_maps(x: Array, n: Array) -> Any:
    """Chaos, and how often it was in the upper half."""
    return rounds(256, lambda x, n: (3.9 * x * (1 - x), n + (x > 0.5)), (x, n))


@loop("lanes", words(N))
def xorshift(x: Array) -> Any:
    """Marsaglia's generator."""

    def step(x: Array) -> Array:
        x = x ^ (x << 13)
        x = x ^ (x >> 17)
        return x ^ (x << 5)

    return rounds(500, step, x)


@loop("lanes", s32(N, low=1, high=1000))
def collatz(x: Array) -> Any:
    """How long it takes each number to come to one, within 200 rounds."""

    def step(x: Array, n: Array) -> Any:
        going = x != 1
        after = jnp.where(x % 2 == 0, x // 2, 3 * x + 1)
        return jnp.where(going, after, x), n + going

    return rounds(200, step, (x, jnp.zeros_like(x)))[1]


@loop("lanes", f32(N, low=-1, high=1), words(2), heavy=True)
def metropolis(x: Array, key: Array) -> Any:
    """A chain for each lane, with numbers drawn inside."""

    def step(i: Array, state: Any) -> Any:
        x, kept = state
        one, two = jax.random.split(jax.random.fold_in(key, i))
        tried = x + 0.5 * jax.random.uniform(one, x.shape, minval=-1.0)
        better = jnp.exp(x * x - tried * tried) > jax.random.uniform(two, x.shape)
        return jnp.where(better, tried, x), kept + better

    return lax.fori_loop(0, 30, step, (x, jnp.zeros(x.shape, jnp.int32)))


@loop("lanes", f32(N, low=-5, high=5), words(2), heavy=True)
def annealing(x: Array, key: Array) -> Any:
    """Downhill, and sometimes up, while it gets cold."""

    def worth(x: Array) -> Any:
        return x * x + 3 * jnp.sin(5 * x)

    def step(state: Any, i: Array) -> Any:
        x, key = state
        key, one, two = jax.random.split(key, 3)
        tried = x + jax.random.normal(one, x.shape)
        cold = jnp.exp((worth(x) - worth(tried)) / (2.0 / (1 + i))) > jax.random.uniform(two, x.shape)
        return (jnp.where(cold, tried, x), key), None

    return lax.scan(step, (x, key), jnp.arange(20, dtype=jnp.float32))[0][0]


@loop("lanes", f32(N, 4, low=-0.1, high=0.1), f32(4, 16), f32(16, 2), heavy=True)
def policy_inside(state: Array, first: Array, second: Array) -> Any:
    """A network of sixteen units pushes a spring-driven cart."""

    def step(s: Array) -> Array:
        votes = jnp.tanh(s @ first) @ second
        push = jnp.where(votes[:, 0] > votes[:, 1], 1.0, -1.0)
        x, v, a, w = s[:, 0], s[:, 1], s[:, 2], s[:, 3]
        return jnp.stack([x + 0.02 * v, v + 0.02 * (push - a), a + 0.02 * w, w + 0.02 * (9.8 * a - push)], axis=1)

    return rounds(50, step, state)


@loop("lanes", f32(N, 8), f32(8, 24), f32(8, 24), f32(20, N, 8), heavy=True)
def small_gru(h: Array, w: Array, u: Array, xs: Array) -> Any:
    """A cell of eight units for each row."""

    def step(h: Array, x: Array) -> Any:
        a, b = x @ w, h @ u
        r, z = jax.nn.sigmoid(a[:, :8] + b[:, :8]), jax.nn.sigmoid(a[:, 8:16] + b[:, 8:16])
        n = jnp.tanh(a[:, 16:] + r * b[:, 16:])
        return (1 - z) * n + z * h, None

    return lax.scan(step, h, xs)[0]


@loop("lanes", f32(N, low=0.1, high=4))
def newton_each(x: Array) -> Any:
    """Square roots, a fixed number of rounds."""
    return rounds(20, lambda r: 0.5 * (r + x / r), jnp.ones_like(x))


@loop("lanes", f32(512, 3, 3, low=-0.2, high=0.2), heavy=True)
def matrix_powers(m: Array) -> Any:
    """Small matrices multiplied again and again."""
    return rounds(30, lambda p: jnp.einsum("nij,njk->nik", p, m) + 0.1 * p, m)


@loop("lanes", f32(N, low=-1, high=1), f32(N, low=-1, high=1))
def nested_scan(x: Array, v: Array) -> Any:
    """Steps within steps: the inner ones are written out."""

    def outer(x: Array, v: Array) -> Any:
        x, v = rounds(4, lambda x, v: (x + 0.01 * v, v - 0.01 * x), (x, v))
        return x, 0.99 * v

    return rounds(50, outer, (x, v))


@loop("lanes", f32(N, low=0, high=1))
def until_a_count(x: Array) -> Any:
    """As long as a number grows that is the same for all."""
    state = (x, jnp.float32(0))
    return lax.while_loop(lambda s: s[1] < 50.0, lambda s: (jnp.cos(s[0]), s[1] + 1.5), state)[0]


@loop("lanes", s32(N, low=0, high=16), s32(16, low=0, high=16))
def walks_in_a_graph(at: Array, table: Array) -> Any:
    """Each lane follows a table."""
    return rounds(100, lambda at: table[(at + 1) % 16], at)


@loop("lanes", f32(N), f32(N), f32(N), f32(N))
def momentum_descent(x: Array, a: Array, b: Array, v: Array) -> Any:
    """Parabolas, downhill."""
    return rounds(100, lambda x, v: (x - 0.1 * v, 0.9 * v + a * x - b), (x, v))


@loop("lanes", f32(3, N), f32(N))
def columns_of_lanes(state: Array, k: Array) -> Any:
    """Lanes along the last dimension."""

    def step(s: Array) -> Array:
        x, v, e = s
        a = -k * x
        return jnp.stack([x + 0.01 * v, v + 0.01 * a, e + 0.5 * v * v * 0.01])

    return rounds(100, step, state)


@loop("lanes", f32(N, low=0, high=1), heavy=True)
def gradient_through(x: Array) -> Any:
    """The derivative of ten logistic rounds, within a loop of its own."""

    def inner(x: Array) -> Array:
        for _ in range(10):
            x = 2.9 * x * (1 - x)
        return x.sum()

    return rounds(20, lambda x: jnp.clip(x + 1e-3 * jax.grad(inner)(x), 0, 1), x)


# ---- lanes that end by themselves


@loop("lanes", f32(N, low=0.1, high=9))
def roots_until_good(x: Array) -> Any:
    """Square roots, each until it is good, with the number of rounds."""

    def one(x: Array) -> Any:
        return lax.while_loop(
            lambda s: jnp.abs(s[0] * s[0] - x) > 1e-4 * x, lambda s: (0.5 * (s[0] + x / s[0]), s[1] + 1), (x, 0)
        )

    return jax.vmap(one)(x)


@loop("lanes", f32(64, low=-2, high=1), f32(64, low=-1, high=1))
def mandelbrot_until_far(a: Array, b: Array) -> Any:
    """Each point of a plane until it is far, at most 100 rounds."""

    def one(a: Array, b: Array) -> Any:
        def step(s: Any) -> Any:
            x, y, n = s
            return x * x - y * y + a, 2 * x * y + b, n + 1

        near = lambda s: (s[0] * s[0] + s[1] * s[1] < 4) & (s[2] < 100)  # noqa: E731
        return lax.while_loop(near, step, (jnp.float32(0), jnp.float32(0), 0))[2]

    return jax.vmap(jax.vmap(one, (0, None)), (None, 0))(a, b)


@loop("lanes", s32(N, low=1, high=1000))
def collatz_until_one(x: Array) -> Any:
    """How long it takes each number to come to one."""

    def one(x: Array) -> Any:
        def step(s: Any) -> Any:
            return jnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1

        return lax.while_loop(lambda s: s[0] != 1, step, (x, 0))[1]

    return jax.vmap(one)(x)


@loop("lanes", f32(N, 2, low=-1, high=1))
def episodes(state: Array) -> Any:
    """Until all are done, or 200 rounds have been made; who is done stays where he is."""

    def step(s: Any) -> Any:
        state, done, length, i = s
        x, v = state[:, 0], state[:, 1]
        moved = jnp.stack([x + 0.1 * v, v + 0.1 * x], axis=1)
        state = jnp.where(done[:, None], state, moved)
        return state, done | (jnp.abs(state[:, 0]) > 2), length + ~done, i + 1

    start = (state, jnp.zeros(state.shape[0], bool), jnp.zeros(state.shape[0], jnp.int32), 0)
    return lax.while_loop(lambda s: ~jnp.all(s[1]) & (s[3] < 200), step, start)[:3]
