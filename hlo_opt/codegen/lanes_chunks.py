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
    Do,
    For,
    Leave,
    Let,
    Neighbours,
    Note,
    Segment,
    Statement,
    Walk,
    names_in,
    walk,
)
from hlo_opt.ir.index_map import Expression, Variable, add, divide, modulo, multiply, substitute, variables_of
from hlo_opt.ops.code import Cell, Code, Function, Name, code

_WIDE = "long long"
_CHUNK, _LANE = "hlo_chunk", "hlo_lane"
_LEAST = 8
"""Lanes of the shortest chunk that is worth what is done once in it."""
_NARROW = 1 << 31


class UnknownError(Exception):
    """The kernel has something that chunks cannot follow."""


@dataclass(frozen=True)
class Chunks:
    """A function of a chunk: its text and name, lanes of a chunk, elements of a block, and of all blocks where the last one may have fewer, else 0."""

    text: str
    name: str
    lanes: int
    span: int
    count: int


def chunks_of(kernel: Kernel, segment: Segment, name: str, parameters: str) -> Chunks | None:
    """The function of a chunk of a segment's blocks; None for what chunks cannot follow."""
    body: list[Statement] = [s for s in segment.body if not isinstance(s, Aligned | Note)]
    found = _elements(kernel, segment, body)
    if found is None:
        return None
    span, count, start, items = found
    constants = {p.name.text for p in kernel.tree.parameters if p.constant}
    lanes = _lanes(span, start, items)
    try:
        lines = _Writer(_split(start, span, lanes), lanes, constants).lines_of(items)
    except UnknownError:
        return None
    head = f"const hlo::Index blockIdx, const long long {_CHUNK}, const long long hlo_live, {parameters}"
    first = f"const long long hlo_block = blockIdx.x - {segment.first};"
    text = "\n".join([f"__global__ void {name}({head}) {{", first, *lines, "}"]) + "\n"
    return Chunks(text, name, lanes, span, count)


_POSITION = "hlo_position"
_Start = dict[str, Expression]
"""What variables stand for, in terms of the position in a block."""


def _elements(
    kernel: Kernel, segment: Segment, body: Sequence[Statement]
) -> tuple[int, int, _Start, list[Statement]] | None:
    """Elements of a block and of all blocks (0 where each is whole), what index variables stand for, and what is done for each element. Neighbours that a thread takes are elements by
    themselves where nothing else is done but declarations."""
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
    position = Variable(0, block - 1, _POSITION)
    *before, group = items
    alone = isinstance(group, Neighbours) and not group.bits and not filled(group)
    if alone and isinstance(group, Neighbours) and all(isinstance(s, Let) and s.constant for s in before):
        own = Variable(0, block * group.size - 1, _POSITION)
        start = {THREAD.text: divide(own, group.size), group.number.text: modulo(own, group.size)}
        return block * group.size, count * group.size, start, items
    return block, count, {THREAD.text: position}, items


def _split(start: _Start, span: int, lanes: int) -> _Start:
    lane = Variable(0, lanes - 1, _LANE)
    position: Expression = lane
    if span > lanes:
        position = add(multiply(Variable(0, span // lanes - 1, _CHUNK), lanes), lane)
    return {name: substitute(value, {_POSITION: position}) for name, value in start.items()}


def _lanes(span: int, start: _Start, items: Sequence[Statement]) -> int:
    """Lanes of a chunk: as many as leave the fewest digits that differ from lane to lane."""
    lets = [s for s in walk(items) if isinstance(s, Let) and s.is_index and s.expression is not None]
    best, fewest = span, -1
    lanes = span
    while lanes >= _LEAST:
        full = _split(start, span, lanes)
        differing = 0
        for let in lets:
            assert let.expression is not None
            full[let.name.text] = value = substitute(let.expression, full)
            differing += sum(_LANE in variables_of(digit) for digit in digits_in(value))
        if fewest < 0 or differing < fewest:
            best, fewest = lanes, differing
        if not fewest or lanes % 2:
            break
        lanes //= 2
    return best


@dataclass(eq=False)
class _Stretch:
    items: list[Statement] = field(default_factory=list)


@dataclass(eq=False)
class _Around:
    header: str
    inside: list[_Node]


_Node = _Stretch | _Around | str
"""A string is a declaration that is the same for all lanes."""


class _Writer(ThreadText):
    def __init__(self, values: _Start, lanes: int, constants: set[str]) -> None:
        super().__init__()
        self.lanes, self.constants = lanes, constants
        self.full = values
        """Index variables as expressions of the block, the chunk, the lane and loop counters."""
        self.wide: set[str] = set(values)
        """Index variables that differ from lane to lane."""
        self.uniform: set[str] = {BLOCK.text, _CHUNK, "hlo_block"}
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
                nodes.append(_Around(f"if ({self.text(condition)})", self.sequence(body)))
                if otherwise:
                    nodes.append(_Around("else", self.sequence(otherwise)))
            case Walk():
                self.item(walked(item), nodes)
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

    def let_item(self, item: Let, nodes: list[_Node]) -> None:
        name = item.name.text
        if self.is_place(item):
            self.full[name] = full = self.full_of(item)
            if _LANE in variables_of(full):
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
        """Put a loop around loops over lanes where it is the same for all and holds conditions that are."""
        assert loop.name is not None
        if not any(isinstance(s, Block) and s.condition for s in walk(loop.body)):
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
        if _has_condition(inside):
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
                for name in sorted({n.text for n in names_in(node.items)} & self.wide):
                    yield from self.declared(name, self.full[name])
                yield from self.lines(node.items)
                yield "}"

    def declared(self, name: str, full: Expression) -> Iterator[str]:
        """An index, as wide as addresses are, and where it is a value as narrow as may be."""
        clean = _clean(name)
        yield f"const {_WIDE} {clean} = {self.index_text(full)};"
        narrow = full.low >= -_NARROW and full.high < _NARROW
        yield f"const {'int' if narrow else _WIDE} {clean}_value = {'(int)' if narrow else ''}({clean});"

    def index_text(self, full: Expression) -> str:
        """An index. Digits that differ from lane to lane are found in 32 bits, which vector units divide."""

        def digit(found: Expression) -> Code:
            left: Expression = found.left  # type: ignore[attr-defined]  # a quotient or a remainder
            inner = render(left, digit)
            narrow = _LANE in variables_of(left) and left.low >= 0 and left.high < _NARROW
            return code("({})", digit_text(found, code("((unsigned int)({}))" if narrow else "({})", inner)))

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


def _clean(name: str) -> str:
    return name.replace(".", "_")


def _has_condition(nodes: Sequence[_Node]) -> bool:
    return any(
        isinstance(node, _Around) and (node.header.startswith("if") or _has_condition(node.inside)) for node in nodes
    )
