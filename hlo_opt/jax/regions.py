"""Which parts of a module that XLA has fused kernels of ours may compute: first as much as hangs together between what
is left to XLA's libraries, then loops and fusions by themselves.

A region is convex: no way leads out of it and back. So one call can stand for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from hlo_opt.analysis.graph.loops import trip_count
from hlo_opt.analysis.properties import is_boundary_fusion
from hlo_opt.ir import Attribute, Called, Computation, Instruction, Module, Shape, edit
from hlo_opt.ir.shape import Layout
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.collective.module_devices import WHICH_DEVICE, counts
from hlo_opt.ops.control.table import branches
from hlo_opt.ops.sets import COPIES, body_of, fused, held, is_free, keeps_bytes, looped, taken_element

FEW = 16
"""Elements of a constant that a region makes itself; larger ones it is given."""

UNKNOWN_ROUNDS = 100
"""For the work of a loop that nobody knows the rounds of."""

SMALL_WORK = 1 << 16
"""Elements that a region computes which is quicker than the call of it."""

DROPPED = frozenset({"metadata", "sharding", "frontend_attributes", "origin"})
"""Attributes that say nothing of what is computed."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A region of a computation; `members` in the order of the computation."""

    computation: Computation
    members: tuple[Instruction, ...]

    @cached_property
    def inputs(self) -> list[Instruction]:
        """What it reads of others, each once; small constants it has itself."""
        own = set(self.members)
        found = dict.fromkeys(o for i in self.members for o in i.operands if o not in own and not is_small(o))
        return list(found)

    @cached_property
    def views(self) -> set[Instruction]:
        """What others read that is the memory of something else, under another shape. It stays where it is: that costs
        nothing, and two results of a region are two arrays."""
        return self._read[1]

    @cached_property
    def outputs(self) -> list[Instruction]:
        """What others read of it, and what `views` do."""
        return self._read[0]

    @cached_property
    def _read(self) -> tuple[list[Instruction], set[Instruction]]:
        own, views, found = set(self.members), set(), []
        for i in reversed(self.members):
            if not i.is_root and all(u in own and u not in views for u in i.users):
                continue
            if keeps_bytes(i.opcode):
                views.add(i)
            else:
                found.append(i)
        return found[::-1], views

    @property
    def gone(self) -> list[Instruction]:
        """What a call takes the place of."""
        return [i for i in self.members if i not in self.views]

    @cached_property
    def work(self) -> int:
        """Elements that it computes, in all rounds of its loops: what is inside fusions counts, too."""
        return sum(map(work_of, self.members))

    @cached_property
    def written(self) -> int:
        """Bytes that XLA's form of it writes."""
        return sum(map(written_by, self.members))

    @property
    def name(self) -> str:
        """For people: what does most."""
        return max(self.members, key=work_of).name


UNSEEN = frozenset({OpKind.COLLECTIVE, OpKind.OPAQUE})
"""Operations that nobody knows, or that need other devices."""


def is_small(i: Instruction) -> bool:
    """Whether a value is a constant that costs nothing to make again."""
    return i.literal is not None and i.shape.is_array and i.shape.element_count <= FEW and not i.literal.is_elided


def _rounds(loop: Instruction) -> int:
    found = trip_count(loop)
    return UNKNOWN_ROUNDS if found is None else found


def _callees(i: Instruction) -> list[Computation]:
    """The computations whose instructions are computed where an instruction is."""
    body = body_of(i)
    return [body] if body is not None else list(i.called()) if looped(i) is not None or _is_conditional(i) else []


def _is_conditional(i: Instruction) -> bool:
    return bool(i.operands) and bool(branches(i))


def work_of(i: Instruction) -> int:
    """Elements that an instruction computes."""
    callees = _callees(i)
    if callees:
        once = sum(work_of(inner) for c in callees for inner in c.instructions)
        return once * (_rounds(i) if looped(i) is not None else 1)
    if i.parameter_number is not None or i.literal is not None or is_free(i.opcode):
        return 0
    return max(1, i.shape.element_count, *(o.shape.element_count for o in i.operands))


