"""Kernels whose threads meet, as loops over the threads of a block: one loop for each stretch between two meetings.

What a thread keeps from one stretch to the next lies in an array with an element per thread; a shuffle reads another thread's element. Loops and conditions that contain
a meeting must be the same for all threads of a block, and so run around the loops over the threads (J. Stratton et al., "MCUDA: An Efficient Implementation
of CUDA Kernels for Multi-Core CPUs", 2008). A loop in which each thread walks elements that lie a stride apart is turned inside out: neighbouring threads
then read neighbouring elements in one vector.

The text is that of our emitters, a statement per line. What this does not understand it leaves to fibres: `loops_of` is then None.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hlo_opt.codegen.host_sorts import MARK
from hlo_opt.codegen.host_threads import DECLARATION, TYPE, UNKNOWN, WARP, greatest, lanes_of, taken_apart
from hlo_opt.codegen.host_vectors import rejoined

_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_SHARED = re.compile(r"__shared__ (?:__align__\(\d+\) )?(?P<type>[\w ]+?) (?P<name>\w+)(?P<size>(?:\[\d+\])+);")
_STRIDED = re.compile(
    rf"for \((?P<type>{TYPE}) (?P<name>\w+) = (?P<start>\w+(?:\.x)?); (?P=name) < (?P<end>\w+); (?P=name) \+= (?P<step>\w+)\)"
)
_ROUNDS = re.compile(r"for \(int (?P<name>\w+) = 0; (?P=name) < (?P<count>\d+); \+\+(?P=name)\)")
_BANK = re.compile(rf"(?P<type>{TYPE}) (?P<name>\w+)\[(?P<size>\d+)\];")
_COUNTED = re.compile(rf"for \((?P<type>{TYPE}) (?P<name>\w+) = [^;]*; [^;]*; [^;]*\)")
_INDEX = r"(?:int|long long)"
_LEAVE = re.compile(r"if \((?P<condition>.*)\) return;")
_MEETING = re.compile(r"\b(__sync\w*|__shfl\w*|__ballot\w*|__any\w*|__all\w*|__reduce\w*)\(")
_SHUFFLE = re.compile(r"\b__shfl(?P<kind>|_down|_up|_xor)_sync\(")
_VOTE = re.compile(r"\b__(?P<kind>ballot|any|all)_sync\(")
_ALIGNED = re.compile(r"\w+ = \([^;]*\)__builtin_assume_aligned\([^;]*\);")
_APART = re.compile(r"\bhlo::(?:arrive|fence)\(|\bvolatile\b")
"""What a thread does without others beside it."""
_REGISTER = re.compile(rf"(?:\((?P<cast>{TYPE})\))?(?P<name>\w+)")
_FILLS = re.compile(r"\bhlo_fill_\d+\(")
_KEYWORDS = frozenset(["const", "unsigned", "signed", "bool", "char", "short", "int", "long", "float", "double"])
_INDICES = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim"})


class _UnknownError(Exception):
    """The text has something that loops cannot follow."""


@dataclass
class _Block:
    """Statements between braces."""

    header: str
    body: list[str | _Block]

    def lines(self) -> Iterator[str]:
        yield f"{self.header} {{"
        for item in self.body:
            yield from item.lines() if isinstance(item, _Block) else (item,)
        yield "}"


_Item = str | _Block

_WHOLE, _PART = "const bool hlo_whole = true;", "const bool hlo_whole = false;"
"""Whether all threads have an element in a round of a strided loop."""


@dataclass
class _Stretch:
    """Statements that every thread does without meeting another."""

    items: list[_Item] = field(default_factory=list)
    is_bounded: bool = False
    """Whether only the first `hlo_live` threads do them."""

    @property
    def text(self) -> str:
        return "\n".join(
            line for item in self.items for line in (item.lines() if isinstance(item, _Block) else (item,))
        )


@dataclass
class _Around:
    """A loop or a condition that is the same for all threads, around stretches."""

    header: str
    inside: list[_Node]


@dataclass
class _Vector:
    """Neighbouring elements that a thread takes at a time: a loop over their numbers."""

    header: str
    number: str
    element: str
    size: str
    body: list[_Item]


@dataclass
class _Walk:
    """A loop of a thread over `start`, `start + step`, ... up to `end`. `counter` numbers them where it is not empty."""

    name: str
    start: str
    end: str
    step: str
    counter: str
    body: list[_Item]

    @property
    def vector(self) -> _Vector | None:
        """Where all that a round does is a loop over neighbours."""
        if len(self.body) != 1 or not isinstance(self.body[0], _Block):
            return None
        block = self.body[0]
        found = _ROUNDS.fullmatch(block.header)
        if found is None or not isinstance(block.body[0], str):
            return None
        number, size = found["name"], found["count"]
        first = re.fullmatch(rf"const {_INDEX} (\w+) = {self.name} \* {size} \+ {number};", block.body[0])
        if first is None:
            return None
        body = [_rejoined(item, self.name, size, number, first[1]) for item in block.body[1:]]
        return _Vector(block.header, number, first[1], size, body)


_Node = _Stretch | _Around | str
"""A string is a statement that is the same for all threads."""


def loops_of(signature: str, body: str, block: int, simd: bool, grid: int = 1 << 62) -> str | None:
    """The function `signature` with the body of a kernel for all threads of a block of that size, one of `grid`; None where the body is not understood."""
    try:
        keeps_neighbours = _FILLS.search(body) is not None
        return _Writer(block, simd, grid, keeps_neighbours).function(signature, _parsed(body))
    except _UnknownError:
        return None


def _parsed(body: str) -> list[_Item]:
    top = _Block("", [])
    stack = [top]
    for raw in body.splitlines():
        line = raw.split("//")[0].strip()
        if not line or line.startswith("#pragma unroll"):
            continue
        if line.endswith("{") and line.count("{") == 1 and "}" not in line:
            inner = _Block(line[:-1].strip(), [])
            stack[-1].body.append(inner)
            stack.append(inner)
        elif line == "}" and len(stack) > 1:
            stack.pop()
        elif line.endswith(";") and "{" not in line and "}" not in line:
            stack[-1].body.append(line)
        else:
            raise _UnknownError(line)
    if len(stack) != 1:
        raise _UnknownError("braces")
    return top.body


def _text(item: _Item) -> str:
    return "\n".join(item.lines()) if isinstance(item, _Block) else item


def _meets(item: _Item) -> bool:
    return _MEETING.search(_text(item)) is not None


class _Writer:
    def __init__(self, block: int, simd: bool, grid: int, keeps_neighbours: bool) -> None:
        """`keeps_neighbours`: threads write bytes that hold several elements, and so must have those in all rounds."""
        self.block, self.simd, self.grid, self.keeps_neighbours = block, simd, grid, keeps_neighbours
        self.bounds: dict[str, int] = {}
        """What uniform indices are at most, by name."""
        self.pure: dict[str, str] = {}
        """Constants of a thread that are cheap to compute again in each stretch: their declarations, by name."""
        self.uniform: set[str] = set()
        """Constants and counters that are the same for all threads."""
        self.types: dict[str, str] = {}
        self.homes: dict[str, _Stretch] = {}
        """Where a thread's variable is declared."""
        self.shared: list[str] = []
        self.arrays: dict[str, str] = {}
        """Types of what has an element per thread, by name."""
        self.banks: dict[str, str] = {}
        """Types and sizes of each thread's own arrays, by name."""
        self.leaves = False
        self.left = False
        """Whether a stretch has been written in which threads leave."""
        self.current = _Stretch()
        self.made = 0

    # ---- into stretches

    def function(self, signature: str, items: Sequence[_Item]) -> str:
        nodes = self.sequence(items)
        self.spill(nodes)
        lines = [f"{signature} {{", *self.shared]
        lines += [f"{kind} {name}_of[{self.block}];" for name, kind in self.arrays.items()]
        lines += [f"{bank}[{self.block}];" for bank in self.banks.values()]
        if self.leaves:
            lines.append(f"unsigned char hlo_left[{self.block}] = {{}};")
        lines += self.written(nodes)
        lines.append("}")
        return "\n".join(lines) + "\n"

    def sequence(self, items: Sequence[_Item]) -> list[_Node]:
        nodes: list[_Node] = []
        outer, self.current = self.current, _Stretch()
        for item in items:
            self.item(item, nodes)
        self.flush(nodes)
        self.current = outer
        return nodes

    def flush(self, nodes: list[_Node]) -> None:
        if self.current.items:
            nodes.append(self.current)
        self.current = _Stretch()

    def item(self, item: _Item, nodes: list[_Node]) -> None:
        if isinstance(item, _Block):
            self.compound(item, nodes)
            return
        shared = _SHARED.fullmatch(item)
        if shared is not None:
            self.declare(shared["name"], shared["type"])
            self.shared.append(f"{shared['type']} {shared['name']}{shared['size']};")
            self.uniform.add(shared["name"])
            return
        if item == "hlo::fence();":
            self.flush(nodes)
            nodes.append(item)
            return
        if re.fullmatch(r"__sync(?:threads|warp)\([\w]*\);", item):
            self.flush(nodes)
            return
        if item == MARK:  # what a block does once
            self.flush(nodes)
            nodes.append(item)
            return
        if "__shared__" in item:
            raise _UnknownError(item)
        bank = _BANK.fullmatch(item)
        if bank is not None:
            self.declare(bank["name"], bank["type"])
            self.banks[bank["name"]] = f"{bank['type']} {bank['name']}_of[{bank['size']}]"
            return
        if _ALIGNED.fullmatch(item):
            self.flush(nodes)
            nodes.append(item)
            return
        leave = _LEAVE.fullmatch(item)
        if leave is not None and self.is_shared(leave["condition"]):  # all threads leave, or none
            self.flush(nodes)
            nodes.append(item)
            return
        if leave is not None:
            self.leaves = True
            self.current.items.append(f"if ({leave['condition']}) {{ hlo_left[hlo_thread] = 1; continue; }}")
            self.flush(nodes)
            return
        if re.search(r"\breturn\b", item):
            raise _UnknownError(item)
        declared = DECLARATION.fullmatch(item)
        if declared is not None:
            self.declare(declared["name"], declared["type"])
            if self.is_pure(declared):
                item = _widened(item)
                if self.is_uniform(declared["value"]):
                    self.flush(nodes)
                    nodes.append(item)
                    self.bounds[declared["name"]] = self.most(declared["value"]) - 1
                    self.uniform.add(declared["name"])
                else:
                    self.pure[declared["name"]] = item
                return
        if _MEETING.search(item):
            item = self.exchanged(item, nodes)
        if declared is not None:
            self.homes[declared["name"]] = self.current
        self.current.items.append(item)

    def declare(self, name: str, kind: str) -> None:
        if name in self.types or name.startswith("hlo_") or name in _INDICES:
            raise _UnknownError(f"{name} again")
        self.types[name] = kind.removeprefix("const ")

    def is_pure(self, declared: re.Match[str]) -> bool:
        """Whether a declaration is a constant of indices alone."""
        if not declared["type"].startswith("const ") or not re.fullmatch(
            r"[\w\s.+\-*/%()?:<>=!&|]*", declared["value"]
        ):
            return False
        known = _KEYWORDS | _INDICES | self.pure.keys() | self.uniform
        return all(word in known for word in _WORD.findall(declared["value"])) and "float" not in declared["type"]

    def is_uniform(self, text: str) -> bool:
        known = _KEYWORDS | (_INDICES - {"threadIdx"}) | self.uniform
        return "[" not in text and all(word in known for word in _WORD.findall(text))

    def is_shared(self, text: str) -> bool:
        """Whether a condition is the same for all threads, given that none writes the shared memory that it reads."""
        of_shared = {text.partition("[")[0].rpartition(" ")[2] for text in self.shared}
        plain = re.sub(r"\b(\w+)\[\d+\]", lambda m: "0" if m[1] in of_shared else m[0], text)
        return self.is_uniform(plain)

    def compound(self, block: _Block, nodes: list[_Node]) -> None:
        if not _meets(block):
            if re.search(r"\breturn\b", _text(block)):
                raise _UnknownError("return")
            walk = self.walk_of(block)
            if walk is not None:
                self.flush(nodes)
                nodes.append(self.inside_out(walk))
            else:
                self.current.items.append(block)
            return
        counted = _COUNTED.fullmatch(block.header)
        header = block.header
        if counted is not None:
            self.declare(counted["name"], counted["type"])
            self.uniform.add(counted["name"])
            header = header.removeprefix("for ").replace(";", " ").replace("(", " ")
        elif re.fullmatch(r"if \(.*\)", header):
            header = header.removeprefix("if ")
        elif header not in ("", "else"):
            raise _UnknownError(header)
        if header and header != "else" and not self.is_uniform(header):
            raise _UnknownError(header)
        if any(isinstance(i, str) and _LEAVE.fullmatch(i) for i in block.body) and counted is not None:
            raise _UnknownError("return in a loop")
        self.flush(nodes)
        nodes.append(_Around(block.header, self.sequence(block.body)))

    def walk_of(self, block: _Block) -> _Walk | None:
        """A loop in which a thread walks elements that lie a stride apart; None for others."""
        strided, rounds = _STRIDED.fullmatch(block.header), _ROUNDS.fullmatch(block.header)
        if strided is not None:
            walk = _Walk(strided["name"], strided["start"], strided["end"], strided["step"], "", block.body)
        elif rounds is not None and isinstance(block.body[0], str):
            first = re.fullmatch(rf"const {_INDEX} (\w+) = (\w+) \+ {rounds['name']} \* (\d+);", block.body[0])
            if first is None:
                return None
            end, inside = str(int(rounds["count"]) * int(first[3])), block.body[1:]
            if len(inside) == 1 and isinstance(inside[0], _Block):
                last = re.fullmatch(rf"if \({first[1]} < (\d+)\)", inside[0].header)
                end, inside = (end, inside) if last is None else (last[1], inside[0].body)
            walk = _Walk(first[1], first[2], end, first[3], rounds["name"], inside)
        else:
            return None
        own = walk.start == "threadIdx.x" or walk.start in self.pure
        return walk if own and all(text.isdigit() or text in self.uniform for text in (walk.end, walk.step)) else None

    def inside_out(self, walk: _Walk) -> _Around:
        """The loop around the threads instead of in each. Threads that take neighbouring elements at a time take, here, elements that lie as far apart as there are threads:
        which thread has which of a round's does not matter as long as it keeps them."""
        name, kind, end, step = walk.name, "long long", walk.end, walk.step
        self.declare(name, kind)
        base = f"hlo_base{self.made}"
        self.made += 1
        stretch = _Stretch([f"const {kind} {name} = {walk.start} + {base};"])
        before = self.before(walk.start)
        if before is None:
            stretch.items.append(f"if (!hlo_whole && !({name} < {end})) continue;")
        else:
            stretch.is_bounded = True
        body, node = walk.body, _Around("", [stretch])
        vector = None if self.keeps_neighbours else walk.vector
        if vector is not None:
            self.declare(vector.number, "int")
            self.uniform.add(vector.number)
            self.declare(vector.element, kind)
            self.homes[vector.element] = stretch
            width = f"(hlo_whole || {end} - {base} > {step} ? {step} : {end} - {base})"
            stretch.items.append(
                f"const {kind} {vector.element} = {base} * {vector.size} + {vector.number} * {width} + {walk.start};"
            )
            body, node = vector.body, _Around(vector.header, [stretch])
        stretch.items += body
        self.homes[name] = stretch
        for item in body:
            declared = DECLARATION.fullmatch(item) if isinstance(item, str) else None
            if declared is not None:
                self.declare(declared["name"], declared["type"])
                self.homes[declared["name"]] = stretch
        whole = 0
        if end.isdigit() and step.isdigit() and self.most(walk.start) <= int(step):
            whole = int(end) // int(step) * int(step)  # up to there every thread has an element
            stretch.items = [_first_round(item, f"{name} < {step}", f"{base} == 0") for item in stretch.items]
        if walk.counter:
            self.declare(walk.counter, "int")
            self.uniform.add(walk.counter)

        def part(low: int, high: str, is_whole: str) -> _Around:
            inside: list[_Node] = [is_whole, node]
            if before is not None:
                rest, block = f"{end} - {base} - ({before})", self.block
                live = f"{rest} < 0 ? 0 : {rest} < {block} ? {rest} : {block}"
                inside.insert(1, f"const {kind} hlo_live = {block if is_whole == _WHOLE else live};")
            if walk.counter:
                inside.insert(0, f"const int {walk.counter} = {base} / {step};")
            return _Around(f"for ({kind} {base} = {low}; {base} < {high}; {base} += {step})", inside)

        parts: list[_Node] = [part(0, str(whole), _WHOLE)] if whole else []
        if not end.isdigit() or whole < int(end):
            parts.append(part(whole, end, _PART))
        return _Around("", parts)

    def before(self, start: str) -> str | None:
        """What is the same for all threads in an index that is the thread's and something more; None for any other index."""
        declared = DECLARATION.fullmatch(self.pure.get(start, ""))
        text = start if declared is None else declared["value"]
        more, _, own = text.rpartition(" + ")
        declared = DECLARATION.fullmatch(self.pure.get(own, ""))
        if "threadIdx.x" not in (own, "" if declared is None else declared["value"]):
            return None
        return (more or "0") if self.is_uniform(more) else None

    def most(self, start: str) -> int:
        """A bound that an index is below: an expression of indices, none of which is negative."""
        known = {"threadIdx.x": self.block - 1, "blockIdx.x": self.grid - 1, **self.bounds}
        found = greatest(start, known, self.pure)
        return UNKNOWN if found is None else found + 1

    def exchanged(self, statement: str, nodes: list[_Node]) -> str:
        """The statement with other threads' values read from an array that the stretch before it fills."""
        shuffle, vote = _SHUFFLE.search(statement), _VOTE.search(statement)
        found = shuffle or vote
        if found is None or len(_MEETING.findall(statement)) != 1 or re.match(r"(?:if|for|while)\b", statement):
            raise _UnknownError(statement)
        arguments, end = _arguments(statement, found.end())
        store = f"hlo_shown{self.made}"
        self.made += 1
        if shuffle is not None:
            register = _REGISTER.fullmatch(arguments[1])
            if register is None or register["name"] not in self.types:
                raise _UnknownError(statement)
            self.arrays[store] = register["cast"] or self.types[register["name"]]
            width = arguments[3] if len(arguments) > 3 else str(WARP)
            other = f"hlo::lane{shuffle['kind'] or '_at'}((int)hlo_lane, (int)({arguments[2]}), {width})"
            text = f"{store}_of[hlo_first + {other}]"
        else:
            self.arrays[store] = "unsigned char"
            text = f"hlo::{found['kind']}({store}_of + hlo_first, {arguments[0]})"
        shown = arguments[1] if shuffle is not None else f"({arguments[1]}) ? 1 : 0"
        self.current.items.append(f"{store}_of[hlo_thread] = {shown};")
        self.flush(nodes)
        return statement[: found.start()] + text + statement[end:]

    # ---- out of stretches

    def spill(self, nodes: Sequence[_Node]) -> None:
        """Give an array to each variable that another stretch than its own mentions."""
        for node in nodes:
            if isinstance(node, _Around):
                self.spill(node.inside)
            elif isinstance(node, _Stretch):
                for word in dict.fromkeys(_WORD.findall(node.text)):
                    home = self.homes.get(word)
                    if home is not None and home is not node:
                        self.arrays.setdefault(word, self.types[word])

    def written(self, nodes: Sequence[_Node]) -> Iterator[str]:
        for node in nodes:
            if isinstance(node, str):
                yield node
            elif isinstance(node, _Around):
                yield f"{node.header} {{"
                yield from self.written(node.inside)
                yield "}"
            else:
                yield from self.stretch(node)

    def stretch(self, node: _Stretch) -> Iterator[str]:
        needed: set[str] = set()
        todo = _WORD.findall(node.text)
        while todo:
            word = todo.pop()
            if word in self.pure and word not in needed:
                needed.add(word)
                todo.extend(_WORD.findall(self.pure[word]))
        pure = [declaration for name, declaration in self.pure.items() if name in needed]
        lanes = lanes_of("\n".join([*pure, node.text]))
        end = "hlo_live" if node.is_bounded else str(self.block)
        last, rest = str(lanes), f"{end} - hlo_first"
        if node.is_bounded or self.block % lanes:
            whole = "hlo_whole || " if self.block % lanes == 0 else ""
            last = f"({whole}{rest} >= {lanes} ? {lanes} : {rest})"
        yield f"for (long long hlo_first = 0; hlo_first < {end}; hlo_first += {lanes})"
        if self.simd and not _APART.search(node.text):
            yield "#pragma omp simd"
        yield f"for (long long hlo_lane = 0; hlo_lane < {last}; ++hlo_lane) {{"
        yield "const long long hlo_thread = hlo_first + hlo_lane;"
        if self.left:
            yield "if (hlo_left[hlo_thread]) continue;"
        self.left |= "hlo_left[hlo_thread] = 1;" in node.text
        for line in (*pure, *node.text.splitlines()):
            yield self.line(line, lanes)
        yield "}"

    def line(self, text: str, lanes: int) -> str:
        """A statement of a thread: its variables in their arrays, its index taken apart."""
        declared = DECLARATION.fullmatch(text)
        if declared is not None and declared["name"] in self.arrays:
            text = text[declared.start("name") :]
        text = self.banked(text)
        text = _WORD.sub(lambda m: f"{m[0]}_of[hlo_thread]" if m[0] in self.arrays else m[0], text)
        return taken_apart(text, lanes)

    def banked(self, text: str) -> str:
        """The statement with each thread's own arrays next to the other threads'."""
        for name in self.banks:
            start = 0
            while (found := re.compile(rf"(?<![\w.]){name}\[").search(text, start)) is not None:
                index, end = _arguments(text, found.end())
                text = f"{text[: found.start()]}{name}_of[{index[0]}][hlo_thread]{text[end:]}"
                start = found.start() + len(name) + len("_of[")
        return text


