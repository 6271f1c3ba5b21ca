"""Chains: copies of one graph, each of which reads results of the one before, such as a traced and unrolled Python
loop.

The search guesses two operations that correspond in neighbouring copies. Walking down to operands, a difference must be
another member of the copies, a constant or slice that differs by copy, or state that one copy passes to the next.
Walking up from the state finds the other copies. The result is checked as a whole, so a wrong guess yields no chain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from hlo_opt.analysis.graph.structure import Members, Structures
from hlo_opt.analysis.properties import has_side_effect
from hlo_opt.ir import Computation, Instruction
from hlo_opt.ops.sets import cut_out

Row = tuple[Instruction, ...]
"""The corresponding value in each of the copies."""

DEPTH = 4
"""The depth to which operands are hashed to find corresponding operations."""
MOST_KINDS = 10
"""The most kinds of operations, rarest first, from which pairs are guessed."""
MOST_APART = 4
MOST_KEPT = 16
"""The most values that a copy takes from outside the copies, other than those of the copy before, and hands on: those
of the last few rounds, of which each moves one place along. In a network whose layers have weights of their own, each
weight would be one: a guess that meets so many is wrong, and need not be followed through all layers."""


@dataclass(frozen=True)
class Short:
    """An incomplete copy. All keys are instructions of the first copy.

    `there` maps to those that exist in it; `missing` maps the others to their operands (members of the first copy, or
    other values), operands first.
    """

    there: dict[Instruction, Instruction]
    missing: dict[Instruction, list[Instruction]]


@dataclass(frozen=True)
class CopyChain:
    """Copies of a graph.

    nodes   the operations of each copy, operands first
    leaves  constants, or slices of one array, that differ by copy
    state   values passed on: before the first copy, and after each
    short   an incomplete copy after the last, where the results of the missing part are unused
    """

    copies: int
    nodes: list[Row]
    leaves: list[Row]
    state: list[Row]
    short: Short | None = None

    @property
    def size(self) -> int:
        """The number of operations of all copies."""
        return self.copies * len(self.nodes)

    def mapped(self, copy: Callable[[Instruction], Instruction]) -> CopyChain:
        """The chain with every instruction replaced."""
        nodes, leaves, state = (
            [tuple(map(copy, row)) for row in rows] for rows in (self.nodes, self.leaves, self.state)
        )
        return CopyChain(self.copies, nodes, leaves, state)

    @cached_property
    def rows(self) -> dict[Instruction, Row]:
        """Nodes and leaves by their instruction in the first copy."""
        return {row[0]: row for row in (*self.nodes, *self.leaves)}

    @cached_property
    def handed(self) -> dict[Row, int]:
        """The state's numbers by the values that the copies read."""
        return {state[:-1]: n for n, state in enumerate(self.state)}


def chain_of(computation: Computation, fewest: int) -> CopyChain | None:
    """The largest chain found in a computation, with at least `fewest` copies; None where there is none."""
    computation.index_users()
    finder = _Finder(computation, fewest)
    best: CopyChain | None = None
    for one, other in finder.guesses():
        chain = finder.grown(one, other)
        if chain is not None and (best is None or chain.size > best.size):
            best = chain
            if 2 * best.size > len(computation.instructions):
                break
    return best


