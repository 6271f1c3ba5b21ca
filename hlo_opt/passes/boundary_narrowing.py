"""What lies between two kernels becomes less: a kernel writes what its last operations are computed from, or nothing
where that is in memory already, and its readers compute these, where this takes less time.

Fusion puts elementwise operations into the kernel before them as often as into the one after them, and where they widen
elements (a sort key of 64 bits, a convert to f32) that kernel writes more than it needs to, and the next one reads it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Literal

from hlo_opt.diag import Reason
from hlo_opt.fusion.outline import Origins, original_name
from hlo_opt.fusion.prices import Prices
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Called, Computation, Instruction, Shape, edit
from hlo_opt.ops.sets import (
    RESHAPES,
    UPDATES,
    fused,
    is_elementwise,
    keeps_values,
    results_of,
    tuple_elements,
    tuple_index,
)
from hlo_opt.ops.spec import find
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.dce import sweep
from hlo_opt.text.aliases import aliases_of

WORTH = 0.98
"""The most that the kernels may take afterwards, relative to before, where a kernel writes something else."""
EVEN = 1.01
"""The same where it writes nothing, or something much smaller: as long as before, as well as prices can tell."""
MUCH = 4
"""How many times smaller that is: a mask in place of the f32 that are made of it."""
_MOST = 16
"""Operations that move; more take a kernel longer than it saves."""
_MOVERS = frozenset({"broadcast", "reverse"})
"""Operations that move besides elementwise ones: each of their elements is one of their operand."""
_NEAR = 48
"""Operations before a result of which each may be written instead."""


@dataclass(frozen=True)
class Boundary:
    """A result of a kernel and the kernels that read it.

    producer  a fusion
    number    of the result
    value     what holds it: the fusion, or its element
    readers   fusions
    """

    producer: Instruction
    number: int
    value: Instruction
    readers: tuple[Instruction, ...]


@dataclass(frozen=True)
class _Cut:
    """What readers compute in place of a result.

    narrow  what the kernel writes instead; None where it writes nothing
    moved   the operations that readers compute, in order; the last one makes the result
    known   what these read besides: parameters of the producer, and its other results
    """

    narrow: Instruction | None
    moved: tuple[Instruction, ...]
    known: tuple[Instruction, ...]


@dataclass(frozen=True)
class _Prices:
    """What kernels of a module take.

    known  microseconds of kernels as they are, by what they compute: a change gives a kernel another computation
    """

    prices: Prices
    known: dict[Computation, float] = field(default_factory=dict)

    def of(self, kernel: Instruction) -> float:
        """Microseconds of a kernel, which need not be in the module; infinite without a plan."""
        sketch = self.prices.planned(kernel)
        return math.inf if isinstance(sketch, Reason) else sketch.price.us

    def as_it_is(self, kernel: Instruction) -> float:
        """The same of one that is there."""
        body = kernel.called_by("calls")
        if body not in self.known:
            self.known[body] = self.of(kernel)
        return self.known[body]


@dataclass(frozen=True)
class BoundaryNarrowing(RewritingPass):
    """Move elementwise operations from the end of a kernel to the kernels that read it, where what these are computed
    from is less, or is in memory anyway, and this takes less time."""

    name: ClassVar[str] = "boundary-narrowing"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        module = computation.module
        assert module is not None
        known = _Prices(FusionState(module, context.options.target, context.memory.known).prices)
        waited_for = {p for i in computation.instructions for p in i.control_predecessors}  # none are moved here
        for producer in list(computation.instructions):
            number = 0
            while (body := fused(producer)) is not None and number < len(results_of(body)):
                cuts = _cuts(producer, number)
                boundary = _boundary(producer, number, waited_for) if cuts else None
                best = None if boundary is None else _best(boundary, cuts, known)
                if boundary is not None and best is not None:
                    yield partial(_move, boundary, best[0], context.origins, best[1], known)
                number = number + 1 if best is None else 0  # what is left may pay now


def _is_plain(instruction: Instruction) -> bool:
    """Whether it is a fusion that nothing but its computation describes."""
    body = fused(instruction)
    if body is None or instruction.word("kind") == "kCustom" or "output_to_operand_aliasing" in instruction.attributes:
        return False
    assert body.module is not None
    return sum(c.called.count(body) for c in body.module.computations) == 1


def _boundary(producer: Instruction, number: int, waited_for: Set[Instruction]) -> Boundary | None:
    """A result that fusions alone read; None for others, and where one waits or is waited for."""
    values = [producer]
    if producer.shape.is_tuple:
        if producer.is_root or any(tuple_index(user) is None for user in producer.users):
            return None
        values = [user for user in producer.users if tuple_index(user) == number]
    if len(values) != 1 or values[0].is_root or not values[0].users:
        return None
    readers = tuple(values[0].users)
    waits = any(i.control_predecessors or i in waited_for for i in (producer, *values, *readers))
    plain = not waits and all(map(_is_plain, (producer, *readers)))
    return Boundary(producer, number, values[0], readers) if plain else None


def _order(body: Computation) -> dict[Instruction, int]:
    return {i: number for number, i in enumerate(body.instructions)}


def _cuts(producer: Instruction, number: int) -> list[_Cut]:
    """What readers of a result may compute; the deepest cut comes last. None where what lies between takes long."""
    body = producer.called_by("calls")
    results = results_of(body)
    result = results[number]
    if not _may_move(result):
        return []
    read = {tuple_index(user) for user in producer.users if user.users or user.is_root}
    others = {r for at, r in enumerate(results) if at in read and at != number}
    if result in others:
        return []
    order = _order(body)
    # a kernel without a result would be fused as a whole: fusion decided that
    places = [*(n for n in _before(result, others) if _bytes(n) < _bytes(result)), *([None] if others else [])]
    found = [cut for narrow in places if (cut := _cut(result, narrow, others, order)) is not None]
    least, cuts = _bytes(result), []
    for cut in sorted(found, key=lambda cut: len(cut.moved)):
        left = -1 if cut.narrow is None else _bytes(cut.narrow)
        if left < least:
            least = left
            cuts.append(cut)
    return cuts


def _before(result: Instruction, others: Set[Instruction]) -> list[Instruction]:
    """The nearest operations that a result is computed from, which a kernel may write in its place."""
    found, todo = dict.fromkeys([result]), deque([result])
    while todo and len(found) < _NEAR:
        value = todo.popleft()
        if _may_move(value):
            new = [o for o in dict.fromkeys(value.operands) if o not in found and not _is_known(o, others)]
            found |= dict.fromkeys(new)
            todo += new
    return list(found)[1:]


def _is_known(value: Instruction, others: Set[Instruction]) -> bool:
    """Whether readers need no kernel for a value: it is in memory, or made of nothing."""
    return value.parameter_number is not None or value in others or bool(_made_anywhere(value))


def _cut(
    result: Instruction, narrow: Instruction | None, others: Set[Instruction], order: Mapping[Instruction, int]
) -> _Cut | None:
    """The cut after which a kernel writes `narrow`, or nothing; None if readers cannot compute the rest, or if that is
    too much."""
    moved, free, known, todo = {result}, set[Instruction](), set[Instruction](), [result]
    meets = False
    while todo:
        value = todo.pop()
        if not _may_move(value) or len(moved) > _MOST:
            return None
        for operand in value.operands:
            if operand is narrow:
                meets = True
            elif made := _made_anywhere(operand):
                free.update(made)
            elif operand.parameter_number is not None or operand in others:
                known.add(operand)
            elif operand not in moved:
                moved.add(operand)
                todo.append(operand)
    return _Cut(narrow, _in_order(moved | free, order), _in_order(known, order)) if meets or narrow is None else None


def _in_order(members: Set[Instruction], order: Mapping[Instruction, int]) -> tuple[Instruction, ...]:
    return tuple(sorted(members, key=order.__getitem__))


def _may_move(value: Instruction) -> bool:
    """Whether readers may compute it: an element from elements, the same one for many, or one that is looked up."""
    if value.control_predecessors or value.parameter_number is not None:
        return False
    spec = find(value.opcode)
    is_moved = value.opcode in _MOVERS or keeps_values(value, RESHAPES) or (spec is not None and spec.reads_part)
    return is_moved or is_elementwise(value)


def _made_anywhere(value: Instruction) -> list[Instruction]:
    """The operations that make a value of nothing; empty for other values."""
    if value.opcode == "iota" or (value.opcode == "constant" and value.shape.element_count == 1):
        return [value]
    if value.opcode == "broadcast" and (made := _made_anywhere(value.operands[0])):
        return [*made, value]
    return []


def _bytes(value: Instruction) -> int:
    return value.shape.byte_size if value.shape.is_array else 1 << 60


def _best(boundary: Boundary, cuts: list[_Cut], known: _Prices) -> tuple[_Cut, Mapping[Instruction, float]] | None:
    """The deepest cut that moves fewer bytes and takes less time, with what each kernel takes then."""
    for cut in reversed(cuts):
        if _saves(boundary, cut) and (prices := _pays(boundary, cut, known)) is not None:
            return cut, prices
    return None


def _saves(boundary: Boundary, cut: _Cut) -> bool:
    """Whether the kernels move fewer bytes: not the result, but what it is computed from where they do not read it
    anyway."""
    sources = _sources(boundary, cut)
    if sources is None:
        return False
    left = 0 if cut.narrow is None else _bytes(cut.narrow)
    moved = left - _bytes(boundary.value)
    for reader in boundary.readers:
        more = [s for s in dict.fromkeys(sources) if s not in reader.operands]
        moved += left - _bytes(boundary.value) + sum(map(_bytes, more))
    return moved < 0


def _sources(boundary: Boundary, cut: _Cut) -> list[Instruction] | None:
    """The values outside of the producer that `cut.known` are inside; None where one is not there to be read. What a
    kernel, or any reader that writes to its operand, updates in place is gone when others would read it."""
    producer = boundary.producer
    results = results_of(producer.called_by("calls"))
    updates = any(r.opcode in UPDATES for r in results)
    elements = {tuple_index(user): user for user in producer.users}
    module = producer.computation.module
    given = {alias.parameter for alias in aliases_of(module)} if module and producer.computation is module.entry else ()
    sources = []
    for value in cut.known:
        number = value.parameter_number
        if number is not None and updates:
            return None
        source = elements.get(results.index(value)) if number is None else producer.operands[number]
        if source is None or not source.shape.is_array:
            return None
        if any("output_to_operand_aliasing" in user.attributes for user in source.users):
            return None
        if source.parameter_number in given and any(source not in reader.operands for reader in boundary.readers):
            return None  # its memory may be a result's by then
        sources.append(source)
    return sources


def _pays(boundary: Boundary, cut: _Cut, known: _Prices) -> Mapping[Instruction, float] | None:
    """What the producer and its readers take afterwards, if that is less than before."""
    producer, readers = boundary.producer, boundary.readers
    before = sum(map(known.as_it_is, (producer, *readers)))
    is_clear = cut.narrow is None or _bytes(cut.narrow) * MUCH <= _bytes(boundary.value)
    most, after = (EVEN if is_clear else WORTH) * before, 0.0
    prices: dict[Instruction, float] = {}
    for kernel, candidate in zip((producer, *readers), _candidates(boundary, cut), strict=True):
        if after <= most:
            prices[kernel] = known.of(candidate)
            after += prices[kernel]
        edit.remove_computation(candidate.called_by("calls"))
    return prices if after <= most else None


def _candidates(boundary: Boundary, cut: _Cut) -> list[Instruction]:
    """The kernels as they would be, in no computation: the producer first."""
    producer, readers = boundary.producer, boundary.readers
    shortened = _shortened(boundary, cut)
    candidates = [_like(producer, _shape(producer, shortened), producer.operands, shortened)]
    narrow = boundary.value if cut.narrow is None else Instruction("narrow", "parameter", cut.narrow.shape)
    for reader in readers:
        operands, body = _lengthened(boundary, cut, reader)
        read = [narrow if o is boundary.value else o for o in operands]
        candidates.append(_like(reader, reader.shape, read, body))
    return candidates


def _like(kernel: Instruction, shape: Shape, operands: list[Instruction], body: Computation) -> Instruction:
    return Instruction(kernel.name, "fusion", shape, list(operands), {**kernel.attributes, "calls": Called(body)})


def _shape(producer: Instruction, body: Computation) -> Shape:
    """The shape of a kernel whose computation returns something else now."""
    results = [r.shape for r in results_of(body)]
    return Shape.tuple_of(*results) if producer.shape.is_tuple else results[0]


def _shortened(boundary: Boundary, cut: _Cut, origins: Origins | None = None) -> Computation:
    """The producer's computation without what readers compute, and without the result where it writes nothing."""
    clone = _cloned(boundary.producer, origins)
    results = results_of(clone)
    if cut.narrow is None:
        del results[boundary.number]
    else:
        original = boundary.producer.called_by("calls").instructions
        results[boundary.number] = dict(zip(original, list(clone.instructions), strict=True))[cut.narrow]
    if tuple_elements(clone.root) is None:
        edit.set_root(clone, results[0])
    else:
        edit.create_tuple(clone, results, root=True)
    sweep(clone, set())
    return clone


