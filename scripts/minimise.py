"""Makes a program that shows a disagreement smaller, as long as it shows one."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from hlo_opt.analysis.properties import effectful_computations, has_side_effect
from hlo_opt.ir import Attribute, Computation, Instruction, Literal, Module, Shape, edit


def smallest(program: Any, fails: Callable[[Any], bool], seconds: float) -> Any:
    """The program without all that can go: rounds of trying every cut there is, until none leaves one that fails, or
    the time is over."""
    end = time.monotonic() + seconds
    changed = True
    while changed and time.monotonic() < end:
        changed = False
        place = 0
        while time.monotonic() < end:
            cuts = _cuts(program.module)
            if place >= len(cuts):
                break
            part = _without(program, cuts[place])
            if part is not None and _size(part.module) < _size(program.module) and fails(part):
                program, changed = part, True
            else:
                place += 1
    return program


def _size(module: Module) -> tuple[int, int]:
    every = [i for c in module.computations for i in c.instructions]
    edges = sum(len(i.operands) + len(i.control_predecessors) for i in every)
    return len(every), edges + len(module.attributes)


Cut: TypeAlias = tuple[str, int]
"""What is done, and to which instruction (or which attribute of the header)."""


def _every(module: Module) -> list[Instruction]:
    return [i for c in reversed(list(module.computations)) for i in reversed(list(c.instructions))]


def _cuts(module: Module) -> list[Cut]:
    """What can be tried, the largest first."""
    found: list[Cut] = []
    for at, i in enumerate(_every(module)):
        is_root = i is i.computation.root
        if is_root and i.opcode == "tuple" and i.computation is module.entry and len(i.operands) > 1:
            found += [("first half", at), ("second half", at)]
        elif i.parameter_number is None and not i.users and not is_root:
            found.append(("gone", at))
        elif i.parameter_number is None:
            if i.shape.is_array and i.opcode not in ("constant", "broadcast"):
                found.append(("ones", at))
            if any(o.shape == i.shape for o in i.operands):
                found.append(("operand", at))
        if i.control_predecessors:
            found.append(("no waits", at))
    return found + [("header", at) for at in range(len(module.attributes))]


def _without(program: Any, cut: Cut) -> Any:
    """The program after a cut; None where it cannot be made."""
    what, at = cut
    module = edit.clone_module(program.module)
    if what == "header":
        del module.attributes[list(module.attributes)[at]]
        return dataclasses.replace(program, module=module)
    i = _every(module)[at]
    computation = i.computation
    try:
        if what == "no waits":
            i.control_predecessors = []
        elif what.endswith("half"):
            half = len(i.operands) // 2
            kept = list(i.operands)[:half] if what == "first half" else list(i.operands)[half:]
            module.attributes.pop("input_output_alias", None)  # it counts outputs
            edit.set_root(computation, _tuple(computation, kept))
            _take_out(i)
        elif what == "gone":
            _take_out(i)
        else:
            other = next(o for o in i.operands if o.shape == i.shape) if what == "operand" else _filled(computation, i)
            edit.replace_all_uses(i, other)
            _take_out(i)
            edit.sort(computation)
    except (ValueError, AssertionError):
        return None
    return _tidy(dataclasses.replace(program, module=module))


def _take_out(i: Instruction) -> None:
    for other in i.computation.instructions:
        other.control_predecessors = [p for p in other.control_predecessors if p is not i]
    edit.remove(i)


def _tuple(computation: Computation, operands: list[Instruction]) -> Instruction:
    shape = Shape.tuple_of(*(o.shape for o in operands))
    assert computation.module is not None
    return edit.create(computation, computation.module.unique_name("outputs"), "tuple", shape, operands)


def _filled(computation: Computation, i: Instruction) -> Instruction:
    """Ones of its shape."""
    assert computation.module is not None
    name = computation.module.unique_name
    scalar = Shape(i.shape.type)
    value = np.ones((), i.shape.type.dtype)
    one = edit.create(computation, name("one"), "constant", scalar, [], literal=Literal(scalar, value=value))
    return edit.create(computation, name("ones"), "broadcast", i.shape, [one], {"dimensions": Attribute.of(())})


def _tidy(program: Any) -> Any:
    """Without what nothing needs and does nothing, parameters of the entry included."""
    module = program.module
    effects = effectful_computations(list(module.computations))
    for computation in module.computations:
        waited = {p for i in computation.instructions for p in i.control_predecessors}
        for i in reversed(list(computation.instructions)):
            acts = has_side_effect(i) or any(c in effects for c in i.called())
            dead = not i.users and i is not computation.root and i not in waited and i.parameter_number is None
            if dead and not acts and not i.control_predecessors:
                edit.remove(i)
    called = {c for k in module.computations for i in k.instructions for c in i.called()} | {module.entry}
    for computation in reversed(list(module.computations)):
        if computation not in called:
            edit.remove_computation(computation)
            called = {c for k in module.computations for i in k.instructions for c in i.called()} | {module.entry}
    if "input_output_alias" in module.attributes:
        return program
    kept: list[Any] = []
    for p in list(module.entry.parameters):
        number = p.parameter_number or 0
        if p.users or p is module.entry.root:
            p.parameter_number = len(kept)
            kept.append(program.parameters[number])
        else:
            edit.remove(p)
    return dataclasses.replace(program, parameters=tuple(kept))
