"""Recognises the tree that `jax.lax.associative_scan` writes for all prefixes of a line.

Of a line of n elements the tree combines neighbours, an even and the odd element after it; it scans the n / 2 results
in the same way; these are the prefixes that end at odd elements. Combined with the even elements from the third on,
they give the others, after the first element itself; two pads and an addition put both in turn
(jax/_src/lax/control_flow/loops.py, `associative_scan`). Elements are tuples of numbers, in one array per component.

Every level is compared with the first, so what is returned is proved but for one thing: that the combination is
associative (`hlo_opt.ops.reduction.associative`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from hlo_opt.ir import Instruction
from hlo_opt.ir.attribute import PaddingDimension
from hlo_opt.ir.walk import match
from hlo_opt.ops.spec import OpKind, find

SHORTEST = 4
"""The least length of a line: shorter ones have no level to compare with the first."""
_MOST_NODES = 200  # operations of a combination


@dataclass(frozen=True)
class View:
    """The elements of an array from `starts` on, so many of each dimension, each so many apart."""

    array: Instruction
    starts: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, i: Instruction) -> View:
        """What a slice takes; of any other instruction all."""
        sizes = i.shape.dimensions
        if i.opcode != "slice":
            return cls(i, (0,) * len(sizes), sizes, (1,) * len(sizes))
        parts = i.attribute("slice", tuple)
        strides = tuple(p.stride if size > 1 else 1 for p, size in zip(parts, sizes, strict=True))
        return cls(i.operands[0], tuple(p.start for p in parts), sizes, strides)

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the array."""
        return self.sizes == self.array.shape.dimensions

    def along(self, axis: int, start: int, size: int, stride: int = 1) -> View:
        """The part from `start` on, which may lie before the first element, along a dimension."""
        begin = self.starts[axis] + start
        return View(
            self.array,
            _with(self.starts, axis, begin),
            _with(self.sizes, axis, size),
            _with(self.strides, axis, stride if size > 1 else 1),
        )


def _with(values: tuple[int, ...], axis: int, value: int) -> tuple[int, ...]:
    return (*values[:axis], value, *values[axis + 1 :])


@dataclass(frozen=True)
class Leaf:
    """A number that a combination reads: a component of its left or its right element."""

    component: int
    is_right: bool


@dataclass(frozen=True)
class Combination:
    """How a component of the combination of two elements is computed: the operations above `root`, down to
    `leaves`."""

    root: Instruction
    leaves: dict[Instruction, Leaf]


@dataclass(frozen=True)
class ScanTree:
    """A tree whose result `out` has component `result` of all prefixes along `axis`. `elements` and `combinations` are
    those of each component that is needed."""

    out: Instruction
    axis: int
    result: int
    elements: tuple[View, ...]
    combinations: tuple[Combination, ...]
    inner: frozenset[Instruction]
    """The prefixes of the levels below."""


@dataclass
class _Level:
    """The arrays of one level by component: its elements and its prefixes, as far as they are known."""

    size: int
    elements: dict[int, View] = field(default_factory=dict)
    prefixes: dict[int, Instruction] = field(default_factory=dict)


