"""The host's own routines: each is built alone, and only for programs that call it."""

from __future__ import annotations

import numpy as np
import pytest
from ml_dtypes import bfloat16

import hlo_opt
from hlo_opt.runtime.host import own_routines
from hlo_opt.runtime.host.own_routines import CONVERSION, ROUTINES, routine, routine_text, runtime_text, symbol_of
from hlo_opt.runtime.host.program import HostProgram
from hlo_opt.runtime.numpy import Reference
from hlo_opt.runtime.schedule import build_schedule
from tests.runtime.test_frozen import TEXT, program

PRODUCT = """HloModule m
ENTRY e {
  a = bf16[5,7] parameter(0)
  b = bf16[7,3] parameter(1)
  ROOT d = bf16[5,3] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.mark.parametrize("name", ROUTINES)
def test_each_is_a_unit_by_itself(name: str) -> None:
    assert symbol_of(name) in routine_text(name) and "HLO_" not in routine_text(name).replace("HLO_APART", "")
    assert routine(name)


def test_the_runtime_has_none() -> None:
    assert not any(function.partition("<")[0] in runtime_text() for _, function in ROUTINES.values())


def test_a_program_without_library_calls_builds_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_routines, "load", pytest.fail)
    assert program(TEXT).words.own == []


def test_narrow_factors_are_converted_before_and_after() -> None:
    module = hlo_opt.parse(PRODUCT)
    made = HostProgram(build_schedule(module), Reference(module))
    assert made.words.own == [CONVERSION, "product_f32"]
    a, b = (np.arange(n, dtype=np.float32).reshape(s) for n, s in ((35, (5, 7)), (21, (7, 3))))
    (result,) = made.run([a.astype(bfloat16), b.astype(bfloat16)])
    np.testing.assert_allclose(np.asarray(result, np.float32), a @ b, rtol=2**-8)
