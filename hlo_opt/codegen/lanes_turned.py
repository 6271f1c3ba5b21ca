"""Runs that lie the other way round in memory: an image of three colours that is turned around. Compilers read these
element by element. Here they are copied first, run by run, so that lanes read them one after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hlo_opt.codegen.lanes_apart import Place
from hlo_opt.codegen.lanes_chunk_text import FROM, INSIDE, LANE, LANES, WIDE, ChunkWriter, UnknownError
from hlo_opt.codegen.lanes_common import Common
from hlo_opt.codegen.lanes_folds import place_of
from hlo_opt.codegen.lanes_nodes import Stretch
from hlo_opt.codegen.lanes_sides import by_side, predicates_of
from hlo_opt.codegen.lanes_text import digits_in, variables_in
from hlo_opt.codegen.tree import Assign, Let, Note, Statement, codes_of
from hlo_opt.ir.index_map import Expression, Variable, add, constant, substitute, variables_of
from hlo_opt.ops.code import Cell, Code, CodePiece, Name

_FIRST = "hlo_first"


@dataclass
class _Runs:
    """What lanes read of an array: for each read the place of its element from the same one on, the writer of the run's
    element that it belongs to, and the place as an expression."""

    array: Name
    reads: list[tuple[int, ChunkWriter, Cell, Expression]] = field(default_factory=list)

    def first(self, run: int) -> tuple[int, str] | None:
        """The least place, and the text of that of the first lane; None where single elements of runs are read: those
        beside them may lie outside of the array."""
        low, writer, _, place = min(self.reads, key=lambda read: read[0])
        return (low, _text_of(place, writer)) if max(read[0] for read in self.reads) - low == run - 1 else None


def copies(common: Common, stretches: Sequence[Sequence[Statement]], lanes: int) -> tuple[list[str], bool]:
    """The lines that copy runs, for stretches with a writer for each element of a run, of which the writers then read
    the copies, and whether that is all there is to do; `lanes` is the most elements. No lines where a statement may not
    be reached."""
    writers = common.writers
    run = len(writers)
    if any(not isinstance(s, Let | Assign | Note) for items in stretches for s in items):
        return [], False
    lines = list[str]()
    for number, runs in enumerate(_turned(common, stretches)):
        if (known := runs.first(run)) is None:
            continue
        low, at = known
        name, source = _name(number), f"{runs.array.text} + ({at})"
        offsets = {(writer, cell): offset - low for offset, writer, cell, _ in runs.reads}
        if (to := _result(common, stretches, offsets)) is not None:
            return [*_first_line(writers[0], run), f"hlo::turned<{run}>({to}, {source}, hlo_live / {run});"], True
        lines.append(f"decltype(hlo::own({runs.array.text}[0])) {name}[{lanes}];")
        lines.append(f"hlo::turned<{run}>({name}, {source}, hlo_live / {run});")
        for (writer, cell), offset in offsets.items():
            writer.copied[cell] = f"{name}[{LANE} * {run} + {offset}]"
    return [*_first_line(writers[0], run), *lines] if lines else [], False


def _first_line(writer: ChunkWriter, run: int) -> list[str]:
    """The declaration of the first lane's place in a row."""
    return [f"const {WIDE} {_FIRST} = {FROM} / {run};"] if writer.by_rows else []


def _text_of(place: Expression, writer: ChunkWriter) -> str:
    """A place of the first lane."""
    own = next((v for v in variables_in(place) if v.name == INSIDE), None)
    first = {LANE: constant(0)}
    return writer.index_text(
        substitute(place, {**first, INSIDE: add(Variable(own.low, own.high, _FIRST), constant(0))} if own else first)
    )


def _turned(common: Common, stretches: Sequence[Sequence[Statement]]) -> list[_Runs]:
    """The reads of constant arrays that go back by a run from lane to lane."""
    found = dict[object, _Runs]()
    for writer, items in zip(common.writers, stretches, strict=True):
        for cell in (p for s in items for c in codes_of(s) for p in c.parts() if isinstance(p, Cell)):
            known = _place(cell, writer, common) if cell.array.text in writer.constants else None
            if known is not None and cell.array not in writer.scalars and known[0].step == -len(common.writers):
                place, whole = known
                runs = found.setdefault((cell.array, frozenset(place.rest.items())), _Runs(cell.array))
                runs.reads.append((place.offset, writer, cell, whole))
    return list(found.values())


def _place(cell: Cell, writer: ChunkWriter, common: Common) -> tuple[Place, Expression] | None:
    """The place of an element, where only the lane differs from lane to lane, and only a number within the run."""
    lane = INSIDE if writer.by_rows else LANE
    place = place_of(cell, writer.full)
    if place is None:
        return None
    place = substitute(place, writer.full)
    parts = Place.of(place, lane)
    is_same = variables_of(place) <= {lane, *writer.uniform} and common.has_all(variables_of(place))
    return (parts, place) if parts is not None and is_same else None


