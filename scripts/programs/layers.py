"""Layers with what follows a product or a convolution, and arrays that are sorted or reversed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from scripts.programs.case import Case, f32, of

Arrays = tuple[jax.Array, ...]


def _convolution(x: jax.Array, kernel: jax.Array, stride: int = 1) -> jax.Array:
    return lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def residual_block(x: jax.Array, first: jax.Array, b: jax.Array, second: jax.Array, c: jax.Array) -> jax.Array:
    """Two convolutions with biases; the input is added to the second one before the positive part is taken."""
    inner = jax.nn.relu(_convolution(x, first) + b)
    return jax.nn.relu(_convolution(inner, second) + c + x)


def image_classifier(
    x: jax.Array, first: jax.Array, b: jax.Array, second: jax.Array, c: jax.Array, w: jax.Array, d: jax.Array
) -> jax.Array:
    """Convolutions with strides in bf16, the mean over the image, and a dense layer."""
    x = jax.nn.relu(_convolution(x, first, 2) + b)
    x = jax.nn.relu(_convolution(x, second, 2) + c)
    return x.mean((1, 2), dtype=jnp.float32).astype(x.dtype) @ w + d


def wide_layers(x: jax.Array, w: jax.Array, b: jax.Array, v: jax.Array, c: jax.Array) -> jax.Array:
    """Dense layers that are too wide for kernels of our own, with bias and activation."""
    return jax.nn.gelu(jax.nn.relu(x @ w + b) @ v + c)


def in_order(x: jax.Array, rows: jax.Array) -> Arrays:
    """Keys and rows in the order of the keys, the ranks, and the gaps between neighbours."""
    order = jnp.argsort(x)
    keys = x[order]
    return keys, rows[order], order, jnp.diff(keys)


def upwind_step(u: jax.Array) -> jax.Array:
    """A step of a conservation law: fluxes split by the fastest wave, those from the right computed on the reversed
    line."""

    def slope(f: jax.Array) -> jax.Array:
        before, after = jnp.roll(f, 1) - f, f - jnp.roll(f, -1)
        return f + 0.5 * jnp.where(before * after > 0, jnp.minimum(jnp.abs(before), jnp.abs(after)), 0.0)

    fastest = jnp.max(jnp.abs(u))
    right, left = 0.5 * (0.5 * u * u + fastest * u), 0.5 * (0.5 * u * u - fastest * u)
    flux = slope(right) + jnp.roll(slope(left[::-1])[::-1], -1)
    return u - 0.1 * (flux - jnp.roll(flux, 1))


KERNEL, HALF = f32(3, 3, 64, 64), "bfloat16"

CASES = (
    Case("layer_residual_block", residual_block, (f32(8, 56, 56, 64), KERNEL, f32(64), KERNEL, f32(64))),
    Case(
        "layer_image_classifier",
        image_classifier,
        (
            *(of(HALF, 16, 64, 64, 16), of(HALF, 3, 3, 16, 64), of(HALF, 64)),
            *(of(HALF, 3, 3, 64, 128), of(HALF, 128), of(HALF, 128, 1000), of(HALF, 1000)),
        ),
    ),
    Case(
        "layer_wide",
        wide_layers,
        (of(HALF, 4096, 1024), of(HALF, 1024, 4096), of(HALF, 4096), of(HALF, 4096, 1024), of(HALF, 1024)),
    ),
    Case("layer_in_order", in_order, (f32(4096), f32(4096, 16))),
    Case("layer_upwind_step", upwind_step, (f32(1 << 16),)),
)
