"""Gradients of normalisations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from scripts.programs.case import Case, f32, of


def layer_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean((x - mean) ** 2, axis=-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + bias


def rms_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    wide = x.astype(jnp.float32)
    return (wide * lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + 1e-6)).astype(x.dtype) * scale


def group_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    parts = x.reshape(x.shape[0], x.shape[1], 8, -1)
    mean = jnp.mean(parts, axis=(1, 3), keepdims=True)
    variance = jnp.var(parts, axis=(1, 3), keepdims=True)
    return ((parts - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape) * scale + bias


def batch_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    mean, square = jnp.mean(x, axis=(0, 1, 2)), jnp.mean(x * x, axis=(0, 1, 2))
    return (x - mean) * lax.rsqrt(square - mean * mean + 1e-5) * scale + bias


def block(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    """A layer norm of a sum with what went in, and a GELU."""
    return x + jax.nn.gelu(layer_norm(x, scale, bias))


def gradient(norm: Callable[..., jax.Array]) -> Callable[..., Any]:
    """The function that pulls a gradient of the result back to all operands."""

    def pulled(out: jax.Array, *operands: jax.Array) -> Any:
        return jax.vjp(norm, *operands)[1](out)

    return pulled


ROWS, WIDE, IMAGE = f32(1024, 768), of("bfloat16", 512, 2048), f32(16, 196, 256)

CASES = (
    Case("gradient_layer_norm", gradient(layer_norm), (ROWS, ROWS, f32(768), f32(768))),
    Case("gradient_rms_norm", gradient(rms_norm), (WIDE, WIDE, of("bfloat16", 2048))),
    Case("gradient_group_norm", gradient(group_norm), (IMAGE, IMAGE, f32(256), f32(256))),
    Case("gradient_batch_norm", gradient(batch_norm), (f32(16, 28, 28, 64),) * 2 + (f32(64), f32(64))),
    Case("gradient_block", gradient(block), (ROWS, ROWS, f32(768), f32(768))),
)
