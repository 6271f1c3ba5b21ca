"""A part of a module as a module of its own: some instructions of one computation, with parameters for what they read
from outside, and what they call."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from hlo_opt.analysis.graph.inlining import remove_uncalled
from hlo_opt.analysis.properties import effectful_computations
from hlo_opt.cutting.sharing import share, shared_memory
from hlo_opt.ir import Called, Computation, Instruction, Module, Shape, edit
from hlo_opt.ir.walk import needed_first
from hlo_opt.ops.sets import tuple_elements, tuple_index
from hlo_opt.passes.dce import sweep

KEPT_IN_HEADER = ("is_scheduled", "replica_count", "num_partitions", "frontend_attributes")
"""Attributes of a module's header that hold for a part, too. The others are about parameters and outputs, of which a
part has others; sharing.py keeps the aliases."""

SMALL = 16
"""Instructions of a module of which all cuts are tried in little time."""


@dataclass(frozen=True)
class ModulePart:
    """A module, and for each parameter the instruction of the original whose value it stands for."""

    module: Module
    inputs: tuple[Instruction, ...]


def part_of(computation: Computation, kept: Collection[Instruction], outputs: Iterable[Instruction] = ()) -> ModulePart:
    """The kept instructions as a module of its own. Without `outputs` it returns their values that an instruction
    outside reads, or that none reads.

    The part also has the constants that it reads, and the operations whose value no parameter can have: a token, the
    result of an asynchronous start. Raises ValueError where nothing is left.
    """
    module = computation.module
    assert module is not None
    members = _closed(computation, kept)
    named = list(dict.fromkeys(outputs)) or _outputs(computation, members)
    part = Module(module.name, source=module.source)
    part.attributes = {name: module.attributes[name] for name in KEPT_IN_HEADER if name in module.attributes}
    part.tables, part.target = module.tables, module.target
    needed = set(needed_first((c for i in members for c in i.called()), lambda c: c.called))
    copies = edit.copy_computations([c for c in module.computations if c in needed], part)
    entry = edit.add_computation(part, Computation(computation.name), entry=True)
    inputs = dict.fromkeys(o for i in members for o in i.operands if o not in members)
    inputs.update(dict.fromkeys(o for o in named if o not in members))
    values: dict[Instruction, Instruction] = {}
    for number, instruction in enumerate(inputs):
        values[instruction] = edit.create_parameter(entry, instruction.name, instruction.shape, number)
    for i in members:
        copy = edit.copied(i, part.unique_name(i.name), [values[o] for o in i.operands], edit.calling(i, copies))
        copy.control_predecessors = [values[p] for p in i.control_predecessors if p in members]
        values[i] = edit.append(entry, copy)
    set_outputs(entry, [values[o] for o in named])
    if computation is module.entry:
        share(
            part,
            [
                replace(s, parameter=values[s.parameter], output=values.get(s.output, s.output))
                for s in shared_memory(module)
                if s.parameter in inputs
            ],
        )
    return ModulePart(part, tuple(inputs))


def set_outputs(entry: Computation, values: list[Instruction]) -> None:
    """Let a computation return these values: one as it is, several in a tuple. Raises ValueError for none."""
    if not values:
        raise ValueError("nothing is left")
    if len(values) == 1:
        edit.set_root(entry, values[0])
    else:
        edit.create_tuple(entry, values, root=True)


def outputs_of(computation: Computation) -> list[Instruction]:
    """The values that a computation returns: the elements of its root's tuple, each once, or its root."""
    elements = tuple_elements(computation.root)
    return [computation.root] if elements is None else list(dict.fromkeys(elements))


def can_be_parameter(shape: Shape) -> bool:
    """Whether a parameter can have a value of this shape."""
    return all(leaf.is_array for leaf in shape.leaves())


def _closed(computation: Computation, kept: Collection[Instruction]) -> dict[Instruction, None]:
    """The kept instructions and those that they cannot be without, in order. Each element of a tuple from outside is an
    input by itself."""
    wanted = {i for i in kept if i.parameter_number is None}
    todo = list(wanted)
    while todo:
        for operand in todo.pop().operands:
            must = operand.literal is not None or not can_be_parameter(operand.shape)
            if must and operand not in wanted and operand.parameter_number is None:
                wanted.add(operand)
                todo.append(operand)
    for i in computation.instructions:
        if i in wanted and tuple_index(i) is not None and i.operands[0] not in wanted and can_be_parameter(i.shape):
            wanted.discard(i)
    return {i: None for i in computation.instructions if i in wanted}


