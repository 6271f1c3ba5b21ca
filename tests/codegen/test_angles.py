"""Sine and cosine of one angle come from one call."""

import numpy as np

import hlo_opt
from hlo_opt.codegen.angles import paired
from hlo_opt.codegen.cuda import statement_lines
from hlo_opt.codegen.tree import Assign, Block, Let, Statement
from hlo_opt.ops.code import Name, call, code, of
from hlo_opt.runtime.schedule import build_schedule

X, Y = Name("x"), Name("y")
SINE = Let("float", Name("s"), call("sinf", X))
COSINE = Let("float", Name("c"), call("cosf", X))


def _lines(statements: list[Statement]) -> list[str]:
    return list(statement_lines(paired(statements), ""))


def test_a_pair_is_one_call() -> None:
    both = ["float s = 0.0f;", "float c = 0.0f;", "sincosf(x, &s, &c);"]
    between = Let("float", Y, code("{} * {}", Name("s"), X))
    assert _lines([SINE, between, COSINE]) == [*both, "const float y = s * x;"]
    assert _lines([COSINE, SINE]) == both
    assert _lines([Block(code("{}", Y), [SINE, COSINE])]) == ["if (y) {", *[f"  {line}" for line in both], "}"]
    wide = [Let("double", Name("s"), call("sin", X)), Let("double", Name("c"), call("cos", X))]
    assert _lines(wide)[-1] == "sincos(x, &s, &c);"


def test_other_angles_and_angles_that_change_stay_apart() -> None:
    changed = Assign(of(X), code("{} + 1.0f", X))
    other = Let("float", Name("c"), call("cosf", Y))
    for statements in ([SINE, changed, COSINE], [SINE, Block(code("{}", Y), [changed]), COSINE], [SINE, other]):
        assert _lines(statements) == list(statement_lines(statements, ""))


def test_kernels_compute_both_at_once() -> None:
    text = """HloModule turned

ENTRY main {
  a = f32[64]{0} parameter(0)
  s = f32[64]{0} sine(a)
  c = f32[64]{0} cosine(a)
  ROOT d = f32[64]{0} divide(s, c)
}
"""
    fused, _ = hlo_opt.fuse(hlo_opt.parse(text))
    (kernel,) = build_schedule(fused).kernels
    assert "sincosf(" in kernel.source and "sinf(" not in kernel.source
    angles = np.linspace(-9, 9, 64, dtype=np.float32)
    for form in ("plain", "lanes"):
        (ours,) = hlo_opt.compile(fused, "host", form=form)(angles)
        np.testing.assert_allclose(ours, np.tan(angles), rtol=1e-5)
