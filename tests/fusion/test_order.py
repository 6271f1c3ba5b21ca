"""The order that is kept up while instructions are merged, against reachability computed anew."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from hlo_opt.fusion.order import Group, Order
from hlo_opt.ir import ELEMENT_TYPES, Computation, Instruction, Module, Shape, edit
from hlo_opt.ir.walk import post_order


class Reachability:
    """`reaches(a, b)`: whether b depends on a through operands or control predecessors. An instruction reaches itself."""

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
    group = Group(order, host, candidates)
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


def test_an_element_stands_where_its_tuple_does() -> None:
    module = Module("m")
    computation = edit.add_computation(module, Computation("e"), entry=True)
    shape = Shape(ELEMENT_TYPES["f32"], ())
    pair = edit.create(computation, "pair", "custom-call", Shape.tuple_of(shape, shape))
    later = edit.create(computation, "later", "add", shape, [])
    element = edit.create(computation, "element", "get-tuple-element", shape, [pair])
    user = edit.create(computation, "user", "add", shape, [element, later])
    edit.set_root(computation, user)
    computation.index_users()
    order = Order(computation, [pair, later, element, user])
    assert element in order.below(pair, order.place(later))
    assert order.depends(user, pair) and order.depends(element, pair) and not order.depends(pair, element)
    assert not order.depends(later, pair)


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


@pytest.mark.parametrize("seed", range(6))
def test_control_dependencies_are_another_way(seed: int) -> None:
    computation = graph(seed, 14)
    choice = random.Random(seed)
    members = list(computation.instructions)
    for _ in range(6):
        first, second = sorted(choice.sample(range(len(members)), 2))
        members[second].control_predecessors.append(members[first])
    order = Order(computation, members)
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
    group = Group(order, members[5], [members[4], members[7]])
    assert [group.knows(i) for i in members] == [4 <= k <= 7 for k in range(len(members))]
    truth = Reachability(computation, members)
    assert [group.connected(i) for i in members[4:8] if i is not members[5]] == [
        truth.connected(members[5], i) for i in members[4:8] if i is not members[5]
    ]
    nobody = Group(order, members[5], [])
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
