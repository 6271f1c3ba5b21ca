"""Cuts of loops."""

import numpy as np
import pytest
from cutting_modules import TEXT, Says, changed, loop_of

import hlo_opt
from hlo_opt.cutting import cuts, loops
from hlo_opt.cutting.search import Reducer
from hlo_opt.ir import edit
from hlo_opt.ops.sets import looped

ONES = [np.ones((8, 16), np.float32)] * 2


def outputs(module):
    return hlo_opt.evaluate(module, ONES[: len(module.entry.parameters)])


def test_a_condition_that_is_false_keeps_the_loop_and_runs_no_round():
    module = changed(loops.stop_at_once)
    condition = loop_of(module).called_by("condition")
    assert [i.opcode for i in condition.instructions] == ["parameter", "constant"]
    assert outputs(module)[1] == 0
    with pytest.raises(ValueError, match="constant"):
        loops.stop_at_once(loop_of(module))


def test_a_flag_in_place_of_a_counter_runs_one_round():
    module, once = changed(loops.count_to_one, number=0), changed(loops.run_once)
    loop = loop_of(module)
    assert str(loop.shape.elements[0]) == "pred[]"
    assert [i.opcode for i in loop.called_by("condition").instructions] == ["parameter", "get-tuple-element"]
    for number in (0, 2):  # the counter is the other output
        np.testing.assert_array_equal(outputs(module)[number], outputs(once)[number])


def test_two_flags_in_place_of_a_counter_run_two_rounds():
    twice = changed(loops.count_to_two, number=0)
    loop = loop_of(twice)
    assert [str(e) for n, e in enumerate(loop.shape.elements) if n in (0, 3)] == ["pred[]", "pred[]"]
    two = hlo_opt.parse(TEXT.replace("bound = s32[] constant(3)", "bound = s32[] constant(2)"))
    for number in (0, 2):  # the counter is the other output
        np.testing.assert_array_equal(outputs(twice)[number], outputs(two)[number])


def test_any_element_may_be_the_flag():
    module = changed(loops.count_to_one, number=2)
    loop = loop_of(module)
    assert [str(e) for e in loop.shape.elements] == ["s32[]", "f32[8,16]{1,0}", "pred[]"]
    np.testing.assert_array_equal(outputs(module)[0], outputs(changed(loops.run_once))[0])


def test_a_flag_beside_what_the_loop_carries_runs_one_round():
    text = TEXT.replace("bound = s32[] constant(3)", "two = s32[] constant(2)\n  bound = s32[] add(two, two)")
    module, once = changed(loops.go_round_once, text), changed(loops.run_once)
    loop = loop_of(module)
    assert str(loop.shape.elements[3]) == "pred[]"
    assert [i.opcode for i in loop.called_by("condition").instructions] == ["parameter", "get-tuple-element"]
    for want, got in zip(outputs(once), outputs(module), strict=True):
        np.testing.assert_array_equal(want, got)
    with pytest.raises(ValueError, match="is an element"):
        loops.go_round_once(loop)


def test_the_only_element_is_the_state():
    text = """HloModule m
body {
  p = (f32[]) parameter(0)
  x = f32[] get-tuple-element(p), index=0
  y = f32[] add(x, x)
  ROOT t = (f32[]) tuple(y)
}
condition {
  p = (f32[]) parameter(0)
  x = f32[] get-tuple-element(p), index=0
  c = f32[] constant(9)
  ROOT l = pred[] compare(x, c), direction=LT
}
ENTRY e {
  x = f32[] parameter(0)
  t = (f32[]) tuple(x)
  w = (f32[]) while(t), condition=condition, body=body
  ROOT r = f32[] get-tuple-element(w), index=0
}
"""
    as_input = text.replace("  x = f32[] parameter(0)\n  t = (f32[]) tuple(x)", "  t = (f32[]) parameter(0)")
    for each in (text, as_input):
        module = changed(loops.bare_state, each)
        assert sum(len(c.instructions) for c in module.computations) == 7
        assert hlo_opt.evaluate(module, [np.float32(3)])[0] == 12
    with pytest.raises(ValueError, match="several elements"):
        changed(loops.bare_state)


ONLY_A_LOOP = """HloModule m
body {
  x = f32[4]{0} parameter(0)
  ROOT y = f32[4]{0} sine(x)
}
condition {
  x = f32[4]{0} parameter(0)
  ROOT no = pred[] constant(false)
}
ENTRY e {
  x = f32[4]{0} parameter(0)
  ROOT w = f32[4]{0} while(x), condition=condition, body=body
}
"""


