"""The judge of modules with effects tells what changed from what did not, without the program's own numbering."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from hlo_opt import parse
from hlo_opt.ir import Module
from scripts import wrong_rewrites
from scripts.drawn_effects import Occurrences, differs, run
from scripts.left_open import left_open

INPUTS = [[np.float32([1, 2, 3])]]


def entry(*lines: str, before: str = "") -> Module:
    return parse(f"HloModule m\n{before}ENTRY e {{\n  p = f32[3] parameter(0)\n  " + "\n  ".join(lines) + "\n}\n")


def draw(name: str, known: str, more: str = "") -> str:
    return f'{name} = f32[] rng(low, high), distribution=rng_uniform, metadata={{op_name="{known}"}}{more}'


BOUNDS = ("low = f32[] constant(0)", "high = f32[] constant(4)")


def drawn(*lines: str) -> Module:
    return entry(*BOUNDS, draw("a", "one"), draw("b", "other"), *lines)


def difference(before: Module, after: Module) -> str | None:
    return differs(run(before, INPUTS), after, INPUTS)


def test_the_order_in_the_text_does_not_count() -> None:
    before = drawn("ROOT s = f32[] subtract(a, b)")
    after = entry(*BOUNDS, draw("y", "other"), draw("x", "one"), "ROOT s = f32[] subtract(x, y)")
    assert difference(before, after) is None


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (drawn("ROOT s = f32[] subtract(b, a)"), "out0 differs"),
        (drawn("ROOT s = f32[] subtract(a, a)"), "out0 differs"),
        (entry(*BOUNDS, draw("a", "one"), "ROOT s = f32[] subtract(a, a)"), "other occurs 0 times"),
        (entry(*BOUNDS, draw("a", "one"), draw("b", "one"), "ROOT s = f32[] subtract(a, b)"), "one occurs 2 times"),
        (drawn("c = f32[] subtract(a, b)", draw("d", "third"), "ROOT s = f32[] copy(c)"), "third occurs 1 times"),
    ],
)
def test_another_use_or_number_of_draws_is_told(after: Module, why: str) -> None:
    found = difference(drawn("ROOT s = f32[] subtract(a, b)"), after)
    assert found is not None and why in found


CALLED = """draws {
  low = f32[] parameter(0)
  high = f32[] constant(4)
  ROOT r = f32[] rng(low, high), distribution=rng_uniform, metadata={op_name="one"}
}
"""


def test_a_callee_that_is_called_twice_draws_twice() -> None:
    before = entry("low = f32[] constant(0)", "a = f32[] call(low), to_apply=draws",
        "b = f32[] call(low), to_apply=draws",
                   "ROOT s = f32[] subtract(a, b)", before=CALLED)  # fmt: skip
    assert Occurrences.of(before).counts == {"one": 2}
    right = entry(*BOUNDS, draw("b", "one"), draw("a", "one"), "ROOT s = f32[] subtract(a, b)")
    wrong = entry(*BOUNDS, draw("b", "one"), draw("a", "one"), "ROOT s = f32[] subtract(a, a)")
    assert difference(before, right) is None
    assert difference(before, wrong) is not None


def chain(*second: str) -> Module:
    return entry(
        "start = token[] after-all()",
        'a = (f32[], token[]) infeed(start), metadata={op_name="first"}',
        "then = token[] get-tuple-element(a), index=1",
        *second,
        "x = f32[] get-tuple-element(a), index=0",
        "y = f32[] get-tuple-element(b), index=0",
        "ROOT t = (f32[], f32[]) tuple(x, y)",
    )


def test_an_order_by_tokens_is_kept() -> None:
    second = 'b = (f32[], token[]) infeed({}), metadata={{op_name="second"}}'
    before = chain(second.format("then"))
    assert difference(before, before) is None
    assert difference(before, chain(second.format("start"))) == "second no longer waits for first"
    assert difference(chain(second.format("start")), before) is None  # more order is no mistake


def test_an_order_by_control_dependencies_is_kept() -> None:
    lines = (draw("a", "one"), "m = f32[] negate(a)", "n = f32[] sine(low), control-predecessors={m}")
    last = "ROOT t = (f32[], f32[], f32[]) tuple(m, n, b)"
    before = entry(*BOUNDS, *lines, draw("b", "two", ", control-predecessors={n}"), last)
    assert difference(before, before) is None
    assert difference(before, entry(*BOUNDS, *lines, draw("b", "two"), last)) == "two no longer waits for one"


def test_an_order_that_goes_over_another_effect_is_one() -> None:
    lines = (*BOUNDS, draw("a", "one"), draw("b", "two", ", control-predecessors={a}"))
    last = "ROOT t = (f32[], f32[], f32[]) tuple(a, b, c)"
    both, over = (
        entry(*lines, draw("c", "three", f", control-predecessors={{{waits}}}"), last) for waits in ("a, b", "b")
    )
    assert difference(both, over) is None and difference(over, both) is None


def test_what_is_sent_counts() -> None:
    def sent(value: str) -> Module:
        return entry("start = token[] after-all()", "n = f32[3] negate(p)",
                     f"o = token[] outfeed({value}, start), "
                     f"outfeed_shape=f32[3]", "ROOT r = f32[3] copy(p)")  # fmt: skip

    assert difference(sent("p"), sent("p")) is None
    assert "other operands" in str(difference(sent("p"), sent("n")))


def test_an_unknown_function_gives_the_same_for_the_same() -> None:
    call = 'custom-call(p), custom_call_target="unknown"'
    twice = entry(f"a = f32[3] {call}", f"b = f32[3] {call}", "ROOT s = f32[3] subtract(a, b)")
    once = entry(f"a = f32[3] {call}", "ROOT s = f32[3] subtract(a, a)")
    assert difference(twice, once) is None
    assert not run(twice, INPUTS).outputs[0].any()


@pytest.mark.parametrize(
    ("line", "is_open"),
    [
        ("ROOT r = f32[] reduce(p, zero), dimensions={0}, to_apply=add", False),
        ("ROOT r = f32[] reduce(p, one), dimensions={0}, to_apply=add", True),
        ("ROOT r = f32[] reduce(p, p0), dimensions={0}, to_apply=add", True),
        ("ROOT r = (f32[3], f32[3]) sort(p, p), dimensions={0}, to_apply=less", True),
        ("ROOT r = (f32[3], f32[3]) sort(p, p), dimensions={0}, is_stable=true, to_apply=less", False),
        ("ROOT r = f32[3] constant({...})", True),
    ],
)
def test_what_hlo_leaves_open(line: str, is_open: bool) -> None:
    before = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\nless {\n"
    before += "".join(
        f"  {name} = f32[] parameter({n})\n" for n, name in enumerate("abcd"[: 4 if "(p, p)" in line else 2])
    )
    before += "  ROOT l = pred[] compare(a, b), direction=LT\n}\n"
    lines = ("zero = f32[] constant(0)", "one = f32[] constant(1)", "p0 = f32[] parameter(1)", line)
    assert (left_open(entry(*lines, before=before)) is not None) is is_open


def test_the_proof_refuses_wrong_rewrites(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["wrong_rewrites", "--count", "4", "--seed", "3"])
    assert wrong_rewrites.main() == 0
    told = capsys.readouterr().out
    assert "refused, does something else" in told and "0 wrongly accepted" in told
    monkeypatch.setattr(wrong_rewrites, "is_refused", lambda *_: False)
    assert wrong_rewrites.main() == 1 and "accepted, but" in capsys.readouterr().out