def _cloned(kernel: Instruction, origins: Origins | None) -> Computation:
    """A copy of a kernel's computation; its operations stand for the same ones of the input (`origins`)."""
    body = kernel.called_by("calls")
    clone = edit.clone_computation(body)
    if origins is not None:
        for old, new in zip(body.instructions, list(clone.instructions), strict=True):
            origins[new] = original_name(old, origins)
    return clone


def _lengthened(
    boundary: Boundary, cut: _Cut, reader: Instruction, origins: Origins | None = None
) -> tuple[list[Instruction], Computation]:
    """The operands of a reader and its computation, which begins with what the producer did. What stands for a value
    that is narrower now has its shape in the computation alone."""
    clone = _cloned(reader, origins)
    operands, parameters = list(reader.operands), list(clone.parameters)
    values: dict[Instruction, Instruction] = {}
    for value, source in zip(cut.known, _sources(boundary, cut) or (), strict=True):
        if source not in operands:
            operands.append(source)
            parameters.append(
                edit.create(clone, source.name, "parameter", source.shape, parameter_number=len(parameters))
            )
        values[value] = parameters[operands.index(source)]
    places = [number for number, operand in enumerate(reader.operands) if operand is boundary.value]
    wide = [parameters[number] for number in places]
    narrow = cut.narrow
    if narrow is not None:
        number = places.pop(0)
        values[narrow] = edit.create_parameter(clone, wide[0].name, narrow.shape, number)
        parameters[number] = values[narrow]
    for member in cut.moved:
        values[member] = edit.clone_into(clone, member, [values[o] for o in member.operands])
        if origins is not None:
            origins[values[member]] = original_name(member, origins)
    for parameter in wide:
        edit.replace_all_uses(parameter, values[cut.moved[-1]])
        edit.remove(parameter)
    kept = [number for number in range(len(operands)) if number not in places]
    for number, at in enumerate(kept):
        parameters[at].parameter_number = number
    edit.sort(clone)
    return [operands[at] for at in kept], clone


