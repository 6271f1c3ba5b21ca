"""Steps whose products are small: a library takes longer to begin each than to multiply."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from scripts.programs.case import Case, f32

Arrays = tuple[jax.Array, ...]


def lstm_gradient(x: jax.Array, h: jax.Array, c: jax.Array, weights: Arrays, bias: jax.Array, dy: jax.Array) -> Arrays:
    """The gradient of an LSTM cell with a matrix for each gate."""

    def cell(x: jax.Array, h: jax.Array, c: jax.Array, weights: Arrays, bias: jax.Array) -> jax.Array:
        both = x + h
        of_input, of_cell, forget, out = (both @ w for w in weights)
        c = jax.nn.sigmoid(forget + bias) * c + jax.nn.sigmoid(of_input) * jnp.tanh(of_cell)
        return jax.nn.sigmoid(out) * jnp.tanh(c)

    gradient: Arrays = jax.vjp(cell, x, h, c, weights, bias)[1](dy)
    return gradient


def gru_gradient(x: jax.Array, h: jax.Array, weights: jax.Array, recurrent: jax.Array, dy: jax.Array) -> Arrays:
    """The gradient of a GRU cell."""

    def cell(x: jax.Array, h: jax.Array, weights: jax.Array, recurrent: jax.Array) -> jax.Array:
        update = jax.nn.sigmoid(x @ weights[0] + h @ recurrent[0])
        reset = jax.nn.sigmoid(x @ weights[1] + h @ recurrent[1])
        new = jnp.tanh(x @ weights[2] + reset * (h @ recurrent[2]))
        return (1 - update) * new + update * h

    gradient: Arrays = jax.vjp(cell, x, h, weights, recurrent)[1](dy)
    return gradient


def fock_matrix(density: jax.Array, integrals: jax.Array, core: jax.Array) -> Arrays:
    """A Fock matrix and its energy: direct and exchange terms of the same integrals."""
    direct = jnp.einsum("pqrs,rs->pq", integrals, density)
    exchange = jnp.einsum("prqs,rs->pq", integrals, density)
    fock = core + direct - 0.5 * exchange
    return fock, 0.5 * jnp.einsum("pq,pq->", density, core + fock)


def hessian_product(x: jax.Array, y: jax.Array, weights: Arrays, along: Arrays) -> Arrays:
    """The Hessian of a small network's loss times a vector."""

    def loss(weights: Arrays) -> jax.Array:
        first, bias, last = weights
        return jnp.mean((jnp.tanh(x @ first + bias) @ last - y) ** 2)

    product: Arrays = jax.jvp(jax.grad(loss), (weights,), (along,))[1]
    return product


def tensor_network(left: jax.Array, upper: jax.Array, operator: jax.Array, lower: jax.Array) -> jax.Array:
    """The environment of one more site of a matrix product state."""
    grown = jnp.einsum("abc,adp->bcdp", left, upper)
    grown = jnp.einsum("bcdp,bdef->cepf", grown, operator)
    return jnp.einsum("cepf,ceq->pfq", grown, lower)


LSTM, WEIGHTS = f32(64, 128), f32(128, 128, low=-0.1, high=0.1)
GRU = f32(128, 64)
NETWORK = (f32(16, 32), f32(32), f32(32))

CASES = (
    Case("small_lstm_gradient", lstm_gradient, (LSTM, LSTM, LSTM, (WEIGHTS,) * 4, f32(128), LSTM)),
    Case("small_gru_gradient", gru_gradient, (GRU, GRU, f32(3, 64, 64), f32(3, 64, 64), GRU)),
    Case("small_fock_matrix", fock_matrix, (f32(24, 24), f32(24, 24, 24, 24), f32(24, 24))),
    Case("small_hessian_product", hessian_product, (f32(64, 16), f32(64), NETWORK, NETWORK)),
    Case("small_tensor_network", tensor_network, (f32(16, 16, 16), f32(16, 2, 16), f32(16, 2, 2, 16), f32(16, 2, 16))),
)