def interleaved(i: Instruction) -> tuple[int, Instruction, Instruction] | None:
    """The dimension along which a value has the elements of two arrays in turn, and both arrays, that with the first
    element first. None for any other value."""
    if i.opcode not in ("add", "or") or any(o.opcode != "pad" for o in i.operands):
        return None
    for even, odd in (i.operands, i.operands[::-1]):
        first, second = even.attribute("padding", tuple), odd.attribute("padding", tuple)
        axes = [d for d, p in enumerate(first) if p != PaddingDimension(0, 0)]
        if len(axes) != 1 or not (_fills_with_zero(even) and _fills_with_zero(odd)):
            continue
        (axis,) = axes
        size = i.shape.dimensions[axis]
        counts = [p.operands[0].shape.dimensions[axis] for p in (even, odd)]
        if counts != [size - size // 2, size // 2]:
            continue
        # one element has no gaps between its neighbours
        gaps = [1 if count > 1 else p[axis].interior for count, p in zip(counts, (first, second), strict=True)]
        ends = PaddingDimension(0, 1 - size % 2, gaps[0]), PaddingDimension(1, size % 2, gaps[1])
        others = [p for part in (first, second) for d, p in enumerate(part) if d != axis]
        if (first[axis], second[axis]) == ends and all(p == PaddingDimension(0, 0) for p in others):
            return axis, even.operands[0], odd.operands[0]
    return None


def _fills_with_zero(pad: Instruction) -> bool:
    literal = pad.operands[1].literal
    return literal is not None and not literal.is_elided and not np.asarray(literal.value).any()


def scan_tree(out: Instruction) -> ScanTree | None:
    """The tree of a value; None for any other."""
    parts = interleaved(out)
    if parts is None or out.shape.dimensions[parts[0]] < SHORTEST:
        return None
    reader = _Reader(out, parts[0])
    return reader.read()


class _Reader:
    """A tree that is being read, level by level."""

    def __init__(self, out: Instruction, axis: int) -> None:
        self.out, self.axis = out, axis
        self.components: list[View] = []
        self.combinations: dict[int, Combination] = {}
        size = out.shape.dimensions[axis]
        self.levels = [_Level(size)]
        while size > 1:
            size //= 2
            self.levels.append(_Level(size))
        self.todo: list[tuple[Callable[[int, int], bool | None], int, int]] = []

    def read(self) -> ScanTree | None:
        """The tree; None where it is none."""
        parts = interleaved(self.out)
        start = None if parts is None else self._first(parts[1])
        if start is None:
            return None
        result = self._component(start[0].along(self.axis, 0, self.levels[0].size))
        self._knows_of(start[1])
        if not self._bind_prefix(0, result, self.out):
            return None
        waiting = 0
        while self.todo:
            check, level, component = self.todo.pop(0)
            verdict = check(level, component)
            if verdict is False:
                return None
            if verdict is None:  # its combination is not known yet
                self.todo.append((check, level, component))
            waiting = 0 if verdict else waiting + 1
            if waiting > len(self.todo):
                return None
        count = len(self.components)
        if len(self.combinations) < count:
            return None
        inner = frozenset(p for level in self.levels[1:] for p in level.prefixes.values())
        functions = tuple(self.combinations[c] for c in range(count))
        return ScanTree(self.out, self.axis, result, tuple(self.components), functions, inner)

    def _component(self, elements: View) -> int:
        """The number of the component with these elements."""
        if elements not in self.components:
            self.components.append(elements)
            self._bind_elements(0, len(self.components) - 1, elements)
        return self.components.index(elements)

    def _first(self, even: Instruction) -> tuple[View, Instruction | None] | None:
        """The first of the elements at even places, and the others. None where the first is not by itself."""
        first, rest = even, None
        if even.opcode == "concatenate" and even.ints("dimensions") == (self.axis,) and len(even.operands) == 2:
            first, rest = even.operands
        if first.shape.dimensions[self.axis] != 1:
            return None
        return View.of(first), rest

    def _knows_of(self, rest: Instruction | None) -> None:
        """Note which arrays have the elements of the first level: those of which the third is the first that the
        prefixes are combined with."""
        todo, seen = [rest] if rest is not None else [], set[Instruction]()
        while todo and len(seen) < _MOST_NODES:
            i = todo.pop()
            if i in seen:
                continue
            seen.add(i)
            view = View.of(i)
            if i.opcode == "slice" and view.starts[self.axis] >= 2 and interleaved(view.array) is None:
                self._component(view.along(self.axis, -2, self.levels[0].size))
            elif i.opcode != "slice" and _is_elementwise(i):
                todo += i.operands

    def _bind_elements(self, level: int, component: int, elements: View) -> bool:
        known = self.levels[level].elements.setdefault(component, elements)
        if known is elements and level:
            self.todo.append((self._check_elements, level, component))
        return known == elements

    def _bind_prefix(self, level: int, component: int, prefix: Instruction) -> bool:
        known = self.levels[level].prefixes.get(component)
        if known is None:
            self.levels[level].prefixes[component] = prefix
            self.todo.append((self._check_prefix, level, component))
        return known is None or known is prefix

    def _check_elements(self, number: int, component: int) -> bool | None:
        """Whether the elements of a level are the combinations of neighbours of the level above."""
        level, above = self.levels[number], self.levels[number - 1]
        elements = level.elements[component]
        if not elements.is_whole:
            return False
        if component not in self.combinations:
            if number > 1:
                return None
            combination = self._parsed(elements.array)
            if combination is None:
                return False
            self.combinations[component] = combination

        def binds(leaf: Leaf, i: Instruction) -> bool:
            taken = View.of(i)
            if leaf.component not in above.elements:
                whole = View.of(taken.array)
                if whole.sizes[self.axis] != above.size:
                    return False
                self._bind_elements(number - 1, leaf.component, whole)
            own = above.elements[leaf.component]
            return taken == own.along(self.axis, int(leaf.is_right), level.size, 2)

        return _is_same(self.combinations[component], elements.array, binds)

    def _parsed(self, root: Instruction) -> Combination | None:
        """The combination that computes the elements of the second level."""
        leaves: dict[Instruction, Leaf] = {}
        todo, seen, size = [root], set[Instruction](), self.levels[1].size
        while todo:
            i = todo.pop()
            if i in seen:
                continue
            seen.add(i)
            if len(seen) > _MOST_NODES:
                return None
            if i.opcode == "slice":
                leaf = self._leaf(View.of(i), size)
                if leaf is None:
                    return None
                leaves[i] = leaf
            elif _is_elementwise(i) and i.shape.dimensions == root.shape.dimensions:
                todo += i.operands
            elif not _is_number(i):
                return None
        return Combination(root, leaves)

    def _leaf(self, taken: View, size: int) -> Leaf | None:
        for component, elements in enumerate(self.components):
            for is_right in (False, True):
                if taken == elements.along(self.axis, int(is_right), size, 2):
                    return Leaf(component, is_right)
        whole = View.of(taken.array)
        if whole.sizes[self.axis] != self.levels[0].size or taken.starts[self.axis] > 1:
            return None
        component = self._component(whole)
        return self._leaf(taken, size) if component == len(self.components) - 1 else None

    def _check_prefix(self, number: int, component: int) -> bool | None:
        """Whether the prefixes of a level come from its elements and from the prefixes of the level below."""
        level, prefix = self.levels[number], self.levels[number].prefixes[component]
        if level.size == 1:
            return self._bind_elements(number, component, View.of(prefix))
        parts, below = interleaved(prefix), self.levels[number + 1]
        start = None if parts is None or parts[0] != self.axis else self._first(parts[1])
        if parts is None or start is None:
            return False
        first, rest = start
        if component not in level.elements:
            self._bind_elements(number, component, View.of(first.array))
        own = level.elements[component]
        if first != own.along(self.axis, 0, 1) or not self._bind_prefix(number + 1, component, parts[2]):
            return False
        count = level.size - level.size // 2 - 1
        if (rest is None) != (count == 0) or (rest is not None and rest.shape.dimensions[self.axis] != count):
            return False
        if rest is None:
            return True
        if component not in self.combinations:
            return None

        def binds(leaf: Leaf, i: Instruction) -> bool:
            if not leaf.is_right:
                whole = i if count == below.size else View.of(i).array
                fits = whole.shape.dimensions[self.axis] == below.size
                is_part = whole is i or View.of(i) == View.of(whole).along(self.axis, 0, count)
                return fits and is_part and self._bind_prefix(number + 1, leaf.component, whole)
            taken = View.of(i)
            if leaf.component not in level.elements:
                self._bind_elements(number, leaf.component, View.of(taken.array))
            return taken == level.elements[leaf.component].along(self.axis, 2, count, 2)

        return _is_same(self.combinations[component], rest, binds)


def _is_same(combination: Combination, root: Instruction, binds: Callable[[Leaf, Instruction], bool]) -> bool:
    """Whether a value is computed as a combination says; `binds` says it of what the combination reads."""
    left = _MOST_NODES

    def below(ours: Instruction, theirs: Instruction) -> list[tuple[Instruction, Instruction]] | None:
        nonlocal left
        left -= 1
        if ours in combination.leaves:
            return [] if binds(combination.leaves[ours], theirs) else None
        if left < 0 or ours.opcode != theirs.opcode or ours.shape.type != theirs.shape.type:
            return None
        if _is_number(ours):
            return [] if _is_number(theirs) and number_of(ours) == number_of(theirs) else None
        said = [{n: str(v) for n, v in i.attributes.items() if n in _MEANING} for i in (ours, theirs)]
        if said[0] != said[1] or len(ours.operands) != len(theirs.operands):
            return None
        return list(zip(ours.operands, theirs.operands, strict=True))

    return match(combination.root, root, below)


_MEANING = frozenset({"direction", "type", "exponent_bits", "mantissa_bits", "result_accuracy"})
"""Attributes that say what an elementwise operation computes."""


def _is_elementwise(i: Instruction) -> bool:
    spec = find(i.opcode)
    return spec is not None and spec.kind is OpKind.ELEMENTWISE and not list(i.called()) and i.shape.is_array


def _is_number(i: Instruction) -> bool:
    """Whether a value is one known number everywhere."""
    scalar = i.operands[0] if i.opcode == "broadcast" else i
    return scalar.literal is not None and not scalar.literal.is_elided and not scalar.shape.rank


def number_of(i: Instruction) -> bool | int | float | complex:
    """The number of a constant, or of what is broadcast."""
    literal = (i.operands[0] if i.opcode == "broadcast" else i).literal
    assert literal is not None
    return np.asarray(literal.value).item()
