"""The order that is kept up while instructions are merged, against reachability computed anew."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from small_modules import module_of

from hlo_opt.fusion import duplication
from hlo_opt.fusion.duplication import effectively_at_most_unary, globally_unfusible
from hlo_opt.fusion.order import Connected, Order, Settled
from hlo_opt.ir import ELEMENT_TYPES, Computation, Instruction, Module, Shape, edit
from hlo_opt.ir.walk import post_order


class Reachability:
    """`reaches(a, b)`: whether b depends on a through operands or control predecessors. An instruction reaches
    itself."""

    def __init__(self, computation: Computation, order: Iterable[Instruction] | None = None) -> None:
        self._number: dict[Instruction, int] = {}
        self._above: dict[Instruction, int] = {}
        for number, instruction in enumerate(post_order(computation) if order is None else order):
            self._number[instruction] = number
            bits = 1 << number
            for needed in (*instruction.operands, *instruction.control_predecessors):
                bits |= self._above[needed]
            self._above[instruction] = bits

    def reaches(self, start: Instruction, end: Instruction) -> bool:
        return bool(self._above[end] >> self._number[start] & 1)

    def connected(self, one: Instruction, other: Instruction) -> bool:
        """Whether either depends on the other."""
        return self.reaches(one, other) or self.reaches(other, one)


def graph(seed: int, size: int) -> Computation:
    """Instructions that each read some of those before them."""
    choice = random.Random(seed)
    module = Module("m")
    computation = edit.add_computation(module, Computation("e"), entry=True)
    shape = Shape(ELEMENT_TYPES["f32"], ())
    made: list[Instruction] = []
    for number in range(size):
        operands = choice.sample(made, min(len(made), choice.randint(0, 2)))
        made.append(edit.create(computation, f"v{number}", "add", shape, operands))
    edit.set_root(computation, made[-1])
    computation.index_users()
    return computation


def merged(computation: Computation, one: Instruction, other: Instruction) -> None:
    """`other` becomes part of `one`."""
    operands = [o for o in dict.fromkeys((*one.operands, *other.operands)) if o not in (one, other)]
    edit.set_operands(one, operands)
    edit.redirect_users(other, one)
    edit.remove(other)
    edit.set_operands(one, operands)


@pytest.mark.parametrize("seed", range(8))
def test_what_it_says_stays_true_while_instructions_are_merged(seed: int) -> None:
    computation = graph(seed, 40)
    order = Order(computation, post_order(computation))
    choice = random.Random(seed)
    merges = 0
    for _ in range(60):
        live = list(computation.instructions)
        if len(live) < 4:
            break
        one, other = choice.sample(live, 2)
        truth = Reachability(computation, post_order(computation))
        assert order.connected(one, other) == truth.connected(one, other)
        for user in live:
            for operand in user.operands:
                others = [o for o in user.operands if o is not operand]
                assert order.depends_otherwise(user, operand) == any(truth.reaches(operand, o) for o in others)
        direct = other in one.operands and not order.depends_otherwise(one, other)
        if not order.connected(one, other) or direct:
            order.merge(one, other, one)
            merged(computation, one, other)
            merges += 1
        places = {i: order.place(i) for i in computation.instructions}
        assert len(set(places.values())) == len(places)
        assert all(places[o] < places[i] for i in computation.instructions for o in i.operands)
    assert merges > 10


@pytest.mark.parametrize("seed", range(8))
def test_elements_of_tuples_stand_where_the_tuple_does(seed: int) -> None:
    """What reads an element depends on the tuple, wherever merging has moved the tuple since."""
    choice = random.Random(seed)
    computation = edit.add_computation(Module("m"), Computation("e"), entry=True)
    array = Shape(ELEMENT_TYPES["f32"], ())
    values: list[Instruction] = []
    kernels: list[Instruction] = []
    for number in range(30):
        operands = choice.sample(values, min(len(values), choice.randint(0, 2)))
        kernel = edit.create(computation, f"v{number}", "add", Shape.tuple_of(array, array), operands)
        kernels.append(kernel)
        values += [edit.create(computation, "element", "get-tuple-element", array, [kernel]) for _ in range(2)]
    edit.set_root(computation, values[-1])
    computation.index_users()
    order = Order(computation, list(computation.instructions))
    merges = 0
    for _ in range(60):
        one, other = choice.sample(kernels, 2)
        truth = Reachability(computation, post_order(computation))
        assert order.connected(one, other) == truth.connected(one, other)
        for user in kernels:
            for operand in user.operands:
                others = [o for o in user.operands if o is not operand]
                assert order.depends_otherwise(user, operand) == any(truth.reaches(operand, o) for o in others)
        if not order.connected(one, other):
            order.merge(one, other, one)
            merged(computation, one, other)
            kernels.remove(other)
            merges += 1
        places = {i: order.place(i) for i in kernels}
        assert len(set(places.values())) == len(places)
        assert all(order.place(o) < places[i] for i in kernels for o in i.operands)
    assert merges > 3


@pytest.mark.parametrize("seed", range(8))
def test_a_group_knows_what_it_is_connected_with(seed: int) -> None:
    computation = graph(seed, 60)
    order = Order(computation, post_order(computation))
    host, *candidates = random.Random(seed).sample(list(computation.instructions), 30)
    group = Connected(order, host, candidates)
    joined = 0
    for other in candidates:
        truth = Reachability(computation, post_order(computation))
        assert group.knows(other)
        assert group.connected(other) == truth.connected(host, other)
        if not group.connected(other):
            group.add(other)
            order.merge(other, host, host)
            merged(computation, host, other)
            joined += 1
    assert joined


def test_control_dependencies_count() -> None:
    computation = graph(0, 1)
    first = computation.root
    second = edit.create(computation, "second", "add", first.shape)
    second.control_predecessors.append(first)
    order = Order(computation, [first, second])
    assert order.connected(first, second) and order.depends(second, first)


def test_a_new_instruction_takes_the_place_of_an_old_one() -> None:
    computation = graph(0, 3)
    old = computation.root
    order = Order(computation, post_order(computation))
    place = order.place(old)
    new = edit.create(computation, "new", "add", old.shape, old.operands)
    order.rename(old, new)
    assert order.place(new) == place


@pytest.mark.parametrize("order_type", [Order, Settled])
def test_an_element_stands_where_its_tuple_does(order_type: type[Order]) -> None:
    module = Module("m")
    computation = edit.add_computation(module, Computation("e"), entry=True)
    shape = Shape(ELEMENT_TYPES["f32"], ())
    pair = edit.create(computation, "pair", "custom-call", Shape.tuple_of(shape, shape))
    later = edit.create(computation, "later", "add", shape, [])
    element = edit.create(computation, "element", "get-tuple-element", shape, [pair])
    user = edit.create(computation, "user", "add", shape, [element, later])
    edit.set_root(computation, user)
    computation.index_users()
    order = order_type(computation, [pair, later, element, user])
    assert element in order.below(pair, order.place(later))
    assert order.depends(user, pair) and order.depends(element, pair) and not order.depends(pair, element)
    assert not order.depends(later, pair)
    assert not order.reaches_any(pair, [element, later]) and order.reaches_any(pair, [element, user])


def near(instruction: Instruction, computation: Computation, *, down: bool) -> list[Instruction]:
    """What is directly below or above, control dependencies included."""
    if not down:
        return [*instruction.operands, *instruction.control_predecessors]
    waiting = [i for i in computation.instructions if instruction in i.control_predecessors]
    return [*instruction.users, *waiting]


def reached(
    start: Instruction, computation: Computation, stop: set[Instruction], kept: set[Instruction], *, down: bool
) -> set[Instruction]:
    """What is reached through what is kept, without going on from where it stops."""
    found, todo = {start}, [start]
    while todo:
        for other in near(todo.pop(), computation, down=down):
            if other in kept and other not in found and other not in stop:
                found.add(other)
                todo.append(other)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_below_and_above_stay_between_places(seed: int) -> None:
    """With control dependencies, up to every place, and not behind what was seen before."""
    computation = graph(seed, 14)
    choice = random.Random(seed)
    members = list(computation.instructions)
    for _ in range(4):
        first, second = sorted(choice.sample(range(len(members)), 2))
        members[second].control_predecessors.append(members[first])
    order = Order(computation, members)
    for start in members:
        for place in range(len(members)):
            for stop in (set(), {choice.choice(members)} - {start}):
                lower = {i for i in members if order.place(i) <= place}
                upper = {i for i in members if order.place(i) >= place}
                below = reached(start, computation, stop, lower, down=True)
                above = reached(start, computation, stop, upper, down=False)
                assert order.below(start, place, set(stop)) == below | stop
                assert order.above(start, place, set(stop)) == above | stop
        assert order.below(start, len(members)) == reached(start, computation, set(), set(members), down=True)
        assert order.above(start, 0) == reached(start, computation, set(), set(members), down=False)


@pytest.mark.parametrize("order_type", [Order, Settled])
@pytest.mark.parametrize("seed", range(6))
def test_control_dependencies_are_another_way(seed: int, order_type: type[Order]) -> None:
    computation = graph(seed, 14)
    choice = random.Random(seed)
    members = list(computation.instructions)
    for _ in range(6):
        first, second = sorted(choice.sample(range(len(members)), 2))
        members[second].control_predecessors.append(members[first])
    order = order_type(computation, members)
    truth = Reachability(computation, members)
    for user in members:
        assert not order.depends(user, user)
        for other in members:
            if other is not user:
                assert order.depends(user, other) == truth.reaches(other, user)
                assert order.connected(user, other) == truth.connected(user, other)
        for operand in user.operands:
            others = [o for o in (*user.operands, *user.control_predecessors) if o is not operand]
            assert order.depends_otherwise(user, operand) == any(truth.reaches(operand, o) for o in others)


def test_a_group_looks_between_its_candidates() -> None:
    computation = graph(1, 12)
    members = list(computation.instructions)
    order = Order(computation, members)
    group = Connected(order, members[5], [members[4], members[7]])
    assert [group.knows(i) for i in members] == [4 <= k <= 7 for k in range(len(members))]
    truth = Reachability(computation, members)
    assert [group.connected(i) for i in members[4:8] if i is not members[5]] == [
        truth.connected(members[5], i) for i in members[4:8] if i is not members[5]
    ]
    nobody = Connected(order, members[5], [])
    assert [k for k, i in enumerate(members) if nobody.knows(i)] == [5]
    order.rename(members[5], members[5])
    assert order.place(members[5]) == 5


def test_what_takes_the_place_of_an_old_instruction_is_there_once() -> None:
    computation = graph(0, 3)
    old = computation.root
    order = Order(computation, list(computation.instructions))
    new = edit.create(computation, "new", "add", old.shape, old.operands)
    order.rename(old, new)
    with pytest.raises(KeyError):
        order.place(old)


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_what_is_merged_into_another_has_no_place(turned: bool, is_late: bool) -> None:
    computation = graph(2, 12)
    members = list(computation.instructions)
    truth = Reachability(computation, members)
    early, late = next((a, b) for k, a in enumerate(members) for b in members[k + 3 :] if not truth.connected(a, b))
    order = Order(computation, members)
    kept, gone = (late, early) if is_late else (early, late)
    order.merge(*((gone, kept) if turned else (kept, gone)), kept)
    assert order.place(kept) in range(12)
    with pytest.raises(KeyError):
        order.place(gone)


INPUTS = (
    "p = f32[64,64]{1,0} parameter(0)",
    "q = f32[64,64]{1,0} parameter(1)",
    "v = f32[64]{0} parameter(2)",
    "one = f32[] constant(1)",
    "wide = f32[1,64,1]{2,1,0} parameter(3)",
    "c = f32[64,64]{1,0} constant({...})",
    "low = f32[1,1]{1,0} constant({{3}})",
)


@pytest.mark.parametrize(
    ("line", "unary"),
    [
        ("f32[64,64]{1,0} negate(p)", True),
        ("f32[64,64]{1,0} add(p, p)", True),
        ("f32[64,64]{1,0} add(p, q)", False),
        ("f32[64,64]{1,0} add(p, c)", False),
        ("f32[64,64]{1,0} add(p, i)", True),
        ("f32[64,64]{1,0} add(p, b)", True),
        ("f32[64,64]{1,0} clamp(one, p, one)", True),
        ("f32[64]{0} reduce(p, one), dimensions={1}, to_apply=sum", True),
        ("f32[64]{0} dot(p, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}", False),
        ("f32[64]{0} add(v, w)", False),
        ("f32[] add(one, z)", True),
        ("f32[] add(y, z)", False),  # parameters of no dimensions are as large as the result
        ("f32[1,1]{1,0} add(low, low)", True),
        # one of two results is as large as both operands
        ('(f32[64,64]{1,0}, f32[]) custom-call(p, v), custom_call_target="f"', True),
        ('(f32[], f32[64,64]{1,0}) custom-call(p, q), custom_call_target="f"', False),
        ('f32[64,64]{1,0} custom-call(p, pair), custom_call_target="f"', False),
    ],
)
def test_what_reads_one_large_operand_at_most(line: str, unary: bool):
    lines = (
        "i = f32[64,64]{1,0} iota(), iota_dimension=0",
        "b = f32[64,64]{1,0} broadcast(v), dimensions={0}",
        "w = f32[64]{0} parameter(4)",
        "z = f32[] parameter(5)",
        "y = f32[] parameter(7)",
        "pair = (f32[], f32[64,64]{1,0}) parameter(6)",
    )
    assert effectively_at_most_unary(module_of(*INPUTS, *lines, f"r = {line}").entry.root) == unary


def unfusible(
    *lines: str, refused: tuple[tuple[str, str], ...] = (), asked: list[tuple[str, str]] | None = None
) -> list[str]:
    """Of a module in which every edge may be fused but those that are refused."""
    module = module_of(*INPUTS, *lines)

    def allows(producer: object, consumer: object) -> bool:
        names = producer.name, consumer.name  # type: ignore[attr-defined]
        if asked is not None:
            asked.append(names)
        return names not in refused

    return sorted(i.name for i in globally_unfusible(module.entry, post_order(module.entry), allows))


SMALLER = "a = f32[64]{0} dot(p, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}"  # reads 64 x 64 and 64
READERS = ("b = f32[64]{0} negate(a)", "c2 = f32[64]{0} tanh(a)", "d = f32[64]{0} add(b, c2)")


def test_what_all_ways_allow_may_be_copied():
    assert unfusible(SMALLER, *READERS) == []


@pytest.mark.parametrize("refused", [("a", "b"), ("a", "c2")])
def test_what_one_reader_refuses_may_not(refused: tuple[str, str]):
    assert unfusible(SMALLER, *READERS, refused=(refused,)) == ["a"]


def test_what_has_one_reader_or_reads_no_more_than_it_writes_is_not_asked_about():
    asked: list[tuple[str, str]] = []
    assert unfusible(SMALLER, READERS[0], refused=(("a", "b"),), asked=asked) == [] and not asked
    equal = ("a = f32[64]{0} negate(v)", *READERS)  # one operand
    assert unfusible(*equal, refused=(("a", "b"),), asked=asked) == [] and not asked
    grows = (
        "w = f32[64]{0} parameter(4)",
        "a = f32[128]{0} concatenate(v, w), dimensions={0}",
        "b = f32[128]{0} negate(a)",
        "r = f32[128]{0} add(a, b)",
    )
    assert unfusible(*grows, refused=(("a", "b"),), asked=asked) == [] and not asked
    more = ("w = f32[64]{0} parameter(4)", "a = f32[64]{0} add(v, w)", *READERS)
    assert unfusible(*more, refused=(("a", "b"),), asked=asked) == ["a"] and asked


def test_every_way_to_a_reader_counts():
    """From `a` to `d` there is a way through `b`; where an edge on it is refused, `d` would have to read `a` from
    memory."""
    chain = (SMALLER, "b = f32[64]{0} negate(a)", "e = f32[64]{0} abs(b)", "d = f32[64]{0} add(a, e)")
    assert unfusible(*chain) == []
    assert unfusible(*chain, refused=(("e", "d"),)) == ["a"]
    assert unfusible(*chain, refused=(("b", "e"),)) == ["a"]
    other = (
        *chain[:3],
        "x = f32[64]{0} tanh(v)",
        "y = f32[64]{0} abs(x)",
        "d0 = f32[64]{0} add(e, y)",
        "d = f32[64]{0} add(a, d0)",
    )
    assert unfusible(*other) == []
    assert unfusible(*other, refused=(("x", "y"), ("y", "d0"))) == []
    assert unfusible(*other, refused=(("e", "d0"),)) == ["a"]


def test_what_must_not_be_copied_ends_a_way():
    """`n` is refused by a reader of its own, found first; then no way leads through it."""
    lines = (
        SMALLER,
        "b = f32[64]{0} negate(a)",
        "w = f32[64]{0} parameter(4)",
        "n = f32[64]{0} add(b, w)",
        "m = f32[64]{0} abs(n)",
        "d = f32[64]{0} subtract(a, m)",
        "k = f32[64]{0} tanh(n)",
        "r = f32[64]{0} add(d, k)",
    )
    assert unfusible(*lines) == []
    assert unfusible(*lines, refused=(("n", "k"),)) == ["a", "n"]


def test_an_edge_is_asked_about_once_for_each_producer():
    asked: list[tuple[str, str]] = []
    unfusible(SMALLER, *READERS, asked=asked)
    assert sorted(asked) == [("a", "b"), ("a", "c2")]


def test_what_was_seen_is_forgotten_when_it_is_too_much(monkeypatch: pytest.MonkeyPatch):
    lines = (
        SMALLER,
        *READERS,
        "a2 = f32[64]{0} dot(q, d), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        *(f"{n}2 = {rest.replace('(a)', '(a2)')}" for n, rest in (line.split(" = ") for line in READERS[:2])),
        "d2 = f32[64]{0} add(b2, c22)",
        "r = f32[64]{0} add(d2, a)",
    )
    wanted = unfusible(*lines), unfusible(*lines, refused=(("a", "b"),))
    for remembered in (0, 3, 6, 100):
        monkeypatch.setattr(duplication, "REMEMBERED", remembered)
        assert (unfusible(*lines), unfusible(*lines, refused=(("a", "b"),))) == wanted


def test_what_depends_on_a_producer_is_looked_up_once_for_readers_that_come_last_first(monkeypatch: pytest.MonkeyPatch):
    chain = [f"x{n} = f32[64]{{0}} negate({f'x{n - 1}' if n else 'v'})" for n in range(8)]
    module = module_of(*INPUTS, *chain)
    of = {i.name: i for i in module.entry.instructions}
    monkeypatch.setattr(duplication, "REMEMBERED", 12)
    between = duplication._Between(module.entry, post_order(module.entry))
    walks: list[tuple[str, int]] = []
    below = between._order.below
    monkeypatch.setattr(
        between._order, "below", lambda start, last: walks.append((start.name, last)) or below(start, last)
    )
    place = between._order.place

    def ask(producer: str, current: str, consumer: str) -> list[str]:
        found = [i.name for i in between.operands(of[producer], of[current], of[consumer])]
        assert between._size == sum(len(reached) for _, reached in between._below.values())
        return found

    assert ask("x1", "x1", "x7") == [] and ask("x1", "x2", "x7") == ["x1"] and not walks
    assert ask("x1", "x4", "x5") == ["x3"] and ask("x1", "x3", "x4") == ["x2"]  # x1 to x5
    assert walks == [("x1", place(of["x5"]))]
    assert ask("x1", "x7", "x7") == ["x6"]  # seven, more than before: looked up anew
    assert walks[1:] == [("x1", place(of["x7"]))]
    assert ask("x3", "x6", "x7") == ["x5"]  # five more, twelve together
    assert ask("x1", "x6", "x7") == ["x5"] and ask("x3", "x5", "x6") == ["x4"]
    assert len(walks) == 3
    assert ask("x5", "x7", "x7") == ["x6"]  # three more are too many: only these are kept
    assert set(between._below) == {of["x5"]} and ask("x3", "x6", "x7") == ["x5"]
    assert len(walks) == 5
