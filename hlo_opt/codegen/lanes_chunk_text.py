"""What a chunk's lanes do, as text: a loop over lanes for each stretch of statements, and around these what is the same
for all lanes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

from hlo_opt.codegen.cuda import walked
from hlo_opt.codegen.index_text import digit_text, render
from hlo_opt.codegen.lanes_ahead import lines_ahead
from hlo_opt.codegen.lanes_columns import copies_of
from hlo_opt.codegen.lanes_eights import LANES as EIGHT
from hlo_opt.codegen.lanes_eights import Where, eight_lines
from hlo_opt.codegen.lanes_folds import goes_in_turn, has_own_elements, is_stream, loop_fills, row_read, sums_along
from hlo_opt.codegen.lanes_halves import Halves, first_of, read_of, rounded_of
from hlo_opt.codegen.lanes_inside import at_edges, holding
from hlo_opt.codegen.lanes_nodes import Around, Node, Stretch, cut, has_condition, names_of, turned
from hlo_opt.codegen.lanes_once import taken_out, without_values
from hlo_opt.codegen.lanes_sides import by_side, changed_in, has_room, is_simple, left_of, predicates_of, settled
from hlo_opt.codegen.lanes_text import NARROW, WIDER, ThreadText, clean, has_conditions, is_narrow
from hlo_opt.codegen.lanes_turns import FUNCTIONS, Turns
from hlo_opt.codegen.statements import BLOCK
from hlo_opt.codegen.tree import (
    Aligned,
    Assign,
    Block,
    Break,
    DeclaredArray,
    Do,
    For,
    Let,
    Neighbours,
    Note,
    Statement,
    StrideLoop,
    codes_of,
    walk,
)
from hlo_opt.ir.index_map import Condition, Expression, substitute, variables_of
from hlo_opt.ops.code import Address, Cell, Code, Function, Name, code, of, with_calls

WIDE = "long long"
CHUNK, LANE = "hlo_chunk", "hlo_lane"
ROW, FROM, INSIDE = "hlo_row", "hlo_from", "hlo_inside"
"""Variables of a chunk that is a part of a row: the row, the chunk's first place in it, and a lane's place."""
LANES = frozenset({LANE, INSIDE})
"""What differs from lane to lane."""
LEAST = 8
"""Lanes of the shortest chunk that is worth what is done once in it."""
_LONG = 64
"""Lanes of a chunk whose statements are worth to be cut."""
_APART = 32
"""More elements of arrays of lanes: elements of a lane that lie a power of two apart get in each other's way in the
first cache."""
_GOES = "hlo_goes"
"""Whether some lane needs another round."""


class UnknownError(Exception):
    """The kernel has something that chunks cannot follow."""


class ChunkWriter(ThreadText):
    """Writes statements of lanes from the number `first` up to `end`, or as many as are alive. `values` are what index
    variables stand for, `constants` arrays into which nobody writes meanwhile."""

    def __init__(
        self, values: dict[str, Expression], lanes: int, constants: set[str], first: int = 0, end: int | None = None
    ):
        super().__init__()
        self.lanes, self.constants = lanes, constants
        self.first, self.end = first, "hlo_live" if end is None else str(end)
        self.is_known = end is not None
        """Whether compilers see how many lanes there are, and so which have a condition."""
        self.by_rows = any(INSIDE in variables_of(value) for value in values.values())
        self.full = dict(values)
        """Index variables as expressions of the block, the chunk, the lane and loop counters."""
        self.wide: set[str] = set(values) - {BLOCK.text}
        """Index variables that differ from lane to lane."""
        self.uniform: set[str] = {BLOCK.text, CHUNK, ROW}
        self.declared_once: dict[str, Code] = {}  # what those that are no indices have, by name
        self.sides: dict[tuple[Condition, ...], Name] = {}
        """Variables that tell whether conditions hold that are the same for all lanes."""
        self.open_sides: set[Name] = set()  # those that are declared in open braces
        self.size, self.looping = 0, 0  # statements of the whole, and loops around those at hand
        self.alike: set[str] = set()  # variables that are the same for all lanes, and change
        self.floats: set[str] = set()  # variables that are f32 and the same for all lanes
        self.types: dict[str, str] = {}
        self.homes: dict[str, Stretch] = {}
        self.kept: dict[str, str] = {}
        """Types of what several stretches mention, by name: it has an element per lane."""
        self.now: set[str] = set()
        """Variables of which a statement has a copy for its lane."""
        self.in_index, self.turns = False, 0
        self.met: dict[str, list[Node]] = {}  # where variables are mentioned that lie in arrays of lanes
        self.reads: dict[str, Cell] = {}  # values that lanes have read from memory that nobody writes
        self.kinds: Mapping[str, str] = {}  # C++ types of elements of arrays, where known
        self.alone: Set[Name] = frozenset()  # arrays that are only written
        self.copied: dict[Cell, str] = {}  # where lanes read copies of elements
        self.columns: dict[object, str] = {}  # the copies of rows
        self.own_arrays: dict[str, DeclaredArray] = {}  # which each lane has for itself
        self.in_turn, self.copies_rows = False, False
        self.apart = False  # whether statements run once, and no lane changes what another one reads
        self.changed: set[str] = set()  # arrays that an earlier statement changes

    def lines_of(self, items: Sequence[Statement]) -> list[str]:
        self.copies_rows = not self.is_known
        nodes = self.sequence(items)
        once = [s for n in nodes if isinstance(n, Stretch) for s in n.items]
        self.in_turn = not any(isinstance(n, Around) for n in nodes) and goes_in_turn(once, self.full, LANES)
        if self.lanes >= _LONG and not self.in_turn:
            self.homes.update(cut(nodes, lambda item: row_read(item, self.full, LANE, self.constants)))
        self.spill(nodes)
        self.met.clear()
        self.meet(nodes)
        lines = list(self.written(nodes))
        size = self.lanes + (_APART if self.lanes >= _LONG else 0)
        many = {name: f"[{array.size}]" for name, array in self.own_arrays.items()}
        arrays = [f"{WIDER.get(k, k)} {name}_of{many.get(name, '')}[{size}];" for name, k in self.kept.items()]
        return [*arrays, *lines]

    # ---- into stretches

    def sequence(self, items: Sequence[Statement]) -> list[Node]:
        nodes: list[Node] = [Stretch()]
        outside = self.open_sides, self.columns  # braces end what is declared in them
        self.open_sides, self.columns = set(self.open_sides), dict(self.columns)
        self.size = self.size or sum(1 for _ in walk(items))
        for item in items:
            self.item(item, nodes)
        self.open_sides, self.columns = outside
        return nodes

    def same(self, nodes: list[Node], line: str) -> None:
        """Put a declaration that is the same for all lanes in front of the stretch at hand."""
        nodes.insert(len(nodes) - isinstance(nodes[-1], Stretch), line)

    def stretch_of(self, nodes: list[Node]) -> Stretch:
        last = nodes[-1]
        if not isinstance(last, Stretch) or last.is_closed:
            last = Stretch()
            nodes.append(last)
        return last

    def item(self, item: Statement, nodes: list[Node]) -> None:
        self.put(item, nodes)
        if isinstance(item, Assign | Do):
            cells = (p.of if isinstance(p, Address) else p for c in codes_of(item) for p in c.parts())
            self.changed |= {cell.array.text for cell in cells if isinstance(cell, Cell)}

    def put(self, item: Statement, nodes: list[Node]) -> None:
        match item:
            case Let():
                self.let_item(item, nodes)
            case Block(None | Code(pieces=()), body, _):
                for inner in body:
                    self.item(inner, nodes)
            case Block(condition, body, otherwise) if (known := settled(condition, self.full)) is not None:
                for inner in body if known else otherwise:
                    self.item(inner, nodes)
            case Block(_, body, otherwise) if left := self.by_side(item):
                whole = len(left) == len(left_of(item.condition, self.full, None))
                which = of(self.side_of(left, nodes))
                self.stretch_of(nodes).items.append(Block(which, body if whole else [item], otherwise))
            case Block(condition, body, otherwise) if self.is_same(condition):
                nodes.append(Around(f"if ({self.text(condition)})", self.sequence(body), True))
                if otherwise:
                    nodes.append(Around("else", self.sequence(otherwise)))
            case Block() if edges := self.edges_of(item):
                nodes.append(edges)
            case Block():
                block, once = taken_out(item, self.full, LANE, range(self.first, self.lanes), self.is_same_element)
                for lane, read in once:
                    value = f"{lane} < {self.end} ? {self.text(read.value)} : 0"
                    self.same(nodes, f"const {read.kind} {read.name.text} = {value};")
                    self.uniform.add(read.name.text)
                block = without_values(block, lambda let: self.put_once(let, nodes))
                self.stretch_of(nodes).items.append(block)
            case StrideLoop():
                self.item(walked(item), nodes)
            case For(name=None, carries=True):
                self.looping += 1
                nodes.append(Around("for (;;)", self.sequence(item.body), is_loop=True))
                self.looping -= 1
            case Break(condition) if self.is_same(condition):
                nodes.append(f"if ({self.text(condition)}) break;")
            case Break(condition, stays=True):
                self.stretch_of(nodes).ends = condition
            case Assign(Code(pieces=(Name(text=text),)), value) if text in self.alike:
                self.assign_alike(text, value, nodes)
            case For(kind, Name() as name, first):
                self.loop(item, f"for ({kind} {name.text} = {self.text(first)}; ", nodes)
            case Neighbours():
                for inner in self.merged(item) if item.number.text in self.full else ():
                    self.item(inner, nodes)
                if item.number.text not in self.full:
                    self.stretch_of(nodes).items.append(item)
            case Note() | Aligned():
                pass
            case DeclaredArray(kind, name):
                stretch = self.stretch_of(nodes)
                self.homes[name.text] = stretch
                self.types[name.text], self.own_arrays[name.text] = "", item
                stretch.items.append(item)
            case Assign(Code(pieces=(Cell(array, _),)), value) if array in self.scalars:
                self.let_item(Let(self.scalars[array], array, value), nodes)
            case Assign(Code(pieces=(Cell() as target,)), value) if self.narrowed(target, value, nodes):
                pass
            case Assign() | Do() | For():
                self.stretch_of(nodes).items.append(item)
            case _:
                raise UnknownError(type(item).__name__)

    def is_same_element(self, cell: Cell) -> bool:
        return cell.array.text in self.constants and self.is_same(cell.index)

    def by_side(self, block: Block) -> tuple[Condition, ...]:
        """The conditions on which a block gets loops for both sides, where these are no longer than is good. Inside of
        loops it stays around loops over lanes: what it leaves out is then left out as one."""
        left = left_of(block.condition, self.full, self.uniform - self.alike)
        is_good = has_room(self.size, 0 if left in self.sides else len(self.sides))
        return left if is_good and not self.looping and is_simple(block) else ()

    def side_of(self, conditions: tuple[Condition, ...], nodes: list[Node]) -> Name:
        """The variable that tells whether conditions hold, which are the same for all lanes."""
        name = self.sides.setdefault(conditions, Name(f"hlo_holds{len(self.sides)}"))
        if name not in self.open_sides:
            self.same(nodes, f"const bool {name.text} = {holding(conditions, self.index_text)};")
            self.open_sides.add(name)
            self.uniform.add(name.text)
        return name

    def edges_of(self, block: Block) -> Around | None:
        """A block of a loop, with what of its condition is the same for all lanes around it."""
        ends = {LANE: (str(self.first), f"({self.end} - 1)"), INSIDE: (FROM, f"({FROM} + {self.end} - 1)")}
        known = self.uniform - self.alike
        return at_edges(block, self.full, known, ends, self.index_text, self.sequence) if self.looping else None

    def assign_alike(self, name: str, value: Code, nodes: list[Node]) -> None:
        """A variable that is the same for all lanes takes a new value, once what stands before has read the old one."""
        if not self.is_same(value):
            raise UnknownError("a variable of all lanes that gets the value of one")
        nodes.append(f"{name} = {self.text(value)};")

    def let_item(self, item: Let, nodes: list[Node]) -> None:
        name = item.name.text
        if item.alike and self.is_same(item.value):
            nodes.append(f"{item.kind} {name} = {self.text(item.value)};")
            self.uniform.add(name)
            self.alike.add(name)
            self.floats |= {name} if item.kind == "float" else set()
            return
        if self.is_place(item):
            self.full[name] = full = self.full_of(item)
            if not LANES.isdisjoint(variables_of(full)):
                self.wide.add(name)
            else:
                self.same(nodes, f"const {WIDE} {name} = {self.index_text(full)};")
                self.uniform.add(name)
            return
        if self.put_once(item, nodes):
            return
        if self.lanes >= LEAST:
            item = replace(item, value=with_calls(item.value, FUNCTIONS, lambda f, angle: self.turned(f, angle, nodes)))
        stretch = self.stretch_of(nodes)
        if self.widened(item, nodes):
            return
        self.types[name], self.homes[name] = item.kind, stretch
        stretch.items.append(item)

    def put_once(self, item: Let, nodes: list[Node]) -> bool:
        """Whether a value is the same for all lanes, and so found before the stretch at hand."""
        if not (item.constant and self.is_same(item.value)):
            return False
        name = item.name.text
        self.same(nodes, f"const {item.kind} {name} = {self.text(item.value)};")
        self.uniform.add(name)
        self.declared_once[name] = item.value
        self.floats |= {name} if item.kind == "float" else set()
        return True

    # ---- f16

    def widened(self, item: Let, nodes: list[Node]) -> bool:
        """Whether a number is an f16 of memory that lies beside those of other lanes: then all are read before the
        stretch at hand."""
        match item.value.pieces:
            case (Cell() as read,) if self.stays(read.array.text):
                self.reads[item.name.text] = read
        source = read_of(item.value)
        if isinstance(source, Cell):
            known = self.reads.get(source.array.text) if source.array in self.scalars else source
        else:
            known = None if source is None else self.reads.get(source.text)
        place = self.beside(known.index) if known is not None and self.stays(known.array.text) else None
        if known is None or place is None:
            return False
        nodes.insert(len(nodes) - 1, Halves(item.name, f"{known.array.text} + ({place})", widens=True))
        self.types[item.name.text], self.homes[item.name.text] = item.kind, Stretch()
        return True

    def stays(self, array: str) -> bool:
        """Whether an array has the same elements as before the statements."""
        return array in self.constants or (self.apart and array not in self.changed)

    def narrowed(self, target: Cell, value: Code, nodes: list[Node]) -> bool:
        """Whether lanes write f16 beside each other: then all are written behind the stretch at hand."""
        last = self.stretch_of(nodes)
        source = next((p for p in value.pieces if isinstance(p, Cell) and p.array in self.scalars), None)
        name = source.array if source is not None and len(value.pieces) == 1 else value.name
        stored = next((s.value for s in last.items if isinstance(s, Let) and s.name == name and s.constant), value)
        rounded = rounded_of(stored, last.items)
        place = None if rounded is None else self.beside(target.index)
        if rounded is None or place is None:
            return False
        wide = Name(f"hlo_wide{self.turns}")
        self.turns += 1
        self.types[wide.text], self.homes[wide.text] = "float", last
        last.items.append(Let("float", wide, rounded))
        nodes += [Halves(wide, f"{target.array.text} + ({place})", widens=False), Stretch()]
        return True

    def beside(self, index: Code) -> str | None:
        """The place of the first lane, where the others have those that follow it."""
        place = self.full.get(index.name.text) if index.name is not None else index.place
        if place is None or self.lanes < LEAST:
            return None
        parts = first_of(substitute(place, self.full), LANES)
        if parts is None or not variables_of(parts[0]) <= self.uniform:
            return None
        first, lane = parts
        rest = self.index_text(first)
        return f"{rest} + {FROM}" if lane == INSIDE else f"{rest} + {self.first}"

    def turned(self, function: str, angle: Name, nodes: list[Node]) -> Code | None:
        """A function of a lane's angle, found for all lanes. None where the angle is no variable of lanes."""
        if self.types.get(angle.text) != "float":
            return None
        self.turns += 1
        return turned(function, angle, nodes, self.homes, Name(f"hlo_turn{self.turns}"))

    def is_place(self, item: Let) -> bool:
        """Whether it is an index whose expression is known."""
        if not (item.is_index and item.constant and item.expression is not None):
            return False
        known = self.full.keys() | self.uniform
        return variables_of(item.expression) <= known

    def full_of(self, item: Let) -> Expression:
        assert item.expression is not None
        return substitute(item.expression, self.full)

    def is_same(self, value: Code) -> bool:
        """Whether an expression is the same for all lanes and reads nothing that the kernel may write."""
        for piece in value.pieces:
            if isinstance(piece, Cell):
                is_scalar = piece.array in self.scalars and piece.array.text in self.uniform
                if not is_scalar and not (piece.array.text in self.constants and self.is_same(piece.index)):
                    return False
            elif isinstance(piece, Name):
                if piece.text not in self.uniform:
                    return False
            elif not isinstance(piece, str | Function):
                return False
        return True

    def loop(self, loop: For, head: str, nodes: list[Node]) -> None:
        """A loop around loops over lanes or inside of them, before which rows are copied that it goes through."""
        sums = sums_along(loop, self.full, LANE, self.lanes, self.types)
        copies = copies_of(loop, self, LANE, INSIDE, FROM, adds=bool(sums)) if self.copies_rows else None
        for line in copies.lines if copies else ():
            self.same(nodes, line)
        is_apart = has_own_elements(loop, self.own_arrays) or (copies is not None and copies.is_outside)
        if self.around(loop, head, nodes, is_apart):
            pass
        elif sums and not copies:
            nodes.append(Stretch([loop], sums))
        else:
            self.stretch_of(nodes).items.append(loop)
        nodes += copies.behind if copies else []

    def around(self, loop: For, head: str, nodes: list[Node], is_apart: bool = False) -> bool:
        """Put a loop around loops over lanes where it is the same for all, and holds conditions that are, or hands on
        what lanes have: then it keeps that in arrays, for compilers make no vectors of loops in loops over lanes that
        read and write memory. Or where all it does is to fill arrays: each lane by itself would go through all of
        memory, as it would where each round reads another row."""
        assert loop.name is not None
        apart = is_apart or loop_fills(loop) or is_stream(loop, self.full, LANES, self.lanes)
        if not (loop.carries or apart) and not any(isinstance(s, Block) and s.condition for s in walk(loop.body)):
            return False
        name = loop.name.text
        if not (
            self.is_same(loop.first)
            and {n.text for h in (loop.test, loop.step) for n in h.names()} <= self.uniform | {name}
        ):
            return False
        saved = [dict(self.full), set(self.wide), set(self.uniform), dict(self.types), dict(self.homes)]
        self.uniform.add(name)
        self.looping += 1
        inside = self.sequence(loop.body)
        self.looping -= 1
        if loop.carries or apart or has_condition(inside):
            head = f"{head}{self.text(loop.test)}; {self.text(loop.step)})"
            if loop.carries and not self.by_rows:
                inside += lines_ahead(
                    loop, self.full, self.constants, LANE, self.first, self.end, self.lanes, self.index_text
                )
            nodes.append(Around(head, inside, is_loop=loop.carries or apart))
            return True
        self.full, self.wide, self.uniform, self.types, self.homes = saved  # type: ignore[assignment]  # as they were
        return False

    def spill(self, nodes: Sequence[Node]) -> None:
        """Give an array to each variable that another stretch than its own mentions."""
        for node in nodes:
            if isinstance(node, Around):
                self.spill(node.inside)
            elif isinstance(node, Halves):
                self.kept[node.name.text] = "float"
            elif isinstance(node, Turns):
                self.kept.update(dict.fromkeys([node.angle, *(name.text for name in node.results.values())], "float"))
            elif isinstance(node, Stretch):
                for name in sorted(n.text for n in node.names):
                    home = self.homes.get(name)
                    if home is not None and home is not node:
                        self.kept[name] = self.types[name] or self.own_arrays[name].kind

    def body(self, stretch: Stretch) -> Iterator[str]:
        """What a lane does in a stretch."""
        for name in sorted({n.text for n in stretch.names} & self.wide):
            yield from self.declared(name, self.full[name])
        yield from self.summed(stretch) if stretch.sums else self.lines(stretch.items)

    def meet(self, nodes: Sequence[Node]) -> None:
        """Note where variables are mentioned."""
        for node in nodes:
            if isinstance(node, Around):
                self.meet(node.inside)
            for name in names_of(node):
                self.met.setdefault(name, []).append(node)

    # ---- text

    def written(self, nodes: Sequence[Node]) -> Iterator[str]:
        direct = dict[Halves, Stretch]()
        for at, node in enumerate(nodes):
            if isinstance(node, Stretch) and self.eights(node):
                direct.update((half, node) for half in self.met_by(nodes, at))
        for half in direct:
            self.kept.pop(half.name.text, None)
        for node in nodes:
            if isinstance(node, str):
                yield node
            elif isinstance(node, Halves) and node in direct:
                pass
            elif isinstance(node, Around):
                yield f"{node.header} {{"
                yield from self.written(node.inside)
                yield "}"
            elif isinstance(node, Turns | Halves):
                yield node.line(lambda name: f"{name}_of + {self.first}", f"{self.end} - {self.first}")
            elif isinstance(node, Stretch) and (lines := self.eights(node, direct)):
                yield f"for (int {LANE} = {self.first}; {LANE} < {self.end}; {LANE} += {EIGHT}) {{"
                yield from lines
                yield "}"
            elif node.ends is not None:
                yield f"int {_GOES} = 0;"
                yield f"#pragma omp simd reduction(| : {_GOES})"
                yield from self.looped(node, f"{_GOES} |= !({self.text(node.ends)});")
                yield f"if (!{_GOES}) break;"
            elif node.items:
                loop = [*([] if node.sums or self.in_turn else ["#pragma omp simd"]), *self.looped(node)]
                loop[-1:-1] = ["hlo::in_turn();"] * self.in_turn
                yield from by_side(predicates_of(node.items, self.uniform, len(loop)), loop)

    def looped(self, node: Stretch, *last: str) -> Iterator[str]:
        """The loop over lanes, with what each of them does last."""
        first = f"hlo::hidden({self.first})" if self.is_known and has_conditions(node.items) else self.first
        yield f"for (int {LANE} = {first}; {LANE} < {self.end}; ++{LANE}) {{"
        if self.by_rows:
            yield f"const {WIDE} {INSIDE} = {FROM} + {LANE};"
        yield from self.body(node)
        yield from last
        yield "}"

    def eights(self, node: Stretch, direct: Mapping[Halves, Stretch] | None = None) -> list[str] | None:
        """A stretch as vectors of eight lanes, where it rounds to f16; the arrays of lanes have room for a whole last
        one. What `direct` gives to it it reads from memory, or writes there, by itself."""
        if node.is_closed or (self.lanes < _LONG and (self.first or self.lanes % EIGHT)):
            return None
        left = f"{self.end} - {LANE}"
        own = [half for half, reader in (direct or {}).items() if reader is node]
        halves = {h.name.text: (f"{h.pointer} - {self.first} + {LANE}", left) for h in own}
        where = Where(self.kept, self.floats, self.scalars, halves, lambda f: self.functions.get(f, f), LANE)
        return eight_lines(node.items, where)

    def met_by(self, nodes: Sequence[Node], at: int) -> Iterator[Halves]:
        """The f16 of memory that nothing but a stretch reads, and those that are written right behind it."""
        stretch = nodes[at]
        behind = list(itertools.takewhile(lambda n: isinstance(n, Halves), nodes[at + 1 :]))
        for half in nodes:
            if isinstance(half, Halves) and (half.widens or half in behind):
                others = [n for n in self.met.get(half.name.text, ()) if n is not half]
                if others == [stretch]:
                    yield half

    def summed(self, node: Stretch) -> Iterator[str]:
        """The lines of a stretch that only adds to totals: an OpenMP `simd reduction` over local copies of the totals,
        which are stored after it."""
        homes = {total.text: self.name(total.text) for total in node.sums}
        kinds = {name: self.kept.pop(name) for name in homes}
        yield from (f"{kinds[name]} {name} = {home};" for name, home in homes.items())
        yield f"#pragma omp simd reduction(+ : {', '.join(homes)})"
        yield from self.lines(node.items)
        yield from (f"{home} = {name};" for name, home in homes.items())
        self.kept.update(kinds)

    def declared(self, name: str, full: Expression) -> Iterator[str]:
        """An index, as wide as addresses are, and where it is a value as narrow as may be."""
        own = clean(name)
        yield f"const {WIDE} {own} = {self.index_text(full)};"
        narrow = is_narrow(full)
        yield f"const {'int' if narrow else WIDE} {own}_value = {'(int)' if narrow else ''}({own});"

    def index_text(self, full: Expression) -> str:
        """An index. Digits that differ from lane to lane are found in 32 bits, which vector units divide."""
        whole = "int" if is_narrow(full) else WIDE

        def digit(part: Expression) -> Code:
            left: Expression = part.left  # type: ignore[attr-defined]  # a quotient or a remainder
            inner = render(left, digit)
            narrow = not LANES.isdisjoint(variables_of(left)) and left.low >= 0 and left.high < NARROW
            if narrow:
                return code(f"({whole})({{}})", digit_text(part, code("(unsigned int)({})", inner)))
            return code("({})", digit_text(part, code("({})", inner)))

        return self.text_plain(render(full, digit))

    def text_plain(self, expression: Code) -> str:
        saved, self.in_index = self.in_index, True
        text = self.text(expression)
        self.in_index = saved
        return text

    def name(self, text: str) -> str:
        if text in self.now:
            return f"{text}_now"
        if text in self.kept:
            return f"{text}_of[{LANE}]"
        if text in self.wide:
            return clean(text) if self.in_index else f"{clean(text)}_value"
        return text

    def cell(self, array: Name, index: Code) -> str:
        if array in self.scalars:
            return self.name(array.text)
        if array.text in self.own_arrays and array.text in self.kept:
            return f"{array.text}_of[{self.text_plain(index)}][{LANE}]"
        return self.copied.get(Cell(array, index)) or f"{self.name(array.text)}[{self.text_plain(index)}]"

    def statement(self, statement: Statement) -> Iterator[str]:
        """One statement. Index variables of loops in a lane's body are like those of the lane. What is changed under a
        condition is written under none: masked vectors take long to write."""
        if isinstance(statement, Block) and (known := settled(statement.condition, self.full)) is not None:
            yield from self.lines(statement.body if known else statement.otherwise)
            return
        if isinstance(statement, Block) and (changed := changed_in(statement, self.kept.keys() - self.now)):
            yield "{"
            yield from (f"{self.kept[name]} {name}_now = {self.name(name)};" for name in changed)
            self.now |= changed.keys()
            yield from super().statement(statement)
            self.now -= changed.keys()
            yield from (f"{self.name(name)} = {name}_now;" for name in changed)
            yield "}"
            return
        if isinstance(statement, DeclaredArray) and statement.name.text in self.kept:
            return
        if isinstance(statement, Let) and self.is_inner_place(statement):
            name = statement.name.text
            self.full[name] = self.full_of(statement)
            self.wide.add(name)
            yield from self.declared(name, self.full[name])
            return
        yield from super().statement(statement)

    def is_inner_place(self, let: Let) -> bool:
        return let.is_index and let.constant and let.expression is not None and let.name.text not in self.homes

    def let(self, let: Let) -> str:
        name = let.name.text
        if name in self.kept:
            return f"{self.name(name)} = {self.text(let.value)};"
        if let.is_index and let.kind == "int":
            return f"const {WIDE} {name} = {self.text_plain(let.value)};" if let.constant else super().let(let)
        return f"{'const ' * let.constant}{let.kind} {self.name(name)} = {self.text(let.value)};"
