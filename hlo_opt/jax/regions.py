"""The regions of a module, after XLA's fusion, that our kernels may compute: first the largest connected ones between
XLA's library calls, then single loops and fusions.

A region is convex: no path leaves it and comes back. So one call can replace it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from hlo_opt.analysis.graph.inlining import inline, is_plain_fusion
from hlo_opt.analysis.graph.loops import trip_count
from hlo_opt.analysis.properties import is_boundary_fusion
from hlo_opt.ir import Attribute, Called, Computation, Instruction, Module, Shape, edit
from hlo_opt.ir.shape import Layout
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.collective.module_devices import WHICH_DEVICE, counts
from hlo_opt.ops.control.table import branches
from hlo_opt.ops.sets import (
    COPIES,
    body_of,
    combines_updates,
    fused,
    is_free,
    keeps_bytes,
    looped,
    results_of,
    tuple_elements,
    tuple_index,
    written_window,
)
from hlo_opt.text.aliases import ALIASES, Alias, alias_text

FEW = 16
"""Limit of elements of a constant that a region holds itself; larger ones are inputs."""

UNKNOWN_ROUNDS = 100
"""The assumed trip count of a loop whose trip count is unknown."""

SMALL_WORK = 1 << 16
"""Limit of elements that a region computes in less time than its call takes."""

SMALL_CALL = "xla_cpu_small_call"
"""The frontend attribute of calls that XLA compiles as one function."""

DROPPED = frozenset({"metadata", "sharding", "frontend_attributes", "origin"})
"""Attributes that do not change what is computed."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A region of a computation; `members` are in the order of the computation."""

    computation: Computation
    members: tuple[Instruction, ...]

    @cached_property
    def inputs(self) -> list[Instruction]:
        """The values from outside that the region reads, each once, without small constants."""
        own = set(self.members)
        outside = (o for i in self.members for o in i.operands if o not in own)
        inputs = dict.fromkeys(o for o in outside if held_constant(o) is None)
        return list(inputs)

    @cached_property
    def views(self) -> set[Instruction]:
        """The members that are views and are read from outside. They stay outside the call: that costs nothing, and a
        region's results must be different arrays."""
        return self._read[1]

    @cached_property
    def outputs(self) -> list[Instruction]:
        """The members that the rest of the module, or one of `views`, reads."""
        return self._read[0]

    @cached_property
    def _read(self) -> tuple[list[Instruction], set[Instruction]]:
        own, views, outputs = set(self.members), set(), []
        for i in reversed(self.members):
            if not i.is_root and all(u in own and u not in views for u in i.users):
                continue
            if keeps_bytes(i.opcode):
                views.add(i)
            else:
                outputs.append(i)
        return outputs[::-1], views

    @property
    def gone(self) -> list[Instruction]:
        """The members that a call replaces."""
        return [i for i in self.members if i not in self.views]

    @cached_property
    def work(self) -> int:
        """The number of elements that the region computes, in all rounds of its loops and inside fusions."""
        return sum(map(work_of, self.members))

    @cached_property
    def written(self) -> int:
        """Bytes that XLA's kernels for the region write."""
        return sum(map(written_by, self.members))

    @property
    def name(self) -> str:
        """The name of the member with the most work, for messages."""
        return max(self.members, key=work_of).name


UNSEEN = frozenset({OpKind.COLLECTIVE, OpKind.OPAQUE})
"""Kinds of operations with unknown semantics, or that need other devices."""


def is_small(i: Instruction) -> bool:
    """Whether a value is a constant that is cheap to duplicate."""
    return i.literal is not None and i.shape.is_array and i.shape.element_count <= FEW and not i.literal.is_elided


def held_constant(i: Instruction) -> Instruction | None:
    """The small constant that a value is, through copies for XLA's buffers; else None. Where a loop begins to count,
    say, is no input: drawn data would make it end elsewhere."""
    while i.opcode in COPIES and i.operands[0].shape == i.shape and i.shape.is_row_major:
        i = i.operands[0]
    return i if is_small(i) else None


