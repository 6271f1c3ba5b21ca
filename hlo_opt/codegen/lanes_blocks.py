"""Kernels whose threads meet, as loops over the threads of a block: one loop for each stretch between two meetings.

What a thread keeps from one stretch to the next lies in an array with an element per thread; a shuffle reads another thread's element. Loops and conditions that contain
a meeting must be the same for all threads of a block, and so run around the loops over the threads (J. Stratton et al., "MCUDA: An Efficient Implementation
of CUDA Kernels for Multi-Core CPUs", 2008). A loop in which each thread walks elements that lie a stride apart is turned inside out: neighbouring threads
then read neighbouring elements in one vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from hlo_opt.codegen.lanes_merges import merges
from hlo_opt.codegen.lanes_stretches import Around, Node, Step, Stretch, stretches
from hlo_opt.codegen.lanes_text import (
    WIDER,
    ThreadText,
    declared_in,
    digits_in,
    divisors,
    index_names,
    inlined,
    only_first,
    places_of,
    variable_of,
)
from hlo_opt.codegen.lanes_walks import walk_lines
from hlo_opt.codegen.statements import BLOCK, THREAD
from hlo_opt.codegen.threads import leaves, meets, meets_in_grid
from hlo_opt.codegen.tree import (
    Aligned,
    Array,
    Assign,
    Barrier,
    Block,
    Break,
    Chain,
    Fence,
    For,
    GridBarrier,
    Leave,
    Let,
    Neighbours,
    Network,
    Note,
    Segment,
    Statement,
    Walk,
    codes_of,
    functions_in,
    names_in,
    walk,
)
from hlo_opt.ir.index_map import Expression, Variable, add, constant, multiply, substitute, variables_of
from hlo_opt.ops.code import Cell, Code, FirstRound, Name, Part, Shuffle, of

WARP = 32
_WIDE = "long long"
_GROUP, _LANE, _EACH = "hlo_group", "hlo_lane", "hlo_block"
_QUARTERS = frozenset({"double", "hlo_complex<float>"})
"""Types of which 4 fill a vector of 32 bytes."""
_WHOLE, _PART = "const bool hlo_whole = true;", "const bool hlo_whole = false;"
"""Whether all threads have an element in a round of a strided loop."""


class UnknownError(Exception):
    """The kernel has something that loops cannot follow."""


def block_function(
    signature: str,
    body: Sequence[Statement],
    block: int,
    *,
    simd: bool,
    counts: bool = False,
    chosen: str = "",
    grid: int = 0,
    handed: Set[str] = frozenset(),
) -> str | None:
    """The function `signature` with the body of a kernel for all threads of a block of that size; None where loops cannot follow it. `chosen` are its first lines. With `simd`, threads
    that do not meet go side by side; with `counts`, blocks count themselves on several processors. `grid`: blocks that wait for each other, of which the function runs all; else it
    runs one. `handed`: pointers to what such blocks hand to each other."""
    try:
        return _Writer(block, simd, counts, grid).function(signature, body, chosen, handed)
    except UnknownError:
        return None


class _Writer(ThreadText):
    def __init__(self, block: int, simd: bool, counts: bool, grid: int) -> None:
        super().__init__({}, {"atomicAdd": "hlo::arrive"} if counts else {})
        self.block, self.simd, self.grid = block, simd, grid
        self.fills = False
        """Whether threads write bytes that hold several elements, and so must have those in all rounds."""
        self.pure: dict[str, Let] = {}
        """Constants of a thread that are cheap to compute again in each stretch."""
        self.full: dict[str, Expression] = {}
        """Index constants as expressions of the thread, the block and loop counters."""
        self.uniform: set[str] = {BLOCK.text}
        """Constants and counters that are the same for all threads."""
        self.types: dict[str, str] = {}
        self.homes: dict[str, Stretch] = {}
        """Where a thread's variable is declared."""
        self.shared: list[Array] = []
        self.arrays_of: dict[str, str] = {}
        """Types of what has an element per thread, by name."""
        self.handed: list[str] = []
        """Declarations of what threads hand on."""
        self.banks: dict[str, Array] = {}
        """Each thread's own arrays, by name."""
        self.shown: dict[int, str] = {}
        """Where the register that a statement reads from another thread is found, by the statement."""
        self.keeps_leaves = self.left = False
        """Whether threads leave before others do; whether such a stretch has been written."""
        self.current = Stretch()
        self.made = 0
        self.here: dict[str, str] = {}
        """Types of what the stretch at hand keeps in registers of its own, by name."""
        self.lanes = WARP
        self.step: Step | None = None

    # ---- into stretches

    def function(self, signature: str, body: Sequence[Statement], chosen: str, handed: Set[str]) -> str:
        self.fills = "hlo_fill" in functions_in(body)
        if self.grid:  # what they wrote before they met is the same for all
            self.uniform |= handed
        nodes = self.together(body) if self.grid else self.sequence(body)
        self.spill(nodes)
        lines = [f"{signature} {{", *([chosen] if chosen else [])]
        lines += [f"{a.kind} {a.name.text}[{a.size}];" for a in self.shared]
        lines += self.handed
        beyond = set(self.shown.values())
        lines += [
            f"{WIDER.get(kind, kind)} {name}_of[{self.block + (WARP if name in beyond else 0)}];"
            for name, kind in self.arrays_of.items()
        ]
        lines += [f"{b.kind} {name}_of[{b.size}][{self.block}];" for name, b in self.banks.items()]
        lines += [f"unsigned char hlo_left[{self.block}] = {{}};"] * self.keeps_leaves
        lines += [*self.written(nodes), "}"]
        return "\n".join(lines) + "\n"

    def together(self, items: Sequence[Statement]) -> list[Node]:
        """Statements of a kernel whose blocks wait for each other: a loop over the blocks for each stretch between two meetings. One processor runs them all."""
        nodes: list[Node] = []
        run: list[Statement] = []
        for item in items:
            if not meets_in_grid([item]) and not isinstance(item, Break):
                run.append(item)
                continue
            nodes += self.all_blocks(run)
            run = []
            if isinstance(item, Break):
                nodes += self.sequence([item])
                continue
            if isinstance(item, Block | For):
                nodes.append(Around(self.header(item), self.together(item.body)))
            if not isinstance(item, GridBarrier | Block | For) or (isinstance(item, Block) and item.otherwise):
                raise UnknownError("blocks meet on their ways")
        return [*nodes, *self.all_blocks(run)]

    def all_blocks(self, items: Sequence[Statement]) -> list[Node]:
        """What each block does between two meetings."""
        if not items:
            return []
        nodes = self.sequence(items)
        own = set(stretches(nodes))
        for stretch in own:
            homes = (self.homes.get(name.text) for name in names_in(stretch.items))
            if any(home is not None and home not in own for home in homes):
                raise UnknownError("a thread keeps what it has over a meeting of all blocks")
        index = f"const hlo::Index blockIdx = {{(int){_EACH}, 0, 0}};"
        return [Around(f"for ({_WIDE} {_EACH} = 0; {_EACH} < {self.grid}; ++{_EACH})", [index, *nodes])]

    def sequence(self, items: Sequence[Statement]) -> list[Node]:
        nodes: list[Node] = []
        outer, self.current = self.current, Stretch()
        for item in self.unpeeled(items):
            self.item(item, nodes)
        self.flush(nodes)
        self.current = outer
        return nodes

    def flush(self, nodes: list[Node]) -> None:
        if self.current.items:
            nodes.append(self.current)
        self.current = Stretch()

    def item(self, item: Statement, nodes: list[Node]) -> None:
        match item:
            case Note():
                return
            case Array(kind, name, shared=shared):
                self.declare(name, kind)
                if shared:
                    self.shared.append(item)
                    self.uniform.add(name.text)
                else:
                    self.banks[name.text] = item
                return
            case Barrier():
                self.flush(nodes)
                return
            case Fence() | Aligned():
                self.flush(nodes)
                nodes.append("hlo::fence();" if isinstance(item, Fence) else next(iter(self.other(item))))
                return
            case Chain(_, handed, walking, abreast):
                self.handed += [f"{array.kind} {array.name.text}[{array.size}];" for array in handed]
                self.current.in_turn |= abreast % WARP != 0
                self.current.items.append(Block(body=walking))
                return
            case Network(merge=merge):
                self.flush(nodes)
                nodes.append("\n".join(merges(self, merge)))
                return
            case Leave(condition) | Break(condition) if self.is_same(condition):  # all threads, or none
                self.flush(nodes)
                nodes.append(f"if ({self.text(condition)}) {'return' if isinstance(item, Leave) else 'break'};")
                return
            case Break():
                raise UnknownError("a thread ends a loop by itself")
            case Leave():
                self.keeps_leaves = True
                self.current.items.append(item)
                self.flush(nodes)
                return
            case Let():
                self.let_item(item, nodes)
                return
            case Block() | For() | Walk() | Neighbours() | Segment():
                self.compound(item, nodes)
                return
        self.exchanged(item, nodes)
        self.current.items.append(item)

    def let_item(self, item: Let, nodes: list[Node]) -> None:
        name = item.name.text
        self.declare(item.name, item.kind)
        if self.is_pure(item):
            full = item.expression and substitute(item.expression, self.full)
            if full is not None:
                self.full[name] = full
            if index_names(item) <= self.uniform and not self.grid:
                self.flush(nodes)
                nodes.append(f"const {_WIDE} {name} = {self.text(item.value)};")
                self.uniform.add(name)
                self.full.pop(name, None)
            else:
                self.pure[name] = item
            return
        self.exchanged(item, nodes)
        self.homes[name] = self.current
        self.current.items.append(item)

    def declare(self, name: Name, kind: str) -> None:
        self.types[name.text] = kind

    def is_pure(self, item: Let) -> bool:
        """Whether a declaration is a constant of indices alone."""
        plain = all(isinstance(piece, str | Name) for piece in item.value.parts())
        known = self.pure.keys() | self.uniform | {THREAD.text}
        return item.is_index and item.constant and plain and index_names(item) <= known

    def is_same(self, condition: Code) -> bool:
        """Whether a condition is the same for all threads, given that none writes the shared memory that it reads."""
        plain = not any(isinstance(piece, Shuffle | Part | FirstRound) for piece in condition.parts())
        return plain and {name.text for name in condition.names()} <= self.uniform

    def compound(self, item: Block | For | Walk | Neighbours | Segment, nodes: list[Node]) -> None:
        if isinstance(item, Segment):
            self.around(f"if ({BLOCK.text} >= {item.first} && {BLOCK.text} < {item.last})", item.body, nodes)
            return
        if not meets([item]):
            if leaves([item]):
                raise UnknownError("a thread leaves")
            if isinstance(item, Walk) and self.is_own(item.start):
                self.flush(nodes)
                lines = walk_lines(item, self.uniform) if self.simd else None
                nodes.append(self.inside_out(item) if lines is None else "\n".join(lines))
                return
            if not (isinstance(item, For) and self.only_moves(item)):
                self.current.items.append(item)
                return
        match item:
            case Block(_, body, otherwise):
                self.around(self.header(item), body, nodes)
                if otherwise:
                    self.around("else", otherwise, nodes)
            case For(body=body):
                self.around(self.header(item), body, nodes)
            case _:
                raise UnknownError("threads meet on their ways")

    def header(self, item: Block | For) -> str:
        """The head of a loop or a condition that is the same for all threads."""
        match item:
            case For(name=None):
                return "for (;;)"
            case Block(condition):
                if not self.is_same(condition) or any(isinstance(p, Cell) for p in condition.parts()):
                    raise UnknownError("a condition that is not the same for all threads")
                return f"if ({self.text(condition)})" if condition else ""
            case For(kind, Name() as name, first, test, step, _, body):
                self.declare(name, kind)
                self.uniform.add(name.text)
                same = all(map(self.is_same, (first, test, step)))
                if not same or any(isinstance(s, Leave) for s in body):
                    raise UnknownError("a loop that is not the same for all threads")
                return f"for ({kind} {name.text} = {self.text(first)}; {self.text(test)}; {self.text(step)})"
        raise UnknownError("a loop without an end that is known")

    def only_moves(self, loop: For) -> bool:
        """Whether rounds of a loop that is the same for all threads need nothing of each other, nor of what a thread has found before: then it runs around the threads."""
        if loop.name is None:
            return False
        mentioned = {name.text for header in (loop.first, loop.test, loop.step) for name in header.names()}
        kept = any(
            isinstance(s, Array) or (isinstance(s, Assign) and s.target.name is not None) for s in walk(loop.body)
        )
        found = self.homes.keys() | self.banks.keys()
        is_same = mentioned - {loop.name.text} <= self.uniform
        return is_same and not kept and found.isdisjoint(name.text for name in names_in(loop.body))

    def around(self, header: str, body: Sequence[Statement], nodes: list[Node]) -> None:
        self.flush(nodes)
        nodes.append(Around(header, self.sequence(body)))

    def is_own(self, start: Expression) -> bool:
        return isinstance(start, Variable) and (start.name == THREAD.text or start.name in self.pure)

    def inside_out(self, item: Walk) -> Around:
        """The loop around the threads instead of in each. Threads that take neighbouring elements at a time take, here, elements that lie as far apart as there are threads:
        which thread has which of a round's does not matter as long as it keeps them."""
        assert isinstance(item.start, Variable)
        base, self.made = f"hlo_base{self.made}", self.made + 1
        self.declare(item.name, _WIDE)
        start = item.start.name
        before = self.before(self.full.get(start, item.start))
        vector = self.vector_of(item)
        places = places_of(vector, item.name) if vector is not None else []
        fits = item.start.high < item.stride  # every thread starts before the first one's second element
        stretch = Stretch(step=Step(item, base, vector, places, before is not None, fits))
        node = Around("", [stretch])
        if vector is None:
            stretch.items += item.body
        else:
            number = vector.number
            self.declare(number, "int")
            self.uniform.add(number.text)
            header = f"for (int {number.text} = 0; {number.text} < {vector.size}; ++{number.text})"
            node = Around(header, [stretch])
            stretch.items += self.merged(vector)
        self.homes[item.name.text] = stretch
        for statement in stretch.items:
            if isinstance(statement, Let):
                self.declare(statement.name, _WIDE if any(statement is p for p in places) else statement.kind)
                self.homes[statement.name.text] = stretch
        whole = item.end // item.stride * item.stride if fits else 0  # up to there every thread has an element
        if item.counter is not None:
            self.declare(item.counter, "int")
            self.uniform.add(item.counter.text)

        def part(low: int, high: int, is_whole: str) -> Around:
            inside: list[Node] = [is_whole, node]
            if before is not None:
                rest = f"{item.end} - {base} - ({before})"
                live = f"{rest} < 0 ? 0 : {rest} < {self.block} ? {rest} : {self.block}"
                inside.insert(1, f"const {_WIDE} hlo_live = {self.block if is_whole == _WHOLE else live};")
            if item.counter is not None:
                inside.insert(0, f"const int {item.counter.text} = {base} / {item.stride};")
            return Around(f"for ({_WIDE} {base} = {low}; {base} < {high}; {base} += {item.stride})", inside)

        parts: list[Node] = [part(0, whole, _WHOLE)] if whole else []
        if whole < item.end:
            parts.append(part(whole, item.end, _PART))
        return Around("", parts)

    def vector_of(self, item: Walk) -> Neighbours | None:
        """Where all that a round does is to take neighbours: these."""
        only = item.body[0] if len(item.body) == 1 else None
        if self.fills or not isinstance(only, Neighbours):
            return None
        return only if places_of(only, item.name) else None

    def before(self, start: Expression) -> str | None:
        """What is the same for all threads in an index that is the thread's and something more; None for any other index."""
        rest = substitute(start, {THREAD.text: constant(0)})
        if THREAD.text not in variables_of(start) or not set(variables_of(rest)) <= self.uniform:
            return None
        at_one = substitute(start, {THREAD.text: constant(1)})
        is_sum = at_one == add(rest, constant(1)) and not any(THREAD.text in variables_of(d) for d in digits_in(start))
        return self.text(inlined(rest)) if is_sum else None

    def exchanged(self, item: Statement, nodes: list[Node]) -> None:
        """Where a statement reads other threads' registers: the stretch before it shows these in an array."""
        found = [p for c in codes_of(item) for p in c.parts() if isinstance(p, Shuffle)]
        if not found:
            return
        register = found[0].register.text
        if len(found) > 1 or not isinstance(item, Let) or register not in self.types:
            raise UnknownError("several shuffles in a statement")
        store, self.made = f"hlo_shown{self.made}", self.made + 1
        self.arrays_of[store] = self.types[register]
        self.shown[id(item)] = store
        self.current.items.append(Assign(of(Name(store)), of(Name(register))))
        self.flush(nodes)

    # ---- out of stretches

    def spill(self, nodes: Sequence[Node]) -> None:
        """Give an array to each variable that another stretch than its own mentions."""
        for node in nodes:
            if isinstance(node, Around):
                self.spill(node.inside)
            elif isinstance(node, Stretch):
                for name in sorted(n.text for n in names_in(node.items)):
                    home = self.homes.get(name)
                    if home is not None and home is not node:
                        self.arrays_of.setdefault(name, self.types[name])

    def written(self, nodes: Sequence[Node]) -> Iterator[str]:
        for node in nodes:
            if isinstance(node, str):
                yield node
            elif isinstance(node, Around):
                yield f"{node.header} {{"
                yield from self.written(node.inside)
                yield "}"
            else:
                yield from self.stretch(node)

    def stretch(self, node: Stretch) -> Iterator[str]:
        self.values = {THREAD.text: Variable(0, self.block - 1, THREAD.text)}
        needed = self.needed(node)
        pure = [item for name, item in self.pure.items() if name in needed]
        self.lanes, self.step = self.lanes_of(node, pure), node.step
        lane = Variable(0, self.lanes - 1, _LANE)
        groups = -(-self.block // self.lanes)
        thread = add(multiply(Variable(0, groups - 1, _GROUP), self.lanes), lane)
        self.values = {THREAD.text: thread}
        if node.step is not None:  # a digit of an element's place is one of what its place is here
            self.values.update((p.name.text, variable_of(p)) for p in node.step.places)
        bounded = node.step is not None and node.step.is_bounded
        end = "hlo_live" if bounded else str(self.block)
        last, rest = str(self.lanes), f"{end} - hlo_first"
        if bounded or self.block % self.lanes:
            whole = "hlo_whole || " if node.step is not None and self.block % self.lanes == 0 else ""
            last = f"({whole}{rest} >= {self.lanes} ? {self.lanes} : {rest})"
        if node.step is None and self.arrays_of.keys().isdisjoint(declared_in(node.items)):
            last = "1" if only_first(node.items, self.full, self.values, lane) else last
        yield f"for (long long hlo_first = 0; hlo_first < {end}; hlo_first += {self.lanes}) {{"
        yield f"const long long {_GROUP} = hlo_first / {self.lanes};"
        if node.step is not None and (start := self.start_of_group(node.step)):
            yield f"if (!hlo_whole && !({start} + {node.step.base} < {node.step.walk.end})) continue;"
        if self.simd and not self.is_apart(node):
            yield "#pragma omp simd"
        yield f"for (long long {_LANE} = 0; {_LANE} < {last}; ++{_LANE}) {{"
        yield "const long long hlo_thread = hlo_first + hlo_lane;"
        if self.left:
            yield "if (hlo_left[hlo_thread]) continue;"
        self.left |= any(isinstance(item, Leave) for item in node.items)
        for item in pure:
            yield f"const {_WIDE} {item.name.text} = {self.value(item)};"
        if node.step is not None:
            yield from self.element(node.step)
        self.here = {} if self.left else self.changing(node)
        yield from self.lines(node.items)
        here, self.here = self.here, {}
        yield from (f"{self.name(name)} = {name}_here;" for name in here)
        yield "}"
        yield "}"
        self.step, self.values = None, {}

    def changing(self, node: Stretch) -> dict[str, str]:
        """What a stretch begins and changes in loops, and others read: it is kept in a register until its end. Memory would make each step wait for the one before."""
        begun = {item.name.text: item.kind for item in node.items if isinstance(item, Let) and not item.constant}
        inside = walk([loop for loop in node.items if isinstance(loop, For)])
        changed = {s.target.name.text for s in inside if isinstance(s, Assign) and s.target.name is not None}
        return {name: kind for name, kind in begun.items() if name in changed and name in self.arrays_of}

    def needed(self, node: Stretch) -> set[str]:
        """The index constants that a stretch mentions."""
        todo = [name.text for name in names_in(node.items)]
        for statement in walk(node.items):
            if isinstance(statement, Let):
                todo += index_names(statement, self.values)
        if node.step is not None:
            todo += variables_of(node.step.walk.start)
        needed: set[str] = set()
        while todo:
            name = todo.pop()
            if name in self.pure and name not in needed:
                needed.add(name)
                todo += index_names(self.pure[name], self.values)
        return needed

    def lanes_of(self, node: Stretch, pure: Sequence[Let]) -> int:
        """How many threads run side by side: a warp, or fewer where each 8 or 16 go through something together, whose elements are neighbours; 4 where these fill a vector, or go along
        rows of which a warp would gather pieces."""
        if any(id(item) in self.shown for item in node.items):
            return WARP
        declared = [*pure, *(s for s in walk(node.items) if isinstance(s, Let))]
        found = {d for item in declared if item.expression is not None for d in divisors(item.expression)}
        folds = any(isinstance(item, For) for item in node.items)
        least = 4 if folds or any(item.kind in _QUARTERS for item in declared) else 8
        return min((d for d in found if d in (4, 8, 16) and d >= least), default=WARP)

    def is_apart(self, node: Stretch) -> bool:
        """Whether a thread does something without others beside it: what other blocks see."""
        return node.in_turn or "atomicAdd" in functions_in(node.items)

    def element(self, step: Step) -> Iterator[str]:
        """A thread's element in a round of a walk."""
        item, base = step.walk, step.base
        start = self.text(inlined(item.start))
        yield f"const {_WIDE} {self.name(item.name.text)} = {start} + {base};"
        if not step.is_bounded and not self.start_of_group(step):
            yield f"if (!hlo_whole && !({self.name(item.name.text)} < {item.end})) continue;"
        if step.vector is not None:
            width = f"(hlo_whole || {item.end} - {base} > {item.stride} ? {item.stride} : {item.end} - {base})"
            number = step.vector.number.text
            for place in step.places:
                name = self.name(place.name.text)
                yield f"const {_WIDE} {name} = {base} * {step.vector.size} + {number} * {width} + {start};"

    def start_of_group(self, step: Step) -> str:
        """The start of a walk where it is the same for all threads side by side; or "". Its condition stands before the loop over these: within it, where compilers can see that it is always
        true, GCC 12 masks with 1 instead of all bits, and masked loads give 0."""
        start = substitute(substitute(step.walk.start, self.full), self.values)
        same = not step.is_bounded and {THREAD.text, _LANE}.isdisjoint(variables_of(start))
        return self.text(inlined(start)) if same else ""

    # ---- a thread's statements

    def statement(self, statement: Statement) -> Iterator[str]:
        """One statement."""
        if isinstance(statement, Leave):
            yield f"if ({self.text(statement.condition)}) {{ hlo_left[hlo_thread] = 1; continue; }}"
        elif isinstance(statement, Let) and self.is_place(statement):
            return
        else:
            yield from super().statement(statement)

    def is_place(self, let: Let) -> bool:
        """Whether a declaration is that of a vector's element, which the walk gives."""
        return self.step is not None and any(place is let for place in self.step.places)

    def let(self, let: Let) -> str:
        """A declaration; of what other stretches need, an assignment."""
        self.shuffled = self.shown.get(id(let), "")
        name = let.name.text
        if name in self.arrays_of:
            kind = f"{self.here[name]} " if name in self.here else ""
            return f"{kind}{self.name(name)} = {self.value(let)};"
        if let.is_index and let.kind == "int" and let.expression is not None and not digits_in(let.expression):
            # a sum that were cut to 32 bits could wrap: then neighbouring threads would have no neighbouring elements
            return f"const {_WIDE} {name} = {self.value(let)};"
        return super().let(let)

    shuffled = ""

    def value(self, let: Let) -> str:
        """What a variable is declared as. The thread's number is taken apart for its digits only."""
        if let.expression is not None and self.step is None and not digits_in(let.expression):
            return self.text(let.value)
        return super().value(let)

    def name(self, text: str) -> str:
        """A variable, an array or a pointer; the thread's own in their arrays."""
        if text == THREAD.text:
            return "hlo_thread"
        if text in self.here:
            return f"{text}_here"
        return f"{text}_of[hlo_thread]" if text in self.arrays_of else text

    def cell(self, array: Name, index: Code) -> str:
        """An element of an array; of a thread's own next to the other threads'."""
        if array.text in self.banks:
            return f"{array.text}_of[{self.text(index)}][hlo_thread]"
        return super().cell(array, index)

    def first_round(self, step: Name, stride: int) -> str:
        """The condition that a thread is at its first step."""
        if self.step is not None and self.step.walk.name == step and self.step.is_always_first:
            return f"{self.step.base} == 0"
        return super().first_round(step, stride)

    def shuffle(self, shuffle: Shuffle) -> str:
        """What another thread's register holds. Where all lanes look equally far, or at one lane, that is neighbours' or one value: no gather."""
        shown, lane = f"{self.shuffled}_of", self.text(shuffle.lane)
        if self.is_same(shuffle.lane):
            if shuffle.kind == "down":  # the array is longer by a warp
                return f"({_LANE} + ({lane}) < {WARP} ? {shown}[hlo_thread + ({lane})] : {shown}[hlo_thread])"
            if shuffle.kind == "sync":
                return f"{shown}[hlo_first + ({lane}) % {WARP}]"
        other = f"hlo::lane_{'down' if shuffle.kind == 'down' else 'at'}((int)hlo_lane, (int)({lane}), {WARP})"
        return f"{shown}[hlo_first + {other}]"
