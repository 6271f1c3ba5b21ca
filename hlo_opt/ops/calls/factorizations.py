"""Library calls of LAPACK and cuSOLVER custom calls (ops/custom_calls/factorizations.py); None where CuPy has none."""

from __future__ import annotations

from collections.abc import Callable

from hlo_opt.ir import Instruction, Shape
from hlo_opt.ops.call_config import configuration, is_lower, is_true, letter, solved_by_trsm
from hlo_opt.ops.calls.call import operand_leaves
from hlo_opt.ops.calls.linear import is_solved
from hlo_opt.ops.custom_calls.table import routine
from hlo_opt.ops.spec import LibraryCall


def factorization_call(instruction: Instruction) -> LibraryCall | None:
    """The call for a factorization; None for other custom calls, routines that CuPy lacks, and results of other
    shapes."""
    make = _CALLS.get(routine(instruction.word("custom_call_target", "")) or "")
    operands, results = operand_leaves(instruction), list(instruction.shape.leaves())
    if make is None or not all(leaf.is_array for leaf in (*operands, *results)):
        return None
    return make(instruction, operands, results)


def _is_matrix(shape: Shape) -> bool:
    return shape.rank >= 2 and is_solved(shape.type)


def _geqrf(instruction: Instruction, operands: list[Shape], results: list[Shape]) -> LibraryCall | None:
    (a,) = operands
    steps = min(a.dimensions[-2:])
    fits = _is_matrix(a) and _holds(results, [(*a.dimensions,), (*a.dimensions[:-2], steps)])
    return ("geqrf_call", (), "cupy.matmul of reflections") if fits else None


def _orgqr(instruction: Instruction, operands: list[Shape], results: list[Shape]) -> LibraryCall | None:
    a, factors = operands
    fits = _is_matrix(a) and _holds(results, [a.dimensions]) and factors.dimensions[-1] <= min(a.dimensions[-2:])
    return ("orgqr_call", (), "cupy.matmul of reflections") if fits else None


def _ormqr(instruction: Instruction, operands: list[Shape], results: list[Shape]) -> LibraryCall | None:
    a, _, c = operands
    arguments = (is_true(instruction, "left", True), is_true(instruction, "transpose"))
    fits = _is_matrix(a) and _is_matrix(c) and _holds(results, [c.dimensions])
    return ("ormqr_call", arguments, "cupy.matmul of reflections") if fits else None


def _getrf(instruction: Instruction, operands: list[Shape], results: list[Shape]) -> LibraryCall | None:
    (a,) = operands
    batch, steps = a.dimensions[:-2], min(a.dimensions[-2:])
    fits = _is_matrix(a) and _holds(results, [a.dimensions, (*batch, steps), batch])
    return ("getrf_call", (), "cupy, column by column") if fits else None


def _potrf(instruction: Instruction, operands: list[Shape], results: list[Shape]) -> LibraryCall | None:
    a = operands[0]
    fits = _is_matrix(a) and _holds(results, [a.dimensions, a.dimensions[:-2]])
    return ("potrf_call", (is_lower(instruction), False), "cupy.linalg.cholesky") if fits else None


def _cusolver_cholesky(instruction: Instruction, operands: list[Shape], results: list[Shape]) -> LibraryCall | None:
    (a,) = operands
    lower = configuration(instruction).get("lower") is True
    fits = _is_matrix(a) and len(results) == 3 and _holds([results[0], results[2]], [a.dimensions, a.dimensions[:-2]])
    return ("potrf_call", (lower, True), "cupy.linalg.cholesky") if fits else None


def _trsm(instruction: Instruction, operands: list[Shape], results: list[Shape]) -> LibraryCall | None:
    if len(results) != 1 or len(operands) != 2 or not all(map(_is_matrix, operands)):
        return None
    return "triangular_solve_call", solved_by_trsm(instruction), "cupyx.scipy.linalg.solve_triangular"


def _pivots(instruction: Instruction, operands: list[Shape], results: list[Shape]) -> LibraryCall | None:
    fits = len(operands) == 1 and len(results) == 1 and operands[0].rank == results[0].rank and operands[0].rank > 0
    return ("pivots_call", (), "cupy") if fits else None


def _syevd(instruction: Instruction, operands: list[Shape], results: list[Shape]) -> LibraryCall | None:
    a = operands[0]
    fits = len(operands) == 1 and _is_matrix(a) and _holds(results, [a.dimensions, a.dimensions[:-1]])
    return ("syevd_call", (is_lower(instruction),), "cupy.linalg.eigh") if fits else None


def _gesdd(instruction: Instruction, operands: list[Shape], results: list[Shape]) -> LibraryCall | None:
    _check_five(results)
    turned = is_true(instruction, "transposed")
    u, v = (results[3], results[2]) if turned else (results[2], results[3])
    wants = u.rank >= 2 and is_true(instruction, "compute_uv", True) and letter(instruction, "mode", "S") != "N"
    return _singular(operands, (u.dimensions[-1], v.dimensions[-2]) if wants else None, "H", turned)


def _gesvdj(instruction: Instruction, operands: list[Shape], results: list[Shape]) -> LibraryCall | None:
    _check_five(results)
    return _singular(operands, (results[2].dimensions[-1], results[3].dimensions[-1]), "V", False)


def _check_five(results: list[Shape]) -> None:
    if len(results) < 5:
        raise ValueError(f"a singular value decomposition has 5 results, not {len(results)}")


def _singular(operands: list[Shape], wanted: tuple[int, int] | None, kind: str, turned: bool) -> LibraryCall | None:
    """SVD. `wanted` is (columns of U, rows of V^H), None for values only. Raises ValueError unless both are full or
    both reduced."""
    (a,) = operands
    if not _is_matrix(a):
        return None
    whole, steps = a.dimensions[-2:], min(a.dimensions[-2:])
    if wanted is not None and wanted not in (whole, (steps, steps)):
        raise ValueError(f"U with {wanted[0]} columns and V^H with {wanted[1]} rows are neither full nor reduced")
    return "gesvd_call", ("" if wanted is None else kind, wanted == whole, turned), "cupy.linalg.svd"


def _holds(results: list[Shape], wanted: list[tuple[int, ...]]) -> bool:
    """Whether the first results have these shapes, as far as there are results."""
    return all(shape.dimensions == dimensions for shape, dimensions in zip(results, wanted, strict=False))


_CALLS: dict[str, Callable[[Instruction, list[Shape], list[Shape]], LibraryCall | None]] = {
    "cusolver_cholesky": _cusolver_cholesky,
    "geqrf": _geqrf,
    "gesdd": _gesdd,
    "gesvdj": _gesvdj,
    "getrf": _getrf,
    "lu_pivots_to_permutation": _pivots,
    "orgqr": _orgqr,
    "ormqr": _ormqr,
    "potrf": _potrf,
    "syevd": _syevd,
    "trsm": _trsm,
}
