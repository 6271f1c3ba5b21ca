"""The programs that `evaluate_speed` times, as JAX functions with their inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
MILLION = 1_000_000


@dataclass(frozen=True)
class Case:
    """`is_main`: one of those that a release must keep within its bound; the others are more shapes and types of the
    same."""

    name: str
    function: Callable[..., Any]
    inputs: tuple[Array, ...]
    is_main: bool = False


def train_step(first: Any, second: Any, x: Any, y: Any) -> Any:
    def loss(weights: Any) -> Any:
        return jnp.mean((jax.nn.relu(x @ weights[0]) @ weights[1] - y) ** 2)

    slopes = jax.grad(loss)((first, second))
    return first - 0.1 * slopes[0], second - 0.1 * slopes[1]


def convolution(x: Any, kernel: Any, *, stride: int = 1, layout: str = "NCHW", groups: int = 1) -> Any:
    labels = (layout, "OIHW" if layout == "NCHW" else "HWIO", layout)
    return lax.conv_general_dilated(
        x, kernel, (stride, stride), "SAME", dimension_numbers=labels, feature_group_count=groups
    )


def convolution_slope(x: Any, kernel: Any) -> Any:
    return jax.grad(lambda x, kernel: jnp.sum(convolution(x, kernel) ** 2), (0, 1))(x, kernel)


def take(x: Any, indices: Any) -> Any:
    return x[indices]


def slices(x: Any, starts: Any) -> Any:
    return jax.vmap(lambda start: lax.dynamic_slice(x, (start,), (64,)))(starts)


def add_at(x: Any, indices: Any, updates: Any) -> Any:
    return x.at[indices].add(updates)


def set_at(x: Any, indices: Any, updates: Any) -> Any:
    return x.at[indices].set(updates)


def most_at(x: Any, indices: Any, updates: Any) -> Any:
    return x.at[indices].max(updates)


def descending(x: Any) -> Any:
    return -jnp.sort(-x)


def max_pool(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), "SAME")


def max_pool_slope(x: Any) -> Any:
    return jax.grad(lambda x: jnp.sum(max_pool(x) ** 2))(x)


def average_pool(x: Any) -> Any:
    return lax.reduce_window(x, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def layer_norm(x: Any) -> Any:
    centred = x - jnp.mean(x, -1, keepdims=True)
    return centred * lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5)


def attention(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k) / 8) @ v


def matmul(x: Any, y: Any) -> Any:
    return x @ y


def cases(more: bool) -> list[Case]:
    """The main programs, and with `more` the others."""
    generator = np.random.default_rng(0)

    def normal(*shape: int) -> Array:
        return generator.standard_normal(shape).astype(np.float32)

    def half(*shape: int) -> Array:
        return np.asarray(normal(*shape).astype(ml_dtypes.bfloat16))

    def rows(most: int, count: int) -> Array:
        return generator.integers(0, most, count).astype(np.int32)

    indices = rows(MILLION, MILLION)
    found = [
        Case("softmax", jax.nn.softmax, (normal(1024, 1024),), True),
        Case(
            "train step",
            train_step,
            (normal(2048, 2048), normal(2048, 2048), normal(128, 2048), normal(128, 2048)),
            True,
        ),
        Case("convolution", convolution, (normal(8, 64, 32, 32), normal(64, 64, 3, 3)), True),
        Case("gather", take, (normal(MILLION), indices), True),
        Case("scatter", add_at, (normal(MILLION), indices, normal(MILLION)), True),
        Case("sort", jnp.sort, (normal(MILLION),), True),
    ]
    if not more:
        return found
    nhwc = partial(convolution, layout="NHWC")
    keys = rows(1000, MILLION)
    return [
        *found,
        Case("convolution NCHW 56x56", convolution, (normal(8, 64, 56, 56), normal(64, 64, 3, 3))),
        Case("convolution NHWC 56x56", nhwc, (normal(8, 56, 56, 64), normal(3, 3, 64, 64))),
        Case("convolution NHWC batch 32", nhwc, (normal(32, 28, 28, 64), normal(3, 3, 64, 64))),
        Case("convolution strided", partial(nhwc, stride=2), (normal(8, 56, 56, 64), normal(3, 3, 64, 64))),
        Case("convolution 1x1", nhwc, (normal(8, 56, 56, 64), normal(1, 1, 64, 64))),
        Case("convolution 4 groups", partial(nhwc, groups=4), (normal(8, 56, 56, 64), normal(3, 3, 16, 64))),
        Case("convolution depthwise", partial(nhwc, groups=64), (normal(8, 56, 56, 64), normal(3, 3, 1, 64))),
        Case("convolution 7x7 of 3", partial(nhwc, stride=2), (normal(8, 112, 112, 3), normal(7, 7, 3, 64))),
        Case("convolution slope", convolution_slope, (normal(8, 64, 32, 32), normal(64, 64, 3, 3))),
        Case("convolution bf16", nhwc, (half(8, 32, 32, 64), half(3, 3, 64, 64))),
        Case("gather rows", take, (normal(50_000, 32), rows(50_000, MILLION // 4))),
        Case("gather short rows", take, (normal(50_000, 4), rows(50_000, MILLION))),
        Case("gather slices", slices, (normal(MILLION), rows(MILLION - 64, 20_000))),
        Case("gather bf16", take, (half(MILLION), indices)),
        Case("scatter rows", add_at, (normal(50_000, 32), rows(50_000, 60_000), normal(60_000, 32))),
        Case("scatter collisions", add_at, (normal(1000), keys, normal(MILLION))),
        Case("scatter set", set_at, (normal(MILLION), indices, normal(MILLION))),
        Case("scatter set rows", set_at, (normal(50_000, 32), rows(50_000, 20_000), normal(20_000, 32))),
        Case("scatter max", most_at, (normal(MILLION), indices, normal(MILLION))),
        Case("scatter s32", add_at, (rows(9, MILLION), indices, rows(9, MILLION))),
        Case("scatter bf16", add_at, (half(MILLION), indices, half(MILLION))),
        Case("sort s32", jnp.sort, (indices,)),
        Case("sort descending", descending, (normal(MILLION),)),
        Case("sort pairs", lambda k, v: lax.sort((k, v), num_keys=1), (normal(MILLION), indices)),
        Case("sort two keys", lambda k, v: lax.sort((k, v), num_keys=2), (keys, normal(MILLION))),
        Case("argsort", jnp.argsort, (normal(MILLION),)),
        Case("sort columns", lambda x: jnp.sort(x, axis=0), (normal(1000, 1000),)),
        Case("sort rows", lambda x: jnp.sort(x, axis=1), (normal(1000, 1000),)),
        Case("sort bf16", jnp.sort, (half(MILLION),)),
        Case("top 10", lambda x: lax.top_k(x, 10), (normal(1000, 1000),)),
        Case("cumulative sum", jnp.cumsum, (normal(MILLION),)),
        Case("cumulative sum of rows", lambda x: jnp.cumsum(x, 1), (normal(1000, 1000),)),
        Case(
            "cumulative window",
            lambda x: lax.reduce_window(x, 0.0, lax.add, (4096,), (1,), [(4095, 0)]),
            (normal(4096),),
        ),
        Case("max pool", max_pool, (normal(8, 64, 56, 56),)),
        Case("max pool slope", max_pool_slope, (normal(8, 16, 56, 56),)),
        Case("average pool", average_pool, (normal(8, 64, 56, 56),)),
        Case("argmax", lambda x: jnp.argmax(x, 1), (normal(1000, 1000),)),
        Case("column sums", lambda x: jnp.sum(x, 0), (normal(2000, 1000),)),
        Case("sum bf16", lambda x: jnp.sum(x, 1), (half(1000, 1000),)),
        Case("softmax f16", jax.nn.softmax, (normal(1024, 1024).astype(np.float16),)),
        Case("softmax bf16", jax.nn.softmax, (half(1024, 1024),)),
        Case("softmax columns", lambda x: jax.nn.softmax(x, 0), (normal(1024, 1024),)),
        Case("layer norm", layer_norm, (normal(2048, 1024),)),
        Case("attention", attention, (normal(2, 8, 256, 64), normal(2, 8, 256, 64), normal(2, 8, 256, 64))),
        Case("matmul", matmul, (normal(1024, 1024), normal(1024, 1024))),
        Case("matmul bf16", matmul, (half(1024, 1024), half(1024, 1024))),
        Case("matmul f16", matmul, (normal(1024, 1024).astype(np.float16), normal(1024, 1024).astype(np.float16))),
        Case("matmul s8", matmul, (rows(9, 512 * 512).reshape(512, 512).astype(np.int8),) * 2),
        Case("matmul s32", matmul, (rows(9, 512 * 512).reshape(512, 512),) * 2),
        Case("gelu", jax.nn.gelu, (normal(1024, 1024),)),
        Case("transpose", lambda x: jnp.transpose(x, (0, 2, 1)) + 1, (normal(64, 128, 128),)),
        Case(
            "random bits",
            lambda key: jax.random.normal(jax.random.wrap_key_data(key), (MILLION,)),
            (np.array([1, 2], np.uint32),),
        ),
    ]
