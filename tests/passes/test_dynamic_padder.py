"""Dynamic sizes in kernels: what the interpreter makes of arrays of the sizes in use, kernels make of the rewritten
module."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.targets import DEFAULT_TARGET, target
from hlo_opt.diag import BackendError, EvaluationError
from hlo_opt.ops.dynamic import takes_dynamic
from hlo_opt.passes.dynamic_padder import DynamicPadder
from hlo_opt.passes.for_kernels import expanded
from hlo_opt.runtime.host.library import has_compiler

TARGET = target(DEFAULT_TARGET)

ADD = "add {\n  a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  ROOT r = s32[] add(a, b)\n}\n\n"
TAKE = "take {\n  a = f32[] parameter(0)\n  ROOT b = f32[] parameter(1)\n}\n\n"
BRANCHES = """yes {
  t = (s32[<=4,3]) parameter(0)
  x = s32[<=4,3] get-tuple-element(t), index=0
  ROOT d = (s32[<=4,3]) tuple(x)
}

no {
  t = (s32[<=4,3]) parameter(0)
  x = s32[<=4,3] get-tuple-element(t), index=0
  n = s32[<=4,3] negate(x)
  ROOT d = (s32[<=4,3]) tuple(n)
}

"""
LESS = (
    "less {\n  a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  ROOT r = pred[] compare(a, b), direction=LT\n}\n\n"
)
LESS += (
    "less_of_four {\n  a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  c = s32[] parameter(2)\n  d = s32[] "
    "parameter(3)\n  ROOT r = pred[] compare(a, b), direction=LT\n}\n\n"
)
HEAD = """  p = s32[4,3]{1,0} parameter(0)
  n = s32[] parameter(1)
  x = s32[<=4,3]{1,0} set-dimension-size(p, n), dimensions={0}
  z = s32[] constant(5)
