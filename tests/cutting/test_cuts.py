"""Single cuts."""

import numpy as np
import pytest
from cutting_modules import TEXT

import hlo_opt
from hlo_opt.cutting import cuts
from hlo_opt.diag import HloOptError
from hlo_opt.ir import edit


def made(module, cut):
    """What a cut gives, where it gives a module that is sound."""
    try:
        found = hlo_opt.parse(str(cut(edit.clone_module(module))))
        hlo_opt.verify(found)
    except (HloOptError, ValueError, AssertionError, KeyError, TypeError):
        return None
    return found


def opcodes(module):
    return sorted(i.opcode for c in module.computations for i in c.instructions)


def all_made(text):
    module = hlo_opt.parse(text)
    return [m for cut in cuts.single_cuts(module) if (m := made(module, cut)) is not None]


def test_parts_and_without_are_opposites():
    module = hlo_opt.parse(TEXT)
    n = cuts.count(module)
    kept, gone = made(module, lambda m: cuts.parts(m, range(6))), made(module, lambda m: cuts.without(m, range(6, n)))
    assert str(kept) == str(gone)


def test_every_computation_may_be_the_entry():
    module = hlo_opt.parse(TEXT)
    found = [made(module, cut) for cut in cuts.entries(module)]
    assert [m.entry.name for m in found if m is not None] == ["sum", "inner", "condition", "body"]
    body = found[-1]
    assert body is not None and "sine" in opcodes(body)


def test_fewer_outputs_need_less():
    module = hlo_opt.parse(TEXT)
    assert opcodes(made(module, lambda m: cuts.fewer_outputs(m, [2]))) == ["add", "parameter", "parameter"]


def test_a_loop_goes_runs_once_or_loses_a_part_of_its_state():
    found = all_made(TEXT)
    bodies = [m for m in found if "while" not in opcodes(m)]
    assert any("sine" in opcodes(m) for m in bodies), "one round"
    assert any("sine" not in opcodes(m) for m in bodies), "no round"
    states = {len(i.shape.elements or [i.shape]) for m in found for i in m.entry.instructions if i.opcode == "while"}
    assert states == {1, 2, 3, 4}, "one array, an element less, as many, and a flag"


def test_a_state_that_loses_its_counter_reads_a_constant():
    module = hlo_opt.parse(TEXT)
    lost = [
        m
        for m in all_made(TEXT)
        if any(
            i.opcode == "while" and len(i.shape.elements or ()) == 2 and not i.shape.elements[0].rank
            for i in m.entry.instructions
        )
    ]
    assert lost
    wanted = hlo_opt.evaluate(module, [np.ones((8, 16), np.float32)] * 2)
    got = hlo_opt.evaluate(lost[0], [np.ones((8, 16), np.float32)] * len(lost[0].entry.parameters))
    assert wanted[1] == got[1] == 3  # the third element of the state is one that nothing reads


def test_branches_calls_and_fusions_are_put_in_place():
    text = """HloModule m
yes {
  ROOT p = f32[4]{0} parameter(0)
}
no {
  p = f32[4]{0} parameter(0)
  ROOT n = f32[4]{0} tanh(p)
}
fused {
  p = f32[4]{0} parameter(0)
  unread = f32[4]{0} parameter(1)
  ROOT n = f32[4]{0} sine(p)
}
ENTRY e {
  c = pred[] parameter(0)
  p = f32[4]{0} parameter(1)
  q = f32[4]{0} parameter(2)
  f = f32[4]{0} fusion(p, q), kind=kLoop, calls=fused
  ROOT o = f32[4]{0} conditional(c, f, p), true_computation=yes, false_computation=no
}
"""
    found = [opcodes(m) for m in all_made(text)]
    assert any("conditional" not in o and "tanh" in o for o in found)
    assert any("conditional" not in o and "tanh" not in o for o in found)
    assert any("fusion" not in o and "sine" in o for o in found)
    fewer = [
        m for m in all_made(text) if any(i.opcode == "fusion" and len(i.operands) == 1 for i in m.entry.instructions)
    ]
    assert fewer, "a parameter that nothing reads goes"


def test_the_same_value_is_taken_twice_and_parameters_of_one_shape_are_one():
    text = """HloModule m
ENTRY e {
  p = f32[4]{0} parameter(0)
  q = f32[4]{0} parameter(1)
  ROOT a = f32[4]{0} add(p, q)
}
"""
    roots = [m.entry.root for m in all_made(text)]
    twice = [root.operands[0].name for root in roots if len(root.operands) == 2 and len(set(root.operands)) == 1]
    assert {"p", "q"} <= set(twice)


def test_what_an_operand_reads_is_read_in_its_place():
    text = """HloModule m
ENTRY e {
  p = f32[4]{0} parameter(0)
  q = f32[4]{0} parameter(1)
  s = f32[4]{0} subtract(p, q)
  ROOT a = f32[4]{0} add(s, s)
}
"""
    roots = [m.entry.root for m in all_made(text)]
    assert any(root.opcode == "add" and [o.name for o in root.operands] == ["p", "q"] for root in roots)


def test_a_tuple_of_one_is_dropped():
    text = "HloModule m\nENTRY e {\n p = f32[4]{0} parameter(0)\n ROOT t = (f32[4]{0}) tuple(p)\n}\n"
    assert opcodes(made(hlo_opt.parse(text), cuts.drop_tuple)) == ["parameter"]
    with pytest.raises(ValueError, match="no tuple"):
        cuts.drop_tuple(hlo_opt.parse(TEXT))