def _rounds(loop: Instruction) -> int:
    trips = trip_count(loop)
    return UNKNOWN_ROUNDS if trips is None else trips


def callees_of(i: Instruction) -> list[Computation]:
    """The computations that an instruction runs: the body of a fusion or call, or those of a loop or conditional."""
    body = body_of(i)
    return [body] if body is not None else list(i.called()) if looped(i) is not None or _is_conditional(i) else []


def _is_conditional(i: Instruction) -> bool:
    return bool(i.operands) and bool(branches(i))


def bodies_of(i: Instruction) -> list[tuple[Computation, int]]:
    """The computations with regions of their own that an instruction runs, and how often in a run of it: the body of a
    loop, the branches of a conditional, the computation of a call. XLA compiles small calls as one function, which
    cannot call kernels."""
    if fused(i) is not None or _is_small_call(i):
        return []
    body = looped(i)
    return [(body, _rounds(i))] if body is not None else [(c, 1) for c in callees_of(i)]


def _is_small_call(i: Instruction) -> bool:
    attributes = i.attributes.get("frontend_attributes")
    return attributes is not None and SMALL_CALL in str(attributes)


def updates(i: Instruction) -> bool:
    """Whether an instruction, or a fusion that ends with it, updates a part of an array that it is the new value of.
    XLA does that in place; a call would copy the whole array in each round of a loop."""
    body = fused(i)
    results = [i] if body is None else results_of(body)
    return any(_updates(r) for r in results)


def _updates(i: Instruction) -> bool:
    while keeps_bytes(i.opcode):
        i = i.operands[0]
    return written_window(i) is not None or combines_updates(i)


def work_of(i: Instruction) -> int:
    """The number of elements that an instruction computes."""
    callees = callees_of(i)
    if callees:
        once = sum(work_of(inner) for c in callees for inner in c.instructions)
        return once * (_rounds(i) if looped(i) is not None else 1)
    if i.parameter_number is not None or i.literal is not None or is_free(i.opcode):
        return 0
    return max(1, i.shape.element_count, *(o.shape.element_count for o in i.operands))


def written_by(i: Instruction) -> int:
    """Bytes that kernels write for an instruction."""
    if fused(i) is None and (callees := callees_of(i)):
        once = sum(written_by(inner) for c in callees for inner in c.instructions)
        return once * (_rounds(i) if looped(i) is not None else 1)
    if i.parameter_number is not None or i.literal is not None or is_free(i.opcode):
        return 0
    return i.shape.byte_size


def size_of(members: Sequence[Instruction]) -> int:
    """The number of instructions, called computations included."""
    return sum(1 + sum(size_of(list(c.instructions)) for c in callees_of(i)) for i in members)


def may_be_tried(module: Module) -> bool:
    """Whether a module can be run on drawn data: it is for one device, has no side effects, and ends."""
    if math.prod(counts(module)) > 1 or not of_known_length(list(module.entry.instructions)):
        return False
    specs = [find(i.opcode) for c in module.computations for i in c.instructions]
    if any(s is None or s.side_effects or s.hides_state or s.kind in UNSEEN for s in specs):
        return False
    arrays = [leaf for i in (*module.entry.parameters, module.entry.root) for leaf in i.shape.leaves()]
    plain = all(p.shape.is_array for p in module.entry.parameters)
    return plain and all(_fits(s) and s.is_row_major for s in arrays)


def of_known_length(members: Sequence[Instruction]) -> bool:
    """Whether all loops have a known trip count."""
    every = (i for m in members for i in (m, *inner_of(m)))
    return all(trip_count(i) is not None for i in every if looped(i) is not None)


