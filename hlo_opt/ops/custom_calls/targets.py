"""custom-call: what is known about a target, and the opcode, which looks its target up. One that nobody knows stays in the graph and is a boundary of fusion.

A spec with `expand` alone is complete: evaluation runs the expansion, kernels are made from it. Packages add targets through entry points of the group
`hlo_opt.custom_calls`, each a `CustomCallSpec` or a list of them; a program calls `register_custom_call`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hlo_opt.diag import EvaluationError, UsageError, nearest
from hlo_opt.diag.plugins import DUPLICATE, Plugin, plugins
from hlo_opt.ir import Computation, Instruction, Module, Shape
from hlo_opt.ops import faces
from hlo_opt.ops.spec import Arity, Evaluator, LibraryCall, OpKind, ShapeError, attributes, declare

GROUP = "hlo_opt.custom_calls"


@dataclass(frozen=True)
class CustomCallSpec:
    """One target of custom-call.

    infer     result shape (layouts not set) from the instruction, whose declared shape it may read; raises ShapeError. None: as declared
    evaluate  the NumPy meaning: (evaluator, instruction, operand values) -> value; None: that of the expansion
    expand    a computation in no module that means the same, one parameter per operand: gives index, cost and CUDA
    expands   which instructions `expand` covers; None: all whose inferred shape is the declared one
    aliasing  output (the index of a tuple element, () for an array) -> operand whose memory it may take over, besides what the text says
    flops     floating-point operations of the whole call; None: not known, counted as none
    call      what CuPy computes it with, as in OpSpec
    library   the library that runs it on a GPU; empty when none does
    """

    target: str
    infer: Callable[[Instruction], Shape] | None = None
    evaluate: Callable[[Evaluator, Instruction, list[Any]], Any] | None = None
    expand: Callable[[Module, Instruction], Computation] | None = None
    expands: Callable[[Instruction], bool] | None = None
    aliasing: Callable[[Instruction], Mapping[tuple[int, ...], int]] | None = None
    flops: Callable[[Instruction], float] | None = None
    call: Callable[[Instruction], LibraryCall | None] | None = None
    library: str = ""


_TARGETS: dict[str, CustomCallSpec] = {}


def register_custom_call(spec: CustomCallSpec, *, replace: bool = False) -> CustomCallSpec:
    """Make a target known. Raises ValueError when it is known already."""
    if spec.target in _TARGETS and not replace:
        raise ValueError(f"custom call {spec.target!r} is declared twice")
    _TARGETS[spec.target] = spec
    return spec


def unregister_custom_call(target: str) -> None:
    """Forget a target: for tests and plugins that clean up after themselves."""
    del _TARGETS[target]


def find_custom_call(target: str) -> CustomCallSpec | None:
    """What is known about a target, or None. Raises UsageError for a plugin that cannot be used, where the program itself does not know the target."""
    return _TARGETS.get(target) or _plugged().get(target)


def custom_calls() -> list[CustomCallSpec]:
    """All known targets, by name. Raises UsageError for a plugin that cannot be used."""
    every = {**_plugged(), **_TARGETS}
    return [every[target] for target in sorted(every)]


def _plugged() -> dict[str, CustomCallSpec]:
    """What installed packages add. Raises UsageError for one that is no such thing (HLO310) or declares a target that is known already (HLO311)."""
    found: dict[str, tuple[CustomCallSpec, Plugin]] = {}
    for plugin in plugins(GROUP):
        given = plugin.load()
        for spec in given if isinstance(given, list | tuple) else [given]:
            if not isinstance(spec, CustomCallSpec):
                raise plugin.broken(f"gives {type(spec).__name__}, which is no CustomCallSpec")
            owner = "hlo-opt itself" if spec.target in _TARGETS else None
            if spec.target in found:
                owner = found[spec.target][1].package
            if owner is not None:
                message = f"plugin {plugin.name!r} (from {plugin.package}) declares custom call {spec.target!r}, which {owner} declares already"
                raise UsageError(
                    message, code=DUPLICATE, hint=f"targets of the group {GROUP} must differ; uninstall one of the two"
                )
            found[spec.target] = spec, plugin
    return {target: spec for target, (spec, _) in found.items()}


# ---- the opcode

_LONGEST = 200  # characters of a target that a message repeats

ATTRIBUTES = attributes(
    "window dim_labels feature_group_count batch_group_count operand_precision custom_call_target! operand_layout_constraints "
    "custom_call_has_side_effect literal schedule output_to_operand_aliasing api_version to_apply called_computations padding_type"
)
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


@functools.lru_cache(maxsize=256)
def _expansion(expand: Callable[[Module, Instruction], Computation], instruction: Instruction) -> Computation:
    """One for each instruction, so that an interpreter keeps what it knows about it from one loop iteration to the next."""
    return expand(Module("expansion"), instruction)


def _evaluate(evaluator: Evaluator, instruction: Instruction, values: list[Any]) -> Any:
    spec = _known(instruction)
    if spec is not None and spec.evaluate is not None:
        return spec.evaluate(evaluator, instruction, values)
    if spec is not None and spec.expand is not None:
        return evaluator.call(_expansion(spec.expand, instruction), values)
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
    spec = _known(instruction)
    return None if spec is None or spec.call is None else spec.call(instruction)


declare(
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
    tolerance=faces.bit_exact,
    expensive=faces.always,
    omitted=None,
)