def test_an_operation_between_reshapes_reads_what_lies_before_them():
    text = """HloModule m
ENTRY e {
  p = f32[4]{0} parameter(0)
  a = f32[4,1]{1,0} reshape(p)
  b = pred[4,1]{1,0} is-finite(a)
  c = pred[4]{0} reshape(b)
  d = pred[2,2]{1,0} reshape(b)
  ROOT t = (pred[4]{0}, pred[2,2]{1,0}) tuple(c, d)
}
"""
    inputs = [np.array([0, np.inf, np.nan, -1], np.float32)]
    want = hlo_opt.evaluate(hlo_opt.parse(text), inputs)
    plain = [
        m for m in all_made(text) if any(i.opcode == "is-finite" and i.shape.rank == 1 for i in m.entry.instructions)
    ]
    assert plain, "no cut takes the operation on what lies before"
    for module in plain:
        np.testing.assert_equal(hlo_opt.evaluate(module, inputs), want)


def test_a_value_stands_for_what_becomes_it_again():
    text = """HloModule m

ENTRY e {
  p = f32[8]{0} parameter(0)
  n = f32[8]{0} negate(p)
  there = f32[2,4]{1,0} reshape(n)
  back = f32[8]{0} reshape(there)
  ROOT s = f32[8]{0} sine(back)
}
"""
    (source,) = [m for m in all_made(text) if len(m.entry.instructions) == 3 and "negate" in opcodes(m)]
    assert opcodes(source) == ["negate", "parameter", "sine"]


def test_an_operand_is_no_source_of_its_own_and_chains_are_walked_no_further_than_needed():
    lines = ["HloModule m", "", "ENTRY e {", "  v0 = f32[8]{0} parameter(0)"]
    lines += [f"  v{n} = f32[8]{{0}} negate(v{n - 1})" for n in range(1, 2 * cuts.EARLIEST)]
    lines += [f"  ROOT r = f32[8]{{0}} sine(v{2 * cuts.EARLIEST - 1})", "}"]
    root = hlo_opt.parse("\n".join(lines)).entry.root
    assert cuts._source(root) == 2 * cuts.EARLIEST - 2


def test_a_called_computation_loses_a_stretch():
    module = hlo_opt.parse(TEXT)
    assert cuts.called_names(module) == ["body"]
    found = made(module, lambda m: cuts.without_in(m, "body", range(8)))
    (body,) = (c for c in found.computations if c.name == "body")
    assert [i.opcode for i in body.instructions] == ["parameter", *["get-tuple-element"] * 3, "tuple"]
    late = made(module, lambda m: cuts.without_in(m, "body", range(6, 8)))
    (body,) = (c for c in late.computations if c.name == "body")
    assert "add" in opcodes(late) and "sine" not in [i.opcode for i in body.instructions]


def test_zeros_stand_for_what_no_input_has_the_shape_of():
    text = TEXT.replace(
        "  sine = f32[8,16]{1,0} sine(x)",
        "  row = f32[8,1]{1,0} slice(x), slice={[0:8], [0:1]}\n  flat = f32[8]{0} reshape(row)\n"
        "  sine = f32[8,16]{1,0} broadcast(flat), dimensions={0}",
    )
    found = made(hlo_opt.parse(text), lambda m: cuts.without_in(m, "body", range(4, 8)))
    (body,) = (c for c in found.computations if c.name == "body")
    left = [i.opcode for i in body.instructions]
    assert "slice" not in left and left.count("broadcast") == 2


WRITES = """HloModule m

body {
  o = s32[8,4]{1,0} parameter(0)
  z = s32[] constant(3)
  row = s32[1,4]{1,0} broadcast(z), dimensions={}
  ROOT n = s32[8,4]{1,0} dynamic-update-slice(o, row, z, z)
}

ENTRY e {
  o = s32[8,4]{1,0} parameter(0)
  ROOT c = s32[8,4]{1,0} call(o), to_apply=body
}
"""


def test_an_array_turned_stands_for_one_of_which_a_part_is_updated():
    """What matters may be that elements meet, and then neither the part nor its place does."""
    assert ["call", "parameter", "parameter", "reverse"] in [opcodes(module) for module in all_made(WRITES)]


KEPT = {"sine", "cosine", "tanh"}


def test_equal_elements_of_a_tuple_become_one():
    module = hlo_opt.parse(
        """HloModule m

ENTRY e {
  t = (f32[9], f32[9]) parameter(0)
  a = f32[9] get-tuple-element(t), index=1
  b = f32[9] get-tuple-element(t), index=1
  c = f32[9] get-tuple-element(t), index=0
  x = f32[9] sine(a)
  y = f32[9] cosine(b)
  z = f32[9] tanh(c)
  ROOT r = (f32[9], f32[9], f32[9]) tuple(x, y, z)
}
"""
    )
    found = [m for cut in cuts.single_cuts(module) if (m := made(module, cut)) is not None]
    read = [[i.operands[0].name for i in m.entry.instructions if i.opcode in KEPT] for m in found]
    assert ["a", "a", "c"] in read, "one element is read twice"
    assert ["a", "b", "a"] not in read and ["a", "b", "b"] not in read, "other elements are not merged"