def inner_of(i: Instruction) -> Iterator[Instruction]:
    """All instructions of the computations that an instruction runs, and of those that these run."""
    for computation in callees_of(i):
        for instruction in computation.instructions:
            yield instruction
            yield from inner_of(instruction)


# ---- what may belong to a region


def _fits(shape: Shape) -> bool:
    """Whether all arrays of a shape have the same form in memory for XLA and for us."""
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
    """Whether a boundary fusion is left to a library, such as for matrix products; the others contain only operations
    that kernels can compute."""
    if not is_boundary_fusion(i):
        return False
    specs = (find(inner.opcode) for c in i.called() for inner in c.instructions)
    return any(spec is None or spec.is_library or spec.kind is OpKind.CONTRACTION for spec in specs)


def _may(i: Instruction, known: dict[Computation, bool], inside: bool) -> bool:
    """Whether our kernels may compute an instruction: it has no side effects, is not left to a library, and does not
    depend on the device that runs it."""
    spec = find(i.opcode)
    if spec is None or spec.side_effects or spec.hides_state or i.opcode in WHICH_DEVICE:
        return False
    if spec.kind in UNSEEN or not _fits(i.shape):
        return False
    # inside a loop, control predecessors order copies that XLA needs for its own buffers only
    if not inside and (i.control_predecessors or i.parameter_number is not None or is_for_library(i)):
        return False
    if spec.is_library and not (inside and spec.kind is OpKind.CONTRACTION):
        return False
    for c in callees_of(i):
        if c not in known:
            known[c] = all(_may(inner, known, True) for inner in c.instructions)
    return all(known[c] for c in callees_of(i))


def _ours(computation: Computation, *, is_entry: bool) -> set[Instruction]:
    """The instructions of a computation that may belong to regions. Constants do not: a region holds copies of small
    ones, and large ones are inputs. Nor do `updates`, but in the entry."""
    known: dict[Computation, bool] = {}
    waited = {p for i in computation.instructions for p in i.control_predecessors}
    ours: set[Instruction] = set()
    parts = []
    for i in computation.instructions:
        if tuple_elements(i) is not None:
            parts.append(i)
        elif tuple_index(i) is not None:
            ours |= {i} if i.operands[0] in ours else set()
        elif i.literal is None and i not in waited and _may(i, known, False) and (is_entry or not updates(i)):
            ours.add(i)
    for i in reversed(parts):
        if not i.is_root and i.users and all(u in ours for u in i.users):
            ours.add(i)
    return ours


def clusters(computation: Computation, *, is_entry: bool = True) -> list[Candidate]:
    """The regions of a computation: the connected instructions without a path between them through others."""
    return [region for layer in layers_of(computation, is_entry=is_entry) for region in layer]


def layers_of(computation: Computation, *, is_entry: bool = True) -> list[list[Candidate]]:
    """The `clusters` by layer. The layer of an instruction is the greatest number of changes between ours and others on
    a path to it, so that no region of a layer depends on another."""
    ours = _ours(computation, is_entry=is_entry)
    levels: dict[Instruction, int] = {}
    for i in computation.instructions:
        known = [levels[o] + ((o in ours) != (i in ours)) for o in i.operands if not is_small(o)]
        levels[i] = max(known, default=0 if i not in ours else 1)
    for i in reversed(list(computation.instructions)):
        if i in ours and not i.is_root and i.users and all(u in ours for u in i.users):
            levels[i] = min(levels[u] for u in i.users)
    for i in computation.instructions:
        if i in ours and tuple_index(i) is not None:  # a region has all that is read of a tuple, or reads no tuple
            levels[i] = levels[i.operands[0]]
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
    return [[Candidate(computation, tuple(members)) for members in groups.values()] for groups in layers.values()]