def written_by(i: Instruction) -> int:
    """Bytes that kernels write for an instruction."""
    if fused(i) is None and (callees := _callees(i)):
        once = sum(written_by(inner) for c in callees for inner in c.instructions)
        return once * (_rounds(i) if looped(i) is not None else 1)
    if i.parameter_number is not None or i.literal is not None or is_free(i.opcode):
        return 0
    return i.shape.byte_size


def size_of(members: Sequence[Instruction]) -> int:
    """Instructions, those of called computations among them."""
    return sum(1 + sum(size_of(list(c.instructions)) for c in _callees(i)) for i in members)


def may_be_tried(module: Module) -> bool:
    """Whether a module can be run on drawn data: it is for one device, nobody sees that it runs, and it ends."""
    if math.prod(counts(module)) > 1 or not of_known_length(list(module.entry.instructions)):
        return False
    specs = [find(i.opcode) for c in module.computations for i in c.instructions]
    if any(s is None or s.side_effects or s.hides_state or s.kind in UNSEEN for s in specs):
        return False
    arrays = [leaf for i in (*module.entry.parameters, module.entry.root) for leaf in i.shape.leaves()]
    plain = all(p.shape.is_array for p in module.entry.parameters)
    return plain and all(_fits(s) and s.is_row_major for s in arrays)


def of_known_length(members: Sequence[Instruction]) -> bool:
    """Whether it is known how often each loop runs."""
    every = (i for m in members for i in (m, *_inner(m)))
    return all(trip_count(i) is not None for i in every if looped(i) is not None)


def _inner(i: Instruction) -> Iterator[Instruction]:
    for computation in _callees(i):
        for instruction in computation.instructions:
            yield instruction
            yield from _inner(instruction)


# ---- what may belong to a region


def _fits(shape: Shape) -> bool:
    """Whether an array lies in memory for XLA as it does for us."""
    return all(
        leaf.is_array
        and leaf.type.per_byte == 1
        and bool(leaf.type.numpy_name)
        and not any(leaf.dynamic)
        and min(leaf.dimensions, default=0) >= 0
        and (leaf.layout is None or not leaf.layout.tail)
        for leaf in shape.leaves()
    )


def is_for_library(i: Instruction) -> bool:
    """Whether a fusion is left to a library that multiplies matrices and the like; others of its kind hold nothing that
    kernels do not compute."""
    if not is_boundary_fusion(i):
        return False
    specs = (find(inner.opcode) for c in i.called() for inner in c.instructions)
    return any(spec is None or spec.is_library or spec.kind is OpKind.CONTRACTION for spec in specs)


def _may(i: Instruction, known: dict[Computation, bool], inside: bool) -> bool:
    """Whether kernels of ours may compute an instruction: nothing that has effects, is left to a library or asks which
    device it runs on."""
    spec = find(i.opcode)
    if spec is None or spec.side_effects or spec.hides_state or i.opcode in WHICH_DEVICE:
        return False
    if spec.kind in UNSEEN or not _fits(i.shape):
        return False
    # what waits inside a loop is a copy that XLA put there for the memory of its state, which is not ours
    if not inside and (i.control_predecessors or i.parameter_number is not None or is_for_library(i)):
        return False
    if spec.is_library and not (inside and spec.kind is OpKind.CONTRACTION):
        return False
    for c in _callees(i):
        if c not in known:
            known[c] = all(_may(inner, known, True) for inner in c.instructions)
    return all(known[c] for c in _callees(i))


def _ours(computation: Computation) -> set[Instruction]:
    """The instructions of a computation that may belong to regions. Constants are none: who needs a small one makes it,
    and a large one is given."""
    known: dict[Computation, bool] = {}
    waited = {p for i in computation.instructions for p in i.control_predecessors}
    found: set[Instruction] = set()
    parts = []
    for i in computation.instructions:
        if held(i) is not None:
            parts.append(i)
        elif taken_element(i) is not None:
            found |= {i} if i.operands[0] in found else set()
        elif i.literal is None and i not in waited and _may(i, known, False):
            found.add(i)
    for i in reversed(parts):
        if not i.is_root and i.users and all(u in found for u in i.users):
            found.add(i)
    return found


