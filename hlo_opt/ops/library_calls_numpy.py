"""The NumPy meaning of cuBLAS's matrix products with their epilogues, and of the block-scaled dot."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hlo_opt.ir import Instruction
from hlo_opt.ops.contraction import DotDimensions
from hlo_opt.ops.contraction_numpy import matrices
from hlo_opt.ops.control_numpy import zeros
from hlo_opt.ops.spec import Evaluator

Array = Any
Value = Any


def configuration(instruction: Instruction, name: str) -> dict[str, Any]:
    """A message of the call's `backend_config`, which is JSON, bare or in quotes. Raises ValueError when it is no JSON object."""
    written = instruction.attributes.get("backend_config")
    if written is None:
        return {}
    found = json.loads(written.text)
    if isinstance(found, str):
        found = json.loads(found) if found else {}
    if not isinstance(found, dict):
        raise ValueError("backend_config is no JSON object")
    inner = found.get(name, found)
    return inner if isinstance(inner, dict) else {}


def _numbers(config: dict[str, Any], name: str) -> tuple[int, ...]:
    return tuple(int(number) for number in config.get(name, ()))


def _dimensions(config: dict[str, Any], lhs: Array, rhs: Array) -> DotDimensions:
    """Of a plain product where the configuration names none."""
    given = config.get("dot_dimension_numbers")
    if not isinstance(given, dict):
        batch = tuple(range(lhs.ndim - 2))
        return DotDimensions(batch, batch, (lhs.ndim - 1,), (rhs.ndim - 2,))
    return DotDimensions(
        *(_numbers(given, f"{side}_batch_dimensions") for side in ("lhs", "rhs")),
        *(_numbers(given, f"{side}_contracting_dimensions") for side in ("lhs", "rhs")),
    )


def _gelu(value: Array) -> Array:
    """The approximation by a hyperbolic tangent."""
    return 0.5 * value * (1 + np.tanh(math.sqrt(2 / math.pi) * (value + 0.044715 * value**3)))


_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "DEFAULT": lambda value: value,
    "RELU": lambda value: np.maximum(value, 0),
    "GELU": _gelu,
    "SILU": lambda value: value / (1 + np.exp(-value)),
}


def _wide(value: Array) -> Array:
    array = np.asarray(value)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def gemm(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """activation(alpha lhs rhs + beta C + bias); with AUX also what the activation is applied to. Workspaces are zero.

    Operands: lhs, rhs, C where beta is not 0, the bias vector where the epilogue has one. Computed in f64 and rounded once. Raises ValueError for an
    epilogue or operands that do not fit.
    """
    config = configuration(instruction, "gemm_backend_config")
    lhs, rhs = _wide(values[0]), _wide(values[1])
    left, right, sizes = matrices(_dimensions(config, lhs, rhs), lhs, rhs)
    alpha = complex(float(config.get("alpha_real", 1)), float(config.get("alpha_imag", 0)))
    made = np.matmul(left, right).reshape(sizes) * (alpha if alpha.imag else alpha.real)
    epilogue = str(config.get("epilogue", "DEFAULT"))
    has_bias, keeps = epilogue.startswith("BIAS"), epilogue.endswith("_AUX")
    activation = _ACTIVATIONS.get(epilogue.removeprefix("BIAS").removesuffix("_AUX").strip("_") or "DEFAULT")
    if activation is None:
        raise ValueError(f"epilogue {epilogue[:50]!r} is not known")
    rest = [_wide(v) for v in values[2:]]
    beta = float(config.get("beta", 0))
    if len(rest) != (beta != 0) + has_bias:
        raise ValueError(f"{len(values)} operands for beta={beta} and epilogue {epilogue[:50]}")
    if beta:
        made = made + beta * rest[0].reshape(made.shape)
    if has_bias:
        made = made + rest[-1]
    with np.errstate(over="ignore"):
        results = [activation(made), *([made] if keeps else [])]
    leaves = list(instruction.shape.elements or (instruction.shape,))
    found = [
        result.astype(leaf.type.dtype).reshape(leaf.dimensions) for result, leaf in zip(results, leaves, strict=False)
    ]
    found += [zeros(leaf) for leaf in leaves[len(results) :]]
    return tuple(found) if instruction.shape.is_tuple else found[0]


def block_scaled_dot(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """lhs [batch.., m, k] times rhs [batch.., n, k], each with scales for blocks along k; then times one number for all, where a fifth operand gives it."""
    lhs, rhs = (_scaled(_wide(value), _wide(scale)) for value, scale in zip(values[:2], values[2:4], strict=True))
    made = np.matmul(lhs, np.swapaxes(rhs, -1, -2))
    if len(values) > 4:
        made = made * _wide(values[4])
    leaves = list(instruction.shape.elements or (instruction.shape,))
    found = [made.astype(leaves[0].type.dtype).reshape(leaves[0].dimensions), *map(zeros, leaves[1:])]
    return tuple(found) if instruction.shape.is_tuple else found[0]


def _scaled(value: Array, scale: Array) -> Array:
    """Rows or blocks beyond the value's own are padding of the scales."""
    size = value.shape[-1]
    block = -(-size // scale.shape[-1])
    block = 1 << (block - 1).bit_length() if block > 1 else 1
    spread = np.repeat(scale, block, axis=-1)[..., : value.shape[-2], :size]
    if spread.shape != value.shape:
        raise ValueError(f"scales {scale.shape} do not fit {value.shape}")
    return value * spread