def test_a_loop_of_which_nothing_matters_but_that_it_is_there_is_three_instructions():
    text, module = ONLY_A_LOOP, changed(loops.be_flag, ONLY_A_LOOP)
    assert sum(len(c.instructions) for c in module.computations) == 3
    assert [str(p.shape) for p in module.entry.parameters] == ["pred[]"]
    for shared in (str(module), text.replace("  ROOT w", "  v = f32[4]{0} call(x), to_apply=body\n  ROOT w")):
        with pytest.raises(ValueError, match="else calls"):
            changed(loops.be_flag, shared)
    read = text.replace("ROOT w", "w").replace("body=body\n", "body=body\n  ROOT n = f32[4]{0} negate(w)\n")
    with pytest.raises(ValueError, match="result"):
        changed(loops.be_flag, read)
    reducer = Reducer(text, Says(r" while\("), jobs=1)
    reducer.run()
    assert reducer.instructions == 3, reducer.text


@pytest.mark.parametrize("number", range(3))
def test_an_element_of_the_state_is_dropped(number):
    loop = loop_of(changed(loops.drop_element, number=number))
    assert len(loop.shape.elements) == 2


def test_an_element_of_the_state_is_read_in_place_of_another():
    text = TEXT.replace("tuple(next, sine, y)", "tuple(next, sine, sine)")
    module = changed(loops.merge_element, text, number=2, other=1)
    assert len(loop_of(module).shape.elements) == 2
    for want, got in zip(outputs(hlo_opt.parse(text)), outputs(module), strict=True):
        np.testing.assert_array_equal(want, got)


def test_every_loop_runs_once():
    module = hlo_opt.parse(TEXT)
    once = loops.all_once(edit.clone_module(module))
    hlo_opt.verify(hlo_opt.parse(str(once)))
    assert not any(looped(i) for c in once.computations for i in c.instructions)
    with pytest.raises(ValueError, match="no loop"):
        loops.all_once(once)


def test_a_state_that_is_read_as_a_whole_stays():
    text = """HloModule m
body {
  p = (f32[4]{0}, pred[]) parameter(0)
  x = f32[4]{0} get-tuple-element(p), index=0
  no = pred[] constant(false)
  ROOT t = (f32[4]{0}, pred[]) tuple(x, no)
}
condition {
  p = (f32[4]{0}, pred[]) parameter(0)
  ROOT c = pred[] get-tuple-element(p), index=1
}
ENTRY e {
  x = f32[4]{0} parameter(0)
  yes = pred[] constant(true)
  t = (f32[4]{0}, pred[]) tuple(x, yes)
  ROOT w = (f32[4]{0}, pred[]) while(t), condition=condition, body=body
}
"""
    module = hlo_opt.parse(text)
    for computation in module.computations:
        computation.index_users()
    loop = loop_of(module)
    loops.drop_element(loop, number=0)
    assert str(loop.shape) == "(pred[])"
    with pytest.raises(ValueError, match="several elements"):
        loops.drop_element(loop, number=0)


def test_the_cuts_of_loops_are_those_of_instructions_that_are_loops():
    module = hlo_opt.parse(TEXT)
    names = {
        cut.keywords["change"].__name__ for cut in cuts.loop_cuts(module) if not hasattr(cut.keywords["change"], "func")
    }
    assert names == {
        *("take_start", "run_once", "stop_at_once", "go_round_once", "bare_state", "start_with_input", "be_flag")
    }


def test_a_loop_may_start_with_an_input():
    text = """HloModule m
body {
  p = (f32[9], pred[]) parameter(0)
  x = f32[9] get-tuple-element(p), index=0
  y = f32[9] add(x, x)
  no = pred[] constant(false)
  ROOT t = (f32[9], pred[]) tuple(y, no)
}
condition {
  p = (f32[9], pred[]) parameter(0)
  ROOT c = pred[] get-tuple-element(p), index=1
}
ENTRY e {
  x = f32[9] parameter(0)
  yes = pred[] constant(true)
  t = (f32[9], pred[]) tuple(x, yes)
  ROOT w = (f32[9], pred[]) while(t), condition=condition, body=body
}
"""
    module = changed(loops.start_with_input, text)
    assert [i.opcode for i in module.entry.instructions] == ["parameter", "while"]
    assert hlo_opt.evaluate(module, [np.ones(9, np.float32), np.True_])[0][0] == 2
    with pytest.raises(ValueError, match="as a tuple of the entry"):
        changed(loops.start_with_input, str(module))
