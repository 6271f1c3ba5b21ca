"""What another type in every array would cost."""

import pytest

import hlo_opt
from hlo_opt.diag import UsageError
from hlo_opt.passes.run import report_on, run
from hlo_opt.report.retyped import with_type

TEXT = """HloModule m
ENTRY e {
  p = f32[8,16] parameter(0)
  k = u32[8,16] parameter(1)
  b = f32[8,16] bitcast-convert(k)
  a = f32[8,16] add(p, b)
  s = s32[8,16] bitcast-convert(a)
  t = f32[8,16] tanh(a)
  ROOT r = (f32[8,16], s32[8,16]) tuple(t, s)
}
"""


def test_every_array_has_the_other_type_but_where_bits_are_read():
    module = hlo_opt.parse(TEXT)
    before = str(module)
    changed = with_type(module, "f32=bf16")
    hlo_opt.verify(changed)
    assert str(module) == before
    types = {i.name: i.shape.type.name for i in changed.entry.instructions if i.shape.is_array}
    assert {name: types[name] for name in "pkabst"} == {
        "p": "bf16", "k": "u32", "a": "bf16", "b": "f32", "s": "s32", "t": "bf16"
    }  # fmt: skip
    assert report_on(run(changed)).after.bytes < report_on(run(module)).after.bytes


@pytest.mark.parametrize(
    ("types", "hint"),
    [("f32", "--as f32=bf16"), ("f32=", "--as"), ("f32=bf17", "bf16"), ("f16=bf16", "it has f32, s32, u32")],
)
def test_types_that_there_are_not(types, hint):
    with pytest.raises(UsageError) as raised:
        with_type(hlo_opt.parse(TEXT), types)
    assert hint in raised.value.hint


def test_a_type_that_an_operation_asks_for_is_refused():
    text = "HloModule m\nENTRY e {\n  p = s32[8] parameter(0)\n  ROOT n = s32[8] popcnt(p)\n}\n"
    with pytest.raises(UsageError, match="m cannot be written with f32 for s32"):
        with_type(hlo_opt.parse(text), "s32=f32")
