"""Batch normalisation over an array module `xp` that is CuPy (or looks like it).

The text of this function is also what an emitted driver contains, so it uses nothing but its arguments and what it imports.
"""

from __future__ import annotations

from typing import Any

from hlo_opt.runtime.device_arrays import flat, logical, narrowed, widened


def batch_norm_call(xp: Any, buffers: Any, shapes: Any, kind: str, feature: int, epsilon: float) -> Any:
    """`training` gives (normalised, mean, variance), `inference` the normalised array, `grad` the gradients of (operand, scale, offset).
    Sums are taken in float32, or float64 for arrays of that type."""
    first = shapes[0]
    wide = "float64" if first[1] == "float64" else "float32"
    x, *others = [
        logical(widened(xp, b, s[0]), s[2], s[3]).astype(wide)
        for b, s in zip(buffers, shapes[: len(buffers)], strict=True)
    ]
    axes = tuple(d for d in range(x.ndim) if d != feature)
    spread = [-1 if d == feature else 1 for d in range(x.ndim)]
    if kind == "training":
        scale, offset = (v.reshape(spread) for v in others)
        mean = x.mean(axis=axes)
        centred = x - mean.reshape(spread)
        variance = (centred * centred).mean(axis=axes)
        made = [centred / xp.sqrt(variance.reshape(spread) + epsilon) * scale + offset, mean, variance]
    elif kind == "inference":
        scale, offset, mean, variance = (v.reshape(spread) for v in others)
        made = [(x - mean) / xp.sqrt(variance + epsilon) * scale + offset]
    else:
        scale, mean, variance = (v.reshape(spread) for v in others[:3])
        grad = others[3]
        count = max(x.size // max(scale.size, 1), 1)
        inverse = 1 / xp.sqrt(variance + epsilon)
        centred = x - mean
        total, product = grad.sum(axis=axes), (grad * centred).sum(axis=axes)
        shared = grad - (total.reshape(spread) + centred * product.reshape(spread) / (variance + epsilon)) / count
        made = [scale * inverse * shared, product * inverse.reshape(-1), total]
    results = shapes[len(buffers) :]
    return [narrowed(xp, flat(xp, m, s[3]), s[0], s[1]) for m, s in zip(made, results, strict=True)]
