"""Convolutions that libraries are slow at: one filter for each channel, and strides."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from scripts.programs.case import Case, f32, of

IMAGE = ("NHWC", "HWIO", "NHWC")


def by_channel(x: jax.Array, kernel: jax.Array, strides: Sequence[int] = (1, 1)) -> jax.Array:
    return lax.conv_general_dilated(
        x, kernel, strides, "SAME", dimension_numbers=IMAGE, feature_group_count=x.shape[-1]
    )


def strided(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return lax.conv_general_dilated(x, kernel, (2, 2), "SAME", dimension_numbers=IMAGE)


def depthwise(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    return jax.nn.relu(by_channel(x, kernel) + bias)


def depthwise_gradient(x: jax.Array, kernel: jax.Array, out: jax.Array) -> tuple[jax.Array, jax.Array]:
    found: tuple[jax.Array, jax.Array] = jax.vjp(by_channel, x, kernel)[1](out)
    return found


def separable(x: jax.Array, kernel: jax.Array, points: jax.Array) -> jax.Array:
    """A filter for each channel, then a mixture of channels."""
    return jax.nn.silu(by_channel(x, kernel) @ points)


def causal(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Four taps over time for each channel, as state-space models have them."""
    return jax.nn.silu(
        lax.conv_general_dilated(
            x, kernel, (1,), [(3, 0)], dimension_numbers=("NTC", "TIO", "NTC"), feature_group_count=x.shape[-1]
        )
    )


def depthwise_strided(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return by_channel(x, kernel, (2, 2))


def stem(x: jax.Array, kernel: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    """What an image network begins with."""
    return jax.nn.relu(strided(x, kernel) * scale + bias)


def strided_gradient(x: jax.Array, kernel: jax.Array, out: jax.Array) -> tuple[jax.Array, jax.Array]:
    found: tuple[jax.Array, jax.Array] = jax.vjp(strided, x, kernel)[1](out)
    return found


def patches(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """Squares of an image as vectors: windows as large as their strides."""
    cut = lax.conv_general_dilated(x, kernel, (16, 16), "VALID", dimension_numbers=IMAGE)
    return cut.reshape(x.shape[0], -1, kernel.shape[-1]) + bias


def upwards(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """A transposed convolution: twice the size."""
    return jnp.tanh(lax.conv_transpose(x, kernel, (2, 2), "SAME", dimension_numbers=IMAGE))


def shortcut(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """One point out of four, with more channels."""
    return jax.nn.relu(strided(x, kernel))


SMALL = f32(8, 28, 28, 96)

CASES = (
    Case("depthwise", depthwise, (SMALL, f32(3, 3, 1, 96), f32(96))),
    Case("depthwise_gradient", depthwise_gradient, (SMALL, f32(3, 3, 1, 96), SMALL)),
    Case("depthwise_separable", separable, (SMALL, f32(3, 3, 1, 96), f32(96, 192))),
    Case("depthwise_causal", causal, (f32(4, 256, 384), f32(4, 1, 384))),
    Case("depthwise_strided", depthwise_strided, (SMALL, f32(3, 3, 1, 96))),
    Case("strided_stem", stem, (f32(4, 112, 112, 3), f32(7, 7, 3, 64), f32(64), f32(64))),
    Case("strided_gradient", strided_gradient, (f32(8, 28, 28, 32), f32(3, 3, 32, 64), f32(8, 14, 14, 64))),
    Case(
        "strided_patches",
        patches,
        (of("bfloat16", 4, 224, 224, 3), of("bfloat16", 16, 16, 3, 192), of("bfloat16", 192)),
    ),
    Case("strided_upwards", upwards, (f32(8, 14, 14, 64), f32(3, 3, 64, 32))),
    Case("strided_shortcut", shortcut, (f32(8, 28, 28, 64), f32(1, 1, 64, 128))),
)