def clusters(computation: Computation) -> list[Candidate]:
    """The regions of a computation: what hangs together and no way through other instructions divides."""
    return [region for layer in layers_of(computation) for region in layer]


def layers_of(computation: Computation) -> list[list[Candidate]]:
    """The `clusters`, those together that have as many changes between ours and others before them: so none of these
    needs another, by whatever way."""
    ours = _ours(computation)
    levels: dict[Instruction, int] = {}
    for i in computation.instructions:
        known = [levels[o] + ((o in ours) != (i in ours)) for o in i.operands if not is_small(o)]
        levels[i] = max(known, default=0 if i not in ours else 1)
    for i in reversed(list(computation.instructions)):
        if i in ours and not i.is_root and i.users and all(u in ours for u in i.users):
            levels[i] = min(levels[u] for u in i.users)
    group: dict[Instruction, Instruction] = {i: i for i in ours}

    def first(i: Instruction) -> Instruction:
        while group[i] is not i:
            group[i] = i = group[group[i]]
        return i

    for i in ours:
        for o in i.operands:
            if o in ours and levels[o] == levels[i]:
                group[first(i)] = first(o)
    layers: dict[int, dict[Instruction, list[Instruction]]] = {}
    for i in computation.instructions:
        if i in ours:
            layers.setdefault(levels[i], {}).setdefault(first(i), []).append(i)
    return [[Candidate(computation, tuple(members)) for members in found.values()] for found in layers.values()]


def together(layer: Sequence[Candidate]) -> tuple[list[Candidate], Candidate | None]:
    """The regions of a layer that stand alone, and the small ones as one if there are several: one call does what they
    would wait for each other with. Large ones stay what they are, so that a change of one leaves the others."""
    small = [region for region in layer if region.work <= SMALL_WORK]
    if len(small) < 2:
        return list(layer), None
    members = {i for region in small for i in region.members}
    computation = layer[0].computation
    one = Candidate(computation, tuple(i for i in computation.instructions if i in members))
    return [region for region in layer if region not in small], one


Place = tuple[Instruction, tuple[int, ...]]
"""An array: an instruction's, or the element of its tuple that a path of numbers leads to, the last one first."""


def _place(i: Instruction, path: tuple[int, ...] = ()) -> Place:
    """Whose memory a value is: views, tuples and calls hand on what they are given."""
    around: list[Instruction] = []
    while True:
        body = body_of(i)
        if (number := taken_element(i)) is not None:
            i, path = i.operands[0], (*path, number)
        elif path and (parts := held(i)) is not None:
            i, path = parts[path[-1]], path[:-1]
        elif keeps_bytes(i.opcode):
            i = i.operands[0]
        elif body is not None and fused(i) is None:
            around.append(i)
            i = body.root
        elif i.parameter_number is not None and around:
            i = around.pop().operands[i.parameter_number]
        else:
            return i, path


def are_apart(candidate: Candidate) -> bool:
    """Whether no two results of a region are one array for XLA: an executable with such results ends the process."""
    places = [_place(i, tuple(path)) for i in candidate.outputs for path in _paths(i.shape)]
    return len(set(places)) == len(places)


def _paths(shape: Shape) -> Iterator[list[int]]:
    """The ways to the arrays of a shape, each with the last number first."""
    if shape.elements is None:
        yield []
        return
    for number, element in enumerate(shape.elements):
        yield from ([*path, number] for path in _paths(element))


def pieces(whole: Candidate) -> list[Candidate]:
    """The loops and fusions of a region one by one, each with what it alone needs, what does most first."""
    anchors = [i for i in whole.members if _callees(i)]
    if len(anchors) < 2:
        return []
    found = []
    for anchor in sorted(anchors, key=work_of, reverse=True):
        members = {anchor}
        members |= {u for u in anchor.users if taken_element(u) is not None and u in whole.members}
        for i in reversed(whole.members):
            if i in members or i in anchors or taken_element(i) is not None:
                continue
            if i.users and all(u in members for u in i.users):
                members.add(i)
        found.append(Candidate(whole.computation, tuple(i for i in whole.members if i in members)))
    return found


