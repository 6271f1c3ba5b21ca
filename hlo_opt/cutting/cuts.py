"""Single cuts: what can be tried to make a module smaller, each a function from a module to another one. What a cut
gives may be no valid module; whoever tries it verifies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial

from hlo_opt.analysis.graph.inlining import inline, is_plain_call, is_plain_fusion
from hlo_opt.analysis.properties import has_side_effect
from hlo_opt.cutting.parts import callers, is_givable, outputs_of, part_of, set_outputs, tidied
from hlo_opt.cutting.sharing import share, shared_memory
from hlo_opt.ir import Attribute, Called, Computation, Instruction, Module, Shape, edit
from hlo_opt.ir.walk import needed_first
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.control.table import branches
from hlo_opt.ops.sets import RESHAPES, body_of, held, keeps_values, looped, taken_element
from hlo_opt.ops.writer import Writer

Cut = Callable[[Module], Module]
"""Makes another module of a module, which it may change. Raises ValueError, KeyError, TypeError or AssertionError where
it cannot."""


def parts(module: Module, kept: Collection[int]) -> Module:
    """The instructions of the entry with these numbers."""
    members = list(module.entry.instructions)
    return tidied(part_of(module.entry, {members[n] for n in kept}).module)


def without(module: Module, gone: Collection[int]) -> Module:
    """The entry without the instructions with these numbers: what they gave is a parameter."""
    return parts(module, [n for n in range(len(module.entry.instructions)) if n not in gone])


def count(module: Module) -> int:
    """The number of the entry's instructions, which `parts` and `without` take by number."""
    return len(module.entry.instructions)


# ---- other entries, and fewer outputs


def entries(module: Module) -> list[Cut]:
    """Every computation that is called, as the entry, the smallest first."""
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
    needed += [i for i in needed_first(effects, lambda i: i.operands) if i not in needed] if not needed else []
    return tidied(part_of(module.entry, needed, outputs).module)


# ---- single instructions


def single_cuts(module: Module) -> list[Cut]:
    """What can be tried with each instruction, from the last to the first."""
    cuts: list[Cut] = []
    by = callers(module)
    for place, computation in reversed(list(enumerate(module.computations))):
        for number, i in reversed(list(enumerate(computation.instructions))):
            cuts += [partial(_at, change=change, place=place, number=number) for change in _changes(i, by)]
    return cuts


Change = Callable[[Instruction], None]


def _at(module: Module, change: Change, place: int, number: int) -> Module:
    computation = list(module.computations)[place]
    change(list(computation.instructions)[number])
    return tidied(module)


def _changes(i: Instruction, by: dict[Computation, list[Instruction]]) -> Iterator[Change]:
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
        yield _wait_for_nothing
    if looped(i) is not None:
        yield _take_init
        yield _run_once
        for element in range(len(i.shape.elements or ())):
            yield partial(_drop_state, element=element)
    for branch in range(len(list(i.called()))) if branches(i) else ():
        yield partial(_take_branch, branch=branch)
    if body_of(i) is not None:
        yield _inline
    for name, value in i.attributes.items():
        if isinstance(value, Called) and len(value.computations) == 1:
            yield partial(_call_another, name=name)
    if is_entry and is_givable(i.shape) and i.operands and held(i) is None:
        yield _give
    for operand in range(len(i.operands)):
        if i.operands[operand].shape.same_values(i.shape):
            yield partial(_take_operand, operand=operand)
    if not is_entry and i.shape.is_array and i.literal is None and i.shape.type.numpy_name:
        yield partial(_fill, value=0)
        yield partial(_fill, value=1)
    if i.literal is not None and is_entry and i.shape.is_array:
        yield _give
    if _reshaped(i) is not None:
        yield _take_no_detour
    for operand in range(len(i.operands)) if len(i.operands) > 1 and held(i) is None else ():
        if any(o.shape.same_values(i.operands[operand].shape) for o in i.operands[:operand]):
            yield partial(_same_operand, operand=operand)


def _replace(i: Instruction, other: Instruction) -> None:
    if other is i:
        raise ValueError("nothing changes")
    edit.replace_all_uses(i, other)
    edit.sort(i.computation)


def _merge_parameter(i: Instruction) -> None:
    """Take the first parameter of the same shape instead."""
    others = [p for p in i.computation.parameters if p.shape == i.shape]
    _replace(i, others[0])


def _drop_parameter(i: Instruction) -> None:
    """A parameter that nothing reads goes, with the operands of all callers."""
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


def _wait_for_nothing(i: Instruction) -> None:
    i.control_predecessors = []


def _give(i: Instruction) -> None:
    """A parameter instead."""
    computation = i.computation
    parameter = edit.create_parameter(computation, f"{i.name}.given", i.shape, len(computation.parameters))
    _replace(i, parameter)
    if not i.is_root:
        edit.remove(i)
        parameter.name = i.name


def _take_operand(i: Instruction, operand: int) -> None:
    _replace(i, i.operands[operand])


