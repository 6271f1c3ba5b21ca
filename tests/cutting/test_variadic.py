"""Operations over several arrays at once, with fewer of them."""

import numpy as np
import pytest

import hlo_opt
from hlo_opt.cutting import cuts
from hlo_opt.cutting.parts import tidied
from hlo_opt.cutting.variadic import combine_once, drop_array, keep_results
from hlo_opt.diag import HloOptError
from hlo_opt.ir import edit

COMPARED = """HloModule m
less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  ROOT c = pred[] compare(a, b), direction=LT
}
ENTRY e {
  p = f32[8]{0} parameter(0)
  q = s32[8]{0} parameter(1)
  s = (f32[8]{0}, s32[8]{0}) sort(p, q), dimensions={0}, to_apply=less
  ROOT r = f32[8]{0} get-tuple-element(s), index=0
}
"""
COMBINED = """HloModule m
both {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  s = f32[] add(a, b)
  t = s32[] maximum(i, j)
  ROOT u = (f32[], s32[]) tuple(s, t)
}
ENTRY e {
  p = f32[8]{0} parameter(0)
  q = s32[8]{0} parameter(1)
  zero = f32[] constant(0)
  none = s32[] constant(0)
  s = (f32[], s32[]) reduce(p, q, zero, none), dimensions={0}, to_apply=both
  ROOT r = f32[] get-tuple-element(s), index=0
}
"""


def with_fewer(text, kind=drop_array):
    """The valid modules after each change of a kind: an operation with fewer arrays."""
    module, results = hlo_opt.parse(text), []
    for cut in cuts.single_cuts(module):
        change = cut.keywords["change"]
        if getattr(change, "func", None) is not kind:
            continue
        try:
            result = hlo_opt.parse(str(cut(edit.clone_module(module))))
            hlo_opt.verify(result)
        except (HloOptError, ValueError):
            continue
        results.append(result)
    return results


@pytest.mark.parametrize("text", [COMPARED, COMBINED])
def test_an_array_that_nothing_reads_is_dropped(text):
    (module,) = with_fewer(text)
    inputs = [np.array([3, -1, 2, 0, 7, -5, 1, 4], np.float32), np.arange(8, dtype=np.int32)]
    assert len(module.entry.parameters) == 1 and module.entry.root.shape.is_array
    (want,), (got,) = hlo_opt.evaluate(hlo_opt.parse(text), inputs), hlo_opt.evaluate(module, inputs[:1])
    np.testing.assert_array_equal(want, got)


def test_the_root_of_the_entry_returns_less():
    text = COMBINED.replace("  s = (", "  ROOT s = (").replace("  ROOT r = f32[] get-tuple-element(s), index=0\n", "")
    shapes = {str(module.entry.root.shape) for module in with_fewer(text)}
    assert shapes == {"f32[]", "s32[]"}


def test_an_array_that_the_others_depend_on_stays():
    assert not with_fewer(COMPARED.replace("index=0", "index=1").replace("r = f32[8]{0}", "r = s32[8]{0}"))
    assert not with_fewer(COMBINED.replace("add(a, b)", "convert(j)"))


FUSED = """HloModule m
f {
  p = f32[8]{0} parameter(0)
  s = f32[8]{0} sine(p)
  c = f32[8]{0} cosine(p)
  n = f32[] constant(2)
  ROOT t = (f32[8]{0}, f32[8]{0}, f32[]) tuple(s, c, n)
}
ENTRY e {
  p = f32[8]{0} parameter(0)
  ROOT f = (f32[8]{0}, f32[8]{0}, f32[]) fusion(p), kind=kLoop, calls=f
}
"""


def test_a_fusion_returns_less():
    modules = with_fewer(FUSED, keep_results)
    assert [str(m.entry.root.shape) for m in modules[:3]] == ["f32[8]{0}", "f32[8]{0}", "f32[]"]
    assert [len(m.entry.root.shape.elements) for m in modules[3:]] == [2, 2, 2]
    (got,) = hlo_opt.evaluate(modules[1], [np.ones(8, np.float32)])
    np.testing.assert_allclose(got, np.full(8, np.cos(1)), rtol=1e-6)


def test_a_result_that_is_read_stays():
    reader = "  ROOT r = f32[8]{0} get-tuple-element(f), index=1\n}\n"
    (module, *others) = with_fewer(FUSED.replace("ROOT f", "f").removesuffix("}\n") + reader, keep_results)
    assert module.entry.root.opcode == "fusion" and module.entry.root.shape.is_array
    assert [len(m.entry.root.operands[0].shape.elements) for m in others] == [2, 2]


@pytest.mark.parametrize("shape", ["f32[]", "f32[4]{0}"])
def test_what_a_reduce_does_once_may_stand_for_it(shape):
    text = f"""HloModule m
twice {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  s = f32[] add(a, b)
  ROOT t = f32[] add(s, b)
}}
ENTRY e {{
  p = f32[4,8]{{1,0}} parameter(0)
  two = f32[] constant(2)
  ROOT s = {shape} reduce(p, two), dimensions={{{"0,1" if shape == "f32[]" else "1"}}}, to_apply=twice
}}
"""
    module = hlo_opt.parse(text)
    combine_once(module.entry.root)
    result = hlo_opt.parse(str(tidied(module)))
    hlo_opt.verify(result)
    assert len(list(result.computations)) == 1
    np.testing.assert_array_equal(hlo_opt.evaluate(result, [])[0], np.full(result.entry.root.shape.dimensions, 6))
    with pytest.raises(ValueError, match="several arrays"):
        combine_once(next(i for i in hlo_opt.parse(COMBINED).entry.instructions if i.name == "s"))