"""
BODIES = {
    "result": "  ROOT r = s32[<=4,3]{1,0} add(x, x)\n",
    "inner": "  y = s32[<=4,<=3]{1,0} set-dimension-size(x, n), dimensions={1}\n  ROOT r = s32[<=4,<=3]{1,0} "
    "negate(y)\n",
    "size": "  s = s32[<=4,3]{1,0} add(x, p)\n  ROOT r = s32[] get-dimension-size(s), dimensions={0}\n",
    "reduce": "  ROOT r = s32[3]{0} reduce(x, z), dimensions={0}, to_apply=add\n",
    "kept": "  ROOT r = s32[<=4]{0} reduce(x, z), dimensions={1}, to_apply=add\n",
    "transpose": "  t = s32[3,<=4]{1,0} transpose(x), dimensions={1,0}\n  ROOT r = s32[3,<=4]{1,0} abs(t)\n",
    "reshape": "  t = s32[<=12]{0} reshape(x)\n  ROOT r = s32[] reduce(t, z), dimensions={0}, to_apply=add\n",
    "dynamic-reshape": "  three = s32[] constant(3)\n  ROOT r = s32[3,<=4]{1,0} dynamic-reshape(x, three, n)\n",
    "pad": "  t = s32[<=9,3]{1,0} pad(x, z), padding=1_1_1x0_0\n  ROOT r = s32[3]{0} reduce(t, n), dimensions={0}, "
    "to_apply=add\n",
    "broadcast": "  b = s32[2,<=4,3]{2,1,0} broadcast(x), dimensions={1,2}\n  ROOT r = s32[2,3]{1,0} reduce(b, z), "
    "dimensions={1}, to_apply=add\n",
    "gather": "  i = s32[2]{0} constant({2, 0})\n  g = s32[<=4,2]{1,0} gather(x, i), offset_dims={0}, "
    "collapsed_slice_dims={1}, "
    "start_index_map={1}, index_vector_dim=1, slice_sizes={4,1}\n  ROOT r = s32[2]{0} reduce(g, z), dimensions={0}, "
    "to_apply=add\n",
    "concatenate": "  t = s32[3,<=4]{1,0} transpose(x), dimensions={1,0}\n  q = s32[3,4]{1,0} transpose(p), "
    "dimensions={1,0}\n  ROOT r = s32[3,<=12]{1,0} concatenate(t, q, t), dimensions={1}\n",
    "concatenate-beside": "  y = s32[<=4,3]{1,0} negate(x)\n  ROOT r = s32[<=4,6]{1,0} concatenate(x, y), "
    "dimensions={1}\n",
    "reverse": "  ROOT r = s32[<=4,3]{1,0} reverse(x), dimensions={0,1}\n",
    "sort": "  y = s32[<=4,3]{1,0} negate(x)\n  ROOT r = s32[<=4,3]{1,0} sort(y), dimensions={0}, to_apply=less\n",
    "sort-beside": "  y = s32[<=4,3]{1,0} negate(x)\n  ROOT r = s32[<=4,3]{1,0} sort(y), dimensions={1}, to_apply=less\n",
    "dot": "  ROOT r = s32[3,3]{1,0} dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n",
    "dot-beside": "  ROOT r = s32[<=4,<=4]{1,0} dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n",
    "dot-batch": "  ROOT r = s32[<=4,3,3]{2,1,0} dot(x, x), lhs_batch_dims={0}, rhs_batch_dims={0}, "
    "lhs_contracting_dims={}, rhs_contracting_dims={}\n",
    "windows": "  c = s32[] constant(0)\n  ROOT r = s32[<=4,3]{1,0} reduce-window(x, c), window={size=4x1 pad=3_0x0_0}, "
    "to_apply=add\n",
    "windows-apart": "  c = s32[] constant(0)\n  ROOT r = s32[<=3,3]{1,0} reduce-window(x, c), window={size=2x1 "
    "stride=2x1 pad=1_1x0_0}, to_apply=add\n",
    "branches": "  t = (s32[<=4,3]) tuple(x)\n  c = pred[] compare(n, z), direction=GT\n"
    "  k = (s32[<=4,3]) conditional(c, t, t), true_computation=yes, false_computation=no\n"
    "  y = s32[<=4,3] get-tuple-element(k), index=0\n  ROOT r = s32[3]{0} reduce(y, z), dimensions={0}, to_apply=add\n",
}
UNKNOWN = """  k = s32[<=4,3]{1,0} abs(x)
  ROOT r = (s32[<=4,3]{1,0}, s32[<=4,3]{1,0}) sort(x, k), dimensions={1}, to_apply=less_of_four
"""
SCATTER = """  o = f32[5]{0} parameter(0)
  i = s32[4,1]{1,0} parameter(1)
  u = f32[4]{0} parameter(2)
  n = s32[] parameter(3)
  j = s32[<=4,1]{1,0} set-dimension-size(i, n), dimensions={0}
  v = f32[<=4]{0} set-dimension-size(u, n), dimensions={0}
  ROOT r = f32[5]{0} scatter(o, j, v), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=take
