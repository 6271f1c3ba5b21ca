"""How stretches between two meetings are printed: a loop over threads for each, in which as many go side by side as
suits what they do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TypeGuard

from hlo_opt.codegen.lanes_halves import halved
from hlo_opt.codegen.lanes_stretches import Around, Node, Rows, Stretch, WalkRound
from hlo_opt.codegen.lanes_text import (
    WIDER,
    ThreadText,
    declared_in,
    digits_in,
    divisors,
    first_lanes,
    index_names,
    inlined,
    lanes_inside,
    variable_of,
)
from hlo_opt.codegen.statements import BLOCK, THREAD
from hlo_opt.codegen.tree import (
    Assign,
    Block,
    DeclaredArray,
    For,
    Leave,
    Let,
    Statement,
    codes_of,
    functions_in,
    names_in,
    walk,
)
from hlo_opt.diag.time_limit import check_time
from hlo_opt.ir.index_map import Expression, Quotient, Variable, add, multiply, substitute, variables_of
from hlo_opt.ops.code import Code, FirstRound, Name, PackedElement, Shuffle
from hlo_opt.plans.columns import WARP

VECTOR = 8
"""Threads whose floats fill a vector."""
WIDE = "long long"
_GROUP, _LANE, _TEAM, _RUN = "hlo_group", "hlo_lane", "hlo_team", "hlo_run"
_APART = 'asm volatile("");'
"""Keeps rounds of a loop around threads apart. Joined, GCC takes where the second one's elements lie for what differs
from thread to thread, and gathers them."""
_QUARTERS = frozenset({"double", "hlo_complex<float>"})
"""Types of which 4 fill a vector of 32 bytes."""


class StretchText(ThreadText):
    """Prints stretches. Its reader has what is known of the kernel."""

    def __init__(self, block: int, simd: bool, functions: Mapping[str, str]) -> None:
        super().__init__({}, functions)
        self.block, self.simd = block, simd
        self.pure: dict[str, Let] = {}
        """Constants of a thread that are cheap to compute again in each stretch."""
        self.full: dict[str, Expression] = {}
        """Index constants as expressions of the thread, the block and loop counters."""
        self.uniform: set[str] = {BLOCK.text}
        """Constants and counters that are the same for all threads."""
        self.types: dict[str, str] = {}
        self.homes: dict[str, Stretch] = {}
        """Where a thread's variable is declared."""
        self.arrays_of: dict[str, str] = {}
        """Types of what has an element per thread, by name."""
        self.banks: dict[str, DeclaredArray] = {}
        """Each thread's own arrays, by name."""
        self.shown: dict[int, str] = {}
        """Where the register that a statement reads from another thread lies, by the statement."""
        self.left = False
        """Whether a stretch has been written in which threads leave before others do."""
        self.here: dict[str, str] = {}
        """Types of what the stretch at hand keeps in registers of its own, by name."""
        self.lanes = WARP
        self.step: WalkRound | None = None
        self.copies: set[str] = set()
        """What the threads side by side have in arrays of their own."""
        self.is_whole = False
        """Whether all threads have an element in the round at hand."""
        self.constants: Set[str] = frozenset()
        """Pointers to arrays into which nobody writes meanwhile."""
        self.in_tree = False
        """Whether threads at hand take what another has from where it lies."""
        self.beside: dict[str, Expression] = {}
        """Index variables as expressions of the lane, where threads go side by side."""

    def is_same(self, condition: Code) -> bool:
        """Whether a condition is the same for all threads, given that none writes the shared memory that it reads."""
        plain = not any(isinstance(piece, Shuffle | PackedElement | FirstRound) for piece in condition.parts())
        return plain and {name.text for name in condition.names()} <= self.uniform

    def spill(self, nodes: Sequence[Node]) -> None:
        """Give an array to each variable that another stretch than its own mentions."""
        for node in nodes:
            check_time()
            if isinstance(node, Around | Rows):
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
                outer, self.is_whole = self.is_whole, node.is_whole or self.is_whole
                left = self.left
                yield f"{node.header} {{"
                yield from self.written(node.inside)
                yield "}"
                self.is_whole, self.left = outer, left if node.is_segment else self.left
            elif isinstance(node, Rows):
                yield from self.rows(node)
            elif node.tree is not None:
                yield from self.tree(node, node.tree)
            elif node.items:
                yield from self.stretch(node)

    def tree(self, node: Stretch, loop: For) -> Iterator[str]:
        """The rounds of a loop that folds lanes, for the threads whose sums count: a round's are those of the next one
        and as many more, whose sums they take. Teams smaller than a vector, or than two where several arrays are
        folded, go through a round together: what the others then have nobody reads, and each reads what was there."""
        assert loop.tree is not None and loop.name is not None
        size, distance, last = loop.tree
        together = size <= (VECTOR if len(self.folded(node)) < 2 else 2 * VECTOR) and not self.left
        self.in_tree, self.values = True, {THREAD.text: Variable(0, node.threads - 1, THREAD.text)}
        if not together:
            yield f"for (long long {_TEAM} = 0; {_TEAM} < {node.threads}; {_TEAM} += {size}) {{"
        while distance >= last:
            first, count = ("", node.threads - distance) if together else (f"{_TEAM} + ", distance)
            yield f"{{ const int {loop.name.text} = {distance};"
            yield "#pragma omp simd"
            yield f"for (long long {_LANE} = 0; {_LANE} < {count}; ++{_LANE}) {{"
            yield f"const long long hlo_thread = {first}{_LANE};"
            if self.left:
                yield "if (hlo_left[hlo_thread]) continue;"
            for item in self.needed(node):
                yield f"const {WIDE} {item.name.text} = {self.value(item)};"
            yield from self.lines(node.items)
            yield "}}"
            distance //= 2
        if not together:
            yield "}"
        self.in_tree, self.values = False, {}

    def rows(self, node: Rows) -> Iterator[str]:
        """A loop over rows. What the threads of one fold of it stays in registers where these are few."""
        self.values = {THREAD.text: Variable(0, node.stretch.threads - 1, THREAD.text)}
        folded = self.folded(node.stretch) if self.beside_of(node.stretch) == node.together else []
        yield f"for (long long {_TEAM} = 0; {_TEAM} < {node.stretch.threads}; {_TEAM} += {node.together}) {{"
        yield from self.copied(folded, _TEAM, node.together)
        yield from self.written(node.inside)
        yield from self.put_back(folded, _TEAM, node.together)
        yield "}"

    def folded(self, node: Stretch) -> list[str]:
        """The variables that the threads of a stretch change and that others read."""
        changed = (s.target.name for s in walk(node.items) if isinstance(s, Assign))
        names = dict.fromkeys(name.text for name in changed if name is not None)
        return [] if self.left else [name for name in names if name in self.arrays_of]

    def copied(self, names: Sequence[str], first: str, lanes: int) -> Iterator[str]:
        """Copies of threads' variables, of as many threads as go side by side: an array that is all of a loop's
        compilers keep in registers."""
        for name in names:
            yield f"{WIDER.get(self.types[name], self.types[name])} {name}_here[{lanes}];"
            yield "#pragma omp simd"
            yield f"for (long long {_LANE} = 0; {_LANE} < {lanes}; ++{_LANE})"
            yield f"  {name}_here[{_LANE}] = {name}_of[{first} + {_LANE}];"
        self.copies.update(names)

    def put_back(self, names: Sequence[str], first: str, lanes: int) -> Iterator[str]:
        """The copies back where they came from."""
        for name in names:
            yield "#pragma omp simd"
            yield f"for (long long {_LANE} = 0; {_LANE} < {lanes}; ++{_LANE})"
            yield f"  {name}_of[{first} + {_LANE}] = {name}_here[{_LANE}];"
        self.copies.difference_update(names)

    def stretch(self, node: Stretch) -> Iterator[str]:
        self.values = {THREAD.text: Variable(0, node.threads - 1, THREAD.text)}
        pure = self.needed(node)
        self.lanes, self.step = self.lanes_of(node, pure), node.step
        lane = Variable(0, self.lanes - 1, _LANE)
        groups = -(-node.threads // self.lanes)
        thread = add(multiply(Variable(0, groups - 1, _GROUP), self.lanes), lane)
        self.values = {THREAD.text: thread}
        if node.step is not None:  # a digit of an element's place is one of what its place is here
            self.values.update((p.name.text, self.place_of(p, node.step, lane)) for p in node.step.places)
        bounded, by_rows = node.step is not None and node.step.is_bounded, node.step is not None and node.step.by_rows
        end = "hlo_live" if bounded else str(node.threads)
        last, rest = str(self.lanes), f"{end} - hlo_first"
        if (
            by_rows and node.step is not None
        ):  # of those that walk a row the first ones have an element in its last round
            rest = f"{node.step.walk.end} - {node.step.base} - hlo_beside"
        if bounded or by_rows or node.threads % self.lanes:
            whole = "hlo_whole || " if node.step is not None and node.threads % self.lanes == 0 else ""
            last = f"({whole}{rest} >= {self.lanes} ? {self.lanes} : {rest})"
        if node.step is None and self.arrays_of.keys().isdisjoint(declared_in(node.items)):
            few = first_lanes(node.items, self.full, self.values, lane)
            last = str(few) if 0 < few < self.lanes else last
        if by_rows and node.step is not None:  # counted from 0, so that compilers see how many there are
            yield f"for (long long hlo_beside = 0; hlo_beside < {node.step.walk.stride}; hlo_beside += {self.lanes}) {{"
            yield f"const long long hlo_first = {_TEAM} + hlo_beside;"
        else:
            yield f"for (long long hlo_first = 0; hlo_first < {end}; hlo_first += {self.lanes}) {{"
        yield f"const long long {_GROUP} = hlo_first / {self.lanes};"
        if node.step is not None and node.step.vector is not None and node.step.piece:
            piece, beside = node.step.piece, "hlo_beside" if by_rows else node.step.ahead
            yield f"const long long hlo_piece = {beside if self.lanes == piece else f'({beside}) / {piece} * {piece}'};"
            yield f"const long long hlo_within = {0 if self.lanes == piece else f'({beside}) % {piece}'};"
        if node.step is not None and (start := self.start_of_group(node.step)):
            yield f"if (!hlo_whole && !({start} + {node.step.base} < {node.step.walk.end})) continue;"
        vector, folded = None if node.step is None else node.step.vector, list[str]()
        if vector is not None:  # inside the loop over threads: what these fold of their elements stays in registers
            number = vector.number.text
            folded = (
                [] if node.threads % self.lanes else [name for name in self.folded(node) if name not in self.copies]
            )
            yield from self.copied(folded, "hlo_first", self.lanes)
            yield f"for (int {number} = 0; {number} < {vector.size}; ++{number}) {{"
            if node.step is not None and self.has_runs(node.step):
                ahead = f"({node.step.base} + hlo_piece) / {self.lanes} * {vector.size}"
                runs = node.step.piece // self.lanes
                rest = number if runs == 1 else f"{number} * {runs} + hlo_within / {self.lanes}"
                yield f"const {WIDE} {_RUN} = {ahead} + {rest};"
                if any(isinstance(s, Let) and s.expression is not None and digits_in(s.expression) for s in node.items):
                    yield _APART
        if last == str(self.lanes) and node.step is None and self.simd and not self.left:
            yield from self.up_to_edges(node, pure, lane)
        else:
            yield from self.by_round(node, pure, last)
        if vector is not None:
            yield "}"
            yield from self.put_back(folded, "hlo_first", self.lanes)
        yield "}"
        self.step, self.values = None, {}

    def up_to_edges(self, node: Stretch, pure: Sequence[Let], lane: Variable) -> Iterator[str]:
        """The loop over threads side by side. Where those beyond an edge do nothing it ends there, and has no
        condition: compilers would mask each access. One whose threads are all inside has a number of rounds that is
        known."""
        inside = lanes_inside(node.items, self.full, self.values, lane, self.uniform | {_GROUP})
        if inside is None or not self.arrays_of.keys().isdisjoint(declared_in(node.items)):
            yield from self.side_by_side(node, node.items, pure, str(self.lanes))
            return
        *before, block = node.items
        assert isinstance(block, Block)
        items = [*before, Block(body=block.body)]
        same, bounds = inside
        holds = [f"{c.low} <= {place} && {place} <= {c.high}" for c in same for place in [self.placed(c.expression)]]
        yield f"if ({' && '.join(holds) or 'true'}) {{"
        if not bounds:
            yield from self.side_by_side(node, items, pure, str(self.lanes))
        else:
            counts = [
                self.placed(left) if step == 1 else f"({self.placed(left)} + {step - 1}) / {step}"
                for left, step in bounds
            ]
            yield f"long long hlo_inside = {counts[0]};"
            yield from (f"hlo_inside = {count} < hlo_inside ? {count} : hlo_inside;" for count in counts[1:])
            for head, last in ((f"if (hlo_inside >= {self.lanes})", str(self.lanes)), ("else", "hlo_inside")):
                yield f"{head} {{"
                yield from self.side_by_side(node, items, pure, last)
                yield "}"
        yield "}"

    def placed(self, expression: Expression) -> str:
        """An index of variables that are declared as such."""
        return f"({self.text(inlined(expression))})"

    def has_runs(self, step: WalkRound) -> bool:
        """Whether threads side by side have elements that begin at a multiple of their number."""
        return self.is_whole and step.vector is not None and step.piece > 0 and step.piece % self.lanes == 0

    def place_of(self, place: Let, step: WalkRound, lane: Variable) -> Expression:
        """The place of a vector's element: where it is known that threads side by side begin at a multiple of their
        number, their digits beyond it are the same."""
        variable = variable_of(place)
        if not self.has_runs(step) or (variable.high + 1) % self.lanes:
            return variable
        return add(multiply(Variable(0, variable.high // self.lanes, _RUN), self.lanes), lane)

    def by_round(self, node: Stretch, pure: Sequence[Let], last: str) -> Iterator[str]:
        """The loop over threads side by side. A condition that is the same for them all stands around it, once for each
        way."""
        chosen = next((item.condition for item in node.items if self.is_of_round(item)), None)
        if chosen is None:
            yield from self.side_by_side(node, node.items, pure, last)
            return
        text = self.text(chosen)
        for head, way in ((f"if ({text})", "body"), ("else", "otherwise")):
            yield f"{head} {{"
            items = [
                Block(body=list(getattr(item, way)))
                if self.is_of_round(item) and self.text(item.condition) == text
                else item
                for item in node.items
            ]
            yield from self.side_by_side(node, items, pure, last)
            yield "}"

    def is_of_round(self, item: Statement) -> TypeGuard[Block]:
        """Whether a condition asks for the round only."""
        if not isinstance(item, Block) or not item.condition or self.step is None or not self.step.is_always_first:
            return False
        known = {self.step.walk.name} | ({self.step.vector.number} if self.step.vector is not None else set())
        parts = list(item.condition.parts())
        rounds = [part for part in parts if isinstance(part, FirstRound)]
        others = [part for part in parts if not isinstance(part, str | FirstRound) and part not in known]
        return bool(rounds) and not others and all(part.step == self.step.walk.name for part in rounds)

    def side_by_side(self, node: Stretch, items: Sequence[Statement], pure: Sequence[Let], last: str) -> Iterator[str]:
        """The loop over threads side by side, which do all of `items`."""
        items, before, behind = self.halved(node, items, pure, last)
        yield from before
        if self.simd and not self.is_apart(node):
            yield "#pragma omp simd"
        yield f"for (long long {_LANE} = 0; {_LANE} < {last}; ++{_LANE}) {{"
        yield from self.declarations(node, pure)
        self.beside = self.places_beside(node) if node.step is None or node.step.vector is None else {}
        self.left |= any(isinstance(item, Leave) for item in items)
        self.here = {} if self.left else self.changing(node)
        yield from self.lines(items)
        here, self.here, self.beside = self.here, {}, {}
        yield from (f"{self.name(name)} = {name}_here;" for name in here)
        yield "}"
        yield from behind

    def declarations(self, node: Stretch, pure: Sequence[Let]) -> Iterator[str]:
        """What a thread begins with: its number, what is known of it, and its element."""
        yield "const long long hlo_thread = hlo_first + hlo_lane;"
        if self.left:
            yield "if (hlo_left[hlo_thread]) continue;"
        for item in pure:
            yield f"const {WIDE} {item.name.text} = {self.value(item)};"
        if node.step is not None:
            yield from self.element(node.step)

    def halved(
        self, node: Stretch, items: Sequence[Statement], pure: Sequence[Let], last: str
    ) -> tuple[Sequence[Statement], Sequence[str], Sequence[str]]:
        """The statements of threads side by side with f16 of memory made f32 before them and back behind them, and the
        lines that do this."""
        step = node.step
        is_chosen = step is not None and not (step.is_bounded or step.by_rows or self.start_of_group(step))
        if not self.simd or self.is_apart(node) or self.left or is_chosen or self.lanes < WARP:
            return items, [], []
        places = self.places_beside(node)
        statements, reads, writes = halved(items, self.scalars, self.constants, places, _LANE)
        if not reads and not writes:
            return items, [], []
        arrays = [f"float {name.text}[{self.lanes}];" for name, _ in (*reads, *writes)]
        indices = [s for s in items if isinstance(s, Let) and s.is_index and s.constant]

        def first(calls: Sequence[str]) -> list[str]:
            """Calls with what the first of the threads finds."""
            head = ["{", f"const {WIDE} {_LANE} = 0;", *self.declarations(node, pure), *self.lines(indices)]
            return [*head, *calls, "}"] if calls else []

        widened = [f"hlo::widen_f16(&{self.piece(cell)}, {name.text}, {last});" for name, cell in reads]
        narrowed = [f"hlo::narrow_f16({name.text}, &{self.piece(cell)}, {last});" for name, cell in writes]
        return statements, [*arrays, *first(widened)], first(narrowed)

    def places_beside(self, node: Stretch) -> dict[str, Expression]:
        """Index variables as expressions of the lane, and of what is the same for all threads side by side."""
        lane, step = Variable(0, self.lanes - 1, _LANE), node.step
        places = {name: substitute(value, self.values) for name, value in self.full.items()}
        places.update(self.values)
        if step is not None:
            start = substitute(substitute(step.walk.start, self.full), self.values)
            places[step.walk.name.text] = add(Variable(0, step.walk.end, step.base), start)
            for place in step.places:
                assert place.expression is not None
                places[place.name.text] = add(Variable(0, place.expression.high, f"hlo_first_{place.name.text}"), lane)
        return places

    def changing(self, node: Stretch) -> dict[str, str]:
        """What a stretch begins and changes in loops, and others read: it is kept in a register until its end. Memory
        would make each step wait for the one before."""
        begun = {item.name.text: item.kind for item in node.items if isinstance(item, Let) and not item.constant}
        inside = walk([loop for loop in node.items if isinstance(loop, For)])
        changed = {s.target.name.text for s in inside if isinstance(s, Assign) and s.target.name is not None}
        return {name: kind for name, kind in begun.items() if name in changed and name in self.arrays_of}

    def needed(self, node: Stretch) -> list[Let]:
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
        return [item for name, item in self.pure.items() if name in needed]

    def beside_of(self, node: Stretch) -> int:
        """How many threads of a stretch run side by side."""
        return self.lanes_of(node, self.needed(node))

    def lanes_of(self, node: Stretch, pure: Sequence[Let]) -> int:
        """How many threads run side by side: a warp, or fewer where each 8 or 16 go through something together, whose
        elements are neighbours; 4 where these fill a vector, or go along rows of which a warp would gather pieces, or
        whose numbers it would divide."""
        asked = [p for item in node.items if id(item) in self.shown for c in codes_of(item) for p in c.parts()]
        kinds = {piece.kind for piece in asked if isinstance(piece, Shuffle)}
        if not kinds <= {"sync"}:
            return WARP
        declared = [*pure, *(s for s in walk(node.items) if isinstance(s, Let))]
        widths = {d for item in declared if item.expression is not None for d in divisors(item.expression)}
        folds = bool(kinds) or any(isinstance(item, For) for item in node.items)
        if not folds and not widths and self.is_of_columns(node) and not self.lane_digits(node, declared, node.threads):
            return node.threads
        divides = node.step is not None and node.step.vector is not None and any(map(_divides_others, declared))
        least = 4 if folds or divides or any(item.kind in _QUARTERS for item in declared) else 8
        piece = node.step.piece if node.step is not None else 0
        if node.step is not None and piece:  # a number of threads that share a row
            shared = math.gcd(piece, *_rows_of(node.step, declared))
            piece = shared if shared >= VECTOR else piece
        few = min((d for d in widths if d in (4, 8, 16) and d >= least), default=piece)
        if few or (node.step is not None and node.step.vector is not None):
            return few or WARP
        return min((WARP, WARP // 2, WARP // 4), key=lambda lanes: self.lane_digits(node, declared, lanes))

    def lane_digits(self, node: Stretch, declared: Sequence[Let], lanes: int) -> int:
        """The number of quotients and remainders in indices that differ among `lanes` threads side by side. Vectors of
        quotients are slow, and what they index is gathered."""
        groups = -(-node.threads // lanes)
        thread = add(multiply(Variable(0, groups - 1, _GROUP), lanes), Variable(0, lanes - 1, _LANE))
        expressions = [item.expression for item in declared if item.expression is not None]
        if node.step is not None:
            expressions.append(node.step.walk.start)
        full = [substitute(substitute(e, self.full), {THREAD.text: thread}) for e in expressions]
        return sum(_LANE in variables_of(digit) for e in full for digit in digits_in(e))

    def is_of_columns(self, node: Stretch) -> bool:
        """Whether all threads walk the same rows, each its own column: then all may go side by side."""
        if node.step is None or node.step.vector is not None or node.threads % WARP:
            return False
        return THREAD.text not in variables_of(substitute(node.step.walk.start, self.full))

    def is_apart(self, node: Stretch) -> bool:
        """Whether a thread does something without others beside it: what other blocks see."""
        return node.in_turn or "atomicAdd" in functions_in(node.items)

    def element(self, step: WalkRound) -> Iterator[str]:
        """A thread's element in a round of a walk."""
        item, base = step.walk, step.base
        start = self.text(inlined(item.start))
        yield f"const {WIDE} {self.name(item.name.text)} = {start} + {base};"
        if not step.is_bounded and not step.by_rows and not self.start_of_group(step):
            yield f"if (!hlo_whole && !({self.name(item.name.text)} < {item.end})) continue;"
        if step.vector is not None:
            # threads beside each other have their elements side by side; those of a piece, or of all that walk
            # together, follow each other
            all_of, first, within = str(step.piece or item.stride), base, start
            rest = f"{item.end} - {base}"
            if step.piece:
                first, rest, within = f"({base} + hlo_piece)", f"{rest} - hlo_piece", f"hlo_within + {_LANE}"
            width = f"(hlo_whole || {rest} > {all_of} ? {all_of} : {rest})"
            number = step.vector.number.text
            for place in step.places:
                name = self.name(place.name.text)
                yield f"const {WIDE} {name} = {first} * {step.vector.size} + {number} * {width} + {within};"

    def start_of_group(self, step: WalkRound) -> str:
        """The start of a walk where it is the same for all threads side by side; or "". Its condition stands before the
        loop over these: within it, where compilers can see that it is always true, GCC 12 masks with 1 instead of all
        bits, and masked loads give 0."""
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
        if let.is_index and let.kind == "int" and let.expression is not None and not self.differs(let.expression):
            # a sum that were cut to 32 bits could wrap: then neighbouring threads would have no neighbouring elements
            return f"const {WIDE} {name} = {self.value(let)};"
        return super().let(let)

    shuffled = ""

    def differs(self, expression: Expression) -> bool:
        """Whether an index has digits that may differ from thread to thread."""
        digits = digits_in(substitute(expression, self.values) if self.is_whole else expression)
        return any(
            not self.is_whole or _LANE in variables_of(digit) or THREAD.text in variables_of(digit) for digit in digits
        )

    def value(self, let: Let) -> str:
        """What a variable is declared as. The thread's number is taken apart for its digits only."""
        if let.expression is not None and self.step is None and not digits_in(let.expression):
            return self.text(let.value)
        if let.expression is not None and any(self.full.keys() & variables_of(d) for d in digits_in(let.expression)):
            full = substitute(substitute(let.expression, self.full), self.values)
            if not any({THREAD.text, _LANE} & variables_of(digit) for digit in digits_in(full)):
                return self.text(inlined(full))
        return super().value(let)

    def name(self, text: str) -> str:
        """A variable, an array or a pointer; the thread's own in their arrays."""
        if text == THREAD.text:
            return "hlo_thread"
        if text in self.here:
            return f"{text}_here"
        if text in self.copies:
            return f"{text}_here[{_LANE}]"
        return f"{text}_of[hlo_thread]" if text in self.arrays_of else text

    def cell(self, array: Name, index: Code) -> str:
        """An element of an array; of a thread's own next to the other threads'."""
        if array.text in self.banks:
            return f"{array.text}_of[{self.text(index)}][hlo_thread]"
        if array not in self.scalars and (place := self.joined(index)) is not None:
            return f"{self.name(array.text)}[{self.text(inlined(place))}]"
        return super().cell(array, index)

    def joined(self, index: Code) -> Expression | None:
        """A place whose digits of the thread's number make up this number again, such as a row's and a column's: else
        it would be gathered. None for any other."""
        if index.place is None:
            return None
        known = {name: self.beside[name] for name in variables_of(index.place) & self.beside.keys()}
        if not any(_LANE in variables_of(digit) for value in known.values() for digit in digits_in(value)):
            return None
        place = substitute(index.place, known)
        return None if any(_LANE in variables_of(digit) for digit in digits_in(place)) else place

    def first_round(self, step: Name, stride: int) -> str:
        """The condition that a thread is at its first step."""
        if self.step is not None and self.step.walk.name == step and self.step.is_always_first:
            return f"{self.step.base} == 0"
        return super().first_round(step, stride)

    def shuffle(self, shuffle: Shuffle) -> str:
        """What another thread's register holds. Where all lanes look equally far, or at one lane, that is neighbours'
        or one value: no gather."""
        if self.in_tree:
            return f"{shuffle.register.text}_of[hlo_thread + ({self.text(shuffle.lane)})]"
        shown, lane = f"{self.shuffled}_of", self.text(shuffle.lane)
        warp = "hlo_first" if self.lanes == WARP else f"hlo_first / {WARP} * {WARP}"
        if shuffle.kind == "bits":
            return f"{shown}[{warp} + (({_LANE}) ^ (int)({lane}))]"
        if self.is_same(shuffle.lane):
            if shuffle.kind == "down":  # the array is longer by a warp
                return f"({_LANE} + ({lane}) < {WARP} ? {shown}[hlo_thread + ({lane})] : {shown}[hlo_thread])"
            if shuffle.kind == "sync":
                return f"{shown}[{warp} + ({lane}) % {WARP}]"
        if shuffle.kind == "sync" and self.lanes < WARP:  # which may be the same for all of these
            return f"{shown}[{warp} + ((int)({lane}) & {WARP - 1})]"
        other = f"hlo::lane_{'down' if shuffle.kind == 'down' else 'at'}((int)hlo_lane, (int)({lane}), {WARP})"
        return f"{shown}[hlo_first + {other}]"


def _rows_of(step: WalkRound, declared: Sequence[Let]) -> set[int]:
    """The lengths of the rows that the elements of a walk lie in: what their places are divided by."""
    places = {place.name.text for place in step.places}
    digits = (d for let in declared if let.expression is not None for d in digits_in(let.expression))
    return {d.divisor for d in digits if not (isinstance(d.left, Quotient) or places.isdisjoint(variables_of(d)))}


def _divides_others(item: Let) -> bool:
    """Whether an index is a digit of something else than the thread's number, such as its row: threads of one row have
    it in common, and vectors of quotients are slow."""
    digits = () if item.expression is None else digits_in(item.expression)
    return any(not isinstance(d.left, Variable) or d.left.name != THREAD.text for d in digits)
