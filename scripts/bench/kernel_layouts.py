"""Patterns of `kernel_limits` that move images, heads and small vectors between layouts, and norms, statistics and
complex numbers beside them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from scripts.bench.kernel_programs import BF16, F32, U8, Array, Function, Program, spec, traced, transposed

I32, S8, C64 = jnp.int32, jnp.int8, jnp.complex64


def _pattern(name: str, function: Function, *arguments: Any, least: float | None = None, reason: str = "") -> Program:
    return Program(name, traced(function, *arguments), least=least, reason=reason)


def _normalised(x: Array) -> Array:
    return (jnp.transpose(x, (0, 3, 1, 2)).astype(F32) / 255 - 0.5) * 2


def _pixel_shuffle(x: Array) -> Array:
    n, c, h, w = x.shape
    return x.reshape(n, c // 4, 2, 2, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c // 4, 2 * h, 2 * w)


def _space_to_depth(x: Array) -> Array:
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 1, 3, 5, 2, 4).reshape(n, c * 4, h // 2, w // 2)


def _patches(x: Array) -> Array:
    n, h, w, c = x.shape
    return x.reshape(n, h // 16, 16, w // 16, 16, c).transpose(0, 1, 3, 2, 4, 5).reshape(n, h * w // 256, 256 * c)


def _columns(x: Array) -> Array:
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return jnp.concatenate([padded[:, i : i + x.shape[1], j : j + x.shape[2]] for i in range(3) for j in range(3)], -1)


def _keys(x: Array) -> Array:
    batch, length, _ = x.shape
    return x.reshape(batch, length, 12, 64).transpose(0, 2, 3, 1).reshape(batch * 12, 64, length)


def _heads(x: Array) -> Array:
    return x.reshape(*x.shape[:2], 12, 64).transpose(0, 2, 1, 3)


def _quantised(x: Array, axis: int) -> tuple[Array, Array]:
    scale = jnp.abs(x.astype(F32)).max(axis, keepdims=True) / 127
    return jnp.round(x.astype(F32) / scale).astype(S8), scale


def _packed(x: Array) -> Array:
    bits = x.astype(U8) & 15
    return bits[:, ::2] | (bits[:, 1::2] << 4)


def _batch_norm(x: Array, mean: Array, variance: Array, scale: Array, offset: Array) -> Array:
    mean, variance, scale, offset = (v[:, None, None] for v in (mean, variance, scale, offset))
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + offset


def _group_norm(x: Array, scale: Array, offset: Array) -> Array:
    groups = x.reshape(x.shape[0], 32, -1)
    mean = groups.mean(-1, keepdims=True)
    variance = jnp.square(groups - mean).mean(-1, keepdims=True)
    made = ((groups - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape)
    return made * scale[:, None, None] + offset[:, None, None]


def _rms_norm(x: Array, scale: Array) -> Array:
    wide = x.astype(F32)
    return (wide * lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-6)).astype(x.dtype) * scale


def _rms_norm_gradient(x: Array, scale: Array, g: Array) -> Array:
    return jax.vjp(_rms_norm, x, scale)[1](g)


def _unstacked(x: Array) -> tuple[Array, ...]:
    return tuple(x[..., n] * 2 for n in range(3))


def layouts() -> list[Program]:
    """The patterns."""
    images, table = spec(U8, 128, 224, 224, 3), "16384x4096"
    of_channels = [spec(F32, 256)] * 4
    return [
        Program("transpose bf16 64x256x256x3 by 0312", transposed(BF16, "64,256,256,3", (0, 3, 1, 2))),
        Program("transpose u8 128x224x224x4 by 0312", transposed(U8, "128,224,224,4", (0, 3, 1, 2))),
        Program("transpose f32 64x4x256x256 by 0231", transposed(F32, "64,4,256,256", (0, 2, 3, 1))),
        Program("transpose f32 64x299x299x3 by 0312", transposed(F32, "64,299,299,3", (0, 3, 1, 2))),
        Program("transpose f32 2097152x10 by 10", transposed(F32, "2097152,10", (1, 0))),
        Program("transpose f32 2097152x16 by 10", transposed(F32, "2097152,16", (1, 0))),
        Program("transpose bf16 4194304x6 by 10", transposed(BF16, "4194304,6", (1, 0))),
        Program("transpose f32 1000000x3x3 by 210", transposed(F32, "1000000,3,3", (2, 1, 0))),
        Program("transpose f32 1024x4096x3 by 102", transposed(F32, "1024,4096,3", (1, 0, 2))),
        _pattern("images u8 to f32, normalised", _normalised, images),
        _pattern("pixel shuffle f32", _pixel_shuffle, spec(F32, 16, 64, 256, 256)),
        _pattern("space to depth bf16 NCHW", _space_to_depth, spec(BF16, 16, 64, 256, 256)),
        _pattern("patches f32 NHWC", _patches, spec(F32, 64, 224, 224, 3)),
        _pattern("columns of 3x3 f32 NHWC", _columns, spec(F32, 32, 56, 56, 64), least=10.0 * 32 * 56 * 56 * 64 * 4),
        _pattern("keys turned bf16", _keys, spec(BF16, 32, 1024, 768)),
        _pattern("keys turned f32", _keys, spec(F32, 32, 1024, 768)),
        _pattern("heads bf16", _heads, spec(BF16, 64, 1024, 768)),
        _pattern("flat table turned f32", lambda x: x.reshape(4096, 4096).T.reshape(-1) * 2, spec(F32, 1 << 24)),
        _pattern("unstack of 3 f32", _unstacked, spec(F32, 1 << 22, 3)),
        _pattern(f"s8 by rows of bf16 {table}", lambda x: _quantised(x, -1), spec(BF16, 16384, 4096)),
        _pattern(f"s8 by columns of bf16 {table}", lambda x: _quantised(x, 0), spec(BF16, 16384, 4096),
            reason="columns of 16,384 are read twice: no multiprocessor holds one sector of each row"),
        _pattern("packed nibbles s8 16384x8192", _packed, spec(S8, 16384, 8192)),
        _pattern("batch norm inference f32 64x256x56x56", _batch_norm, spec(F32, 64, 256, 56, 56), *of_channels),
        _pattern("group norm f32 64x256x56x56", _group_norm, spec(F32, 64, 256, 56, 56), *of_channels[:2]),
        _pattern("rms norm gradient bf16 8192x4096", _rms_norm_gradient, spec(BF16, 8192, 4096), spec(BF16, 4096),
            spec(BF16, 8192, 4096)),
        _pattern("rms norm gradient f32 8192x4096", _rms_norm_gradient, spec(F32, 8192, 4096), spec(F32, 4096),
            spec(F32, 8192, 4096)),
        _pattern("mean, variance of channels f32 64x256x56x56", lambda x: (x.mean((0, 2, 3)), x.var((0, 2, 3))),
            spec(F32, 64, 256, 56, 56)),
        _pattern("softmax over 1 f32 64x1001x333", lambda x: jax.nn.softmax(x, 1), spec(F32, 64, 1001, 333)),
        _pattern("softmax over 1 bf16 64x1001x333", lambda x: jax.nn.softmax(x, 1), spec(BF16, 64, 1001, 333)),
        _pattern("log-sum-exp over 0 f32 8192x4096", lambda x: jax.scipy.special.logsumexp(x, 0),
            spec(F32, 8192, 4096)),
        _pattern("cummax f32 8192x4096", lambda x: lax.cummax(x, 1), spec(F32, 8192, 4096)),
        _pattern("cross product f32 8388608x3", jnp.cross, *[spec(F32, 1 << 23, 3)] * 2),
        _pattern("row sum c64 8192x4096", lambda x: x.sum(-1), spec(C64, 8192, 4096)),
        _pattern("full sum c64 33.5M", lambda x: x.sum(), spec(C64, 8192, 4096)),
        _pattern("take columns f32 16384x4096", lambda x, i: x[:, i], spec(F32, 16384, 4096), spec(I32, 4096),
            reason="elements of a row in any order come in sectors of 32 bytes from L2"),
    ]  # fmt: skip
