"""Outlining: moving instructions into the computation of a fusion. The only code that makes and grows fusions.

While fusions grow, instructions are appended to computations wherever they end up; `tidy` puts operands before users
again. Where an instruction is joined, the fusion keeps writing its value: it gets a tuple at its root and an output
more. Source: HloInstruction::FuseInstruction and CreateFusion, HloFusionInstruction::FuseInstructionIntoMultiOutput and
MergeFusionInstructionIntoMultiOutput in xla/hlo/ir/hlo_instructions.cc.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from hlo_opt.analysis.properties import inside
from hlo_opt.ir import Attribute, Called, Computation, Instruction, Module, edit
from hlo_opt.ops.sets import fused, tuple_elements, tuple_index

if TYPE_CHECKING:
    from hlo_opt.fusion.caches import Cache
    from hlo_opt.fusion.engine import Engine
    from hlo_opt.fusion.prices import ReadPaths
    from hlo_opt.fusion.state import FusionState
    from hlo_opt.ops.emission import XlaEmitter

Origins = dict[Instruction, str]
"""Names in the input of instructions that were copied into fusions under other names."""

KEPT_ON_FUSION = ("metadata", "frontend_attributes", "sharding")
"""Attributes of the root that the fusion carries too."""


HANDS_ON = frozenset({"bitcast", "get-tuple-element", "opt-barrier", "add-dependency"})
"""Opcodes that hand their first operand's value on, or an element of it, without a kernel."""


def original_name(instruction: Instruction, origins: Origins) -> str:
    """What the instruction was called in the input; for a fusion, what its root was. A fusion that stands for a
    library's kernel came under its own name."""
    while instruction not in origins and (body := inside(instruction)) is not None:
        instruction = computed(body.root)
    return origins.get(instruction, instruction.name)


def computed(output: Instruction) -> Instruction:
    """The instruction that computes an output of a fusion: for an element of an operation with several results, the
    operation. The fusion itself made the element."""
    while tuple_index(output) is not None and output.operands[0].parameter_number is None:
        output = output.operands[0]
    return output


def start_fusion(consumer: Instruction) -> Instruction:
    """Replace an instruction by a fusion that holds it alone. It keeps its name inside; the fusion is named by
    `tidy`."""
    computation = consumer.computation
    module = _module(computation)
    body = edit.new_computation(module, "fused_computation")
    operands = list(dict.fromkeys(consumer.operands))
    parameters = {operand: _parameter(body, module, n, operand) for n, operand in enumerate(operands)}
    _move(consumer, body, [parameters[o] for o in consumer.operands], consumer.name, root=True)
    fusion = fusion_of(body, consumer, operands)
    edit.redirect_users(consumer, fusion)
    edit.remove(consumer)
    return fusion


def fusion_of(body: Computation, consumer: Instruction, operands: Sequence[Instruction]) -> Instruction:
    """A loop fusion of a finished body, which says what the consumer in it said. It stands in the consumer's
    computation."""
    kept = {n: consumer.attributes[n] for n in KEPT_ON_FUSION if n in consumer.attributes}
    attributes = {"kind": Attribute.of("kLoop"), "calls": Called(body), **kept}
    return edit.create(consumer.computation, "fusion", "fusion", body.root.shape, list(operands), attributes)


Moved = dict[Instruction, Instruction]
"""What instructions became in the computation that they were copied to; those that are not in it moved as they are."""


