"""Control flow: loops with and without a known trip count, branches, loops inside loops."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from scripts.programs.case import Case, f32, of, s32


def newton_sqrt(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Square roots by Newton's method until all have settled; also how many rounds it took."""

    def unsettled(carry: tuple[jax.Array, jax.Array]) -> jax.Array:
        guess, rounds = carry
        return (jnp.max(jnp.abs(guess * guess - x) / x) > 1e-3) & (rounds < 50)

    def improve(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        guess, rounds = carry
        return 0.5 * (guess + x / guess), rounds + 1

    return lax.while_loop(unsettled, improve, (x, jnp.int32(0)))


def branch(flag: jax.Array, x: jax.Array) -> jax.Array:
    """One of two computations by a flag."""
    chosen: jax.Array = lax.cond(flag > 0, lambda x: jnp.sin(x) * 2.0, lambda x: jnp.cos(x) + x, x)
    return chosen


def choose(index: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One of four computations by an index that is brought into range."""
    chosen: tuple[jax.Array, jax.Array] = lax.switch(
        index,
        (
            lambda x, y: (x + y, x - y),
            lambda x, y: (x * y, jnp.maximum(x, y)),
            lambda x, y: (jnp.exp(-jnp.square(x)), y),
            lambda x, y: (y, x),
        ),
        x,
        y,
    )
    return chosen


def running_sums(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Running sums along the first dimension, and the total."""

    def body(total: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        total = total + row
        return total, total

    total, sums = lax.scan(body, jnp.zeros_like(x[0]), x)
    return sums, total


def heat(field: jax.Array, *, steps: int) -> jax.Array:
    """Heat spreading over a plate whose border is held at zero: a five-point stencil in a loop."""

    def body(_: jax.Array, inner: jax.Array) -> jax.Array:
        padded = jnp.pad(inner, 1)
        around = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
        return inner + 0.2 * (around - 4.0 * inner)

    spread: jax.Array = lax.fori_loop(0, steps, body, field)
    return spread


def power_iteration(matrix: jax.Array, vector: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The largest eigenvalue of a symmetric matrix and its vector, by ten multiplications."""
    symmetric = matrix + matrix.T

    def body(_: jax.Array, vector: jax.Array) -> jax.Array:
        product = symmetric @ (symmetric @ vector)
        return product / jnp.sqrt(jnp.sum(jnp.square(product)))

    vector = lax.fori_loop(0, 10, body, vector)
    return vector @ (symmetric @ vector), vector


def mandelbrot(real: jax.Array, imaginary: jax.Array) -> jax.Array:
    """How many rounds each point of the plane stays near zero, at most 20."""

    def body(_: jax.Array, carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        x, y, count = carry
        near = x * x + y * y <= 4.0
        moved_x, moved_y = x * x - y * y + real, 2.0 * x * y + imaginary
        return jnp.where(near, moved_x, x), jnp.where(near, moved_y, y), count + near.astype(jnp.int32)

    zero = jnp.zeros_like(real)
    count: jax.Array = lax.fori_loop(0, 20, body, (zero, zero, jnp.zeros(real.shape, jnp.int32)))[2]
    return count


def lstm(x: jax.Array, weights: jax.Array, recurrent: jax.Array, bias: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A recurrent network over [time, batch, features]: a matrix product and a chain of elementwise steps per round."""
    size = recurrent.shape[0]

    def body(carry: tuple[jax.Array, jax.Array], x: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        hidden, cell = carry
        gates = x @ weights + hidden @ recurrent + bias
        enter, forget, output, new = jnp.split(gates, 4, axis=-1)
        cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
        hidden = jax.nn.sigmoid(output) * jnp.tanh(cell)
        return (hidden, cell), hidden

    start = jnp.zeros((x.shape[1], size), x.dtype)
    (_, cell), hiddens = lax.scan(body, (start, start), x)
    return hiddens, cell


def nested(x: jax.Array) -> jax.Array:
    """A loop whose body holds a loop and a branch."""

    def inner(index: jax.Array, x: jax.Array) -> jax.Array:
        return x + 0.01 * index.astype(jnp.float32)

    def outer(carry: jax.Array, index: jax.Array) -> tuple[jax.Array, jax.Array]:
        carry = lax.fori_loop(0, index, inner, carry)
        carry = lax.cond(index % 2 == 0, jnp.tanh, lambda x: x * 0.5, carry)
        return carry, jnp.sum(carry)

    last, sums = lax.scan(outer, x, jnp.arange(6))
    result: jax.Array = last + jnp.sum(sums)
    return result


CASES = [
    Case("newton_sqrt", newton_sqrt, (f32(1000, low=0.5, high=20.0),), ("short", "frames")),
    Case("branch", branch, (s32(low=-2, high=3), f32(100, 33))),
    Case("choose", choose, (s32(low=-1, high=6), f32(300), f32(300))),
    Case("running_sums", running_sums, (f32(20, 130),)),
    Case("running_sums_reals", running_sums, (of("float64", 9, 5),), ("classic",), x64=True),
    Case("heat", partial(heat, steps=25), (f32(63, 127),), ("short", "frames"), donate=(0,)),
    Case("power_iteration", power_iteration, (f32(64, 64), f32(64))),
    Case("mandelbrot", mandelbrot, (f32(48, 65, low=-2.0, high=0.5), f32(48, 65, low=-1.2, high=1.2))),
    Case("lstm", lstm, (f32(12, 16, 40), f32(40, 256, low=-0.2, high=0.2), f32(64, 256, low=-0.2, high=0.2), f32(256))),
    Case("nested", nested, (f32(77),)),
]
