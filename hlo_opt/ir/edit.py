"""The only functions that change a module. Each keeps use lists, unique names and parents consistent."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from hlo_opt.ir.attribute import Attribute, Called
from hlo_opt.ir.facts import IN_ORDER, SNAPSHOT
from hlo_opt.ir.literal import Literal
from hlo_opt.ir.module import Computation, Instruction, Module
from hlo_opt.ir.shape import Shape
from hlo_opt.ir.walk import are_in_order, edited_since, needed_by, needed_first

_CALLED = attrgetter("called")


def add_computation(module: Module, computation: Computation, *, entry: bool = False) -> Computation:
    """Append a computation to the module. Its name must be unique; `sort_computations` restores callees-first order."""
    computation.module = module
    module._computations[computation] = None
    if entry:
        module._entry = computation
    return computation


def new_computation(module: Module, wish: str) -> Computation:
    """Append an empty computation. Its name is `wish`, with a number after it where that name is taken."""
    return add_computation(module, Computation(module.unique_name(wish)))


def remove_computation(computation: Computation) -> None:
    """Remove a computation that nothing calls from its module."""
    assert computation.module is not None
    del computation.module._computations[computation]
    computation.module = None


def append(computation: Computation, instruction: Instruction, *, root: bool = False) -> Instruction:
    """Append an instruction. Its operands must be in the computation already."""
    computation._instructions[instruction] = None
    computation.facts.clear()
    if computation._called is not None and _calls(instruction):
        computation._called = None
    instruction.parent = computation
    if computation._parameters is not None and instruction.parameter_number is not None:
        computation._parameters[instruction] = None
    if computation._users_known:
        instruction._users = {}
        for operand in instruction.operands:
            _add_use(operand, instruction)
    if root:
        computation._root = instruction
    return instruction


def create(
    computation: Computation,
    wish: str,
    opcode: str,
    shape: Shape,
    operands: Iterable[Instruction] = (),
    attributes: Mapping[str, Attribute | Called] | None = None,
    *,
    literal: Literal | None = None,
    parameter_number: int | None = None,
    root: bool = False,
) -> Instruction:
    """Make an instruction with a unique name and append it."""
    name = wish if computation.module is None else computation.module.unique_name(wish)
    instruction = Instruction(
        name, opcode, shape, list(operands), dict(attributes or {}), literal=literal, parameter_number=parameter_number
    )
    return append(computation, instruction, root=root)


def create_parameter(computation: Computation, wish: str, shape: Shape, number: int) -> Instruction:
    """Append a parameter."""
    return create(computation, wish, "parameter", shape, parameter_number=number)


def create_tuple(computation: Computation, values: Sequence[Instruction], *, root: bool = False) -> Instruction:
    """Append a tuple of values."""
    return create(computation, "tuple", "tuple", Shape.tuple_of(*(v.shape for v in values)), values, root=root)


def element_of(value: Instruction, number: int) -> Instruction:
    """A `get-tuple-element` that reads element `number` of a tuple-shaped value, in no computation yet."""
    name = "get-tuple-element"
    assert value.shape.elements is not None
    return Instruction(name, name, value.shape.elements[number], [value], {"index": Attribute.of(number)})


def create_element(value: Instruction, number: int) -> Instruction:
    """Append a `get-tuple-element` that reads element `number` of a tuple-shaped value."""
    element = element_of(value, number)
    return create(value.computation, element.name, element.opcode, element.shape, [value], element.attributes)


def clone_into(
    computation: Computation, instruction: Instruction, operands: Iterable[Instruction], *, name: str | None = None
) -> Instruction:
    """Append a copy of an instruction with other operands. The copy keeps the original's position in the source
    text."""
    wish = name or instruction.name
    if computation.module is not None:
        wish = computation.module.unique_name(wish)
    return append(computation, copied(instruction, wish, operands))


def copied(
    instruction: Instruction,
    name: str,
    operands: Iterable[Instruction],
    attributes: Mapping[str, Attribute | Called] | None = None,
) -> Instruction:
    """A copy of an instruction, in no computation yet and without control predecessors."""
    return Instruction(
        name,
        instruction.opcode,
        instruction.shape,
        list(operands),
        dict(instruction.attributes if attributes is None else attributes),
        literal=instruction.literal,
        parameter_number=instruction.parameter_number,
        offset=instruction.offset,
        end=instruction.end,
    )


def _calls(instruction: Instruction) -> bool:
    """Whether an attribute of an instruction names a computation."""
    return Called in map(type, instruction.attributes.values())


def set_root(computation: Computation, root: Instruction) -> None:
    computation._root = root
    computation.facts.clear()


def _touch(instruction: Instruction) -> None:
    """Clear the facts about the computation of a changed instruction, if it is in one."""
    if instruction.parent is not None:
        instruction.parent.facts.clear()


def set_header(module: Module, name: str, value: Attribute) -> None:
    """Give a module's header an attribute, or another value of one."""
    module.attributes[name] = value


