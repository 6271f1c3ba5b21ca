"""Library calls of Fourier transforms, Cholesky factors and triangular systems; None where CuPy has none."""

from __future__ import annotations

from hlo_opt.ir import ElementType, Instruction
from hlo_opt.ops.calls.call import plain
from hlo_opt.ops.linalg.table import solved
from hlo_opt.ops.shapes import flag
from hlo_opt.ops.spec import LibraryCall

_TRANSFORMS = {"FFT": "fftn", "IFFT": "ifftn", "RFFT": "rfftn", "IRFFT": "irfftn"}


def fft(instruction: Instruction) -> LibraryCall | None:
    function = _TRANSFORMS.get(instruction.word("fft_type"))
    lengths = instruction.ints("fft_length")
    source = instruction.operands[0].shape
    if function is None or not plain(source) or source.type.bits < 32:
        return None
    if instruction.shape == source and source.dimensions[source.rank - len(lengths) :] != tuple(lengths):
        return None  # a complex transform of another length is not defined
    return "fft_call", (function, lengths), f"cupy.fft.{function}"


def cholesky(instruction: Instruction) -> LibraryCall | None:
    t = instruction.shape.type
    return ("cholesky_call", (flag(instruction, "lower"),), "cupy.linalg.cholesky") if is_solved(t) else None


def triangular_solve(instruction: Instruction) -> LibraryCall | None:
    if not is_solved(instruction.shape.type):
        return None
    return "triangular_solve_call", solved(instruction), "cupyx.scipy.linalg.solve_triangular"


def is_solved(t: ElementType) -> bool:
    """Whether CuPy factors matrices of the type (narrow floats in a wider one)."""
    return t.name in ("bf16", "f16", "f32", "f64", "c64", "c128")
