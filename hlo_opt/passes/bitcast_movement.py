"""Reshapes, transposes and copies that keep every element in its place in memory become bitcasts, which launch nothing.

JAX writes many a transpose with a layout that makes it one. In a kernel nothing is launched in either case, but a
reshape of an operand counts as a reading of its own in XLA's cost analysis (xla/service/hlo_cost_analysis.cc,
FusionParameterReadBytes), and a bitcast does not. Source of the idea:
xla/hlo/transforms/expanders/reshape_decomposer.cc and xla/service/layout_normalization.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from hlo_opt.ir import Computation, Instruction, Module, Shape, edit
from hlo_opt.ir.walk import executed_computations
from hlo_opt.ops.sets import fused, launches, tuple_index
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.plans.choose import is_left_to_library


@dataclass(frozen=True)
class BitcastMovement(RewritingPass):
    """Turn operations that move no byte into bitcasts. An operation between a parameter and a result of the computation
    stays, because results have memory of their own.

    reshapes  reshapes, too, not only transposes and copies; passes that look for loops know reshapes better
    inputs    reshapes that no kernel could contain: their operand is an input of the computation, such as a weight, or
              a library's result, and only loops and libraries read them
    kernels   in kernels instead: reshapes of an operand that the kernel reads in another way, too
    """

    name: ClassVar[str] = "bitcast-movement"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"
    idempotent: ClassVar[bool] = True

    reshapes: bool = True
    inputs: bool = True
    kernels: bool = False

    def computations(self, module: Module) -> Iterable[Computation]:
        if not self.kernels:
            return super().computations(module)
        bodies = [fused(i) for c in executed_computations(module) for i in c.instructions]
        return dict.fromkeys(body for body in bodies if body is not None)

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        waited_for = {p for i in computation.instructions for p in i.control_predecessors}
        for i in list(computation.instructions):
            if i.opcode not in ("reshape", "transpose", "copy") or i in waited_for:
                continue
            if not _moves_nothing(i) or _is_result(i):
                continue
            if self.kernels:
                if i.opcode == "reshape" and _reads_what_others_read(i):
                    yield partial(_put, i)
            elif self.reshapes or i.opcode != "reshape" or (self.inputs and _is_handed_on(i)):
                yield partial(_put, i)


def _is_handed_on(reshape: Instruction) -> bool:
    """Whether the operand comes from no kernel of the computation, and no kernel reads the result."""
    value = reshape.operands[0]
    if value.parameter_number is None and tuple_index(value) is None and not is_left_to_library(value):
        return False
    return not any(launches(user) and not is_left_to_library(user) for user in reshape.users)


def _reads_what_others_read(reshape: Instruction) -> bool:
    value = reshape.operands[0]
    return value.parameter_number is not None and len(value.users) > 1


def _put(move: Instruction) -> None:
    """Replace the operation by a bitcast."""
    kept = {n: a for n, a in move.attributes.items() if n != "dimensions"}
    bitcast = edit.create(move.computation, "bitcast", "bitcast", move.shape, move.operands, kept)
    edit.redirect_users(move, bitcast)
    edit.remove(move)


def _moves_nothing(move: Instruction) -> bool:
    source, shape = move.operands[0].shape, move.shape
    waits = move.control_predecessors or "sharding" in move.attributes
    if waits or len(move.operands) != 1 or not (_is_plain(source) and _is_plain(shape)):
        return False
    if move.opcode == "reshape":
        return (
            _large(source) == _large(shape)
            if _has_ones_only(source, shape)
            else source.is_row_major and shape.is_row_major
        )
    order = move.ints("dimensions") if move.opcode == "transpose" else tuple(range(shape.rank))
    at = [order.index(d) for d in source.minor_to_major]
    return [d for d in at if shape.dimensions[d] != 1] == [d for d in shape.minor_to_major if shape.dimensions[d] != 1]


def _is_plain(shape: Shape) -> bool:
    if not shape.is_array or any(shape.dynamic) or shape.is_buffer:
        return False
    return shape.layout is None or not shape.layout.tail


def _has_ones_only(source: Shape, shape: Shape) -> bool:
    """Whether a reshape adds or drops dimensions of size 1, and does nothing else."""
    return [n for n in source.dimensions if n != 1] == [n for n in shape.dimensions if n != 1]


def _large(shape: Shape) -> list[int]:
    """The dimensions of sizes other than 1 in the order of the layout, numbered among themselves."""
    places = [d for d, n in enumerate(shape.dimensions) if n != 1]
    return [places.index(d) for d in shape.minor_to_major if shape.dimensions[d] != 1]


def _is_result(move: Instruction) -> bool:
    """Whether the computation returns nothing but its own parameter."""
    value = move.operands[0]
    while value.opcode in ("bitcast", "reshape", "transpose", "copy"):
        value = value.operands[0]
    if value.parameter_number is None:
        return False
    root = move.computation.root
    return move is root or (root.opcode == "tuple" and move in root.operands)
