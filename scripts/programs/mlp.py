"""Training steps of small networks: forward, loss, gradient and update in one module."""

from __future__ import annotations

from itertools import pairwise
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp

from scripts.programs.case import Arg, Case, f32, s32

T = TypeVar("T")


class Layer(NamedTuple, Generic[T]):
    """A dense layer."""

    weight: T
    bias: T


Network: TypeAlias = tuple[Layer[jax.Array], ...]


def forward(network: Network, x: jax.Array) -> jax.Array:
    """The logits of a network with GELU between its layers."""
    for layer in network[:-1]:
        x = jax.nn.gelu(x @ layer.weight + layer.bias)
    return x @ network[-1].weight + network[-1].bias


def train_step(
    network: Network, velocity: Network, x: jax.Array, labels: jax.Array
) -> tuple[Network, Network, jax.Array]:
    """One step of gradient descent with momentum on the cross-entropy of a batch."""

    def loss(network: Network) -> jax.Array:
        log_probability = jax.nn.log_softmax(forward(network, x))
        target = jax.nn.one_hot(labels, log_probability.shape[-1])
        return -jnp.mean(jnp.sum(target * log_probability, axis=-1))

    value, gradient = jax.value_and_grad(loss)(network)
    velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, gradient)
    network = jax.tree.map(lambda p, v: p - 0.1 * v, network, velocity)
    return network, velocity, value


def autoencoder_step(
    encoder: Layer[jax.Array], decoder: Layer[jax.Array], x: jax.Array, rate: jax.Array
) -> tuple[Layer[jax.Array], Layer[jax.Array], jax.Array]:
    """One step on the squared error of a network that learns to return what it is given, with weight decay."""

    def loss(layers: tuple[Layer[jax.Array], Layer[jax.Array]]) -> jax.Array:
        first, second = layers
        hidden = jnp.tanh(x @ first.weight + first.bias)
        output = jax.nn.sigmoid(hidden @ second.weight + second.bias)
        decay = sum((jnp.sum(jnp.square(layer.weight)) for layer in layers), jnp.float32(0))
        return jnp.mean(jnp.square(output - x)) + 1e-4 * decay

    value, gradient = jax.value_and_grad(loss)((encoder, decoder))
    encoder, decoder = jax.tree.map(lambda p, g: p - rate * g, (encoder, decoder), gradient)
    return encoder, decoder, value


def network(*sizes: int) -> tuple[Layer[Arg], ...]:
    """The parameters of a network with these sizes of layers."""
    return tuple(
        Layer(f32(inputs, outputs, low=-0.1, high=0.1), f32(outputs, low=-0.1, high=0.1))
        for inputs, outputs in pairwise(sizes)
    )


IMAGES = f32(64, 784, low=0.0, high=1.0)
CASES = [
    Case("mlp_forward", forward, (network(784, 256, 128, 10), IMAGES)),
    Case(
        "mlp_train_step",
        train_step,
        (network(784, 256, 10), network(784, 256, 10), IMAGES, s32(64, low=0, high=10)),
        ("short", "frames"),
        donate=(0, 1),
    ),
    Case(
        "autoencoder_step",
        autoencoder_step,
        (*network(200, 33), *network(33, 200), f32(50, 200, low=0.0, high=1.0), f32(low=0.01, high=0.1)),
        ("classic",),
    ),
]
