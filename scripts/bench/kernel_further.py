"""Further patterns of `kernel_limits`, which no review saw: odd sizes, narrow types, middle axes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from scripts.bench.kernel_programs import BF16, F16, F32, NAMES, U8, Array, Function, Program, spec, traced, transposed

I32 = jnp.int32
F8 = jnp.float8_e4m3fn


def _pattern(name: str, function: Function, *arguments: Any, least: float | None = None, reason: str = "") -> Program:
    return Program(name, traced(function, *arguments), least=least, reason=reason)


def _group_norm(x: Array, scale: Array, offset: Array) -> Array:
    groups = x.reshape(*x.shape[:-1], 32, -1)
    mean = groups.mean((1, 2, 4), keepdims=True)
    variance = jnp.square(groups - mean).mean((1, 2, 4), keepdims=True)
    return ((groups - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape) * scale + offset


def _layer_norm(x: Array, scale: Array, offset: Array) -> Array:
    wide = x.astype(F32)
    mean = wide.mean(-1, keepdims=True)
    variance = jnp.square(wide - mean).mean(-1, keepdims=True)
    return ((wide - mean) * lax.rsqrt(variance + 1e-5) * scale + offset).astype(x.dtype)


def _channels_norm(x: Array, scale: Array, offset: Array) -> Array:
    mean = x.mean((0, 2, 3), keepdims=True)
    variance = jnp.square(x - mean).mean((0, 2, 3), keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale[:, None, None] + offset[:, None, None]


def _channels_norm_gradient(x: Array, scale: Array, offset: Array, g: Array) -> Array:
    return jax.vjp(_channels_norm, x, scale, offset)[1](g)


def _rms_added(x: Array, residual: Array, scale: Array) -> tuple[Array, Array]:
    added = x + residual
    wide = added.astype(F32)
    made = wide * lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-6)
    return made.astype(x.dtype) * scale, added


def _chosen(logits: Array, labels: Array) -> Array:
    found = jax.nn.log_softmax(logits.astype(F32), -1)
    return -jnp.take_along_axis(found, labels[:, None], 1)[:, 0]


def _interleaved(x: Array, cosine: Array, sine: Array) -> Array:
    even, odd = x[..., ::2], x[..., 1::2]
    return jnp.stack([even * cosine - odd * sine, odd * cosine + even * sine], -1).reshape(x.shape)


def _gates(x: Array) -> Array:
    gate, value = jnp.split(x, 2, -1)
    return jax.nn.silu(gate) * value


def _nibbles(packed: Array, scale: Array) -> Array:
    low, high = packed & 15, packed >> 4
    values = jnp.stack([low, high], -1).reshape(packed.shape[0], -1).astype(BF16) - 8
    return (values.reshape(packed.shape[0], -1, 128) * scale[:, :, None]).reshape(values.shape)


def _quantised(x: Array) -> tuple[Array, Array]:
    most = jnp.abs(x).max(-1, keepdims=True).astype(F32)
    return (x.astype(F32) * (448.0 / most)).astype(F8), most


def _dropped(x: Array, bits: Array) -> Array:
    return jnp.where(bits < 230, x * (1 / 0.9), 0).astype(x.dtype)


def _window_most(x: Array) -> Array:
    return lax.reduce_window(x, jnp.asarray(-jnp.inf, x.dtype), lax.max, (1, 7), (1, 1), "SAME")


def _segments(x: Array, places: Array) -> Array:
    return jax.ops.segment_sum(x, places, 1024)


def _distances(x: Array, y: Array) -> Array:
    return jnp.sqrt(jnp.square(x[:, None, :] - y[None, :, :]).sum(-1))


def _histogram(x: Array) -> Array:
    return jnp.zeros(256, I32).at[x.astype(I32)].add(1)


def _one_hot(places: Array, table: Array) -> Array:
    return jax.nn.one_hot(places, table.shape[0], dtype=F32) @ table


def _masked(x: Array) -> Array:
    return jnp.tril(x)


def _widest(x: Array) -> tuple[Array, Array]:
    return x.max(-1), jnp.argmax(x, -1)


def _affine(a: Array, b: Array) -> Array:
    """x -> a x + b, one after another, of 0."""
    return lax.associative_scan(lambda x, y: (y[0] * x[0], y[0] * x[1] + y[1]), (a, b), axis=1)[1]


def _rows() -> list[Program]:
    def total(x: Array) -> Array:
        return x.sum(-1, dtype=F32)

    def norm(x: Array) -> Array:
        return jax.nn.softmax(x, -1)

    return [
        *(_pattern(f"row sum f32 {r}x{c}", total, spec(F32, r, c))
          for r, c in ((1048576, 33), (1000003, 50), (524288, 100), (65536, 1000), (16384, 4097))),
        _pattern("row sum bf16 1048576x48", total, spec(BF16, 1 << 20, 48)),
        _pattern("row sum bf16 524287x63", total, spec(BF16, 524287, 63)),
        _pattern("row sum f32 3355443x10", total, spec(F32, 3355443, 10)),
        _pattern("row sum f32 1677721x20", total, spec(F32, 1677721, 20)),
        _pattern("softmax f32 3355443x10", norm, spec(F32, 3355443, 10)),
        _pattern("softmax bf16 3355443x21", norm, spec(BF16, 3355443, 21)),
        _pattern("softmax f32 1048576x33", norm, spec(F32, 1 << 20, 33)),
        _pattern("softmax bf16 524288x100", norm, spec(BF16, 524288, 100)),
        _pattern("softmax f32 65536x1000", norm, spec(F32, 65536, 1000)),
        _pattern("softmax bf16 16384x4097", norm, spec(BF16, 16384, 4097)),
        _pattern("layer norm f16 65536x1000", _layer_norm, spec(F16, 65536, 1000), spec(F32, 1000), spec(F32, 1000)),
        _pattern("rms norm of a sum, both out, bf16 16384x4096", _rms_added, *[spec(BF16, 16384, 4096)] * 2,
            spec(BF16, 4096)),
        _pattern("cross entropy bf16 4096x50257", _chosen, spec(BF16, 4096, 50257), spec(I32, 4096)),
        _pattern("max and argmax f32 1048576x33", _widest, spec(F32, 1 << 20, 33)),
        _pattern("amax and f8 bf16 16384x4096", _quantised, spec(BF16, 16384, 4096)),
        _pattern("any u8 65536x3000", lambda x: (x > 3).any(-1), spec(U8, 65536, 3000)),
    ]  # fmt: skip


def _columns() -> list[Program]:
    activations = 64 * 56 * 56 * 256 * 4
    bf16 = spec(BF16, 65536, 1001)
    return [
        *(_pattern(f"column sum f32 {r}x{c}", lambda x: x.sum(0), spec(F32, r, c))
          for r, c in ((11184811, 3), (4793490, 7), (335544, 100), (65536, 513))),
        _pattern("bias gradient bf16 65536x1001", lambda x: x.sum(0), bf16),
        _pattern("sum over 0 and 2 f32 128x512x512", lambda x: x.sum((0, 2)), spec(F32, 128, 512, 512)),
        _pattern("sum over 1 f32 256x256x512", lambda x: x.sum(1), spec(F32, 256, 256, 512)),
        _pattern("sum over 1 f32 4096x200x50", lambda x: x.sum(1), spec(F32, 4096, 200, 50)),
        _pattern("sum over 0 and 2 f32 64x56x56x256", lambda x: x.sum((0, 2)), spec(F32, 64, 56, 56, 256)),
        _pattern("softmax over 1 f32 256x256x512", lambda x: jax.nn.softmax(x, 1), spec(F32, 256, 256, 512)),
        _pattern("softmax over 1 f32 4096x10x900", lambda x: jax.nn.softmax(x, 1), spec(F32, 4096, 10, 900)),
        _pattern("argmax over 0 f32 8192x4096", lambda x: jnp.argmax(x, 0), spec(F32, 8192, 4096)),
        _pattern("argmax over 1 f32 64x1000x512", lambda x: jnp.argmax(x, 1), spec(F32, 64, 1000, 512)),
        _pattern("cumsum reversed bf16 33.6M", lambda x: lax.cumsum(x, reverse=True), spec(BF16, 1 << 25)),
        _pattern("cumsum of products f32 16x1048577", lambda x, y: jnp.cumsum(x * y, 1) * 2,
            *[spec(F32, 16, (1 << 20) + 1)] * 2),
        _pattern("cumulative log-sum-exp f32 16.7M", lax.cumlogsumexp, spec(F32, 1 << 24)),
        _pattern("associative scan of affine maps f32 1x4194304", _affine, *[spec(F32, 1, 1 << 22)] * 2),
        _pattern("cumsum over 1 f32 64x1024x512", lambda x: jnp.cumsum(x, 1), spec(F32, 64, 1024, 512)),
        _pattern("cumsum over 0 f32 8192x4096", lambda x: jnp.cumsum(x, 0), spec(F32, 8192, 4096)),
        _pattern("group norm f32 64x56x56x256", _group_norm, spec(F32, 64, 56, 56, 256), spec(F32, 256),
            spec(F32, 256), least=3.0 * activations),
        _pattern("batch norm gradient f32 64x256x56x56", _channels_norm_gradient, spec(F32, 64, 256, 56, 56),
            spec(F32, 256), spec(F32, 256), spec(F32, 64, 256, 56, 56), least=5.0 * activations),
        _pattern("segment sum f32 1048576x64 to 1024", _segments, spec(F32, 1 << 20, 64), spec(I32, 1 << 20),
            reason="1,024 sums of rows in the order of their arrival: atomic operations meet"),
        _pattern("histogram u8 134M", _histogram, spec(U8, 1 << 27), reason="an atomic operation for each byte"),
    ]  # fmt: skip


def _moved() -> list[Program]:
    def turned(permutation: tuple[int, ...], dtype: Any, *sizes: int) -> Program:
        given = ",".join(map(str, sizes))
        name = f"transpose {NAMES[dtype]} {'x'.join(map(str, sizes))} by {''.join(map(str, permutation))}"
        return Program(name, transposed(dtype, given, permutation))

    return [
        turned((1, 0), F16, 8191, 8193),
        turned((1, 0), U8, 16384, 16384),
        turned((1, 0), U8, 10001, 9999),
        turned((1, 0), F32, 4194304, 3),
        turned((1, 0), F32, 3, 4194304),
        turned((1, 0), F32, 524288, 33),
        turned((0, 2, 1), F32, 4096, 77, 100),
        turned((0, 2, 1), BF16, 64, 1000, 1003),
        turned((2, 1, 0), F32, 300, 301, 302),
        turned((0, 3, 1, 2), F32, 32, 112, 112, 64),
        turned((0, 3, 1, 2), F32, 64, 224, 224, 3),
        turned((0, 2, 3, 1), U8, 64, 3, 512, 512),
        turned((0, 2, 1, 3), BF16, 64, 1024, 12, 64),
        turned((0, 2, 1, 3), F32, 4096, 7, 9, 96),
        _pattern("bias, relu f16 8191x8193", lambda x, b: jax.nn.relu(x + b), spec(F16, 8191, 8193), spec(F16, 8193)),
        _pattern("scaled u8 to f16 10001x9999", lambda x: x.astype(F16) * 0.5, spec(U8, 10001, 9999)),
        _pattern("NHWC to NCHW u8 to f32, scaled", lambda x: (jnp.transpose(x, (0, 3, 1, 2)).astype(F32) / 255),
            spec(U8, 128, 224, 224, 3)),
        _pattern("pad by 3 bf16 8000x8001", lambda x: jnp.pad(x, ((0, 0), (3, 3))), spec(BF16, 8000, 8001)),
        _pattern("slice f32 8192x8191", lambda x: x[1:, 3:] * 2, spec(F32, 8192, 8191), least=2.0 * 8191 * 8188 * 4),
        _pattern("reverse bf16 8192x8191", lambda x: x[:, ::-1] * 2, spec(BF16, 8192, 8191)),
        _pattern("roll by 5 f32 8192x4095", lambda x: jnp.roll(x, 5, 1) + x, spec(F32, 8192, 4095)),
        _pattern("every second column f32 16384x8192", lambda x: x[:, ::2] * 2, spec(F32, 16384, 8192)),
        _pattern("every second row bf16 16384x8192", lambda x: x[::2] * 2, spec(BF16, 16384, 8192),
            least=2.0 * 8192 * 8192 * 2),
        _pattern("gather of rows of 3 f32", lambda t, i: t[i], spec(F32, 1 << 22, 3), spec(I32, 1 << 23),
            least=2.0 * (1 << 23) * 12 + (1 << 25), reason="rows of 12 bytes come in sectors of 32"),
        _pattern("gather of rows of 64 bf16", lambda t, i: t[i], spec(BF16, 1 << 20, 64), spec(I32, 1 << 20)),
        _pattern("take along an axis f32 4096x8192", lambda t, i: jnp.take_along_axis(t, i, 1), spec(F32, 4096, 8192),
            spec(I32, 4096, 8192), reason="elements of a row in any order come in sectors of 32 bytes from L2"),
        _pattern("scatter-add of rows of 64 f32", lambda t, i, u: t.at[i].add(u), spec(F32, 1 << 20, 64),
            spec(I32, 1 << 20), spec(F32, 1 << 20, 64), least=3.0 * (1 << 28) + (1 << 22)),
        _pattern("scatter-add of rows of 100 bf16", lambda t, i, u: t.at[i].add(u), spec(BF16, 1 << 20, 100),
            spec(I32, 1 << 20), spec(BF16, 1 << 20, 100), least=3.0 * 200 * (1 << 20) + (1 << 22)),
        _pattern("one-hot f32 262144x1000, before a product", _one_hot, spec(I32, 262144), spec(F32, 1000, 256),
            least=262144.0 * 1001 * 4),
        _pattern("concatenate f32 of 3, 5, 92 columns", lambda *x: jnp.concatenate(x, -1),
            *[spec(F32, 524288, n) for n in (3, 5, 92)]),
        _pattern("stack last f32 16.7M", lambda x, y: jnp.stack([x, y], -1), *[spec(F32, 1 << 24)] * 2),
        _pattern("stack of 3 last bf16 16.7M", lambda *x: jnp.stack(x, -1), *[spec(BF16, 1 << 24)] * 3),
        _pattern("stack of 3 last of f32 8192x1001", lambda *x: jnp.stack(x, -1), *[spec(F32, 8192, 1001)] * 3),
    ]  # fmt: skip


def _computed() -> list[Program]:
    half = spec(BF16, 1024, 1, 64)
    return [
        _pattern("rotary embedding of pairs bf16", _interleaved, spec(BF16, 64, 1024, 16, 128), half, half),
        _pattern("swiglu of halves bf16 16384x8192", _gates, spec(BF16, 16384, 8192)),
        _pattern("nibbles scaled bf16 8192x4096", _nibbles, spec(U8, 8192, 4096), spec(BF16, 8192, 64)),
        _pattern("dropout bf16 by u8 67M", _dropped, spec(BF16, 1 << 26), spec(U8, 1 << 26)),
        _pattern("window max of 7 f32 8192x4096", _window_most, spec(F32, 8192, 4096)),
        _pattern("lower triangle f32 32x1024x1000", _masked, spec(F32, 32, 1024, 1000)),
        _pattern("pairwise distances f32 8192x8192 of 3", _distances, spec(F32, 8192, 3), spec(F32, 8192, 3)),
        _pattern("batched matrix by vector f32 65536x33x33", lambda a, x: jnp.einsum("bij,bj->bi", a, x),
            spec(F32, 65536, 33, 33), spec(F32, 65536, 33)),
        _pattern("complex product c64 8.4M", lambda x, y: x * y, *[spec(jnp.complex64, 1 << 23)] * 2),
        _pattern("means of 2x2 f32 64x224x224x32", lambda x: x.reshape(64, 112, 2, 112, 2, 32).mean((2, 4)),
            spec(F32, 64, 224, 224, 32)),
        _pattern("nearest 2x f32 64x112x112x32", lambda x: jnp.repeat(jnp.repeat(x, 2, 1), 2, 2),
            spec(F32, 64, 112, 112, 32)),
    ]  # fmt: skip


def further() -> list[Program]:
    """All of them."""
    return [*_rows(), *_columns(), *_moved(), *_computed()]
