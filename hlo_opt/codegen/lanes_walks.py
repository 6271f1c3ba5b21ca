"""Walks of a block over the elements of an array, of which no thread needs anything of another or of what it has found
before: loops over rows and, in these, over the elements of a row.

Where operations read beside an edge (a stencil, a pad), conditions on the place say so. Rows, and the elements of a
row, are cut there, so that in each part a condition holds for all or for none: of what is selected by a condition
compilers make masked vector code at best.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hlo_opt.codegen.kernel import Pointer
from hlo_opt.codegen.lanes_alive import numbers_of
from hlo_opt.codegen.lanes_chunk_text import LANE, ROW, ChunkWriter, UnknownError
from hlo_opt.codegen.lanes_parts import vector_lanes
from hlo_opt.codegen.lanes_runs import run_lines, runs_of
from hlo_opt.codegen.lanes_text import digits_in
from hlo_opt.codegen.statements import THREAD
from hlo_opt.codegen.tree import Assign, Block, For, Let, Note, Statement, StrideLoop, codes_of, names_in, walk
from hlo_opt.ir.index_map import Expression, Variable, add, constant, multiply, substitute
from hlo_opt.ops.code import Cell, Name

LEAST, MOST = 8, 1 << 12
"""Elements of a row that is worth a loop, and of one whose lanes may have arrays."""
LEAST_OF_FOLDS = 4
"""Elements of a row that is worth a loop where each is a fold: rows side by side would gather the terms."""
PARTS = 9
"""Most parts of an array: each has the statements once more."""
VECTORS = 16
"""Vectors of a part of a row of which what is left over is worth a vector of its own."""
LONGEST = 1 << 20
"""Rows, or elements of a row, for each of which a condition is worked out."""


def walk_lines(item: StrideLoop, known: Collection[str], kinds: Mapping[str, str]) -> list[str] | None:
    """The lines of a walk of a block whose threads begin with the elements that have their numbers. `known` are
    variables that are the same for all threads, `kinds` the C++ types of elements of arrays. None where it is something
    else."""
    body = [s for s in item.body if not isinstance(s, Note)]
    if item.start != Variable(0, item.stride - 1, THREAD.text):
        return None
    if any(not isinstance(s, Let | Assign | Block | For | Note) for s in walk(body)):
        return None
    declared = {s.name.text for s in walk(body) if isinstance(s, Let | For) and s.name is not None}
    cells = {p.array.text for s in walk(body) for c in codes_of(s) for p in c.parts() if isinstance(p, Cell)}
    if not {name.text for name in names_in(body)} <= {*declared, *cells, *known, item.name.text}:
        return None
    written = [_array(s) for s in walk(body) if isinstance(s, Assign)]
    array = _Array.of(item, body)
    if array is None:
        return None
    constants = cells - {name.text for name in written if name is not None}
    pointers = [Pointer(kinds.get(name, ""), Name(name), constant=name in constants) for name in sorted(cells)]
    vector = vector_lanes(body, pointers)
    lines = []
    try:
        for rows in itertools.pairwise(array.rows):
            lines.append(f"for (long long {ROW} = {rows[0]}; {ROW} < {rows[1]}; ++{ROW}) {{")
            for first, end in itertools.pairwise(array.lanes):

                def values_of(first: int, end: int, rows: tuple[int, int] = rows) -> dict[str, Expression]:
                    return {item.name.text: array.place(*rows, first, end)}

                part = _in_runs(body, values_of(first, end), array.row, constants, known, (first, end))
                if part is not None:
                    lines += ["{", *part, "}"]
                    continue
                for bounds in _in_vectors(first, end, vector):
                    writer = ChunkWriter(values_of(*bounds), array.row, constants, *bounds)
                    writer.uniform |= set(known)
                    lines += ["{", *writer.lines_of(body), "}"]
            lines.append("}")
    except UnknownError:
        return None
    return lines


def _in_runs(
    body: Sequence[Statement],
    values: dict[str, Expression],
    row: int,
    constants: set[str],
    known: Collection[str],
    bounds: tuple[int, int],
) -> list[str] | None:
    """The lines of a part of a row in runs; None where it has none."""
    each = (run_lines(body, values, run, row, constants, known, bounds) for run in runs_of(body, values, *bounds))
    return next((lines for lines in each if lines is not None), None)


def _in_vectors(first: int, end: int, vector: int) -> list[tuple[int, int]]:
    """The lanes of a part as whole vectors and a last one that ends with the part, of which the first lanes have run
    before: what is left over compilers run in ever shorter vectors, and then lane by lane. `vector` lanes are a longest
    vector, 0 where no lane may run twice; a shorter part has vectors of half as many. A rest that is one shorter vector
    stays."""
    lanes = end - first
    if lanes < vector:
        vector //= 2
    rest = lanes % vector if vector <= lanes <= VECTORS * vector and vector else 0
    if rest & (rest - 1) == 0:
        return [(first, end)]
    return [(first, first + lanes // vector * vector), (end - vector, end)]


def _array(assign: Assign) -> Name | None:
    """The array that an assignment changes."""
    return next((p.array for p in assign.target.pieces if isinstance(p, Cell)), None)


@dataclass(frozen=True)
class _Array:
    """An array in rows: elements of a row, and where rows and their elements are cut, both ends included."""

    row: int
    rows: Sequence[int]
    lanes: Sequence[int]

    def place(self, first_row: int, end_row: int, first: int, end: int) -> Expression:
        """The place of an element of a part."""
        number = (
            add(Variable(first_row, end_row - 1, ROW), constant(0)) if end_row - first_row > 1 else constant(first_row)
        )
        return add(multiply(number, self.row), Variable(first, end - 1, LANE) if end - first > 1 else constant(first))

    @classmethod
    def of(cls, item: StrideLoop, body: Sequence[Statement]) -> _Array | None:
        """None for one that has no rows."""
        place = Variable(0, item.end - 1, item.name.text)
        divisors = {d.divisor for e in _indices(body) for d in digits_in(e) if d.left == place}
        least = LEAST_OF_FOLDS if any(isinstance(s, For) for s in walk(body)) else LEAST
        row = min((d for d in divisors if d >= least), default=item.end)
        while row > MOST and row % 2 == 0 and not divisors:
            row //= 2
        if item.end % row or row > MOST:
            return None
        whole = cls(row, (0, item.end // row), (0, row))
        rows, lanes = whole._cuts(item, body)
        few = (len(rows) - 1) * (len(lanes) - 1) <= PARTS
        return cls(row, rows if few else whole.rows, lanes if len(lanes) - 1 <= PARTS else whole.lanes)

    def _cuts(self, item: StrideLoop, body: Sequence[Statement]) -> tuple[list[int], list[int]]:
        """Where conditions on the place change."""
        row, lane = Variable(0, self.rows[-1] - 1, ROW), Variable(0, self.row - 1, LANE)
        values = {item.name.text: self.place(*self.rows, *self.lanes)}
        cuts = {ROW: {*self.rows}, LANE: {*self.lanes}}
        for statement in walk(body):
            if isinstance(statement, Let) and statement.is_index and statement.expression is not None:
                values[statement.name.text] = substitute(statement.expression, values)
            if isinstance(statement, Block):
                for condition in statement.condition.says:
                    at = substitute(condition.expression, values)
                    for variable, size in ((row, self.rows[-1]), (lane, self.row)):
                        numbers = numbers_of(at, variable.name, size) if size <= LONGEST else None
                        if numbers is None:
                            continue
                        holds = (condition.low <= numbers) & (numbers <= condition.high)
                        edges = np.flatnonzero(holds[1:] != holds[:-1]) + 1
                        cuts[variable.name].update(edges.tolist() if len(edges) < PARTS else [])
        return sorted(cuts[ROW]), sorted(cuts[LANE])


def _indices(body: Sequence[Statement]) -> Iterator[Expression]:
    """The expressions that indices and conditions are built from."""
    for statement in walk(body):
        if isinstance(statement, Let) and statement.is_index and statement.expression is not None:
            yield statement.expression
        if isinstance(statement, Block):
            yield from (c.expression for c in statement.condition.says)
