"""The emitter of sorts in global memory: sort the positions of a line by a network, then write every operand in that
order."""

from __future__ import annotations

from dataclasses import dataclass

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.indices import block_of, thread_of
from hlo_opt.codegen.sort import in_memory, is_before, network_steps, pair_places
from hlo_opt.codegen.tree import Barrier, Merge, Network, Statement
from hlo_opt.codegen.vectors import Targets
from hlo_opt.ir import Shape
from hlo_opt.ir.index_map import Variable, add, constant, delinearize, multiply
from hlo_opt.ops.code import NOTHING, Code, Name, cell, code, negated, of
from hlo_opt.ops.lowering import Index
from hlo_opt.plans.long_sort import LongLines
from hlo_opt.plans.plan import Plan, Segment
from hlo_opt.plans.sort import operands_of


def emit(builder: Builder, plan: Plan, segment: Segment[LongLines], first_block: int, targets: Targets) -> None:
    """Emit the only segment of the launch: `first_block` is 0, and each block has one line."""
    lines, length = segment.part, segment.part.length
    places, thread = Name(plan.scratch_names[0]), thread_of(lines.block)
    frame = _Frame(lines, places, builder.declare("line", block_of(0, lines.lines)) if lines.lines > 1 else None)
    place = Variable(0, length - 1, builder.names.fresh("place"))
    with builder.walk("int", place, thread, length, lines.block):
        builder.assign(cell(places, _cell(builder, frame, "cell", place)), of(place))
    builder.add(Barrier())
    steps: list[Statement] = []
    with builder.inside(steps), network_steps(builder, lines.pairs) as (step, mask):
        pair = Variable(0, lines.pairs - 1, builder.names.fresh("pair"))
        with builder.walk("int", pair, thread, lines.pairs, lines.block):
            first, second = pair_places(builder, lines.pairs, of(pair), step, mask)
            with builder.branch(code("{} < {}", second, length)):
                _exchange(builder, frame, first, second)
        builder.add(Barrier())
    builder.add(Network(steps, _merge(builder, frame)))
    rank = Variable(0, lines.kept - 1, builder.names.fresh("rank"))
    with builder.walk("int", rank, thread, lines.kept, lines.block):
        at = _cell(builder, frame, "cell", Variable(0, length - 1, rank.name))
        source = Variable(0, length - 1, builder.let("int", "source", cell(places, at)).text)
        hero = lines.hero
        for k, pointer, shape in operands_of(hero, targets[0]):
            value = of(source)
            if k < len(hero.operands):
                value = builder.where(hero.operands[k], _index(frame, hero.operands[k].shape, source))
            builder.put(pointer, shape, _index(frame, shape, rank), value)


@dataclass(frozen=True)
class _Frame:
    """The lines, the memory of their positions, and the block's line where there are several."""

    lines: LongLines
    places: Name
    line: Variable | None


def _cell(builder: Builder, frame: _Frame, stem: str, place: Variable) -> Variable:
    """The cell of a position in the memory of all lines' positions."""
    if frame.line is None:
        return place
    inside = Variable(0, frame.lines.length - 1, place.name)
    return builder.declare(stem, add(multiply(frame.line, frame.lines.length), inside))


def _index(frame: _Frame, shape: Shape, along: Variable) -> Index:
    """The index of an element of the block's line. Lines are numbered in the memory order of the first operand."""
    lines = frame.lines
    rest = [d for d in lines.hero.operands[0].shape.minor_to_major[::-1] if d != lines.along]
    line = frame.line or constant(0)
    parts = dict(zip(rest, delinearize(line, [shape.dimensions[d] for d in rest]), strict=True))
    return tuple(along if d == lines.along else parts[d] for d in range(shape.rank))


def _exchange(builder: Builder, frame: _Frame, first: Variable, second: Variable) -> None:
    """Compare and exchange two positions of a line."""
    cells = [_cell(builder, frame, stem, place) for stem, place in (("low", first), ("high", second))]
    low, high = (
        of(builder.let("int", f"place_{stem}", cell(frame.places, at)))
        for stem, at in zip(("low", "high"), cells, strict=True)
    )
    condition = _is_after(builder, frame, low, high)
    if not frame.lines.breaks_ties:
        tie = negated(_is_after(builder, frame, high, low))
        condition = code("{} || ({} && {} < {})", condition, tie, high, low)
    with builder.branch(condition):
        builder.assign(cell(frame.places, cells[0]), high)
        builder.assign(cell(frame.places, cells[1]), low)


def _is_after(builder: Builder, frame: _Frame, one: Code, other: Code) -> Code:
    """Whether the comparator puts `other` before `one`."""
    sides: list[dict[int, Code]] = []
    for place in (one, other):
        assert place.name is not None
        along = Variable(0, frame.lines.length - 1, place.name.text)
        of_side = {}
        for number in frame.lines.compared:
            operand = frame.lines.hero.operands[number]
            index = _index(frame, operand.shape, along)
            bits = frame.lines.takes_bits(number)
            of_side[number] = in_memory(builder, operand, index) if bits else builder.value(operand, index)
        sides.append(of_side)
    return is_before(builder, frame.lines, sides[1], sides[0])


def _merge(builder: Builder, frame: _Frame) -> Merge:
    lines, place = frame.lines, Variable(0, frame.lines.length - 1, builder.names.fresh("place"))
    line, one, two = builder.fresh("line"), builder.fresh("one"), builder.fresh("two")
    placing: list[Statement] = []
    with builder.inside(placing):
        at = _cell(builder, frame, "cell", place)
    comparing: list[Statement] = []
    with builder.inside(comparing):
        first, second = (of(builder.let("int", "at", code("{}.{}", item, frame.places))) for item in (one, two))
        less = _is_after(builder, frame, first, second)
    return Merge(
        lines.length,
        lines.kept,
        1,
        line,
        NOTHING,
        Name(place.name),
        placing,
        of(at),
        [("int", frame.places)],
        one,
        two,
        comparing,
        less,
        in_shared=False,
    )