def absorb(producer: Instruction, fusion: Instruction, origins: Origins) -> tuple[Moved, Computation | None]:
    """Compute the producer inside a fusion that reads it. The producer is removed when nothing else uses it, else it
    stays and is computed twice.

    A producer that is a fusion itself brings all its instructions. Returns what moved, and the computation of a fusion
    that is removed, for `remove_uncalled_of`.
    """
    body = fusion.called_by("calls")
    module = _module(body)
    body.index_users()
    alone = len(producer.users) == 1 and not producer.is_root
    parameters = body.parameters
    operands = list(fusion.operands)
    places = dict(zip(operands, parameters, strict=True))
    replaced = [p for o, p in zip(operands, parameters, strict=True) if o is producer]

    def inside(operand: Instruction) -> Instruction:
        if operand not in places:
            places[operand] = _parameter(body, module, len(operands), operand)
            operands.append(operand)
            parameters.append(places[operand])
        return places[operand]

    arguments = [inside(o) for o in producer.operands]
    moved: Moved = {}
    copy = _copy(producer, arguments, body, origins, keep_names=alone, moved=moved)
    for parameter in replaced:
        edit.redirect_users(parameter, copy)
        edit.remove(parameter)
        gone = operands.index(producer)
        del operands[gone], parameters[gone]
    for number, parameter in enumerate(parameters):
        parameter.parameter_number = number
    edit.set_operands(fusion, operands)
    if not alone:
        return moved, None
    called = fused(producer)
    edit.remove(producer)
    return moved, called


def take_in(producer: Instruction, arguments: list[Instruction], body: Computation, origins: Origins) -> Instruction:
    """Compute a producer, which is about to be removed, in a fusion's computation. Returns its value there."""
    return _copy(producer, arguments, body, origins, keep_names=True, moved={})


def _copy(
    producer: Instruction,
    arguments: list[Instruction],
    body: Computation,
    origins: Origins,
    *,
    keep_names: bool,
    moved: Moved,
) -> Instruction:
    """Returns the producer's value in the computation. What is removed anyway (`keep_names`) need not be copied; the
    producer itself is, whose users are still to be updated."""
    inner = fused(producer)
    if inner is None:
        copy = moved[producer] = _copied(producer, arguments, body, origins, keep_names=keep_names)
        return copy
    if keep_names:
        return edit.splice(inner, body, arguments)
    edit.sort(inner)
    places: dict[Instruction, Instruction] = {}
    for member in inner.instructions:
        if member.parameter_number is not None:
            places[member] = arguments[member.parameter_number]
            continue
        operands = [places[o] for o in member.operands]
        if fused(member) is not None:
            copy = _nested(member, operands, body)
        else:
            copy = _copied(member, operands, body, origins, keep_names=False)
        places[member] = moved[member] = copy
    return places[inner.root]


def _copied(
    instruction: Instruction, operands: list[Instruction], body: Computation, origins: Origins, *, keep_names: bool
) -> Instruction:
    name = instruction.name if keep_names else _module(body).unique_name(instruction.name)
    copy = _move(instruction, body, operands, name)
    if not keep_names or instruction in origins:
        origins[copy] = origins.get(instruction, instruction.name)
    return copy


def _nested(member: Instruction, operands: list[Instruction], body: Computation) -> Instruction:
    """A copy of a fusion that becomes part of another fusion's body; it stays a fusion, as in XLA's own dumps."""
    return edit.clone_into(body, member, operands)


def _move(
    instruction: Instruction, body: Computation, operands: list[Instruction], name: str, *, root: bool = False
) -> Instruction:
    copy = Instruction(
        name,
        instruction.opcode,
        instruction.shape,
        operands,
        dict(instruction.attributes),
        literal=instruction.literal,
        offset=instruction.offset,
        end=instruction.end,
    )
    return edit.append(body, copy, root=root)


def moved_into(body: Computation, instruction: Instruction, operands: list[Instruction]) -> Instruction:
    """An instruction, which is about to be removed, in a fusion's computation under its own name."""
    return _move(instruction, body, operands, instruction.name)


def _parameter(body: Computation, module: Module, number: int, operand: Instruction) -> Instruction:
    return parameter_for(body, number, operand)


def parameter_for(body: Computation, number: int, operand: Instruction) -> Instruction:
    """A new parameter of a fusion's computation."""
    return edit.create_parameter(body, f"param_{number}", operand.shape, number)


def _module(computation: Computation) -> Module:
    assert computation.module is not None
    return computation.module


def remove_uncalled_of(module: Module, candidates: list[Computation]) -> None:
    """Remove those of the computations that nothing calls any more."""
    if not candidates:
        return
    called = {body for c in module.computations for body in c.called}
    for body in dict.fromkeys(candidates):
        if body not in called and body.module is module:
            edit.remove_computation(body)


