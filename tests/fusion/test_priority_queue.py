"""The queue remembers verdicts and costs; what it remembers must be what a fresh look gives."""

import math
import random
from types import SimpleNamespace

import pytest
from small_modules import module_of

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.fusion.context import FuseOptions, PassContext
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.priority_choices import PriorityChoices
from hlo_opt.fusion.priority_queue import PriorityQueue, _Standing, saved_quarters
from hlo_opt.ir import Instruction


def graph(seed: int) -> str:
    """Some dozen operations on three shapes, each reading what came before."""
    draw = random.Random(seed)
    values = {"[32,64]{1,0}": ["p"], "[32]{0}": ["q"], "[2048]{0}": ["r"]}
    lines = [
        "p = f32[32,64]{1,0} parameter(0)",
        "q = f32[32]{0} parameter(1)",
        "r = f32[2048]{0} parameter(2)",
        "z = f32[] constant(0)",
    ]
    for n in range(30):
        shape = draw.choice(list(values))
        one, other = draw.choice(values[shape]), draw.choice(values[shape])
        kind = draw.choice(["add", "tanh", "move"])
        made = shape
        if kind == "add":
            text = f"add({one}, {other})"
        elif kind == "tanh":
            text = f"tanh({one})"
        elif shape == "[32]{0}":
            made, text = "[32,64]{1,0}", f"broadcast({one}), dimensions={{0}}"
        elif shape == "[2048]{0}":
            made, text = "[32,64]{1,0}", f"bitcast({one})"
        else:
            made, text = draw.choice(
                [("[32]{0}", f"reduce({one}, z), dimensions={{1}}, to_apply=sum"), ("[2048]{0}", f"bitcast({one})")]
            )
        values[made].append(f"v{n}")
        lines.append(f"v{n} = f32{made} {text}")
    results = [v for found in values.values() for v in found[-2:] if v.startswith("v")]
    shapes = [next(line.split(" = ")[1].split(" ")[0] for line in lines if line.startswith(f"{v} =")) for v in results]
    reducer = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"
    root = f"ROOT t = ({', '.join(shapes)}) tuple({', '.join(results)})"
    return f"HloModule m\n\n{reducer}\nENTRY e {{\n  " + "\n  ".join([*lines, root]) + "\n}\n"


@pytest.mark.parametrize("seed", range(6))
def test_what_the_queue_remembers_is_true(seed: int):
    module = hlo_opt.parse(graph(seed))
    engine = Engine(module, PassContext(FuseOptions(target("h100_sxm"))))
    choices = PriorityChoices()
    module.entry.index_users()

    def accepts(producer: Instruction, consumer: Instruction) -> bool:
        return engine.allows(engine.edge(producer, consumer), choices)

    queue = PriorityQueue(module.entry, engine.state, accepts)
    steps = 0
    while (found := queue.pop()) is not None:
        producer, users = found
        for user in users:
            queue.fused(producer, user, engine.fuse(producer, user))
            steps += 1
        queue.update()
        fresh = PriorityQueue(module.entry, Engine(module, PassContext(FuseOptions(target("h100_sxm")))).state, accepts)
        for instruction in module.entry.instructions:
            if instruction in fresh._standings and instruction.opcode != "bitcast":
                assert queue.priority(instruction) == fresh.priority(instruction), (steps, instruction.name)
    assert steps > 5


def test_of_equal_producers_the_latest_comes_first():
    text = """HloModule m

ENTRY e {
  p = f32[64]{0} parameter(0)
  a = f32[64]{0} negate(p)
  b = f32[64]{0} negate(p)
  x = f32[64]{0} tanh(a)
  y = f32[64]{0} tanh(b)
  ROOT t = (f32[64]{0}, f32[64]{0}) tuple(x, y)
}
"""
    module = hlo_opt.parse(text)
    engine = Engine(module, PassContext(FuseOptions(target("h100_sxm"))))
    queue = PriorityQueue(module.entry, engine.state, lambda p, c: c.opcode != "tuple")
    order = []
    while (found := queue.pop()) is not None:
        order.append(found[0].name)
    assert order == ["b", "a"]


