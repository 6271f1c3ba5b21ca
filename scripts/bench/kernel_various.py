"""Patterns of `kernel_limits` that people have and the other lists do not hold: losses of odd vocabularies, segments,
images, codes, norms of weights and instances, clipping and averages of many arrays, masks, tables of positions, boxes,
histograms, statistics, bits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from scripts.bench.kernel_programs import BF16, F16, F32, S8, U8, Array, Function, Program, spec, traced

I32 = jnp.int32
F8, F4, SCALES, C64 = jnp.float8_e4m3fn, jnp.float4_e2m1fn, jnp.float8_e8m0fnu, jnp.complex64


def _pattern(name: str, function: Function, *arguments: Any, least: float | None = None, reason: str = "") -> Program:
    return Program(name, traced(function, *arguments), least=least, reason=reason)


def _entropy(x: Array, labels: Array) -> Array:
    wide = x.astype(F32)
    picked = jnp.take_along_axis(wide, labels[:, None], -1)[:, 0]
    return (jax.scipy.special.logsumexp(wide, -1) - picked).mean()


def _entropy_gradient(x: Array, labels: Array) -> Array:
    return jax.grad(_entropy)(x, labels)


def _contrast(x: Array, factor: Array) -> Array:
    """Augmentation: the distance of each image's pixels from their mean."""
    wide = x.astype(F32)
    mean = wide.mean((1, 2, 3), keepdims=True)
    return jnp.clip((wide - mean) * factor[:, None, None, None] + mean, 0, 255).astype(x.dtype)


def _augmented(x: Array, flip: Array, bright: Array) -> Array:
    turned = jnp.where(flip[:, None, None, None], x[:, :, ::-1], x).astype(F32) / 255
    turned = jnp.clip(turned * bright[:, None, None, None], 0, 1)
    return (turned - jnp.asarray([0.48, 0.45, 0.4])) / jnp.asarray([0.23, 0.22, 0.225])


def _pooled(x: Array) -> Array:
    n, h, w, c = x.shape
    return x.astype(F32).reshape(n, h // 2, 2, w // 2, 2, c).mean((2, 4)).astype(x.dtype)


def _nearest(x: Array, codes: Array) -> Array:
    distances = (x * x).sum(1)[:, None] - 2 * x @ codes.T + (codes * codes).sum(1)[None]
    return jnp.argmin(distances, 1)


def _near(x: Array, codes: Array) -> Array:
    return jnp.argmin(jnp.square(x[:, None, :] - codes[None]).sum(-1), -1)


def _group_norm(x: Array, scale: Array, offset: Array) -> Array:
    n, h, w, c = x.shape
    wide = x.astype(F32).reshape(n, h, w, 32, c // 32)
    mean = wide.mean((1, 2, 4), keepdims=True)
    variance = jnp.square(wide - mean).mean((1, 2, 4), keepdims=True)
    made = ((wide - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape)
    return (made * scale + offset).astype(x.dtype)


def _instance_norm(x: Array, axes: tuple[int, int]) -> Array:
    wide = x.astype(F32)
    mean = wide.mean(axes, keepdims=True)
    variance = jnp.square(wide - mean).mean(axes, keepdims=True)
    return ((wide - mean) * lax.rsqrt(variance + 1e-5)).astype(x.dtype)


def _weight_norm(v: Array, g: Array) -> Array:
    return v * (g / jnp.sqrt(jnp.square(v).sum(1)))[:, None]


def _weight_norm_gradient(v: Array, g: Array, d: Array) -> tuple[Array, Array]:
    return jax.vjp(_weight_norm, v, g)[1](d)


def _normed_and_rotated(x: Array, scale: Array, cosine: Array, sine: Array) -> Array:
    wide = x.astype(F32)
    wide = wide * lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-6) * scale
    first, second = jnp.split(wide, 2, -1)
    return jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], -1).astype(x.dtype)


