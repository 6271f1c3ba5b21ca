"""What a watcher sees, and how many iterations a run may take."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_opt import EvaluationError, evaluate, evaluate_devices, parse
from hlo_opt.evaluate import Event
from hlo_opt.evaluate.watch import watching


def loop(name: str, body: str, count: int) -> str:
    """A loop `name` of `count` iterations that does something with the number in its state."""
    return (
        f"{name}_body {{\n  s = (s32[], s32[]) parameter(0)\n  i = s32[] get-tuple-element(s), index=0\n"
        f"  v = s32[] get-tuple-element(s), index=1\n  one = s32[] constant(1)\n  j = s32[] add(i, one)\n"
        f"  {body}\n  ROOT t = (s32[], s32[]) tuple(j, x)\n}}\n"
        f"{name}_condition {{\n  s = (s32[], s32[]) parameter(0)\n  i = s32[] get-tuple-element(s), index=0\n"
        f"  n = s32[] constant({count})\n  ROOT l = pred[] compare(i, n), direction=NE\n}}\n"
    )


def module_of(inner: int, outer: int, header: str = "") -> str:
    nested = "z = s32[] constant(0)\n  u = (s32[], s32[]) tuple(z, v)\n"
    nested += "  inside = (s32[], s32[]) while(u), condition=in_condition, body=in_body\n"
    nested += "  x = s32[] get-tuple-element(inside), index=1"
    return (
        f"HloModule m{header}\n{loop('in', 'x = s32[] add(v, one)', inner)}{loop('out', nested, outer)}"
        "ENTRY e {\n  p = s32[] parameter(0)\n  z = s32[] constant(0)\n  t = (s32[], s32[]) tuple(z, p)\n"
        "  w = (s32[], s32[]) while(t), condition=out_condition, body=out_body\n"
        "  ROOT r = s32[] get-tuple-element(w), index=1\n}\n"
    )


def test_events_say_where_in_the_loops_they_are() -> None:
    seen: list[tuple[int, str]] = []

    def watch(event: Event) -> None:
        if event.instruction.name == "x" and event.instruction.opcode == "add":
            assert [int(v) for v in event.operands] == [int(event.value) - 1, 1]
            seen.append((int(event.value), event.place()))

    assert evaluate(parse(module_of(2, 2)), [np.int32(5)], watch=watch) == [9]
    assert seen == [(6 + n, f"in_body, iteration {n // 2} of w, iteration {n % 2} of inside") for n in range(4)]


def test_events_come_for_parameters_too() -> None:
    seen: list[str] = []
    evaluate(parse(module_of(1, 1)), [np.int32(5)], watch=lambda event: seen.append(event.instruction.name))
    assert seen[0] == "p" and seen[-1] == "r" and seen.count("s") == 6  # two conditions and a body, of both loops


def test_several_watchers() -> None:
    assert watching(None, None) is None
    seen: list[str] = []
    text = "HloModule m\n\nENTRY e {\n  p = s32[] parameter(0)\n  ROOT r = s32[] negate(p)\n}\n"
    evaluate(
        parse(text),
        [np.int32(1)],
        watch=lambda event: seen.append(event.instruction.name),
        observe=lambda instruction, value: seen.append(f"{instruction.name}={value}"),
    )
    assert seen == ["p", "r", "r=-1"]


def test_steps_are_counted_over_all_loops() -> None:
    module = parse(module_of(3, 2))
    assert evaluate(module, [np.int32(0)], max_steps=8) == [6]
    with pytest.raises(EvaluationError, match=r"while inside: the loop goes on after 2 iterations \(7 with") as caught:
        evaluate(module, [np.int32(0)], max_steps=7 - 0)
    assert caught.value.code == "HLO402"


def test_an_endless_loop_ends_with_its_name() -> None:
    module = parse(module_of(1, -1))
    with pytest.raises(EvaluationError, match="the loops of a run may take 100") as caught:
        evaluate(module, [np.int32(0)], max_steps=100)
    assert caught.value.line is not None and caught.value.message.startswith("while ")


def test_steps_are_counted_for_each_device() -> None:
    module = parse(module_of(3, 2, ", num_partitions=3"))
    assert evaluate_devices(module, [[np.int32(0)]], max_steps=8) == [[6]] * 3
    with pytest.raises(EvaluationError, match="the loops of a run may take 7"):
        evaluate_devices(module, [[np.int32(0)]], max_steps=7)
