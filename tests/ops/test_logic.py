"""What follows from the truth of predicates."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import hlo_opt
from hlo_opt.ops.logic import asked_of_all, conjuncts, implied, is_zero, known, passed_on, truth_of

FOLDS = (
    "either {\n  a = pred[] parameter(0)\n  b = pred[] parameter(1)\n  ROOT c = pred[] or(a, b)\n}\nboth {\n  a = "
    "pred[] parameter(0)\n  b = pred[] parameter(1)\n  ROOT c = pred[] and(a, b)\n}\n"
)
P = "p = pred[4] parameter(0)"


def root(*lines: str) -> hlo_opt.Instruction:
    body = "\n".join(f"  {line}" for line in (*lines[:-1], f"ROOT {lines[-1]}"))
    return hlo_opt.parse(f"HloModule m\n{FOLDS}ENTRY e {{\n{body}\n}}\n").entry.root


def fold(how: str, init: str) -> list[str]:
    return [P, f"i = pred[] constant({init})", f"r = pred[] reduce(p, i), dimensions={{0}}, to_apply={how}"]


def test_any_and_not_all_are_asked_of_all() -> None:
    assert asked_of_all(root(*fold("either", "false")))[1] is True
    assert asked_of_all(root(*fold("both", "true"), "n = pred[] not(r)"))[1] is False


@pytest.mark.parametrize(
    "lines",
    [
        fold("either", "true"),
        fold("both", "true"),
        [*fold("either", "false"), "n = pred[] not(r)"],
        [P, "s = pred[1] slice(p), slice={[0:1]}", "r = pred[] reshape(s)"],
    ],
)
def test_other_folds_are_not(lines: list[str]) -> None:
    assert asked_of_all(root(*lines)) is None


def test_conjuncts_are_those_of_predicates_alone() -> None:
    three = root(
        "a = pred[] parameter(0)",
        "b = pred[] parameter(1)",
        "c = pred[] parameter(2)",
        "d = pred[] and(a, b)",
        "e = pred[] and(d, c)",
    )
    assert [c.name for c in conjuncts(three)] == ["a", "b", "c"]
    assert len(conjuncts(root("a = s32[] parameter(0)", "b = s32[] and(a, a)"))) == 1


@pytest.mark.parametrize("opcode", ["not", "and", "or", "select"])
def test_truths_are_those_of_all_cases(opcode: str) -> None:
    """What is said to be known is so whatever the unknown operands are; what is not known may be either."""
    count = {"not": 1, "select": 3}.get(opcode, 2)
    names = [f"p{n} = pred[] parameter({n})" for n in range(count)]
    value = root(*names, f"r = pred[] {opcode}({', '.join(f'p{n}' for n in range(count))})")
    for told in itertools.product((True, False, None), repeat=count):
        cases = itertools.product(*((t,) if t is not None else (True, False) for t in told))
        found = {_of(opcode, case) for case in cases}
        truth = truth_of(value, told)
        assert truth is None or found == {truth}
        if opcode != "select" or told[0] is not None:
            assert truth is not None or found == {True, False}


def _of(opcode: str, case: tuple[bool, ...]) -> bool:
    return bool(
        {
            "not": lambda a: not a,
            "and": lambda a, b: a and b,
            "or": lambda a, b: a or b,
            "select": lambda c, a, b: a if c else b,
        }[opcode](*case)
    )


def test_what_a_predicate_implies() -> None:
    both, either = (
        root("a = pred[] parameter(0)", "b = pred[] parameter(1)", f"c = pred[] {o}(a, b)") for o in ("and", "or")
    )
    assert (implied(both, True), implied(both, False)) == (True, None)
    assert (implied(either, True), implied(either, False)) == (None, False)
    assert implied(root("a = pred[] parameter(0)", "b = pred[] not(a)"), True) is False


def test_what_is_passed_on() -> None:
    taken = root(
        "p = pred[] parameter(0)", "a = f32[] parameter(1)", "b = f32[] parameter(2)", "c = f32[] select(p, a, b)"
    )
    assert [passed_on(taken, [t, None, None], [False] * 3) for t in (True, False, None)] == [1, 2, None]
    whole, part = (
        root(f"a = {t}[] parameter(0)", f"b = {t}[] parameter(1)", f"c = {t}[] add(a, b)") for t in ("s32", "f32")
    )
    assert [passed_on(whole, [None, None], z) for z in ([True, False], [False, True], [False, False])] == [1, 0, None]
    assert passed_on(part, [None, None], [True, True]) is None  # -0 + 0 is 0
    assert np.signbit(np.float32(-0.0)) and not np.signbit(np.float32(-0.0) + np.float32(0))


def test_zeros_and_constants() -> None:
    assert is_zero(root("c = s32[] constant(0)"), []) and not is_zero(root("c = s32[] constant(2)"), [])
    assert not is_zero(root("c = f32[] constant(0)"), [])
    number = root("p = pred[] parameter(0)", "c = s32[] convert(p)")
    assert is_zero(number, [False]) and not is_zero(number, [None]) and not is_zero(number, [True])
    assert known(root("c = pred[] constant(true)")) is True and known(root("c = s32[] constant(1)")) is None