def _gates_gradient(joined: Array, g: Array) -> Array:
    """Of the two halves of one product."""

    def gates(joined: Array) -> Array:
        a, b = jnp.split(joined, 2, -1)
        return jax.nn.silu(a) * b

    return jax.vjp(gates, joined)[1](g)[0]


def _scaled_if_finite(*arrays: Array) -> list[Array]:
    """Loss scaling: gradients are unscaled, and zero where any is not finite."""
    wide = [a.astype(F32) / 1024 for a in arrays]
    finite = jnp.stack([jnp.isfinite(a).all() for a in wide]).all()
    return [jnp.where(finite, a, 0) for a in wide]


def _clipped(*arrays: Array) -> list[Array]:
    norm = jnp.sqrt(sum(jnp.square(a.astype(F32)).sum() for a in arrays))
    factor = jnp.minimum(1, 1 / norm)
    return [(a * factor).astype(a.dtype) for a in arrays]


def _averages(*arrays: Array) -> list[Array]:
    half = len(arrays) // 2
    return [0.999 * a + 0.001 * w for a, w in zip(arrays[:half], arrays[half:], strict=True)]


def _causal(x: Array) -> Array:
    length = x.shape[-1]
    mask = jnp.arange(length)[:, None] >= jnp.arange(length)[None]
    return jax.nn.softmax(jnp.where(mask, x.astype(F32) * 0.125, -jnp.inf), -1).astype(x.dtype)


def _ragged(x: Array, length: Array) -> Array:
    """Softmax of scores of sentences of several lengths."""
    inside = jnp.arange(x.shape[-1])[None, None] < length[:, None, None]
    return jax.nn.softmax(jnp.where(inside, x.astype(F32), -1e30), -1).astype(x.dtype)


def _buckets(n: int, m: int) -> Array:
    away = jnp.arange(m)[None, :] - jnp.arange(n)[:, None]
    far = jnp.abs(away)
    large = 8 + (jnp.log(jnp.maximum(far, 1) / 8) / jnp.log(16.0) * 8).astype(I32)
    return jnp.where(far < 8, far, jnp.minimum(large, 15)) + 16 * (away > 0)


def _relative(scores: Array, table: Array) -> Array:
    """Scores with T5's bias of 32 distances."""
    bias = table[_buckets(*scores.shape[-2:])].transpose(2, 0, 1)
    return (scores + bias[None]).astype(scores.dtype)


def _relative_gradient(g: Array) -> Array:
    buckets = _buckets(*g.shape[-2:])
    return jnp.zeros((32, g.shape[1]), F32).at[buckets].add(g.astype(F32).sum(0).transpose(1, 2, 0))


def _unpatched(x: Array) -> Array:
    """Words of 16x16x3 to images."""
    n = x.shape[0]
    return x.reshape(n, 14, 14, 16, 16, 3).transpose(0, 1, 3, 2, 4, 5).reshape(n, 224, 224, 3)


