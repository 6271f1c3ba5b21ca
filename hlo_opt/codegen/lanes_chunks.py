"""Kernels whose threads do not meet, a chunk of a block's elements at a time: one loop over the lanes of a chunk for each stretch of statements, and around these what is the same for
all lanes.

A chunk is so long that digits of positions (rows, channels, windows) are the same for all of its lanes where that can be. What then is the same is computed once, and conditions and loops
that are the same stand around the loops over lanes: compilers make no vectors of selections by one condition, and of conditions on edges they make gathers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hlo_opt.codegen.cuda import walked
from hlo_opt.codegen.index_text import digit_text, render
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.codegen.lanes_text import ThreadText, digits_in, filled, variables_in
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
from hlo_opt.ops.code import Cell, Code, Function, Name, code

_WIDE = "long long"
_CHUNK, _LANE = "hlo_chunk", "hlo_lane"
_ROW, _FROM, _INSIDE = "hlo_row", "hlo_from", "hlo_inside"
"""Of a chunk that is a part of a row: the row, the chunk's first place in it, and a lane's."""
_LANES = frozenset({_LANE, _INSIDE})
"""What differs from lane to lane."""
_LEAST = 8
"""Lanes of the shortest chunk that is worth what is done once in it."""
_MOST = 1024
"""Lanes of the longest chunk that is a part of a row."""
_STATE, _ELEMENT = 1 << 13, 4
"""Bytes that a chunk hands on from round to round, a part of the first cache, and about those of an element."""
_NARROW = 1 << 31


class UnknownError(Exception):
    """The kernel has something that chunks cannot follow."""


@dataclass(frozen=True)
class Chunks:
    """A function of a chunk: its text and name, lanes of a chunk, elements of a block, and of all blocks where the last one may have fewer, else 0. Where `row` is not 0, chunks end where
    rows of so many elements do, and the function is given the row and the first place in it. `blocks`: a chunk is so many blocks, or as many as are left, and the function is given the first."""

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
        whole = {_POSITION: Variable(0, lanes - 1, _LANE)}
        cut = _Cut(lanes, 0, {name: substitute(value, whole) for name, value in found.values.items()})
    try:
        lines = _Writer(cut.values, cut.lanes, constants).lines_of(found.items)
    except UnknownError:
        return None
    places = f"const long long {_ROW}, const long long {_FROM}" if cut.row else f"const long long {_CHUNK}"
    head = f"const hlo::Index blockIdx, {places}, const long long hlo_live, {parameters}"
    text = "\n".join([f"__global__ void {name}({head}) {{", *lines, "}"]) + "\n"
    return Chunks(text, name, cut.lanes, found.span, found.count, cut.row, max(1, together))


_POSITION = "hlo_position"
_Values = dict[str, Expression]


@dataclass(frozen=True)
class _Elements:
    """Elements of a block and of all blocks (0 where each is whole), what index variables stand for in terms of the position in a block, and what is done for each element."""

    span: int
    count: int
    values: _Values
    items: list[Statement]


def _elements(kernel: Kernel, segment: Segment, body: Sequence[Statement]) -> _Elements | None:
    """The elements of a segment. Neighbours that a thread takes are elements by themselves where nothing else is done but declarations."""
    leaving = [s for s in body if isinstance(s, Leave)]
    items: list[Statement] = [s for s in body if not isinstance(s, Leave)]
    if len(leaving) > 1 or not items or any(isinstance(s, Leave) for i in items for s in walk([i])):
        return None
    count, block = 0, kernel.launch.block
    if leaving:
        first = items[0]
        if not isinstance(first, Let) or body[1] is not leaving[0]:
            return None
        highs = {
            v.high for s in walk(items) if isinstance(s, Let) for v in variables_in(s) if v.name == first.name.text
        }
        if len(highs) != 1 or ThreadText().text(leaving[0].condition) != f"{first.name.text} >= {max(highs) + 1}":
            return None
        count = max(highs) + 1
    *before, group = items
    alone = isinstance(group, Neighbours) and not group.bits and not filled(group)
    if alone and isinstance(group, Neighbours) and all(isinstance(s, Let) and s.constant for s in before):
        own = Variable(0, block * group.size - 1, _POSITION)
        values = {THREAD.text: divide(own, group.size), group.number.text: modulo(own, group.size)}
        return _Elements(block * group.size, count * group.size, values, items)
    return _Elements(block, count, {THREAD.text: Variable(0, block - 1, _POSITION)}, items)


@dataclass(frozen=True)
class _Cut:
    """How elements are cut into chunks: the most lanes, the elements of a row where chunks end with rows (else 0), and what index variables stand for."""

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
    """How many blocks are best a chunk: one, but for a loop that hands on what lanes have. It goes over memory in steps of a row, and through a chunk in each: long chunks are read as streams, and what
    they hand on stays in the first cache."""
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
    position: Expression = Variable(0, lanes - 1, _LANE)
    if found.span > lanes:
        position = add(multiply(Variable(0, found.span // lanes - 1, _CHUNK), lanes), position)
    return {name: substitute(value, {_POSITION: position}) for name, value in found.values.items()}


def _by_rows(found: _Elements, segment: Segment, row: int) -> _Values:
    """Values where a chunk is a part of a row: the position is that among the elements of all blocks, as if there were only the first."""
    total = found.count or (segment.last - segment.first) * found.span
    rows = -(-total // row)
    position: Expression = Variable(0, row - 1, _INSIDE)
    if rows > 1:
        position = add(multiply(Variable(0, rows - 1, _ROW), row), position)
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


@dataclass(eq=False)
class _Stretch:
    items: list[Statement] = field(default_factory=list)


@dataclass(eq=False)
class _Around:
    header: str
    inside: list[_Node]
    is_condition: bool = False


_Node = _Stretch | _Around | str
"""A string is a declaration that is the same for all lanes."""


class _Writer(ThreadText):
    def __init__(self, values: _Values, lanes: int, constants: set[str]) -> None:
        super().__init__()
        self.lanes, self.constants = lanes, constants
        self.by_rows = any(_INSIDE in variables_of(value) for value in values.values())
        self.full = values
        """Index variables as expressions of the block, the chunk, the lane and loop counters."""
        self.wide: set[str] = set(values) - {BLOCK.text}
        """Index variables that differ from lane to lane."""
        self.uniform: set[str] = {BLOCK.text, _CHUNK, _ROW}
        self.alike: set[str] = set()
        """Variables that are the same for all lanes, and change."""
        self.types: dict[str, str] = {}
        self.homes: dict[str, _Stretch] = {}
        self.kept: dict[str, str] = {}
        """Types of what several stretches mention, by name: it has an element per lane."""
        self.in_index = False

    def lines_of(self, items: Sequence[Statement]) -> list[str]:
        nodes = self.sequence(items)
        self.spill(nodes)
        arrays = [f"{kind} {name}_of[{self.lanes}];" for name, kind in self.kept.items()]
        return [*arrays, *self.written(nodes)]

    # ---- into stretches

    def sequence(self, items: Sequence[Statement]) -> list[_Node]:
        nodes: list[_Node] = [_Stretch()]
        for item in items:
            self.item(item, nodes)
        return nodes

    def same(self, nodes: list[_Node], line: str) -> None:
        """Put a declaration that is the same for all lanes in front of the stretch at hand."""
        nodes.insert(len(nodes) - isinstance(nodes[-1], _Stretch), line)

    def stretch_of(self, nodes: list[_Node]) -> _Stretch:
        if not isinstance(nodes[-1], _Stretch):
            nodes.append(_Stretch())
        assert isinstance(nodes[-1], _Stretch)
        return nodes[-1]

    def item(self, item: Statement, nodes: list[_Node]) -> None:
        match item:
            case Let():
                self.let_item(item, nodes)
            case Block(None | Code(pieces=()), body, _):
                for inner in body:
                    self.item(inner, nodes)
            case Block(condition, body, otherwise) if self.is_same(condition):
                nodes.append(_Around(f"if ({self.text(condition)})", self.sequence(body), True))
                if otherwise:
                    nodes.append(_Around("else", self.sequence(otherwise)))
            case Walk():
                self.item(walked(item), nodes)
            case For(name=None, carries=True):
                nodes.append(_Around("for (;;)", self.sequence(item.body)))
            case Break(condition) if self.is_same(condition):
                nodes.append(f"if ({self.text(condition)}) break;")
            case Assign(Code(pieces=(Name(text=text),)), value) if text in self.alike:
                self.assign_alike(text, value, nodes)
            case For(kind, Name() as name, first):
                if not self.around(item, f"for ({kind} {name.text} = {self.text(first)}; ", nodes):
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

    def assign_alike(self, name: str, value: Code, nodes: list[_Node]) -> None:
        """A variable that is the same for all lanes takes a new value, once what stands before has read the old one."""
        if not self.is_same(value):
            raise UnknownError("a variable of all lanes that gets the value of one")
        nodes.append(f"{name} = {self.text(value)};")

    def let_item(self, item: Let, nodes: list[_Node]) -> None:
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
        stretch = self.stretch_of(nodes)
        self.types[name], self.homes[name] = item.kind, stretch
        stretch.items.append(item)

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

    def around(self, loop: For, head: str, nodes: list[_Node]) -> bool:
        """Put a loop around loops over lanes where it is the same for all, and holds conditions that are, or hands on what lanes have: then it keeps that in arrays, for compilers
        make no vectors of loops in loops over lanes that read and write memory."""
        assert loop.name is not None
        if not loop.carries and not any(isinstance(s, Block) and s.condition for s in walk(loop.body)):
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
        if loop.carries or _has_condition(inside):
            nodes.append(_Around(f"{head}{self.text(loop.test)}; {self.text(loop.step)})", inside))
            return True
        self.full, self.wide, self.uniform, self.types, self.homes = saved  # type: ignore[assignment]  # as they were
        return False

    def spill(self, nodes: Sequence[_Node]) -> None:
        """Give an array to each variable that another stretch than its own mentions."""
        for node in nodes:
            if isinstance(node, _Around):
                self.spill(node.inside)
            elif isinstance(node, _Stretch):
                for name in sorted(n.text for n in names_in(node.items)):
                    home = self.homes.get(name)
                    if home is not None and home is not node:
                        if not self.types[name]:
                            raise UnknownError("an array that several stretches mention")
                        self.kept[name] = self.types[name]

    # ---- text

    def written(self, nodes: Sequence[_Node]) -> Iterator[str]:
        for node in nodes:
            if isinstance(node, str):
                yield node
            elif isinstance(node, _Around):
                yield f"{node.header} {{"
                yield from self.written(node.inside)
                yield "}"
            elif node.items:
                yield "#pragma omp simd"
                yield f"for (int {_LANE} = 0; {_LANE} < hlo_live; ++{_LANE}) {{"
                if self.by_rows:
                    yield f"const {_WIDE} {_INSIDE} = {_FROM} + {_LANE};"
                for name in sorted({n.text for n in names_in(node.items)} & self.wide):
                    yield from self.declared(name, self.full[name])
                yield from self.lines(node.items)
                yield "}"

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
        try:
            return self.text(expression)
        finally:
            self.in_index = saved

    def name(self, text: str) -> str:
        if text in self.kept:
            return f"{text}_of[{_LANE}]"
        if text in self.wide:
            return _clean(text) if self.in_index else f"{_clean(text)}_value"
        return text

    def cell(self, array: Name, index: Code) -> str:
        if array in self.scalars:
            return self.name(array.text)
        return f"{self.name(array.text)}[{self.text_plain(index)}]"

    def statement(self, statement: Statement) -> Iterator[str]:
        """One statement. Index variables of loops in a lane's body are like those of the lane."""
        if isinstance(statement, Let) and statement.name.text not in self.homes and self.is_nested_place(statement):
            name = statement.name.text
            self.full[name] = self.full_of(statement)
            self.wide.add(name)
            yield from self.declared(name, self.full[name])
            return
        yield from super().statement(statement)

    def is_nested_place(self, item: Let) -> bool:
        return item.is_index and item.constant and item.expression is not None

    def let(self, let: Let) -> str:
        name = let.name.text
        if name in self.kept:
            return f"{self.name(name)} = {self.text(let.value)};"
        if let.is_index and let.kind == "int":
            return f"const {_WIDE} {name} = {self.text_plain(let.value)};" if let.constant else super().let(let)
        return f"{'const ' * let.constant}{let.kind} {self.name(name)} = {self.text(let.value)};"


def _is_narrow(value: Expression) -> bool:
    return value.low >= -_NARROW and value.high < _NARROW


def _clean(name: str) -> str:
    return name.replace(".", "_")


def _has_condition(nodes: Sequence[_Node]) -> bool:
    return any(isinstance(node, _Around) and (node.is_condition or _has_condition(node.inside)) for node in nodes)
