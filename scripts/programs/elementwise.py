"""Chains of elementwise operations on many types: activations, bit tricks, images, complex numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from scripts.programs.case import Case, f32, of, s32, words


def activations(x: jax.Array) -> tuple[jax.Array, ...]:
    """Six activations of one array: one input read by six independent chains."""
    return (
        jax.nn.gelu(x, approximate=True),
        jax.nn.gelu(x, approximate=False),
        jax.nn.silu(x),
        jax.nn.softplus(x),
        jax.nn.elu(x),
        x * jnp.tanh(jax.nn.softplus(x)),
    )


def gated(x: jax.Array, gate: jax.Array, bias: jax.Array) -> jax.Array:
    """A gated linear unit with a bias along rows."""
    return jax.nn.silu(gate + bias) * x


def transcendental(x: jax.Array, y: jax.Array) -> tuple[jax.Array, ...]:
    """The less common functions, on arguments where all are defined."""
    return (
        jnp.log1p(x) + jnp.expm1(y),
        jnp.arctan2(x, y) * jnp.cbrt(x),
        jnp.power(x, y) - jnp.tan(y),
        jnp.logaddexp(x, y),
        lax.erf(x) / jnp.sqrt(y),
        jnp.log(x) + lax.logistic(y),
        jnp.fmod(x, y) + jnp.floor(x) - jnp.ceil(y) + jnp.round(x * 10.0) + jnp.sign(x - y),
    )


def normalize_image(pixels: jax.Array, mean: jax.Array, deviation: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Images of bytes to normalised floats, and to grey bytes."""
    scaled = pixels.astype(jnp.float32) / 255.0
    # Weights in 256ths, as image libraries have them: whole numbers, so that no pixel depends on the order of a sum.
    grey = (pixels.astype(jnp.uint32) @ jnp.array([77, 150, 29], jnp.uint32)) >> 8
    return (scaled - mean) / deviation, jnp.clip(grey, 0, 255).astype(jnp.uint8)


def hashes(x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """A hash of integers, and the number of bits and of leading zeros."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    x = x ^ (x >> 16)
    return x, lax.population_count(x), lax.clz(x)


def integers(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Division, remainder, shifts, comparison and limits of signed integers."""
    quotient, remainder = lax.div(x, y), lax.rem(x, y)
    even = (x & 1) == 0
    return jnp.where(even, quotient, -remainder), jnp.clip(x, -10, 10) << 3, jnp.abs(x) >> 1


def rotate_phase(signal: jax.Array, phase: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A complex signal turned by an angle, and its power."""
    turned = signal * lax.complex(jnp.cos(phase), jnp.sin(phase))
    return turned, jnp.square(turned.real) + jnp.square(turned.imag)


def quantize(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Rows to 8-bit integers with a scale per row, and back."""
    scale = jnp.max(jnp.abs(x), axis=-1, keepdims=True) / 127.0
    quantized = jnp.clip(jnp.round(x / scale), -127, 127).astype(jnp.int8)
    return quantized, quantized.astype(jnp.float32) * scale


def huber(prediction: jax.Array, target: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The Huber loss and its gradient."""

    def loss(prediction: jax.Array) -> jax.Array:
        error = jnp.abs(prediction - target)
        return jnp.mean(jnp.where(error < 1.0, 0.5 * jnp.square(error), error - 0.5))

    return jax.value_and_grad(loss)(prediction)


POSITIVE = f32(41, 103, low=0.1, high=3.0)
CASES = [
    Case("activations", activations, (f32(64, 1024),), ("short", "classic")),
    Case("activations_f16", activations, (of("float16", 1003),)),
    Case("activations_bf16", activations, (of("bfloat16", 16, 100),)),
    Case("activations_f64", activations, (of("float64", 333),), x64=True),
    Case("gated", gated, (f32(128, 352), f32(128, 352), f32(352)), ("frames",)),
    Case("transcendental", transcendental, (POSITIVE, POSITIVE)),
    Case(
        "normalize_image",
        normalize_image,
        (of("uint8", 4, 31, 33, 3, low=0, high=256), f32(3), f32(3, low=0.2, high=0.3)),
    ),
    Case("hashes", hashes, (words(5000),)),
    Case("integers", integers, (s32(999, low=-100, high=100), s32(999, low=1, high=9))),
    Case(
        "integers_s64",
        integers,
        (of("int64", 77, low=-(2**40), high=2**40), of("int64", 77, low=1, high=1000)),
        x64=True,
    ),
    Case("rotate_phase", rotate_phase, (of("complex64", 700), f32(700))),
    Case("quantize", quantize, (f32(50, 300),)),
    Case("huber", huber, (f32(1000), f32(1000))),
]