def together(layer: Sequence[Candidate]) -> tuple[list[Candidate], Candidate | None]:
    """The large regions of a layer, and the small ones merged into one if there are several, which saves calls. Large
    ones stay separate, so that a change of one does not affect the others in the cache."""
    small = [region for region in layer if region.work <= SMALL_WORK]
    if len(small) < 2:
        return list(layer), None
    members = {i for region in small for i in region.members}
    computation = layer[0].computation
    one = Candidate(computation, tuple(i for i in computation.instructions if i in members))
    return [region for region in layer if region not in small], one


ArrayPath = tuple[Instruction, tuple[int, ...]]
"""An array: an instruction, and a path into its tuple shape, the innermost number first."""


def _place(i: Instruction, path: tuple[int, ...] = ()) -> ArrayPath:
    """The array whose memory a value is, through views, tuples and calls."""
    around: list[Instruction] = []
    while True:
        body = body_of(i)
        if (number := tuple_index(i)) is not None:
            i, path = i.operands[0], (*path, number)
        elif path and (parts := tuple_elements(i)) is not None:
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
    """Whether no two results of a region are the same array in XLA: an executable with such results aborts the
    process."""
    places = [_place(i, tuple(path)) for i in candidate.outputs for path in _paths(i.shape)]
    return len(set(places)) == len(places)


def _paths(shape: Shape) -> Iterator[list[int]]:
    """The paths to the arrays of a shape, each with the innermost number first."""
    if shape.elements is None:
        yield []
        return
    for number, element in enumerate(shape.elements):
        yield from ([*path, number] for path in _paths(element))


StatePair = tuple[int, int]
"""An input and a result of a region, by number: results are the arrays of its outputs."""


def state_pairs(candidate: Candidate) -> list[StatePair]:
    """Elements of the state of a loop that a region of its body reads, and their values for the next round where the
    region computes them: XLA has both in one memory."""
    results = []
    for i in results_of(candidate.computation):
        while keeps_bytes(i.opcode):
            i = i.operands[0]
        results.append(i)
    pairs = []
    for number, i in enumerate(candidate.inputs):
        element = tuple_index(i)
        if element is None or i.operands[0].parameter_number is None or results.count(results[element]) > 1:
            continue
        new = results[element]
        if new in candidate.outputs and new.shape == i.shape and i.shape.is_row_major:
            before = candidate.outputs[: candidate.outputs.index(new)]
            pairs.append((number, sum(1 for o in before for _ in o.shape.leaves())))
    return pairs


def pieces(whole: Candidate) -> Iterator[Candidate]:
    """The loops and fusions of a region as regions of their own, by falling work, each with the instructions that only
    it needs."""
    anchors = {i: None for i in whole.members if callees_of(i)}
    own = set(whole.members)
    if len(anchors) < 2:
        return
    for anchor in sorted(anchors, key=work_of, reverse=True):
        members = {anchor}
        members |= {u for u in anchor.users if tuple_index(u) is not None and u in own}
        for i in reversed(whole.members):
            if i in members or i in anchors or tuple_index(i) is not None:
                continue
            if i.users and all(u in members for u in i.users):
                members.add(i)
        yield Candidate(whole.computation, tuple(i for i in whole.members if i in members))


# ---- regions as modules


def physical(shape: Shape) -> Shape:
    """The row-major shape with the same memory."""
    if shape.is_row_major:
        return shape
    order = shape.minor_to_major[::-1]
    return Shape(
        shape.element_type,
        tuple(shape.dimensions[d] for d in order),
        Layout(tuple(range(len(order) - 1, -1, -1))),
    )


