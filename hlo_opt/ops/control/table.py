"""Parameters, constants, tuples, calls, loops, branches, asynchronous pairs, markers and transfers.

Semantics: xla/hlo/evaluator/hlo_evaluator.cc and xla/service/hlo_verifier.cc. Transfers are read, checked and scheduled
but not evaluated; their shapes: xla/hlo/ir/hlo_instructions.cc (HloInfeedInstruction, HloSendInstruction,
HloRecvInstruction); attributes: xla/hlo/parser/hlo_parser.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hlo_opt.ir import Called, IndexMap, Instruction, Shape
from hlo_opt.ir.element_type import PRED, S32, TOKEN, U32
from hlo_opt.ir.index_map import identity
from hlo_opt.ops import faces, omitted
from hlo_opt.ops.code import atom
from hlo_opt.ops.faces import lazy
from hlo_opt.ops.indexing.table import lower_identity
from hlo_opt.ops.lowering import Lowering
from hlo_opt.ops.shapes import applied, called_flops, compatible, element, integer, need
from hlo_opt.ops.spec import EVERYTHING, Arity, Calling, OpKind, ShapeError, declare

_TOKEN, _CONTEXT = Shape(TOKEN), Shape(U32)


def infer_operand(instruction: Instruction) -> Shape:
    """The first operand's shape."""
    return instruction.operands[0].shape.without_layout()


def infer_constant(instruction: Instruction) -> Shape:
    if instruction.literal is not None:
        need(instruction.literal.shape.same_values(instruction.shape), "the value and the constant differ in shape")
    return instruction.shape.without_layout()


def infer_get_tuple_element(instruction: Instruction) -> Shape:
    elements, index = instruction.operands[0].shape.elements, integer(instruction, "index")
    if elements is None:
        raise ShapeError(f"the operand is not a tuple but {instruction.operands[0].shape}")
    need(0 <= index < len(elements), f"index={index} of a tuple of {len(elements)}")
    return elements[index].without_layout()


# ---- calls: the `calls` faces say which arguments and results called computations must have
# (xla/service/hlo_verifier.cc)


def _called_whole(instruction: Instruction) -> Iterator[Calling]:
    """The callee gets all operands and returns the result, or, for an async-start, its second element."""
    result: Shape | None = instruction.shape
    if instruction.opcode == "async-start":
        result = (*(instruction.shape.elements or ()), None, None)[1]
    for callee in instruction.called():
        yield callee, [o.shape for o in instruction.operands], result


def _called_in_loop(instruction: Instruction) -> Iterator[Calling]:
    """The state, returning whether to continue, or the next state."""
    for name, result in (("condition", None), ("body", instruction.shape)):
        value = instruction.attributes.get(name)
        if isinstance(value, Called):
            yield value.computations[0], [o.shape for o in instruction.operands], result


def _called_as_branches(instruction: Instruction) -> Iterator[Calling]:
    """Each branch gets one operand and returns the result. Raises ShapeError where operands and branches differ in
    number."""
    called, operands = list(instruction.called()), instruction.operands[1:]
    need(len(called) == len(operands), f"conditional has {len(called)} branches and {len(operands)} operands for them")
    for callee, operand in zip(called, operands, strict=True):
        yield callee, [operand.shape], instruction.shape


def _infer_called(instruction: Instruction) -> Shape:
    return applied(instruction, "calls" if instruction.opcode == "fusion" else "to_apply").root.shape.without_layout()


def infer_while(instruction: Instruction) -> Shape:
    condition = applied(instruction, "condition")
    need(condition.root.shape.same_values(Shape(PRED)), f"condition {condition.name} must return pred[]")
    return instruction.operands[0].shape.without_layout()


def branches(instruction: Instruction) -> list[Called]:
    """The attributes of a conditional that name its branches, by branch index."""
    called = [instruction.attributes.get(n) for n in ("branch_computations", "true_computation", "false_computation")]
    return [value for value in called if isinstance(value, Called)]


def infer_conditional(instruction: Instruction) -> Shape:
    selector = instruction.operands[0].shape
    need(
        selector.same_values(Shape(PRED)) or selector.same_values(Shape(S32)),
        f"the branch index is {selector}, expected pred[] or s32[]",
    )
    computations = [c for value in branches(instruction) for c in value.computations]
    need(bool(computations), "there are no branches")
    return computations[0].root.shape.without_layout()


# ---- asynchronous pairs


