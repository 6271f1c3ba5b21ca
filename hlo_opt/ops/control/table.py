"""Parameters, constants, tuples, calls, loops, branches, asynchronous pairs and markers: what holds a program together.

Semantics: xla/hlo/evaluator/hlo_evaluator.cc and xla/service/hlo_verifier.cc.
"""

from __future__ import annotations

from collections.abc import Callable

from hlo_opt.ir import Called, IndexMap, Instruction, Shape
from hlo_opt.ir.element_type import PRED, S32, TOKEN, U32
from hlo_opt.ir.index_map import identity
from hlo_opt.ops import calling, omitted
from hlo_opt.ops.code import Code, atom
from hlo_opt.ops.lazy import lazy
from hlo_opt.ops.lowering import Index, KernelBuilder, Lowering
from hlo_opt.ops.shapes import (
    applied,
    bit_exact,
    called_flops,
    cheap,
    check_parameters,
    compatible,
    integer,
    need,
    no_flops,
)
from hlo_opt.ops.spec import EVERYTHING, Arity, OpKind, OpSpec, ShapeError, register


def infer_as_declared(instruction: Instruction) -> Shape:
    """Nothing is implied: the declaration is the fact."""
    return instruction.shape.without_layout()


def infer_operand(instruction: Instruction) -> Shape:
    """The first operand's shape."""
    return instruction.operands[0].shape.without_layout()


def infer_constant(instruction: Instruction) -> Shape:
    if instruction.literal is not None:
        need(instruction.literal.shape.same_values(instruction.shape), "the value has another shape than the constant")
    return instruction.shape.without_layout()


def infer_tuple(instruction: Instruction) -> Shape:
    return Shape.tuple_of(*(o.shape.without_layout() for o in instruction.operands))


def infer_get_tuple_element(instruction: Instruction) -> Shape:
    elements, index = instruction.operands[0].shape.elements, integer(instruction, "index")
    if elements is None:
        raise ShapeError(f"the operand is no tuple but {instruction.operands[0].shape}")
    need(0 <= index < len(elements), f"index={index} of a tuple of {len(elements)}")
    return elements[index].without_layout()


def infer_while(instruction: Instruction) -> Shape:
    state = instruction.operands[0].shape
    condition, body = applied(instruction, "condition"), applied(instruction, "body")
    check_parameters(condition, [state], "condition")
    check_parameters(body, [state], "body")
    need(condition.root.shape.same_values(Shape(PRED)), f"condition {condition.name} must return pred[]")
    need(compatible(body.root.shape, state), f"body {body.name} returns {body.root.shape}, takes {state}")
    return state.without_layout()


def branches(instruction: Instruction) -> list[Called]:
    """The attributes of a conditional that name its branches, in order of the branch index."""
    found = [instruction.attributes.get(n) for n in ("branch_computations", "true_computation", "false_computation")]
    return [value for value in found if isinstance(value, Called)]


def infer_conditional(instruction: Instruction) -> Shape:
    selector = instruction.operands[0].shape
    need(
        selector.same_values(Shape(PRED)) or selector.same_values(Shape(S32)),
        f"the branch index is {selector}, expected pred[] or s32[]",
    )
    computations = [c for value in branches(instruction) for c in value.computations]
    need(bool(computations), "there are no branches")
    need(
        len(computations) == len(instruction.operands) - 1,
        f"{len(computations)} branches, {len(instruction.operands) - 1} branch operands",
    )
    first = computations[0].root.shape
    for computation, argument in zip(computations, instruction.operands[1:], strict=True):
        check_parameters(computation, [argument.shape], "branch")
        need(
            compatible(computation.root.shape, first),
            f"branch {computation.name} returns {computation.root.shape}, the first branch {first}",
        )
    return first.without_layout()


def _infer_called(instruction: Instruction, name: str) -> Shape:
    computation = applied(instruction, name)
    check_parameters(computation, [o.shape for o in instruction.operands], "computation")
    return computation.root.shape.without_layout()


def infer_call(instruction: Instruction) -> Shape:
    return _infer_called(instruction, "to_apply")


def infer_fusion(instruction: Instruction) -> Shape:
    return _infer_called(instruction, "calls")


def flops_call(instruction: Instruction) -> float:
    """One run of the computation."""
    return sum(called_flops(computation) for computation in instruction.called())


def infer_after_all(instruction: Instruction) -> Shape:
    """A token, whatever it waits for (xla/service/hlo_verifier.cc, HandleAfterAll)."""
    return Shape(TOKEN)


def infer_async_start(instruction: Instruction) -> Shape:
    """((operands), outputs, contexts..)"""
    elements = instruction.shape.elements
    if elements is None or len(elements) < 2 or elements[0].elements is None:
        raise ShapeError("an async start gives ((operands), outputs, contexts..)")
    operands = Shape.tuple_of(*(o.shape for o in instruction.operands))
    need(compatible(elements[0], operands), f"the operands are {operands}, the first element is {elements[0]}")
    return instruction.shape.without_layout()


def infer_async_done(instruction: Instruction) -> Shape:
    elements = instruction.operands[0].shape.elements
    if elements is None or len(elements) < 2:
        raise ShapeError("an async done takes what an async start gives")
    return elements[1].without_layout()


def infer_number(instruction: Instruction) -> Shape:
    return Shape(U32)


def infer_copy_start(instruction: Instruction) -> Shape:
    """(destination, source, context)"""
    source = instruction.operands[0].shape.without_layout()
    return Shape.tuple_of(source, source, Shape(U32))