def _result(
    common: Common,
    stretches: Sequence[Sequence[Statement]],
    offsets: Mapping[tuple[ChunkWriter, Cell], int],
) -> str | None:
    """Where the first run is written, where each element of a run is read, at these places in it, and written as the
    same element of a run, and nothing else is done."""
    found, kinds = set[tuple[object, int]](), set[str]()
    first = ""
    for writer, items in zip(common.writers, stretches, strict=True):
        known, targets = dict[Name, int](), list[tuple[Cell, int | None]]()
        for item in items:
            value = item.value if isinstance(item, Let | Assign) else None
            piece = value.pieces[0] if value is not None and len(value.pieces) == 1 else None
            of_run = known.get(piece) if isinstance(piece, Name) else None
            of_run = offsets.get((writer, piece)) if isinstance(piece, Cell) else of_run
            if isinstance(item, Let) and of_run is not None:
                known[item.name] = of_run
                kinds.add(item.kind)
            elif isinstance(item, Assign) and len(item.target.pieces) == 1 and isinstance(item.target.pieces[0], Cell):
                targets.append((item.target.pieces[0], of_run))
            elif not (isinstance(item, Let) and item.is_index):
                return None
        if len(targets) != 1:
            return None
        cell, of_run = targets[0]
        if of_run is None:
            return None
        place = _place(cell, writer, common)
        if place is None or place[0].step != len(common.writers) or cell.array in writer.scalars:
            return None
        found.add(((cell.array, frozenset(place[0].rest.items())), place[0].offset - of_run))
        if of_run == 0:
            first = f"{cell.array.text} + ({_text_of(place[1], writer)})"
    return first if len(found) == 1 >= len(kinds) and first else None


def by_elements(
    items: Sequence[Statement], flat: ChunkWriter, writers: Sequence[ChunkWriter], copied: Sequence[str]
) -> list[str] | None:
    """The lines of a chunk whose lanes are elements, not runs: of these compilers make shorter vector code. `copied`
    copy runs for the `writers` of a run's elements, `flat` is the writer of an element. None where anything else than
    the place of what is copied differs along a run."""
    if any(writer.copied.keys() != writers[0].copied.keys() for writer in writers):
        return None
    for cell in writers[0].copied:
        name = next((n for n in map(_name, range(len(copied))) if _is_in_order(n, cell, writers)), None)
        if name is None:
            return None
        flat.copied[cell] = f"{name}[{LANE}]"
    try:
        *same, last = [n for n in flat.sequence(items) if not isinstance(n, Stretch) or n.items]
    except UnknownError:
        return None
    before = [n for n in same if isinstance(n, str)]
    if len(before) < len(same) or not isinstance(last, Stretch) or last.is_closed:
        return None
    if not all(isinstance(s, Let | Assign | Note) for s in last.items):
        return None
    mentioned = {name.text for s in last.items for c in codes_of(s) for name in _names_of(c.pieces, flat)}
    digits = (d for name in mentioned & flat.wide for d in digits_in(flat.full[name]))
    if any(not LANES.isdisjoint(variables_of(digit)) for digit in digits):
        return None
    head = f"for (int {LANE} = 0; {LANE} < hlo_live; ++{LANE}) {{"
    place = [f"const {WIDE} {INSIDE} = {FROM} + {LANE};"] * flat.by_rows
    loop = [*copied, "#pragma omp simd", head, *place, *flat.body(last), "}"]
    return [*before, *by_side(predicates_of(last.items, flat.uniform, len(loop)), loop)]


def _name(number: int) -> str:
    """What copies are called."""
    return f"hlo_turned{number}"


def _is_in_order(name: str, cell: Cell, writers: Sequence[ChunkWriter]) -> bool:
    """Whether each element of a run reads its own place of the copies."""
    run = len(writers)
    return all(w.copied[cell] == f"{name}[{LANE} * {run} + {number}]" for number, w in enumerate(writers))


def _names_of(pieces: Iterable[CodePiece], writer: ChunkWriter) -> Iterator[Name]:
    """The names in pieces of an expression, but for those of the places of copies and of single elements."""
    for piece in pieces:
        if isinstance(piece, Name):
            yield piece
        elif isinstance(piece, Cell) and piece not in writer.copied and piece.array not in writer.scalars:
            yield from (inner for inner in piece.index.parts() if isinstance(inner, Name))
        elif not isinstance(piece, str | Cell):
            yield from (inner for inner in Code((piece,)).parts() if isinstance(inner, Name))
