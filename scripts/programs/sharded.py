"""Programs for several devices, as XLA's partitioner leaves them: collectives among partitions that hold tiles."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from scripts.programs.case import Case, f32, s32

P = PartitionSpec


def line(axis: str) -> Mesh:
    """Four devices in a row."""
    return Mesh(np.array(jax.devices("cpu")[:4]), (axis,))


def block(x: jax.Array, up: jax.Array, down: jax.Array, scale: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A feed-forward block and its mean: one axis of the mesh cuts the batch, the other the hidden layer."""
    hidden = jax.nn.gelu(x @ up)
    y = x + hidden @ down
    y = y * jax.lax.rsqrt(jnp.mean(jnp.square(y), axis=-1, keepdims=True) + 1e-6) * scale
    return y, jnp.mean(y)


def step(weight: jax.Array, bias: jax.Array, x: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """A step of gradient descent on each device's part of the batch, with the mean of gradients, as under `pmap`."""

    @partial(
        jax.shard_map, mesh=line("batch"), in_specs=(P(), P(), P("batch"), P("batch")), out_specs=P(), check_vma=False
    )
    def on_each(
        weight: jax.Array, bias: jax.Array, x: jax.Array, labels: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        def loss(parameters: tuple[jax.Array, jax.Array]) -> jax.Array:
            log_probability = jax.nn.log_softmax(x @ parameters[0] + parameters[1])
            target = jax.nn.one_hot(labels, log_probability.shape[-1])
            return -jnp.mean(jnp.sum(target * log_probability, axis=-1))

        value, (weights, biases) = jax.lax.pmean(jax.value_and_grad(loss)((weight, bias)), "batch")
        return weight - 0.1 * weights, bias - 0.1 * biases, value

    made: tuple[jax.Array, jax.Array, jax.Array] = on_each(weight, bias, x, labels)
    return made


def ring(x: jax.Array, weight: jax.Array) -> jax.Array:
    """A product whose left operand goes round: each device multiplies what it holds, and hands it on."""

    @partial(
        jax.shard_map,
        mesh=line("ring"),
        in_specs=(P("ring"), P(None, "ring")),
        out_specs=P(None, "ring"),
        check_vma=False,
    )
    def on_each(x: jax.Array, weight: jax.Array) -> jax.Array:
        def turn(state: tuple[jax.Array, jax.Array], k: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
            held, made = state
            row = (jax.lax.axis_index("ring") - k) % 4 * held.shape[0]
            made = jax.lax.dynamic_update_slice(made, jnp.tanh(held @ weight), (row, 0))
            return (jax.lax.ppermute(held, "ring", [(d, (d + 1) % 4) for d in range(4)]), made), None

        start = jnp.zeros((4 * x.shape[0], weight.shape[1]), x.dtype)
        return jax.lax.scan(turn, (x, start), jnp.arange(4))[0][1]

    made: jax.Array = on_each(x, weight)
    return made


WHY = "runs on four devices"
CASES = [
    Case(
        "sharded_block",
        block,
        (f32(16, 64), f32(64, 128, low=-0.1, high=0.1), f32(128, 64, low=-0.1, high=0.1), f32(64)),
        mesh={"x": 2, "y": 2},
        shardings=(P("x", None), P(None, "y"), P("y", None), P(None)),
        results=(P("x", None), P()),
        platform="cpu",
        skip=WHY,
    ),
    Case(
        "sharded_step",
        step,
        (f32(32, 10, low=-0.1, high=0.1), f32(10), f32(64, 32), s32(64, low=0, high=10)),
        mesh={"batch": 4},
        shardings=(P(), P(), P("batch"), P("batch")),
        results=(P(), P(), P()),
        platform="cpu",
        skip=WHY,
    ),
    Case(
        "sharded_ring",
        ring,
        (f32(32, 16), f32(16, 64, low=-0.1, high=0.1)),
        mesh={"ring": 4},
        shardings=(P("ring"), P(None, "ring")),
        results=P(None, "ring"),
        platform="cpu",
        skip=WHY,
    ),
]