def _rejoined(item: _Item, first: str, size: str, number: str, position: str) -> _Item:
    if isinstance(item, str):
        return rejoined(item, first, int(size), number, position)
    return _Block(item.header, [_rejoined(i, first, size, number, position) for i in item.body])


def _first_round(item: _Item, test: str, stands_for: str) -> _Item:
    """The statement with the test for a loop's first round as one that is the same for all threads."""
    if isinstance(item, str):
        return re.sub(rf"(?<![\w.]){re.escape(test)}\b", stands_for, item)
    header = re.sub(rf"(?<![\w.]){re.escape(test)}\b", stands_for, item.header)
    return _Block(header, [_first_round(i, test, stands_for) for i in item.body])


def _widened(declaration: str) -> str:
    """An index of 64 bits: the compiler then need not prove that sums of indices do not wrap to see that addresses are neighbours."""
    return re.sub(r"^const int ", "const long long ", declaration)


def _arguments(text: str, start: int) -> tuple[list[str], int]:
    """The arguments of a call from behind its parenthesis, and the position behind the closing one."""
    depth, begin, found = 1, start, []
    for position in range(start, len(text)):
        letter = text[position]
        depth += (letter in "([") - (letter in ")]")
        if depth == 0 or (depth == 1 and letter == ","):
            found.append(text[begin:position].strip())
            begin = position + 1
        if depth == 0:
            return found, position + 1
    raise _UnknownError(text)
