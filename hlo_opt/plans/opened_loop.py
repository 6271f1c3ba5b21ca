"""A loop with its round as one computation, which has a parameter for each carried value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hlo_opt.ir import Called, Computation, Instruction, Module, edit
from hlo_opt.ops.choices import may_be_choice
from hlo_opt.ops.logic import asked_of_all, conjuncts
from hlo_opt.ops.sets import looped, tuple_elements, tuple_index
from hlo_opt.plans.lane_rounds import Round
from hlo_opt.plans.region import opened_up


def by_itself(module: Module, loop: Instruction) -> Instruction:
    """A copy of a loop, with the fusions in its computations inlined."""
    called = {name: Called(opened_up(module, loop.called_by(name))) for name in ("body", "condition")}
    return Instruction(loop.name, loop.opcode, loop.shape, list(loop.operands), {**loop.attributes, **called})


@dataclass(frozen=True)
class Opened:
    """A loop with its round as one computation. Numbers are positions in the loop's tuple.

    initial     the carried values before the first round
    parameters  by number, the round's parameter for a carried value; a value that the loop does not change has none
    results     by number, the carried value after the round
    test        the condition for another round
    origins     the operation of the module for each instruction of the round
    same        the parts of the condition that are equal for all lanes
    any         the parts that must hold for at least one lane, each with the operation of the module that reduces it
                over all lanes
    has_choices whether something is a choice among places (see `Round`)
    kept        by number, the round's parameter for a value that the loop does not change, and that its rounds should
                not compute again
    nests       the loops in the round, each with its `while` in the round as `loop`
    """

    loop: Instruction
    round: Computation
    initial: list[Instruction]
    parameters: dict[int, Instruction]
    results: dict[int, Instruction]
    test: Instruction
    origins: dict[Instruction, Instruction]
    same: list[Instruction]
    any: list[tuple[Instruction, Instruction]]
    has_choices: bool
    kept: dict[int, Instruction]
    nests: list[Opened]

    def origin_of(self, instruction: Instruction | None) -> Instruction | None:
        """The operation of the module for one of the round, or of a round within it."""
        found = None if instruction is None else self.origins.get(instruction)
        return found or next((o for nest in self.nests if (o := nest.origin_of(instruction)) is not None), None)

    def read_of(self, loop: Instruction) -> list[int]:
        """The numbers of the changed values that users of the loop read in its module."""
        read = {tuple_index(user) for user in loop.users}
        return [n for n in self.parameters if n in read or None in read or loop.is_root]


def opened_with(loop: Instruction, *, chooses: bool) -> Opened | None:
    """Opens a loop, which may hold others, with choices or without. None also where it would be the same with
    choices, for nothing in it may be one."""
    return None if chooses and not _may_choose(loop) else opened_of(loop, chooses=chooses, nests=True)


def _may_choose(loop: Instruction) -> bool:
    inside = (i for computation in loop.called() for i in computation.instructions)
    return any(may_be_choice(i) or (looped(i) is not None and _may_choose(i)) for i in inside)


def opened_of(
    loop: Instruction,
    *,
    written_out: bool = True,
    chooses: bool = False,
    pulls: int = 0,
    scatters: bool = False,
    keeps: Callable[[Instruction], bool] = lambda value: False,
    nests: bool = False,
) -> Opened | None:
    """Opens a loop over a tuple of arrays whose rounds call nothing; None for any other loop. `written_out`, `chooses`,
    `pulls` and `scatters` say what is expanded (see `Round`), `keeps` which initial values are kept, `nests` whether
    rounds may hold such loops."""
    body, condition = loop.called_by("body"), loop.called_by("condition")
    initial, yields = tuple_elements(loop.operands[0]), tuple_elements(body.root)
    if initial is None or yields is None or not all(shape.is_array for shape in loop.shape.elements or ()):
        return None
    writer = Round(written_out=written_out, chooses=chooses, pulls=pulls, scatters=scatters)
    round_ = writer.computation
    copies: dict[Instruction, Instruction] = {}
    parameters: dict[int, Instruction] = {}
    kept: dict[int, Instruction] = {}
    within: dict[Instruction, Opened] = {}
    for number, (start, end) in enumerate(zip(initial, yields, strict=True)):
        if not (tuple_index(end) == number and end.operands[0] is body.parameters[0]):
            parameters[number] = edit.create_parameter(round_, f"x{number}", start.shape, number)
        elif keeps(start):
            kept[number] = edit.create_parameter(round_, f"x{number}", start.shape, number)
    read = {**parameters, **kept}
    for computation in (body, condition):
        state = computation.parameters[0]
        for i in computation.instructions:
            element = tuple_index(i)
            if element is not None and i.operands[0] is state:
                copies[i] = read.get(element, initial[element])
            elif element is not None and (parts := tuple_elements(i.operands[0])) is not None:
                copies[i] = copies[parts[element]]
            elif element is not None and (nest := within.get(copies.get(i.operands[0], i))) is not None:
                is_changed = element in nest.parameters
                copies[i] = edit.create_element(nest.loop, element) if is_changed else nest.initial[element]
            elif nests and looped(i) is not None and i.operands[0] in copies:
                copies[i] = inner = edit.clone_into(round_, i, [copies[i.operands[0]]])
                writer.origins[inner] = i
                nest = opened_of(inner, written_out=written_out, chooses=chooses, pulls=pulls, nests=True)
                if nest is None:
                    return None
                within[inner] = nest
            elif element is not None and (parts := tuple_elements(copies.get(i.operands[0], i))) is not None:
                copies[i] = parts[element]  # of a reduce with several operands
            elif i is not state and not (i is computation.root and computation is body):
                copy = (
                    None
                    if any(o not in copies for o in i.operands)
                    else writer.copy(i, [copies[o] for o in i.operands])
                )
                if copy is None:
                    return None
                copies[i] = copy
    if any(r not in copies for r in yields) or condition.root not in copies:
        return None
    results = {n: copies[yields[n]] for n in parameters}
    opened = Opened(
        loop=loop,
        round=round_,
        initial=initial,
        parameters=parameters,
        results=results,
        test=copies[condition.root],
        origins=writer.origins,
        same=[],
        any=[],
        has_choices=writer.has_choices or any(nest.has_choices for nest in within.values()),
        kept=kept,
        nests=[*within.values()],
    )
    for part in conjuncts(condition.root):
        asked = asked_of_all(part)
        if asked is None:
            opened.same.append(copies[part])
        else:
            array, wanted = asked
            test = copies[array]
            if not wanted:
                test = writer.unary(part.opcode, test)
                writer.origins[test] = part
            opened.any.append((test, part))
    return opened