def _same_operand(i: Instruction, operand: int) -> None:
    """The first operand of that shape at another place, too."""
    shape = i.operands[operand].shape
    first = next(o for o in i.operands if o.shape.same_values(shape))
    if first is i.operands[operand]:
        raise ValueError("nothing changes")
    edit.replace_operand(i, operand, first)


def _reshaped(i: Instruction) -> Shape | None:
    """The shape of what an elementwise operation reads through reshapes, where all of it has the same dimensions."""
    spec = find(i.opcode)
    if spec is None or spec.kind is not OpKind.ELEMENTWISE or not i.operands or not i.shape.is_array:
        return None
    if not all(keeps_values(o, RESHAPES) for o in i.operands):
        return None
    sources = [o.operands[0].shape for o in i.operands]
    return sources[0] if len({s.dimensions for s in sources}) == 1 else None


def _take_no_detour(i: Instruction) -> None:
    """The operation on what lies before the reshapes; what reshapes its result back reads it as it is."""
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


def _fill(i: Instruction, value: int) -> None:
    """One number everywhere."""
    writer = Writer("filled")
    number = writer.number(i.shape.type, value)
    filled = writer.finish([writer.spread(number, i.shape.dimensions)], [i.shape])
    _put_in_place(i, filled, [])


def _put_in_place(i: Instruction, callee: Computation, operands: Sequence[Instruction]) -> None:
    """What a computation gives for these operands instead."""
    values: dict[Instruction, Instruction] = {}
    for member in callee.instructions:
        if member.parameter_number is not None:
            values[member] = operands[member.parameter_number]
        else:
            values[member] = edit.clone_into(i.computation, member, [values[o] for o in member.operands])
    _replace(i, values[callee.root])


# ---- what is called


def _call_another(i: Instruction, name: str) -> None:
    """The first other computation that takes and gives the same is called instead: one that is called anyway."""
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
    """What it calls stands in its place."""
    module = i.computation.module
    assert module is not None
    if not inline(module, lambda other: other is i and (is_plain_call(i) or is_plain_fusion(i))):
        raise ValueError("it cannot be inlined")


def _take_init(loop: Instruction) -> None:
    """No round."""
    _replace(loop, loop.operands[0])


def _run_once(loop: Instruction) -> None:
    """One round, whatever the condition says."""
    _put_in_place(loop, loop.called_by("body"), loop.operands)


def _take_branch(i: Instruction, branch: int) -> None:
    _put_in_place(i, list(i.called())[branch], [i.operands[1 + branch]])


def _drop_state(loop: Instruction, element: int) -> None:
    """An element of a loop's state goes; rounds that read it read a constant, the one that it starts as or 0."""
    body, condition = loop.called_by("body"), loop.called_by("condition")
    start, elements, module = loop.operands[0], held(body.root), loop.computation.module
    assert module is not None
    init = held(start)
    is_given = start.parameter_number is not None and loop.computation is module.entry and len(start.users) == 1
    if elements is None or len(elements) < 2 or (init is None and not is_given):
        raise ValueError("the state is no tuple that is put together here")
    if any(len(callers(module)[c]) > 1 for c in (body, condition)) or body is condition:
        raise ValueError("another loop runs it, too")
    readers = (loop, *body.parameters, *condition.parameters)
    if any(taken_element(user) is None for reader in readers for user in reader.users):
        raise ValueError("the state is handed on whole")
    if loop.is_root and loop.computation is not module.entry:
        raise ValueError("the state is handed on whole")
    shape = Shape.tuple_of(*(s for n, s in enumerate(loop.shape.elements or ()) if n != element))
    before = body.root
    edit.create_tuple(body, [o for n, o in enumerate(elements) if n != element], root=True)
    edit.remove(before)
    for reader in readers:
        for user in list(reader.users):
            number = taken_element(user)
            if number == element:
                _read_constant(user, None if init is None else init[element], reader is loop)
            elif number is not None and number > element:
                edit.set_attribute(user, "index", Attribute.of(number - 1))
        edit.set_shape(reader, shape)
    if init is None:
        edit.set_shape(start, shape)
    else:
        state = edit.create_tuple(loop.computation, [o for n, o in enumerate(init) if n != element])
        edit.set_operands(loop, [state])
    for computation in (body, condition, loop.computation):
        edit.sort(computation)


def _read_constant(user: Instruction, value: Instruction | None, is_after: bool) -> None:
    """What takes a lost element out of a state is a constant instead; after the loop, what the element starts as."""
    if value is not None and is_after:
        edit.replace_all_uses(user, value)
    elif value is not None and value.literal is not None:
        edit.replace_all_uses(user, edit.clone_into(user.computation, value, []))
    elif user.users or user.is_root:
        _fill(user, 0)
    edit.remove(user)


def drop_tuple(module: Module) -> Module:
    """The only output as it is, instead of in a tuple."""
    elements = held(module.entry.root)
    if elements is None or len(elements) != 1:
        raise ValueError("there is no tuple of one")
    shared = shared_memory(module)
    set_outputs(module.entry, list(elements))
    share(module, shared)
    return tidied(module)