def infer_async_start(instruction: Instruction) -> Shape:
    """((operands), outputs, contexts..)"""
    elements = instruction.shape.elements
    if elements is None or len(elements) < 2 or elements[0].elements is None:
        raise ShapeError("an async start has the shape ((operands), outputs, contexts..)")
    operands = Shape.tuple_of(*(o.shape for o in instruction.operands))
    need(compatible(elements[0], operands), f"the operands are {operands}, the first element is {elements[0]}")
    return instruction.shape.without_layout()


def infer_copy_start(instruction: Instruction) -> Shape:
    """(destination, source, context)"""
    source = instruction.operands[0].shape.without_layout()
    return Shape.tuple_of(source, source, _CONTEXT)


# ---- transfers


def _token(instruction: Instruction, number: int) -> Shape:
    """The token shape. Raises ShapeError where the operand is not a token."""
    shape = instruction.operands[number].shape
    need(shape.element_type == TOKEN, f"operand {number} is not a token but {shape}")
    return _TOKEN


def infer_infeed(instruction: Instruction) -> Shape:
    """(data, token); the declared shape defines the data."""
    token = _token(instruction, 0)
    return Shape.tuple_of(element(instruction.shape, 0, "an infeed returns a tuple of data and a token"), token)


def infer_send(instruction: Instruction) -> Shape:
    """(data, context, token)"""
    return Shape.tuple_of(infer_operand(instruction), _CONTEXT, _token(instruction, 1))


def infer_recv(instruction: Instruction) -> Shape:
    """(data, context, token); the declared shape defines the data."""
    token = _token(instruction, 0)
    data = element(instruction.shape, 0, "a recv returns a tuple of data, a context and a token")
    return Shape.tuple_of(data, _CONTEXT, token)


def infer_recv_done(instruction: Instruction) -> Shape:
    """(data, token)"""
    return Shape.tuple_of(element(instruction.operands[0].shape, 0, "recv-done takes the result of a recv"), _TOKEN)


def _shape_of_send(instruction: Instruction) -> Shape:
    return (
        Shape.tuple_of(instruction.operands[0].shape, _CONTEXT, _TOKEN) if instruction.operands else instruction.shape
    )


def _shape_of_recv_done(instruction: Instruction) -> Shape:
    elements = instruction.operands[0].shape.elements if instruction.operands else None
    return Shape.tuple_of(elements[0], _TOKEN) if elements else instruction.shape


# ---- entries


def index_identity(instruction: Instruction, number: int) -> IndexMap | None:
    shape = instruction.shape
    return identity(shape.dimensions) if number == 0 and shape.is_array else None


def index_tuple(instruction: Instruction, number: int) -> IndexMap | None:
    """Element `number` is that operand."""
    shape = instruction.operands[number].shape
    return identity(shape.dimensions) if shape.is_array else None


