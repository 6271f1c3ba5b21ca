"""The emitter of sort plans: fill shared memory with what is compared, order it step by step, write every operand in that order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

from hlo_opt.analysis.columns import WARP
from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.scalars import loaded, memory_type, stored
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.index_map import Expression, Variable, add, delinearize, divide, modulo, multiply, variable
from hlo_opt.ops.lowering import Index
from hlo_opt.plans.loop import physical_index
from hlo_opt.plans.plan import Plan, Segment
from hlo_opt.plans.sort import Lines, operands_of


@dataclass(frozen=True)
class _Tables:
    """Names of the shared memory: of the operands that are compared, by number, and of places (empty where none are kept)."""

    lines: Lines
    positions: str
    of: dict[int, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [*self.of.values(), *([self.positions] if self.positions else [])]


def emit(
    builder: Builder, plan: Plan, segment: Segment, first_block: int, targets: Sequence[Sequence[tuple[str, Shape]]]
) -> None:
    """The only segment of its launch: `first_block` is 0."""
    count, length = segment.space
    lines = Lines(segment.hero, segment.roots, count, length, segment.rows_per_block)
    hero, along = lines.hero, lines.along
    tables = _Tables(lines, builder.names.fresh("positions") if lines.has_positions else "")
    for number in lines.compared:
        operand = hero.operands[number]
        name = tables.of[number] = builder.names.fresh(f"keys_{builder.stem_of(operand)}")
        builder.line(f"__shared__ {memory_type(operand.shape.type)} {name}[{lines.cells}];")
    if tables.positions:
        builder.line(f"__shared__ unsigned short {tables.positions}[{lines.cells}];")
    with _cells(builder, lines) as (cell, index):
        for number, name in tables.of.items():
            builder.assign(f"{name}[{cell}]", _in_memory(builder, hero.operands[number], index))
        if tables.positions:
            builder.assign(f"{tables.positions}[{cell}]", builder.text(index[along]))
    builder.line("__syncthreads();")
    if lines.length > 1:
        _order(builder, tables)
    with _cells(builder, lines) as (cell, index):
        _write(builder, plan, segment, tables, cell, index, targets)


def _write(
    builder: Builder,
    plan: Plan,
    segment: Segment,
    tables: _Tables,
    cell: str,
    index: Index,
    targets: Sequence[Sequence[tuple[str, Shape]]],
) -> None:
    """Write what came to a cell, unless it is behind the elements of a line that are wanted."""
    lines, along = tables.lines, tables.lines.along
    operands = lines.hero.operands
    condition = f"{builder.text(index[along])} < {lines.kept}" if lines.kept < lines.length else ""
    with builder.branch(condition) if condition else nullcontext():
        source = index
        if any(k not in tables.of for k in range(len(operands))):
            made = variable(builder.names.fresh("source"), lines.length)
            if isinstance(made, Variable):
                builder.line(f"const int {made.name} = {tables.positions}[{cell}];")
            source = (*index[:along], made, *index[along + 1 :])
        if condition:
            inside = Variable(0, max(0, lines.kept - 1), builder.text(index[along]))
            index = (*index[:along], inside, *index[along + 1 :])
        for number in segment.roots:
            for k, pointer, shape in operands_of(plan.region.roots[number], targets[number]):
                if k in tables.of:
                    value = f"{tables.of[k]}[{cell}]"
                else:
                    value = (
                        _in_memory(builder, operands[k], source) if k < len(operands) else f"{tables.positions}[{cell}]"
                    )
                builder.put(pointer, shape, index, value)


def _in_memory(builder: Builder, instruction: Instruction, index: Index) -> str:
    """An element as it lies in memory: that of a parameter is moved bit by bit."""
    if instruction.parameter_number is not None:
        return builder.where(instruction, index)
    return stored(instruction.shape.type, builder.value(instruction, index))


@contextmanager
def _cells(builder: Builder, lines: Lines) -> Iterator[tuple[str, Index]]:
    """A loop of a block over its elements, in the order of memory as far as its lines are neighbours there: the place in shared memory and the index."""
    cell = Variable(0, lines.cells - 1, builder.names.fresh("cell"))
    shape, along = lines.hero.operands[0].shape, lines.along
    with builder.block(
        f"for (int {cell.name} = threadIdx.x; {cell.name} < {lines.cells}; {cell.name} += {lines.block})"
    ):
        if not lines.across:
            with _own(builder, lines, "linear", cell, lines.length) as linear:
                yield cell.name, physical_index(shape, linear)
            return
        with _own(builder, lines, "line", modulo(cell, lines.per_block), 1) as line:
            order = [d for d in shape.minor_to_major[::-1] if d != along]
            parts = dict(zip(order, delinearize(line, [shape.dimensions[d] for d in order]), strict=True))
            parts[along] = divide(cell, lines.per_block)
            yield cell.name, tuple(parts[d] for d in range(shape.rank))


@contextmanager
def _own(builder: Builder, lines: Lines, stem: str, inside: Expression, size: int) -> Iterator[Expression]:
    """The number among those of all blocks of something of which a line has `size`, given its number inside the block; the last block has fewer."""
    if lines.lines <= lines.per_block:
        yield inside
        return
    block = Variable(0, (lines.lines - 1) // lines.per_block, "blockIdx.x")
    found, count = add(multiply(block, lines.per_block * size), inside), lines.lines * size
    if found.high < count:
        yield found
        return
    made = builder.declare_index(stem, found)
    assert isinstance(made, Variable)
    with builder.branch(f"{made.name} < {count}"):
        yield Variable(0, count - 1, made.name)


def _order(builder: Builder, tables: _Tables) -> None:
    """The network: for lines of 2, 4, 8, ... elements, a step that compares mirrored places, and steps that compare places half as far apart each time."""
    lines = tables.lines
    work = lines.per_block * lines.pairs
    if lines.pairs == 1:
        with _pairs(builder, lines, work) as (line, _):
            _exchange(builder, tables, line, "0", "1")
        builder.line("__syncthreads();")
        return
    in_warp = not lines.across and lines.pairs <= WARP and work <= lines.block
    size, step, mask = (builder.names.fresh(stem) for stem in ("size", "step", "mask"))
    with (
        builder.block(f"for (int {size} = 2; {size} <= {2 * lines.pairs}; {size} *= 2)"),
        builder.block(f"for (int {step} = {size} / 2; {step} > 0; {step} /= 2)"),
    ):
        builder.line(f"const int {mask} = {step} == {size} / 2 ? {size} - 1 : {step};  // mirrored, then {step} apart")
        with _pairs(builder, lines, work) as (line, pair):
            first, second = builder.names.fresh("first"), builder.names.fresh("second")
            builder.line(f"const int {first} = 2 * {pair} - ({pair} & ({step} - 1));")
            builder.line(f"const int {second} = {first} ^ {mask};")
            _exchange(builder, tables, line, first, second)
        builder.line("__syncwarp();" if in_warp else "__syncthreads();")
    if in_warp:
        builder.line("__syncthreads();")


@contextmanager
def _pairs(builder: Builder, lines: Lines, work: int) -> Iterator[tuple[str, str]]:
    """What follows is done for each pair of places that a step compares: the line inside the block (empty where it has one), and the pair's number in it."""
    loop: AbstractContextManager[None] = nullcontext()
    item = "threadIdx.x"
    if work > lines.block:
        item = builder.names.fresh("pair" if lines.per_block == 1 else "item")
        loop = builder.block(f"for (int {item} = threadIdx.x; {item} < {work}; {item} += {lines.block})")
    elif work < lines.block:
        loop = builder.branch(f"{item} < {work}")
    with loop:
        line, pair = "", item
        if lines.per_block > 1:
            line, pair = builder.names.fresh("line"), builder.names.fresh("pair")
            size, ways = (lines.per_block, "%/") if lines.across else (lines.pairs, "/%")
            builder.line(f"const int {line} = {item}{f' {ways[0]} {size}' if lines.pairs > 1 else ''};")
            if lines.pairs > 1:
                builder.line(f"const int {pair} = {item} {ways[1]} {size};")
        elif item == "threadIdx.x" and lines.pairs > 1:
            pair = builder.names.fresh("pair")
            builder.line(f"const int {pair} = {item};")
        live = f"blockIdx.x * {lines.per_block} + {line} < {lines.lines}" if lines.lines % lines.per_block else ""
        with builder.branch(live) if live else nullcontext():
            yield line, pair