def _move(boundary: Boundary, cut: _Cut, origins: Origins, prices: Mapping[Instruction, float], known: _Prices) -> None:
    """Readers compute what `cut` says. A result that nothing reads afterwards is left to dead code elimination."""
    producer, readers = boundary.producer, boundary.readers
    lengthened = [_lengthened(boundary, cut, reader, origins) for reader in readers]
    for reader, (operands, body) in zip(readers, lengthened, strict=True):
        _compute(reader, body)
        edit.set_operands(reader, operands)
        known.known[body] = prices[reader]
    if cut.narrow is None:
        return
    body = _shortened(boundary, cut, origins)
    _compute(producer, body)
    known.known[body] = prices[producer]
    edit.set_operands(
        producer, [o for o, is_read in zip(producer.operands, _without_unread(body), strict=True) if is_read]
    )
    edit.set_shape(producer, _shape(producer, body))
    if boundary.value is not producer:
        edit.set_shape(boundary.value, results_of(body)[boundary.number].shape)


def _without_unread(body: Computation) -> list[bool]:
    """Remove the parameters that nothing reads; returns for each parameter whether it is read."""
    body.index_users()
    parameters = list(body.parameters)
    are_read = [bool(parameter.users) or parameter.is_root for parameter in parameters]
    for parameter, is_read in zip(parameters, are_read, strict=True):
        if not is_read:
            edit.remove(parameter)
    for number, parameter in enumerate(p for p, is_read in zip(parameters, are_read, strict=True) if is_read):
        parameter.parameter_number = number
    return are_read


def _compute(kernel: Instruction, body: Computation) -> None:
    old = kernel.called_by("calls")
    edit.set_attribute(kernel, "calls", Called(body))
    edit.remove_computation(old)
