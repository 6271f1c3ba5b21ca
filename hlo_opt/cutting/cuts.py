"""Cuts: functions from a module to a smaller one. The result need not be valid; the search verifies it."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial

from hlo_opt.analysis.graph.inlining import inline, is_plain_call, is_plain_fusion
from hlo_opt.analysis.properties import has_side_effect
from hlo_opt.cutting.changes import InstructionChange, fill, put_in_place, take
from hlo_opt.cutting.loops import loop_changes
from hlo_opt.cutting.parts import callers, can_be_parameter, outputs_of, part_of, set_outputs, tidied
from hlo_opt.cutting.sharing import share, shared_memory
from hlo_opt.cutting.stand_ins import stand_ins
from hlo_opt.cutting.variadic import variadic_changes
from hlo_opt.ir import Called, Computation, Instruction, Module, Shape, edit
from hlo_opt.ir.walk import needed_first, operands_first
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.control.table import branches
from hlo_opt.ops.sets import RESHAPES, body_of, keeps_values, tuple_elements, tuple_index

Cut = Callable[[Module], Module]
"""Returns a smaller module; it may change its argument. Raises ValueError, KeyError, TypeError or AssertionError where
it does not apply."""
EARLIEST = 256
"""The number of instructions, from a computation's first, that are tried in place of a later one."""
FEW = 6
"""Instructions of a called computation of which no stretches are tried: each is tried by itself."""


def parts(module: Module, kept: Collection[int]) -> Module:
    """The instructions of the entry with these numbers."""
    members = list(module.entry.instructions)
    return tidied(part_of(module.entry, {members[n] for n in kept}).module)


def without(module: Module, gone: Collection[int]) -> Module:
    """The entry without the instructions with these numbers: parameters stand for their values."""
    return parts(module, [n for n in range(len(module.entry.instructions)) if n not in gone])


def count(module: Module) -> int:
    """The number of the entry's instructions, which `parts` and `without` take by number."""
    return len(module.entry.instructions)


def inline_all(module: Module) -> Module:
    """Inline all calls and fusions."""
    if not inline(module, lambda i: is_plain_call(i) or is_plain_fusion(i)):
        raise ValueError("there is no call and no fusion")
    return tidied(module)


# ---- other entries, and fewer outputs


def entries(module: Module) -> list[Cut]:
    """Cuts that make a called computation the entry, the smallest first."""
    others = [(len(c.instructions), n) for n, c in enumerate(module.computations) if c is not module.entry]
    return [partial(as_entry, number=number) for size, number in sorted(others) if size > 1]


def as_entry(module: Module, number: int) -> Module:
    computation = list(module.computations)[number]
    members = [i for i in computation.instructions if i.parameter_number is None]
    return tidied(part_of(computation, members).module)


def fewer_outputs(module: Module, kept: Collection[int]) -> Module:
    """Only some outputs of the entry, and what they need."""
    outputs = [o for n, o in enumerate(outputs_of(module.entry)) if n in kept]
    needed = needed_first(outputs, lambda i: (*i.operands, *i.control_predecessors))
    effects = [i for i in module.entry.instructions if has_side_effect(i) and i not in needed]
    needed += [i for i in operands_first(effects) if i not in needed] if not needed else []
    return tidied(part_of(module.entry, needed, outputs).module)


# ---- single instructions


def single_cuts(module: Module) -> list[Cut]:
    """Cuts of one instruction each, from the last to the first."""
    by = callers(module)
    return _of_each(module, lambda i: _changes(i, by))


def loop_cuts(module: Module) -> list[Cut]:
    """Cuts of one loop each, from the last to the first."""
    return _of_each(module, loop_changes)


def result_cuts(module: Module) -> list[Cut]:
    """Cuts to fewer results of one operation each, from the last to the first."""
    return _of_each(module, variadic_changes)


def _of_each(module: Module, changes: Callable[[Instruction], Iterable[InstructionChange]]) -> list[Cut]:
    cuts: list[Cut] = []
    for place, computation in reversed(list(enumerate(module.computations))):
        for number, i in reversed(list(enumerate(computation.instructions))):
            cuts += [partial(_at, change=change, place=place, number=number) for change in changes(i)]
    return cuts


def _at(module: Module, change: InstructionChange, place: int, number: int) -> Module:
    computation = list(module.computations)[place]
    change(list(computation.instructions)[number])
    return tidied(module)


