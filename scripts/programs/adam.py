"""Adam over the parameters of a small transformer: many independent elementwise updates, for horizontal fusion."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp

from scripts.programs.case import Arg, Case, of

Tree: TypeAlias = Any
"""A pytree of arrays."""


T = TypeVar("T")


class AdamState(NamedTuple, Generic[T]):
    """How many updates were made, and the moving averages of the gradients and of their squares."""

    updates: T
    mean: Tree
    square: Tree


def adam(parameters: Tree, gradients: Tree, state: AdamState[jax.Array]) -> tuple[Tree, AdamState[jax.Array]]:
    """One update, as the paper on Adam has it."""
    rate, beta1, beta2, epsilon = 1e-3, 0.9, 0.999, 1e-8
    count = state.updates + 1
    mean = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state.mean, gradients)
    square = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * jnp.square(g), state.square, gradients)
    correction1 = 1 - beta1 ** count.astype(jnp.float32)
    correction2 = 1 - beta2 ** count.astype(jnp.float32)

    def update(parameter: jax.Array, mean: jax.Array, square: jax.Array) -> jax.Array:
        return parameter - rate * (mean / correction1) / (jnp.sqrt(square / correction2) + epsilon)

    return jax.tree.map(update, parameters, mean, square), AdamState(count, mean, square)


def adamw_mixed(parameters: Tree, gradients: Tree, state: AdamState[jax.Array]) -> tuple[Tree, AdamState[jax.Array]]:
    """Adam with decoupled weight decay and clipping by the global norm; parameters in bfloat16, averages in float32."""
    rate, beta1, beta2, epsilon, decay, limit = 3e-4, 0.9, 0.95, 1e-8, 0.1, 1.0
    wide = jax.tree.map(lambda g: g.astype(jnp.float32), gradients)
    norm = jnp.sqrt(sum((jnp.sum(jnp.square(g)) for g in jax.tree.leaves(wide)), jnp.float32(0)))
    factor = jnp.minimum(1.0, limit / (norm + 1e-6))
    clipped = jax.tree.map(lambda g: g * factor, wide)
    count = state.updates + 1
    mean = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state.mean, clipped)
    square = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * jnp.square(g), state.square, clipped)
    correction1 = 1 - beta1 ** count.astype(jnp.float32)
    correction2 = 1 - beta2 ** count.astype(jnp.float32)

    def update(parameter: jax.Array, mean: jax.Array, square: jax.Array) -> jax.Array:
        old = parameter.astype(jnp.float32)
        step = (mean / correction1) / (jnp.sqrt(square / correction2) + epsilon) + decay * old
        return (old - rate * step).astype(parameter.dtype)

    return jax.tree.map(update, parameters, mean, square), AdamState(count, mean, square)


def transformer(width: int, layers: int, vocabulary: int, dtype: str, low: float | None = None) -> Tree:
    """The parameters of a transformer as a pytree of `Arg`; `low` makes all samples positive."""

    def array(*shape: int) -> Arg:
        return of(dtype, *shape, low=low, high=None if low is None else low + 1.0)

    def layer() -> Tree:
        return {
            "attention": {"qkv": array(width, 3 * width), "out": array(width, width), "bias": array(width)},
            "mlp": {
                "up": array(width, 4 * width),
                "up_bias": array(4 * width),
                "down": array(4 * width, width),
                "down_bias": array(width),
            },
            "norms": [{"scale": array(width), "bias": array(width)} for _ in range(2)],
        }

    return {
        "embedding": array(vocabulary, width),
        "layers": [layer() for _ in range(layers)],
        "norm": {"scale": array(width), "bias": array(width)},
        "temperature": array(),
    }


def arguments(width: int, layers: int, vocabulary: int, dtype: str) -> tuple[Tree, Tree, AdamState[Arg]]:
    """Parameters, gradients and state for an update."""
    state = AdamState(
        Arg((), "int32", 0, 100),
        transformer(width, layers, vocabulary, "float32"),
        transformer(width, layers, vocabulary, "float32", low=0.0),
    )
    return transformer(width, layers, vocabulary, dtype), transformer(width, layers, vocabulary, dtype), state


CASES = [
    Case("adam", adam, arguments(96, 2, 513, "float32"), ("short", "frames"), donate=(0, 2)),
    Case(
        "adam_one",
        adam,
        (
            of("float32", 1000),
            of("float32", 1000),
            AdamState(Arg((), "int32", 0, 100), of("float32", 1000), of("float32", 1000, low=0.0, high=1.0)),
        ),
    ),
    Case("adamw_mixed", adamw_mixed, arguments(64, 1, 300, "bfloat16"), donate=(0, 2)),
]
