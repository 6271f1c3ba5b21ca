"""Kernels without barriers, a chunk of a block's elements at a time: a loop over lanes for each stretch of statements.

A chunk is short enough that digits of positions (rows, channels, windows) are the same for all lanes where possible.
Those are computed once, and conditions and loops on them stand around the loops over lanes: compilers do not vectorise
selections by one condition, and turn conditions on edges into gathers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hlo_opt.codegen.cuda import walked
from hlo_opt.codegen.index_text import digit_text, render
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.codegen.lanes_folds import sums_along
from hlo_opt.codegen.lanes_nodes import Around, Node, Stretch, changes, cut, has_condition
from hlo_opt.codegen.lanes_text import WIDER, ThreadText, digits_in, filled
from hlo_opt.codegen.lanes_turns import FUNCTIONS, Turns
from hlo_opt.codegen.statements import BLOCK, THREAD
from hlo_opt.codegen.tree import (
    Aligned,
    Array,
    Assign,
    Block,
    Break,
    Do,
    For,
    Leave,
    Let,
    Neighbours,
    Note,
    Segment,
    Statement,
    Walk,
    codes_of,
    names_in,
    walk,
)
from hlo_opt.ir.index_map import (
    Condition,
    Expression,
    Quotient,
    Remainder,
    Variable,
    add,
    constant,
    divide,
    modulo,
    multiply,
    substitute,
    variables_of,
)
from hlo_opt.ops.code import Cell, Code, Function, Name, code, of, with_calls

_WIDE = "long long"
_CHUNK, LANE = "hlo_chunk", "hlo_lane"
ROW, _FROM, _INSIDE = "hlo_row", "hlo_from", "hlo_inside"
"""Of a chunk that is a part of a row: the row, the chunk's first place in it, and a lane's."""
_LANES = frozenset({LANE, _INSIDE})
"""What differs from lane to lane."""
_LEAST = 8
"""Lanes of the shortest chunk that is worth what is done once in it."""
_MOST = 1024
"""Lanes of the longest chunk that is a part of a row."""
_LONG = 64
"""Lanes of a chunk whose statements are worth to be cut."""
_APART = 32
"""More elements of arrays of lanes: elements of a lane that lie a power of two apart get in each other's way in the
first cache."""
_STATE, _ELEMENT = 1 << 13, 4
"""Bytes that a chunk hands on from round to round, a part of the first cache, and about those of an element."""
_NARROW = 1 << 31
_ADDED = frozenset({"float", "double", "int", "unsigned int", "long long", "unsigned long long"})
"""Types whose sums compilers take in any order."""


class UnknownError(Exception):
    """The kernel has something that chunks cannot follow."""


@dataclass(frozen=True)
class Chunks:
    """A function of a chunk: its text and name, lanes of a chunk, elements of a block, and of all blocks where the last
    one may have fewer, else 0. Where `row` is not 0, chunks end where rows of so many elements do, and the function is
    given the row and the first place in it. `blocks`: a chunk is so many blocks, or as many as are left, and the
    function is given the first."""

    text: str
    name: str
    lanes: int
    span: int
    count: int
    row: int
    blocks: int = 1


def chunks_of(kernel: Kernel, segment: Segment, name: str, parameters: str) -> Chunks | None:
    """The function of a chunk of a segment's blocks; None for what chunks cannot follow."""
    body: list[Statement] = [s for s in segment.body if not isinstance(s, Aligned | Note)]
    found = _elements(kernel, segment, body)
    if found is None:
        return None
    constants = {p.name.text for p in kernel.tree.parameters if p.constant}
    cut = _cut(kernel, segment, found)
    together = _together(kernel, segment, found, cut)
    if together > 1:
        lanes = together * found.span
        whole = {_POSITION: Variable(0, lanes - 1, LANE)}
        cut = _Cut(lanes, 0, {name: substitute(value, whole) for name, value in found.values.items()})
    try:
        lines = Writer(cut.values, cut.lanes, constants).lines_of(found.items)
    except UnknownError:
        return None
    places = f"const long long {ROW}, const long long {_FROM}" if cut.row else f"const long long {_CHUNK}"
    head = f"const hlo::Index blockIdx, {places}, const long long hlo_live, {parameters}"
    text = "\n".join([f"__global__ void {name}({head}) {{", *lines, "}"]) + "\n"
    return Chunks(text, name, cut.lanes, found.span, found.count, cut.row, max(1, together))


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


