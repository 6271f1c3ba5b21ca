"""Collectives: shape inference and table entries. With one replica and one partition they move nothing.

Shapes: xla/service/shape_inference.cc and xla/service/hlo_verifier.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.element_type import U32
from hlo_opt.ops import faces
from hlo_opt.ops.control.table import infer_operand
from hlo_opt.ops.faces import lazy
from hlo_opt.ops.shapes import distinct, element, need, operand
from hlo_opt.ops.spec import Arity, Calling, OpKind, ShapeError, declare


def _operands(instruction: Instruction) -> Shape:
    """One operand's shape, or the tuple of all of them."""
    shapes = [operand(instruction, k).without_layout() for k in range(len(instruction.operands))]
    return shapes[0] if len(shapes) == 1 and not instruction.shape.is_tuple else Shape.tuple_of(*shapes)


def _check_scaled(instruction: Instruction, declared: Shape, number: int, *, grows: bool) -> None:
    source = operand(instruction, number)
    (along,) = distinct(instruction.ints("dimensions")[:1], source.rank, "dimensions") or (0,)
    if not declared.is_array or declared.rank != source.rank:
        raise ShapeError(f"operand {number} is {source}, its result {declared}")
    for d, (a, b) in enumerate(zip(source.dimensions, declared.dimensions, strict=True)):
        if d != along:
            need(a == b, f"operand {number} is {source}, its result {declared}: only dimension {along} may change")
    small, large = source.dimensions[along], declared.dimensions[along]
    if not grows:
        small, large = large, small
    need(large == small or (small > 0 and large % small == 0), f"{large} is not a multiple of {small}")


def _infer_scaled(instruction: Instruction, *, grows: bool) -> Shape:
    """The declared result. One dimension is a multiple of the operand's (or the reverse), by the number of
    participants."""
    leaves = list(instruction.shape.leaves())
    need(len(leaves) == len(instruction.operands), f"{len(instruction.operands)} operands give {len(leaves)} results")
    for number, leaf in enumerate(leaves):
        _check_scaled(instruction, leaf, number, grows=grows)
    return instruction.shape.without_layout()


def _infer_gather_start(instruction: Instruction) -> Shape:
    """((operands), results)"""
    element(instruction.shape, 1, "all-gather-start returns (operands, results)")
    return instruction.shape.without_layout()


def _second(instruction: Instruction) -> Shape:
    """The results of a start with the shape (operands, results, contexts..)."""
    return element(instruction.operands[0].shape, 1, f"{instruction.opcode} takes the result of its start")


def _pairs(instruction: Instruction) -> Iterator[Calling]:
    """A `calls` face: the reducer takes two values at a time."""
    return ((callee, (None, None), None) for callee in instruction.called())


def infer_permute_start(instruction: Instruction) -> Shape:
    """(operand, result, two u32 contexts); older dumps omit the contexts."""
    element(instruction.shape, 1, "collective-permute-start returns (operand, result, contexts..)")
    if len(instruction.operands) > 1:
        return instruction.shape.without_layout()
    source, contexts = infer_operand(instruction), (instruction.shape.elements or ())[2:]
    return Shape.tuple_of(source, source, *(Shape(U32) for _ in contexts))


def infer_permute(instruction: Instruction) -> Shape:
    """The operand's shape; with slices, the shape of the second operand, into which they are written."""
    if len(instruction.operands) == 4 and "slice_sizes" in instruction.attributes:
        return instruction.operands[1].shape.without_layout()
    return _operands(instruction)


def infer_all_to_all(instruction: Instruction) -> Shape:
    """The shape of one array whose blocks are exchanged, or a tuple with one array per participant."""
    if "dimensions" in instruction.attributes and len(instruction.operands) == 1 and instruction.shape.is_array:
        shape = operand(instruction, 0)
        distinct(instruction.ints("dimensions")[:1], shape.rank, "dimensions")
        return shape.without_layout()
    return Shape.tuple_of(*(operand(instruction, k).without_layout() for k in range(len(instruction.operands))))


_GROUPS = {"channel_id": False, "replica_groups": False}
_GATHER = {**_GROUPS, "constrain_layout": False, "dimensions": True, "use_global_device_ids": False}
_FLAGS = {**_GROUPS, "constrain_layout": False, "use_global_device_ids": False}
_FOLD = {"to_apply": True, "mode": False}
_REDUCE = {**_FLAGS, **_FOLD}
_PERMUTE = {"channel_id": False, "source_target_pairs": True, "slice_sizes": False}
_ANY, _ONE = Arity(1, None), Arity(1, 1)
_ROWS: dict[str, tuple[Arity, dict[str, bool], Callable[[Instruction], Shape]]] = {
    "all-reduce": (_ANY, _REDUCE, _operands),
    "all-reduce-start": (_ANY, _REDUCE, _operands),
    "all-reduce-done": (_ONE, {}, infer_operand),
    "reduce-scatter": (_ANY, {**_FLAGS, "dimensions": True, **_FOLD}, partial(_infer_scaled, grows=False)),
    "all-gather": (_ANY, _GATHER, partial(_infer_scaled, grows=True)),
    "all-gather-start": (_ANY, _GATHER, _infer_gather_start),
    "all-gather-done": (_ONE, {}, _second),
    "all-to-all": (_ANY, {**_GROUPS, "constrain_layout": False, "dimensions": False}, infer_all_to_all),
    # the second operand is the buffer that rows are written into
    "ragged-all-to-all": (
        Arity(6, 6),
        {**_GROUPS, "dimensions": False},
        lambda i: i.operands[1].shape.without_layout(),
    ),
    "collective-permute": (_ANY, _PERMUTE, infer_permute),
    "collective-permute-start": (_ANY, _PERMUTE, infer_permute_start),
    "collective-permute-done": (_ONE, {}, _second),
    "collective-broadcast": (_ANY, _GROUPS, _operands),
}
for _opcode, (_arity, _attributes, _infer) in _ROWS.items():
    declare(
        _opcode,
        OpKind.COLLECTIVE,
        _arity,
        _attributes,
        infer=_infer,
        evaluate=lazy("collective.meaning", _opcode.replace("-", "_")),
        tolerance=faces.rounded(64) if "reduce" in _opcode else faces.bit_exact,
        scratch=lazy("scratch", "applied") if _opcode in ("all-reduce", "reduce-scatter") else None,
        calls=_pairs if "to_apply" in _attributes else None,
        call=lazy("calls.collectives", "exchange"),
        side_effects=True,
        is_library=True,
    )
