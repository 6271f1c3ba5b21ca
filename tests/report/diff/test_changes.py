"""What differs between two modules, instruction by instruction, and what is not told because it is told elsewhere."""

from __future__ import annotations

import pytest
from compared_modules import LOOP

import hlo_opt
from hlo_opt.analysis.graph.compare.matching import match
from hlo_opt.report.diff.changes import LONGEST, changes
from hlo_opt.report.diff.page import sentence

TEXT = """HloModule m

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY e {
  p = f32[64,8]{1,0} parameter(0)
  q = f32[64,8]{1,0} parameter(1)
  one = f32[] constant(1)
  ones = f32[64,8]{1,0} broadcast(one), dimensions={}
  a = f32[64,8]{1,0} subtract(p, q), metadata={op_name="a" source_file="model.py" source_line=7}
  t = f32[64,8]{1,0} tanh(a)
  u = f32[64,8]{1,0} multiply(t, ones)
  less = pred[64,8]{1,0} compare(u, q), direction=LT
  v = f32[64,8]{1,0} select(less, u, p)
  z = f32[] constant(0)
  ROOT r = f32[64]{0} reduce(v, z), dimensions={1}, to_apply=sum
}
"""


def told(old: str, new: str) -> list[str]:
    """Each change in a line."""
    found, _ = changes(match(hlo_opt.parse(old), hlo_opt.parse(new)))
    return [f"{c.kind} {sentence(c)}" for c in found]


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("tanh(a)", "sine(a)", ["changed t (sine): opcode tanh -> sine"]),
        ("constant(1)", "constant(2)", ["changed one (constant): value 1 -> 2"]),
        ("subtract(p, q)", "subtract(q, p)", ["changed a (subtract): operand 0 p -> q; operand 1 q -> p"]),
        ("direction=LT", "direction=GE", ["changed less (compare): direction LT -> GE"]),
        ("t = f32[64,8]{1,0}", "t = f32[64,8]{0,1}", ["changed t (tanh): layout {1,0} -> {0,1}"]),
        ("ROOT s = f32[] add(a", "ROOT s = f32[] maximum(a",
            ["changed r (reduce): to_apply: s (maximum): opcode add -> maximum"]),
        (
            "ROOT s = f32[] add(a, b)",
            "c = f32[] multiply(a, b)\n  ROOT s = f32[] add(a, c)",
            ["changed r (reduce): to_apply add(p0, p1) -> add(p0, multiply(p0, p1))"],
        ),
        ("tanh(a)", "tanh(p)", ["changed t (tanh): operand 0 a -> p"]),
        ("  u = f32", "  c = f32[64,8]{1,0} copy(t)\n  u = f32",
            ["added c = f32[64,8]{1,0} copy(t), which nothing reads"]),
        ("select(less, u, p)", "select(less, u, q)", ["changed v (select): operand 2 p -> q"]),
        ("tanh(a)", "tanh(a), sharding={replicated}", []),  # the other text says no sharding at all
        ("multiply(t, ones)", "multiply(ones, t)", []),
        ("HloModule m", "HloModule m, num_partitions=4", ["module num_partitions +4"]),
    ],
)  # fmt: skip
def test_a_change_is_told_once_where_it_is(old, new, wanted):
    changed = TEXT.replace(old, new, 1)
    assert changed != TEXT
    assert told(TEXT, changed) == wanted


def test_a_copy_in_between_is_told_and_not_who_reads_it():
    changed = TEXT.replace("  u = f32", "  c = f32[64,8]{1,0} copy(t)\n  u = f32").replace("multiply(t", "multiply(c")
    assert told(TEXT, changed) == ["added c = f32[64,8]{1,0} copy(t)"]
    assert told(changed, TEXT) == ["lost c = f32[64,8]{1,0} copy(t)"]


def test_a_constant_of_its_own_is_told_by_who_reads_it():
    old = TEXT.replace("reduce(v, z)", "reduce(v, one)")
    new = old.replace("reduce(v, one)", "reduce(v, z)")
    assert told(old, new) == ["changed r (reduce): operand 1 constant 1 -> constant 0"]


