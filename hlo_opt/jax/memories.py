"""Which arrays of a scheduled module lie in one memory, and what that means for regions.

A parameter shares its memory with a result (`input_output_alias`), and updates and loops work in place. XLA has
inserted the copies that its own instructions need, by dependencies and by its schedule, and inserts none after the
hook. So a call that reads and writes one memory must itself read before it writes, and calls must stay in order with
all else that touches what is written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from hlo_opt.ir import Instruction, Module
from hlo_opt.jax.calls import SHARED
from hlo_opt.jax.regions import Candidate, StatePair, bodies_of, updates
from hlo_opt.ops.sets import at_once, goes_on, keeps_bytes, looped, tuple_elements, tuple_index
from hlo_opt.text.aliases import aliased_leaves

SCHEDULED = "is_scheduled"
"""The attribute of a module whose text has the order of execution."""

InstructionLeaf = tuple[Instruction, int]
"""An array of an instruction's shape, by number."""


class Memories:
    """The memories of a module's entry. Of a module without a schedule nothing is known, and all regions may be
    replaced: XLA orders it after the hook."""

    def __init__(self, module: Module) -> None:
        self._entry = module.entry
        self._writers = [i for i in self._entry.instructions if _writes_in_place(i)]
        self._aliases: list[tuple[InstructionLeaf, InstructionLeaf]] = []
        self.is_of_interest: bool = SCHEDULED in module.attributes and bool(self._writers)
        if SCHEDULED in module.attributes:
            inputs = [leaf for p in self._entry.parameters for leaf in _leaves(p)]
            results = list(_leaves(self._entry.root))
            self._aliases = [(inputs[i], _source(*results[k])) for i, k in aliased_leaves(module).items()]
            self.is_of_interest |= bool(self._aliases)

    def pairs(self, region: Candidate) -> list[StatePair] | None:
        """The inputs and results of a region that share memory. None if an input is no parameter, or has another shape
        than the result, or if something else touches the memory and is not ordered with the region."""
        if not self.is_of_interest or region.computation is not self._entry:
            return []
        memory = self._memories(set(region.gone))
        written: dict[InstructionLeaf, int] = {}
        results = [leaf for o in region.outputs for leaf in o.shape.leaves()]
        for k, leaf in enumerate(_all(region.outputs)):
            if memory.get(leaf) in written:
                return None
            if leaf in memory:
                written[memory[leaf]] = k
        read = [memory[i, 0] for i in region.inputs if (i, 0) in memory]
        if len(set(read)) < len(read):
            return None
        pairs: list[StatePair] = []
        for number, i in enumerate(region.inputs):
            shared = written.get(memory[i, 0]) if (i, 0) in memory else None
            if shared is None:
                continue
            if i.parameter_number is None or i.shape != results[shared]:
                return None
            pairs.append((number, shared))
        return pairs if self._is_ordered(region, memory, set(read), set(written)) else None

    def _memories(self, gone: set[Instruction]) -> dict[InstructionLeaf, InstructionLeaf]:
        """The first array of the memory of each array whose memory is written again, with a call instead of `gone`."""
        group: dict[InstructionLeaf, InstructionLeaf] = {}

        def first(leaf: InstructionLeaf) -> InstructionLeaf:
            while (up := group.setdefault(leaf, leaf)) != leaf:
                group[leaf] = leaf = group[up]
            return leaf

        for i in self._entry.instructions:
            if i not in gone:
                for one, other in _joined(i):
                    group[first(one)] = first(other)
        for one, other in self._aliases:
            group[first(one)] = first(other)
        again = {first(one) for one, _ in self._aliases}
        again |= {first(leaf) for w in self._writers if w not in gone for leaf in _leaves(w) if leaf in group}
        return {leaf: first(leaf) for leaf in list(group) if first(leaf) in again}

    def _is_ordered(
        self,
        region: Candidate,
        memory: dict[InstructionLeaf, InstructionLeaf],
        read: set[InstructionLeaf],
        written: set[InstructionLeaf],
    ) -> bool:
        """Whether what reads a memory before the region writes it runs before, and what writes one that the region
        reads runs before or after it."""
        if not written and not read:
            return True
        before = _reached(region.members, lambda i: [*i.operands, *i.control_predecessors])
        after = _reached(region.members, lambda i: i.users)
        members = set(region.members)
        for i in self._entry.instructions:
            if i in members or i in before or i.parameter_number is not None or _is_name(i):
                continue
            old = [o for o in i.operands if o not in after and o not in members]
            reads = {memory[leaf] for o in old for leaf in _leaves(o) if leaf in memory}
            writes = {memory[leaf] for leaf in _leaves(i) if leaf in memory and i not in after}
            if reads & written or writes & (written | read):
                return False
        return True


def _leaves(i: Instruction) -> Iterator[InstructionLeaf]:
    return ((i, k) for k, _ in enumerate(i.shape.leaves()))


def _source(i: Instruction, leaf: int) -> InstructionLeaf:
    """The array that a result is, through tuples: a root tuple itself is no memory that others share."""
    while (parts := tuple_elements(i)) is not None:
        for part in parts:
            count = sum(1 for _ in part.shape.leaves())
            if leaf < count:
                i = part
                break
            leaf -= count
    return i, leaf


def _is_name(i: Instruction) -> bool:
    """Whether an instruction only names memory, and does not read it."""
    return keeps_bytes(i.opcode) or tuple_index(i) is not None or tuple_elements(i) is not None


def _writes_in_place(i: Instruction) -> bool:
    """Whether the results of an instruction may lie in the memory of operands that it overwrites."""
    if i.parameter_number is not None or _is_name(i):
        return False
    later = at_once(i) is not None or goes_on(i) is not None
    return later or bool(bodies_of(i)) or SHARED in i.attributes or updates(i)


def _joined(i: Instruction) -> Iterator[tuple[InstructionLeaf, InstructionLeaf]]:
    """Arrays of an instruction and of its operands that lie in one memory, or may."""
    number = tuple_index(i)
    if number is not None:
        elements = i.operands[0].shape.elements or ()
        skipped = sum(1 for e in elements[:number] for _ in e.leaves())
        yield from ((leaf, (i.operands[0], skipped + k)) for k, leaf in enumerate(_leaves(i)))
    elif tuple_elements(i) is not None:
        if not i.is_root:
            yield from zip(_leaves(i), _all(i.operands), strict=True)
    elif keeps_bytes(i.opcode) or looped(i) is not None:
        yield from zip(_leaves(i), _leaves(i.operands[0]), strict=True)
    elif updates(i):
        pairs = ((one, other) for one in _leaves(i) for other in _all(i.operands))
        yield from (p for p in pairs if _size(p[0]) == _size(p[1]))
    elif _writes_in_place(i):
        yield from ((one, other) for one in _leaves(i) for other in _all(i.operands))


def _all(operands: Sequence[Instruction]) -> Iterator[InstructionLeaf]:
    return (leaf for o in operands for leaf in _leaves(o))


def _size(leaf: InstructionLeaf) -> int:
    return list(leaf[0].shape.leaves())[leaf[1]].byte_size


def _reached(
    members: Iterable[Instruction], following: Callable[[Instruction], Iterable[Instruction]]
) -> set[Instruction]:
    """What `following` leads to from some instructions, without these."""
    reached = set(members)
    todo = list(members)
    while todo:
        new = set(following(todo.pop())) - reached
        reached |= new
        todo += new
    return reached - set(members)
