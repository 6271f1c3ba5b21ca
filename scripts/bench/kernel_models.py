"""Patterns of `kernel_limits` from training and serving: optimizers, losses, gates, masks, weights in blocks, random
numbers, images, folds of pairs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from scripts.bench.kernel_programs import BF16, F16, F32, S8, U8, Array, Function, Program, spec, traced

I32, C64 = jnp.int32, jnp.complex64
F8, S4 = jnp.float8_e4m3fn, jnp.int4


def _pattern(name: str, function: Function, *arguments: Any, least: float | None = None, reason: str = "") -> Program:
    return Program(name, traced(function, *arguments), least=least, reason=reason)


def _adamw(w: Array, g: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
    wide = g.astype(F32)
    m = 0.9 * m + 0.1 * wide
    v = 0.999 * v + 0.001 * wide * wide
    step = m / (jnp.sqrt(v) + 1e-8) + 0.01 * w.astype(F32)
    return (w.astype(F32) - 1e-3 * step).astype(w.dtype), m, v


def _lion(w: Array, g: Array, m: Array) -> tuple[Array, Array]:
    step = jnp.sign(0.9 * m + 0.1 * g) + 0.01 * w
    return w - 1e-4 * step, 0.99 * m + 0.01 * g


def _clipped(w: Array, g: Array) -> Array:
    norm = jnp.sqrt(jnp.square(g.astype(F32)).sum())
    return w - (g.astype(F32) * (0.01 * jnp.minimum(1, 1 / norm))).astype(w.dtype)


def _capped(x: Array) -> Array:
    wide = 50.0 * jnp.tanh(x.astype(F32) / 50.0)
    return jax.nn.softmax(wide, -1).astype(x.dtype)


def _sloped(x: Array) -> Array:
    heads, length = x.shape[1], x.shape[3]
    slope = 2.0 ** (-8.0 * (jnp.arange(heads) + 1) / heads)
    away = jnp.arange(length)[None, :] - jnp.arange(length)[:, None]
    wide = x.astype(F32) + slope[:, None, None] * away
    return jax.nn.softmax(jnp.where(away > 0, -1e30, wide), -1).astype(x.dtype)


def _decoded(q: Array, k: Array, v: Array, lengths: Array) -> Array:
    """A step of decoding: queries of 32 heads, four of which share keys and values, and a length for each sequence."""
    groups = q.reshape(q.shape[0], k.shape[2], -1, q.shape[2])
    scores = jnp.einsum("bgrd,bsgd->bgrs", groups, k, preferred_element_type=F32) * q.shape[2] ** -0.5
    there = jnp.arange(k.shape[1])[None] < lengths[:, None]
    weights = jax.nn.softmax(jnp.where(there[:, None, None], scores, -1e9), -1)
    return jnp.einsum("bgrs,bsgd->bgrd", weights.astype(v.dtype), v).reshape(q.shape)


def _attended(q: Array, k: Array, v: Array) -> Array:
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


def _gated(x: Array) -> tuple[Array, Array]:
    most, places = lax.top_k(jax.nn.softmax(x, -1), 2)
    return most / most.sum(-1, keepdims=True), places


def _of_blocks(q: Array, scale: Array) -> Array:
    blocks = q.astype(BF16).reshape(q.shape[0], -1, 32)
    return (blocks * scale[..., None]).reshape(q.shape)


def _in_blocks(x: Array) -> tuple[Array, Array]:
    blocks = x.astype(F32).reshape(*x.shape[:-1], -1, 128)
    most = jnp.abs(blocks).max(-1, keepdims=True) / 448
    return (blocks / most).astype(F8).reshape(x.shape), most[..., 0]


def _dropped(x: Array, key: Array) -> Array:
    return jnp.where(jax.random.bernoulli(key, 0.9, x.shape), x / 0.9, 0).astype(x.dtype)


def _smoothed(x: Array, labels: Array) -> Array:
    found = jax.nn.log_softmax(x, -1)
    hot = jax.nn.one_hot(labels, x.shape[-1]) * 0.9 + 0.1 / x.shape[-1]
    return -(hot * found).sum(-1).mean()


def _focal(x: Array, t: Array) -> Array:
    chance = jax.nn.sigmoid(x)
    entropy = jnp.maximum(x, 0) - x * t + jnp.log1p(jnp.exp(-jnp.abs(x)))
    right = chance * t + (1 - chance) * (1 - t)
    return ((1 - right) ** 2 * entropy).mean()


def _gates_gradient(gate: Array, value: Array, g: Array) -> tuple[Array, Array]:
    return jax.vjp(lambda a, b: jax.nn.silu(a) * b, gate, value)[1](g)


def _entropy_gradient(x: Array, labels: Array) -> Array:
    def loss(x: Array) -> Array:
        found = jax.nn.log_softmax(x.astype(F32), -1)
        return -jnp.take_along_axis(found, labels[:, None], 1).mean()

    return jax.grad(loss)(x)


def _softmax_gradient(y: Array, g: Array) -> Array:
    wide = g.astype(F32) * y.astype(F32)
    return (wide - y.astype(F32) * wide.sum(-1, keepdims=True)).astype(y.dtype)


def _rotated(x: Array, cosine: Array, sine: Array) -> Array:
    first, second = jnp.split(x.astype(F32), 2, -1)
    return jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], -1).astype(x.dtype)


def _activated(x: Array, bias: Array, side: Array) -> Array:
    return jax.nn.relu(x + bias[:, None, None] + side)


def _images(x: Array) -> Array:
    mean, deviation = jnp.asarray([0.485, 0.456, 0.406]), jnp.asarray([0.229, 0.224, 0.225])
    return (((x / 255.0) - mean) / deviation).astype(BF16)


def _channels_norm(x: Array, scale: Array, offset: Array) -> Array:
    wide = x.astype(F32)
    mean = wide.mean((0, 1, 2))
    variance = jnp.square(wide).mean((0, 1, 2)) - jnp.square(mean)
    return ((wide - mean) * lax.rsqrt(variance + 1e-5) * scale + offset).astype(x.dtype)


def _pooled(x: Array, mask: Array) -> Array:
    """The mean of the embeddings of each sentence's words."""
    return (x * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)