def test_a_user_is_asked_once_whether_it_is_wanted():
    users = 40
    lines = ["p = f32[64]{0} parameter(0)", "v = f32[64]{0} tanh(p)", "total0 = f32[64]{0} negate(v)"]
    for n in range(1, users):
        lines += [f"user{n} = f32[64]{{0}} abs(v)", f"total{n} = f32[64]{{0}} add(total{n - 1}, user{n})"]
    lines.append(f"ROOT r = f32[64]{{0}} negate(total{users - 1})")
    module = hlo_opt.parse("HloModule m\n\nENTRY e {\n  " + "\n  ".join(lines) + "\n}\n")
    engine = Engine(module, PassContext(FuseOptions(target("h100_sxm"))))
    asked = {"accepts": 0, "wanted": 0}

    def ask(name: str, answer: bool) -> bool:
        asked[name] += 1
        return answer

    queue = PriorityQueue(
        module.entry, engine.state, lambda p, c: ask("accepts", True), wanted=lambda p, c: ask("wanted", False)
    )
    while (found := queue.pop()) is not None:
        for user in found[1]:
            queue.fused(found[0], user, engine.fuse(found[0], user))
        queue.update()
    assert users < asked["wanted"] <= asked["accepts"]


# ---- with prices that are given


class Prices:
    """A state that knows prices: microseconds of kernels by name, and of a producer in a user; 1 where nothing is
    said."""

    def __init__(
        self,
        launch: float = 5.0,
        alone: dict[str, float] | None = None,
        fused: dict[tuple[str, str], float] | None = None,
    ) -> None:
        self.target = SimpleNamespace(kernel_launch_us=launch)
        self.alone, self.fused = alone or {}, fused or {}

    def estimate_by_xla(self, instruction: Instruction) -> SimpleNamespace:
        return SimpleNamespace(us=self.alone.get(instruction.name, 1.0))

    def fused_by_xla(self, producer: Instruction, user: Instruction) -> SimpleNamespace:
        return SimpleNamespace(us=self.fused.get((producer.name, user.name), 1.0))


ROW = "f32[64]{0}"


def queue_of(
    *lines: str,
    prices: Prices | None = None,
    refused: tuple[tuple[str, str], ...] = (),
    wanted: tuple[tuple[str, str], ...] = (),
    **options: object,
) -> tuple[PriorityQueue, dict[str, Instruction]]:
    module = module_of(f"p = {ROW} parameter(0)", *lines)
    of = {i.name: i for i in module.entry.instructions}
    queue = PriorityQueue(
        module.entry,
        prices or Prices(),  # type: ignore[arg-type]
        lambda p, c: c.opcode != "tuple" and (p.name, c.name) not in refused,
        wanted=lambda p, c: (p.name, c.name) in wanted,
        **options,  # type: ignore[arg-type]
    )
    return queue, of


def popped(queue: PriorityQueue) -> list[tuple[str, list[str]]]:
    found = []
    while (item := queue.pop()) is not None:
        found.append((item[0].name, [u.name for u in item[1]]))
    return found


FORK = (f"a = {ROW} negate(p)", f"b = {ROW} abs(a)", f"c = {ROW} tanh(a)", f"r = ({ROW}, {ROW}) tuple(b, c)")


def test_a_producer_saves_its_launch_its_time_and_what_its_users_take_less():
    prices = Prices(5.0, {"a": 1.0, "b": 2.0, "c": 3.0}, {("a", "b"): 2.5, ("a", "c"): 2.25})
    queue, of = queue_of(*FORK, prices=prices)
    quarters = 4000 * (5 + 1) + 4000 * 2 - 4000 * 2.5 + 4000 * 3 - 4000 * 2.25
    assert queue.priority(of["a"]) == quarters == 25000
    assert saved_quarters(prices, of["a"], [of["b"], of["c"]]) == 25000  # type: ignore[arg-type]
    assert saved_quarters(prices, of["a"], []) == 24000  # type: ignore[arg-type]
    prices.fused["a", "b"] = 2.5001  # four tenths of a quarter of a nanosecond are rounded
    assert saved_quarters(prices, of["a"], [of["b"], of["c"]]) == 25000  # type: ignore[arg-type]
    prices.fused["a", "b"] = 2.5002
    assert saved_quarters(prices, of["a"], [of["b"], of["c"]]) == 24999  # type: ignore[arg-type]
    assert popped(queue) == [("a", ["b", "c"])] and not queue.too_dear()