def _changes(i: Instruction, by: dict[Computation, list[Instruction]]) -> Iterator[InstructionChange]:
    computation = i.computation
    module = computation.module
    is_entry = module is not None and computation is module.entry
    if i.parameter_number is not None:
        if is_entry:
            yield _merge_parameter
        elif all(body_of(user) is not None for user in by[computation]):
            yield _drop_parameter
        return
    if i.control_predecessors:
        yield _drop_predecessors
    yield from loop_changes(i)
    for branch in range(len(list(i.called()))) if branches(i) else ():
        yield partial(_take_branch, branch=branch)
    if body_of(i) is not None:
        yield _inline
    for name, value in i.attributes.items():
        if isinstance(value, Called) and len(value.computations) == 1:
            yield partial(_call_another, name=name)
    if is_entry and can_be_parameter(i.shape) and i.operands and tuple_elements(i) is None:
        yield _make_parameter
    for operand in range(len(i.operands)):
        if i.operands[operand].shape.same_values(i.shape):
            yield partial(_take_operand, operand=operand)
    source = _source(i)
    if source is not None:
        yield partial(_take_earlier, number=source)
    for earlier in _earlier(i):
        yield partial(_take_earlier, number=earlier)
    if not is_entry:
        yield from stand_ins(i, _read_alike(i) if source is None else source)
    if not is_entry and i.shape.is_array and i.literal is None and i.shape.type.numpy_name:
        yield partial(fill, value=0)
        if i.shape.type.name != "pred":  # a condition that is always true ends no loop
            yield partial(fill, value=1)
    if i.literal is not None and is_entry and i.shape.is_array:
        yield _make_parameter
    if _reshaped(i) is not None:
        yield _take_no_detour
    yield from variadic_changes(i)
    for operand in range(len(i.operands)) if len(i.operands) > 1 and tuple_elements(i) is None else ():
        if _other_operand(i, operand) is not None:
            yield partial(_same_operand, operand=operand)
    for skipped in dict.fromkeys(i.operands):
        if _operands_before(i, skipped) is not None:
            yield partial(_skip_operand, operand=i.operands.index(skipped))


def _merge_parameter(i: Instruction) -> None:
    """The first parameter of the same shape in its place."""
    others = [p for p in i.computation.parameters if p.shape == i.shape]
    take(i, others[0])


def _drop_parameter(i: Instruction) -> None:
    """Without a parameter that nothing reads, and its operand in all callers."""
    computation, number = i.computation, i.parameter_number
    assert computation.module is not None and number is not None
    if i.users or i.is_root:
        raise ValueError("it is read")
    for user in callers(computation.module)[computation]:
        edit.set_operands(user, [o for n, o in enumerate(user.operands) if n != number])
    edit.remove(i)
    for parameter in computation.parameters:
        if (parameter.parameter_number or 0) > number:
            parameter.parameter_number = (parameter.parameter_number or 0) - 1


def _drop_predecessors(i: Instruction) -> None:
    i.control_predecessors = []


def _make_parameter(i: Instruction) -> None:
    """A parameter in its place."""
    computation = i.computation
    parameter = edit.create_parameter(computation, f"{i.name}.parameter", i.shape, len(computation.parameters))
    take(i, parameter)
    if not i.is_root:
        edit.remove(i)
        parameter.name = i.name


def _take_operand(i: Instruction, operand: int) -> None:
    take(i, i.operands[operand])


def _same_operand(i: Instruction, operand: int) -> None:
    """The first other operand of that shape in place of one."""
    other = _other_operand(i, operand)
    if other is None:
        raise ValueError("nothing changes")
    edit.replace_operand(i, operand, other)


def _other_operand(i: Instruction, operand: int) -> Instruction | None:
    """The first operand that is another value of the same shape; None where there is none."""
    mine = i.operands[operand]
    return next((o for o in i.operands if o is not mine and o.shape.same_values(mine.shape)), None)


def _skip_operand(i: Instruction, operand: int) -> None:
    """What an operand reads in place of all operands, such as `a + b` for `(a - b) + c`."""
    before = _operands_before(i, i.operands[operand])
    if before is None:
        raise ValueError("its operands have other shapes")
    edit.set_operands(i, before)


def _operands_before(i: Instruction, operand: Instruction) -> list[Instruction] | None:
    """The operands of an operand that may be those of an instruction with several; None where their shapes differ."""
    before = list(operand.operands)
    if len(before) < 2 or len(before) != len(i.operands) or before == list(i.operands):
        return None
    return before if all(a.shape.same_values(b.shape) for a, b in zip(before, i.operands, strict=True)) else None


def _reshaped(i: Instruction) -> Shape | None:
    """The shape before the reshapes that an elementwise operation reads, where all operands have the same dimensions
    there."""
    spec = find(i.opcode)
    if spec is None or spec.kind is not OpKind.ELEMENTWISE or not i.operands or not i.shape.is_array:
        return None
    if not all(keeps_values(o, RESHAPES) for o in i.operands):
        return None
    sources = [o.operands[0].shape for o in i.operands]
    return sources[0] if len({s.dimensions for s in sources}) == 1 else None


def _take_no_detour(i: Instruction) -> None:
    """The operation on the operands of the reshapes that it reads. Reshapes of its result to the old shape go, too."""
    source = _reshaped(i)
    assert source is not None
    operands = [o.operands[0] for o in i.operands]
    shape = replace(source, element_type=i.shape.element_type)
    plain = edit.create(i.computation, i.name, i.opcode, shape, operands, i.attributes)
    back = [u for u in i.users if keeps_values(u, RESHAPES) and u.shape.same_values(shape)]
    for user in back:
        edit.replace_all_uses(user, plain)
    if i.is_root or any(u not in back for u in i.users):
        edit.replace_all_uses(i, edit.create(i.computation, i.name, "reshape", i.shape, [plain]))
    edit.sort(i.computation)


