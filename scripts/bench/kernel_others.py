"""Patterns of `kernel_limits` of kinds that the other lists have few of: optimisers of several passes, dimensions of
odd sizes that change places, sums over outer and inner dimensions at once, narrow types with scales of rows and of
blocks, packed integers, gates, gradients of group norms, losses of pixels, sorts, complex numbers, hashes, masks of
bits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from scripts.bench.kernel_programs import BF16, F32, S8, U8, Array, Function, Program, spec, traced

I32, U32, F8, C64 = jnp.int32, jnp.uint32, jnp.float8_e4m3fn, jnp.complex64


def _pattern(name: str, function: Function, *arguments: Any, least: float | None = None, reason: str = "") -> Program:
    return Program(name, traced(function, *arguments), least=least, reason=reason)


def _adam(*arrays: Array) -> list[Array]:
    """AdamW in f32, with copies of the parameters in bf16."""
    count, made = len(arrays) // 4, []
    for k in range(count):
        p, m, v, g = (arrays[k + n * count] for n in range(4))
        wide = g.astype(F32)
        m, v = 0.9 * m + 0.1 * wide, 0.999 * v + 0.001 * wide * wide
        p = p - 1e-3 * (m / (jnp.sqrt(v) + 1e-8) + 0.01 * p)
        made += [p, m, v, p.astype(BF16)]
    return made


def _lamb(p: Array, m: Array, v: Array, g: Array) -> tuple[Array, ...]:
    """A step as long as the parameters are large."""
    wide = g.astype(F32)
    m, v = 0.9 * m + 0.1 * wide, 0.99 * v + 0.01 * wide * wide
    step = m / (jnp.sqrt(v) + 1e-6) + 0.01 * p
    p = p - 0.01 * jnp.sqrt((p * p).sum()) / jnp.sqrt((step * step).sum()) * step
    return p, m, v, p.astype(BF16)


def _adafactor(g: Array, rows: Array, columns: Array, p: Array) -> tuple[Array, ...]:
    squares = g * g + 1e-30
    rows, columns = 0.9 * rows + 0.1 * squares.mean(1), 0.9 * columns + 0.1 * squares.mean(0)
    step = g * lax.rsqrt(rows / rows.mean())[:, None] * lax.rsqrt(columns)[None]
    return p - 0.01 * step, rows, columns


def _by_rows(x: Array) -> tuple[Array, Array]:
    scale = 448 / jnp.maximum(jnp.abs(x.astype(F32)).max(-1, keepdims=True), 1e-12)
    return (x.astype(F32) * scale).astype(F8), 1 / scale[:, 0]


def _by_blocks(x: Array) -> tuple[Array, Array]:
    blocks = x.astype(F32).reshape(x.shape[0] // 128, 128, -1, 128)
    scale = 448 / jnp.abs(blocks).max((1, 3), keepdims=True)
    return (blocks * scale).astype(F8).reshape(x.shape), (1 / scale)[:, 0, :, 0]


def _gated_by_rows(a: Array, b: Array) -> tuple[Array, Array]:
    return _by_rows((jax.nn.silu(a.astype(F32)) * b.astype(F32)).astype(BF16))


def _unpacked(x: Array, scale: Array) -> Array:
    """Two integers of four bits in each byte, with a scale for each 128."""
    low, high = (x << 4).astype(S8) >> 4, x >> 4
    wide = jnp.stack([low, high], -1).reshape(x.shape[0], -1, 128).astype(F32)
    return (wide * scale[..., None]).astype(BF16).reshape(x.shape[0], -1)


def _packed(x: Array) -> tuple[Array, Array]:
    blocks = x.astype(F32).reshape(x.shape[0], -1, 64)
    scale = jnp.abs(blocks).max(-1, keepdims=True) / 7
    numbers = jnp.round(blocks / scale).astype(I32).reshape(x.shape[0], -1, 2)
    return ((numbers[..., 0] & 15) | (numbers[..., 1] << 4)).astype(S8), scale[..., 0]


def _masked_rows(table: Array, places: Array) -> Array:
    return jnp.where((places >= 0)[:, None], table[jnp.maximum(places, 0)], 0)


def _gates(x: Array) -> tuple[Array, Array]:
    best, places = lax.top_k(jax.nn.softmax(x.astype(F32)), 8)
    return best / best.sum(-1, keepdims=True), places


def _group_norm(x: Array, scale: Array, offset: Array) -> Array:
    """NCHW, with 32 groups."""
    wide = x.astype(F32).reshape(x.shape[0], 32, -1)
    mean = wide.mean(-1, keepdims=True)
    variance = jnp.square(wide - mean).mean(-1, keepdims=True)
    made = ((wide - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape)
    return (made * scale[:, None, None] + offset[:, None, None]).astype(x.dtype)


def _group_norm_gradient(x: Array, scale: Array, offset: Array, g: Array) -> Array:
    return jax.vjp(_group_norm, x, scale, offset)[1](g)


def _with_residual(x: Array, residual: Array, scale: Array) -> tuple[Array, Array]:
    wide = x.astype(F32) + residual.astype(F32)
    made = wide * lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-6) * scale
    return made.astype(BF16), wide.astype(BF16)


def _pixels(x: Array, labels: Array) -> Array:
    """Cross entropy of each pixel's classes, NCHW."""
    found = jax.nn.log_softmax(x.astype(F32), 1)
    return -jnp.take_along_axis(found, labels[:, None], 1).mean()