def take_header(module: Module, other: Module) -> None:
    """Give a module the header of another one."""
    module.attributes.clear()
    module.attributes.update(other.attributes)


def set_attribute(instruction: Instruction, name: str, value: Attribute | Called) -> None:
    if instruction.parent is not None and (isinstance(value, Called) or _calls(instruction)):
        instruction.parent._called = None
    instruction.attributes[name] = value
    _touch(instruction)


def inherit(new: Instruction, old: Instruction) -> None:
    """Give an instruction the `metadata` (with the Python line) and `frontend_attributes` of the one that it stands
    for, unless it has its own."""
    for name in ("metadata", "frontend_attributes"):
        value = old.attributes.get(name)
        if value is not None and name not in new.attributes:
            set_attribute(new, name, value)


def set_shape(instruction: Instruction, shape: Shape) -> None:
    instruction.shape = shape
    _touch(instruction)


def set_literal(constant: Instruction, literal: Literal) -> None:
    """Give a constant another value, and its shape."""
    constant.literal, constant.shape = literal, literal.shape
    _touch(constant)


def stop_waiting(computation: Computation) -> None:
    """Drop all control predecessors in the computation."""
    for instruction in computation._instructions:
        instruction.control_predecessors = []
    computation.facts.clear()


def replace_operand(user: Instruction, position: int, new: Instruction) -> None:
    """Make `new` the operand at `position` of the user."""
    old = user.operands[position]
    if old is new:
        return
    user.operands[position] = new
    _touch(user)
    if user._places is not None:
        user._places[old].remove(position)
        insort(user._places.setdefault(new, []), position)
    if old._users is not None:
        _drop_use(old, user)
    if new._users is not None:
        _add_use(new, user)


def set_operands(user: Instruction, operands: Iterable[Instruction]) -> None:
    """Replace all operands of an instruction."""
    known = user.computation._users_known
    if known:
        for old in user.operands:
            assert old._users is not None
            old._users.pop(user, None)
    user.operands = list(operands)
    user._places = None
    _touch(user)
    if known:
        for new in user.operands:
            _add_use(new, user)


def redirect_users(old: Instruction, new: Instruction) -> None:
    """Every user of `old`, and the root, reads `new` instead.

    Takes time proportional to the uses. No instruction may have `old` as a control predecessor.
    """
    for user in list(old.users):
        for position in _positions(user, old):
            replace_operand(user, position, new)
    computation = old.computation
    if computation._root is old:
        set_root(computation, new)


MANY_OPERANDS = 64
"""An instruction with at least this many operands keeps a map from operand to positions instead of scanning."""


def _positions(user: Instruction, operand: Instruction) -> list[int]:
    """The operand positions at which `user` reads `operand`."""
    operands = user.operands
    if len(operands) < MANY_OPERANDS:
        return [n for n, o in enumerate(operands) if o is operand]
    if user._places is None:
        user._places = {}
        for number, each in enumerate(operands):
            user._places.setdefault(each, []).append(number)
    return list(user._places.get(operand, ()))


def replace_all_uses(old: Instruction, new: Instruction) -> None:
    """Every user of `old`, the root and every instruction with `old` as control predecessor take `new` instead."""
    if old is new:
        return
    redirect_users(old, new)
    computation = old.computation
    for instruction in computation._instructions:
        if instruction.control_predecessors and old in instruction.control_predecessors:
            instruction.control_predecessors = [new if p is old else p for p in instruction.control_predecessors]
            computation.facts.clear()