"""


def module(body: str) -> hlo_opt.Module:
    return hlo_opt.parse(f"HloModule m\n\n{ADD}{LESS}{TAKE}{BRANCHES}ENTRY e {{\n{body}}}\n")


PARTS = {
    "slice": "  ROOT r = s32[2,3]{1,0} slice(x), slice={[0:2], [0:3]}\n",
    "slice-whole": "  ROOT r = s32[<=4,2]{1,0} slice(x), slice={[0:4], [1:3]}\n",
    "slice-open": "  ROOT r = s32[<=2,2]{1,0} slice(x), slice={[0:2], [1:3]}\n",
    "dynamic-slice": "  one = s32[] constant(1)\n  ROOT r = s32[2,2]{1,0} dynamic-slice(x, n, one), "
    "dynamic_slice_sizes={2,2}\n",
    "dynamic-update-slice": "  u = s32[2,1]{1,0} constant({{-7},{-8}})\n  one = s32[] constant(1)\n"
    "  ROOT r = s32[<=4,3]{1,0} dynamic-update-slice(x, u, n, one)\n",
}


@pytest.mark.parametrize(
    ("name", "body", "sizes"),
    [
        *((name, body, (0, 1, 3, 4)) for name, body in BODIES.items()),
        *((name, body, (2, 3, 4)) for name, body in PARTS.items()),
    ],
)
def test_the_rewritten_module_means_the_same(name: str, body: str, sizes: tuple[int, ...]) -> None:
    original = module(HEAD + body)
    rewritten = expanded(original, TARGET, (DynamicPadder(),))
    assert rewritten is not original
    assert not any(takes_dynamic(i) for c in rewritten.computations for i in c.instructions)
    hlo_opt.verify(rewritten)
    p = np.arange(1, 13, dtype=np.int32).reshape(4, 3)
    for size in sizes:
        given = [p, np.int32(size)]
        plainly = [hlo_opt.evaluate(m, given) for m in (rewritten, original)]
        for got, want in zip(*plainly, strict=True):
            np.testing.assert_array_equal(got, want, err_msg=f"size {size}")


def test_updates_that_are_not_in_use_go_nowhere() -> None:
    original = module(SCATTER)
    given = [np.zeros(5, np.float32), np.array([[1], [4], [0], [2]], np.int32), np.arange(1, 5, dtype=np.float32)]
    for size in (0, 2, 4):
        inputs = [*given, np.int32(size)]
        np.testing.assert_array_equal(
            hlo_opt.evaluate(expanded(original, TARGET, (DynamicPadder(),)), inputs)[0],
            hlo_opt.evaluate(original, inputs)[0],
        )


def test_other_modules_stay_as_they_are() -> None:
    plain = hlo_opt.parse("HloModule m\n\nENTRY e {\n  p = s32[4]{0} parameter(0)\n  ROOT r = s32[4]{0} negate(p)\n}\n")
    assert expanded(plain, TARGET, (DynamicPadder(),)) is plain
    unknown = module(HEAD + UNKNOWN)
    assert expanded(unknown, TARGET, (DynamicPadder(),)) is unknown


def test_operations_that_are_not_known_have_no_kernels(tmp_path: Path) -> None:
    """Kernels would take the bounds of their operands for their sizes."""
    original = module(HEAD + UNKNOWN)
    for build in (lambda: hlo_opt.compile(original, "host"), lambda: hlo_opt.emit(original, tmp_path / "kernels")):
        with pytest.raises(BackendError, match=r"HLO514.*r is ") as caught:
            build()
        assert caught.value.line == original.span(original.entry.root).line  # type: ignore[union-attr]
    assert not list(tmp_path.iterdir())
    executable = hlo_opt.compile(original, "auto")
    assert executable.backend == "numpy" and "r is open" in executable.why


def test_kernels_take_parameters_at_their_bound_only() -> None:
    original = hlo_opt.parse(
        "HloModule m\n\nENTRY e {\n  p = s32[<=4]{0} parameter(0)\n  ROOT r = s32[<=4]{0} reverse(p), dimensions={0}\n}\n"
    )
    executable = hlo_opt.compile(original, "host")
    assert executable(np.arange(4, dtype=np.int32))[0].tolist() == [3, 2, 1, 0]
    with pytest.raises(EvaluationError, match=r"HLO514 input 0 has the sizes \[2\]"):
        executable(np.arange(2, dtype=np.int32))
    more = hlo_opt.parse(
        "HloModule m\n\nENTRY e {\n  p = s32[<=4]{0} parameter(0)\n  n = s32[] parameter(1)\n  x = s32[<=4]{0} "
        "set-dimension-size(p, n), dimensions={0}\n  ROOT r = s32[<=4]{0} reverse(x), dimensions={0}\n}\n"
    )
    with pytest.raises(BackendError, match=r"HLO514.*x is "):
        hlo_opt.compile(more, "host")


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
def test_kernels_compute_it_all() -> None:
    executable = hlo_opt.compile(module(HEAD + BODIES["inner"]), "host")
    p = np.arange(1, 13, dtype=np.int32).reshape(4, 3)
    np.testing.assert_array_equal(executable(p, np.int32(2))[0].ravel(), [-1, -2, -4, -5, *[0] * 8])
    assert not executable.report()["fallbacks"]