def test_a_value_that_is_computed_again_is_no_change():
    again = TEXT.replace("  u = f32", "  t2 = f32[64,8]{1,0} tanh(a)\n  u = f32").replace("multiply(t,", "multiply(t2,")
    assert told(TEXT, again) == []


def test_a_change_in_a_computation_that_is_called_twice_is_told_once():
    text = """HloModule m

half {
  x = f32[8]{0} parameter(0)
  ROOT y = f32[8]{0} tanh(x)
}

ENTRY e {
  p = f32[8]{0} parameter(0)
  a = f32[8]{0} call(p), to_apply=half
  b = f32[8]{0} call(a), to_apply=half
  ROOT r = f32[8]{0} negate(b)
}
"""
    assert told(text, text.replace("tanh", "sine")) == ["changed y (sine): opcode tanh -> sine, in 2 places"]


def test_lines_are_those_of_each_dump():
    new = TEXT.replace("source_line=7", "source_line=9").replace("subtract(p, q)", "divide(p, q)")
    (found,), counts = changes(match(hlo_opt.parse(TEXT), hlo_opt.parse(new)))
    assert (found.old_source, found.new_source, found.source) == ("model.py:7", "model.py:9", "model.py:9")
    assert (counts.changed, counts.added, counts.lost, counts.moved) == (1, 0, 0, 0)


CALLED = """HloModule m

inner {
  x = f32[64]{0} parameter(0)
  ROOT t = f32[64]{0} tanh(x), metadata={op_name="tanh"}
}

ENTRY e {
  p = f32[64]{0} parameter(0)
  n = f32[64]{0} negate(p), metadata={source_file="model.py" source_line=3}
  ROOT c = f32[64]{0} call(n), to_apply=inner, metadata={source_file="model.py" source_line=4}
}
"""


@pytest.mark.parametrize(
    ("line", "wanted"),
    [('metadata={op_name="tanh"}', "model.py:4"), ('metadata={source_file="lib.py" source_line=9}', "lib.py:9")],
)
def test_an_operation_without_a_line_has_that_of_the_call(line: str, wanted: str) -> None:
    text = CALLED.replace('metadata={op_name="tanh"}', line)
    (change,), _ = changes(match(hlo_opt.parse(text), hlo_opt.parse(text.replace(" tanh(", " sine("))))
    assert (change.old_source, change.new_source) == (wanted, wanted)


def test_an_operation_without_a_line_has_that_of_the_loop() -> None:
    text = LOOP.replace(" body=round", ' body=round, metadata={source_file="model.py" source_line=5}')
    assert text != LOOP
    (change,), _ = changes(match(hlo_opt.parse(text), hlo_opt.parse(text.replace("tanh", "sine"))))
    assert change.new_source == "model.py:5"


def test_a_parameter_before_others_is_told_alone():
    new = TEXT.replace("p = f32[64,8]{1,0} parameter(0)\n  q = f32[64,8]{1,0} parameter(1)",
        "n = f32[3]{0} parameter(0)\n  p = f32[64,8]{1,0} parameter(1)\n  q = f32[64,8]{1,0} parameter(2)")  # fmt: skip
    assert told(TEXT, new) == ["added n = f32[3]{0} parameter(), which nothing reads"]
    swapped = TEXT.replace("parameter(0)\n  q", "parameter(9)\n  q").replace(
        "parameter(1)\n  one", "parameter(0)\n  one"
    )
    swapped = swapped.replace("parameter(9)", "parameter(1)")
    assert told(TEXT, swapped)[0].startswith("changed p") or "operand 0" in told(TEXT, swapped)[0]


def test_a_long_attribute_is_cut_around_what_differs():
    old = f"HloModule m\n\nENTRY e {{\n  ROOT c = f32[40]{{0}} constant({{{', '.join(['1'] * 40)}}})\n}}\n"
    (line,) = told(old, old.replace("1})", "7})"))
    assert len(line) < 3 * LONGEST and "7" in line and "1" in line


