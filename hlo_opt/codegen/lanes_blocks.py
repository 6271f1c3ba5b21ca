"""Kernels whose threads meet, as loops over the threads of a block: one loop for each stretch between two meetings.

What a thread keeps from one stretch to the next lies in an array with an element per thread; a shuffle reads another
thread's element. Loops and conditions that contain a meeting must be the same for all threads of a block, and so run
around the loops over the threads (J. Stratton et al., "MCUDA: An Efficient Implementation of CUDA Kernels for
Multi-Core CPUs", 2008). A loop in which each thread walks elements that lie a stride apart is turned inside out:
neighbouring threads then read neighbouring elements in one vector.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence, Set
from dataclasses import replace
from typing import TypeGuard

from hlo_opt.codegen.kernel import Pointer
from hlo_opt.codegen.lanes_alive import keep_alive
from hlo_opt.codegen.lanes_merges import merges
from hlo_opt.codegen.lanes_stretch_text import WIDE, StretchText
from hlo_opt.codegen.lanes_stretches import Around, Node, Rows, Stretch, WalkRound, stretches
from hlo_opt.codegen.lanes_text import WIDER, digits_in, filled, first_threads, index_names, inlined, places_of
from hlo_opt.codegen.lanes_walks import walk_lines
from hlo_opt.codegen.statements import BLOCK, THREAD
from hlo_opt.codegen.threads import leaves, meets, meets_in_grid
from hlo_opt.codegen.tree import (
    Aligned,
    Assign,
    Barrier,
    Block,
    BlockRange,
    Break,
    DeclaredArray,
    Fence,
    For,
    GridBarrier,
    Leave,
    Let,
    Neighbours,
    Network,
    Note,
    Statement,
    StrideLoop,
    ThreadChain,
    codes_of,
    functions_in,
    names_in,
    walk,
)
from hlo_opt.diag.time_limit import check_time
from hlo_opt.ir.index_map import Expression, Variable, add, constant, modulo, substitute, variables_of
from hlo_opt.ops.code import NOTHING, Cell, Function, Name, Shuffle, of
from hlo_opt.plans.columns import WARP

_EACH = "hlo_block"
_WHOLE, _PART = "const bool hlo_whole = true;", "const bool hlo_whole = false;"
"""Whether all threads have an element in a round of a strided loop."""
_SHORT = frozenset({"fabsf", "fabs", "fmaxf", "fmax", "fminf", "fmin"})
"""Functions that take one instruction."""


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
    parameters: Sequence[Pointer] = (),
) -> str | None:
    """The function `signature` with the body of a kernel for all threads of a block of that size; None where loops
    cannot follow it. `chosen` are its first lines. With `simd`, threads that do not meet go side by side; with
    `counts`, blocks count themselves on several processors. `grid`: blocks that wait for each other, of which the
    function runs all; else it runs one. `parameters` are those of the kernel."""
    writer = _Writer(block, simd, counts, grid)
    writer.constants = {p.name.text for p in parameters if p.constant}
    writer.kinds = {p.name.text: p.kind for p in parameters}
    try:
        return writer.function(signature, body, chosen, {p.name.text for p in parameters if not p.alone})
    except UnknownError:
        return None


class _Writer(StretchText):
    def __init__(self, block: int, simd: bool, counts: bool, grid: int) -> None:
        super().__init__(block, simd, {"atomicAdd": "hlo::arrive"} if counts else {})
        self.grid = grid
        self.alive = block
        """Threads that have not left: the first ones."""
        self.inner = 0
        """Loops and conditions around the statement at hand."""
        self.fills = False
        """Whether threads write bytes that hold several elements, and so must have those in all rounds."""
        self.shared: list[DeclaredArray] = []
        self.taken: dict[str, int] = {}
        """How many elements at a time walks take of an array that threads keep or share; 0: one by one."""
        self.chained = 0
        """How many lines threads walk side by side that hand on what they have; 0 where none do."""
        self.handed: list[str] = []
        """Declarations of what threads hand on."""
        self.keeps_leaves = False
        """Whether threads leave before others do."""
        self.current = Stretch(self.alive)
        self.count = 0
        self.kinds: dict[str, str] = {}
        """The C++ types of elements of arrays: of the kernel's parameters, and of those that threads share."""

    # ---- into stretches

    def function(self, signature: str, body: Sequence[Statement], chosen: str, handed: Set[str]) -> str:
        self.fills = "hlo_fill" in functions_in(body)
        self.chained = max((s.abreast for s in walk(body) if isinstance(s, ThreadChain)), default=0)
        if self.grid:  # what they wrote before they met is the same for all
            self.uniform |= handed
        nodes = self.together(body) if self.grid else self.sequence(body)
        self.spill(nodes)
        self.show(nodes)
        keep_alive(list(stretches(nodes)), self.arrays_of, self.homes, self.shown, self.full)
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

    def show(self, nodes: Sequence[Node]) -> None:
        """Read what other threads have from where they keep it where nobody changes it meanwhile, not from copies."""
        ordered = list(stretches(nodes))
        for before, after in itertools.pairwise(ordered):
            changed = {s.target.name for s in walk(after.items) if isinstance(s, Assign)}
            for item in after.items:
                store = self.shown.get(id(item), "")
                copies = [s for s in before.items if isinstance(s, Assign) and s.target.name == Name(store)]
                register = copies[0].value.name if len(copies) == 1 else None
                if register is not None and register not in changed and register.text in self.arrays_of:
                    before.items = [s for s in before.items if s is not copies[0]]
                    self.shown[id(item)] = register.text
                    self.arrays_of.pop(store)

    def together(self, items: Sequence[Statement]) -> list[Node]:
        """Statements of a kernel whose blocks wait for each other: a loop over the blocks for each stretch between two
        meetings. One processor runs them all."""
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
        return [Around(f"for ({WIDE} {_EACH} = 0; {_EACH} < {self.grid}; ++{_EACH})", [index, *nodes])]

    def sequence(self, items: Sequence[Statement]) -> list[Node]:
        nodes: list[Node] = []
        outer, self.current = self.current, Stretch(self.alive)
        done = False  # whether the statements at hand combine what has been combined already
        for item in self.unpeeled(items):
            check_time()
            is_tree = isinstance(item, For) and item.tree is not None
            if done and not isinstance(item, Let | DeclaredArray):
                done = not is_tree
            elif isinstance(item, For) and self.has_team(item):
                self.fold_team(item, nodes)
                done = True
            else:
                self.item(item, nodes)
        self.flush(nodes)
        self.current = outer
        return nodes

    def has_team(self, item: For) -> bool:
        """Whether a fold of the lanes of warps may be one of all threads that these belong to."""
        return self.simd and 0 < item.team == item.team & -item.team and self.alive % item.team == 0

    def fold_team(self, item: For, nodes: list[Node]) -> None:
        """A fold of a team's threads, whose values lie in one array. Each warp's first lane then has the result."""
        self.fold(replace(item, tree=(item.team, item.team // 2, 1)), nodes)
        folded = {s.target.name.text: s.target.name for s in walk(item.body) if isinstance(s, Assign) and s.target.name}
        for name in folded:
            self.arrays_of[name] = self.types[name]
            nodes.append(
                f"for (int hlo_team = 0; hlo_team < {self.alive}; hlo_team += {item.team})\n"
                f"  for (int hlo_warp = {WARP}; hlo_warp < {item.team}; hlo_warp += {WARP})\n"
                f"    {name}_of[hlo_team + hlo_warp] = {name}_of[hlo_team];"
            )

    def flush(self, nodes: list[Node]) -> None:
        if self.current.items:
            nodes.append(self.current)
        self.current = Stretch(self.alive)

    def item(self, item: Statement, nodes: list[Node]) -> None:
        match item:
            case Note():
                return
            case DeclaredArray(kind, name, shared=shared):
                self.declare(name, kind)
                self.kinds[name.text] = kind
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
            case ThreadChain(_, handed, walking, abreast):
                self.handed += [f"{array.kind} {array.name.text}[{array.size}];" for array in handed]
                if abreast % WARP and _is_long(self.current.items):
                    self.flush(nodes)
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
            case Leave(condition) if not self.inner and (kept := first_threads(condition)):
                self.flush(nodes)
                self.alive = min(self.alive, kept)
                self.current = Stretch(self.alive)
                return
            case Leave():
                self.keeps_leaves = True
                self.current.items.append(item)
                self.flush(nodes)
                return
            case Let():
                self.let_item(item, nodes)
                return
            case Block() | For() | StrideLoop() | Neighbours() | BlockRange():
                self.compound(item, nodes)
                return
        self.exchanged(item, nodes)
        self.current.items.append(item)

    def let_item(self, item: Let, nodes: list[Node]) -> None:
        """Place a variable: where its value is the same in all threads, as a constant before the loop over threads; if
        it is pure, wherever it is used; else in the current stretch."""
        name = item.name.text
        self.declare(item.name, item.kind)
        if self.is_pure(item):
            full = item.expression and substitute(item.expression, self.full)
            if full is not None:
                self.full[name] = full
            if index_names(item) <= self.uniform and not self.grid:
                self.flush(nodes)
                nodes.append(f"const {WIDE} {name} = {self.text(item.value)};")
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

    def compound(self, item: Block | For | StrideLoop | Neighbours | BlockRange, nodes: list[Node]) -> None:
        if isinstance(item, BlockRange):
            alive = self.alive
            self.flush(nodes)
            header = f"if ({BLOCK.text} >= {item.first} && {BLOCK.text} < {item.last})"
            nodes.append(Around(header, self.sequence(item.body), is_segment=True))
            self.alive = alive
            return
        if not meets([item]):
            if leaves([item]):
                raise UnknownError("a thread leaves")
            if isinstance(item, StrideLoop) and (self.is_own(item.start) or self.is_same_start(item)):
                self.flush(nodes)
                lines = walk_lines(item, self.uniform, self.kinds) if self.simd else None
                nodes.append(self.inside_out(item) if lines is None else "\n".join(lines))
                return
            if not (isinstance(item, For) and self.only_moves(item)):
                group = self.around_lanes(item)
                if group is not None:
                    self.elements_around(item, group, nodes)
                    return
                if self.current.in_turn and _is_long([item]):
                    self.flush(nodes)
                self.current.items.append(item)
                return
        if isinstance(item, For) and item.tree is not None and self.simd:
            self.fold(item, nodes)
            return
        self.inner += 1
        match item:
            case Block(_, body, otherwise):
                self.around(self.header(item), body, nodes)
                if otherwise:
                    self.around("else", otherwise, nodes)
            case For(body=body):
                self.around(self.header(item), body, nodes)
            case _:
                raise UnknownError("threads meet on their ways")
        self.inner -= 1

    def around_lanes(self, item: Block | For | StrideLoop | Neighbours) -> Neighbours | None:
        """The neighbours of a thread that hands on what it folds of them, where the loop over them is best around the
        loops over threads: compilers make no vectors of a loop with several in it, nor of a loop under a condition."""
        whole = isinstance(item, Block) and len(item.body) == 1 and not item.otherwise
        group = item.body[0] if isinstance(item, Block) and whole else item
        if not (isinstance(group, Neighbours) and self.simd and self.chained) or group.bits or filled(group):
            return None
        is_short = isinstance(item, Neighbours) and not _is_long([item])
        return None if is_short and self.chained % WARP else group

    def elements_around(
        self, item: Block | For | StrideLoop | Neighbours, group: Neighbours, nodes: list[Node]
    ) -> None:
        """A loop over neighbours with a loop over threads inside, each with its element of that number."""
        number, body = group.number, self.merged(group)
        self.declare(number, "int")
        self.uniform.add(number.text)
        header = f"for (int {number.text} = 0; {number.text} < {group.size}; ++{number.text})"
        condition = item.condition if isinstance(item, Block) else NOTHING
        self.inner += 1
        self.flush(nodes)
        own = Stretch(self.alive, [Block(condition, body)])
        nodes.append(Around(header, [own]))
        self.inner -= 1

    def fold(self, item: For, nodes: list[Node]) -> None:
        """A loop in which lanes fold what others have. Only the threads whose sums count go through its rounds, and
        read the others' from where they lie."""
        self.flush(nodes)
        node = Stretch(self.alive, list(item.body), tree=item)
        for statement in walk(item.body):
            if isinstance(statement, Let):
                self.declare(statement.name, statement.kind)
                self.homes[statement.name.text] = node
            for shuffle in (p for c in codes_of(statement) for p in c.parts() if isinstance(p, Shuffle)):
                self.arrays_of[shuffle.register.text] = self.types[shuffle.register.text]
        nodes.append(node)

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
        """Whether rounds of a loop that is the same for all threads need nothing of each other, nor of what a thread
        has found before: then it runs around the threads."""
        if loop.name is None:
            return False
        mentioned = {name.text for header in (loop.first, loop.test, loop.step) for name in header.names()}
        kept = any(
            isinstance(s, DeclaredArray) or (isinstance(s, Assign) and s.target.name is not None)
            for s in walk(loop.body)
        )
        known = self.homes.keys() | self.banks.keys()
        is_same = mentioned - {loop.name.text} <= self.uniform
        return is_same and not kept and known.isdisjoint(name.text for name in names_in(loop.body))

    def around(self, header: str, body: Sequence[Statement], nodes: list[Node]) -> None:
        self.flush(nodes)
        nodes.append(Around(header, self.sequence(body)))

    def is_own(self, start: Expression) -> TypeGuard[Variable]:
        return isinstance(start, Variable) and (start.name == THREAD.text or start.name in self.pure)

    def is_same_start(self, item: StrideLoop) -> bool:
        """Whether all threads walk the same elements, each with data of its own for every element."""
        return set(variables_of(item.start)) <= self.uniform and self.simd

    def inside_out(self, item: StrideLoop) -> Around:
        """The loop around the threads instead of in each. Threads that take neighbouring elements at a time take, here,
        elements that lie as far apart as there are threads beside each other: which thread has which of a round's does
        not matter as long as it keeps them. Threads that walk a row together walk it to its end before those of the
        next row do."""
        base, self.count = f"hlo_base{self.count}", self.count + 1
        self.declare(item.name, WIDE)
        own = item.start if self.is_own(item.start) else None
        before = None if own is None else self.before(self.full.get(own.name, own))
        vector = None if own is None else self.vector_of(item)
        places = places_of(vector, item.name) if vector is not None else []
        self.take(item, vector)
        fits = item.start.high < item.stride  # every thread starts before the first one's second element
        piece, ahead = (0, "") if own is None else self.piece_of(item, self.full.get(own.name, own), before)
        by_rows = piece > 0 and before is None and self.simd and self.alive % item.stride == 0
        step = WalkRound(item, base, vector, places, before is not None, fits, piece, ahead, by_rows)
        stretch = Stretch(self.alive, step=step)
        if vector is None:
            stretch.items += item.body
        else:
            self.declare(vector.number, "int")
            stretch.items += [*item.body[:-1], *self.merged(vector)]
        self.homes[item.name.text] = stretch
        for statement in stretch.items:
            if isinstance(statement, Let):
                self.declare(statement.name, WIDE if any(statement is p for p in places) else statement.kind)
                self.homes[statement.name.text] = stretch
        whole = item.end // item.stride * item.stride if fits else 0  # up to there every thread has an element
        if item.counter is not None:
            self.declare(item.counter, "int")
            self.uniform.add(item.counter.text)
        once = self.once(stretch, item) if item.rounds * (vector.size if vector else 1) > 1 else []

        def part(low: int, high: int, is_whole: str) -> Around:
            inside: list[Node] = [is_whole, stretch]
            if step.is_bounded:
                rest = f"{item.end} - {base} - ({before})"
                live = f"{rest} < 0 ? 0 : {rest} < {self.alive} ? {rest} : {self.alive}"
                inside.insert(1, f"const {WIDE} hlo_live = {self.alive if is_whole == _WHOLE else live};")
            if item.counter is not None:
                inside.insert(0, f"const int {item.counter.text} = {base} / {item.stride};")
            head = f"for ({WIDE} {base} = {low}; {base} < {high}; {base} += {item.stride})"
            return Around(head, inside, is_whole == _WHOLE)

        parts: list[Node] = [part(0, whole, _WHOLE)] if whole else []
        if whole < item.end:
            parts.append(part(whole, item.end, _PART))
        return Around("", [*once, *([Rows(stretch, item.stride, parts)] if by_rows else parts)])

    def piece_of(self, item: StrideLoop, start: Expression, before: str | None) -> tuple[int, str]:
        """How many threads are beside each other in a walk, and where the first of those at hand begins. 0 where they
        are not."""
        piece = 2 * WARP if item.stride % (2 * WARP) == self.block % (2 * WARP) == 0 else WARP
        if item.stride % piece or self.block % piece:
            return 0, ""
        if before is None:
            beside = start == modulo(Variable(0, self.block - 1, THREAD.text), item.stride)
            return (piece, f"hlo_first % {item.stride}") if beside else (0, "")
        rest = substitute(start, {THREAD.text: constant(0)})
        return (piece, f"{before} + hlo_first") if modulo(rest, piece) == constant(0) else (0, "")

    def once(self, stretch: Stretch, item: StrideLoop) -> list[Node]:
        """Declarations that each element of a walk would compute again, from variables of the thread and nothing of the
        element. They become a stretch before the walk."""
        changed = {s.target.name.text for s in walk(item.body) if isinstance(s, Assign) and s.target.name is not None}
        hoisted = Stretch(self.alive)
        for let in [s for s in stretch.items if isinstance(s, Let)]:
            names = {name.text for name in let.value.names()}
            plain = all(isinstance(piece, str | Name | Function) for piece in let.value.parts())
            from_before = {n for n in names if self.homes.get(n, stretch) is not stretch}
            if (
                let.constant
                and not let.is_index
                and plain
                and from_before
                and not names & changed
                and names <= from_before | self.uniform
            ):
                hoisted.items.append(let)
                self.homes[let.name.text] = hoisted
        stretch.items = [s for s in stretch.items if not any(s is let for let in hoisted.items)]
        return [hoisted] if hoisted.items else []

    def take(self, item: StrideLoop, vector: Neighbours | None) -> None:
        """Note how a walk takes elements that threads keep or share. A thread has others where it takes several at a
        time: raises UnknownError where two walks differ in that. One that reaches no other memory takes what each
        thread has, whichever elements these are."""
        shared = {array.name.text for array in self.shared}
        reached = {
            c.array.text for s in walk(item.body) for code in codes_of(s) for c in code.parts() if isinstance(c, Cell)
        }
        own = reached & (self.banks.keys() | shared)
        for name in own if vector is not None or reached - own else own & shared:
            if self.taken.setdefault(name, vector.size if vector else 0) != (vector.size if vector else 0):
                raise UnknownError("elements that a thread keeps, and takes in another way later")

    def vector_of(self, item: StrideLoop) -> Neighbours | None:
        """Where all that a round does is to take neighbours, with constants that do not depend on the round: these."""
        *constants, only = item.body
        if self.fills or not isinstance(only, Neighbours):
            return None
        if not all(isinstance(s, Let) and s.constant and item.name not in names_in([s]) for s in constants):
            return None
        return only if places_of(only, item.name) else None

    def before(self, start: Expression) -> str | None:
        """What is the same for all threads in an index that is the thread's and something more; None for any other
        index."""
        rest = substitute(start, {THREAD.text: constant(0)})
        if THREAD.text not in variables_of(start) or not set(variables_of(rest)) <= self.uniform:
            return None
        at_one = substitute(start, {THREAD.text: constant(1)})
        is_sum = at_one == add(rest, constant(1)) and not any(THREAD.text in variables_of(d) for d in digits_in(start))
        return self.text(inlined(rest)) if is_sum else None

    def exchanged(self, item: Statement, nodes: list[Node]) -> None:
        """Where a statement reads other threads' registers: the stretch before it shows these in an array."""
        shuffles = [p for c in codes_of(item) for p in c.parts() if isinstance(p, Shuffle)]
        if not shuffles:
            return
        register = shuffles[0].register.text
        if len(shuffles) > 1 or not isinstance(item, Let) or register not in self.types:
            raise UnknownError("several shuffles in a statement")
        store, self.count = f"hlo_shown{self.count}", self.count + 1
        self.arrays_of[store] = self.types[register]
        self.shown[id(item)] = store
        self.current.items.append(Assign(of(Name(store)), of(Name(register))))
        self.flush(nodes)


def _is_long(items: Sequence[Statement]) -> bool:
    """Whether threads had better do this side by side than one after another, each in its turn: it takes more time than
    to write down what they have between both."""
    return not functions_in(items) <= _SHORT
