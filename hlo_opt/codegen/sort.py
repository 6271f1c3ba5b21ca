"""The emitter of sort plans: load the keys into shared memory, sort them there, then write every operand in that
order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.indices import thread_of
from hlo_opt.codegen.scalars import loaded, memory_type, register_type, stored
from hlo_opt.codegen.statements import BLOCK, THREAD
from hlo_opt.codegen.tree import Barrier, Let, Merge, Network, Statement
from hlo_opt.codegen.vectors import Targets
from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import Expression, Variable, add, constant, delinearize, divide, modulo, multiply, variable
from hlo_opt.ops.code import NOTHING, Code, Name, call, cell, code, negated, of
from hlo_opt.ops.lowering import Index
from hlo_opt.ops.movement.memory import physical_index
from hlo_opt.plans.columns import WARP
from hlo_opt.plans.plan import Plan, Segment
from hlo_opt.plans.sort import GROUPED, VISIT, SortLines, operands_of
from hlo_opt.plans.sort_keys import ComparatorKey


@dataclass(frozen=True)
class _Tables:
    """Names of the shared memory: the compared operands by number, and the positions, if any are kept."""

    lines: SortLines
    positions: Name | None
    of: dict[int, Name] = field(default_factory=dict)

    @property
    def kinds(self) -> list[tuple[str, Name]]:
        """All tables, with the C++ types of their elements."""
        operands, key = self.lines.hero.operands, self.lines.key
        keys = [(memory_type(operands[number].shape.type), name) for number, name in self.of.items()]
        if key is not None:
            keys = [(_key_type(key), name) for name in self.of.values()]
        return keys + ([] if self.positions is None else [("unsigned short", self.positions)])


def emit(builder: Builder, plan: Plan, segment: Segment[SortLines], first_block: int, targets: Targets) -> None:
    """The only segment of its launch, so `first_block` is 0."""
    lines = segment.part
    hero, along = lines.hero, lines.along
    tables = _Tables(lines, builder.fresh("positions") if lines.has_positions else None)
    for number in lines.compared:
        tables.of[number] = builder.fresh(f"keys_{builder.stem_of(hero.operands[number])}")
    for kind, name in tables.kinds:
        builder.array(kind, name, lines.cells, shared=True)
    with _cells(builder, lines) as (at, index):
        for number, name in tables.of.items():
            operand = hero.operands[number]
            of_element = (
                in_memory(builder, operand, index) if lines.key is None else _keyed(builder, lines.key, operand, index)
            )
            builder.assign(cell(name, at), of_element)
        if tables.positions is not None:
            builder.assign(cell(tables.positions, at), builder.text(index[along]))
    builder.add(Barrier())
    if lines.length > 1:
        _order(builder, tables)
    with _cells(builder, lines) as (at, index):
        _write(builder, plan, segment, tables, at, index, targets)


def _write(
    builder: Builder,
    plan: Plan,
    segment: Segment[SortLines],
    tables: _Tables,
    at: Variable,
    index: Index,
    targets: Targets,
) -> None:
    """Write the element that ended in a cell, unless it lies behind the last kept element of its line."""
    lines, along = tables.lines, tables.lines.along
    operands = lines.hero.operands
    condition = code("{} < {}", builder.text(index[along]), lines.kept) if lines.kept < lines.length else NOTHING
    with builder.branch(condition):
        source = index
        if any(k not in lines.sorted_ones for k in range(len(operands))):
            position = variable(builder.names.fresh("source"), lines.length)
            if isinstance(position, Variable):
                assert tables.positions is not None
                builder.add(Let("int", Name(position.name), cell(tables.positions, at)))
            source = (*index[:along], position, *index[along + 1 :])
        if condition:
            place = builder.text(index[along]).name
            assert place is not None
            inside = Variable(0, max(0, lines.kept - 1), place.text)
            index = (*index[:along], inside, *index[along + 1 :])
        for number in segment.roots:
            for k, pointer, shape in operands_of(plan.region.roots[number], targets[number]):
                if k in lines.sorted_ones:
                    value = cell(tables.of[k], at)
                elif k < len(operands):
                    value = in_memory(builder, operands[k], source)
                else:
                    assert tables.positions is not None
                    value = cell(tables.positions, at)
                builder.put(pointer, shape, index, value)


def _key_type(key: ComparatorKey) -> str:
    """The C++ type of a key."""
    kind = key.value.shape.type
    return register_type(kind) if kind.is_integer else "long long" if kind.bits > 32 else "int"


def _keyed(builder: Builder, key: ComparatorKey, operand: Instruction, index: Index) -> Code:
    """The key of an element."""
    bits = key.parameter.shape.type != operand.shape.type
    element = in_memory(builder, operand, index) if bits else builder.value(operand, index)
    builder.name_after(operand)
    value = builder.computed(key.value, key.parameter, element)
    return value if key.value.shape.type.is_integer else call("hlo_total_order", value)


def in_memory(builder: Builder, instruction: Instruction, index: Index) -> Code:
    """An element's bits in memory; a parameter's are moved unchanged."""
    if instruction.parameter_number is not None:
        return builder.where(instruction, index)
    return stored(instruction.shape.type, builder.value(instruction, index))


@contextmanager
def _cells(builder: Builder, lines: SortLines) -> Iterator[tuple[Variable, Index]]:
    """A loop of a block over its elements, in memory order where its lines are neighbours: (place in shared memory,
    index)."""
    at = Variable(0, lines.cells - 1, builder.names.fresh("cell"))
    shape, along = lines.hero.operands[0].shape, lines.along
    with builder.walk("int", at, thread_of(lines.block), lines.cells, lines.block):
        if not lines.across:
            with _own(builder, lines, "linear", at, lines.length) as linear:
                yield at, physical_index(shape, linear)
            return
        with _own(builder, lines, "line", modulo(at, lines.per_block), 1) as line:
            order = [d for d in shape.minor_to_major[::-1] if d != along]
            parts = dict(zip(order, delinearize(line, [shape.dimensions[d] for d in order]), strict=True))
            parts[along] = divide(at, lines.per_block)
            yield at, tuple(parts[d] for d in range(shape.rank))


@contextmanager
def _own(builder: Builder, lines: SortLines, stem: str, inside: Expression, size: int) -> Iterator[Expression]:
    """A number among all blocks, of a thing that each line has `size` of, given its number `inside` the block. The last
    block has fewer."""
    if lines.lines <= lines.per_block:
        yield inside
        return
    block = Variable(0, (lines.lines - 1) // lines.per_block, "blockIdx.x")
    number, count = add(multiply(block, lines.per_block * size), inside), lines.lines * size
    if number.high < count:
        yield number
        return
    name = builder.declare_index(stem, number)
    assert isinstance(name, Variable)
    with builder.branch(code("{} < {}", name, count)):
        yield Variable(0, count - 1, name.name)


def _order(builder: Builder, tables: _Tables) -> None:
    """Emit the bitonic network.

    For runs of 2, 4, 8, ... elements: one step that compares mirrored places, then steps at half the distance each.
    """
    steps: list[Statement] = []
    with builder.inside(steps):
        _steps(builder, tables)
    builder.add(Network(steps, _merge(builder, tables)))


def _steps(builder: Builder, tables: _Tables) -> None:
    lines = tables.lines
    work = lines.per_block * lines.pairs
    if lines.pairs == 1:
        with _pairs(builder, lines, work) as (line, _):
            _exchange(builder, tables, line, constant(0), constant(1))
        builder.add(Barrier())
        return
    if lines.pairs >= GROUPED:
        _visits(builder, tables)
        return
    in_warp = not lines.across and lines.pairs <= WARP and work <= lines.block
    with network_steps(builder, lines.pairs) as (step, mask):
        with _pairs(builder, lines, work) as (line, pair):
            _exchange(builder, tables, line, *pair_places(builder, lines.pairs, pair, step, mask))
        builder.add(Barrier(warp=in_warp))
    if in_warp:
        builder.add(Barrier())


def _visits(builder: Builder, tables: _Tables) -> None:
    """Emit the network in visits to shared memory: in each, a thread takes up to 8 elements through up to 3 steps.

    The first visit of each size takes as many steps as leave threes for the others.
    """
    levels = tables.lines.pairs.bit_length()
    level = builder.fresh("level")
    with builder.loop_while("int", level, code("1"), code("{} <= {}", level, levels), code("++{}", level)):
        size = of(builder.index_let("size", code("1 << {}", level)))
        for steps in range(1, VISIT + 1):
            with builder.branch(code("({} - 1) % {} == {}", level, VISIT, steps - 1)):
                _visit(builder, tables, steps, size, mirrors=True)
        builder.add(Barrier())
        rest = builder.fresh("rest")
        first = code("{} >> (({} - 1) % {} + 1)", size, level, VISIT)
        with builder.loop_while("int", rest, first, code("{} > 1", rest), code("{} >>= {}", rest, VISIT)):
            _visit(builder, tables, VISIT, of(rest), mirrors=False)
            builder.add(Barrier())


def _visit(builder: Builder, tables: _Tables, steps: int, size: Code, *, mirrors: bool) -> None:
    """Take elements through the first `steps` steps of runs of `size` elements, or, without mirroring, through those
    that compare at half that distance and below."""
    lines, count = tables.lines, 1 << steps
    groups = 2 * lines.pairs >> steps
    with _pairs(builder, lines, lines.per_block * groups, groups) as (line, group):
        apart = of(builder.index_let("apart", code("{} >> {}", size, steps)))
        own = of(builder.index_let("own", code("{} & ({} - 1)", group or code("0"), apart)))
        before = of(builder.index_let("before", code("({} - {}) << {}", group or code("0"), own, steps)))
        cells, present = [], []
        for number in range(count):
            inside = code("{} - 1 - {}", apart, own) if mirrors and 2 * number >= count else own
            place = of(builder.index_let("place", code("{} + {} * {} + {}", before, number, apart, inside)))
            is_short = lines.length < 2 * lines.pairs
            present.append(builder.let("bool", "present", code("{} < {}", place, lines.length)) if is_short else None)
            cells.append(of(builder.index_let("cell", _cell(lines, line, place))))
        elements = [_taken(builder, tables, *pair) for pair in zip(cells, present, strict=True)]
        for step in range(steps):
            mask = count - 1 if mirrors and not step else count >> (step + 1)
            for low in range(count):
                high = low ^ mask
                if low < high:
                    _order_two(builder, tables, elements, low, high, present[high])
        for at, element, there in zip(cells, elements, present, strict=True):
            with builder.branch(NOTHING if there is None else of(there)):
                for _, name in tables.kinds:
                    builder.assign(cell(name, at), element[name])


def _taken(builder: Builder, tables: _Tables, at: Code, present: Name | None) -> dict[Name, Code]:
    """The element of a cell, in registers."""
    taken = {}
    for kind, name in tables.kinds:
        value = cell(name, at)
        if present is not None:
            value = code(f"{{}} ? {{}} : ({kind})0", present, value)
        taken[name] = of(builder.let(kind, "taken", value))
    return taken


def _order_two(
    builder: Builder, tables: _Tables, elements: list[dict[Name, Code]], low: int, high: int, present: Name | None
) -> None:
    """Exchange two elements unless they are in order; equal ones are if their positions are. The second may be
    absent."""
    first, second = elements[low], elements[high]
    if tables.positions is not None and not tables.lines.breaks_ties:
        later = of(builder.let("bool", "later", code("{} < {}", second[tables.positions], first[tables.positions])))
        one, other = (
            {
                name: of(builder.let(kind, "side", code("{} ? {} : {}", later, *sides)))
                for kind, name in tables.kinds
                if name != tables.positions
                for sides in [(a[name], b[name])]
            }
            for a, b in ((second, first), (first, second))
        )
        condition = code("{} != {}", _is_after(builder, tables, one, other), later)
    else:
        condition = _is_after(builder, tables, first, second)
    if present is not None:
        condition = code("{} && {}", present, condition)
    swap = builder.let("bool", "swap", condition)
    elements[low], elements[high] = (
        {n: of(builder.let(kind, "kept", code("{} ? {} : {}", swap, a[n], b[n]))) for kind, n in tables.kinds}
        for a, b in ((second, first), (first, second))
    )


@contextmanager
def network_steps(builder: Builder, pairs: int) -> Iterator[tuple[Name, Name]]:
    """The loops over the steps of a network for lines of `pairs` pairs: a step's distance, and the bits in which the
    places of a pair differ."""
    size, step, mask = builder.fresh("size"), builder.fresh("step"), builder.fresh("mask")
    sizes = code("{} <= {}", size, 2 * pairs), code("{} *= 2", size)
    steps = code("{} > 0", step), code("{} /= 2", step)
    with (
        builder.loop_while("int", size, code("2"), *sizes),
        builder.loop_while("int", step, code("{} / 2", size), *steps),
    ):
        # the first step mirrors; the others compare at the step's distance
        builder.add(Let("int", mask, code("{0} == {1} / 2 ? {1} - 1 : {0}", step, size), is_index=True))
        yield step, mask


def pair_places(builder: Builder, pairs: int, pair: Code, step: Name, mask: Name) -> tuple[Variable, Variable]:
    """The two places that a pair compares."""
    names = builder.fresh("first"), builder.fresh("second")
    values = code("2 * {0} - ({0} & ({1} - 1))", pair, step), code("{} ^ {}", names[0], mask)
    for name, value in zip(names, values, strict=True):
        builder.add(Let("int", name, value, is_index=True))
    first, second = (Variable(0, 2 * pairs - 1, name.text) for name in names)
    return first, second


@contextmanager
def _pairs(builder: Builder, lines: SortLines, work: int, pairs: int = 0) -> Iterator[tuple[Code, Code]]:
    """A loop over the pairs of places of a step, or over `pairs` groups of places of each line: (line in the block, or
    nothing if there is one; the pair's number in it)."""
    pairs = pairs or lines.pairs
    loop: AbstractContextManager[object] = nullcontext()
    item: Expression = thread_of(work)
    if work > lines.block:
        walker = Variable(0, work - 1, builder.names.fresh("pair" if lines.per_block == 1 else "item"))
        loop, item = builder.walk("int", walker, thread_of(lines.block), work, lines.block), walker
    elif work < lines.block:
        loop = builder.branch(code("{} < {}", THREAD, work))
    with loop:
        line, pair = NOTHING, NOTHING
        if lines.per_block > 1:
            size = lines.per_block if lines.across else pairs
            digits = modulo(item, size), divide(item, size)
            own, other = digits if lines.across else digits[::-1]
            line = of(builder.declare("line", own))
            pair = of(builder.declare("pair", other)) if pairs > 1 else NOTHING
        elif pairs > 1:
            pair = of(item if work > lines.block else builder.declare("pair", item))
        with builder.branch(_is_live(lines, line)):
            yield line, pair


def _is_live(lines: SortLines, line: Code) -> Code:
    """The condition that a line of the block exists in the operand."""
    if lines.lines % lines.per_block == 0:
        return NOTHING
    return code("{} * {} + {} < {}", BLOCK, lines.per_block, line, lines.lines)


def _exchange(builder: Builder, tables: _Tables, line: Code, first: Expression, second: Expression) -> None:
    """Compare and swap the elements at two places of a line; the second place may lie behind the line's end."""
    lines = tables.lines
    short = code("{} < {}", second, lines.length) if lines.length < 2 * lines.pairs else NOTHING
    with builder.branch(short):
        cells = [_cell(lines, line, builder.text(place)) for place in (first, second)]
        if line:
            cells = [of(builder.index_let(stem, at)) for stem, at in zip(("low", "high"), cells, strict=True)]
        stems = {table: builder.stem_of(lines.hero.operands[number]) for number, table in tables.of.items()}
        low, high = (
            {t: of(builder.let(kind, f"{stems.get(t, 'position')}_{side}", cell(t, at))) for kind, t in tables.kinds}
            for side, at in zip(("low", "high"), cells, strict=True)
        )
        condition = _is_after(builder, tables, low, high)
        if tables.positions is not None and not lines.breaks_ties:
            tie = negated(_is_after(builder, tables, high, low))
            later = code("{} < {}", high[tables.positions], low[tables.positions])
            condition = code("{} || ({} && {})", condition, tie, later)
        with builder.branch(condition):
            for _, name in tables.kinds:
                builder.assign(cell(name, cells[0]), high[name])
                builder.assign(cell(name, cells[1]), low[name])


def _is_after(builder: Builder, tables: _Tables, one: dict[Name, Code], other: dict[Name, Code]) -> Code:
    """Whether the comparator puts `other` before `one`, both given as bits in memory."""
    operands, key = tables.lines.hero.operands, tables.lines.key
    if key is not None:
        table = tables.of[key.operand]
        return code("{} > {}" if key.descends else "{} < {}", other[table], one[table])
    sides = []
    for element in (one, other):
        of_side = {}
        for number, table in tables.of.items():
            builder.name_after(operands[number])
            value = element[table]
            if not tables.lines.takes_bits(number):
                value = loaded(operands[number].shape.type, value)
            of_side[number] = (
                value if value == element[table] else builder.bind_exact(operands[number].shape.type, value)
            )
        sides.append(of_side)
    return is_before(builder, tables.lines, sides[1], sides[0])


def is_before(builder: Builder, lines: SortLines, one: dict[int, Code], other: dict[int, Code]) -> Code:
    """Whether the comparator puts `one` before `other`, both given by operand; operands that it does not read are 0."""
    arguments = [side.get(number, code("0")) for number in range(len(lines.hero.operands)) for side in (one, other)]
    return builder.apply(lines.comparator, arguments)[0]


def _merge(builder: Builder, tables: _Tables) -> Merge:
    lines, place = tables.lines, builder.fresh("place")
    line, one, two = builder.fresh("line"), builder.fresh("one"), builder.fresh("two")
    comparing: list[Statement] = []
    with builder.inside(comparing):
        items = ({name: code("{}.{}", item, name) for _, name in tables.kinds} for item in (one, two))
        less = _is_after(builder, tables, *items)
    number = of(line) if lines.per_block > 1 else NOTHING
    return Merge(
        lines.length,
        lines.kept,
        lines.per_block,
        line,
        _is_live(lines, number or code("0")),
        place,
        [],
        _cell(lines, number, of(place)),
        tables.kinds,
        one,
        two,
        comparing,
        less,
        in_shared=True,
    )


def _cell(lines: SortLines, line: Code, place: Code) -> Code:
    """The cell of an element of a line in shared memory."""
    if not line:
        return place
    if lines.across:
        return code("{} * {} + {}", place, lines.per_block, line)
    return code("{} * {} + {}", line, lines.length, place)