_THREAD = {"async_execution_thread": False}
_ALIASING = {"output_to_operand_aliasing": False, "calls": True}
_BRANCHES = {"true_computation": False, "false_computation": False, "branch_computations": False}
_CHANNEL = {"channel_id": False, "is_host_transfer": False}
_MARKS = ("add-dependency", "opt-barrier", "domain")
"""Opcodes that return their first operand unchanged."""
_NUMBERS = ("partition-id", "replica-id")
_ROWS: dict[str, tuple[int, int | None, dict[str, bool], Callable[[Instruction], Shape]]] = {
    "parameter": (0, 0, {}, lambda i: i.shape.without_layout()),
    "constant": (0, 0, {}, infer_constant),
    "tuple": (0, None, {}, lambda i: Shape.tuple_of(*(o.shape.without_layout() for o in i.operands))),
    "get-tuple-element": (1, 1, {"index": True}, infer_get_tuple_element),
    "while": (1, 1, {"condition": True, "body": True}, infer_while),
    "conditional": (2, None, _BRANCHES, infer_conditional),
    "call": (0, None, {"to_apply": True, "is_composite": False}, _infer_called),
    "fusion": (0, None, {"kind": True, **_ALIASING}, _infer_called),
    "after-all": (0, None, {}, lambda i: _TOKEN),  # of any operands (xla/service/hlo_verifier.cc, HandleAfterAll)
    "add-dependency": (2, 2, {}, infer_operand),
    "opt-barrier": (1, 1, {}, infer_operand),
    "domain": (1, 1, {"domain": True}, infer_operand),
    "async-start": (0, None, {**_THREAD, **_ALIASING}, infer_async_start),
    "async-update": (1, 1, {**_THREAD, "calls": False}, infer_operand),
    "async-done": (
        1,
        1,
        {**_THREAD, "calls": False},
        lambda i: element(i.operands[0].shape, 1, "an async done takes the result of an async start"),
    ),
    "copy-start": (1, 1, {"cross_program_prefetch_index": False}, infer_copy_start),
    "copy-done": (1, 1, {}, lambda i: element(i.operands[0].shape, 0, "copy-done takes the result of a copy-start")),
    **dict.fromkeys(_NUMBERS, (0, 0, {}, lambda i: Shape(U32))),
}
_TRANSFERS: dict[str, tuple[int, dict[str, bool], Callable[[Instruction], Shape]]] = {
    "infeed": (1, {"infeed_config": False}, infer_infeed),
    "outfeed": (2, {"outfeed_shape": False, "outfeed_config": False}, lambda i: _token(i, 1)),
    "recv": (1, _CHANNEL, infer_recv),
    "recv-done": (1, _CHANNEL, infer_recv_done),
    "send": (2, _CHANNEL, infer_send),
    "send-done": (1, _CHANNEL, lambda i: _TOKEN),
}
_LOWERINGS: dict[str, Lowering] = {
    **dict.fromkeys(_MARKS, lower_identity),
    **dict.fromkeys(_NUMBERS, lambda builder, i, index: atom("0u")),
}
_ACCEPTS: dict[str, tuple[str, ...]] = {"after-all": (), "send-done": (), **dict.fromkeys(_NUMBERS, ("u32",))}
_OMITTED: dict[str, omitted.Omitted | None] = {
    **dict.fromkeys(("parameter", "constant", "fusion")),
    **dict.fromkeys(("conditional", "call"), lambda i, shape: next(i.called()).root.shape),
    **dict.fromkeys(("add-dependency", "domain"), omitted.as_operand()),
    "tuple": lambda i, shape: Shape.tuple_of(*(o.shape for o in i.operands)),
    "get-tuple-element": omitted.of_element,
    "while": lambda i, shape: i.operands[0].shape,
}
_IMPLIED: dict[str, Callable[[Instruction], Shape]] = {
    **dict.fromkeys(("after-all", "outfeed", "send-done"), lambda i: _TOKEN),
    "add-dependency": lambda i: i.operands[0].shape if i.operands else i.shape,
    "recv-done": _shape_of_recv_done,
    "send": _shape_of_send,
}
_LAUNCHES = frozenset({"fusion", "async-start", "copy-start", "copy-done"})
"""Opcodes that may launch work; all others launch nothing."""
_DECIDES = frozenset({"while", "conditional"})
_CALLS = {
    "while": _called_in_loop,
    "conditional": _called_as_branches,
    **dict.fromkeys(("call", "fusion", "async-start"), _called_whole),
}
_INDICES = {"tuple": index_tuple, **dict.fromkeys(_MARKS, index_identity)}

for _opcode, (_least, _most, _attributes, _infer) in _ROWS.items():
    declare(
        _opcode,
        OpKind.CONTROL,
        Arity(_least, _most),
        _attributes,
        _ACCEPTS.get(_opcode, EVERYTHING),
        infer=_infer,
        evaluate=lazy("control.meaning", _opcode.replace("-", "_") + "_" * (_opcode in ("while", "tuple"))),
        index=_INDICES.get(_opcode),
        cuda=_LOWERINGS.get(_opcode),
        flops=(lambda i: sum(map(called_flops, i.called()))) if _opcode in _CALLS else None,
        tolerance=faces.bit_exact,
        expensive=None if _opcode in _CALLS else faces.never,
        omitted=_OMITTED.get(_opcode, omitted.anew),
        implied=_IMPLIED.get(_opcode),
        calls=_CALLS.get(_opcode),
        call=lazy("calls.order", "sort_fusion") if _opcode == "fusion" else None,
        ways=lazy("ways", _opcode.upper()) if _opcode in _DECIDES else None,
        is_free=_opcode not in _LAUNCHES,
        hands_on=_opcode not in _DECIDES,
        is_identity=_infer is infer_operand,
    )
for _opcode, (_least, _attributes, _infer) in _TRANSFERS.items():
    declare(
        _opcode,
        OpKind.COLLECTIVE,
        Arity(_least, _least),
        _attributes,
        _ACCEPTS.get(_opcode, EVERYTHING),
        infer=_infer,
        implied=_IMPLIED.get(_opcode),
        side_effects=True,
        is_library=True,
    )
