"""Short elementwise loops: which are unrolled, into what, and that the values stay."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import hlo_opt
from hlo_opt.passes.while_loop_unroller import MOST_OPERATIONS, MOST_ROUNDS

PASSES = "while-loop-unroller,dce"

BODY = """
  s = (s32[], f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8]{0} get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
"""
MODULE = """HloModule m

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

body {%s
  ROOT t = (s32[], f32[8]{0}) tuple(j, y)
}

condition {
  s = (s32[], f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(%d)
  ROOT c = pred[] compare(i, limit), direction=LT
}

ENTRY e {
  p = f32[8]{0} parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[8]{0}) tuple(zero, p)
  ROOT w = (s32[], f32[8]{0}) while(t), condition=condition, body=body
}
"""
BY_ELEMENT = """
  k = f32[] convert(i)
  ks = f32[8]{0} broadcast(k), dimensions={}
  z = f32[8]{0} multiply(x, x)
  y = f32[8]{0} add(z, ks)
"""


def made(text: str, rounds: int) -> tuple[hlo_opt.Module, hlo_opt.Module]:
    module = hlo_opt.parse(MODULE % (BODY + text, rounds))
    unrolled, _ = hlo_opt.fuse(module, passes=PASSES)
    hlo_opt.verify(unrolled)
    return module, unrolled


def opcodes(module: hlo_opt.Module) -> list[str]:
    return [i.opcode for i in module.entry.instructions]


@pytest.mark.parametrize("rounds", [1, 3, 7])
def test_rounds_stand_one_after_another(rounds: int) -> None:
    module, unrolled = made(BY_ELEMENT, rounds)
    assert "while" not in opcodes(unrolled) and opcodes(unrolled).count("multiply") == rounds
    x = np.linspace(-0.5, 0.5, 8, dtype=np.float32)
    for want, got in zip(hlo_opt.evaluate(module, [x]), hlo_opt.evaluate(unrolled, [x]), strict=True):
        np.testing.assert_array_equal(got, want)


def test_one_kernel_does_all_rounds() -> None:
    module, _ = made(BY_ELEMENT, 5)
    fused, _ = hlo_opt.fuse(module)
    assert opcodes(fused).count("fusion") == 1 and "while" not in opcodes(fused)
    x = np.linspace(-0.5, 0.5, 8, dtype=np.float32)
    for want, got in zip(hlo_opt.evaluate(module, [x]), hlo_opt.compile(fused, backend="host")(x), strict=True):
        np.testing.assert_array_equal(got, want)


def test_counters_are_constants() -> None:
    _, unrolled = made(BY_ELEMENT, 4)
    assert "convert" not in opcodes(unrolled)
    (last,) = [i for i in unrolled.entry.root.operands if i.opcode == "constant"]
    assert int(last.literal.value) == 4


@pytest.mark.parametrize(
    ("text", "rounds"),
    [
        ("  y = f32[8]{0} reverse(x), dimensions={0}\n", 3),  # an element of another place
        ("  z = f32[] constant(0)\n  r = f32[] reduce(x, z), dimensions={0}, to_apply=sum\n  y = f32[8]{0} "
         "broadcast(r), dimensions={}\n", 3),
        ("  y = f32[8]{0} map(x, x), dimensions={0}, to_apply=sum\n", 3),
        ("  y = f32[8]{0} negate(x)\n", MOST_ROUNDS + 1),
        ("  y = f32[8]{0} negate(x)\n", 0),
        ("".join(f"  y{k} = f32[8]{{0}} add(x, {'x' if k == 0 else f'y{k - 1}'})\n" for k in range(100)) + "  y = f32[8]{0} negate(y99)\n", MOST_OPERATIONS // 100 + 1),
    ],
    ids=["moved", "folded", "mapped", "long", "none", "large"],
)  # fmt: skip
def test_other_loops_stay(text: str, rounds: int) -> None:
    _, unrolled = made(text, rounds)
    assert "while" in opcodes(unrolled)


@pytest.mark.parametrize(("type_name", "stays"), [("f32", False), ("f16", True), ("bf16", True), ("f8e4m3fn", True)])
def test_rounded_operations_count_more(type_name: str, stays: bool) -> None:
    """Each takes several instructions to round: a C++ compiler took half a minute for 550 of f16."""
    text = "  a = f32[8]{0} multiply(x, x)\n  b = f32[8]{0} add(a, x)\n  y = f32[8]{0} subtract(b, a)\n"
    module = (MODULE % (BODY + text, 50)).replace("f32[8]", f"{type_name}[8]")
    unrolled, _ = hlo_opt.fuse(hlo_opt.parse(module), passes=PASSES)
    assert ("while" in opcodes(unrolled)) == stays


def test_a_stated_count_is_not_enough() -> None:
    text = (MODULE % (BODY + BY_ELEMENT, 3)).replace(
        "compare(i, limit), direction=LT",
        "compare(i, i), direction=NE",
    )
    text = text.replace("body=body\n", 'body=body, backend_config={"known_trip_count":{"n":"3"}}\n')
    unrolled, _ = hlo_opt.fuse(hlo_opt.parse(text), passes=PASSES)
    assert "while" in opcodes(unrolled)


def test_steps_are_counted() -> None:
    module, _ = made(BY_ELEMENT, 3)
    unrolled, _ = hlo_opt.fuse(module, passes=PASSES, simplify="never", stop_after_step=0)
    assert "while" in opcodes(unrolled)


def test_a_module_without_loops_needs_no_interpreter():
    script = (
        "import sys, hlo_opt;"
        "text = 'HloModule m\\n\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT n = f32[8] negate(x)\\n}\\n';"
        "hlo_opt.fuse(hlo_opt.parse(text), simplify='never');"
        "assert 'hlo_opt.evaluate.interpreter' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