def become_like(fusion: Instruction, triton: Instruction) -> None:
    """Give a fusion that takes a Triton fusion in the kind and backend config of that one, by which its kernel is
    chosen."""
    for name in ("kind", "backend_config"):
        edit.set_attribute(fusion, name, triton.attributes[name])


def undo(fusion: Instruction) -> list[Instruction]:
    """Put what a fusion holds back into its computation. Returns the instructions that are there again."""
    computation = fusion.computation
    body = fusion.called_by("calls")
    edit.sort(body)
    copies: dict[Instruction, Instruction] = {}
    moved: list[Instruction] = []
    for member in body.instructions:
        if member.parameter_number is not None:
            copies[member] = fusion.operands[member.parameter_number]
        else:
            copies[member] = _move(member, computation, [copies[o] for o in member.operands], member.name)
            moved.append(copies[member])
    edit.redirect_users(fusion, copies[body.root])
    edit.remove(fusion)
    edit.remove_computation(body)
    return moved


def tidy(computation: Computation, fusions: Mapping[Instruction, str], state: FusionState) -> None:
    """Order the computation and give the new fusions, each with the kind of its plan (or nothing if that has no folds),
    their kinds and names, as XLA's RenameFusions does: kInput where a reduction, transpose or scatter shapes the
    kernel, else kLoop (ChooseFusionKind in xla/service/gpu/gpu_fusible.cc)."""
    edit.sort(computation)
    module = _module(computation)
    for fusion, kind in fusions.items():
        if fusion.word("kind") == "kCustom":
            continue
        emitter, hero = _form_of(fusion, state)
        is_input = emitter in ("reduction", "transpose", "scatter") or "reduction" in kind
        edit.set_attribute(fusion, "kind", Attribute.of("kInput" if is_input else "kLoop"))
        stem = hero.replace("-", "_")
        fusion.name = module.unique_name(f"{'input' if is_input else 'loop'}_{stem}_fusion")


def _form_of(fusion: Instruction, state: FusionState) -> tuple[XlaEmitter, str]:
    """The emitter that XLA would choose for a fusion, and the opcode of its hero."""
    forms, number = state.known.forms, state.structure(fusion)
    form = forms.get(number)
    if form is None:
        emitter, hero = state.emitter(fusion)
        form = forms[number] = emitter, hero.opcode
    return form


def join(
    engine: Engine, other: Instruction, host: Instruction, known: Mapping[Cache[object], object] = MappingProxyType({})
) -> Instruction:
    """Compute `other` inside the kernel of `host` and write both. Returns the host's fusion, made when it is a plain
    instruction. `known` is what the state can keep about it (`FusionState.joined`).

    Neither may be reached from the other, but that `host` may read `other` itself. One with a tuple as its result must
    be read element by element.
    """
    state = engine.state
    for name in (original_name(other, engine.origins), original_name(host, engine.origins)):
        engine.context.fused_by.setdefault(name, engine.rule)
    fusion = host
    readers = [
        (changed, user)
        for changed in (other, host)
        if not changed.shape.is_tuple
        for user in changed.users
        if user is not other and user is not host
    ]
    after = state.joined(other, host, known)
    if fused(host) is None:
        fusion = start_fusion(host)
        if host in engine.origins:
            engine.origins[fusion.called_by("calls").root] = engine.origins[host]
    engine.changed[fusion] = None
    called, first = _write_too(other, fusion, engine.origins)
    if called is not None:
        engine.orphans.append(called)
    after(fusion)
    elements = {n: u for u in fusion.users if (n := tuple_index(u)) is not None} if readers else {}
    for changed, user in readers:
        state.replaced(changed, elements[first if changed is other else 0], user)
    engine.changed.pop(other, None)
    return fusion