def _outputs(computation: Computation, members: dict[Instruction, None]) -> list[Instruction]:
    """The values of a part that others read, or nobody. The tuple of the module's outputs is left out."""
    root = computation.root
    if tuple_elements(root) is not None and len(members) > 1:
        members.pop(root, None)
    outputs = set(outputs_of(computation))
    values = []
    for i in members:
        if i.literal is not None or not can_be_parameter(i.shape):
            continue
        if i in outputs or not i.users or any(user not in members for user in i.users):
            values.append(i)
    return values


def tidied(module: Module) -> Module:
    """The module, changed in place, without unused instructions that have no effect, unused parameters of the entry
    included. The numbers of parameters close up."""
    for computation in module.computations:
        edit.sort(computation)
        _take_elements(computation)
    remove_uncalled(module)
    effects = effectful_computations(list(module.computations))
    for computation in list(module.computations):
        sweep(computation, effects)
    remove_uncalled(module)
    edit.sort_computations(module)
    entry = module.entry
    shared = shared_memory(module)
    for parameter in entry.parameters:
        if not parameter.users and not parameter.is_root:
            edit.remove(parameter)
    for number, parameter in enumerate(entry.parameters):
        parameter.parameter_number = number
    for name in [n for n in module.attributes if n not in KEPT_IN_HEADER]:
        del module.attributes[name]
    share(module, shared)
    return module


def _take_elements(computation: Computation) -> None:
    """Replace each element of a tuple that this computation puts together by the value in it."""
    for i in list(computation.instructions):
        number = tuple_index(i)
        elements = None if number is None else tuple_elements(i.operands[0])
        if number is not None and elements is not None and elements[number].shape.same_values(i.shape):
            edit.replace_all_uses(i, elements[number])
    edit.sort(computation)


def size(module: Module) -> tuple[int, ...]:
    """The size of a module, for comparison: its operations (instructions without parameters), its instructions,
    elements of arrays, types and unusual layouts, attributes, operands and dimensions, digits of constants, and the
    rest of the header."""
    every = [i for c in module.computations for i in c.instructions]
    operations = sum(i.parameter_number is None for i in every)
    leaves = [leaf for i in every for leaf in i.shape.leaves()]
    elements = sum(max(0, leaf.element_count) for leaf in leaves)
    plain = sum(map(_plainness, leaves)) + len({leaf.type for leaf in leaves if leaf.is_array})
    attributes = sum(len(i.attributes) + len(i.operands) + len(i.control_predecessors) for i in every)
    attributes += sum(leaf.rank for leaf in leaves)
    constants = sum(_digits(i) for i in every if i.literal is not None)
    beside = len(module.attributes) + len(module.tables)
    return operations, len(every), elements, plain, attributes, constants, beside


def simpler(after: tuple[int, ...], before: tuple[int, ...]) -> bool:
    """Whether a module became so much simpler that cuts which failed before may succeed: it has fewer operations or
    instructions, plainer types, or half the elements. Elements count for a small module only: they seldom help, and
    every cut is tried once more."""
    fewer_elements = after[1] <= SMALL and 2 * after[2] <= before[2]
    return after[:2] < before[:2] or after[3] < before[3] or fewer_elements


def _plainness(shape: Shape) -> int:
    """0 for a usual type with the usual layout, more for others."""
    kind = {"f32": 0, "pred": 0, "s32": 0}.get(shape.type.name, 1)
    return kind + (not shape.is_row_major) + any(shape.dynamic)


def _digits(constant: Instruction) -> int:
    literal = constant.literal
    assert literal is not None
    if literal.is_elided or not literal.shape.is_array:
        return 1
    return len(str(literal.text)) if literal.text is not None else len(str(literal.value))


def callers(module: Module) -> dict[Computation, list[Instruction]]:
    """The instructions that call each computation."""
    calling: dict[Computation, list[Instruction]] = {c: [] for c in module.computations}
    for computation in module.computations:
        for i in computation.instructions:
            for value in i.attributes.values():
                if isinstance(value, Called):
                    for called in value.computations:
                        calling[called].append(i)
    return calling
