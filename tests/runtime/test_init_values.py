"""Init values that are no identity of their reducer go in as often as on XLA:CPU; the others cost nothing."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.runtime.host import has_compiler
from hlo_opt.runtime.init_values import with_init_values_of_xla_cpu

HEAD = """HloModule m

add {
  a = TYPE[] parameter(0)
  b = TYPE[] parameter(1)
  ROOT r = TYPE[] add(a, b)
}

sizes {
  a = TYPE[] parameter(0)
  b = TYPE[] parameter(1)
  c = TYPE[] abs(b)
  ROOT r = TYPE[] add(a, c)
}

"""
SUM = "ENTRY e {\n  p = TYPE[3,100]{1,0} parameter(0)\n  z = TYPE[] constant(INIT)\n  ROOT r = TYPE[3]{0} reduce(p, z), dimensions={1}, to_apply=OF\n}\n"
FUSED = (
    "f {\n  p = TYPE[3,100]{1,0} parameter(0)\n  z = TYPE[] parameter(1)\n  ROOT r = TYPE[3]{0} reduce(p, z), dimensions={1}, to_apply=OF\n}\n\n"
    "ENTRY e {\n  p = TYPE[3,100]{1,0} parameter(0)\n  z = TYPE[] constant(INIT)\n  ROOT r = TYPE[3]{0} fusion(p, z), kind=kLoop, calls=f\n}\n"
)
NOTHING = "ENTRY e {\n  p = TYPE[3,1]{1,0} parameter(0)\n  z = TYPE[] constant(INIT)\n  ROOT r = TYPE[3]{0} reduce(p, z), dimensions={1}, to_apply=OF\n}\n"
WINDOW = "ENTRY e {\n  p = TYPE[] parameter(0)\n  z = TYPE[] constant(INIT)\n  ROOT r = TYPE[] reduce-window(p, z), to_apply=OF\n}\n"


def module(body: str, element_type: str, init: str, of: str) -> hlo_opt.Module:
    return hlo_opt.parse((HEAD + body).replace("TYPE", element_type).replace("INIT", init).replace("OF", of))


@pytest.mark.parametrize("body", [SUM, FUSED, NOTHING, WINDOW], ids=["sum", "fused", "nothing", "window"])
@pytest.mark.parametrize(
    ("element_type", "init", "of"), [("s32", "3", "add"), ("bf16", "1", "add"), ("f32", "0", "sizes")]
)
def test_the_plain_meaning_is_that_of_xla_cpu(body: str, element_type: str, init: str, of: str) -> None:
    original = module(body, element_type, init, of)
    written = with_init_values_of_xla_cpu(original)
    hlo_opt.verify(written)
    shape = original.entry.parameters[0].shape
    values = np.random.default_rng(1).integers(-4, 9, shape.dimensions).astype(shape.type.dtype)
    plain, ours, wanted = (
        hlo_opt.evaluate(original, [values], as_xla_cpu=False)[0],
        hlo_opt.evaluate(written, [values], as_xla_cpu=False)[0],
        hlo_opt.evaluate(original, [values])[0],
    )
    np.testing.assert_array_equal(ours, wanted)
    if of == "add":
        assert not np.array_equal(plain, wanted)


def test_identities_leave_the_module_as_it_is() -> None:
    for body in (SUM, FUSED, NOTHING, WINDOW):
        plain = module(body, "f32", "0", "add")
        assert with_init_values_of_xla_cpu(plain) is plain


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
def test_kernels_follow_where_they_are_asked_to() -> None:
    sums = module(FUSED, "s32", "3", "add")
    values = np.zeros((3, 100), np.int32)
    assert hlo_opt.compile(sums, "host")(values)[0].tolist() == hlo_opt.evaluate(sums, [values])[0].tolist() == [15] * 3
    assert hlo_opt.compile(sums, "host", as_xla_cpu=False)(values)[0].tolist() == [3] * 3
