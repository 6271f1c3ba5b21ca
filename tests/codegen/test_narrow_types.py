"""Kernels on integers and floats of less than 16 bits: as the op table says on the host, and compiled by NVRTC."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.runtime.host.library import has_compiler

SMALL = ("s2", "u2", "s4", "u4", "f8e4m3fn", "f8e5m2", "f6e2m3fn", "f4e2m1fn")

ADD = "add {{\n  a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  ROOT r = {t}[] maximum(a, b)\n}}\n\n"


def module(body: str, t: str) -> str:
    return "HloModule m\n\n" + ADD.format(t=t) + "ENTRY e {\n" + body.replace("TYPE", t) + "}\n"


ARITHMETIC = """  p = TYPE[6,7]{1,0} parameter(0)
  q = TYPE[6,7]{1,0} parameter(1)
  s = TYPE[6,7]{1,0} add(p, q)
  d = TYPE[6,7]{1,0} multiply(s, q)
  c = pred[6,7]{1,0} compare(d, p), direction=GE
  m = TYPE[6,7]{1,0} select(c, d, q)
  ROOT r = f32[6,7]{1,0} convert(m)
"""
CONSTANTS = """  p = TYPE[5]{0} parameter(0)
  k = TYPE[5]{0} constant({1, 0, 1, 1, 0})
  ROOT r = TYPE[5]{0} add(p, k)
"""
ROWS = """  p = TYPE[5,70]{1,0} parameter(0)
  z = TYPE[] constant(1)
  ROOT r = TYPE[5]{0} reduce(p, z), dimensions={1}, to_apply=add
"""
COLUMNS = """  p = TYPE[40,36]{1,0} parameter(0)
  z = TYPE[] constant(1)
  ROOT r = TYPE[36]{0} reduce(p, z), dimensions={0}, to_apply=add
"""
TRANSPOSED = """  p = TYPE[40,36]{1,0} parameter(0)
  ROOT r = TYPE[36,40]{1,0} transpose(p), dimensions={1,0}
"""
SCATTERED = """  p = TYPE[9]{0} parameter(0)
  i = s32[6,1]{1,0} parameter(1)
  u = TYPE[6]{0} parameter(2)
  ROOT r = TYPE[9]{0} scatter(p, i, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
"""
SIMPLE = (ARITHMETIC, CONSTANTS, ROWS)
SHARED = (COLUMNS, TRANSPOSED)
BITS = (
    "  p = s8[5]{0} parameter(0)\n  ROOT r = s4[5,2]{1,0} bitcast-convert(p)\n",
    "  p = u4[5,2]{1,0} parameter(0)\n  ROOT r = u8[5]{0} bitcast-convert(p)\n",
    "  p = s2[5,8]{1,0} parameter(0)\n  ROOT r = s16[5]{0} bitcast-convert(p)\n",
    "  p = s4[7]{0} parameter(0)\n  ROOT r = f4e2m1fn[7]{0} bitcast-convert(p)\n",
    "  p = f32[4]{0} parameter(0)\n  ROOT r = f8e4m3fn[4,4]{1,0} bitcast-convert(p)\n",
)


def cases() -> list[str]:
    texts = [module(body, t) for t in SMALL for body in SIMPLE]
    texts += [module(body, t) for t in ("s4", "f8e5m2") for body in SHARED]
    return [*texts, *(module(body, "s4") for body in BITS)]


def test_kernels_agree_with_evaluation(tool: Any) -> None:
    tool.all_agree(cases())


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
@pytest.mark.parametrize("name", ["u4", "f8e4m3fn"])
def test_scatters_agree_with_evaluation(name: str) -> None:
    found = hlo_opt.parse(module(SCATTERED, name))
    executable = hlo_opt.compile(found, "host")
    operand, _, updates = module_inputs(found, seed=3)
    given = [operand, np.array([[3], [8], [3], [0], [11], [3]], np.int32), updates]
    np.testing.assert_array_equal(executable(*given)[0], hlo_opt.evaluate(found, given)[0])
    assert not executable.report()["fallbacks"]


def test_nvrtc_compiles_them(planner: Any) -> None:
    pytest.importorskip("cupy")
    from cupy.cuda import nvrtc

    bodies = (ARITHMETIC, CONSTANTS, ROWS, *SHARED, SCATTERED)
    for text in [*(module(b, t) for t in ("s4", "f8e5m2") for b in bodies), *(module(b, "s4") for b in BITS)]:
        program = nvrtc.createProgram(planner.kernel(text).source, "kernel.cu", (), ())
        try:
            nvrtc.compileProgram(program, ("-arch=sm_90",))
        except nvrtc.NVRTCError:
            pytest.fail(nvrtc.getProgramLog(program)[:2000])
