"""The first NaN is found where it is computed, and no sooner."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_opt import EvaluationError, evaluate, evaluate_devices, parse
from hlo_opt.diag import CheckError
from hlo_opt.evaluate import ValueEvent
from hlo_opt.evaluate.nans import value_range, watching


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

    def watch(event: ValueEvent) -> None:
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
    both = watching(
        lambda event: seen.append(event.instruction.name), None, lambda event: seen.append(str(event.value))
    )
    evaluate(parse(text), [np.int32(1)], watch=both)
    assert seen == ["p", "1", "r", "-1"]


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


META = 'metadata={op_name="jit(f)/div" source_file="model.py" source_line=12}'
F = "f32[4]{0}"


def run(body: str, *inputs: list[float], functions: str = "", header: str = "") -> list[np.ndarray]:
    parameters = "\n".join(f"  p{n} = {F} parameter({n})" for n in range(len(inputs)))
    module = parse(f"HloModule m{header}\n{functions}\nENTRY e {{\n{parameters}\n  {body}\n}}\n", filename="m.hlo")
    given = [np.array(i, np.float32) for i in inputs]
    return evaluate(module, given, check_nans=True)


def fault(*arguments: object, **options: object) -> CheckError:
    with pytest.raises(CheckError) as caught:
        run(*arguments, **options)  # type: ignore[arg-type]
    assert caught.value.code == "HLO720"
    return caught.value


def test_the_instruction_its_line_and_its_operands_are_named() -> None:
    body = f"q = {F} divide(p0, p1), {META}\n  s = {F} sqrt(q)\n  ROOT r = {F} add(s, p0)"
    error = fault(body, [1, 0, 3, 0], [1, 0, 1, 0])
    assert "NaN comes from divide q: 2 of 4 elements, the first at [1]; in e; from model.py:12" in error.message
    assert error.line == 6 and error.hint == "its operands are p0 in [0, 3]; p1 in [0, 1]"


def test_without_a_nan_nothing_happens() -> None:
    assert run(f"ROOT r = {F} divide(p0, p1)", [1, 2, 3, 4], [1, 1, 0, 1])[0][2] == np.inf


def test_infinities_are_no_nans_until_one_is_made_of_them() -> None:
    error = fault(f"i = {F} divide(p0, p1)\n  ROOT r = {F} subtract(i, i)", [1, 2, 3, 4], [1, 1, 0, 1])
    assert "comes from subtract r: 1 of 4 elements, the first at [2]" in error.message
    assert error.hint == "its operands are i in [1, inf]; i in [1, inf]"


def test_an_input_may_hold_it_already() -> None:
    error = fault(f"ROOT r = {F} negate(p0)", [1, np.nan, 3, 4])
    assert "input p0 holds NaN: 1 of 4 elements, the first at [1]" in error.message and error.line == 4


SELECT = (
    f"n = f32[] constant(nan)\n  b = {F} broadcast(n), dimensions={{}}\n  z = f32[] constant(0)\n"
    f"  zs = {F} broadcast(z), dimensions={{}}\n  c = pred[4]{{0}} compare(p0, zs), direction=LT\n"
    f"  ROOT r = {F} select(c, b, p0)"
)


def test_a_constant_nan_counts_when_it_gets_into_a_result() -> None:
    assert run(SELECT, [1, 2, 3, 4])[0].tolist() == [1, 2, 3, 4]
    error = fault(SELECT, [1, -2, 3, 4])
    assert "comes from select r: 1 of 4 elements, the first at [1]" in error.message
    assert error.hint == "its operands are c in 1 of 4 true; b in all NaN; p0 in [-2, 4]"


def test_a_constant_nan_may_pass_through_calls() -> None:
    functions = f"f {{\n  x = f32[] parameter(0)\n  y = {F} parameter(1)\n  b = {F} broadcast(x), dimensions={{}}\n"
    functions += f"  ROOT t = ({F}, {F}) tuple(b, y)\n}}\n"
    body = f"n = f32[] constant(nan)\n  t = ({F}, {F}) fusion(n, p0), kind=kLoop, calls=f\n"
    kept = f"{body}  b = {F} get-tuple-element(t), index=0\n  ROOT r = (f32[4]{{0}}) tuple(b)"
    assert np.isnan(run(kept, [1, 2, 3, 4], functions=functions)[0]).all()
    used = f"{body}  b = {F} get-tuple-element(t), index=0\n  ROOT r = {F} add(b, p0)"
    assert "comes from add r" in fault(used, [1, 2, 3, 4], functions=functions).message


LOOP = f"""body {{
  s = (s32[], {F}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = {F} get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  h = f32[] constant(1.5)
  hs = {F} broadcast(h), dimensions={{}}
  w = {F} subtract(v, hs)
  l = {F} sqrt(w)
  ROOT t = (s32[], {F}) tuple(j, l)
}}
condition {{
  s = (s32[], {F}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(9)
  ROOT l = pred[] compare(i, n), direction=LT
}}
"""


def test_the_iteration_is_named() -> None:
    body = f"z = s32[] constant(0)\n  t = (s32[], {F}) tuple(z, p0)\n"
    body += f"  w = (s32[], {F}) while(t), condition=condition, body=body\n  ROOT r = {F} get-tuple-element(w), index=1"
    assert "in body, iteration 2 of w" in fault(body, [20, 20, 6, 20], functions=LOOP).message


def test_the_device_is_named() -> None:
    module = parse(f"HloModule m, replica_count=2\n\nENTRY e {{\n  p = {F} parameter(0)\n  ROOT r = {F} log(p)\n}}\n")
    inputs = [[np.ones(4, np.float32)], [np.array([1, -1, 1, 1], np.float32)]]
    with pytest.raises(CheckError, match=r"comes from log r: 1 of 4 elements, the first at \[1\]; in e; on device 1"):
        evaluate_devices(module, inputs, check_nans=True)
    assert len(evaluate_devices(module, inputs[:1], check_nans=True)) == 2


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (np.array([1.5, np.nan, -np.inf], np.float32), "[-inf, 1.5], 1 NaN"),
        (np.array([np.nan], np.float32), "all NaN"),
        (np.array([-3, 7], np.int8), "[-3, 7]"),
        (np.array([2**63 + 1], np.uint64), f"[{2**63 + 1}, {2**63 + 1}]"),
        (np.array([True, False]), "1 of 2 true"),
        (np.zeros((0, 3), np.float32), "no elements"),
        (np.array([3 + 4j]), "[5, 5]"),
    ],
)
def test_ranges(values: np.ndarray, text: str) -> None:
    assert value_range(values) == text


@pytest.mark.parametrize("name", ["bf16", "f16", "f8e5m2", "f8e4m3fn", "f64", "c64"])
def test_every_type_that_has_nans(name: str) -> None:
    text = (
        f"HloModule m\n\nENTRY e {{\n  p = {name}[3]{{0}} parameter(0)\n  ROOT r = {name}[3]{{0}} subtract(p, p)\n}}\n"
    )
    module = parse(text)
    given = np.array([1, 2, 3]).astype(module.entry.root.shape.type.dtype)
    assert len(evaluate(module, [given], check_nans=True)[0]) == 3
    given = np.array([1, np.nan, 3]).astype(given.dtype)
    with pytest.raises(CheckError, match="input p holds NaN: 1 of 3"):
        evaluate(module, [given], check_nans=True)
