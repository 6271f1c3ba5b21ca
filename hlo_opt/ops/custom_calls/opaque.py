"""custom-call: looks its target up; a target that nobody knows stays in the graph and is a boundary of fusion."""

from __future__ import annotations

from typing import Any

from hlo_opt.diag import EvaluationError, nearest
from hlo_opt.ir import Computation, Instruction, Module, Shape
from hlo_opt.ops.custom_calls.targets import CustomCallSpec, custom_calls, find_custom_call
from hlo_opt.ops.spec import Arity, Evaluator, LibraryCall, OpKind, OpSpec, ShapeError, register

_LONGEST = 200  # characters of a target that a message repeats

ATTRIBUTES = {
    "window": False,
    "dim_labels": False,
    "feature_group_count": False,
    "batch_group_count": False,
    "operand_precision": False,
    "custom_call_target": True,
    "operand_layout_constraints": False,
    "custom_call_has_side_effect": False,
    "literal": False,
    "schedule": False,
    "output_to_operand_aliasing": False,
    "api_version": False,
    "to_apply": False,
    "called_computations": False,
    "padding_type": False,
}
"""Source: xla/hlo/parser/hlo_parser.cc, the case of kCustomCall."""


def target_of(instruction: Instruction) -> str:
    """The target of a custom call, as the text gives it: untrusted."""
    return instruction.word("custom_call_target")


def _known(instruction: Instruction) -> CustomCallSpec | None:
    return find_custom_call(target_of(instruction))


def says_side_effect(instruction: Instruction) -> bool:
    """Whether a custom call does more than give its value, as it says itself."""
    said = instruction.attributes.get("custom_call_has_side_effect")
    return said is not None and said.text.lower() == "true"


def is_known(instruction: Instruction) -> bool:
    """Whether somebody knows what a custom call computes: a target with a meaning of its own, or a result that there is only one of."""
    spec = _known(instruction)
    has_meaning = spec is not None and (spec.evaluate is not None or spec.expand is not None)
    return has_meaning or instruction.shape.elements == ()


def _infer(instruction: Instruction) -> Shape:
    spec = _known(instruction)
    return instruction.shape.without_layout() if spec is None or spec.infer is None else spec.infer(instruction)


def _evaluate(evaluator: Evaluator, instruction: Instruction, values: list[Any]) -> Any:
    spec = _known(instruction)
    if spec is not None and spec.evaluate is not None:
        return spec.evaluate(evaluator, instruction, values)
    if spec is not None and spec.expand is not None:
        return evaluator.call(spec.expand(Module("expansion"), instruction), values)
    if instruction.shape.elements == ():
        return ()  # there is only one such value
    target = target_of(instruction)[:_LONGEST]
    close = nearest(target, [s.target for s in custom_calls() if s.evaluate is not None or s.expand is not None])
    raise EvaluationError(
        f"{instruction.name}: nothing is known about custom call {target!r}",
        code="HLO404",
        hint=f"did you mean {close}?" if close else "a plugin can tell what it means (register_custom_call)",
    )


def _expands(instruction: Instruction) -> bool:
    spec = _known(instruction)
    if spec is None or spec.expand is None:
        return False
    if spec.expands is not None:
        return spec.expands(instruction)
    if spec.infer is None:
        return True
    try:
        return spec.infer(instruction).same_values(instruction.shape)
    except ShapeError:
        return False


def _expand(module: Module, instruction: Instruction) -> Computation:
    spec = _known(instruction)
    if spec is None or spec.expand is None:
        raise ValueError(f"custom call {target_of(instruction)[:_LONGEST]!r} has no expansion")
    return spec.expand(module, instruction)


def _flops(instruction: Instruction) -> float:
    """What is known of the target; nothing where its operands do not fit."""
    spec = _known(instruction)
    if spec is None or spec.flops is None:
        return 0.0
    try:
        return spec.flops(instruction)
    except (ShapeError, ValueError, IndexError):
        return 0.0


def _call(instruction: Instruction) -> LibraryCall | None:
    spec = find_custom_call(instruction.word("custom_call_target"))
    return None if spec is None or spec.call is None else spec.call(instruction)


register(
    OpSpec(
        "custom-call",
        OpKind.OPAQUE,
        Arity(0, None),
        ATTRIBUTES,
        infer=_infer,
        evaluate=_evaluate,
        expand=_expand,
        expands=_expands,
        flops=_flops,
        call=_call,
        tolerance=lambda element_type: 0.0,
        expensive=lambda instruction: True,
        omitted=None,
    )
)