def _exchange(builder: Builder, tables: _Tables, line: str, first: str, second: str) -> None:
    """Bring the elements at two places of a line into order; the second place may lie behind the line's end."""
    lines, hero = tables.lines, tables.lines.hero
    short = lines.length < 2 * lines.pairs
    with builder.branch(f"{second} < {lines.length}") if short else nullcontext():
        low, high = first, second
        if line:
            low, high = builder.names.fresh("low"), builder.names.fresh("high")
            for name, place in ((low, first), (high, second)):
                builder.line(f"const int {name} = {_cell(lines, line, place)};")
        held: dict[str, tuple[str, str]] = {}
        sides: tuple[dict[int, str], dict[int, str]] = ({}, {})
        for number, table in tables.of.items():
            operand = hero.operands[number]
            names = []
            for side, (cell, of) in zip(sides, ((low, "low"), (high, "high")), strict=True):
                raw = builder.names.fresh(f"{builder.stem_of(operand)}_{of}")
                builder.line(f"const {memory_type(operand.shape.type)} {raw} = {table}[{cell}];")
                names.append(raw)
                value = loaded(operand.shape.type, raw)
                if value != raw:
                    builder.name_after(operand)
                    value = builder.bind_exact(operand.shape.type, value)
                side[number] = value
            held[table] = names[0], names[1]
        if tables.positions:
            raw_pair = []
            for cell, of in ((low, "low"), (high, "high")):
                raw_pair.append(builder.names.fresh(f"position_{of}"))
                builder.line(f"const unsigned short {raw_pair[-1]} = {tables.positions}[{cell}];")
            held[tables.positions] = raw_pair[0], raw_pair[1]
        condition = is_before(builder, lines, sides[1], sides[0])
        if not lines.breaks_ties:
            low_at, high_at = held[tables.positions]
            condition += f" || (!{is_before(builder, lines, *sides)} && {high_at} < {low_at})"
        with builder.branch(condition):
            for table, (at_low, at_high) in held.items():
                builder.assign(f"{table}[{low}]", at_high)
                builder.assign(f"{table}[{high}]", at_low)


def is_before(builder: Builder, lines: Lines, one: dict[int, str], other: dict[int, str]) -> str:
    """Whether the comparator puts elements in front of others, both given by operand; what it does not read is 0."""
    arguments = [side.get(number, "0") for number in range(len(lines.hero.operands)) for side in (one, other)]
    return builder.apply(lines.comparator, arguments)[0]


def _cell(lines: Lines, line: str, place: str) -> str:
    """The cell of an element of a line."""
    if place == "0":
        return line if lines.across else f"{line} * {lines.length}"
    if lines.across:
        return f"{lines.per_block if place == '1' else f'{place} * {lines.per_block}'} + {line}"
    return f"{line} * {lines.length} + {place}"
