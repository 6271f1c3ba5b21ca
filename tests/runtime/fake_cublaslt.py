"""A stand-in for cuBLASLt: descriptors as it has them, two algorithms for each product, and what these compute."""

import ctypes
from collections.abc import Callable
from typing import Any

import fake_cublas
import numpy

_SIZES = {
    "MatmulDesc": {3: 4, 4: 4, 7: 4, 8: 8, 26: 4},
    "MatrixLayout": {5: 4, 6: 8},
    "MatmulPreference": {1: 8, 3: 4, 5: 4, 6: 4, 7: 4, 8: 4},
}
"""Bytes of attributes (cublasLt.h)."""
_RESULT = 64 + 8 + 4 + 4 + 16
_WORKSPACE = 4096
FASTEST = 2
"""The algorithm that takes the least time; 1 is the one that the heuristics name first."""


class CublasLt:
    """`do(work, buffers)` works on buffers, or captures that. `stream_of` is the current stream."""

    def __init__(self, do: Callable[..., None], stream_of: Callable[[], int]) -> None:
        self.do, self.stream_of = do, stream_of
        self.descriptors: dict[int, tuple[str, list[int], dict[int, int]]] = {}
        self.ran: list[tuple[int, int]] = []
        """Algorithms, and numbers of epilogues, of products."""
        self.refuses: set[int] = set()
        """Numbers of epilogues without an algorithm."""
        self.cublasLtCreate = lambda made: self._create("handle", made)
        self.cublasLtDestroy = self._destroy
        for kind in _SIZES:
            setattr(self, f"cublasLt{kind}Create", lambda made, *rest, of=kind: self._create(of, made, *rest))
            setattr(self, f"cublasLt{kind}SetAttribute", self._set)
            setattr(self, f"cublasLt{kind}Destroy", self._destroy)
        self.cublasLtMatmulAlgoGetHeuristic = self._named
        self.cublasLtMatmul = self._multiply

    def _create(self, kind: str, made: Any, *arguments: int) -> int:
        made._obj.value = 1000 + len(self.descriptors)
        self.descriptors[made._obj.value] = (kind, list(arguments), {})
        return 0

    def _destroy(self, pointer: int) -> int:
        return 0

    def _set(self, pointer: int, attribute: int, value: int, size: int) -> int:
        kind, _, attributes = self.descriptors[pointer]
        assert size == _SIZES[kind][attribute]
        attributes[attribute] = int.from_bytes(ctypes.string_at(value, size), "little", signed=True)
        return 0

    def _named(self, *arguments: Any) -> int:
        handle, operation, right, left, result, _, preference, most, results, count = arguments
        kinds = [self.descriptors[p][0] for p in (handle, operation, right, left, result, preference)]
        assert kinds == ["handle", "MatmulDesc", *["MatrixLayout"] * 3, "MatmulPreference"]
        attributes = self.descriptors[preference][2]
        assert attributes[1] >= _WORKSPACE and attributes[3] == 2
        if self.descriptors[operation][2][7] in self.refuses:
            return 15
        given = min(most, 2)
        for number in range(given):
            ctypes.memset(results + number * _RESULT, 0, _RESULT)
            ctypes.c_uint64.from_address(results + number * _RESULT).value = number + 1
            ctypes.c_uint64.from_address(results + number * _RESULT + 64).value = _WORKSPACE
        count._obj.value = given
        return 0

    def _multiply(self, *arguments: Any) -> int:
        handle, operation, one, right, right_as, left, left_as, zero, before, _, target, result_as = (
            a.value for a in arguments[:12]
        )
        words, workspace, size, stream = (a.value for a in arguments[12:])
        algorithm = ctypes.c_uint64.from_address(words).value
        assert self.descriptors[handle][0] == "handle" and before == target and algorithm in (1, 2)
        assert stream == self.stream_of() and workspace and size == _WORKSPACE
        assert [ctypes.c_float.from_address(at).value for at in (one, zero)] == [1, 0]
        (_, (compute, _), how), *layouts = (self.descriptors[p] for p in (operation, right_as, left_as, result_as))
        (b, b_more), (a, a_more), (c, c_more) = ((numbers, more) for _, numbers, more in layouts)
        turns_b, turns_a, epilogue = how[3], how[4], how[7]
        n, m, k = c[1], c[2], b[1] if turns_b else b[2]
        assert (b[1:3], a[1:3]) == ([k, n] if turns_b else [n, k], [m, k] if turns_a else [k, m])
        numbers = (
            *(turns_b, turns_a, n, m, k, one, right, b[0], b[3], b_more[6], left, a[0], a[3], a_more[6], zero),
            *(target, c[0], c[3], c_more[6], c_more[5], compute, -1),
        )
        bias = how[8] if epilogue & 4 else 0

        def work(*_: Any) -> None:
            fake_cublas.multiply(7, *numbers)
            self.ran.append((algorithm, epilogue))
            if epilogue != 1:
                _finish(epilogue, bias, target, c, c_more)

        dtypes = [numpy.dtype(fake_cublas.DTYPES[t]) for t in (b[0], a[0], c[0])]
        places = zip((right, left, target), dtypes, strict=True)
        firsts = [numpy.ndarray(1, t, (ctypes.c_char * t.itemsize).from_address(p)) for p, t in places]
        self.do(work, firsts)
        return 0


def _finish(epilogue: int, bias: int, target: int, result: list[int], more: dict[int, int]) -> None:
    """Add the bias, and apply the activation, to f32 results."""
    number, columns, rows, step = result
    assert number == 0
    for at in range(more[5]):
        address = target + 4 * at * more[6]
        raw = numpy.frombuffer((ctypes.c_char * (4 * ((rows - 1) * step + columns))).from_address(address), "f4")
        values = numpy.lib.stride_tricks.as_strided(raw, (rows, columns), (4 * step, 4))
        if bias:
            values += numpy.frombuffer((ctypes.c_char * (4 * columns)).from_address(bias), "f4")
        if epilogue & 2:
            values[...] = numpy.maximum(values, 0)
        if epilogue & 32:
            values[...] = 0.5 * values * (1 + numpy.tanh(0.7978845608 * (values + 0.044715 * values**3)))
