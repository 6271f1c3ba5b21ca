"""Kernels without barriers, a chunk of a block's elements at a time: a loop over lanes for each stretch of statements.

A chunk is short enough that digits of positions (rows, channels, windows) are the same for all lanes where possible.
Those are computed once, and conditions and loops on them stand around the loops over lanes: compilers do not vectorise
selections by one condition, and turn conditions on edges into gathers.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from hlo_opt.codegen.kernel import Kernel
from hlo_opt.codegen.lanes_apart import are_apart
from hlo_opt.codegen.lanes_chunk_text import CHUNK, FROM, INSIDE, LANE, LANES, LEAST, ROW, ChunkWriter, UnknownError
from hlo_opt.codegen.lanes_parts import SHORTEST, Part, bands_of, parts_of_row, vector_lanes, within
from hlo_opt.codegen.lanes_runs import FEWEST, differing_digits, in_runs, run_lines, used_in
from hlo_opt.codegen.lanes_runs import MOST as RUN
from hlo_opt.codegen.lanes_text import filled
from hlo_opt.codegen.statements import BLOCK, THREAD
from hlo_opt.codegen.threads import is_ordered, keeps_memory
from hlo_opt.codegen.tree import (
    Aligned,
    Assign,
    BlockRange,
    Break,
    For,
    Leave,
    Let,
    Neighbours,
    Note,
    Statement,
    codes_of,
    walk,
    walked_changes,
)
from hlo_opt.ir.index_map import (
    Expression,
    Variable,
    add,
    constant,
    divide,
    modulo,
    multiply,
    substitute,
    variables_of,
)
from hlo_opt.ops.code import Address, Cell, Name

_MOST = 1024
"""Lanes of the longest chunk that is a part of a row."""
_RUNS = 128
"""Runs of the longest chunk of an array without rows."""
_FEW = 32
"""Lanes of a chunk that is worth what is done once in it, where rows are longer."""
_WAITING = 32
"""The most lanes of a chunk that wait for each other."""
_WINDOW = 2
"""The fewest lanes of a chunk that changes memory which others change before and after it."""
_BLOCKS, _MANY = 4, 64
"""Blocks of the longest row that one processor computes, where there are so many rows."""
_STATE, _ELEMENT = 1 << 13, 4
"""Bytes that a chunk hands on from round to round, a part of the first cache, and about those of an element."""


@dataclass(frozen=True)
class Chunks:
    """A function that computes a chunk.

    text, name  of the function
    lanes       of a chunk
    span        elements of a block
    count       elements of all blocks, where the last block may have fewer; else 0
    row         elements of a row, or 0: chunks end where rows do; the function gets the row and the first place in it
    blocks      blocks of a chunk (the last chunk may have fewer): the function gets the first block
    run         elements of a run: chunks start with a run, and end with one or with a row
    """

    text: str
    name: str
    lanes: int
    span: int
    count: int
    row: int
    blocks: int = 1
    run: int = 1


def chunks_of(kernel: Kernel, segment: BlockRange, name: str, parameters: str) -> Chunks | None:
    """The function of a chunk of a segment's blocks; None for what chunks cannot follow."""
    body = walked_changes([s for s in segment.body if not isinstance(s, Aligned | Note)])
    elements = _elements(kernel, segment, body)
    if elements is None:
        return None
    constants = {p.name.text for p in kernel.tree.parameters if p.constant}
    in_order = is_ordered(kernel)
    if in_order and keeps_memory(kernel):
        return None
    cut = _short(
        elements, _cut(kernel, segment, elements, _WINDOW if in_order else LEAST, _WINDOW if in_order else 2 * LEAST)
    )
    if not (in_order or cut.row):
        cut = _along_edges(kernel, segment, elements) or cut
    for by, run in [] if in_order else _in_runs(kernel, segment, elements, cut):
        of_runs = run_lines(elements.items, by.values, run, by.lanes, constants, rest=by.row % run)
        if of_runs is not None:
            text = _function(name, parameters, by, of_runs)
            run = by.row if _has_whole_rows(segment, elements, by) else run
            return Chunks(text, name, by.lanes, elements.span, elements.count, by.row, run=run)
    together = 1 if in_order else _together(kernel, segment, elements, cut)
    if together > 1:
        lanes = together * elements.span
        whole = {_POSITION: Variable(0, lanes - 1, LANE)}
        cut = _Cut(lanes, 0, {name: substitute(value, whole) for name, value in elements.values.items()})
    try:
        if in_order or not cut.row:
            writer = _writer(kernel, cut.values, cut.lanes)
            writer.apart = in_order
            text = _function(name, parameters, cut, writer.lines_of(elements.items))
            if in_order and not (
                cut.lanes > 1 and any(are_apart(elements.items, constants, writer.full, lane) for lane in LANES)
            ):
                return None
        else:
            text = _by_bands(kernel, segment, elements, cut, name, parameters)
    except UnknownError:
        return None
    run = cut.row if _has_whole_rows(segment, elements, cut) else 1
    return Chunks(text, name, cut.lanes, elements.span, elements.count, cut.row, max(1, together), run)


