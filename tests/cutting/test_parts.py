"""Parts of a module as modules of their own."""

import numpy as np
import pytest
from cutting_modules import TEXT, Says

import hlo_opt
from hlo_opt.cutting import cuts
from hlo_opt.cutting.parts import outputs_of, part_of, size, tidied
from hlo_opt.cutting.search import Reducer


def named(module):
    return {i.name: i for c in module.computations for i in c.instructions}


def test_what_is_outside_is_given_and_what_is_needed_outside_is_an_output():
    module = hlo_opt.parse(TEXT)
    names = named(module)
    part = part_of(module.entry, {names["a"], names["called"]})
    made = hlo_opt.parse(str(part.module))
    hlo_opt.verify(made)
    assert [i.name for i in part.inputs] == ["p", "q"]
    assert [o.name for o in outputs_of(made.entry)] == ["a", "called"]
    assert {c.name for c in made.computations} == {"inner", "e"}
    inputs = [np.ones((8, 16), np.float32)] * 2
    np.testing.assert_allclose(hlo_opt.evaluate(made, inputs)[1], -np.exp(2), rtol=1e-6)


def test_constants_come_along_and_elements_of_what_is_given_are_given():
    names = named(module := hlo_opt.parse(TEXT))
    part = part_of(module.entry, {names["after"], names["r"]})
    assert [i.name for i in part.inputs] == ["after"]
    assert [i.opcode for i in part.module.entry.instructions] == ["parameter", "constant", "reduce"]


def test_a_token_comes_along():
    text = """HloModule m
ENTRY e {
  p = f32[4]{0} parameter(0)
  n = f32[4]{0} negate(p)
  t = token[] after-all()
  ROOT o = token[] outfeed(n, t), outfeed_shape=f32[4]{0}
}
"""
    names = named(module := hlo_opt.parse(text))
    part = part_of(module.entry, {names["o"]}, [names["n"]])
    assert [i.name for i in part.inputs] == ["n"]
    assert [i.opcode for i in part.module.entry.instructions] == ["parameter", "after-all", "outfeed"]


def test_control_predecessors_stay_among_what_is_kept():
    text = TEXT.replace("call(a), to_apply=inner", "call(a), to_apply=inner, control-predecessors={a}")
    names = named(module := hlo_opt.parse(text))
    both = part_of(module.entry, {names["a"], names["called"]}).module
    assert "control-predecessors" in str(both)
    assert "control-predecessors" not in str(part_of(module.entry, {names["called"]}).module)


def test_nothing_left_is_no_module():
    module = hlo_opt.parse(TEXT)
    with pytest.raises(ValueError, match="nothing is left"):
        part_of(module.entry, set())


def test_tidied_drops_what_nothing_needs():
    text = """HloModule m, entry_computation_layout={(f32[4]{0}, f32[4]{0})->f32[4]{0}}
unused {
  ROOT p = f32[] parameter(0)
}
ENTRY e {
  p = f32[4]{0} parameter(0)
  q = f32[4]{0} parameter(1)
  dead = f32[4]{0} negate(p)
  t = (f32[4]{0}, f32[4]{0}) tuple(p, q)
  ROOT g = f32[4]{0} get-tuple-element(t), index=1
}
"""
    module = tidied(hlo_opt.parse(text))
    hlo_opt.verify(hlo_opt.parse(str(module)))
    assert [(i.name, i.parameter_number) for i in module.entry.instructions] == [("q", 0)]
    assert len(module.computations) == 1 and not module.attributes


def test_size_orders_by_operations_first():
    def of(line):
        return size(hlo_opt.parse(f"HloModule m\nENTRY e {{\n p = f32[4]{{0}} parameter(0)\n{line}\n}}\n"))

    one, other = of("ROOT n = f32[4]{0} negate(p)"), of("n = f32[4]{0} negate(p)\n ROOT k = f32[4]{0} negate(n)")
    wide = of("ROOT n = f64[4]{0} convert(p)")
    assert one < wide < other


ALIASED = """HloModule m, input_output_alias={ {0}: (1, {}, may-alias), {1}: (2, {}, must-alias) }
ENTRY e {
  a = f32[4]{0} parameter(0)
  b = f32[4]{0} parameter(1)
  c = f32[4]{0} parameter(2)
  x = f32[4]{0} negate(b)
  y = f32[4]{0} add(a, c)
  z = f32[4]{0} sine(y)
  ROOT t = (f32[4]{0}, f32[4]{0}) tuple(x, y)
}
"""


def test_outputs_keep_the_memory_of_parameters_that_stay():
    def header(module):
        hlo_opt.verify(made := hlo_opt.parse(str(module)))
        value = made.attributes.get("input_output_alias")
        return "" if value is None else "".join(value.text.split())

    names = named(module := hlo_opt.parse(ALIASED))
    both = part_of(module.entry, {names["x"], names["y"]})
    assert [i.name for i in both.inputs] == ["b", "a", "c"]
    assert header(both.module) == "{{0}:(0,{},may-alias),{1}:(2,{},must-alias)}"
    one = part_of(module.entry, {names["y"]})
    assert header(one.module) == "{{}:(1,{},must-alias)}"
    assert header(part_of(module.entry, {names["y"], names["z"]}, [names["z"]]).module) == ""
    assert header(tidied(cuts.fewer_outputs(hlo_opt.parse(ALIASED), [1]))) == "{{}:(1,{},must-alias)}"


def test_a_fault_that_needs_an_output_in_the_memory_of_a_parameter_keeps_it():
    reducer = Reducer(ALIASED, Says(r"must-alias(.|\n)* add\("), 2)
    reducer.run()
    hlo_opt.verify(hlo_opt.parse(reducer.text))
    assert reducer.instructions <= 3 and "must-alias" in reducer.text and "may-alias" not in reducer.text