def remove(instruction: Instruction) -> None:
    """Remove an instruction without users from its computation. Raises ValueError for the root or where it has
    users."""
    computation = instruction.computation
    if computation._root is instruction or (instruction._users is not None and instruction._users):
        raise ValueError(f"{instruction.name} is still used")
    if computation._users_known:
        for operand in instruction.operands:
            _drop_use(operand, instruction)
    del computation._instructions[instruction]
    computation.facts.clear()
    if computation._called is not None and _calls(instruction):
        computation._called = None
    if computation._parameters is not None:
        computation._parameters.pop(instruction, None)
    instruction.parent = None


def unmake(instruction: Instruction) -> None:
    """Undo the creation of an instruction that has no users; its name is free again."""
    module = instruction.computation.module
    remove(instruction)
    if module is None or module._names is None:
        return
    module._names.discard(instruction.name)
    stem, _, digits = instruction.name.rpartition(".")
    if stem and digits.isdigit() and module._taken.get(stem) == int(digits):
        module._taken[stem] -= 1


def splice(inner: Computation, computation: Computation, arguments: list[Instruction]) -> Instruction:
    """Move all instructions of `inner`, which the caller then drops, to the end of another computation.

    `arguments` replace the parameters of `inner`, by number. Returns the value of its root in the new place. The cost
    is proportional to the uses of parameters; other instructions are only re-parented.
    """
    inner.index_users()
    parameters = inner.parameters
    root = inner.root if inner.root.parameter_number is None else arguments[inner.root.parameter_number]
    for parameter in parameters:
        del inner._instructions[parameter]
    for member in inner._instructions:
        member.parent = computation
    computation._instructions.update(inner._instructions)
    inner._instructions = {}
    inner._parameters = inner._called = computation._called = None
    inner.facts.clear()
    computation.facts.clear()
    for parameter, argument in zip(parameters, arguments, strict=True):
        for user in list(parameter.users):
            for position in _positions(user, parameter):
                replace_operand(user, position, argument)
    return root


def sort(computation: Computation) -> None:
    """Sort instructions so that operands and control predecessors precede users; the order is stable otherwise.

    Raises AssertionError on a cycle, so that a wrong edit cannot loop for ever.
    """
    if are_in_order(computation._instructions, needed_by):
        return
    computation._instructions = dict.fromkeys(needed_first(computation._instructions, needed_by))
    computation._called = None
    for fact in IN_ORDER:
        computation.facts.pop(fact, None)


def arrange(computation: Computation, order: Iterable[Instruction]) -> None:
    """Reorder the instructions. `order` names each once, with operands and control predecessors before users."""
    computation._instructions = dict.fromkeys(order)
    computation._called = None
    computation.facts.clear()


def sort_computations(module: Module) -> None:
    """Sort computations so that callees precede callers; the order is stable otherwise."""
    if not are_in_order(module._computations, _CALLED):
        module._computations = dict.fromkeys(needed_first(module._computations, _CALLED))


def restore_names(module: Module) -> None:
    """Give elided constants that passes renamed their original names back, where those are free.

    A constant whose value the text leaves out is identified by its name only.
    """
    moved = [
        i
        for c in module.computations
        for i in c.instructions
        if i.literal is not None and i.literal.is_elided and i.literal.origin not in ("", i.name)
    ]
    if not moved:
        return
    names = {i.name for c in module.computations for i in c.instructions} | {c.name for c in module.computations}
    for i in moved:
        assert i.literal is not None
        if i.literal.origin not in names:
            i.name = i.literal.origin
            names.add(i.name)


def clone_module(module: Module) -> Module:
    """A deep copy with the same names, order and source positions. Literals and attribute values are immutable and
    shared."""
    return _copy_of(module, dict.fromkeys(module._computations))


