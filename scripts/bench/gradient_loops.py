"""Loops of the table of loops (`loop_table`): gradients of cells in scans, and samplers and fields beside them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from scripts.bench.loop_table import Array, loop
from scripts.programs.case import f32

WEIGHTS = f32(32, 128, low=-0.1, high=0.1)


@loop("grid", f32(20, 16, 32), WEIGHTS, WEIGHTS, couples=("dot",), heavy=True)
def lstm_trained(xs: Array, w: Array, u: Array) -> Any:
    """The gradient of the weights of an LSTM, over twenty steps."""

    def loss(w: Array, u: Array) -> Array:
        def cell(state: Any, x: Array) -> Any:
            h, c = state
            i, f, o, n = jnp.split(x @ w + h @ u, 4, axis=1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(n)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), (h * h).mean()

        zeros = jnp.zeros((16, 32))
        return lax.scan(cell, (zeros, zeros), xs)[1].sum()

    return jax.grad(loss, (0, 1))(w, u)


@loop("grid", f32(16, 64), f32(20, 16, 64), f32(64, 64), f32(64, 64), couples=("dot",), heavy=True)
def rnn_trained(h: Array, xs: Array, w: Array, u: Array) -> Any:
    """The gradient of the weights of a plain cell."""

    def loss(w: Array, u: Array) -> Array:
        def cell(h: Array, x: Array) -> Any:
            h = jnp.tanh(0.1 * (x @ w + h @ u))
            return h, (h * h).sum()

        return lax.scan(cell, h, xs)[1].sum()

    return jax.grad(loss, (0, 1))(w, u)


@loop("block", f32(512), f32(512), couples=("reduce",), heavy=True)
def hamiltonian_chain(x: Array, seed: Array) -> Any:
    """Twenty proposals of ten leaps each: the energy of all dimensions says whether one is taken."""

    def step(i: Array, state: Any) -> Any:
        x, taken = state
        p = jnp.sin(12.9898 * (i + 1) * seed)

        def leap(_: Array, s: Any) -> Any:
            x, p = s
            p = p - 0.05 * x
            x = x + 0.1 * p
            return x, p - 0.05 * x

        y, q = lax.fori_loop(0, 10, leap, (x, p))
        gain = 0.5 * ((x * x).sum() + (p * p).sum() - (y * y).sum() - (q * q).sum())
        is_taken = jnp.exp(gain) > 0.5
        return jnp.where(is_taken, y, x), taken + is_taken

    return lax.fori_loop(0, 20, step, (x, 0))


@loop("grid", f32(64, 64), f32(64, 64), f32(64, 64), couples=("concatenate",))
def radiated_field(e: Array, x: Array, y: Array) -> Any:
    """An electric field, and a magnetic one in two directions, on a torus around a source."""

    def step(i: Array, s: Any) -> Any:
        e, x, y = s
        x = x - 0.5 * (jnp.roll(e, -1, 1) - e)
        y = y + 0.5 * (jnp.roll(e, -1, 0) - e)
        e = e + 0.5 * ((y - jnp.roll(y, 1, 0)) - (x - jnp.roll(x, 1, 1)))
        return e.at[32, 32].add(jnp.sin(0.2 * i)), x, y

    return lax.fori_loop(0, 60, step, (e, x, y))
