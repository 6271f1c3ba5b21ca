"""Which producers would read more memory when they are computed again, judged over all ways to their readers."""

from __future__ import annotations

import pytest
from small_modules import module_of

from hlo_opt.fusion import duplication
from hlo_opt.fusion.duplication import effectively_at_most_unary, globally_unfusible
from hlo_opt.ir.walk import post_order

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


def unfusible(*lines: str, refused: tuple[tuple[str, str], ...] = (), asked: list[tuple[str, str]] | None = None) -> list[str]:  # fmt: skip
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
    grows = ("w = f32[64]{0} parameter(4)", "a = f32[128]{0} concatenate(v, w), dimensions={0}", "b = f32[128]{0} negate(a)", "r = f32[128]{0} add(a, b)")  # fmt: skip
    assert unfusible(*grows, refused=(("a", "b"),), asked=asked) == [] and not asked
    more = ("w = f32[64]{0} parameter(4)", "a = f32[64]{0} add(v, w)", *READERS)
    assert unfusible(*more, refused=(("a", "b"),), asked=asked) == ["a"] and asked


def test_every_way_to_a_reader_counts():
    """From `a` to `d` there is a way through `b`; where an edge on it is refused, `d` would have to read `a` from memory."""
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