def _earlier(i: Instruction) -> Iterator[int]:
    """The numbers of instructions before this one, of its shape, that may stand for it: the first with its opcode; in a
    computation that is called, also the first parameter or element of one. For an element of a tuple, only the same
    element."""
    module = i.computation.module
    is_entry = module is not None and i.computation is module.entry
    is_alike = is_input = False
    index = tuple_index(i)
    for number, other in enumerate(itertools.islice(i.computation.instructions, EARLIEST)):
        if other is i:
            return
        if index is not None:
            if tuple_index(other) == index and other.operands == i.operands:
                yield number
                return
            continue
        if other in i.operands or not other.shape.same_values(i.shape):
            continue
        if other.opcode == i.opcode and not is_alike:
            is_alike = True
            yield number
        elif not is_entry and not is_input and (other.parameter_number is not None or tuple_index(other) is not None):
            is_input = True
            yield number


def _source(i: Instruction) -> int | None:
    """The number of the nearest instruction of this one's shape that it is computed from through others, such as the
    value before two reshapes or transposes that undo each other."""
    values = list(i.operands)
    nearest = next((v for v in _computed_from(values) if v not in values and v.shape.same_values(i.shape)), None)
    return None if nearest is None else list(i.computation.instructions).index(nearest)


def _read_alike(i: Instruction) -> int | None:
    """The number of the first of several operands that has this one's shape, such as the array of which it updates a
    part."""
    if len(i.operands) < 2:
        return None
    alike = next((o for o in i.operands if o.shape.same_values(i.shape)), None)
    return None if alike is None else list(i.computation.instructions).index(alike)


def _computed_from(values: Iterable[Instruction]) -> Iterator[Instruction]:
    """These instructions and those that they are computed from, the nearest first; no more than `EARLIEST`."""
    reached = dict.fromkeys(values)
    queue = deque(reached)
    while queue and len(reached) < EARLIEST:
        value = queue.popleft()
        yield value
        new = [o for o in value.operands if o not in reached]
        reached.update(dict.fromkeys(new))
        queue.extend(new)
    yield from queue


def _take_earlier(i: Instruction, number: int) -> None:
    """Another instruction of the computation in its place, by number."""
    take(i, list(i.computation.instructions)[number])


# ---- called computations


def called_names(module: Module) -> list[str]:
    """The names of computations that are called and have stretches to go, the longest first."""
    others = [c for c in module.computations if c is not module.entry and len(c.instructions) > FEW]
    return [c.name for c in sorted(others, key=lambda c: -len(c.instructions))]


def without_in(module: Module, name: str, gone: Collection[int]) -> Module:
    """A called computation without the instructions with these numbers. A parameter or an element of one stands for
    the value of each, or zeros where none has its shape."""
    computation = next(c for c in module.computations if c.name == name)
    members = list(computation.instructions)
    inputs = [i for i in members if _is_input(i)]
    leaving = [i for n, i in enumerate(members) if n in gone and not (_is_input(i) or i.is_root or i.literal)]
    for i in reversed(leaving):
        if all(user in leaving for user in i.users):
            continue
        same = next((other for other in inputs if other.shape.same_values(i.shape)), None)
        if same is not None:
            edit.replace_all_uses(i, same)
        elif i.shape.is_array:
            fill(i, 0)
    return tidied(module)


def _is_input(i: Instruction) -> bool:
    """Whether it is a parameter or an element of one."""
    return i.parameter_number is not None or (tuple_index(i) is not None and i.operands[0].parameter_number is not None)


def _call_another(i: Instruction, name: str) -> None:
    """A call of the first other computation with the same parameters and result."""
    module, mine = i.computation.module, i.called_by(name)
    assert module is not None
    other = next((c for c in module.computations if c is not mine and _has_form_of(c, mine)), None)
    if other is None or i.computation in needed_first([other], lambda c: c.called):
        raise ValueError("there is no other one")
    value = i.attributes[name]
    edit.set_attribute(i, name, Called(other, is_list=isinstance(value, Called) and value.is_list))


def _has_form_of(one: Computation, other: Computation) -> bool:
    shapes = [[p.shape for p in computation.parameters] for computation in (one, other)]
    return shapes[0] == shapes[1] and one.root.shape == other.root.shape


# ---- control flow


def _inline(i: Instruction) -> None:
    """The computation that it calls in its place."""
    module = i.computation.module
    assert module is not None
    if not inline(module, lambda other: other is i and (is_plain_call(i) or is_plain_fusion(i))):
        raise ValueError("it cannot be inlined")


def _take_branch(i: Instruction, branch: int) -> None:
    put_in_place(i, list(i.called())[branch], [i.operands[1 + branch]])


def drop_tuple(module: Module) -> Module:
    """Replace a root tuple of one element by that element."""
    elements = tuple_elements(module.entry.root)
    if elements is None or len(elements) != 1:
        raise ValueError("there is no tuple of one")
    shared = shared_memory(module)
    set_outputs(module.entry, list(elements))
    share(module, shared)
    return tidied(module)
