"""A module without the cause that a sentence names, where the rule itself cannot be switched off: a library call, or
what has a side effect or no lowering, as plain operations on the same operands; one round of a loop, or one branch, in
its place; nothing to wait for; the pipeline without the passes that gave a kernel further outputs. And the proof that
two kernels cannot be one, by the printed module alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from hlo_opt import parse
from hlo_opt.cutting.parts import tidied
from hlo_opt.diag import Reason
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.ir import Computation, Instruction, Module, Shape, array, edit
from hlo_opt.ir.attribute import PaddingDimension, SliceDimension
from hlo_opt.ir.walk import executed_computations
from hlo_opt.ops.control.table import branches
from hlo_opt.ops.sets import launches, looped, tuple_elements, tuple_index
from hlo_opt.ops.writer import Writer
from hlo_opt.passes.pipeline import Best, Fixpoint, PassOrGroup, Pipeline, parse_pipeline
from hlo_opt.passes.run import run
from hlo_opt.passes.stages import first_stage
from hlo_opt.passes.table import preset as text_of_preset

OWN_KERNELS = frozenset(
    {"FUS102", "FUS104", "FUS301", "FUS302", "FUS303", "FUS305", "FUS307", "FUS308", "FUS309", "FUS310", "FUS311",
     "FUS321", "FUS609", "FUS610"}
)  # fmt: skip
"""Codes of what an operation is by itself."""

CYCLES = frozenset({"FUS131", "FUS132"})
JOINS = (
    "multi-output-fusion",
    "horizontal-loop-fusion",
    "horizontal-input-fusion",
    "kernel-joining",
    "launch-packing",
    "row-fusion",
)
"""Passes that give a kernel further outputs."""


@dataclass(frozen=True)
class Begun:
    """A module after the passes that come before anything is fused, as its text says it, and the passes that are
    left."""

    text: str
    left: Pipeline

    @classmethod
    def of(cls, module: Module, preset: str) -> Begun:
        """Of a preset."""
        first = first_stage(module, "auto", own_passes=False)
        whole = Pipeline((*first.steps, *parse_pipeline(text_of_preset(preset)).steps))
        head = whole.head
        steps = whole.steps[len(head.steps) :]
        if not steps:  # a preset without a choice
            head, steps = first, whole.steps[len(first.steps) :]
        return cls(str(run(module, passes=head, simplify="never").module), Pipeline(steps))

    @property
    def module(self) -> Module:
        """The module, to be changed."""
        found = parse(self.text)
        for computation in found.computations:
            computation.index_users()
        return found

    def without_joining(self) -> Pipeline:
        """The passes that are left without those that give a kernel further outputs, in each group and choice."""
        return Pipeline(tuple(_kept(self.left.steps)))


def _kept(steps: Iterable[PassOrGroup | Best]) -> Iterator[Any]:
    for step in steps:
        if isinstance(step, Fixpoint):
            yield Fixpoint(tuple(_kept(step.steps)))
        elif isinstance(step, Best):
            yield Best(tuple(tuple(_kept(branch)) for branch in step.branches))
        elif step.name not in JOINS:
            yield step


Change = Callable[[Module], None]


def changes(edge: FusionDecision, code: str) -> Iterator[tuple[str, Change]]:
    """What takes the cause that a code names away from an edge, in words."""
    reason = next((r for r in edge.reasons if r.code == code), None)
    if reason is None:
        return
    if code in OWN_KERNELS:
        for ends in ((edge.producer,), (edge.consumer,), (edge.producer, edge.consumer)):
            yield f"{' and '.join(ends)} as plain operations", _standing_in(ends, edge.consumer)
    elif code in ("FUS111", "FUS112"):
        control = str(reason.numbers["loop" if code == "FUS111" else "control"])
        yield f"one round or branch in the place of {control}", lambda module: _in_its_place(module, control, edge)
    elif code == "FUS103":
        yield "nothing waits", _wait_for_nothing
    elif code == "FUS105":
        yield f"{edge.producer} as plain operations", _standing_in((edge.producer,), edge.consumer)
    elif code == "FUS113":
        yield "no barrier", _without_barriers
    elif code == "FUS134":
        yield from _apart(edge, reason)


def _named(module: Module, name: str) -> Instruction:
    """The instruction of a name in a computation that launches kernels. Raises ValueError where there is none."""
    for computation in executed_computations(module):
        for i in computation.instructions:
            if i.name == name:
                return i
    raise ValueError(f"there is no {name}")


def _standing_in(names: tuple[str, ...], reader: str) -> Change:
    def change(module: Module) -> None:
        for name in names:
            stand_in(_named(module, name), reader)

    return change


def stand_in(i: Instruction, reader: str = "") -> None:
    """Plain operations that read the same operands and give the same shapes; what gives the result, of several the one
    that the reader reads, has the name of the instruction. Raises ValueError where they cannot."""
    name, computation = i.name, i.computation
    elements = i.shape.elements if i.shape.is_tuple else (i.shape,)
    if not elements or not all(e.is_array for e in elements) or not any(e.element_count for e in elements):
        raise ValueError(f"{i.shape} holds more than arrays")
    given = [e for o in i.operands for e in tuple_elements(o) or [o]]
    operands = [o for o in dict.fromkeys(given) if o.shape.is_array and o.shape.element_count > 0]
    read = next((n for u in i.users if (n := tuple_index(u)) is not None and _leads_to(u, reader)), 0)
    i.name = f"{name}.before"
    values = [
        _mixed(Writer("", computation), operands if shape.element_count else [], shape, 1 + n)
        for n, shape in enumerate(elements)
    ]
    made = edit.create_tuple(computation, values) if i.shape.is_tuple else values[0]
    if i.shape.is_tuple:
        for user in list(i.users):
            number = tuple_index(user)
            if number is not None:
                edit.replace_all_uses(user, values[number])
    edit.replace_all_uses(i, made)
    edit.sort(computation)
    i.control_predecessors = []
    if not i.users and not i.is_root:
        edit.remove(i)
    values[read if i.shape.is_tuple else 0].name = name


def _leads_to(value: Instruction, reader: str) -> bool:
    """Whether the reader reads a value, also through what only hands it on."""
    return any(
        u.name == reader or (u.opcode in ("bitcast", "reshape", "copy") and _leads_to(u, reader)) for u in value.users
    )


def _mixed(writer: Writer, operands: list[Instruction], shape: Shape, start: int) -> Instruction:
    """The first elements of each operand, in a shape, added up from a number on: results of one operation that are
    equal would become one."""
    plain = array(shape.type, *shape.dimensions)
    total = writer.spread(writer.number(shape.type, start if shape.type.name != "pred" else 1), shape.dimensions)
    n = shape.element_count
    for operand in operands:
        value, m = operand, operand.shape.element_count
        if operand.shape.dimensions != shape.dimensions:
            value = writer.reshape(value, m)
            if m > n:
                value = writer.emit("slice", array(value.shape.type, n), value, slice=(SliceDimension(0, n),))
            elif m < n:
                nothing = writer.number(value.shape.type, 0)
                padded = (PaddingDimension(0, n - m),)
                value = writer.emit("pad", array(value.shape.type, n), value, nothing, padding=padded)
            value = writer.reshape(value, *shape.dimensions)
        if value.shape.type is not shape.type:
            value = writer.emit("convert", plain, value)
        total = writer.emit("add" if shape.type.name != "pred" else "or", plain, total, value)
    return total if total.shape == shape else writer.emit("copy", shape, total)


def _in_its_place(module: Module, name: str, edge: FusionDecision) -> None:
    """One round of a loop, or the branch that an end of the edge is in, instead of it."""
    control = _named(module, name)
    if looped(control) is not None:
        called, given = control.called_by("body"), list(control.operands)
    elif branches(control):
        every = list(control.called())
        ends = {edge.producer, edge.consumer}
        number = next((n for n, c in enumerate(every) if ends & {i.name for i in c.instructions}), 0)
        called, given = every[number], [control.operands[1 + number]]
    else:
        called, given = next(iter(control.called())), list(control.operands)
    values: dict[Instruction, Instruction] = {}
    names: list[tuple[Instruction, str]] = []
    for member in called.instructions:
        if member.parameter_number is not None:
            values[member] = given[member.parameter_number]
        else:
            copy = edit.clone_into(control.computation, member, [values[o] for o in member.operands])
            values[member] = copy
            names.append((copy, member.name))
    edit.replace_all_uses(control, values[called.root])
    edit.sort(control.computation)
    tidied(module)
    taken = {i.name for c in module.computations for i in c.instructions}
    for copy, wanted in names:
        if copy.parent is not None and wanted not in taken:
            copy.name = wanted
            taken.add(wanted)


def _wait_for_nothing(module: Module) -> None:
    for computation in module.computations:
        for i in computation.instructions:
            i.control_predecessors = []


def _without_barriers(module: Module) -> None:
    for computation in module.computations:
        for i in list(computation.instructions):
            if i.opcode == "opt-barrier":
                edit.replace_all_uses(i, i.operands[0])
        edit.sort(computation)


def _apart(edge: FusionDecision, reason: Reason) -> Iterator[tuple[str, Change]]:
    user = str(reason.numbers["user"])
    yield f"{user} as plain operations", _standing_in((user,), edge.consumer)


# ---- proofs


def is_cycle(module: Module, edge: FusionDecision) -> bool:
    """Whether one kernel of both ends would need itself, by the printed module: a third kernel needs one of them and is
    needed by the other."""
    return any(_needs_between(c, edge) for c in executed_computations(parse(str(module))))


def _needs_between(computation: Computation, edge: FusionDecision) -> bool:
    kernels = {i.name: i for i in computation.instructions}
    ends = [kernels.get(edge.producer_kernel), kernels.get(edge.consumer_kernel)]
    if ends[0] is None or ends[1] is None:
        return False
    return any(_reaches(a, b) for a, b in ((ends[0], ends[1]), (ends[1], ends[0])) if a is not None and b is not None)


def _reaches(needed: Instruction, user: Instruction) -> bool:
    """Whether the user needs the other through a third kernel; where it reads it, or is a sibling, that is a cycle."""
    todo = [*user.operands, *user.control_predecessors]
    seen: set[Instruction] = set()
    while todo:
        value = todo.pop()
        if value in seen or value is needed:
            continue
        seen.add(value)
        near = (*value.operands, *value.control_predecessors)
        if launches(value) and _depends(value, needed):
            return True
        todo.extend(near)
    return False


def _depends(value: Instruction, needed: Instruction) -> bool:
    todo, seen = [value], {value}
    while todo:
        for near in (*(i := todo.pop()).operands, *i.control_predecessors):
            if near is needed:
                return True
            if near not in seen:
                seen.add(near)
                todo.append(near)
    return False


def is_across(module: Module, edge: FusionDecision) -> bool:
    """Whether the ends are launched from two computations, or something that runs computations stands between."""
    places = {i.name: c for c in executed_computations(module) for i in c.instructions}
    one, other = places.get(edge.producer_kernel), places.get(edge.consumer_kernel)
    return one is not None and other is not None and (one is not other or edge.relation == "across")