def test_the_dearest_comes_first():
    lines = (
        *(f"a{n} = {ROW} negate(p)" for n in range(3)),
        *(f"b{n} = {ROW} abs(a{n})" for n in range(3)),
        f"r = ({ROW}, {ROW}, {ROW}) tuple(b0, b1, b2)",
    )
    queue, _ = queue_of(*lines, prices=Prices(alone={"a0": 2.0, "a1": 4.0, "a2": 3.0}))
    assert [name for name, _ in popped(queue)] == ["a1", "a2", "a0"]


@pytest.mark.parametrize(("us", "pays"), [(7.0, True), (7.00025, False), (math.inf, False)])
def test_what_does_not_pay_is_told_of_and_fused_at_any_cost_only(us: float, pays: bool):
    lines = (FORK[0], FORK[1], f"r = ({ROW}) tuple(b)")
    for any_cost in (False, True):
        queue, of = queue_of(*lines, prices=Prices(fused={("a", "b"): us}), at_any_cost=any_cost)
        assert queue.too_dear() == ([] if pays else [of["a"]])
        assert popped(queue) == ([("a", ["b"])] if pays or any_cost else [])
    assert queue.priority(of["a"]) == (0 if pays else -1 if us < 8 else 4000 * 7 - 4000 * 10**12)


def test_a_producer_that_one_user_refuses_stays():
    queue, of = queue_of(*FORK, refused=(("a", "c"),))
    assert queue.priority(of["a"]) == -math.inf and popped(queue) == [] and queue.too_dear() == []
    queue, of = queue_of(*FORK, refused=(("a", "c"),), partly=True)
    assert queue.priority(of["a"]) == 4000 * 6 and popped(queue) == [("a", ["b"])]
    queue, of = queue_of(*FORK, refused=(("a", "b"), ("a", "c")), partly=True)
    assert queue.priority(of["a"]) == -math.inf and popped(queue) == []
    queue, _ = queue_of(*FORK, refused=(("a", "c"),), at_any_cost=True)
    assert popped(queue) == []


@pytest.mark.parametrize("partly", [False, True])
def test_a_user_that_is_wanted_gets_the_producer_whatever_the_others_say(partly: bool):
    lines = (
        *FORK[:3],
        f"d = {ROW} cosine(a)",
        f"e2 = {ROW} sine(p)",
        f"f = {ROW} abs(e2)",
        f"r = ({ROW}, {ROW}, {ROW}, {ROW}) tuple(b, c, d, f)",
    )
    prices = Prices(alone={"e2": 100.0}, fused={("a", "b"): math.inf})
    queue, of = queue_of(*lines, prices=prices, refused=(("a", "c"),), wanted=(("a", "b"),), partly=partly)
    if partly:  # all are asked before the first that is wanted counts
        assert queue.priority(of["a"]) == math.inf
        assert popped(queue) == [("a", ["b", "d"]), ("e2", ["f"])]
    else:
        assert popped(queue) == [("a", ["b"]), ("e2", ["f"])]
        both = (("a", "b"), ("a", "d"))  # `d` is only asked when the producer comes, for `c` refuses before
        queue, of = queue_of(*lines, prices=prices, refused=(("a", "c"),), wanted=both)
        assert list(queue._standings[of["a"]].unknown) == [of["d"]]
        assert popped(queue) == [("a", ["b", "d"]), ("e2", ["f"])]


def test_bitcasts_launch_nothing_and_need_not_accept():
    lines = (
        f"a = {ROW} negate(p)",
        "t = f32[8,8]{1,0} bitcast(a)",
        f"b = {ROW} abs(a)",
        "c = f32[8,8]{1,0} tanh(t)",
        f"r = ({ROW}, f32[8,8]{{1,0}}) tuple(b, c)",
    )
    queue, of = queue_of(*lines, refused=(("a", "t"),))
    assert queue.priority(of["t"]) == math.inf
    assert popped(queue) == [("t", ["c"]), ("a", ["b"])]
    alone = (*lines[:2], lines[3], "r = (f32[8,8]{1,0}) tuple(c)")
    queue, of = queue_of(*alone)
    assert queue.priority(of["a"]) == -math.inf and popped(queue) == [("t", ["c"])]
    queue, _ = queue_of(
        *lines[:4],
        f"d = {ROW} bitcast(t)",
        f"r = ({ROW}, f32[8,8]{{1,0}}, {ROW}) tuple(b, c, d)",
        refused=(("t", "c"),),
    )
    assert popped(queue) == [("a", ["b"])]