def snapshot(module: Module) -> Module:
    """A copy of a module that is only read. It shares with the snapshot before it the computations that were not edited
    in between; names there are as they were."""
    edited = edited_since(module, SNAPSHOT)
    kept: dict[Computation, Computation | None] = {}
    for computation in module._computations:
        known = computation.facts.get(SNAPSHOT)
        kept[computation] = known if isinstance(known, Computation) else None
    for computation in edited:
        kept[computation] = None
    copy = _copy_of(module, kept)
    for computation, copied in zip(module._computations, copy._computations, strict=True):
        computation.facts[SNAPSHOT] = copied
    return copy


def forget_snapshots(module: Module) -> None:
    """Let go of what snapshots of a module share."""
    for computation in module._computations:
        computation.facts.pop(SNAPSHOT, None)


def _copy_of(module: Module, known: Mapping[Computation, Computation | None]) -> Module:
    """A copy of a module, with the copies of computations that are known already."""
    copy = Module(module.name, source=module.source)
    copy.attributes = dict(module.attributes)
    copy.tables = module.tables
    copy.target = module.target
    computations = {c: Computation(c.name, offset=c.offset) if kept is None else kept for c, kept in known.items()}
    for old, new in computations.items():
        add_computation(copy, new, entry=old is module._entry)
        if known[old] is None:
            new.attributes = dict(old.attributes)
            _copy_instructions(old, new, computations)
    return copy


def clone_into_module(module: Module, computation: Computation) -> Computation:
    """Copy a computation of another module, and all that it calls, under names unique here. Returns the copy."""
    computations = {old: new_computation(module, old.name) for old in needed_first([computation], lambda c: c.called)}
    for old, new in computations.items():
        new.attributes = dict(old.attributes)
        _copy_instructions(old, new, computations)
        for instruction in new.instructions:
            instruction.name = module.unique_name(instruction.name)
    return computations[computation]


def copy_computations(computations: Iterable[Computation], module: Module) -> dict[Computation, Computation]:
    """Copy computations, which call only each other and come callees first, into another module under the same
    names."""
    copies: dict[Computation, Computation] = {}
    for old in computations:
        new = copies[old] = add_computation(module, Computation(old.name, offset=old.offset))
        new.attributes = dict(old.attributes)
        _copy_instructions(old, new, copies)
    return copies


def calling(instruction: Instruction, computations: Mapping[Computation, Computation]) -> dict[str, Attribute | Called]:
    """The instruction's attributes, with called computations replaced as the mapping says."""
    attributes = instruction.attributes.copy()
    for name, value in instruction.attributes.items():
        if value.__class__ is Called:
            attributes[name] = Called(*[computations.get(c, c) for c in value.computations], is_list=value.is_list)
    return attributes


def clone_computation(computation: Computation) -> Computation:
    """Copy a computation within its module, under unique names. The copy calls what the original calls."""
    assert computation.module is not None
    copy = new_computation(computation.module, computation.name)
    copy.attributes = dict(computation.attributes)
    _copy_instructions(computation, copy, {})
    for instruction in copy.instructions:
        instruction.name = computation.module.unique_name(instruction.name)
    return copy


def _copy_instructions(old: Computation, new: Computation, computations: Mapping[Computation, Computation]) -> None:
    """Fill a new computation."""
    copies: dict[Instruction, Instruction] = {}
    new._called = [computations.get(c, c) for c in old.called]
    for i in old._instructions:
        clone = Instruction(
            i.name,
            i.opcode,
            i.shape,
            [copies[o] for o in i.operands],
            calling(i, computations) if new._called else i.attributes.copy(),
            literal=i.literal,
            parameter_number=i.parameter_number,
            offset=i.offset,
            end=i.end,
        )
        if i.control_predecessors:
            clone.control_predecessors = [copies[p] for p in i.control_predecessors]
        clone.parent = new
        copies[i] = clone
    new._instructions = dict.fromkeys(copies.values())  # `append` would look for users and parameters each time
    new._root = None if old._root is None else copies[old._root]


def _add_use(operand: Instruction, user: Instruction) -> None:
    assert operand._users is not None
    operand._users[user] = operand._users.get(user, 0) + 1


def _drop_use(operand: Instruction, user: Instruction) -> None:
    assert operand._users is not None
    count = operand._users[user] - 1
    if count:
        operand._users[user] = count
    else:
        del operand._users[user]