def _windows(x: Array) -> Array:
    """Shifted windows of 7x7."""
    n, h, w, c = x.shape
    x = jnp.roll(x, (-3, -3), (1, 2))
    return x.reshape(n, h // 7, 7, w // 7, 7, c).transpose(0, 1, 3, 2, 4, 5).reshape(-1, 49, c)


def _overlaps(a: Array, b: Array) -> Array:
    """Intersection over union of boxes."""
    low = jnp.maximum(a[:, None, :2], b[None, :, :2])
    high = jnp.minimum(a[:, None, 2:], b[None, :, 2:])
    both = jnp.prod(jnp.maximum(high - low, 0), -1)
    area = jnp.prod(a[:, 2:] - a[:, :2], -1)[:, None] + jnp.prod(b[:, 2:] - b[:, :2], -1)[None]
    return both / (area - both)


def _suppressed(boxes: Array, scores: Array, best: Array) -> tuple[Array, Array]:
    """A step of non-maximum suppression for each image."""
    own = jnp.take_along_axis(boxes, best[:, None, None], 1)[:, 0]
    low = jnp.maximum(boxes[..., :2], own[:, None, :2])
    high = jnp.minimum(boxes[..., 2:], own[:, None, 2:])
    both = jnp.prod(jnp.maximum(high - low, 0), -1)
    area = jnp.prod(boxes[..., 2:] - boxes[..., :2], -1)
    overlap = both / (area + jnp.prod(own[:, 2:] - own[:, :2], -1)[:, None] - both)
    left = jnp.where(overlap > 0.5, -1.0, scores)
    return left, jnp.argmax(left, 1)


def _histogram(x: Array) -> Array:
    places = jnp.clip((x * 256).astype(I32), 0, 255).reshape(-1)
    return jnp.zeros(256, I32).at[places].add(1)


def _running(x: Array, mean: Array, square: Array) -> tuple[Array, Array]:
    new = x.astype(F32)
    return 0.9 * mean + 0.1 * new.mean((0, 1, 2)), 0.9 * square + 0.1 * new.var((0, 1, 2))


def _welford(count: Array, mean: Array, square: Array, x: Array) -> tuple[Array, Array, Array]:
    count = count + 1
    change = x - mean
    mean = mean + change / count
    return count, mean, square + change * (x - mean)


def _resampled(x: Array, taps: Array) -> Array:
    """Polyphase: three results for each two elements, of eight taps each."""
    n, m = x.shape
    padded = jnp.pad(x, ((0, 0), (4, 4)))
    phases = []
    for k in range(3):
        start = 2 * k // 3
        phases.append(
            sum(taps[k, t] * lax.slice(padded, (0, start + t), (n, start + t + m - 1), (1, 2)) for t in range(8))
        )
    return jnp.stack(phases, -1).reshape(n, -1)


def _complex_rotated(x: Array, angles: Array) -> Array:
    pairs = x.astype(F32).reshape(*x.shape[:-1], -1, 2)
    turned = lax.complex(pairs[..., 0], pairs[..., 1]) * angles[None, :, None]
    return jnp.stack([turned.real, turned.imag], -1).reshape(x.shape).astype(x.dtype)


def _twiddled(x: Array) -> Array:
    n, m = x.shape[-2:]
    angles = -2 * jnp.pi / (n * m) * (jnp.arange(n)[:, None] * jnp.arange(m)[None]).astype(F32)
    return (x * lax.complex(jnp.cos(angles), jnp.sin(angles))).swapaxes(-1, -2)


def _packed_bits(x: Array) -> Array:
    bits = (x > 0).reshape(x.shape[0], -1, 8).astype(U8)
    return (bits << jnp.arange(8, dtype=U8)).sum(-1, dtype=U8)


def _unpacked_bits(x: Array) -> Array:
    return ((x[..., None] >> jnp.arange(8, dtype=U8)) & 1).reshape(x.shape[0], -1).astype(BF16)


def _dequantised_rows(table: Array, scale: Array, places: Array) -> Array:
    return (table[places].astype(F32) * scale[places][..., None]).astype(BF16)


def _bags(table: Array, places: Array, weights: Array) -> Array:
    """Sums of embeddings of a bag of features."""
    return (table[places] * weights[..., None]).sum(1)


def _one_hot_product(labels: Array, table: Array) -> Array:
    return jax.nn.one_hot(labels, table.shape[0], dtype=table.dtype) @ table


def _in_f4(x: Array) -> tuple[Array, Array]:
    """f4 with a power of two for each 32."""
    blocks = x.astype(F32).reshape(x.shape[0], -1, 32)
    most = jnp.abs(blocks).max(-1, keepdims=True)
    scale = jnp.exp2(jnp.floor(jnp.log2(most)) - 2)
    return (blocks / scale).astype(F4).reshape(x.shape), scale[..., 0].astype(SCALES)


def _gated(x: Array) -> tuple[Array, Array]:
    best, places = lax.top_k(x, 2)
    return jax.nn.softmax(best, -1), places


def _nucleus(x: Array) -> Array:
    chances = jax.nn.softmax(x, -1)
    ordered = lax.rev(lax.sort(chances, dimension=-1), (1,))
    before = jnp.cumsum(ordered, -1) - ordered
    least = jnp.where(before < 0.9, ordered, 1.0).min(-1, keepdims=True)
    return jnp.where(chances >= least, x, -jnp.inf)


def _variances(x: Array) -> Array:
    return jnp.stack([x.min(0), x.max(0), x.mean(0), x.std(0)])


def _accumulated(*arrays: Array) -> list[Array]:
    half = len(arrays) // 2
    return [a + g.astype(F32) for a, g in zip(arrays[:half], arrays[half:], strict=True)]


def _mixed(x: Array, y: Array, b: Array) -> Array:
    """NCHW and NHWC."""
    return jax.nn.relu(x.transpose(0, 2, 3, 1) + y + b)


def _tables(x: Array, cosine: Array) -> Array:
    return (x.astype(F32) * cosine[:, None]).astype(x.dtype).transpose(0, 2, 1, 3)


def _pairs(x: Array) -> Array:
    """Pairwise distances by differences."""
    return jnp.sqrt(jnp.square(x[:, None] - x[None]).sum(-1))


def _kl(x: Array, y: Array) -> Array:
    """Distillation."""
    p, q = jax.nn.log_softmax(x.astype(F32)), jax.nn.log_softmax(y.astype(F32))
    return (jnp.exp(p) * (p - q)).sum(-1).mean()


def _chances(x: Array, labels: Array) -> Array:
    """Chances of tokens and their entropy, as for policies."""
    found = jax.nn.log_softmax(x.astype(F32))
    return jnp.take_along_axis(found, labels[..., None], -1)[..., 0], -(jnp.exp(found) * found).sum(-1)


def various() -> list[Program]:
    """The patterns."""
    many = [spec(BF16, 1024, 1031)] * 50
    shapes = [spec(F32, 768, 768), spec(F32, 768, 3072), spec(F32, 3072), spec(F32, 768), spec(F32, 1000, 767)] * 10
    return [
        _pattern("cross entropy by a pick bf16 4096x50257", _entropy, spec(BF16, 4096, 50257), spec(I32, 4096)),
        _pattern("cross entropy by a pick bf16 2048x128257", _entropy, spec(BF16, 2048, 128257), spec(I32, 2048)),
        _pattern("cross entropy by a pick f16 8192x32001", _entropy, spec(F16, 8192, 32001), spec(I32, 8192)),
        _pattern(
            "gradient of cross entropy bf16 4096x50257", _entropy_gradient, spec(BF16, 4096, 50257), spec(I32, 4096)
        ),
        _pattern(
            "gradient of cross entropy bf16 2048x128257", _entropy_gradient, spec(BF16, 2048, 128257), spec(I32, 2048)
        ),
        _pattern(
            "gradient of cross entropy f32 8192x10003", _entropy_gradient, spec(F32, 8192, 10003), spec(I32, 8192)
        ),
        _pattern("softmax over 1 bf16 128x513x511", lambda x: jax.nn.softmax(x, 1), spec(BF16, 128, 513, 511)),
        _pattern("softmax over 1 f32 128x513x511", lambda x: jax.nn.softmax(x, 1), spec(F32, 128, 513, 511)),
        _pattern("softmax over 1 bf16 1000x37x1023", lambda x: jax.nn.softmax(x, 1), spec(BF16, 1000, 37, 1023)),
        _pattern(
            "softmax over 0 bf16 8192x4096",
            lambda x: jax.nn.softmax(x, 0),
            spec(BF16, 8192, 4096),
            least=3.0 * 2 * (1 << 25),
        ),
        _pattern(
            "log-sum-exp over 0 bf16 32768x2048",
            lambda x: jax.scipy.special.logsumexp(x.astype(F32), 0),
            spec(BF16, 32768, 2048),
        ),
        _pattern(
            "log-sum-exp over 0 bf16 65536x777",
            lambda x: jax.scipy.special.logsumexp(x.astype(F32), 0),
            spec(BF16, 65536, 777),
        ),
        _pattern(
            "segment maximum f32 2097152x64 to 65536",
            lambda x, i: jax.ops.segment_max(x, i, 1 << 16),
            spec(F32, 1 << 21, 64),
            spec(I32, 1 << 21),
            reason="each element looks at its maximum in L2 before it changes it",
        ),
        _pattern("two best of 64 logits f32 262144x64", _gated, spec(F32, 1 << 18, 64)),
        _pattern("two best of 64 logits bf16 524288x64", _gated, spec(BF16, 1 << 19, 64)),
        _pattern("top-p of logits f32 512x32000", _nucleus, spec(F32, 512, 32000), least=4.0 * 6 * 512 * 32000),
        _pattern(
            "contrast u8 256x224x224x3",
            _contrast,
            spec(U8, 256, 224, 224, 3),
            spec(F32, 256),
            reason="two conversions and a rounding of each byte: the slow pipe",
        ),
        _pattern(
            "contrast f32 256x224x224x3",
            _contrast,
            spec(F32, 256, 224, 224, 3),
            spec(F32, 256),
            least=4.0 * 3 * 256 * 224 * 224 * 3,
        ),
        _pattern(
            "augmented u8 256x224x224x3",
            _augmented,
            spec(U8, 256, 224, 224, 3),
            spec(jnp.bool_, 256),
            spec(F32, 256),
            reason="a conversion and five operations for each byte: instructions",
        ),
        _pattern("means of 2x2 u8 256x512x512x3", _pooled, spec(U8, 256, 512, 512, 3)),
        _pattern("means of 2x2 u8 256x512x512x4", _pooled, spec(U8, 256, 512, 512, 4)),
        _pattern("flipped u8 512x255x255x3", lambda x: x[:, :, ::-1], spec(U8, 512, 255, 255, 3)),
        _pattern(
            "every third column f32 16384x6144",
            lambda x: x[:, ::3] * 2,
            spec(F32, 16384, 6144),
            least=16384.0 * (6144 + 2048) * 4,
        ),
        _pattern(
            "every fourth column f32 8192x16384",
            lambda x: x[:, ::4] + 1,
            spec(F32, 8192, 16384),
            least=8192.0 * (16384 + 4096) * 4,
        ),
        _pattern(
            "every third column s8 16384x12288",
            lambda x: x[:, 2::3],
            spec(S8, 16384, 12288),
            least=16384.0 * (12288 + 4096),
        ),
        _pattern(
            "nearest of 512 codes f32 65536x32",
            _near,
            spec(F32, 1 << 16, 32),
            spec(F32, 512, 32),
            least=4.0 * 2 * 512 * (1 << 16),
            reason="32 squares for each distance: instructions",
        ),
        _pattern(
            "distances of points f32 4096x4096 of 16",
            _pairs,
            spec(F32, 4096, 16),
            reason="sixteen squares for each element: instructions",
        ),
        _pattern(
            "pad of a transpose, relu f32 8190x8190", lambda x: jax.nn.relu(jnp.pad(x.T, 1)), spec(F32, 8190, 8190)
        ),
        _pattern(
            "pad of a transpose, relu bf16 8190x8190", lambda x: jax.nn.relu(jnp.pad(x.T, 1)), spec(BF16, 8190, 8190)
        ),
        _pattern(
            "softmax of a transpose f32 8192x4096",
            lambda x: jax.nn.softmax(x.T, -1),
            spec(F32, 8192, 4096),
            least=3.0 * 4 * (1 << 25),
        ),
        _pattern(
            "softmax of a transpose bf16 4096x512",
            lambda x: jax.nn.softmax(x.transpose(0, 2, 1), -1),
            spec(BF16, 64, 512, 1024),
        ),
        _pattern("stack of pairs f16 33.5M", lambda x, y: jnp.stack([x, y], -1), *[spec(F16, 1 << 25)] * 2),
        _pattern(
            "rotary embedding of pairs f16 64x1024x16x128",
            _complex_rotated,
            spec(F16, 64, 1024, 16, 128),
            spec(C64, 1024, 64),
        ),
        _pattern(
            "group norm bf16 64x56x56x256 of 32",
            _group_norm,
            spec(BF16, 64, 56, 56, 256),
            spec(F32, 256),
            spec(F32, 256),
            least=2.0 * 3 * 64 * 56 * 56 * 256,
        ),
        _pattern(
            "instance norm bf16 NCHW 64x256x57x57", lambda x: _instance_norm(x, (2, 3)), spec(BF16, 64, 256, 57, 57)
        ),
        _pattern(
            "instance norm f32 NHWC 64x64x64x129",
            lambda x: _instance_norm(x, (1, 2)),
            spec(F32, 64, 64, 64, 129),
            least=4.0 * 3 * 64 * 64 * 64 * 129,
        ),
        _pattern("weight norm f32 8192x4096", _weight_norm, spec(F32, 8192, 4096), spec(F32, 8192)),
        _pattern(
            "weight norm gradient f32 8192x4096",
            _weight_norm_gradient,
            spec(F32, 8192, 4096),
            spec(F32, 8192),
            spec(F32, 8192, 4096),
        ),
        _pattern(
            "rms norm, rotary embedding bf16 8x2048x32x128",
            _normed_and_rotated,
            spec(BF16, 8, 2048, 32, 128),
            spec(F32, 128),
            *[spec(F32, 2048, 1, 64)] * 2,
        ),
        _pattern(
            "swiglu gradient of halves bf16 8192x22016",
            _gates_gradient,
            spec(BF16, 8192, 22016),
            spec(BF16, 8192, 11008),
        ),
        _pattern(
            "loss scaling of 50 arrays f16",
            _scaled_if_finite,
            *[spec(F16, 1024, 1031)] * 50,
            least=50.0 * 1024 * 1031 * 8,
        ),
        _pattern("clipped norm of 50 arrays bf16", _clipped, *many, least=50.0 * 1024 * 1031 * 6),
        _pattern(
            "clipped norm of 50 arrays f32",
            _clipped,
            *shapes,
            least=12.0 * 10 * (768 * 768 + 768 * 3072 + 3840 + 767000),
        ),
        _pattern("moving averages of 50 arrays f32", _averages, *shapes, *shapes),
        _pattern("gradients of 50 arrays added bf16 to f32", _accumulated, *[spec(F32, 1024, 1031)] * 50, *many),
        _pattern("causal softmax bf16 64x1023x1023", _causal, spec(BF16, 64, 1023, 1023)),
        _pattern("ragged softmax bf16 64x512x777", _ragged, spec(BF16, 64, 512, 777), spec(I32, 64)),
        _pattern("relative bias bf16 8x12x1024x1024", _relative, spec(BF16, 8, 12, 1024, 1024), spec(F32, 32, 12)),
        _pattern("relative bias gradient bf16 8x12x1024x1024", _relative_gradient, spec(BF16, 8, 12, 1024, 1024)),
        _pattern("words to images bf16 256x196x768", _unpatched, spec(BF16, 256, 196, 768)),
        _pattern("shifted windows bf16 64x56x56x96", _windows, spec(BF16, 64, 56, 56, 96)),
        _pattern("shifted windows f32 64x56x56x95", _windows, spec(F32, 64, 56, 56, 95)),
        _pattern(
            "pixel shuffle bf16 NHWC 16x256x256x48",
            lambda x: x.reshape(16, 256, 256, 4, 4, 3).transpose(0, 1, 3, 2, 4, 5).reshape(16, 1024, 1024, 3),
            spec(BF16, 16, 256, 256, 48),
        ),
        _pattern("overlaps of boxes f32 8192x4096", _overlaps, spec(F32, 8192, 4), spec(F32, 4096, 4)),
        _pattern(
            "step of suppression f32 512x16384 boxes",
            _suppressed,
            spec(F32, 512, 16384, 4),
            spec(F32, 512, 16384),
            spec(I32, 512),
        ),
        _pattern("histogram of f32 33.5M", _histogram, spec(F32, 1 << 25)),
        _pattern("bincount of 1000 s32 33.5M", lambda x: jnp.bincount(x, length=1000), spec(I32, 1 << 25)),
        _pattern(
            "running mean, variance bf16 64x56x56x129",
            _running,
            spec(BF16, 64, 56, 56, 129),
            spec(F32, 129),
            spec(F32, 129),
        ),
        _pattern("step of Welford f32 16.7M", _welford, spec(F32), *[spec(F32, 1 << 24)] * 3),
        _pattern("minimum, maximum, mean, deviation of columns f32 65536x513", _variances, spec(F32, 65536, 513)),
        _pattern("resampled by 3/2 f32 1024x32768", _resampled, spec(F32, 1024, 32768), spec(F32, 3, 8)),
        _pattern(
            "complex rotary embedding bf16 64x1024x16x128",
            _complex_rotated,
            spec(BF16, 64, 1024, 16, 128),
            spec(C64, 1024, 64),
        ),
        _pattern("twiddles c64 64x512x512, turned", _twiddled, spec(C64, 64, 512, 512)),
        _pattern("packed bits f32 16384x8192", _packed_bits, spec(F32, 16384, 8192)),
        _pattern("unpacked bits u8 16384x2048", _unpacked_bits, spec(U8, 16384, 2048)),
        _pattern(
            "dequantised embedding s8 131072x1024",
            _dequantised_rows,
            spec(S8, 1 << 17, 1024),
            spec(F32, 1 << 17),
            spec(I32, 1 << 16),
            least=3.0 * (1 << 26),
        ),
        _pattern(
            "bags of embeddings f32 65536x20 of 64",
            _bags,
            spec(F32, 1 << 22, 64),
            spec(I32, 1 << 16, 20),
            spec(F32, 1 << 16, 20),
            least=4.0 * 65536 * (20 * 66 + 64),
        ),
        _pattern(
            "bf16 to f4 by blocks of 32 8192x8192",
            _in_f4,
            spec(BF16, 8192, 8192),
            least=2.5 * (1 << 26) + 8192 * 256,
            reason="rounding to f4 by bits: instructions",
        ),
        _pattern(
            "NCHW and NHWC added bf16 64x64x56x57",
            _mixed,
            spec(BF16, 64, 64, 56, 57),
            spec(BF16, 64, 56, 57, 64),
            spec(BF16, 64),
        ),
        _pattern(
            "scaled by positions, turned f16 16x1023x16x64", _tables, spec(F16, 16, 1023, 16, 64), spec(F32, 1023, 64)
        ),
        _pattern(
            "distillation bf16 4096x32001",
            _kl,
            *[spec(BF16, 4096, 32001)] * 2,
            reason="three exponentials of each pair of elements: instructions",
        ),
        _pattern(
            "chance and entropy bf16 8192x32000",
            _chances,
            spec(BF16, 8192, 32000),
            spec(I32, 8192),
            reason="two exponentials of each element: instructions",
        ),
        _pattern("mean over time bf16 64x1001x1025", lambda x: x.mean(1), spec(BF16, 64, 1001, 1025)),
        _pattern("absolute maximum of columns f16 32768x1023", lambda x: jnp.abs(x).max(0), spec(F16, 32768, 1023)),
    ]