# ---- regions as modules


def physical(shape: Shape) -> Shape:
    """The shape of the same memory whose dimensions are in its order."""
    if shape.is_row_major:
        return shape
    order = shape.minor_to_major[::-1]
    return Shape(
        shape.element_type,
        tuple(shape.dimensions[d] for d in order),
        Layout(tuple(range(len(order) - 1, -1, -1))),
    )


def module_of(candidate: Candidate) -> Module:
    """The region as a module of its own, in XLA's form. Arrays that it is given and gives lie row by row; names say
    nothing, so that equal regions are equal texts."""
    module = Module("region")
    count = iter(range(1 << 30))
    copies: dict[Computation, Computation] = {}

    def attributes(i: Instruction) -> dict[str, Attribute | Called]:
        found: dict[str, Attribute | Called] = {}
        for name, value in i.attributes.items():
            if isinstance(value, Called):
                found[name] = Called(*(callee(c) for c in value.computations), is_list=value.is_list)
            elif name not in DROPPED:
                found[name] = value
        return found

    def copied(i: Instruction, to: Computation, made: Mapping[Instruction, Instruction]) -> Instruction:
        operands = [made[o] for o in i.operands]
        return edit.append(to, edit.copied(i, f"i{next(count)}", operands, attributes(i)))

    def callee(old: Computation) -> Computation:
        if old not in copies:
            new = Computation(f"c{next(count)}")
            made: dict[Instruction, Instruction] = {}
            for i in old.instructions:
                made[i] = copied(i, new, made)
            for i in old.instructions:
                made[i].control_predecessors = [made[p] for p in i.control_predecessors]
            edit.set_root(new, made[old.root])
            copies[old] = edit.add_computation(module, new)
        return copies[old]

    entry = Computation("entry")
    made: dict[Instruction, Instruction] = {}
    for number, value in enumerate(candidate.inputs):
        given = edit.create_parameter(entry, f"p{number}", physical(value.shape), number)
        made[value] = _laid_out(entry, given, value.shape, f"i{next(count)}")
    for i in candidate.members:
        for operand in i.operands:
            if operand not in made:
                made[operand] = copied(operand, entry, made)
        made[i] = copied(i, entry, made)
    results = []
    for i in candidate.outputs:
        results.append(_laid_out(entry, made[i], physical(i.shape) if i.shape.is_array else i.shape, f"i{next(count)}"))
    if len(results) == 1:
        edit.set_root(entry, results[0])
    else:
        edit.create_tuple(entry, results, root=True)
    edit.add_computation(module, entry, entry=True)
    edit.sort_computations(module)
    return module


def _laid_out(computation: Computation, value: Instruction, shape: Shape, name: str) -> Instruction:
    """The value under another shape that its memory has, too."""
    if value.shape is shape:
        return value
    return edit.create(computation, name, "bitcast", shape, [value])


def simple_form(module: Module) -> Module:
    """The module without what only XLA's compiler needs: copies that move nothing, their order, and fusions that one of
    its libraries is to compute."""
    made = edit.clone_module(module)
    for computation in made.computations:
        for i in computation.instructions:
            i.control_predecessors = []
        for i in list(computation.instructions):
            if fused(i) is not None and is_boundary_fusion(i):
                del i.attributes["backend_config"]
                edit.set_attribute(i, "kind", Attribute("kLoop"))
            elif i.opcode in COPIES and i.operands[0].shape == i.shape and i.operands[0].shape.layout == i.shape.layout:
                edit.replace_all_uses(i, i.operands[0])
                edit.remove(i)
    return made


def kernels_write(computation: Computation) -> int:
    """Bytes that kernels outside libraries write in a run of a computation."""
    total = 0
    for i in computation.instructions:
        spec = find(i.opcode)
        if looped(i) is not None or (fused(i) is None and _callees(i)):
            inner = sum(map(kernels_write, _callees(i)))
            total += inner * (_rounds(i) if looped(i) is not None else 1)
        elif spec is not None and not spec.is_library and spec.kind is not OpKind.OPAQUE and not is_for_library(i):
            total += written_by(i)
    return total