def infer_copy_done(instruction: Instruction) -> Shape:
    elements = instruction.operands[0].shape.elements
    if not elements:
        raise ShapeError("copy-done takes what copy-start gives")
    return elements[0].without_layout()


def index_identity(instruction: Instruction, number: int) -> IndexMap | None:
    shape = instruction.shape
    return identity(shape.dimensions) if number == 0 and shape.is_array else None


def index_tuple(instruction: Instruction, number: int) -> IndexMap | None:
    """Element `number` is the operand as it is."""
    shape = instruction.operands[number].shape
    return identity(shape.dimensions) if shape.is_array else None


def index_none(instruction: Instruction, number: int) -> IndexMap | None:
    return None


def lower_identity(builder: KernelBuilder, instruction: Instruction, index: Index) -> Code:
    return builder.value(instruction.operands[0], index)


def lower_zero(builder: KernelBuilder, instruction: Instruction, index: Index) -> Code:
    """The number of the only device."""
    return atom("0u")


_ASYNC = {"async_execution_thread": False, "calls": False}
_ROWS: dict[str, tuple[Arity, dict[str, bool], Callable[[Instruction], Shape]]] = {
    "parameter": (Arity(0, 0), {}, infer_as_declared),
    "constant": (Arity(0, 0), {}, infer_constant),
    "tuple": (Arity(0, None), {}, infer_tuple),
    "get-tuple-element": (Arity(1, 1), {"index": True}, infer_get_tuple_element),
    "while": (Arity(1, 1), {"condition": True, "body": True}, infer_while),
    "conditional": (
        Arity(2, None),
        {"true_computation": False, "false_computation": False, "branch_computations": False},
        infer_conditional,
    ),
    "call": (
        Arity(0, None),
        {"to_apply": True, "is_composite": False},
        infer_call,
    ),
    "fusion": (Arity(0, None), {"kind": True, "output_to_operand_aliasing": False, "calls": True}, infer_fusion),
    "after-all": (Arity(0, None), {}, infer_after_all),
    "add-dependency": (Arity(2, 2), {}, infer_operand),
    "opt-barrier": (Arity(1, 1), {}, infer_operand),
    "domain": (Arity(1, 1), {"domain": True}, infer_operand),
    "async-start": (
        Arity(0, None),
        {"async_execution_thread": False, "output_to_operand_aliasing": False, "calls": True},
        infer_async_start,
    ),
    "async-update": (Arity(1, 1), _ASYNC, infer_operand),
    "async-done": (Arity(1, 1), _ASYNC, infer_async_done),
    "copy-start": (Arity(1, 1), {"cross_program_prefetch_index": False}, infer_copy_start),
    "copy-done": (Arity(1, 1), {}, infer_copy_done),
    "partition-id": (Arity(0, 0), {}, infer_number),
    "replica-id": (Arity(0, 0), {}, infer_number),
}
_LOWERINGS: dict[str, Lowering] = {
    "add-dependency": lower_identity,
    "opt-barrier": lower_identity,
    "domain": lower_identity,
    "partition-id": lower_zero,
    "replica-id": lower_zero,
}
_ACCEPTS = {"after-all": (), "partition-id": ("u32",), "replica-id": ("u32",)}
_OMITTED: dict[str, omitted.Omitted | None] = {
    "parameter": None,
    "constant": None,
    "tuple": omitted.of_operands,
    "get-tuple-element": omitted.of_element,
    "while": omitted.of_state,
    "conditional": omitted.of_root,
    "call": omitted.of_root,
    "fusion": None,
    "add-dependency": omitted.as_operand(),
    "domain": omitted.as_operand(),
}
_GIVEN = {"add-dependency": omitted.first_given, "after-all": omitted.token_given}
_LAUNCHES = frozenset({"fusion", "async-start", "copy-start", "copy-done"})
"""The rest launches nothing by itself."""
_DECIDES = frozenset({"while", "conditional"})
_CALLS = {
    "while": calling.loop,
    "conditional": calling.branches,
    "call": calling.whole,
    "fusion": calling.whole,
    "async-start": calling.started,
}
_INDICES: dict[str, Callable[[Instruction, int], IndexMap | None]] = {
    "tuple": index_tuple,
    "add-dependency": index_identity,
    "opt-barrier": index_identity,
    "domain": index_identity,
}

for _opcode, (_arity, _attributes, _infer) in _ROWS.items():
    register(
        OpSpec(
            _opcode,
            OpKind.CONTROL,
            _arity,
            _attributes,
            _ACCEPTS.get(_opcode, EVERYTHING),
            infer=_infer,
            evaluate=lazy("control.meaning", _opcode.replace("-", "_") + "_" * (_opcode in ("while", "tuple"))),
            index=_INDICES.get(_opcode, index_none),
            cuda=_LOWERINGS.get(_opcode),
            flops=flops_call if _opcode in _CALLS else no_flops,
            tolerance=bit_exact,
            expensive=None if _opcode in _CALLS else cheap,
            omitted=_OMITTED.get(_opcode, omitted.anew),
            given=_GIVEN.get(_opcode),
            calls=_CALLS.get(_opcode),
            call=lazy("calls.order", "sort_fusion") if _opcode == "fusion" else None,
            ways=lazy("ways", _opcode.upper()) if _opcode in _DECIDES else None,
            is_free=_opcode not in _LAUNCHES,
            hands_on=_opcode not in _DECIDES,
            is_identity=_infer is infer_operand,
        )
    )
