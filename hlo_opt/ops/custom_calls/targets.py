"""custom-call: the registry of targets, and the opcode, which looks its target up. An unknown target stays opaque and
bounds fusion.

A spec with only `expand` is complete: evaluation runs the expansion, and kernels are generated from it. Packages add
targets through entry points of the group `hlo_opt.custom_calls`, each a `CustomCallSpec` or a list of them; programs
call `register_custom_call`."""

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

    infer     the result shape (without layouts) of an instruction, which may use its declared shape; raises ShapeError.
              None: the declared shape
    evaluate  the NumPy evaluator (evaluator, instruction, operand values) -> value; None: that of the expansion
    expand    an equivalent computation outside any module, one parameter per operand: gives index, cost and CUDA
    expands   which instructions `expand` covers; None: all whose inferred shape is the declared one
    aliasing  output (tuple index, () for an array) -> operand whose memory it may reuse, besides the text's aliasing
    flops     floating-point operations of the call; None: unknown, counted as 0
    call      the library call, as in OpSpec
    library   the library that runs it on a GPU; "" for none
    operands  how many there are, checked before `infer` is asked; None: `infer` says
    elementwise  whether an element of each result follows from the elements of the operands at its place
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
    operands: int | None = None
    elementwise: bool = False


_TARGETS: dict[str, CustomCallSpec] = {}


def register_custom_call(spec: CustomCallSpec, *, replace: bool = False) -> CustomCallSpec:
    """Register a target. Raises ValueError when it is registered already."""
    if spec.target in _TARGETS and not replace:
        raise ValueError(f"custom call {spec.target!r} is declared twice")
    _TARGETS[spec.target] = spec
    return spec


def unregister_custom_call(target: str) -> None:
    """Remove a target, for tests and for plugins that unregister themselves."""
    del _TARGETS[target]


def find_custom_call(target: str) -> CustomCallSpec | None:
    """The spec of a target, or None. Raises UsageError for a broken plugin, unless the target is built in."""
    return _TARGETS.get(target) or _plugged().get(target)


def custom_calls() -> list[CustomCallSpec]:
    """All known targets, sorted by name. Raises UsageError for a broken plugin."""
    every = {**_plugged(), **_TARGETS}
    return [every[target] for target in sorted(every)]


def _plugged() -> dict[str, CustomCallSpec]:
    """The targets of installed plugins. Raises UsageError for an object of another type (HLO310) or a duplicate target
    (HLO311)."""
    by_target: dict[str, tuple[CustomCallSpec, Plugin]] = {}
    for plugin in plugins(GROUP):
        declaration = plugin.load()
        for spec in declaration if isinstance(declaration, list | tuple) else [declaration]:
            if not isinstance(spec, CustomCallSpec):
                raise plugin.broken(f"gives {type(spec).__name__}, which is not a CustomCallSpec")
            owner = "hlo-opt itself" if spec.target in _TARGETS else None
            if spec.target in by_target:
                owner = by_target[spec.target][1].package
            if owner is not None:
                message = (
                    f"plugin {plugin.name!r} (from {plugin.package}) declares custom call {spec.target!r}, "
                    "which "
                    f"{owner} declares already"
                )
                raise UsageError(
                    message, code=DUPLICATE, hint=f"targets of the group {GROUP} must differ; uninstall one of the two"
                )
            by_target[spec.target] = spec, plugin
    return {target: spec for target, (spec, _) in by_target.items()}


# ---- the opcode

_LONGEST = 200  # characters of a target quoted in a message

ATTRIBUTES = attributes(
    "window dim_labels feature_group_count batch_group_count operand_precision custom_call_target! "
    "operand_layout_constraints "
    "custom_call_has_side_effect literal schedule output_to_operand_aliasing api_version to_apply "
    "called_computations padding_type"
)
"""Source: xla/hlo/parser/hlo_parser.cc, the case of kCustomCall."""


def target_of(instruction: Instruction) -> str:
    """The target of a custom call, as in the text: untrusted."""
    return instruction.word("custom_call_target")


def _known(instruction: Instruction) -> CustomCallSpec | None:
    return find_custom_call(target_of(instruction))


SAYS_SIDE_EFFECT = "custom_call_has_side_effect"


def says_side_effect(instruction: Instruction) -> bool:
    """Whether a custom call declares a side effect."""
    attribute = instruction.attributes.get(SAYS_SIDE_EFFECT)
    return attribute is not None and attribute.text.lower() == "true"


def is_known(instruction: Instruction) -> bool:
    """Whether the value of a custom call is defined: its target has an evaluator or expansion, or its result is ()."""
    spec = _known(instruction)
    has_meaning = spec is not None and (spec.evaluate is not None or spec.expand is not None)
    return has_meaning or instruction.shape.elements == ()


def _infer(instruction: Instruction) -> Shape:
    spec = _known(instruction)
    if spec is not None and spec.operands not in (None, len(instruction.operands)):
        wanted = Arity(spec.operands, spec.operands).words
        raise ShapeError(f"{spec.target} takes {wanted}, but has {len(instruction.operands)}")
    return instruction.shape.without_layout() if spec is None or spec.infer is None else spec.infer(instruction)


@functools.lru_cache(maxsize=256)
def _expansion(expand: Callable[[Module, Instruction], Computation], instruction: Instruction) -> Computation:
    """The expansion of an instruction, cached so that the interpreter can reuse its compiled form across loop
    iterations."""
    return expand(Module("expansion"), instruction)


def _evaluate(evaluator: Evaluator, instruction: Instruction, values: list[Any]) -> Any:
    spec = _known(instruction)
    if spec is not None and spec.evaluate is not None:
        return spec.evaluate(evaluator, instruction, values)
    if spec is not None and spec.expand is not None:
        return evaluator.call(_expansion(spec.expand, instruction), values)
    if instruction.shape.elements == ():
        return ()  # the only value of this type
    target = target_of(instruction)[:_LONGEST]
    close = nearest(target, [s.target for s in custom_calls() if s.evaluate is not None or s.expand is not None])
    raise EvaluationError(
        f"{instruction.name}: unknown custom call {target!r}",
        code="HLO404",
        hint=f"did you mean {close}?" if close else "a plugin can define it (register_custom_call)",
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
    """The flops of a known target; 0 where unknown or its operands do not fit."""
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