def module_of(candidate: Candidate, in_place: Sequence[StatePair] = ()) -> Module:
    """The region as a module of its own, still in XLA's form, which may compute outputs in the memory of inputs. Its
    parameters and results are row-major; its names are numbered, so that equal regions have equal texts."""
    module = Module("region")
    count = iter(range(1 << 30))
    copies: dict[Computation, Computation] = {}

    def attributes(i: Instruction) -> dict[str, Attribute | Called]:
        result: dict[str, Attribute | Called] = {}
        for name, value in i.attributes.items():
            if isinstance(value, Called):
                result[name] = Called(*(callee(c) for c in value.computations), is_list=value.is_list)
            elif name not in DROPPED:
                result[name] = value
        return result

    def copied(i: Instruction, to: Computation, copies_of: Mapping[Instruction, Instruction]) -> Instruction:
        operands = [copies_of[o] for o in i.operands]
        return edit.append(to, edit.copied(i, f"i{next(count)}", operands, attributes(i)))

    def callee(old: Computation) -> Computation:
        if old not in copies:
            new = Computation(f"c{next(count)}")
            copies_of: dict[Instruction, Instruction] = {}
            for i in old.instructions:
                copies_of[i] = copied(i, new, copies_of)
            for i in old.instructions:
                copies_of[i].control_predecessors = [copies_of[p] for p in i.control_predecessors]
            edit.set_root(new, copies_of[old.root])
            copies[old] = edit.add_computation(module, new)
        return copies[old]

    entry = Computation("entry")
    of_entry: dict[Instruction, Instruction] = {}
    for number, value in enumerate(candidate.inputs):
        parameter = edit.create_parameter(entry, f"p{number}", physical(value.shape), number)
        of_entry[value] = _laid_out(entry, parameter, value.shape, f"i{next(count)}")
    for i in candidate.members:
        for operand in i.operands:
            if operand not in of_entry:
                constant = held_constant(operand)
                assert constant is not None
                of_entry[operand] = copied(constant, entry, of_entry)
        of_entry[i] = copied(i, entry, of_entry)
    results = []
    for i in candidate.outputs:
        shape = physical(i.shape) if i.shape.is_array else i.shape
        results.append(_laid_out(entry, of_entry[i], shape, f"i{next(count)}"))
    if len(results) == 1:
        edit.set_root(entry, results[0])
    else:
        edit.create_tuple(entry, results, root=True)
    edit.add_computation(module, entry, entry=True)
    edit.sort_computations(module)
    if in_place:
        paths = [tuple(path[::-1]) for path in _paths(entry.root.shape)]
        aliases = [Alias(paths[k], number, ()) for number, k in in_place]
        module.attributes[ALIASES] = Attribute(alias_text(aliases))
    return module


def _laid_out(computation: Computation, value: Instruction, shape: Shape, name: str) -> Instruction:
    """A view of the value with another shape."""
    if value.shape is shape:
        return value
    return edit.create(computation, name, "bitcast", shape, [value])


def simple_form(module: Module) -> Module:
    """The module without what only XLA's compiler needs: copies that keep the layout, control predecessors, and
    fusions, those for its libraries included. The passes split a reduction, say, only where it is in no fusion."""
    copy = edit.clone_module(module)
    for computation in copy.computations:
        for i in computation.instructions:
            i.control_predecessors = []
        for i in list(computation.instructions):
            if fused(i) is not None and is_boundary_fusion(i):
                del i.attributes["backend_config"]
                edit.set_attribute(i, "kind", Attribute("kLoop"))
            elif i.opcode in COPIES and i.operands[0].shape == i.shape and i.operands[0].shape.layout == i.shape.layout:
                edit.replace_all_uses(i, i.operands[0])
                edit.remove(i)
    inline(copy, is_plain_fusion)
    return copy


def kernels_write(computation: Computation) -> int:
    """Bytes that kernels, without library calls, write in a run of a computation."""
    total = 0
    for i in computation.instructions:
        spec = find(i.opcode)
        if looped(i) is not None or (fused(i) is None and callees_of(i)):
            inner = sum(map(kernels_write, callees_of(i)))
            total += inner * (_rounds(i) if looped(i) is not None else 1)
        elif spec is not None and not spec.is_library and spec.kind is not OpKind.OPAQUE and not is_for_library(i):
            total += written_by(i)
    return total
