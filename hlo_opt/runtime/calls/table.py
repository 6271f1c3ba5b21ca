"""Library calls that a GPU does through CuPy: one entry per opcode. What has none cannot run there."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hlo_opt.ir import ElementType, Instruction
from hlo_opt.ir.element_type import ELEMENT_TYPES
from hlo_opt.ops.indexing.gather_dimensions import scatter_dimensions
from hlo_opt.ops.reduction.reducers import monoid, picks
from hlo_opt.runtime.calls.library import Call, described, library_call, plain
from hlo_opt.runtime.library import functions


@dataclass(frozen=True)
class DeviceCall:
    """A call of `library.functions`: `function(xp, buffers, shapes, *arguments)` gives the output buffers.

    shapes     (type, stored dtype, dimensions, layout) of the operands, then of the results
    arguments  plain values that `repr` writes
    does       the CuPy function that does the work, for reports
    """

    function: str
    shapes: tuple[tuple[str, str, tuple[int, ...], tuple[int, ...]], ...]
    arguments: tuple[Any, ...]
    does: str

    def run(self, xp: Any, buffers: Sequence[Any]) -> list[Any]:
        """The output buffers."""
        given = list(buffers)
        for number, (bits, count) in self.packed.items():
            if number < len(given):
                given[number] = functions.unpacked(xp, given[number], bits, count)
        made: list[Any] = getattr(functions, self.function)(xp, given, self.shapes, *self.arguments)
        for number, (bits, _) in self.packed.items():
            if number >= len(given):
                made[number - len(given)] = functions.packed(xp, made[number - len(given)], bits)
        return made

    @property
    def packed(self) -> dict[int, tuple[int, int]]:
        """Bits of an element and elements of each shape of which several elements share a byte, by its number among the shapes."""
        found = {}
        for number, (name, _, dimensions, _) in enumerate(self.shapes):
            if ELEMENT_TYPES[name].per_byte > 1:
                found[number] = ELEMENT_TYPES[name].bits, math.prod(dimensions)
        return found


def call_of(instruction: Instruction) -> DeviceCall | None:
    """How CuPy computes an instruction, or None where it cannot."""
    made = library_call(instruction) or _CALLS.get(instruction.opcode, _complex)(instruction)
    if made is None:
        return None
    function, arguments, does = made
    shapes = [*(leaf for o in instruction.operands for leaf in o.shape.leaves()), *instruction.shape.leaves()]
    return DeviceCall(function, tuple(map(described, shapes)), arguments, does)


def texts_of(names: Sequence[str]) -> list[str]:
    """The Python text of functions of `library.functions` and of those that they call, callees first."""
    order: dict[str, None] = {}
    todo = [(name, False) for name in reversed(names)]
    while todo:
        name, ready = todo.pop()
        if name in order:
            continue
        if ready:
            order[name] = None
            continue
        todo.append((name, True))
        codes = [getattr(functions, name).__code__]
        for code in codes:  # with the comprehensions inside, whose code is among the constants
            codes.extend(c for c in code.co_consts if inspect.iscode(c))
            todo.extend((n, False) for n in code.co_names if inspect.isfunction(getattr(functions, n, None)))
    return [inspect.getsource(getattr(functions, name)).rstrip() for name in order]


_COMBINERS = {"add": "add", "maximum": "maximum", "minimum": "minimum"}


def _scatter(instruction: Instruction) -> Call | None:
    if len(instruction.operands) != 3 or not instruction.shape.is_array:
        return None
    source, indices, _ = (o.shape for o in instruction.operands)
    combiner = instruction.called_by("to_apply")
    combine = "assign" if picks(combiner) == 1 else _COMBINERS.get(monoid(combiner) or "")
    wide = _scattered_in(source.type) if combine != "add" or not source.type.is_narrow_float else None
    if combine is None or wide is None or not plain(source) or not indices.type.is_integer:
        return None
    s = scatter_dimensions(instruction)
    window = iter(s.offset_dims)
    by_dimension = []
    for d in range(source.rank):
        component = s.start_index_map.index(d) if d in s.start_index_map else None
        along = None
        if d in s.batching.operand_dims:
            indices_dim = s.batching.indices_dims[s.batching.operand_dims.index(d)]
            along = indices_dim - (indices_dim > s.index_vector_dim)
        by_dimension.append((component, along, None if d in s.removed else next(window)))
    does = "assignment by index" if combine == "assign" else f"cupy.{combine}.at"
    return "scatter_call", ((tuple(by_dimension), s.index_vector_dim), combine, wide), does


def _scattered_in(element_type: ElementType) -> str | None:
    """A type that CuPy's atomic updates know, wide enough for the element type; sums wrap as they do in the type itself. Sums of narrow floats it does not round on the way."""
    if element_type.is_narrow_float or element_type.name == "f32":
        return "float32"
    if element_type.name == "f64":
        return "float64"
    if element_type.is_integer:
        if element_type.bits <= 32:
            return "int32" if element_type.kind == "signed" else "uint32"
        return "uint64" if element_type.kind == "unsigned" else None
    return None


_FUNCTIONS = {
    "abs": "abs",
    "add": "add",
    "complex": "pair",
    "cosine": "cos",
    "divide": "divide",
    "exponential": "exp",
    "imag": "imag",
    "log": "log",
    "multiply": "multiply",
    "negate": "negative",
    "power": "power",
    "real": "real",
    "sine": "sin",
    "sqrt": "sqrt",
    "subtract": "subtract",
    "tanh": "tanh",
}
"""CuPy's name of an elementwise operation on complex numbers, which kernels of ours do not hold."""


def _complex(instruction: Instruction) -> Call | None:
    function = _FUNCTIONS.get(instruction.opcode)
    shapes = [*(o.shape for o in instruction.operands), instruction.shape]
    if function is None or not any(s.is_array and s.type.is_complex for s in shapes):
        return None
    return "complex_call", (function,), "cupy" if function == "pair" else f"cupy.{function}"


_CALLS: dict[str, Callable[[Instruction], Call | None]] = {"scatter": _scatter}
