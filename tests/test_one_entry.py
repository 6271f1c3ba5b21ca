"""Adding an elementwise operation is one entry in one file: everything else follows from it."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

import hlo_opt
from hlo_opt.cli.group import run
from hlo_opt.ops import unregister
from hlo_opt.ops.elementwise.declare import elementwise

TEXT = """HloModule m

ENTRY e {
  p = TYPE[5,7]{1,0} parameter(0)
  q = TYPE[5,7]{1,0} parameter(1)
  s = TYPE[5,7]{1,0} add(p, q)
  t = TYPE[5,7]{1,0} softsign(s)
  ROOT r = TYPE[5,7]{1,0} multiply(t, p)
}
"""


@pytest.fixture
def softsign() -> Iterator[None]:
    elementwise(
        "softsign",
        1,
        lambda call, x: x / (1 + abs(x)),
        accepts=("float",),
        cuda={"float": "({0} / (({T})1 + fabs{F}({0})))"},
    )
    yield
    unregister("softsign")


def test_without_the_entry_the_opcode_is_refused() -> None:
    with pytest.raises(hlo_opt.VerifyError, match="softsign") as caught:
        hlo_opt.verify(hlo_opt.parse(TEXT.replace("TYPE", "f32")))
    assert caught.value.line == 7


@pytest.mark.usefixtures("softsign")
def test_shapes_are_inferred() -> None:
    with pytest.raises(hlo_opt.VerifyError) as caught:
        hlo_opt.verify(hlo_opt.parse(TEXT.replace("TYPE", "f32").replace("t = f32[5,7]", "t = f32[7,5]")))
    assert caught.value.line == 7
    with pytest.raises(hlo_opt.VerifyError) as caught:
        hlo_opt.verify(hlo_opt.parse(TEXT.replace("TYPE", "s32")))
    assert caught.value.line == 7


@pytest.mark.usefixtures("softsign")
@pytest.mark.parametrize("name", ["f32", "f64", "bf16"])
def test_it_evaluates_fuses_prints_and_runs_as_a_kernel(name: str) -> None:
    dtype = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16}[name]
    module = hlo_opt.parse(TEXT.replace("TYPE", name))
    hlo_opt.verify(module)
    p, q = (np.random.default_rng(n).normal(size=(5, 7)).astype(dtype) for n in range(2))
    (got,) = hlo_opt.evaluate(module, [p, q])
    s = (p + q).astype(np.float64)
    want = (s / (1 + abs(s))).astype(dtype) * p
    np.testing.assert_allclose(
        got.astype(np.float64), want.astype(np.float64), rtol=4 * float(ml_dtypes.finfo(dtype).eps)
    )

    fused, decisions = hlo_opt.fuse(module)
    assert [i.opcode for i in fused.entry.instructions if i.opcode != "parameter"] == ["fusion"]
    assert {d.producer for d in decisions if d.fused} >= {"s", "t"}
    assert "softsign(" in str(fused)
    (again,) = hlo_opt.evaluate(hlo_opt.parse(str(fused)), [p, q])
    assert again.tobytes() == got.tobytes()

    executable = hlo_opt.compile(fused, backend="host")
    (ran,) = executable(p, q)
    assert executable.report()["fallbacks"] == {} and executable.report()["launches"] == 1
    np.testing.assert_allclose(
        ran.astype(np.float64), got.astype(np.float64), rtol=2 * float(ml_dtypes.finfo(dtype).eps)
    )


@pytest.mark.usefixtures("softsign")
def test_it_is_in_the_coverage_table(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["ops", "softsign"]) == 0
    assert capfd.readouterr().out.splitlines()[1].split()[:3] == ["softsign", "yes", "yes"]