class _Finder:
    def __init__(self, computation: Computation, fewest: int) -> None:
        self.computation = computation
        self.fewest = fewest
        self.place = {i: n for n, i in enumerate(computation.instructions)}
        self._members = Members(Structures())
        self._kinds: dict[Instruction, Hashable] = {}
        self._waited_for = {p for i in computation.instructions for p in i.control_predecessors}
        self._may_repeat: dict[Instruction, bool] = {}

    def kind(self, i: Instruction) -> Hashable:
        """A key that corresponding instructions share, wherever their operands come from."""
        kind = self._kinds.get(i)
        if kind is None:
            kind = self._kinds[i] = (self._members.of(i), len(i.operands))
        return kind

    @cached_property
    def members(self) -> dict[Instruction, Hashable]:
        """The kinds of all operations on operands that may be members of copies."""
        return {i: self.kind(i) for i in self.place if i.operands and self.may_repeat(i)}

    def may_repeat(self, i: Instruction) -> bool:
        """Whether an operation may be a member of a copy: without side effects or control dependencies."""
        repeats = self._may_repeat.get(i)
        if repeats is None:
            repeats = self._may_repeat[i] = self._repeats(i)
        return repeats

    def _repeats(self, i: Instruction) -> bool:
        if i.parameter_number is not None or i.control_predecessors or i in self._waited_for or has_side_effect(i):
            return False
        return not any(has_side_effect(inner) for c in i.called() for inner in c.instructions)

    def guesses(self) -> Iterator[tuple[Instruction, Instruction]]:
        """Pairs that may correspond in neighbouring copies: rare kinds first, and of equally rare ones the latest."""
        kinds: dict[Instruction, Hashable] = {
            i: (i.opcode, i.shape) if is_leaf(i) else self.kind(i) for i in self.place
        }
        hashes = kinds
        tried: set[tuple[Instruction, Instruction]] = set()
        for depth in range(1, DEPTH + 1):
            hashes = {i: hash((kinds[i], *[hashes[o] for o in i.operands])) for i in self.place}
            if depth in (1, DEPTH):
                for pair in self._pairs_of(hashes):
                    if pair not in tried:
                        tried.add(pair)
                        yield pair

    def _pairs_of(self, hashes: Mapping[Instruction, Hashable]) -> Iterator[tuple[Instruction, Instruction]]:
        groups: dict[Hashable, list[Instruction]] = defaultdict(list)
        for i in self.place:
            if i in self.members and not is_leaf(i):
                groups[hashes[i]].append(i)
        sizes: dict[int, list[Instruction]] = {}
        for group in groups.values():
            last = sizes.setdefault(len(group), group)
            if len(group) > 2 and self.place[group[len(group) // 2]] > self.place[last[len(last) // 2]]:
                sizes[len(group)] = group
        for size in sorted(n for n in sizes if n > 2)[:MOST_KINDS]:
            group, middle = sizes[size], size // 2
            for apart in range(1, min(MOST_APART, size // 3) + 1):
                yield group[middle - apart], group[middle]

    def grown(self, one: Instruction, other: Instruction) -> CopyChain | None:
        """The chain in which two operations correspond in neighbouring copies; None where there is none."""
        pairs = _Pairs(self)
        if not pairs.join(one, other, may_open=True) or not pairs.close():
            return None
        return _Copies(self, pairs).chain()


def is_leaf(i: Instruction) -> bool:
    """Whether an operation may differ by copy in its own value or range: a constant, a slice."""
    return cut_out(i) is not None or (i.literal is not None and i.literal.is_known and i.shape.is_array)


def differ_by_copy(one: Instruction, other: Instruction) -> bool:
    """Whether two operations are constants, or slices of one array, that may differ by copy."""
    if not is_leaf(one) or one.opcode != other.opcode or not one.shape.same_bytes(other.shape):
        return False
    return one.operands == other.operands


@dataclass
class _Pairs:
    """Correspondences between the first and second copy. `handed` maps a result of the first copy to the state before
    it."""

    finder: _Finder
    next: dict[Instruction, Instruction] = field(default_factory=dict)
    before: dict[Instruction, Instruction] = field(default_factory=dict)
    handed: dict[Instruction, Instruction] = field(default_factory=dict)

    def join(self, one: Instruction, other: Instruction, *, may_open: bool) -> bool:
        """Let `one` correspond to `other`, and their operands to each other. Changes nothing and returns False where
        impossible."""
        next_, before, handed, kinds = self.next, self.before, self.handed, self.finder.members
        added: list[Instruction] = []
        opened: list[Instruction] = []
        stack, kept = [(one, other)], 0
        while stack:
            a, b = stack.pop()
            if a is b or next_.get(a) is b or handed.get(b) is a:
                continue
            kind = kinds.get(a)
            if (kind is not None and kind == kinds.get(b)) or differ_by_copy(a, b):
                if a in next_ or b in before:
                    break
                next_[a], before[b] = b, a
                added.append(a)
                if a.operands != b.operands:
                    stack.extend([(o, p) for o, p in zip(a.operands, b.operands, strict=True) if o is not p])
            elif may_open and a.shape.same_bytes(b.shape) and b.shape.is_array and b not in handed:
                kept += b not in kinds
                if kept > MOST_KEPT:
                    break
                handed[b] = a
                opened.append(b)
            else:
                break
        else:
            return True
        for a in added:
            del before[next_.pop(a)]
        for b in opened:
            del handed[b]
        return False

    def close(self) -> bool:
        """Find the counterparts of the first copy's results in the second copy. May discover more state."""
        done: set[Instruction] = set()
        while todo := [result for result in self.handed if result not in done]:
            for result in todo:
                done.add(result)
                if result not in self.next and result not in self.handed.values() and not self._pair_up(result):
                    return False
        state = set(self.handed.values())
        return bool(self.handed) and all(result in state or self.finder.may_repeat(result) for result in self.handed)

    def _pair_up(self, result: Instruction) -> bool:
        """Walk up from the known correspondences to a result of the first copy. Returns whether it now has a
        counterpart."""
        place = self.finder.place
        needed = _above(set(self.handed.values()), [result], self)
        for i in sorted(needed, key=place.__getitem__):
            if i not in self.next:
                any(self.join(i, there, may_open=True) for there in self._candidates(i))
        return result in self.next

    def _candidates(self, i: Instruction) -> Iterator[Instruction]:
        """The candidates for the counterpart of an operation of the first copy: users of its operands' counterparts."""
        results = {state: result for result, state in self.handed.items()}
        for position, operand in enumerate(i.operands):
            there = self.next.get(operand) or results.get(operand)
            if there is None:
                continue
            for user in list(there.users):
                is_there = len(user.operands) > position and user.operands[position] is there
                if is_there and user is not i and self.finder.kind(user) == self.finder.kind(i):
                    yield user
            return


def _above(state: set[Instruction], ends: Iterable[Instruction], pairs: _Pairs) -> set[Instruction]:
    """The operations that compute `ends`, including them, down to the state and to values common to all copies."""
    needed: set[Instruction] = set()
    stack = list(ends)
    while stack:
        i = stack.pop()
        if i in needed or i in state or not i.operands or not pairs.finder.may_repeat(i):
            continue
        needed.add(i)
        stack.extend(i.operands)
    return needed


@dataclass(frozen=True)
class Handed:
    """The state value of this number, as an operand."""

    number: int


CopyOrigin = Instruction | Handed
"""The origin of an operand in the first copy: a member or leaf, the state, or a value common to all copies."""


class _Copies:
    """Builds the copies one by one. `images` maps each member of the first copy to its counterpart, per copy."""

    def __init__(self, finder: _Finder, pairs: _Pairs) -> None:
        self.finder, self.pairs = finder, pairs
        self.results = sorted(pairs.handed, key=finder.place.__getitem__)
        self.initial = [pairs.handed[m] for m in self.results]
        self.edges: dict[Instruction, list[CopyOrigin]] = {}
        self.leaves: dict[Instruction, None] = {}
        self.moves: dict[Instruction, None] = {}
        """Members that depend on the state."""
        self.images: list[dict[Instruction, Instruction]] = []
        self.values: list[list[Instruction]] = []
        self.used: set[Instruction] = set()

    def chain(self) -> CopyChain | None:
        if not self._collect():
            return None
        first = {i: i for i in (*self.edges, *self.leaves)}
        self.images.append(first)
        self.values += [self.initial, self._results(first, self.initial)]
        self.used = set(self.edges)
        while (image := self._following()) is not None:
            self.images.append(image)
            self.values.append(self._results(image, self.values[-1]))
            self.used.update(image[i] for i in self.edges)
        copies = min([len(self.images), *[_regular([image[i] for image in self.images]) for i in self.leaves]])
        if copies < self.finder.fewest:
            return None
        chain = CopyChain(
            copies,
            [tuple(image[i] for image in self.images[:copies]) for i in self.edges],
            [tuple(image[i] for image in self.images[:copies]) for i in self.leaves],
            [tuple(values[n] for values in self.values[: copies + 1]) for n in range(len(self.initial))],
        )
        short = self._short() if copies == len(self.images) else None
        chain = replace(_Absorbed(self.finder, chain).chain(), short=short)
        return chain if is_chain(chain) else None

    def _short(self) -> Short | None:
        """An incomplete copy after the last one, if at least half of it exists."""
        present, values = self._next_members()
        missing = [i for i in self.edges if i not in present]
        if not missing or 2 * len(missing) > len(self.edges) or any(i not in present for i in self.leaves):
            return None
        operands = {i: [values[e.number] if isinstance(e, Handed) else e for e in self.edges[i]] for i in missing}
        return Short(present, operands)

    def _collect(self) -> bool:
        """Collect the members of the first copy, operands first, and where their operands come from. False where it is
        not a chain."""
        results = {m: n for n, m in enumerate(self.results)}
        edges: dict[Instruction, list[CopyOrigin]] = {}
        stack = [m for m in self.results if m not in self.initial]
        while stack:
            a = stack.pop()
            if a in edges:
                continue
            b = self.pairs.next.get(a)
            if b is None or len(edges) > len(self.finder.place):
                return False
            edges[a] = []
            for one, other in zip(a.operands, b.operands, strict=True):
                if one is other:
                    edges[a].append(one)
                elif other in results and self.initial[results[other]] is one:
                    edges[a].append(Handed(results[other]))
                elif self.pairs.next.get(one) is other:
                    edges[a].append(one)
                    if differ_by_copy(one, other):
                        self.leaves[one] = None
                    else:
                        stack.append(one)
                else:
                    return False
        order = sorted(edges, key=self.finder.place.__getitem__)
        self.edges = {i: edges[i] for i in order}
        self.leaves = dict.fromkeys(sorted(self.leaves, key=self.finder.place.__getitem__))
        for i in order:
            if any(isinstance(e, Handed) or e in self.moves for e in edges[i]):
                self.moves[i] = None
        return bool(self.moves) and all(m in self.moves or m in self.initial for m in self.results)

    def _results(self, image: dict[Instruction, Instruction], before: list[Instruction]) -> list[Instruction]:
        return [image[m] if m in image else before[self.initial.index(m)] for m in self.results]

    def _following(self) -> dict[Instruction, Instruction] | None:
        """The next complete copy; None where there is none."""
        present, _ = self._next_members()
        return present if all(i in present for i in (*self.edges, *self.leaves)) else None

    def _next_members(self) -> tuple[dict[Instruction, Instruction], list[Instruction]]:
        """The existing members of the next copy, and the state it reads."""
        last, values = self.images[-1], self.values[-1]
        present: dict[Instruction, Instruction] = {}
        for i in self.moves:
            known = self.pairs.next.get(last[i])
            for candidate in self._candidates(i, present, values) if known is None else (known,):
                more = self._fitting(i, candidate, present, values)
                if more is not None:
                    present.update(more)
                    break
        return present, values

    def _candidates(
        self, i: Instruction, present: dict[Instruction, Instruction], values: list[Instruction]
    ) -> Iterable[Instruction]:
        for edge in self.edges[i]:
            if isinstance(edge, Handed):
                there: Instruction | None = values[edge.number]
            else:
                there = present.get(edge) if edge in self.moves else None
            if there is not None:
                return [user for user in there.users if self.finder.kind(user) == self.finder.kind(i)]
        return ()

    def _fitting(
        self, i: Instruction, candidate: Instruction, present: dict[Instruction, Instruction], values: list[Instruction]
    ) -> dict[Instruction, Instruction] | None:
        """The counterparts of a member and its operands in a copy, if it is the candidate; None where it cannot be."""
        counterparts: dict[Instruction, Instruction] = {}
        stack = [(i, candidate)]
        while stack:
            a, b = stack.pop()
            known = present.get(a) or counterparts.get(a)
            if known is not None:
                if known is not b:
                    return None
                continue
            if a in self.leaves:
                if not differ_by_copy(a, b):
                    return None
            elif b in self.used or not self.finder.may_repeat(b) or self.finder.kind(a) != self.finder.kind(b):
                return None
            counterparts[a] = b
            if a in self.leaves:
                continue
            for edge, operand in zip(self.edges[a], b.operands, strict=True):
                if isinstance(edge, Handed):
                    if operand is not values[edge.number]:
                        return None
                elif edge in self.edges or edge in self.leaves:
                    stack.append((edge, operand))
                elif operand is not edge:
                    return None
        return counterparts


def _regular(leaves: Sequence[Instruction]) -> int:
    """The number of copies, from the first, for which a leaf is a constant, or a slice at an arithmetic sequence of
    starts."""
    ranges = [cut_out(i) for i in leaves]
    if ranges[0] is None:
        return len(leaves)
    starts = [[r.start for r in sliced] for sliced in ranges if sliced is not None]
    if any(r.stride != 1 for r in ranges[0]):
        return 1
    for n in range(2, len(starts)):
        expected = [2 * b - a for a, b in zip(starts[n - 2], starts[n - 1], strict=True)]
        if starts[n] != expected or any(r.stride != 1 for r in ranges[n] or ()):
            return n
    return len(starts)


class _Absorbed:
    """Extends a chain by operations that all copies apply to their values alike, and by sums over the copies."""

    def __init__(self, finder: _Finder, chain: CopyChain) -> None:
        self.finder = finder
        self.copies = chain.copies
        self.nodes = list(chain.nodes)
        self.leaves = list(chain.leaves)
        self.state = list(chain.state)
        self.rows = {row[0]: row for row in (*self.nodes, *self.leaves)}
        self.members = {i for row in self.nodes for i in row}

    def chain(self) -> CopyChain:
        todo = list(self.nodes)
        while todo:
            row = todo.pop(0)
            for user in list(row[0].users):
                added = None if user in self.members else self._row(row, user)
                if added is not None:
                    self.nodes.append(added)
                    self.rows[user] = added
                    self.members.update(added)
                    todo.append(added)
        self.nodes.sort(key=lambda row: self.finder.place[row[0]])
        return CopyChain(self.copies, self.nodes, self.leaves, self.state)

    def _row(self, row: Row, user: Instruction) -> Row | None:
        """The counterparts of a member's user in each copy; None where the copies do not have it."""
        kind, position = self.finder.kind(user), next(n for n, o in enumerate(user.operands) if o is row[0])
        if is_leaf(user) or not self.finder.may_repeat(user) or not user.shape.is_array:
            return None
        counterparts = [user]
        for member in row[1:]:
            fit = [
                u
                for u in member.users
                if self.finder.kind(u) == kind and u.operands[position] is member and u not in self.members
            ]
            fit = [
                u for u in fit if u not in counterparts and self._goes_on(user, counterparts[-1], u, len(counterparts))
            ]
            if not fit:
                return None
            counterparts.append(fit[0])
        sequence = tuple(counterparts)
        for n in range(len(user.operands)):
            handed = tuple(u.operands[n] for u in sequence)
            if handed[1:] == sequence[:-1] and (*handed, sequence[-1]) not in self.state:
                self.state.append((*handed, sequence[-1]))
        return sequence

    def _goes_on(self, first: Instruction, last: Instruction, there: Instruction, copy: int) -> bool:
        """Whether an operation of a copy corresponds to `first`, given its counterpart in the copy before."""
        for mine, operand in zip(first.operands, there.operands, strict=True):
            row = self.rows.get(mine)
            is_member = row is not None and row[copy] is operand
            is_state = any(state[0] is mine and state[copy] is operand for state in self.state)
            if not (is_member or is_state or operand is mine or operand is last):
                return False
        return True


def is_chain(chain: CopyChain) -> bool:
    """Whether copies are a valid chain: disjoint, with operands from corresponding places, and no input computed from
    them."""
    members = {i for row in chain.nodes for i in row}
    if len(members) != chain.copies * len(chain.nodes) or not chain.state:
        return False
    inputs = {o for i in members for o in i.operands if o not in members} | {s[0] for s in chain.state}
    if not members.isdisjoint(inputs):
        return False
    for row in chain.nodes:
        for position in range(len(row[0].operands)):
            if source(chain, tuple(i.operands[position] for i in row)) is None:
                return False
    last = {state[-1] for state in chain.state} - members
    if any(all(state[-1] is not other[-2] for other in chain.state) for state in chain.state if state[-1] in last):
        return False
    return not _reaches(members, inputs)


def source(chain: CopyChain, operands: Row) -> Row | int | None:
    """The origin of an operand of members: the row of a member or leaf, a state number, or the operand if common to all
    copies. None where it is none of these."""
    if all(o is operands[0] for o in operands):
        return operands
    if chain.rows.get(operands[0]) == operands:
        return operands
    return chain.handed.get(operands)


def _reaches(members: set[Instruction], inputs: set[Instruction]) -> bool:
    """Whether an input of the members is computed from them."""
    seen: set[Instruction] = set()
    stack = list(inputs)
    while stack:
        i = stack.pop()
        if i in members:
            return True
        if i not in seen:
            seen.add(i)
            stack.extend((*i.operands, *i.control_predecessors))
    return False