def _histograms(x: Array) -> Array:
    return jax.vmap(lambda image: jnp.zeros(256, I32).at[image.reshape(-1).astype(I32)].add(1))(x)


def _masks(x: Array) -> Array:
    bits = (x > 0).reshape(x.shape[0], -1, 32).astype(U32)
    return (bits << jnp.arange(32, dtype=U32)).sum(-1, dtype=U32)


def _masked(x: Array, bits: Array) -> Array:
    kept = ((bits[..., None] >> jnp.arange(32, dtype=U32)) & 1).reshape(x.shape) != 0
    return jnp.where(kept, x * 1.25, 0).astype(x.dtype)


def _mixed_hash(x: Array) -> Array:
    """The last steps of MurmurHash3."""
    x = (x ^ (x >> 16)) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * np.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def _upsampled(x: Array) -> Array:
    return jnp.repeat(jnp.repeat(x, 2, 1), 2, 2)


def _shifted(x: Array, weights: Array) -> Array:
    """A causal filter of four taps along time."""
    length = x.shape[1]
    padded = jnp.pad(x, ((0, 0), (3, 0), (0, 0)))
    return sum(padded[:, k : k + length] * weights[k] for k in range(4))


def others() -> list[Program]:
    """The patterns."""
    odd = [spec(F32, *sizes) for sizes in [(1023, 1025), (4096,), (333, 777), (1025,)] * 8]
    narrow = [spec(BF16, *array.shape) for array in odd]
    parameters = spec(F32, 4096, 4097)
    return [
        _pattern("AdamW f32 with copies bf16, 32 odd arrays", _adam, *odd, *odd, *odd, *narrow),
        _pattern(
            "LAMB f32 of bf16 4096x4097",
            _lamb,
            *[parameters] * 3,
            spec(BF16, 4096, 4097),
            least=40.0 * 4096 * 4097,
        ),
        _pattern(
            "Adafactor f32 8192x4096",
            _adafactor,
            spec(F32, 8192, 4096),
            spec(F32, 8192),
            spec(F32, 4096),
            spec(F32, 8192, 4096),
            least=16.0 * 8192 * 4096,
        ),
        _pattern(
            "transpose f32 34x33x9x31x65 by 41302", lambda x: x.transpose(4, 1, 3, 0, 2), spec(F32, 34, 33, 9, 31, 65)
        ),
        _pattern("transpose bf16 255x513x257 by 201", lambda x: x.transpose(2, 0, 1), spec(BF16, 255, 513, 257)),
        _pattern("transpose s8 2000x1001x31 by 120", lambda x: x.transpose(1, 2, 0), spec(S8, 2000, 1001, 31)),
        _pattern("sum over 0 and 2 bf16 512x128x1023", lambda x: x.astype(F32).sum((0, 2)), spec(BF16, 512, 128, 1023)),
        _pattern("maximum over 0 and 3 f32 64x31x33x512", lambda x: x.max((0, 3)), spec(F32, 64, 31, 33, 512)),
        _pattern(
            "scaled in the middle bf16 640x77x1025",
            lambda x, s: x * s[None, :, None],
            spec(BF16, 640, 77, 1025),
            spec(BF16, 77),
        ),
        _pattern("enlarged by 2 bf16 NHWC 64x56x56x65", _upsampled, spec(BF16, 64, 56, 56, 65)),
        _pattern("filter of 4 taps bf16 8x4096x2048", _shifted, spec(BF16, 8, 4096, 2048), spec(BF16, 4, 2048)),
        _pattern("packed s4 by 128 to bf16 8192x8192", _unpacked, spec(S8, 8192, 4096), spec(F32, 8192, 64)),
        _pattern("bf16 to packed s4 by 64 8192x8192", _packed, spec(BF16, 8192, 8192)),
        _pattern("bf16 to f8 by rows 8192x5000", _by_rows, spec(BF16, 8192, 5000)),
        _pattern("bf16 to f8 by blocks of 128x128 8192x8192", _by_blocks, spec(BF16, 8192, 8192)),
        _pattern("swiglu bf16 to f8 by rows 8192x7168", _gated_by_rows, *[spec(BF16, 8192, 7168)] * 2),
        _pattern(
            "rows gathered with a mask bf16 131072x768",
            _masked_rows,
            spec(BF16, 131072, 768),
            spec(I32, 1 << 17),
        ),
        _pattern(
            "eight best of 256 gates bf16 131072x256",
            _gates,
            spec(BF16, 131072, 256),
            reason="eight searches of each row: instructions",
        ),
        _pattern("best of 16 gates f32 4194304x16", lambda x: lax.top_k(jax.nn.softmax(x), 1), spec(F32, 1 << 22, 16)),
        _pattern(
            "group norm gradient bf16 NCHW 128x256x64x64",
            _group_norm_gradient,
            spec(BF16, 128, 256, 64, 64),
            *[spec(F32, 256)] * 2,
            spec(BF16, 128, 256, 64, 64),
        ),
        _pattern(
            "rms norm with residual bf16 8192x5120", _with_residual, *[spec(BF16, 8192, 5120)] * 2, spec(F32, 5120)
        ),
        _pattern("softmax over 1 bf16 64x256x1024", lambda x: jax.nn.softmax(x, 1), spec(BF16, 64, 256, 1024)),
        _pattern(
            "cross entropy of pixels bf16 NCHW 16x21x512x512",
            _pixels,
            spec(BF16, 16, 21, 512, 512),
            spec(I32, 16, 512, 512),
        ),
        _pattern(
            "gradient of cross entropy of pixels f32 NCHW 16x21x512x512",
            lambda x, labels: jax.grad(_pixels)(x, labels),
            spec(F32, 16, 21, 512, 512),
            spec(I32, 16, 512, 512),
        ),
        _pattern(
            "log-sum-exp over 0 f32 4096x16385", lambda x: jax.scipy.special.logsumexp(x, 0), spec(F32, 4096, 16385)
        ),
        _pattern("cumulative sum over 0 f32 4096x8193", lambda x: jnp.cumsum(x, 0), spec(F32, 4096, 8193)),
        _pattern(
            "sorted rows of 32 f32 1048576x32",
            lambda x: lax.sort(x, dimension=-1),
            spec(F32, 1 << 20, 32),
            reason="fifteen steps of comparing and exchanging of each element: instructions",
        ),
        _pattern("histograms u8 256x512x512", _histograms, spec(U8, 256, 512, 512)),
        _pattern(
            "complex rows of length one c64 8192x2048",
            lambda x: x / jnp.sqrt((x.real**2 + x.imag**2).sum(-1, keepdims=True)),
            spec(C64, 8192, 2048),
        ),
        _pattern(
            "products conjugated, summed over 0 c64 8192x2048",
            lambda x, y: (x * jnp.conj(y)).sum(0),
            *[spec(C64, 8192, 2048)] * 2,
        ),
        _pattern("hashes u32 33.5M", _mixed_hash, spec(U32, 1 << 25)),
        _pattern("masks of bits u32 of bf16 8192x8192", _masks, spec(BF16, 8192, 8192)),
        _pattern("kept by masks of bits bf16 8192x8192", _masked, spec(BF16, 8192, 8192), spec(U32, 8192, 256)),
    ]