def test_which_instructions_are_producers():
    lines = (
        f"k = {ROW} constant({{...}})",
        f"a = {ROW} negate(p)",
        f"u = {ROW} abs(p)",
        f"b = {ROW} add(a, k)",
        f"r = ({ROW}) tuple(b)",
    )
    queue, of = queue_of(*lines)
    assert list(queue._standings) == [of["a"], of["b"]]  # the constant waits, nobody reads u, a parameter is no kernel
    queue, of = queue_of(*lines, takes=lambda i: i.opcode in ("parameter", "constant"))
    assert list(queue._standings) == [of["p"]] and popped(queue) == [("p", ["a", "u"])]


def test_what_was_found_out_is_forgotten_with_what_it_was_about():
    """`a` moves into `b` and stays for `c`; then into `c` and is gone; `x`, which `a` reads, is read by both fusions
    then."""
    prices = Prices()
    queue, of = queue_of(f"x = {ROW} exponential(p)", f"a = {ROW} negate(x)", *FORK[1:], prices=prices)
    module = of["a"].computation.module
    assert module is not None
    engine = Engine(module, PassContext(FuseOptions(target("h100_sxm"))))
    assert queue.priority(of["x"]) == 4000 * 6 and len(queue._standings[of["x"]].accepting) == 1
    found = queue.pop()
    assert found is not None and found[0] is of["a"]
    first = engine.fuse(of["a"], of["b"])
    queue.fused(of["a"], of["b"], first)
    assert of["b"] not in queue._standings and set(queue._touched) == {first, of["x"], of["a"]}
    assert set(queue._standings[of["a"]].accepting) == {of["c"]}
    assert set(queue._standings[of["x"]].accepting) == {of["a"]} and set(queue._standings[of["x"]].unknown) == {first}
    second = engine.fuse(of["a"], of["c"])
    queue.fused(of["a"], of["c"], second)
    assert of["a"].parent is None and of["a"] not in queue._standings and of["a"] not in queue._touched
    standing = queue._standings[of["x"]]
    assert (
        set(standing.unknown) == {first, second}
        and not standing.accepting
        and standing.saved == standing.launching == 0
    )
    queue.update()
    assert not queue._touched
    item = queue.pop()
    assert item is not None and item[0] is of["x"] and set(item[1]) == {first, second}
    assert queue.pop() is None


def test_a_producer_comes_once_for_each_price():
    """Its price changes and changes back: the entries in between are stale, and what was popped is not popped again."""
    prices = Prices()
    queue, of = queue_of(*FORK, prices=prices)
    for us in (2.0, 1.0):
        prices.alone["a"] = us
        queue._touched[of["a"]] = None
        queue.update()
    assert len(queue._heap) == 3
    assert popped(queue) == [("a", ["b", "c"])]
    queue._touched[of["a"]] = None
    queue.update()
    assert popped(queue) == [("a", ["b", "c"])]  # still worth it: whoever popped it did nothing


def test_what_became_too_dear_and_what_is_no_longer():
    prices = Prices()
    queue, of = queue_of(*FORK, prices=prices)
    for us, dear in ((-20.0, True), (1.0, False)):
        prices.alone["a"] = us
        queue._touched[of["a"]] = None
        queue.update()
        assert queue.too_dear() == ([of["a"]] if dear else [])
        assert (of["a"] in queue._priorities) == (not dear)
    prices.alone["a"] = -20.0
    queue._touched[of["a"]] = None
    queue.update()
    queue._forget(of["a"])
    assert queue.too_dear() == [] and of["a"] not in queue._standings and popped(queue) == []


def test_nothing_is_left_of_a_user_that_is_gone():
    lines = (*FORK[:3], "d = f32[8,8]{1,0} bitcast(a)", f"e2 = {ROW} sine(a)", f"f = {ROW} cosine(a)")
    queue, of = queue_of(*lines, refused=(("a", "c"),), wanted=(("a", "e2"),), partly=True)
    standing = queue._standings[of["a"]]
    unpriced = _Standing({of["f"]: None})
    unpriced.accept(of["b"], wanted=False)
    for name in "bcdf":
        standing.drop(of[name])
        unpriced.drop(of[name])
    assert standing == _Standing(
        {}, accepting={of["e2"]: None}, unpriced={of["e2"]: None}, wanted={of["e2"]: None}, launching=1
    )
    standing.drop(of["e2"])
    assert standing == unpriced == _Standing({})