def _write_too(other: Instruction, fusion: Instruction, origins: Origins) -> tuple[Computation | None, int]:
    """Move `other` into the fusion as further outputs. Returns its computation, where it was a fusion, and the number
    of the first new output."""
    body = fusion.called_by("calls")
    body.index_users()
    pairs = list(zip(fusion.operands, body.parameters, strict=True))
    replaced = [parameter for operand, parameter in pairs if operand is other]
    pairs = [(operand, parameter) for operand, parameter in pairs if operand is not other]
    places = dict(pairs)
    for operand in other.operands:
        if operand not in places:
            places[operand] = parameter_for(body, len(pairs), operand)
            pairs.append((operand, places[operand]))
    value = take_in(other, [places[o] for o in other.operands], body, origins)
    for parameter in replaced:
        edit.redirect_users(parameter, value)
        edit.remove(parameter)
    for number, (_, parameter) in enumerate(pairs):  # an operand that the fusion was given twice has two
        parameter.parameter_number = number
    _write_tuple(body, value, origins)
    first = _lead_out(fusion, other, body)
    edit.set_operands(fusion, [operand for operand, _ in pairs])
    called = fused(other)
    _redirect(other, fusion, first)
    edit.remove(other)
    return called, first


def _write_tuple(body: Computation, value: Instruction, origins: Origins) -> None:
    """The root becomes a tuple of what was written and what `made` gives."""
    old = body.root
    outputs = [*_elements(old), *_elements(value)]
    root = edit.create_tuple(body, outputs, root=True)
    origins[root] = original_name(outputs[0], origins)
    for tuple_shaped in (old, value):
        if tuple_elements(tuple_shaped) is not None and not tuple_shaped.users:
            edit.remove(tuple_shaped)


def _elements(root: Instruction) -> list[Instruction]:
    """The values that a root returns: the operands of a `tuple`, new get-tuple-elements of another root that returns a
    tuple, else the root itself."""
    elements = tuple_elements(root)
    if elements is not None:
        return list(elements)
    if not root.shape.is_tuple:
        return [root]
    return [edit.create_element(root, number) for number in range(len(root.shape.elements or ()))]


def _lead_out(fusion: Instruction, other: Instruction, body: Computation) -> int:
    """Give the fusion the shape of its new root; its users read elements from now on. Returns the number of the first
    new output."""
    before = fusion.shape
    edit.set_shape(fusion, body.root.shape)
    if before.is_tuple:
        return len(before.elements or ())
    users = list(fusion.users)
    was_root = fusion.is_root
    if users or was_root:
        element = edit.create_element(fusion, 0)
        for user in users:
            for position, operand in enumerate(user.operands):
                if operand is fusion:
                    edit.replace_operand(user, position, element)
        if was_root:
            edit.set_root(fusion.computation, element)
    return 1


def _redirect(other: Instruction, fusion: Instruction, first: int) -> None:
    """The users of `other` read the fusion's outputs from `first` on."""
    if not other.shape.is_tuple:
        if other.users or other.is_root:
            edit.redirect_users(other, edit.create_element(fusion, first))
        return
    for user in list(other.users):
        edit.set_operands(user, [fusion])
        edit.set_attribute(user, "index", Attribute.of(first + user.attribute("index", int)))