def test_results_that_come_in_another_number_are_told():
    nothing = "HloModule m\n\nENTRY e {\n  ROOT t = () tuple()\n}\n"
    one = "HloModule m\n\nENTRY e {\n  c = f32[] constant(1)\n  ROOT t = (f32[]) tuple(c)\n}\n"
    assert told(nothing, one) == ["changed results of the module 0 -> 1, with constant 1"]
    assert told(nothing, nothing) == []


TWO = """HloModule m

ENTRY e {
  x = f32[3]{0} parameter(0)
  y = f32[3]{0} parameter(1)
  s = f32[3]{0} sine(x)
  c = f32[3]{0} cosine(y)
  d = f32[3]{0} subtract(s, c)
  ROOT t = (f32[3]{0}, f32[3]{0}, f32[3]{0}) tuple(s, c, d)
}
"""


def test_results_that_changed_places_are_told_as_results():
    assert told(TWO, TWO.replace("tuple(s, c, d)", "tuple(c, s, d)")) == [
        "changed result 0 of the module s -> c",
        "changed result 1 of the module c -> s",
    ]


def test_results_of_a_called_computation_are_told_with_what_calls_it():
    assert told(LOOP, LOOP.replace("tuple(j, y)", "tuple(j, x)")) == ["changed result 1 of w's body y -> s, result 1"]


def test_another_value_of_the_same_name_is_told_with_the_name_that_it_had():
    swapped = TWO.replace("x =", "z =").replace("y =", "x =").replace("z =", "y =")
    assert told(TWO, swapped) == [
        "changed s (sine): operand 0 x -> x, which was y",
        "changed c (cosine): operand 0 y -> y, which was x",
    ]


def test_a_loop_that_carries_one_array_more_says_so_and_no_more():
    new = LOOP.replace("(s32[], f32[8]{0})", "(f32[3]{0}, s32[], f32[8]{0})")
    new = new.replace("index=1", "index=2").replace("index=0", "index=1").replace("tuple(j, y)", "tuple(k, j, y)")
    new = new.replace("  one = ", "  k = f32[3]{0} get-tuple-element(s), index=0\n  one = ")
    new = new.replace("tuple(z, v)", "tuple(c, z, v)").replace(
        "  z = s32[]", "  c = f32[3]{0} constant({1, 2, 3})\n  z = s32[]"
    )
    assert {line.split()[1] for line in told(LOOP, new)} == {"s", "results", "w"}
    assert not any("operand 0 s" in line for line in told(LOOP, new))


def test_a_constant_without_a_python_line_has_that_of_its_reader():
    """JAX writes constants, and what it broadcasts of them, without one."""
    text = """HloModule m

ENTRY e {
  p = f32[8]{0} parameter(0)
  c = f32[] constant(2)
  b = f32[8]{0} broadcast(c), dimensions={}
  ROOT r = f32[8]{0} multiply(p, b), metadata={op_name="mul" source_file="a.py" source_line=7}
}
"""
    old, new = hlo_opt.parse(text), hlo_opt.parse(text.replace("constant(2)", "constant(3)"))
    rows, _ = changes(match(old, new))
    assert [(row.name, row.source) for row in rows] == [("c", "a.py:7")]


ORDERED = """HloModule m

ENTRY e {
  p = f32[8]{0} parameter(0)
  c = f32[8]{0} custom-call(p), custom_call_target="first", custom_call_has_side_effect=true
  d = f32[8]{0} custom-call(p), custom_call_target="second", custom_call_has_side_effect=true
  f = f32[8]{0} custom-call(p), custom_call_target="third", custom_call_has_side_effect=true WAIT
  ROOT t = (f32[8]{0}, f32[8]{0}, f32[8]{0}) tuple(c, d, f)
}
"""


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("c", "", ["changed f (custom-call): control-predecessors -c"]),
        ("c", "c, d", ["changed f (custom-call): control-predecessors +d"]),
        ("c", "d", ["changed f (custom-call): control-predecessors c -> d"]),
        ("c, d", "d, c", []),
    ],
)
def test_what_an_operation_waits_for(old: str, new: str, wanted: list[str]) -> None:
    texts = [ORDERED.replace(" WAIT", f", control-predecessors={{{names}}}" if names else "") for names in (old, new)]
    assert told(*texts) == wanted
    assert hlo_opt.diff(*texts).same == (not wanted)
