"""Our peak of modules that XLA compiled for a CPU, against what its own buffer assignment says: `pytest -s` prints the
ratios.

XLA makes elementwise results in the memory of an operand, which kernels of ours do not, and lays buffers out in one
allocation; so ours may be larger, and smaller by XLA's padding only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from lint_programs import f32

from hlo_opt import parse
from hlo_opt.report.memory.timeline import moment_of
from hlo_opt.runtime.schedule import build_schedule


def mlp(x: jax.Array, w: jax.Array, v: jax.Array) -> jax.Array:
    return jnp.sum((jnp.tanh(x @ w) @ v) ** 2)


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.softmax(q @ k.T) @ v


def norm(x: jax.Array) -> jax.Array:
    return (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)


def sums_in_order(x: jax.Array) -> jax.Array:
    return jnp.cumsum(jnp.sort(jnp.sin(x), axis=-1), axis=-1)


def loop(x: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 10, lambda _, y: y @ y + x, x)


MLP = (f32(256, 512), f32(512, 1024), f32(1024, 64))
HEADS = (f32(512, 64),) * 3
CASES: dict[str, tuple[Callable[..., Any], Sequence[jax.ShapeDtypeStruct]]] = {
    "mlp": (mlp, MLP),
    "mlp gradient": (jax.grad(mlp, (1, 2)), MLP),
    "attention": (attention, HEADS),
    "attention gradient": (jax.grad(lambda *a: attention(*a).sum(), (0, 1, 2)), HEADS),
    "layer norm": (norm, (f32(1024, 1024),)),
    "sorted sums": (sums_in_order, (f32(512, 512),)),
    "loop": (loop, (f32(256, 256),)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_peak_is_near_that_of_xla(name: str) -> None:
    function, arguments = CASES[name]
    compiled = jax.jit(function).lower(*arguments).compile()
    stats = compiled.memory_analysis()
    theirs = (
        stats.argument_size_in_bytes + stats.output_size_in_bytes + stats.temp_size_in_bytes - stats.alias_size_in_bytes
    )
    ours = moment_of(build_schedule(parse(compiled.as_text()))).bytes
    print(f"{name}: {ours} bytes, XLA {theirs}, ratio {ours / theirs:.2f}")
    assert 0.95 <= ours / theirs <= 1.7