def _elements(kernel: Kernel, segment: Segment, body: Sequence[Statement]) -> _Elements | None:
    """The elements of a segment. Neighbours that a thread takes are elements by themselves where nothing else is done
    but declarations."""
    leaving = [s for s in body if isinstance(s, Leave)]
    items: list[Statement] = [s for s in body if not isinstance(s, Leave)]
    if len(leaving) > 1 or not items or any(isinstance(s, Leave) for i in items for s in walk([i])):
        return None
    count, block = 0, kernel.launch.block
    if leaving:
        first = items[0]
        if not isinstance(first, Let) or body[1] is not leaving[0]:
            return None
        beyond = leaving[0].condition.says
        if len(beyond) != 1 or variables_of(beyond[0].expression) != {first.name.text}:
            return None
        count = beyond[0].low
    *before, group = items
    alone = isinstance(group, Neighbours) and not group.bits and not filled(group)
    if alone and isinstance(group, Neighbours) and all(isinstance(s, Let) and s.constant for s in before):
        own = Variable(0, block * group.size - 1, _POSITION)
        values = {THREAD.text: divide(own, group.size), group.number.text: modulo(own, group.size)}
        return _Elements(block * group.size, count * group.size, values, items)
    return _Elements(block, count, {THREAD.text: Variable(0, block - 1, _POSITION)}, items)


@dataclass(frozen=True)
class _Cut:
    """How elements are cut into chunks: the most lanes, the elements of a row where chunks end with rows (else 0), and
    what index variables stand for."""

    lanes: int
    row: int
    values: _Values


def _cut(kernel: Kernel, segment: Segment, found: _Elements) -> _Cut:
    """The cut that leaves the fewest digits that differ from lane to lane."""
    lets = _used(found.items)

    def differing(values: _Values) -> list[Quotient | Remainder]:
        full, digits = dict(values), list[Quotient | Remainder]()
        for let, is_used in lets:
            assert let.expression is not None
            full[let.name.text] = value = substitute(let.expression, full)
            digits += [d for d in digits_in(value) if is_used and not _LANES.isdisjoint(variables_of(d))]
        return digits

    first = best = _Cut(found.span, 0, _even(found, found.span))
    least = differing(first.values)
    lanes = found.span
    while least and lanes % 2 == 0 and lanes // 2 >= _LEAST:
        lanes //= 2
        values = _even(found, lanes)
        left = differing(values)
        if len(left) < len(least):
            best, least = _Cut(lanes, 0, values), left
    rows = {d.divisor for d in least if d.divisor >= 2 * _LEAST}
    if rows and _is_flat(kernel, segment, found.items):
        row = min(rows)
        values = _by_rows(found, segment, row)
        if len(differing(values)) < len(least):
            return _Cut(min(row, _MOST), row, values)
    return best


