"""Softmax and what is built of it: cross-entropy, masked attention, the index of the largest."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from scripts.programs.case import Case, f32, of, s32


def softmax(x: jax.Array) -> jax.Array:
    """Softmax of each row, written out."""
    shifted = x - jnp.max(x, axis=-1, keepdims=True)
    weight = jnp.exp(shifted)
    return weight / jnp.sum(weight, axis=-1, keepdims=True)


def softmax_library(x: jax.Array) -> jax.Array:
    """Softmax of each row as `jax.nn` has it."""
    return jax.nn.softmax(x, axis=-1)


def softmax_columns(x: jax.Array) -> jax.Array:
    """Softmax of each column."""
    return jax.nn.softmax(x, axis=0)


def softmax_gradient(x: jax.Array, weight: jax.Array) -> jax.Array:
    """The gradient of a weighted sum of softmax values."""
    gradient: jax.Array = jax.grad(lambda x: jnp.sum(softmax(x) * weight))(x)
    return gradient


def cross_entropy(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The mean cross-entropy of integer labels and its gradient."""

    def loss(logits: jax.Array) -> jax.Array:
        log_probability = jax.nn.log_softmax(logits, axis=-1)
        return -jnp.mean(jnp.take_along_axis(log_probability, labels[:, None], axis=-1))

    return jax.value_and_grad(loss)(logits)


def log_sum_exp(x: jax.Array) -> jax.Array:
    """The logarithm of the sum of exponentials over the two last dimensions."""
    return jax.nn.logsumexp(x, axis=(-2, -1))


def attention(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    """Causal attention over [batch, length, heads, size]."""
    batch, length, heads, size = query.shape
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key).astype(jnp.float32) / jnp.sqrt(jnp.float32(size))
    rows = lax.broadcasted_iota(jnp.int32, (length, length), 0)
    columns = lax.broadcasted_iota(jnp.int32, (length, length), 1)
    scores = jnp.where(rows >= columns, scores, jnp.finfo(jnp.float32).min)
    weights = softmax(scores).astype(value.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, value).reshape(batch, length, heads * size)


def largest(x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The index of the largest and of the smallest of each row, and the largest: reductions of several values."""
    return jnp.argmax(x, axis=-1), jnp.argmin(x, axis=-1), jnp.max(x, axis=-1)


def accuracy(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The share of rows whose largest value is at the label, and whether any is."""
    right = jnp.argmax(logits, axis=-1) == labels
    return jnp.mean(right.astype(jnp.float32)), jnp.any(right)


CASES = [
    Case("softmax", softmax, (f32(128, 1000),), ("short", "classic", "frames")),
    Case("softmax_library", softmax_library, (f32(33, 77),)),
    Case("softmax_columns", softmax_columns, (f32(200, 130),)),
    Case("softmax_bf16", softmax_library, (of("bfloat16", 64, 257),)),
    Case("softmax_gradient", softmax_gradient, (f32(128, 1000), f32(128, 1000)), ("frames",)),
    Case("cross_entropy", cross_entropy, (f32(64, 1000), s32(64, low=0, high=1000))),
    Case("log_sum_exp", log_sum_exp, (f32(7, 33, 65),)),
    Case("attention", attention, (f32(2, 64, 4, 32), f32(2, 64, 4, 32), f32(2, 64, 4, 32)), ("short", "frames")),
    Case(
        "attention_bf16",
        attention,
        (of("bfloat16", 1, 33, 3, 24), of("bfloat16", 1, 33, 3, 24), of("bfloat16", 1, 33, 3, 24)),
    ),
    Case("largest", largest, (f32(128, 1000),)),
    Case("accuracy", accuracy, (f32(100, 10), s32(100, low=0, high=10))),
]
