"""Layer, root-mean-square and batch normalisation: reductions along a row, along a column and over both."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from scripts.programs.case import Case, f32, of

EPSILON = 1e-5


def layer_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    """Each row to mean 0 and variance 1, then scaled and shifted."""
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(x - mean), axis=-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + EPSILON) * scale + bias


def layer_norm_one_pass(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    """Layer normalisation with both moments taken from sums, in float32 whatever the type of `x`."""
    wide = x.astype(jnp.float32)
    mean = jnp.mean(wide, axis=-1, keepdims=True)
    mean_of_squares = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
    variance = jnp.maximum(mean_of_squares - jnp.square(mean), 0.0)
    normal = (wide - mean) * jax.lax.rsqrt(variance + EPSILON)
    return (normal * scale.astype(jnp.float32) + bias.astype(jnp.float32)).astype(x.dtype)


def layer_norm_gradient(
    x: jax.Array, scale: jax.Array, bias: jax.Array, weight: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
    """A loss on the normalised rows and its gradients: row reductions and column reductions of the same data."""

    def loss(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
        return jnp.sum(layer_norm(x, scale, bias) * weight)

    return jax.value_and_grad(loss, argnums=(0, 1, 2))(x, scale, bias)


def rms_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Each row divided by its root mean square, accumulated in float32."""
    wide = x.astype(jnp.float32)
    inverse = jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + EPSILON)
    return (wide * inverse).astype(x.dtype) * scale


def residual_rms_norm(x: jax.Array, residual: jax.Array, scale: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A residual added before the norm and handed on: one producer with two uses."""
    total = x + residual
    return rms_norm(total, scale), total


def batch_norm(
    x: jax.Array, scale: jax.Array, bias: jax.Array, moving_mean: jax.Array, moving_variance: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Each column to mean 0 and variance 1, and the moving statistics brought up to date."""
    mean = jnp.mean(x, axis=0)
    variance = jnp.var(x, axis=0)
    y = (x - mean) * jax.lax.rsqrt(variance + EPSILON) * scale + bias
    return jax.nn.relu(y), 0.9 * moving_mean + 0.1 * mean, 0.9 * moving_variance + 0.1 * variance


def group_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    """Images [batch, height, width, channels] normalised over space and groups of 8 channels."""
    batch, height, width, channels = x.shape
    grouped = x.reshape(batch, height, width, channels // 8, 8)
    mean = jnp.mean(grouped, axis=(1, 2, 4), keepdims=True)
    variance = jnp.var(grouped, axis=(1, 2, 4), keepdims=True)
    normal = (grouped - mean) * jax.lax.rsqrt(variance + EPSILON)
    return normal.reshape(x.shape) * scale + bias


CASES = [
    Case("layer_norm", layer_norm, (f32(64, 768), f32(768), f32(768)), ("short", "classic", "frames")),
    Case("layer_norm_gradient", layer_norm_gradient, (f32(64, 768), f32(768), f32(768), f32(64, 768))),
    Case(
        "layer_norm_bf16", layer_norm_one_pass, (of("bfloat16", 37, 1023), of("bfloat16", 1023), of("bfloat16", 1023))
    ),
    Case("layer_norm_f64", layer_norm, (of("float64", 16, 100), of("float64", 100), of("float64", 100)), x64=True),
    Case("rms_norm_f16", rms_norm, (of("float16", 3, 17, 512), of("float16", 512))),
    Case("residual_rms_norm", residual_rms_norm, (f32(64, 1000), f32(64, 1000), f32(1000)), ("frames",), donate=(1,)),
    Case("batch_norm", batch_norm, (f32(256, 129), f32(129), f32(129), f32(129), f32(129, low=0.5, high=2.0))),
    Case("group_norm", group_norm, (f32(4, 9, 9, 32), f32(32), f32(32)), ("frames",)),
]
