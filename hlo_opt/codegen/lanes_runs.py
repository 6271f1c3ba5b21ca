"""Chunks in runs of a few elements: `jnp.repeat`, a nearest resize, an interleaved array. A lane is a run there, so
that the place in it is known for each of its elements, and what follows from the run is computed once. Lanes of single
elements would divide by the run's length, and gather."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence

from hlo_opt.codegen.lanes_chunk_text import FROM, INSIDE, LANE, LANES, WIDE, ChunkWriter, UnknownError
from hlo_opt.codegen.lanes_common import Common
from hlo_opt.codegen.lanes_folds import place_of, stride
from hlo_opt.codegen.lanes_nodes import Stretch
from hlo_opt.codegen.lanes_places import Found, found_first
from hlo_opt.codegen.lanes_sides import by_side, predicates_of, settled
from hlo_opt.codegen.lanes_text import digits_in, has_conditions, variables_in
from hlo_opt.codegen.lanes_turned import by_elements, copies
from hlo_opt.codegen.tree import Assign, Block, Let, Neighbours, Statement, codes_of, names_in, walk
from hlo_opt.ir.index_map import (
    Condition,
    Expression,
    Quotient,
    Remainder,
    Variable,
    add,
    constant,
    multiply,
    substitute,
    variables_of,
)
from hlo_opt.ops.code import Cell, CodePiece, Name, PackedElement

MOST = 8
"""Elements of the longest run."""
FEWEST = 8
"""Runs of a chunk that is worth it."""
_SIDE = "hlo_side"
"""A predicate that is the same for all lanes."""
_DEEP = 3
"""Conditions within each other of which compilers make slow vector code: runs then go one after another."""
_LINES = 1500
"""Lines of all elements of a run, of which compilers make vector code in good time."""


def used_in(items: Sequence[Statement]) -> list[tuple[Let, bool]]:
    """The index variables whose expressions are known, and whether anything else mentions them."""
    lets, others, arrays = list[Let](), set[str](), set[Name]()
    for statement in walk(items):
        if isinstance(statement, Neighbours):
            arrays |= {array.name for array in statement.arrays}
        if isinstance(statement, Let) and statement.is_index and statement.expression is not None:
            lets.append(statement)
        else:
            others |= {name.text for expression in codes_of(statement) for name in expression.names()}
    return [(let, let.name.text in others) for let in lets]


def differing_digits(lets: Sequence[tuple[Let, bool]], values: Mapping[str, Expression]) -> list[Quotient | Remainder]:
    """The digits that differ from lane to lane."""
    full, digits = dict(values), list[Quotient | Remainder]()
    for let, is_used in lets:
        assert let.expression is not None
        full[let.name.text] = value = substitute(let.expression, full)
        digits += [d for d in digits_in(value) if is_used and not LANES.isdisjoint(variables_of(d))]
    return digits


def in_runs(values: Mapping[str, Expression], run: int, number: int) -> dict[str, Expression]:
    """Values where the lane is a run, of the element with that number in it."""
    return {name: substitute(value, _places(value, run, number)) for name, value in values.items()}


def _places(value: Expression, run: int, number: int) -> dict[str, Expression]:
    """What the lane, or its place in a row, stands for."""
    by_name = {v.name: v for v in variables_in(value) if v.name in (LANE, INSIDE)}
    return {
        name: add(multiply(Variable(v.low // run, (v.high - number) // run, name), run), constant(number))
        for name, v in by_name.items()
    }


def runs_of(items: Sequence[Statement], values: Mapping[str, Expression], first: int, end: int) -> list[int]:
    """Lengths of runs from the first lane to the end that leave fewer digits that differ from run to run than single
    elements do, those that leave the fewest first."""
    lets = used_in(items)
    digits = differing_digits(lets, values)
    runs = {d.divisor for d in digits if d.divisor <= MOST}
    fitting = [r for r in sorted(runs) if first % r == end % r == 0 and end - first >= r * FEWEST]
    left = {run: len(differing_digits(lets, in_runs(values, run, 0))) for run in fitting}
    return sorted((run for run in fitting if left[run] < len(digits)), key=left.__getitem__)


def run_lines(
    items: Sequence[Statement],
    values: Mapping[str, Expression],
    run: int,
    lanes: int,
    constants: set[str],
    alike: Collection[str] = (),
    bounds: tuple[int, int] | None = None,
    rest: int = 0,
) -> list[str] | None:
    """The lines of a chunk, or of the lanes between `bounds`; None where the statements are not a single stretch for
    every element, or more than one may read a neighbour of what another reads, both under conditions that do not go
    deep. `alike` are further variables that are the same for all lanes; `rest` is how many elements of a row are no
    whole run.

    Of reads of neighbours under conditions, GCC 12 and 13 make masked loads of several vectors at once, and mask all of
    them as they have to mask the first: lanes get 0 in place of what they should have read.
    """
    deep = _depth(items) >= _DEEP
    befores, by_rows, masked, size = list[list[str]](), False, 0, 0
    writers, lasts, by_condition = list[ChunkWriter](), list[Stretch](), dict[tuple[Condition, ...], Name]()
    for number in range(run):
        writer = ChunkWriter(in_runs(values, run, number), lanes // run, constants)
        writer.uniform |= set(alike)
        writer.sides, writer.size = by_condition, run * sum(1 for _ in walk(items))
        try:
            nodes = [n for n in writer.sequence(items) if not isinstance(n, Stretch) or n.items]
        except UnknownError:
            return None
        *same, last = nodes
        if not isinstance(last, Stretch) or last.is_closed or not all(isinstance(n, str) for n in same):
            return None
        size += sum(1 for s in walk(last.items) if isinstance(s, Assign) or (isinstance(s, Let) and not s.is_index))
        if size > _LINES:  # each is a line at least
            return None
        by_rows = writer.by_rows
        befores.append([n for n in same if isinstance(n, str)])
        writers.append(writer)
        lasts.append(last)
        masked += masked < 2 and _masks_neighbours(writer, last.items, by_condition.values())  # two say it
        if masked > 1 and not deep:
            return None
    common = Common(writers, alike)
    holding = {name for conditions, name in by_condition.items() if _are_common(conditions, common)}
    if len(holding) < len(by_condition):  # there is no loop for each side of the others: they are conditions in one
        masked = sum(_masks_neighbours(w, last.items, holding) for w, last in zip(writers, lasts, strict=True))
        if masked > 1 and not deep:
            return None
    copied = list[str]()
    if bounds is None and not rest:
        copied, is_all = copies(common, [last.items for last in lasts], lanes)
        if is_all:
            return copied
        flat = by_elements(items, ChunkWriter(dict(values), lanes, constants), writers, copied) if copied else None
        if flat is not None:
            return flat
    found = None
    if bounds is None and not rest and _copies_anywhere(items):
        found = _found_first(common, lasts)
    if found is not None:
        lasts = [Stretch(one.copying) for one in found[1]]
    bodies = [list(writer.body(last)) for writer, last in zip(writers, lasts, strict=True)]
    lines = sum(map(len, (*befores, *bodies)))
    if lines > _LINES:
        return None
    place = [f"const {WIDE} {INSIDE} = {FROM} / {run} + {LANE};"] * by_rows
    first, end = (0, f"hlo_live / {run}") if bounds is None else (bounds[0] // run, bounds[1] // run)
    head = f"for (int {LANE} = {first}; {LANE} < {end}; ++{LANE}) {{"
    if bounds is not None and has_conditions(items):
        head = f"for (int {LANE} = hlo::hidden({first}); {LANE} < {end}; ++{LANE}) {{"
    pragma = [] if _copies_anywhere(items) or masked > 1 else ["#pragma omp simd"]
    uniform = {name for writer in writers for name in writer.uniform}
    predicates = predicates_of([s for last in lasts for s in last.items], uniform, lines)
    sides = {p: f"{_SIDE}{k}" for k, p in enumerate(predicates) if Name(p) in holding or common.has(p)}
    chosen = list[str]()
    for predicate, side in sides.items():
        before = next(same for writer, same in zip(writers, befores, strict=True) if predicate in writer.uniform)
        chosen.append(f"const bool {side} = [&] {{ {' '.join(before)} return {predicate}; }}();")
    known = ["{", *(f"const bool {name} = {side};" for name, side in sides.items())]
    texts = [["{", *same, *known, *body, "}", "}"] for same, body in zip(befores, bodies, strict=True)]
    if found is not None:
        copied += [f"int {name}[{lanes // run}];" for name in found[1][0].arrays]
        copied += ["#pragma omp simd", head, *place, *befores[0], *found[0], "}"]
    loop = [*copied, *pragma, head, *["hlo::in_turn();"] * (masked > 1), *place, *itertools.chain(*texts), "}"]
    whole = [*chosen, *by_side(list(sides.values()), loop)]
    if not rest:
        return whole
    behind = [f"if (hlo_live % {run}) {{", f"const int {LANE} = hlo_live / {run};", *place]
    for number in range(rest):
        behind += [f"if (hlo_live % {run} > {number})", *texts[number]]
    return [*whole, *behind, "}"]


def _found_first(common: Common, lasts: Sequence[Stretch]) -> tuple[list[str], list[Found]] | None:
    """The lines that find places for a run, and what is left for each of its elements; None where these have places of
    their own."""
    writers = common.writers
    found = [found_first(last.items, Name(LANE), w.constants) for w, last in zip(writers, lasts, strict=True)]
    if any(one is None for one in found):
        return None
    known = [one for one in found if one is not None]
    if not common.has_all({name.text for one in known for name in names_in(one.finding)} & writers[0].uniform):
        return None
    lines = [list(writer.body(Stretch(one.finding))) for writer, one in zip(writers, known, strict=True)]
    return (lines[0], known) if all(one == lines[0] for one in lines) else None


def _are_common(conditions: Sequence[Condition], common: Common) -> bool:
    """Whether conditions say the same of all elements of a run."""
    return all(common.has_all(variables_of(c.expression)) for c in conditions)


def _masks_neighbours(writer: ChunkWriter, items: Sequence[Statement], sides: Collection[Name]) -> bool:
    """Whether statements that were written may read memory under a condition that is none of `sides`, and leave
    elements out between two lanes: what another element of the run reads lies there."""
    seen = set[int]()
    for block in walk(items):
        if not isinstance(block, Block) or not block.condition.pieces or id(block) in seen:
            continue
        if settled(block.condition, writer.full) is not None or block.condition.name in sides:
            continue
        for s in walk([*block.body, *block.otherwise]):  # conditions in it say nothing new
            seen.add(id(s))
            if any(_skips_lanes(p, writer) for c in codes_of(s) for p in c.parts()):
                return True
    return False


def _skips_lanes(piece: CodePiece, writer: ChunkWriter) -> bool:
    """Whether lanes read by it what does not lie side by side."""
    if not isinstance(piece, Cell) or piece.array in writer.scalars:
        return isinstance(piece, PackedElement)
    place = place_of(piece, writer.full)
    return place is None or any(stride(substitute(place, writer.full), lane) not in (0, 1) for lane in LANES)


def _copies_anywhere(items: Sequence[Statement]) -> bool:
    """Whether runs read places that depend on data, and call no functions of what is there. Each is then read from one
    place; vectors of runs would gather every element, and scatter it."""
    every = list(walk(items))
    places = [k for k, s in enumerate(every) if isinstance(s, Let) and s.is_index and s.expression is None]
    return bool(places) and not any(True for s in every[places[-1] :] for c in codes_of(s) for _ in c.functions())


def _depth(items: Sequence[Statement]) -> int:
    """How many conditions stand within each other, at most."""
    inner = ((bool(s.condition.pieces), [*s.body, *s.otherwise]) for s in items if isinstance(s, Block))
    return max((is_one + _depth(body) for is_one, body in inner), default=0)
