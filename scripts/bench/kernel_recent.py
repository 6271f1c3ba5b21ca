"""Patterns of `kernel_limits` from models of 2025 and 2026: experts, weights in blocks, recurrences, losses, returns,
optimizers with matrices, images, sampling."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from scripts.bench.kernel_programs import BF16, F16, F32, S8, U8, Array, Function, Program, spec, traced

I32, S4 = jnp.int32, jnp.int4
F8, F4, SCALES = jnp.float8_e4m3fn, jnp.float4_e2m1fn, jnp.float8_e8m0fnu


def _pattern(name: str, function: Function, *arguments: Any, least: float | None = None, reason: str = "") -> Program:
    return Program(name, traced(function, *arguments), least=least, reason=reason)


def _combined(rows: Array, places: Array, weights: Array) -> Array:
    """Each token's sum of its two experts' rows, by their weights."""
    return (rows[places].astype(F32) * weights[..., None]).sum(1).astype(rows.dtype)


def _normed_heads(x: Array, scale: Array) -> Array:
    wide = x.astype(F32)
    return (wide * lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-6) * scale).astype(x.dtype)


def _partly_rotated(x: Array, cosine: Array, sine: Array) -> Array:
    """Rotary embedding of the first quarter of each head."""
    turned, rest = x[..., :32].astype(F32), x[..., 32:]
    first, second = jnp.split(turned, 2, -1)
    made = jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], -1)
    return jnp.concatenate([made.astype(x.dtype), rest], -1)


def _decayed(state: Array, decay: Array, key: Array, value: Array, beta: Array) -> Array:
    """A step of the gated delta rule: the state of each head decays, and learns one value."""
    state = state * jnp.exp(decay)[..., None, None]
    known = (state * key[..., :, None]).sum(-2)
    change = (value - known) * beta[..., None]
    return state + key[..., :, None] * change[..., None, :]


def _in_eights(q: Array, scale: Array) -> Array:
    """f8 in blocks of 128 x 128."""
    n, m = q.shape
    blocks = q.astype(F32).reshape(n // 128, 128, m // 128, 128) * scale[:, None, :, None]
    return blocks.reshape(n, m).astype(BF16)


def _of_mx(q: Array, scale: Array) -> Array:
    blocks = q.astype(F32).reshape(q.shape[0], -1, 32) * scale.astype(F32)[..., None]
    return blocks.reshape(q.shape).astype(BF16)


def _in_mx(x: Array) -> tuple[Array, Array]:
    """f8 with a power of two for each 32."""
    blocks = x.astype(F32).reshape(x.shape[0], -1, 32)
    most = jnp.abs(blocks).max(-1, keepdims=True)
    scale = jnp.exp2(jnp.floor(jnp.log2(most)) - 8)
    return (blocks / scale).astype(F8).reshape(x.shape), scale[..., 0].astype(SCALES)


def _windowed(x: Array) -> Array:
    """Softmax of scores within a sliding window."""
    length = x.shape[-1]
    away = jnp.arange(length)[:, None] - jnp.arange(length)[None, :]
    wide = jnp.where((away >= 0) & (away < 512), x.astype(F32), -1e30)
    return jax.nn.softmax(wide, -1).astype(x.dtype)


def _segment_softmax(x: Array, of: Array) -> Array:
    most = jax.ops.segment_max(x, of, 1 << 18)
    made = jnp.exp(x - most[of])
    return made / jax.ops.segment_sum(made, of, 1 << 18)[of]


def _returns(reward: Array, value: Array, alive: Array) -> Array:
    """Advantages by a scan along time."""
    delta = reward + 0.99 * alive * value[:, 1:] - value[:, :-1]

    def joined(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
        return a[0] * b[0], a[1] * b[0] + b[1]

    return lax.associative_scan(joined, (0.99 * 0.95 * alive, delta), reverse=True, axis=1)[1]


def _selective(x: Array, decay: Array) -> Array:
    """The recurrence h = a h + x along time, in lines of channels."""

    def joined(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
        return a[0] * b[0], a[1] * b[0] + b[1]

    return lax.associative_scan(joined, (jnp.exp(decay), x), axis=1)[1]


def _scaled_layer(x: Array, branch: Array, scale: Array, keep: Array) -> Array:
    """Layer scale and stochastic depth."""
    return x + branch * scale * (keep[:, None, None] / 0.9).astype(x.dtype)


def _contrast(scores: Array) -> Array:
    """InfoNCE both ways."""
    wide = scores.astype(F32)
    own = jnp.diagonal(wide)
    rows = jax.scipy.special.logsumexp(wide, 1)
    columns = jax.scipy.special.logsumexp(wide, 0)
    return ((rows - own) + (columns - own)).mean() / 2


def _averages(*arrays: Array) -> list[Array]:
    """Moving averages of many arrays."""
    half = len(arrays) // 2
    return [0.999 * a + 0.001 * w.astype(F32) for a, w in zip(arrays[:half], arrays[half:], strict=True)]


def _flipped(x: Array, flip: Array, bright: Array) -> Array:
    """Augmentation: flips and brightness."""
    turned = jnp.where(flip[:, None, None, None], x[:, :, ::-1], x)
    return (jnp.clip(turned.astype(F32) * bright[:, None, None, None], 0, 255) / 255).astype(BF16)


def _equalised(x: Array, table: Array) -> Array:
    return jnp.take_along_axis(table, x.reshape(x.shape[0], -1).astype(I32), 1).reshape(x.shape)


def _blurred(x: Array) -> Array:
    """3x3 blur, NHWC."""
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    n, m = x.shape[1:3]
    rows = padded[:, :n] + 2 * padded[:, 1 : n + 1] + padded[:, 2:]
    return (rows[:, :, :m] + 2 * rows[:, :, 1 : m + 1] + rows[:, :, 2:]) / 16


def _read_cache(q: Array, scale: Array) -> Array:
    """A cache of s8 keys, a scale for each head and position, turned for the product."""
    return (q.astype(F32) * scale[..., None]).astype(BF16).transpose(0, 2, 1, 3)


def _nucleus(x: Array) -> Array:
    """Top-p: what remains of sorted logits."""
    chances = jax.nn.softmax(x, -1)
    before = jnp.cumsum(chances, -1) - chances
    return jnp.where(before < 0.9, x, -jnp.inf)


def _muon_inputs(g: Array, m: Array) -> tuple[Array, Array]:
    m = 0.95 * m + g
    made = g + 0.95 * m
    return m, (made / (jnp.sqrt(jnp.square(made).sum((1, 2), keepdims=True)) + 1e-7)).astype(BF16)


def _newton_schulz(x: Array, a: Array, b: Array) -> Array:
    """What stands between the products of a step."""
    return (3.4445 * x.astype(F32) - 4.775 * a.astype(F32) + 2.0315 * b.astype(F32)).astype(BF16)


def _shampoo(g: Array, left: Array, right: Array) -> Array:
    return g * lax.rsqrt(left[:, None] + 1e-8) * lax.rsqrt(right[None] + 1e-8)


def _adafactor(g: Array) -> tuple[Array, Array]:
    square = jnp.square(g.astype(F32)) + 1e-30
    return square.mean(1), square.mean(0)


def _focal_classes(x: Array, labels: Array) -> Array:
    found = jax.nn.log_softmax(x.astype(F32), -1)
    own = jnp.take_along_axis(found, labels[:, None], 1)[:, 0]
    return -((1 - jnp.exp(own)) ** 2 * own)


def _squared_relu(x: Array) -> Array:
    return jnp.square(jax.nn.relu(x))


def _masked_mean(x: Array, length: Array) -> Array:
    inside = jnp.arange(x.shape[1])[None] < length[:, None]
    return jnp.where(inside[..., None], x.astype(F32), 0).sum(1) / length[:, None]


def recent() -> list[Program]:
    """The patterns."""
    of_67m = (8192, 8192)
    tokens, experts = 65536, 2
    return [
        _pattern("two experts combined bf16 65536x2048", _combined, spec(BF16, tokens * experts, 2048),
            spec(I32, tokens, experts), spec(F32, tokens, experts)),
        _pattern("rows to experts bf16 131072x2048", lambda x, i: x[i], spec(BF16, tokens, 2048), spec(I32, 131072),
            least=2.0 * 3 * tokens * 2048),
        _pattern("norm of heads bf16 16384x32x128", _normed_heads, spec(BF16, 16384, 32, 128), spec(F32, 128)),
        _pattern("norm of heads bf16 16385x33x96", _normed_heads, spec(BF16, 16385, 33, 96), spec(F32, 96)),
        _pattern("rotary embedding of a quarter bf16 16x2048x32x128", _partly_rotated, spec(BF16, 16, 2048, 32, 128),
            spec(F32, 2048, 1, 16), spec(F32, 2048, 1, 16)),
        _pattern("gated delta step f32 64x32x128x128", _decayed, spec(F32, 64, 32, 128, 128), spec(F32, 64, 32),
            *[spec(F32, 64, 32, 128)] * 2, spec(F32, 64, 32)),
        _pattern("f8 by blocks of 128x128 to bf16 8192x8192", _in_eights, spec(F8, *of_67m), spec(F32, 64, 64)),
        _pattern("f4 by blocks of 32 to bf16 8192x8192", _of_mx, spec(F4, *of_67m), spec(SCALES, 8192, 256),
            least=2.5 * (1 << 26) + 8192 * 256),
        _pattern("bf16 to f8 by blocks of 32 8192x8192", _in_mx, spec(BF16, *of_67m)),
        _pattern("sliding window softmax bf16 32x1500x1500", _windowed, spec(BF16, 32, 1500, 1500)),
        _pattern("segment softmax f32 8388608 of 262144", _segment_softmax, spec(F32, 1 << 23), spec(I32, 1 << 23),
            reason="elements of 4 bytes that go anywhere: sectors of 32"),
        _pattern("advantages f32 16384x1023", _returns, spec(F32, 16384, 1023), spec(F32, 16384, 1024),
            spec(F32, 16384, 1023)),
        _pattern("selective scan bf16 16x2048x1024", _selective, *[spec(BF16, 16, 2048, 1024)] * 2),
        _pattern("layer scale, stochastic depth bf16 256x577x768", _scaled_layer, *[spec(BF16, 256, 577, 768)] * 2,
            spec(BF16, 768), spec(F32, 256)),
        _pattern("contrast bf16 8192x8192", _contrast, spec(BF16, *of_67m)),
        _pattern("moving averages of 60 arrays f32 of bf16", _averages, *[spec(F32, 1024, 1031)] * 60,
            *[spec(BF16, 1024, 1031)] * 60),
        _pattern("flips and brightness u8 512x224x224x3", _flipped, spec(U8, 512, 224, 224, 3), spec(jnp.bool_, 512),
            spec(F32, 512), reason="two conversions, a product and two limits for each byte: instructions"),
        _pattern("equalised u8 512x512x512 by tables", _equalised, spec(U8, 512, 512, 512), spec(U8, 512, 256)),
        _pattern("blur of 3x3 f32 64x255x255x16", _blurred, spec(F32, 64, 255, 255, 16)),
        _pattern("blur of 3x3 bf16 64x512x512x3", _blurred, spec(BF16, 64, 512, 512, 3)),
        _pattern("cache of s8 to bf16 16x4096x8x128 by 0213", _read_cache, spec(S8, 16, 4096, 8, 128),
            spec(F32, 16, 4096, 8)),
        _pattern("top-p of sorted logits f32 512x50257", _nucleus, spec(F32, 512, 50257)),
        _pattern("momentum normed f32 16x2048x2048", _muon_inputs, *[spec(F32, 16, 2048, 2048)] * 2,
            least=22.0 * (1 << 26)),
        _pattern("Newton-Schulz sum bf16 8191x4097", _newton_schulz, *[spec(BF16, 8191, 4097)] * 3),
        _pattern("scaled by rows and columns f32 8191x4097", _shampoo, spec(F32, 8191, 4097), spec(F32, 8191),
            spec(F32, 4097)),
        _pattern("row and column means of squares bf16 8192x8192", _adafactor, spec(BF16, *of_67m)),
        _pattern("row and column means of squares f32 8191x4097", _adafactor, spec(F32, 8191, 4097)),
        _pattern("focal loss of classes bf16 131072x513", _focal_classes, spec(BF16, 131072, 513),
            spec(I32, 131072)),
        _pattern("squared relu f16 8191x8191", _squared_relu, spec(F16, 8191, 8191)),
        _pattern("masked mean of words bf16 512x513x640", _masked_mean, spec(BF16, 512, 513, 640), spec(I32, 512)),
        _pattern("minimum over 1 bf16 256x1025x333", lambda x: x.min(1), spec(BF16, 256, 1025, 333)),
        _pattern("segment minimum bf16 1048576x64 to 65536", lambda x, i: jax.ops.segment_min(x, i, 1 << 16),
            spec(BF16, 1 << 20, 64), spec(I32, 1 << 20),
            reason="each element looks at its minimum in L2 before it changes it"),
        _pattern("cumulative sum of odd rows f32 16384x4095", lambda x: jnp.cumsum(x, -1), spec(F32, 16384, 4095)),
        _pattern("cumulative sum over 1 bf16 64x1001x333", lambda x: jnp.cumsum(x, 1), spec(BF16, 64, 1001, 333)),
        _pattern("sum of 16 nearest bf16 65536x16x256", lambda x: x.astype(F32).sum(1), spec(BF16, 65536, 16, 256)),
    ]  # fmt: skip
