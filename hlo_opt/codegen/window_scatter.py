"""The emitter of window scatters: what each window of a thread's box selected, then the sum for each element."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.loop import own_thread
from hlo_opt.codegen.vectors import Targets
from hlo_opt.ir import Instruction
from hlo_opt.ir.element_type import S32
from hlo_opt.ir.index_map import Expression, Variable, constant
from hlo_opt.ops.code import NOTHING, Code, both, code, negated, of
from hlo_opt.ops.reduction.reducers import is_wide, running_types
from hlo_opt.plans.plan import Plan, Segment
from hlo_opt.plans.window_scatter import Boxes, BoxSide, index_in, places_read

_Box = tuple[int, ...]
"""A window of a box, or an element of it, by its number along each dimension."""


def emit(builder: Builder, plan: Plan, segment: Segment[Boxes], first_block: int, targets: Targets) -> None:
    """Emit a thread's box."""
    part, hero = segment.part, segment.part.hero
    root = plan.region.roots[part.roots[0]]
    thread = own_thread(builder, "thread", plan, segment, first_block, part.threads)
    boxes = [builder.declare_index("box", box) for box in part.box_of(thread)]
    lines = [_Line.of(builder, side, box) for side, box in zip(part.sides, boxes, strict=True)]
    windows = itertools.product(*(side.numbers for side in part.sides))
    selected = {number: _selected(builder, hero, lines, number) for number in windows}
    sources = {
        n: builder.value(hero.operands[1], tuple(line.windows[k].index for line, k in zip(lines, n, strict=True)))
        for n in selected
    }
    for at in itertools.product(*(range(side.box) for side in part.sides)):
        total = _total(builder, part, at, selected, sources)
        own = [
            _Place.of(builder, side.result_of(box, k), side.length, is_clamped=False)
            for side, box, k in zip(part.sides, boxes, at, strict=True)
        ]
        index = tuple(place.index for place in own)
        there = index_in(hero, root, plan.region, index)
        assert there is not None  # as the matcher saw
        with builder.branch(both(*(place.inside for place in own))):
            builder.provide(hero, None, there, total)
            for pointer, shape in targets[part.roots[0]]:
                builder.store(pointer, shape, index, builder.value(root, index))


@dataclass(frozen=True)
class _Place:
    """An index along a dimension, in range, and the condition that it is the one that was asked for."""

    index: Expression
    inside: Code

    @classmethod
    def of(cls, builder: Builder, expression: Expression, size: int, *, is_clamped: bool = True) -> _Place:
        """The place of an expression among `size`; if it is not clamped, only for where the condition holds."""
        number = builder.declare_index("at", expression)
        if number.low >= 0 and number.high < size:
            return cls(number, NOTHING)
        text = builder.text(number)
        low = code("{} >= 0", text) if number.low < 0 else NOTHING
        high = code("{} < {}", text, size) if number.high >= size else NOTHING
        inside = both(low, high)
        if not is_clamped and isinstance(number, Variable):
            return cls(Variable(max(0, number.low), min(size - 1, number.high), number.name), inside)
        clamped = code("{0} < 0 ? 0 : {0} < {1} ? {0} : {1}", text, size - 1)
        index = builder.bounded("inside", clamped, 0, size - 1) if size > 1 else constant(0)
        return cls(index, of(builder.let("bool", "is_inside", inside)))


@dataclass(frozen=True)
class _Line:
    """Along a dimension, the windows of a box by their numbers, and the elements of each window."""

    windows: dict[int, _Place]
    elements: dict[int, list[_Place]]

    @classmethod
    def of(cls, builder: Builder, side: BoxSide, box: Expression) -> _Line:
        """Declare all places, each once."""
        w = side.window
        windows = {n: _Place.of(builder, side.window_of(box, n), side.count) for n in side.numbers}
        places = {
            n * w.stride + k: _Place.of(builder, side.element_of(box, n, k), side.size) for n, k in places_read(side)
        }
        elements = {n: [places[n * w.stride + k] for k in range(w.size)] for n in side.numbers}
        if not (w.pad_low or w.pad_high):  # elements of a window that exists do
            elements = {n: [_Place(place.index, NOTHING) for place in every] for n, every in elements.items()}
        return cls(windows, elements)


def _selected(builder: Builder, hero: Instruction, lines: Sequence[_Line], number: _Box) -> Code:
    """A variable with the row-major position selected in a window; -1 where there is no such window."""
    operand, select = hero.operands[0], hero.called_by("select")
    along = [line.elements[n] for line, n in zip(lines, number, strict=True)]
    every = [(place, both(*(p.inside for p in place))) for place in itertools.product(*along)]
    values = [builder.value(operand, tuple(p.index for p in place)) for place, _ in every]
    builder.name_after(hero)
    best, where = builder.variable(operand.shape.type, values[0]), builder.variable(S32, code("-1"))
    for position, ((_, inside), value) in enumerate(zip(every, values, strict=True)):
        if not position and not inside:
            builder.assign(where, code("0"))
            continue
        with builder.branch(inside):
            loses = negated(builder.apply(select, [best, value])[0])
            with builder.branch(code("{} < 0 || {}", where, loses) if every[0][1] else loses):
                builder.assign(best, value)
                builder.assign(where, code("{}", position))
    exists = both(*(line.windows[n].inside for line, n in zip(lines, number, strict=True)))
    return where if not exists else of(builder.let("int", "selected", code("{} ? {} : -1", exists, where)))


def _total(
    builder: Builder, part: Boxes, at: _Box, selected: Mapping[_Box, Code], sources: Mapping[_Box, Code]
) -> Code:
    """The init value combined with the sources of all windows that selected an element of the box."""
    hero, scatter = part.hero, part.hero.called_by("scatter")
    total = builder.variable(running_types(hero)[0], builder.value(hero.operands[2], ()))
    sizes = [side.window.size for side in part.sides]
    for reaching in itertools.product(*(side.reaching(k) for side, k in zip(part.sides, at, strict=True))):
        number, position = tuple(n for n, _ in reaching), 0
        for (_, place), size in zip(reaching, sizes, strict=True):
            position = position * size + place
        with builder.branch(code("{} == {}", selected[number], position)):
            builder.assign(total, builder.apply(scatter, [total, sources[number]], wide=is_wide(hero))[0])
    return builder.bind(hero.shape.type, total) if is_wide(hero) else total