def _by_bands(kernel: Kernel, segment: BlockRange, elements: _Elements, cut: _Cut, name: str, parameters: str) -> str:
    """The function of a chunk of a row, and before it one for each band of rows."""
    parts = parts_of_row(elements.items, cut.values, INSIDE, cut.row)
    rows = -(-_total(segment, elements) // cut.row)
    bands = bands_of(elements.items, cut.values, ROW, rows)
    if len(bands) == 1:
        return _by_parts(kernel, elements, cut, parts, name, parameters)
    names = ", ".join(p.name.text for p in kernel.tree.parameters)
    shared = next((number for number, band in enumerate(bands) if band.asks), None)
    texts, calls = [], []
    for number, band in enumerate(bands):
        function = f"{name}_band{shared if band.asks else number}"
        if not band.asks or number == shared:
            own = cut if band.asks else replace(cut, values=within(cut.values, ROW, band.low, band.high))
            own_parts = parts_of_row(elements.items, own.values, INSIDE, cut.row)
            texts.append(_by_parts(kernel, elements, own, own_parts, function, parameters))
        calls.append(f"if ({ROW} < {band.high}) return {function}(blockIdx, {ROW}, {FROM}, hlo_live, {names});")
    return "".join(texts) + _function(name, parameters, cut, calls)


def _by_parts(kernel: Kernel, elements: _Elements, cut: _Cut, parts: Sequence[Part], name: str, parameters: str) -> str:
    """The function of a chunk, and before it one for what each part of a row has of the chunk."""
    vector = vector_lanes(elements.items, kernel.tree.parameters)
    is_even = not vector or cut.lanes < cut.row or cut.row < 2 * vector or cut.row % vector == 0
    if len(parts) == 1 and is_even:
        return _function(name, parameters, cut, _writer(kernel, cut.values, cut.lanes).lines_of(elements.items))
    names = ", ".join(p.name.text for p in kernel.tree.parameters)
    texts, calls = [], []
    shared = next((number for number, part in enumerate(parts) if part.asks), None)
    for number, part in enumerate(parts):
        low, high = part.low, part.high
        function = shared if part.asks else number
        if function == number:
            values = cut.values if part.asks else within(cut.values, INSIDE, low, high)
            lanes = max(p.lanes for p in parts if p.asks) if part.asks else part.lanes
            lines = _writer(kernel, values, min(cut.lanes, lanes)).lines_of(elements.items)
            texts.append(_function(f"{name}_{number}", parameters, cut, lines))
        calls += [
            f"{{ const long long hlo_low = {FROM} > {low} ? {FROM} : {low}, hlo_high = {FROM} + hlo_live < {high} ? "
            f"{FROM} + hlo_live : {high};",
            *_called(f"{name}_{function}", names, vector if 2 * vector <= part.lanes else 0),
            "}",
        ]
    return "".join(texts) + _function(name, parameters, cut, calls)


def _writer(kernel: Kernel, values: _Values, lanes: int) -> ChunkWriter:
    """The writer of a chunk of a kernel."""
    writer = ChunkWriter(values, lanes, {p.name.text for p in kernel.tree.parameters if p.constant})
    writer.kinds = {p.name.text: p.kind for p in kernel.tree.parameters}
    writer.alone = {p.name for p in kernel.tree.parameters if p.alone and not p.constant} - _read_in(kernel.tree.body)
    return writer


def _read_in(statements: Sequence[Statement]) -> set[Name]:
    """Arrays of which elements are read, or asked for where they lie."""
    found = set[Name]()
    for statement in walk(statements):
        for number, piece in ((n, p) for n, c in enumerate(codes_of(statement)) for p in c.parts()):
            cell = piece.of if isinstance(piece, Address) else piece
            is_target = isinstance(statement, Assign) and not number and piece in statement.target.pieces
            if isinstance(cell, Cell) and not is_target:
                found.add(cell.array)
    return found


def _called(function: str, names: str, vector: int) -> list[str]:
    """Calls for the lanes from `hlo_low` to before `hlo_high`. Where `vector` lanes may run twice, what is left of
    whole vectors runs as a last vector of its own, of which the first lanes have run before: one by one, a few take as
    long as many vectors. Each call says how many lanes there are: for a number that they do not know, compilers run a
    single vector's lanes one by one, too."""

    def call(first: str, lanes: str) -> str:
        return f"{function}(blockIdx, {ROW}, {first}, {lanes}, {names});"

    if not vector:
        return [f"if (hlo_low < hlo_high) {call('hlo_low', 'hlo_high - hlo_low')}"]
    return [
        f"const long long hlo_whole = (hlo_high - hlo_low) / {vector} * {vector};",
        "if (hlo_low < hlo_high && hlo_whole) {",
        call("hlo_low", "hlo_whole"),
        f"if (hlo_whole < hlo_high - hlo_low) {call(f'hlo_high - {vector}', str(vector))}",
        f"}} else for (long long hlo_one = hlo_low; hlo_one < hlo_high; ++hlo_one) {call('hlo_one', '1')}",
    ]


def _longest_row(segment: BlockRange, elements: _Elements, row: int) -> int:
    """Elements of the longest row that one processor computes, of rows of `row` elements."""
    return elements.span if _total(segment, elements) < _MANY * row else _BLOCKS * elements.span


def _row_lanes(elements: _Elements, segment: BlockRange, row: int) -> int:
    """Lanes of a chunk that is a part of a row: all of those of a row that one processor computes."""
    return min(row, max(_MOST, _longest_row(segment, elements, row)))


def _has_whole_rows(segment: BlockRange, elements: _Elements, cut: _Cut) -> bool:
    """Whether chunks are rows, and so short or so many that blocks may have more or fewer of them."""
    is_short = 0 < cut.row == cut.lanes <= _longest_row(segment, elements, cut.row)
    return is_short and _total(segment, elements) % cut.row == 0


def _total(segment: BlockRange, elements: _Elements) -> int:
    """The elements of all blocks."""
    return elements.count or (segment.last - segment.first) * elements.span


def _function(name: str, parameters: str, cut: _Cut, lines: Sequence[str]) -> str:
    places = f"const long long {ROW}, const long long {FROM}" if cut.row else f"const long long {CHUNK}"
    head = f"const hlo::Index blockIdx, {places}, const long long hlo_live, {parameters}"
    return "\n".join([f"__global__ void {name}({head}) {{", *lines, "}"]) + "\n"


_POSITION = "hlo_position"
_Values = dict[str, Expression]


@dataclass(frozen=True)
class _Elements:
    """Elements of a block and of all blocks (0 where each is whole), what index variables stand for in terms of the
    position in a block, and what is done for each element."""

    span: int
    count: int
    values: _Values
    items: list[Statement]


def _elements(kernel: Kernel, segment: BlockRange, body: Sequence[Statement]) -> _Elements | None:
    """The elements of a segment. Neighbours that a thread takes are elements by themselves where nothing else is done
    but declarations."""
    leaving = [s for s in body if isinstance(s, Leave)]
    items: list[Statement] = [s for s in body if not isinstance(s, Leave)]
    if len(leaving) > 1 or not items or any(isinstance(s, Leave) for i in items for s in walk([i])):
        return None
    count, block = 0, kernel.launch.block
    if leaving:
        beyond = leaving[0].condition.says
        known = _declared(body)
        if len(beyond) != 1 or substitute(beyond[0].expression, known) != _number(kernel, segment):
            return None
        count = beyond[0].low
    *before, group = items
    alone = isinstance(group, Neighbours) and not group.bits and not filled(group)
    if alone and isinstance(group, Neighbours) and all(isinstance(s, Let) and s.constant for s in before):
        own = Variable(0, block * group.size - 1, _POSITION)
        values = {THREAD.text: divide(own, group.size), group.number.text: modulo(own, group.size)}
        return _Elements(block * group.size, count * group.size, values, items)
    return _Elements(block, count, {THREAD.text: Variable(0, block - 1, _POSITION)}, items)


def _declared(body: Sequence[Statement]) -> _Values:
    """What the index variables stand for that are declared before anybody leaves."""
    known: _Values = {}
    for let in itertools.takewhile(lambda s: not isinstance(s, Leave), body):
        if isinstance(let, Let) and let.expression is not None:
            known[let.name.text] = substitute(let.expression, known)
    return known


def _number(kernel: Kernel, segment: BlockRange) -> Expression:
    """The number of a thread among those of all blocks of a segment."""
    before = multiply(
        add(Variable(segment.first, segment.last - 1, BLOCK.text), constant(-segment.first)), kernel.launch.block
    )
    return add(before, Variable(0, kernel.launch.block - 1, THREAD.text))


@dataclass(frozen=True)
class _Cut:
    """How elements are cut into chunks: the most lanes, the elements of a row where chunks end with rows (else 0), and
    what index variables stand for."""

    lanes: int
    row: int
    values: _Values


def _cut(kernel: Kernel, segment: BlockRange, elements: _Elements, fewest: int, shortest: int) -> _Cut:
    """The cut that leaves the fewest digits that differ from lane to lane, of chunks that have `fewest` lanes at least,
    or are parts of rows of `shortest` elements or more."""
    lets = used_in(elements.items)
    differing = partial(differing_digits, lets)
    first = best = _Cut(elements.span, 0, _even(elements, elements.span))
    least = differing(first.values)
    lanes = elements.span
    while least and lanes % 2 == 0 and lanes // 2 >= fewest:
        lanes //= 2
        values = _even(elements, lanes)
        left = differing(values)
        if len(left) < len(least):
            best, least = _Cut(lanes, 0, values), left
    rows = {d.divisor for d in differing(first.values) if d.divisor >= shortest}
    if rows and _is_flat(kernel, segment, elements.items):
        row = min(rows)
        values = _by_rows(elements, segment, row)
        left = differing(values)
        is_longer = best.lanes < _FEW <= row and row >= 4 * best.lanes and len(left) == len(least)
        if len(left) < len(least) or is_longer:
            return _Cut(_row_lanes(elements, segment, row), row, values)
    return best


def _along_edges(kernel: Kernel, segment: BlockRange, elements: _Elements) -> _Cut | None:
    """The cut into rows of which only the ends differ, where blocks are parts of rows; None where there are none. In
    such a block each lane would have to ask whether it is at an end."""
    if any(isinstance(s, For | Break) for s in walk(elements.items)) or not _is_flat(kernel, segment, elements.items):
        return None
    total = _total(segment, elements)
    digits = differing_digits(used_in(elements.items), _by_rows(elements, segment, total))
    for row in sorted({d.divisor for d in digits if d.divisor >= SHORTEST and total % d.divisor == 0}):
        cut = _Cut(_row_lanes(elements, segment, row), row, _by_rows(elements, segment, row))
        if len(parts_of_row(elements.items, cut.values, INSIDE, row)) > 1:
            return cut
    return None


def _in_runs(kernel: Kernel, segment: BlockRange, elements: _Elements, cut: _Cut) -> list[tuple[_Cut, int]]:
    """Cuts of chunks in runs, with the runs' length, that leave fewer digits that differ from lane to lane than `cut`
    does, those that leave the fewest first."""
    lets = used_in(elements.items)
    digits = differing_digits(lets, cut.values)
    total = _total(segment, elements)
    flat = _by_rows(elements, segment, total) if _is_flat(kernel, segment, elements.items) else None
    sizes = set() if flat is None else {d.divisor for d in differing_digits(lets, flat)}
    ranked: list[tuple[int, _Cut, int]] = []
    for run in sorted({d.divisor for d in digits if d.divisor <= RUN}):
        cuts = [] if cut.row else [cut, _Cut(elements.span, 0, _even(elements, elements.span))]
        most = _MOST // run * run
        rows = {size * times for size in sizes for times in (1, run)}
        rows.add(run * min(total // run & -(total // run), _RUNS))  # where elements know no rows
        long = sorted(row for row in rows if row >= run * FEWEST)
        cuts += [_Cut(min(row, most), row, _by_rows(elements, segment, row)) for row in long]
        for one in cuts:
            is_whole = total % one.row == 0 if one.row else total % run == one.lanes % run == 0
            if is_whole and one.lanes >= run * FEWEST:
                left = differing_digits(lets, in_runs(one.values, run, 0))
                ranked.append((len(left), one, run))
    return [(one, run) for left, one, run in sorted(ranked, key=lambda f: f[0]) if left < len(digits)]


def _short(elements: _Elements, cut: _Cut) -> _Cut:
    """The cut, in shorter chunks where lanes end by themselves: each waits for the last one of its chunk."""
    lanes = cut.lanes
    while lanes > _WAITING and lanes % 2 == 0:
        lanes //= 2
    ends = any(isinstance(s, Break) and s.stays for s in walk(elements.items))
    return _Cut(lanes, 0, _even(elements, lanes)) if ends and not cut.row and lanes < cut.lanes else cut


def _together(kernel: Kernel, segment: BlockRange, elements: _Elements, cut: _Cut) -> int:
    """How many blocks are best a chunk: one, but for a loop that hands on what lanes have. It goes over memory in steps
    of a row, and through a chunk in each: long chunks are read as streams, and what they hand on stays in the first
    cache."""
    if cut.lanes != elements.span or cut.row or not any(isinstance(s, For) and s.carries for s in elements.items):
        return 1
    if not _is_flat(kernel, segment, elements.items):
        return 1
    state = sum(isinstance(s, Let) and not s.constant and not s.alike for s in elements.items)
    return min(max(1, _STATE // max(1, _ELEMENT * state * elements.span)), segment.last - segment.first)


def _even(elements: _Elements, lanes: int) -> _Values:
    """Values where a block is divided into chunks of `lanes` lanes."""
    position: Expression = Variable(0, lanes - 1, LANE)
    if elements.span > lanes:
        position = add(multiply(Variable(0, elements.span // lanes - 1, CHUNK), lanes), position)
    return {name: substitute(value, {_POSITION: position}) for name, value in elements.values.items()}


def _by_rows(elements: _Elements, segment: BlockRange, row: int) -> _Values:
    """Values where a chunk is a part of a row: the position is that among the elements of all blocks, as if there were
    only the first."""
    total = _total(segment, elements)
    rows = -(-total // row)
    position: Expression = Variable(0, row - 1, INSIDE)
    if rows > 1:
        position = add(multiply(Variable(0, rows - 1, ROW), row), position)
    stretched = {_POSITION: position}
    values = {name: substitute(value, stretched) for name, value in elements.values.items()}
    return {**values, BLOCK.text: constant(segment.first)}


def _is_flat(kernel: Kernel, segment: BlockRange, items: Sequence[Statement]) -> bool:
    """Whether blocks and threads are mentioned only as the number of a thread among those of all blocks."""
    own = _number(kernel, segment)
    for statement in walk(items):
        is_number = isinstance(statement, Let) and statement.is_index and statement.expression is not None
        if is_number and isinstance(statement, Let) and statement.expression is not None:
            mentioned = variables_of(statement.expression)
            if not mentioned.isdisjoint({BLOCK.text, THREAD.text}) and statement.expression != own:
                return False
        elif any(name.text in (BLOCK.text, THREAD.text) for e in codes_of(statement) for name in e.names()):
            return False
    return True
