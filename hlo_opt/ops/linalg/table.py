"""cholesky, triangular-solve, fft and the three batch normalizations.

Semantics: xla/hlo/transforms/expanders (cholesky_expander.cc, triangular_solve_expander.cc),
xla/service/batchnorm_expander.cc, xla/hlo/evaluator (HandleFft).
"""

from __future__ import annotations

import math

from hlo_opt.ir import ELEMENT_TYPES, Instruction, Shape
from hlo_opt.ops import faces, omitted
from hlo_opt.ops.call_config import Solved
from hlo_opt.ops.elementwise.declare import REALS, check_kind
from hlo_opt.ops.faces import lazy
from hlo_opt.ops.shapes import flag, integer, need, operand, result
from hlo_opt.ops.spec import Arity, OpKind, declare

FFT_TYPES = ("FFT", "IFFT", "RFFT", "IRFFT")
_TRANSFORMED = ("f32", "f64", "complex")
"""xla/service/shape_inference.cc, InferFftShape"""


def infer_cholesky(instruction: Instruction) -> Shape:
    shape = operand(instruction, 0)
    need(shape.rank >= 2 and shape.dimensions[-1] == shape.dimensions[-2], f"{shape} has no square matrices")
    check_kind("cholesky", shape.type, REALS)
    return result(instruction, shape.type, shape.dimensions)


def solved(instruction: Instruction) -> Solved:
    """The attributes of a triangular solve."""
    left = instruction.word("left_side", "false") in ("true", "True")
    transpose = instruction.word("transpose_a", "NO_TRANSPOSE")
    return left, flag(instruction, "lower"), transpose, flag(instruction, "unit_diagonal")


def infer_triangular_solve(instruction: Instruction) -> Shape:
    a, b = operand(instruction, 0), operand(instruction, 1)
    check_kind("triangular-solve", a.type, REALS)
    need(a.type == b.type, f"the matrices are {a.type}, the right sides {b.type}")
    need(a.rank >= 2 and a.rank == b.rank and a.dimensions[-1] == a.dimensions[-2], f"{a} does not fit {b}")
    need(a.dimensions[:-2] == b.dimensions[:-2], f"batch dimensions of {a} and {b} differ")
    need(a.dimensions[-1] == b.dimensions[-2 if solved(instruction)[0] else -1], f"{a} does not fit {b}")
    return result(instruction, b.type, b.dimensions)


def infer_fft(instruction: Instruction) -> Shape:
    shape, kind, lengths = operand(instruction, 0), instruction.word("fft_type"), instruction.ints("fft_length")
    need(kind in FFT_TYPES, f"fft_type={kind} is not one of {', '.join(FFT_TYPES)}")
    need(1 <= len(lengths) <= shape.rank, f"fft_length has {len(lengths)} dimensions, the operand {shape.rank}")
    real_in, real_out = kind == "RFFT", kind == "IRFFT"
    check_kind("fft", shape.type, _TRANSFORMED)
    need(shape.type.is_float == real_in, f"{kind} of {shape.type}")
    sizes = [*shape.dimensions[: -len(lengths)], *lengths]
    if real_in:
        sizes[-1] = lengths[-1] // 2 + 1 if lengths[-1] else 0
        return result(instruction, ELEMENT_TYPES["c128" if shape.type.bits == 64 else "c64"], sizes)
    if real_out:
        return result(instruction, ELEMENT_TYPES["f64" if shape.type.bits == 128 else "f32"], sizes)
    return result(instruction, shape.type, shape.dimensions)


_NORMALISED = ("float",)
_FEATURE_OPERANDS = {"batch-norm-training": 3, "batch-norm-inference": 5, "batch-norm-grad": 4}
"""The number of leading operands; those after the first have one element per feature."""


def infer_batch_norm(instruction: Instruction) -> Shape:
    """Training returns (normalized, mean, variance), the gradient those of operand, scale and offset."""
    shape, opcode = operand(instruction, 0), instruction.opcode
    check_kind(opcode, shape.type, _NORMALISED)
    index = integer(instruction, "feature_index")
    need(0 <= index < shape.rank, f"feature_index={index} is not a dimension of {shape}")
    features = Shape(operand(instruction, 1).type, (shape.dimensions[index],))
    for number in range(1, _FEATURE_OPERANDS[opcode]):
        statistic = operand(instruction, number)
        need(statistic.dimensions == features.dimensions, f"operand {number} is {statistic}, expected {features}")
    whole = Shape(shape.type, shape.dimensions)
    if opcode == "batch-norm-inference":
        return whole
    gradient = operand(instruction, len(instruction.operands) - 1)
    is_fit = opcode == "batch-norm-training" or gradient.dimensions == shape.dimensions
    need(is_fit, "the gradient has other dimensions than the operand")
    return Shape.tuple_of(whole, features, features)


def flops(instruction: Instruction) -> float:
    """Flops as xla/service/hlo_cost_analysis.cc counts them.

    HandleCholesky: n^3 / 3 per matrix. HandleTriangularSolve: n multiply-adds per element of the right sides.
    HandleFft: 4 n log2 n complex operations. Normalizations, which XLA expands before counting: 8 per element.
    """
    shapes = [o.shape for o in instruction.operands]
    match instruction.opcode:
        case "cholesky":
            return shapes[0].element_count * shapes[0].dimensions[-1] / 3.0
        case "triangular-solve":
            return float(shapes[1].element_count * shapes[0].dimensions[-1])
        case "fft":
            count = max(instruction.shape.element_count, shapes[0].element_count)
            length = math.prod(instruction.ints("fft_length"))
            return 4.0 * count * max(math.log2(length), 1.0) if length > 1 else 0.0
    return 8.0 * shapes[0].element_count


_NORM = {"epsilon": True, "feature_index": True}
_SOLVE = {"left_side": False, "lower": False, "unit_diagonal": False, "transpose_a": False}
_ROUTINES = {
    "cholesky": "numpy.linalg.cholesky (LAPACK)",
    "fft": "numpy.fft (pocketfft)",
    "triangular-solve": "substitution in NumPy",
}
for _opcode, _arity, _accepts, _attributes, _infer in (
    ("cholesky", 1, REALS, {"lower": False}, infer_cholesky),
    ("triangular-solve", 2, REALS, _SOLVE, infer_triangular_solve),
    ("fft", 1, _TRANSFORMED, {"fft_type": True, "fft_length": True}, infer_fft),
    ("batch-norm-training", 3, _NORMALISED, _NORM, infer_batch_norm),
    ("batch-norm-inference", 5, _NORMALISED, _NORM, infer_batch_norm),
    ("batch-norm-grad", 5, _NORMALISED, _NORM, infer_batch_norm),
):
    declare(
        _opcode,
        OpKind.LINALG,
        Arity(_arity, _arity),
        _attributes,
        _accepts,
        infer=_infer,
        evaluate=lazy("linalg.meaning", _opcode.replace("-", "_")),
        flops=flops,
        # factorizations amplify errors by the condition number of their matrix; the others accumulate
        tolerance=faces.rounded(4096 if _opcode in ("cholesky", "triangular-solve") else 256),
        scratch=lazy("scratch", "wide_copies"),
        omitted=omitted.as_operand(1 if _opcode == "triangular-solve" else 0),
        is_library=True,
        call=lazy("calls.linear", _opcode.replace("-", "_")) if _opcode in _ROUTINES else None,
        routine=_ROUTINES.get(_opcode, ""),
    )
