"""Trees of `jax.lax.associative_scan`, as cumulative windows.

JAX scans in a tree of about 2 * log2(n) levels (`hlo_opt.ops.reduction.scan_tree`). Fused, these are several kernels,
which read and write the array two or three times. The kernel of a cumulative window reads each element once and writes
each prefix once. It folds in another order than the tree, so the combination must be proved to be associative
(`hlo_opt.ops.reduction.associative`). XLA keeps the tree.

A window begins with its init value. That of a combination is its neutral element, and 0 * x is only 0 where x is
finite: first elements whose numbers would be lost are replaced, or a predicate says which side is no element.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar
from typing import Literal as OneOf

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Attribute, Called, Computation, Instruction, Shape, edit
from hlo_opt.ir.attribute import SliceDimension, Window, WindowDimension
from hlo_opt.ir.element_type import PRED
from hlo_opt.ops.reduction.associative import Neutral, is_associative, neutral, reads_left
from hlo_opt.ops.reduction.scan_tree import Combination, Leaf, ScanTree, View, interleaved, number_of, scan_tree
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.cumulative_splitter import worth_splitting
from hlo_opt.passes.expansion import BroadcastingWriter
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.plans.price import price

LEAST_OF_TREE = 2.0
"""How many times the bytes of a window a fused tree moves at least."""


@dataclass(frozen=True)
class TreeToWindow(RewritingPass):
    """Replace the trees of associative scans by cumulative windows. The values stay the same up to rounding; the graph
    does not."""

    name: ClassVar[str] = "tree-to-window"
    preserves: ClassVar[OneOf["graph", "meaning"]] = "meaning"

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        new: dict[Instruction, Instruction] = {}
        for family in _scans(computation):
            if all(_pays(scan, new, context.options.target) for scan in family):
                yield from (partial(_put, scan, new) for scan in family)


@dataclass
class _Scan:
    """An associative scan: its elements and combination by component, and the values of its prefixes by component.
    `replaced` are components whose first elements are the neutral ones; `is_flagged`: a predicate says what is an
    element."""

    axis: int
    elements: tuple[View, ...]
    combinations: tuple[Combination, ...]
    neutral: Neutral | None
    outs: dict[int, Instruction] = field(default_factory=dict)
    replaced: frozenset[int] = frozenset()
    is_flagged: bool = False

    @property
    def out(self) -> Instruction:
        """The first of the values."""
        return next(iter(self.outs.values()))

    @property
    def whole(self) -> Shape:
        """The shape of the values, but for their types."""
        return self.out.shape

    @property
    def is_reversed(self) -> bool:
        """Whether the elements are reversed before, or the prefixes after."""
        before = [v.array for v in self.elements if v.is_whole]
        after = [user for out in self.outs.values() for user in out.users]
        return any(_reverses(value, self.axis) for value in (*before, *after))

    def split(self) -> list[_Scan]:
        """Scans with values that keep what their neutral elements would lose: of all together, or of each by
        itself."""
        if self.neutral is None:
            self.is_flagged = True
            return [self]
        lost = frozenset[int]().union(*(self.neutral.lost[c] for c in range(len(self.elements))))
        if not lost:
            return [self]
        if len(self.outs) > 1 and lost & self.outs.keys():
            alone = [s for c, out in self.outs.items() for s in self._only(c, out).split()]
            if not any(s.is_flagged for s in alone):
                return alone
        others = [f for c, f in enumerate(self.combinations) if c not in lost]
        if lost & self.outs.keys() or any(reads_left(f, c) for f in others for c in lost):
            self.is_flagged = True
        else:
            self.replaced = lost
        return [self]

    def _only(self, component: int, out: Instruction) -> _Scan:
        """The scan without what one component does not need."""
        needed, todo = dict.fromkeys([component]), [component]
        while todo:
            for leaf in self.combinations[todo.pop()].leaves.values():
                if leaf.component not in needed:
                    needed[leaf.component] = None
                    todo.append(leaf.component)
        numbers = {old: new for new, old in enumerate(needed)}
        combinations = tuple(_renumbered(self.combinations[c], numbers) for c in needed)
        elements = tuple(self.elements[c] for c in needed)
        return _Scan(self.axis, elements, combinations, neutral(combinations), {0: out})


def _renumbered(combination: Combination, numbers: Mapping[int, int]) -> Combination:
    leaves = {i: Leaf(numbers[leaf.component], leaf.is_right) for i, leaf in combination.leaves.items()}
    return Combination(combination.root, leaves)


def _reverses(value: Instruction, axis: int) -> bool:
    return value.opcode == "reverse" and value.ints("dimensions") == (axis,)


def _scans(computation: Computation) -> list[list[_Scan]]:
    """The scans of a computation whose combination is associative. Those whose trees have values in common are
    together: replaced one by one, they would leave the others what both computed once."""
    places = [(i, parts[0]) for i in computation.instructions if (parts := interleaved(i)) is not None]
    places.sort(key=lambda place: -place[0].shape.dimensions[place[1]])  # the whole tree before its levels
    found: dict[object, tuple[_Scan, ScanTree]] = {}
    inner: set[Instruction] = set()
    staying: set[Instruction] = set()
    for out, _ in places:
        tree = scan_tree(out) if out not in inner and _is_plain(out) else None
        if tree is None:
            continue
        inner |= tree.inner
        roots = [(view, c.root) for view, c in zip(tree.elements, tree.combinations, strict=True)]
        known = found.get(frozenset(roots))
        if known is not None:
            scan, first = known
            scan.outs[first.elements.index(tree.elements[tree.result])] = out
        elif all(map(_fits(out), tree.elements)) and is_associative(tree.combinations):
            scan = _Scan(tree.axis, tree.elements, tree.combinations, neutral(tree.combinations), {tree.result: out})
            found[frozenset(roots)] = scan, tree
        else:
            staying |= {c.root for c in tree.combinations}
    families: list[_Family] = []
    for scan, tree in found.values():
        joined = _Family({c.root for c in tree.combinations}, [(scan, tree)])
        for family in [f for f in families if not f.shared.isdisjoint(joined.shared)]:
            joined = _Family(joined.shared | family.shared, [*family.members, *joined.members])
            families.remove(family)
        families.append(joined)
    going = [f for f in families if f.shared.isdisjoint(staying) and _die(f.members)]
    return [[part for scan, _ in family.members for part in scan.split()] for family in going]


@dataclass
class _Family:
    """Scans whose trees have values in common, and the results of their combinations on the second level."""

    shared: set[Instruction]
    members: list[tuple[_Scan, ScanTree]]


def _die(family: Collection[tuple[_Scan, ScanTree]]) -> bool:
    """Whether nothing needs the levels below once the values are replaced. A gradient may: it reads them all."""
    todo = [out for scan, _ in family for out in scan.outs.values()]
    dead = set(todo)
    while todo:
        for operand in todo.pop().operands:
            if operand not in dead and not operand.is_root and dead.issuperset(operand.users):
                dead.add(operand)
                todo.append(operand)
    return all(tree.inner <= dead for _, tree in family)


def _is_plain(out: Instruction) -> bool:
    """Whether a kernel of cumulative windows writes the value: its sizes are known, and threads pass its type on
    whole."""
    return not any(out.shape.dynamic) and out.shape.type.per_byte == 1 and not out.control_predecessors


def _fits(out: Instruction) -> Callable[[View], bool]:
    """Whether elements lie in memory as the value does."""

    def fits(elements: View) -> bool:
        shape = elements.array.shape
        is_alike = shape.minor_to_major == out.shape.minor_to_major and elements.sizes == out.shape.dimensions
        return is_alike and not any(shape.dynamic) and shape.type.per_byte == 1 and set(elements.strides) == {1}

    return fits


def _pays(scan: _Scan, new: Mapping[Instruction, Instruction], target: DeviceTarget) -> bool:
    """Whether the window takes less time than the fused tree takes about, or is one that is split."""
    computation = scan.out.computation
    module = computation.module
    assert module is not None
    before = set(computation.instructions)
    computations = set(module.computations)
    window = _Writer(scan, new).window()
    candidate = plan(region_of(module, window), target)
    pays = isinstance(candidate, Plan) and len(candidate.segments) == 1 and bool(candidate.segments[0].folded)
    if isinstance(candidate, Plan) and pays:
        one = price(candidate, target)
        levels = scan.whole.dimensions[scan.axis].bit_length() - 1
        kernels = max(2, levels // 2 - 1)  # as fused trees have
        tree = kernels * (one.launch + target.idle_load_us) + LEAST_OF_TREE * one.memory
        pays = one.us < tree or worth_splitting(window, target) is not None
    for i in [i for i in computation.instructions if i not in before][::-1]:
        edit.remove(i)
    for made in [c for c in module.computations if c not in computations]:
        edit.remove_computation(made)
    return pays


def _put(scan: _Scan, new: dict[Instruction, Instruction]) -> None:
    """Replace the values of a scan. `new` are the values that took the place of others that elements are of."""
    writer = _Writer(scan, new)
    computation, window = scan.out.computation, writer.window()
    for component, out in scan.outs.items():
        value = window if window.shape.is_array else edit.create_element(window, component)
        edit.inherit(value, out)
        computation.index_users()
        if writer.is_reversed:
            for user in [u for u in out.users if _reverses(u, scan.axis)]:
                edit.replace_all_uses(user, value)
                edit.remove(user)
                new[user] = value
        if out.users or out.is_root:
            turned = writer.turned(value) if writer.is_reversed else value
            edit.replace_all_uses(out, turned)
            new[out] = turned
        edit.remove(out)


class _Writer:
    """Writes the window of a scan."""

    def __init__(self, scan: _Scan, new: Mapping[Instruction, Instruction]) -> None:
        self.scan, self.new = scan, new
        self.is_reversed = scan.is_reversed
        self.writer = BroadcastingWriter(scan.out.computation)

    def turned(self, value: Instruction) -> Instruction:
        """The value with its lines reversed."""
        return self.writer.emit("reverse", value.shape, value, dimensions=(self.scan.axis,))

    def window(self) -> Instruction:
        """The window, a tuple where elements have several components."""
        scan, whole = self.scan, self.scan.whole
        arrays = [self._elements(component) for component in range(len(scan.elements))]
        starts = scan.neutral.values if scan.neutral is not None else (0,) * len(arrays)
        inits = [self.writer.scalar(a.shape.type, value) for a, value in zip(arrays, starts, strict=True)]
        if scan.is_flagged:
            inits.append(self.writer.scalar(PRED, False))
            arrays.append(self.writer.spread(self.writer.scalar(PRED, True), whole.dimensions))
        size = whole.dimensions[scan.axis]
        low, high = (0, size - 1) if self.is_reversed else (size - 1, 0)
        along = WindowDimension(size, pad_low=low, pad_high=high)
        window = Window(tuple(along if d == scan.axis else WindowDimension(1) for d in range(whole.rank)))
        reducer = self._reducer([Shape(a.shape.type) for a in arrays])
        attributes: dict[str, Attribute | Called] = {"window": Attribute.of(window), "to_apply": Called(reducer)}
        shapes = [whole.with_type(a.shape.type) for a in arrays]
        shape = Shape.tuple_of(*shapes) if len(shapes) > 1 else shapes[0]
        return edit.create(scan.out.computation, "scan", "reduce-window", shape, [*arrays, *inits], attributes)

    def _elements(self, component: int) -> Instruction:
        """The elements of a component as an array, in the order in which the window goes over them."""
        scan, elements = self.scan, self.scan.elements[component]
        array = self.new.get(elements.array, elements.array)
        shape = scan.whole.with_type(array.shape.type)
        if not elements.is_whole:
            ends = [start + size for start, size in zip(elements.starts, elements.sizes, strict=True)]
            array = self.writer.slice(shape, array, list(map(SliceDimension, elements.starts, ends)))
        if self.is_reversed:
            turned = _reverses(array, scan.axis)
            array = array.operands[0] if turned else self.turned(array)
        if component not in scan.replaced:
            return array
        assert scan.neutral is not None
        first = self.writer.number(shape.dimensions[scan.axis] - 1 if self.is_reversed else 0)
        is_first = self.writer.compare("EQ", self.writer.iota(shape.dimensions, scan.axis), first)
        return self.writer.select(is_first, self.writer.scalar(shape.type, scan.neutral.values[component]), array)

    def _reducer(self, scalars: Sequence[Shape]) -> Computation:
        """The combination of scalars. A window from the end has later elements on its left."""
        module, count = self.scan.out.computation.module, len(scalars)
        assert module is not None
        reducer = edit.new_computation(module, "combination")
        parameters = [edit.create_parameter(reducer, f"p{k}", scalars[k % count], k) for k in range(2 * count)]
        sides = parameters[:count], parameters[count:]
        earlier, later = sides[::-1] if self.is_reversed else sides
        results = [_applied(reducer, c, earlier, later) for c in self.scan.combinations]
        if self.scan.is_flagged:
            writer, seen = BroadcastingWriter(reducer), (earlier[-1], later[-1])
            for n, result in enumerate(results):
                known = writer.select(seen[1], result, earlier[n])
                results[n] = writer.select(seen[0], known, later[n])
            results.append(writer.emit("or", Shape(PRED), *seen))
        if count > 1:
            edit.create_tuple(reducer, results, root=True)
        else:
            edit.set_root(reducer, results[0])
        return reducer


def _applied(
    reducer: Computation, combination: Combination, left: Collection[Instruction], right: Collection[Instruction]
) -> Instruction:
    """A component of the combination of two elements that are scalars."""
    sides, writer = (list(left), list(right)), BroadcastingWriter(reducer)
    values: dict[Instruction, Instruction] = {}
    todo = [combination.root]
    while todo:
        i = todo[-1]
        leaf = combination.leaves.get(i)
        is_number = leaf is None and (i.opcode == "broadcast" or i.literal is not None)
        missing = [o for o in i.operands if o not in values] if leaf is None and not is_number else []
        if missing:
            todo += missing
            continue
        todo.pop()
        if leaf is not None:
            values[i] = sides[leaf.is_right][leaf.component]
        elif is_number:
            values[i] = writer.scalar(i.shape.type, number_of(i))
        elif i not in values:
            values[i] = edit.clone_into(reducer, i, [values[o] for o in i.operands])
            edit.set_shape(values[i], Shape(i.shape.type))
    return values[combination.root]