def _together(kernel: Kernel, segment: Segment, found: _Elements, cut: _Cut) -> int:
    """How many blocks are best a chunk: one, but for a loop that hands on what lanes have. It goes over memory in steps
    of a row, and through a chunk in each: long chunks are read as streams, and what they hand on stays in the first
    cache."""
    if cut.lanes != found.span or cut.row or not any(isinstance(s, For) and s.carries for s in found.items):
        return 1
    if not _is_flat(kernel, segment, found.items):
        return 1
    state = sum(isinstance(s, Let) and not s.constant and not s.alike for s in found.items)
    return min(max(1, _STATE // max(1, _ELEMENT * state * found.span)), segment.last - segment.first)


def _used(items: Sequence[Statement]) -> list[tuple[Let, bool]]:
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


def _even(found: _Elements, lanes: int) -> _Values:
    """Values where a block has chunks of so many lanes."""
    position: Expression = Variable(0, lanes - 1, LANE)
    if found.span > lanes:
        position = add(multiply(Variable(0, found.span // lanes - 1, _CHUNK), lanes), position)
    return {name: substitute(value, {_POSITION: position}) for name, value in found.values.items()}


def _by_rows(found: _Elements, segment: Segment, row: int) -> _Values:
    """Values where a chunk is a part of a row: the position is that among the elements of all blocks, as if there were
    only the first."""
    total = found.count or (segment.last - segment.first) * found.span
    rows = -(-total // row)
    position: Expression = Variable(0, row - 1, _INSIDE)
    if rows > 1:
        position = add(multiply(Variable(0, rows - 1, ROW), row), position)
    stretched = {_POSITION: position}
    values = {name: substitute(value, stretched) for name, value in found.values.items()}
    return {**values, BLOCK.text: constant(segment.first)}


def _is_flat(kernel: Kernel, segment: Segment, items: Sequence[Statement]) -> bool:
    """Whether blocks and threads are mentioned only as the number of a thread among those of all blocks."""
    first, block = segment.first, kernel.launch.block
    own = add(
        multiply(add(Variable(first, segment.last - 1, BLOCK.text), constant(-first)), block),
        Variable(0, block - 1, THREAD.text),
    )
    for statement in walk(items):
        is_number = isinstance(statement, Let) and statement.is_index and statement.expression is not None
        if is_number and isinstance(statement, Let) and statement.expression is not None:
            mentioned = variables_of(statement.expression)
            if not mentioned.isdisjoint({BLOCK.text, THREAD.text}) and statement.expression != own:
                return False
        elif any(name.text in (BLOCK.text, THREAD.text) for e in codes_of(statement) for name in e.names()):
            return False
    return True


class Writer(ThreadText):
    """Writes statements of lanes from the number `first` up to `end`, or as many as are alive. `values` are what index
    variables stand for, `constants` arrays into which nobody writes meanwhile."""

    def __init__(self, values: _Values, lanes: int, constants: set[str], first: int = 0, end: int | None = None):
        super().__init__()
        self.lanes, self.constants = lanes, constants
        self.first, self.end = first, "hlo_live" if end is None else str(end)
        self.by_rows = any(_INSIDE in variables_of(value) for value in values.values())
        self.full = values
        """Index variables as expressions of the block, the chunk, the lane and loop counters."""
        self.wide: set[str] = set(values) - {BLOCK.text}
        """Index variables that differ from lane to lane."""
        self.uniform: set[str] = {BLOCK.text, _CHUNK, ROW}
        self.alike: set[str] = set()
        """Variables that are the same for all lanes, and change."""
        self.types: dict[str, str] = {}
        self.homes: dict[str, Stretch] = {}
        self.kept: dict[str, str] = {}
        """Types of what several stretches mention, by name: it has an element per lane."""
        self.in_index = False
        self.turns = 0

    def lines_of(self, items: Sequence[Statement]) -> list[str]:
        nodes = self.sequence(items)
        if self.lanes >= _LONG:
            self.homes.update(cut(nodes))
        self.spill(nodes)
        size = self.lanes + (_APART if self.lanes >= _LONG else 0)
        arrays = [f"{WIDER.get(kind, kind)} {name}_of[{size}];" for name, kind in self.kept.items()]
        return [*arrays, *self.written(nodes)]

    # ---- into stretches

    def sequence(self, items: Sequence[Statement]) -> list[Node]:
        nodes: list[Node] = [Stretch()]
        for item in items:
            self.item(item, nodes)
        return nodes

    def same(self, nodes: list[Node], line: str) -> None:
        """Put a declaration that is the same for all lanes in front of the stretch at hand."""
        nodes.insert(len(nodes) - isinstance(nodes[-1], Stretch), line)

    def stretch_of(self, nodes: list[Node]) -> Stretch:
        last = nodes[-1]
        if not isinstance(last, Stretch) or last.sums:
            last = Stretch()
            nodes.append(last)
        return last

    def item(self, item: Statement, nodes: list[Node]) -> None:
        match item:
            case Let():
                self.let_item(item, nodes)
            case Block(None | Code(pieces=()), body, _):
                for inner in body:
                    self.item(inner, nodes)
            case Block(condition, body, otherwise) if (known := self.known(condition)) is not None:
                for inner in body if known else otherwise:
                    self.item(inner, nodes)
            case Block(condition, body, otherwise) if self.is_same(condition):
                nodes.append(Around(f"if ({self.text(condition)})", self.sequence(body), True))
                if otherwise:
                    nodes.append(Around("else", self.sequence(otherwise)))
            case Walk():
                self.item(walked(item), nodes)
            case For(name=None, carries=True):
                nodes.append(Around("for (;;)", self.sequence(item.body), is_loop=True))
            case Break(condition) if self.is_same(condition):
                nodes.append(f"if ({self.text(condition)}) break;")
            case Assign(Code(pieces=(Name(text=text),)), value) if text in self.alike:
                self.assign_alike(text, value, nodes)
            case For(kind, Name() as name, first):
                if not self.around(item, f"for ({kind} {name.text} = {self.text(first)}; ", nodes):
                    sums = sums_along(item, self.full, LANE, self.lanes)
                    if sums and all(t.text in self.homes and self.types[t.text] in _ADDED for t in sums):
                        nodes.append(Stretch([item], sums))
                    else:
                        self.stretch_of(nodes).items.append(item)
            case Neighbours():
                for inner in self.merged(item) if item.number.text in self.full else ():
                    self.item(inner, nodes)
                if item.number.text not in self.full:
                    self.stretch_of(nodes).items.append(item)
            case Note() | Aligned():
                pass
            case Array(kind, name):
                stretch = self.stretch_of(nodes)
                self.homes[name.text] = stretch
                self.types[name.text] = ""
                stretch.items.append(item)
            case Assign(Code(pieces=(Cell(array, _),)), value) if array in self.scalars:
                self.let_item(Let(self.scalars[array], array, value), nodes)
            case Assign() | Do() | Block() | For():
                self.stretch_of(nodes).items.append(item)
            case _:
                raise UnknownError(type(item).__name__)

    def known(self, condition: Code) -> bool | None:
        """Whether a condition on indices holds for all lanes (or for none); None where that is open."""
        found = [Condition(substitute(c.expression, self.full), c.low, c.high) for c in condition.says]
        if any(c.never for c in found):
            return False
        return True if found and all(c.always for c in found) else None

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
            return
        if self.is_place(item):
            self.full[name] = full = self.full_of(item)
            if not _LANES.isdisjoint(variables_of(full)):
                self.wide.add(name)
            else:
                self.same(nodes, f"const {_WIDE} {name} = {self.index_text(full)};")
                self.uniform.add(name)
            return
        if item.constant and self.is_same(item.value):
            self.same(nodes, f"const {item.kind} {name} = {self.text(item.value)};")
            self.uniform.add(name)
            return
        if self.lanes >= _LEAST:
            item = replace(item, value=with_calls(item.value, FUNCTIONS, lambda f, angle: self.turned(f, angle, nodes)))
        stretch = self.stretch_of(nodes)
        self.types[name], self.homes[name] = item.kind, stretch
        stretch.items.append(item)

    def turned(self, function: str, angle: Name, nodes: list[Node]) -> Code | None:
        """A function of a lane's angle, found for all lanes before the stretch at hand, or behind what makes the angle.
        None where the angle is no variable of lanes."""
        if self.types.get(angle.text) != "float":
            return None
        turns = self.known_turns(angle, nodes)
        if turns is None:
            turns, last = Turns(angle.text), nodes[-1]
            is_later = isinstance(last, Stretch) and (self.homes[angle.text] is last or changes(last, angle))
            nodes.insert(len(nodes) - (isinstance(last, Stretch) and not is_later), turns)
        if function not in turns.made:
            turns.made[function] = Name(f"hlo_turn{self.turns}")
            self.turns += 1
        return of(turns.made[function])

    def known_turns(self, angle: Name, nodes: Sequence[Node]) -> Turns | None:
        """What was found of an angle that has not changed since."""
        for node in reversed(nodes):
            if isinstance(node, Turns) and node.angle == angle.text:
                return node
            if changes(node, angle):
                break
        return None

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

    def around(self, loop: For, head: str, nodes: list[Node]) -> bool:
        """Put a loop around loops over lanes where it is the same for all, and holds conditions that are, or hands on
        what lanes have: then it keeps that in arrays, for compilers make no vectors of loops in loops over lanes that
        read and write memory. Or where all it does is to fill arrays: each lane by itself would go through all of
        memory."""
        assert loop.name is not None
        fills = _only_fills(loop)
        if not (loop.carries or fills) and not any(isinstance(s, Block) and s.condition for s in walk(loop.body)):
            return False
        name = loop.name.text
        if not (
            self.is_same(loop.first)
            and {n.text for h in (loop.test, loop.step) for n in h.names()} <= self.uniform | {name}
        ):
            return False
        saved = [dict(self.full), set(self.wide), set(self.uniform), dict(self.types), dict(self.homes)]
        self.uniform.add(name)
        inside = self.sequence(loop.body)
        if loop.carries or fills or has_condition(inside):
            head = f"{head}{self.text(loop.test)}; {self.text(loop.step)})"
            nodes.append(Around(head, inside, is_loop=loop.carries))
            return True
        self.full, self.wide, self.uniform, self.types, self.homes = saved  # type: ignore[assignment]  # as they were
        return False

    def spill(self, nodes: Sequence[Node]) -> None:
        """Give an array to each variable that another stretch than its own mentions."""
        for node in nodes:
            if isinstance(node, Around):
                self.spill(node.inside)
            elif isinstance(node, Turns):
                self.kept.update(dict.fromkeys([node.angle, *(name.text for name in node.made.values())], "float"))
            elif isinstance(node, Stretch):
                for name in sorted(n.text for n in names_in(node.items)):
                    home = self.homes.get(name)
                    if home is not None and home is not node:
                        if not self.types[name]:
                            raise UnknownError("an array that several stretches mention")
                        self.kept[name] = self.types[name]

    # ---- text

    def written(self, nodes: Sequence[Node]) -> Iterator[str]:
        for node in nodes:
            if isinstance(node, str):
                yield node
            elif isinstance(node, Around):
                yield f"{node.header} {{"
                yield from self.written(node.inside)
                yield "}"
            elif isinstance(node, Turns):
                yield node.line(lambda name: f"{name}_of + {self.first}", f"{self.end} - {self.first}")
            elif node.items:
                if not node.sums:
                    yield "#pragma omp simd"
                yield f"for (int {LANE} = {self.first}; {LANE} < {self.end}; ++{LANE}) {{"
                if self.by_rows:
                    yield f"const {_WIDE} {_INSIDE} = {_FROM} + {LANE};"
                for name in sorted({n.text for n in names_in(node.items)} & self.wide):
                    yield from self.declared(name, self.full[name])
                yield from self.summed(node) if node.sums else self.lines(node.items)
                yield "}"

    def summed(self, node: Stretch) -> Iterator[str]:
        """Sums of a lane by vectors of terms."""
        homes = {total.text: self.name(total.text) for total in node.sums}
        kinds = {name: self.kept.pop(name) for name in homes}
        yield from (f"{kinds[name]} {name} = {home};" for name, home in homes.items())
        yield f"#pragma omp simd reduction(+ : {', '.join(homes)})"
        yield from self.lines(node.items)
        yield from (f"{home} = {name};" for name, home in homes.items())
        self.kept.update(kinds)

    def declared(self, name: str, full: Expression) -> Iterator[str]:
        """An index, as wide as addresses are, and where it is a value as narrow as may be."""
        clean = _clean(name)
        yield f"const {_WIDE} {clean} = {self.index_text(full)};"
        narrow = _is_narrow(full)
        yield f"const {'int' if narrow else _WIDE} {clean}_value = {'(int)' if narrow else ''}({clean});"

    def index_text(self, full: Expression) -> str:
        """An index. Digits that differ from lane to lane are found in 32 bits, which vector units divide."""
        whole = "int" if _is_narrow(full) else _WIDE

        def digit(found: Expression) -> Code:
            left: Expression = found.left  # type: ignore[attr-defined]  # a quotient or a remainder
            inner = render(left, digit)
            narrow = not _LANES.isdisjoint(variables_of(left)) and left.low >= 0 and left.high < _NARROW
            if narrow:
                return code(f"({whole})({{}})", digit_text(found, code("(unsigned int)({})", inner)))
            return code("({})", digit_text(found, code("({})", inner)))

        return self.text_plain(render(full, digit))

    def text_plain(self, expression: Code) -> str:
        saved, self.in_index = self.in_index, True
        made = self.text(expression)
        self.in_index = saved
        return made

    def name(self, text: str) -> str:
        if text in self.kept:
            return f"{text}_of[{LANE}]"
        if text in self.wide:
            return _clean(text) if self.in_index else f"{_clean(text)}_value"
        return text

    def cell(self, array: Name, index: Code) -> str:
        if array in self.scalars:
            return self.name(array.text)
        return f"{self.name(array.text)}[{self.text_plain(index)}]"

    def statement(self, statement: Statement) -> Iterator[str]:
        """One statement. Index variables of loops in a lane's body are like those of the lane."""
        if (
            isinstance(statement, Let)
            and statement.is_index
            and statement.constant
            and statement.expression is not None
            and statement.name.text not in self.homes
        ):
            name = statement.name.text
            self.full[name] = self.full_of(statement)
            self.wide.add(name)
            yield from self.declared(name, self.full[name])
            return
        yield from super().statement(statement)

    def let(self, let: Let) -> str:
        name = let.name.text
        if name in self.kept:
            return f"{self.name(name)} = {self.text(let.value)};"
        if let.is_index and let.kind == "int":
            return f"const {_WIDE} {name} = {self.text_plain(let.value)};" if let.constant else super().let(let)
        return f"{'const ' * let.constant}{let.kind} {self.name(name)} = {self.text(let.value)};"


def _only_fills(loop: For) -> bool:
    """Whether rounds of a loop only write elements, and keep nothing."""
    inside = list(walk(loop.body))
    kept = any(not isinstance(s, Let | Assign | Note) or (isinstance(s, Let) and not s.constant) for s in inside)
    return not kept and all(s.target.name is None for s in inside if isinstance(s, Assign))


def _is_narrow(value: Expression) -> bool:
    return value.low >= -_NARROW and value.high < _NARROW


def _clean(name: str) -> str:
    return name.replace(".", "_")