def unite(
    producer: Instruction,
    consumer: Instruction,
    ways: ReadPaths,
    written: Sequence[Instruction],
    origins: Origins,
    *,
    copies: bool = False,
) -> tuple[Instruction, list[Computation]]:
    """One fusion of two kernels of a computation and of the views between them, with nothing else changed. Returns it,
    not yet named nor sorted in (`tidy`), and the computations of fusions that are gone, for `remove_uncalled_of`.

    It writes what the consumer does and, behind that, `written`: the producer, or elements of it, that others read.
    With `copies` the producer stays as it is for these, and is computed again. Nothing but the ways may lead from one
    to the other.
    """
    computation = consumer.computation
    module = _module(computation)
    body = edit.new_computation(module, "fused_computation")
    body.index_users()
    parameters: dict[Instruction, Instruction] = {}

    def inside(operand: Instruction) -> Instruction:
        if operand not in parameters:
            parameters[operand] = parameter_for(body, len(parameters), operand)
        return parameters[operand]

    arguments = [inside(o) for o in producer.operands]
    above = _copy(producer, arguments, body, origins, keep_names=not copies, moved={})
    elements = _elements(above) if ways or written else []
    views: dict[Instruction, Instruction] = {}

    def handed_on(way: Sequence[Instruction]) -> Instruction:
        value = above
        for step in way:
            number = tuple_index(step)
            if number is not None:
                value = elements[number]
                continue
            if step not in views:
                views[step] = _copied(step, [value], body, origins, keep_names=False)
            value = views[step]
        return value

    arguments = [handed_on(ways[o]) if o in ways else inside(o) for o in consumer.operands]
    below = take_in(consumer, arguments, body, origins)
    if written:
        edit.set_root(body, below)
        outputs = [*_elements(below), *(v for w in written for v in _elements_of(w, elements))]
        root = edit.create_tuple(body, outputs, root=True)
        origins[root] = original_name(outputs[0], origins)
    else:
        root = below
        edit.set_root(body, root)
    _drop_unread(body, parameters)
    fusion = fusion_of(body, consumer, list(parameters))
    results = _Results(fusion)
    first = len(consumer.shape.elements or ()) if consumer.shape.is_tuple else 1
    results.give(consumer, range(first))
    if written:
        results.give_elements(producer, written, first)
    emptied = [
        called for kernel in (consumer, *([] if copies else [producer])) if (called := fused(kernel)) is not None
    ]
    _remove_dead(
        [consumer, *(step for way in ways.values() for step in reversed(way)), *([] if copies else [producer])]
    )
    return fusion, emptied


def _elements_of(written: Instruction, elements: list[Instruction]) -> list[Instruction]:
    number = tuple_index(written)
    return elements if number is None else [elements[number]]


def _drop_unread(body: Computation, parameters: dict[Instruction, Instruction]) -> None:
    """Remove what is left of tuples that nothing takes apart any more, and what only these read, also of what the body
    is given."""
    edit.sort(body)
    _remove_dead([i for i in reversed(list(body.instructions)) if i.parameter_number is None])
    for operand, parameter in list(parameters.items()):
        if not parameter.users and not parameter.is_root:
            edit.remove(parameter)
            del parameters[operand]
    for number, parameter in enumerate(parameters.values()):
        parameter.parameter_number = number


def _remove_dead(candidates: Sequence[Instruction]) -> None:
    """Remove those that nothing reads, readers first."""
    for candidate in candidates:
        if candidate.parent is not None and not candidate.is_root and not candidate.users:
            edit.remove(candidate)


class _Results:
    """The values of a fusion, for what read other kernels."""

    def __init__(self, fusion: Instruction) -> None:
        self._fusion = fusion
        self._taken: dict[int, Instruction] = {}

    def _value(self, number: int) -> Instruction:
        if not self._fusion.shape.is_tuple:
            return self._fusion
        if number not in self._taken:
            self._taken[number] = edit.create_element(self._fusion, number)
        return self._taken[number]

    def give(self, old: Instruction, numbers: Sequence[int]) -> None:
        """Make the users of a kernel read these values."""
        if not old.shape.is_tuple:
            edit.redirect_users(old, self._value(numbers[0]))
            return
        for user in list(old.users):
            number = tuple_index(user)
            if number is not None:
                edit.redirect_users(user, self._value(numbers[number]))
                edit.remove(user)
        if old.users or old.is_root:
            edit.redirect_users(old, edit.create_tuple(old.computation, [self._value(n) for n in numbers]))

    def give_elements(self, old: Instruction, written: Sequence[Instruction], first: int) -> None:
        """Make the users of a kernel's elements, or of all of it, read the values from `first` on."""
        if written[0] is old:
            self.give(old, range(first, first + len(old.shape.elements or (old,))))
            return
        places = {tuple_index(w): first + n for n, w in enumerate(written)}
        for user in list(old.users):
            number = tuple_index(user)
            if number in places:
                edit.redirect_users(user, self._value(places[number]))
                edit.remove(user)


def is_read_by_element(instruction: Instruction) -> bool:
    """Whether nothing but get-tuple-elements reads a tuple, so that it may become a longer one."""
    if not instruction.shape.is_tuple:
        return True
    return not instruction.is_root and all(tuple_index(u) is not None for u in instruction.users)