def _nearest(x: Array, codes: Array) -> Array:
    """The nearest code of each vector."""
    return jnp.argmin(jnp.square(x[:, None, :] - codes[None]).sum(-1), -1)


def models() -> list[Program]:
    """The patterns."""
    of_67m = (8192, 8192)
    halves = spec(F32, 2048, 1, 64)
    return [
        _pattern("AdamW bf16, moments f32, 67M", _adamw, *[spec(BF16, *of_67m)] * 2, *[spec(F32, *of_67m)] * 2),
        _pattern("Lion bf16 67M", _lion, *[spec(BF16, *of_67m)] * 3),
        _pattern("SGD with clipped norm bf16 67M", _clipped, *[spec(BF16, *of_67m)] * 2, least=4.0 * 2 * (1 << 26)),
        _pattern("rotary embedding of f32 bf16 32x2048x16x128", _rotated, spec(BF16, 32, 2048, 16, 128), *[halves] * 2),
        _pattern("capped softmax bf16 64x1024x1024", _capped, spec(BF16, 64, 1024, 1024)),
        _pattern("ALiBi, causal softmax bf16 4x16x1024x1000", _sloped, spec(BF16, 4, 16, 1000, 1000)),
        _pattern("decoding, 32 heads in 8 groups bf16 16x4096x128", _decoded, spec(BF16, 16, 32, 128),
            *[spec(BF16, 16, 4096, 8, 128)] * 2, spec(I32, 16)),
        _pattern("causal attention bf16 4x2048x16x64", _attended, *[spec(BF16, 4, 2048, 16, 64)] * 3,
            reason="products of all queries and keys, and a weight for each: instructions"),
        _pattern("two best of 64 gates f32 262144x64", _gated, spec(F32, 1 << 18, 64)),
        _pattern("s8 by blocks of 32 to bf16 8192x8192", _of_blocks, spec(S8, *of_67m), spec(BF16, 8192, 256)),
        _pattern("s4 by blocks of 32 to bf16 8192x8192", _of_blocks, spec(S4, *of_67m), spec(BF16, 8192, 256),
            least=2.5 * (1 << 26) + 2.0 * 8192 * 256),
        _pattern("f8 by blocks of 32 to bf16 8192x8192", _of_blocks, spec(F8, *of_67m), spec(BF16, 8192, 256)),
        _pattern("bf16 to f8 by blocks of 128 8192x8192", _in_blocks, spec(BF16, *of_67m)),
        _pattern("dropout with threefry bf16 67M", _dropped, spec(BF16, *of_67m), spec(jnp.uint32, 2),
            reason="twenty rounds of threefry for two elements: instructions"),
        _pattern("smoothed cross entropy f32 65536x1000", _smoothed, spec(F32, 65536, 1000), spec(I32, 65536)),
        _pattern("focal loss f32 33.5M", _focal, *[spec(F32, 8192, 4096)] * 2),
        _pattern("swiglu gradient bf16 8192x8192", _gates_gradient, *[spec(BF16, *of_67m)] * 3),
        _pattern("cross entropy gradient bf16 8192x32000", _entropy_gradient, spec(BF16, 8192, 32000),
            spec(I32, 8192)),
        _pattern("softmax gradient bf16 64x1024x1024", _softmax_gradient, *[spec(BF16, 64, 1024, 1024)] * 2),
        _pattern("bias, side, relu bf16 NCHW 64x255x55x55", _activated, spec(BF16, 64, 255, 55, 55), spec(BF16, 255),
            spec(BF16, 64, 255, 55, 55)),
        _pattern("bias, relu bf16 NHWC 64x112x112x65", lambda x, b: jax.nn.relu(x + b),
            spec(BF16, 64, 112, 112, 65), spec(BF16, 65)),
        _pattern("images u8 to bf16, normalised by channel", _images, spec(U8, 512, 224, 224, 3)),
        _pattern("transpose u8 images 512x299x299x3 by 0312", lambda x: x.transpose(0, 3, 1, 2),
            spec(U8, 512, 299, 299, 3)),
        _pattern("transpose u8 4095x16385 by 10, scaled to f32", lambda x: x.T.astype(F32) * 0.1,
            spec(U8, 4095, 16385)),
        _pattern("transpose bf16 8191x8193 by 10 and relu", lambda x: jax.nn.relu(x.T), spec(BF16, 8191, 8193)),
        _pattern("every third column bf16 16384x6144", lambda x: x[:, 1::3] * 2, spec(BF16, 16384, 6144),
            least=16384.0 * (6144 + 2048) * 2),
        _pattern("interleave of 4 f16 16.7M", lambda *x: jnp.stack(x, -1).reshape(-1), *[spec(F16, 1 << 24)] * 4),
        _pattern("magnitude and phase c64 16.7M", lambda x: (jnp.abs(x), jnp.angle(x)), spec(C64, 1 << 24)),
        _pattern("column sum bf16 131072x333", lambda x: x.sum(0), spec(BF16, 131072, 333)),
        _pattern("column sum f16 524288x77 in f32", lambda x: x.sum(0, dtype=F32), spec(F16, 1 << 19, 77)),
        _pattern("mean, variance of columns f32 65536x1001", lambda x: (x.mean(0), x.var(0)), spec(F32, 65536, 1001)),
        _pattern("batch norm training bf16 64x56x56x255", _channels_norm, spec(BF16, 64, 56, 56, 255), spec(F32, 255),
            spec(F32, 255), least=3.0 * 64 * 56 * 56 * 255 * 2),
        _pattern("log-sum-exp over 0 bf16 65536x1000", lambda x: jax.scipy.special.logsumexp(x.astype(F32), 0),
            spec(BF16, 65536, 1000)),
        _pattern("log-sum-exp over 1 f32 64x4096x128", lambda x: jax.scipy.special.logsumexp(x, 1),
            spec(F32, 64, 4096, 128)),
        _pattern("softmax over 1 f16 256x77x999", lambda x: jax.nn.softmax(x, 1), spec(F16, 256, 77, 999)),
        _pattern("cross entropy f16 8192x30001", lambda x, t: _smoothed(x.astype(F32), t), spec(F16, 8192, 30001),
            spec(I32, 8192)),
        _pattern("nearest of 256 codes f32 262144x16", _nearest, spec(F32, 1 << 18, 16), spec(F32, 256, 16),
            least=4.0 * 2 * 256 * (1 << 18), reason="16 squares for each distance: instructions"),
        _pattern("distances of points f32 4096x4096 of 8",
            lambda x, y: jnp.abs(x[:, None] - y[None]).sum(-1), *[spec(F32, 4096, 8)] * 2,
            reason="a fold of eight beside each store: instructions take as long as memory"),
        _pattern("mean of words bf16 512x512x768", _pooled, spec(BF16, 512, 512, 768), spec(BF16, 512, 512)),
        _pattern("cumulative product of odd rows bf16 16384x4095", lambda x: jnp.cumprod(x, -1),
            spec(BF16, 16384, 4095)),
        _pattern("segment maximum f32 1048576x32 to 262144", lambda x, i: jax.ops.segment_max(x, i, 1 << 18),
            spec(F32, 1 << 20, 32), spec(I32, 1 << 20),
            reason="each element looks at its maximum in L2 before it changes it"),
    ]  # fmt: skip
