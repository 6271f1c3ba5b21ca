"""Steps of training: forward, backward and what the optimiser does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from scripts.programs.case import Case, f32, s32

Tree = Any


def trained(loss: Callable[..., jax.Array]) -> Callable[..., Any]:
    """A step of gradient descent with momentum."""

    def step(weights: Tree, momentum: Tree, *batch: jax.Array) -> tuple[Tree, Tree, jax.Array]:
        value, gradient = jax.value_and_grad(loss)(weights, *batch)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
        return jax.tree.map(lambda w, m: w - 0.01 * m, weights, momentum), momentum, value

    return step


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1))


def classifier(weights: Tree, x: jax.Array, labels: jax.Array) -> jax.Array:
    first, second = weights
    return cross_entropy(jax.nn.relu(x @ first[0] + first[1]) @ second[0] + second[1], labels)


def regression(weights: Tree, x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.mean((x @ weights[0] + weights[1] - y) ** 2) + 1e-4 * jnp.sum(weights[0] ** 2)


def mixer(weights: Tree, x: jax.Array, labels: jax.Array) -> jax.Array:
    """Tokens are mixed, then channels, with layer norms before both."""

    def normal(value: jax.Array) -> jax.Array:
        away = value - value.mean(-1, keepdims=True)
        return away * jax.lax.rsqrt(jnp.mean(away**2, -1, keepdims=True) + 1e-5)

    tokens, channels, head = weights
    x = x + jnp.swapaxes(jax.nn.gelu(jnp.swapaxes(normal(x), 1, 2) @ tokens[0]) @ tokens[1], 1, 2)
    x = x + jax.nn.gelu(normal(x) @ channels[0]) @ channels[1]
    return cross_entropy(x.mean(1) @ head, labels)


def attention(weights: Tree, x: jax.Array, y: jax.Array) -> jax.Array:
    """Causal attention of several heads."""
    batch, time, width = x.shape
    query, key, value = ((x @ w).reshape(batch, time, 4, width // 4).transpose(0, 2, 1, 3) for w in weights[:3])
    scores = query @ jnp.swapaxes(key, 2, 3) * (width // 4) ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((time, time), bool)), scores, -1e9)
    mixed = (jax.nn.softmax(scores, -1) @ value).transpose(0, 2, 1, 3).reshape(x.shape)
    return jnp.mean((mixed @ weights[3] - y) ** 2)


def embedding(weights: Tree, tokens: jax.Array, labels: jax.Array) -> jax.Array:
    """Bags of words."""
    table, head = weights
    return cross_entropy(jnp.tanh(table[tokens].mean(1)) @ head, labels)


LOW = {"low": -0.1, "high": 0.1}
MIX = ((f32(64, 128, **LOW), f32(128, 64, **LOW)), (f32(96, 192, **LOW), f32(192, 96, **LOW)), f32(96, 10, **LOW))
DENSE = ((f32(784, 256, **LOW), f32(256)), (f32(256, 10, **LOW), f32(10)))
PLAIN, HEADS, BAG = (f32(64, 8), f32(8)), (f32(128, 128, **LOW),) * 4, (f32(1000, 64), f32(64, 20, **LOW))

CASES = (
    Case("train_classifier", trained(classifier), (DENSE, DENSE, f32(256, 784), s32(256, high=10)), donate=(0, 1)),
    Case("train_regression", trained(regression), (PLAIN, PLAIN, f32(4096, 64), f32(4096, 8)), donate=(0, 1)),
    Case("train_mixer", trained(mixer), (MIX, MIX, f32(16, 64, 96), s32(16, high=10)), donate=(0, 1)),
    Case("train_attention", trained(attention), (HEADS, HEADS, f32(4, 128, 128), f32(4, 128, 128)), donate=(0, 1)),
    Case("train_embedding", trained(embedding), (BAG, BAG, s32(128, 32, high=1000), s32(128, high=20)), donate=(0, 1)),
)
