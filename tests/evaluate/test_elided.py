"""Constants whose values a dump leaves out: nothing invents them, everybody who runs the module asks for them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hlo_opt
from hlo_opt.evaluate.elided import all_with_values, elided_constants, with_values
from hlo_opt.runtime.check.compare import check
from hlo_opt.runtime.host.library import has_compiler

TEXT = """HloModule m

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}

twice {
  x = f32[4,16]{1,0} parameter(0)
  v = f32[4,16]{1,0} constant({...})
  ROOT y = f32[4,16]{1,0} multiply(x, v)
}

ENTRY e {
  p = f32[4,16]{1,0} parameter(0)
  w = f32[4,16]{0,1} constant({...})
  k = (bf16[3], s32[2]) constant(({...}, {1, 2}))
  h = bf16[3] get-tuple-element(k), index=0
  c = f32[4,16]{1,0} call(p), to_apply=twice
  d = f32[4,16]{1,0} call(c), to_apply=twice
  m = f32[4,16]{1,0} multiply(d, w)
  z = f32[] constant(0)
  s = f32[4]{0} reduce(m, z), dimensions={1}, to_apply=add
  ROOT t = (f32[4]{0}, bf16[3]) tuple(s, h)
}
"""
P = np.arange(64, dtype=np.float32).reshape(4, 16)
GIVEN = {
    "v": np.full((4, 16), 2, np.float32),
    "w": np.full((4, 16), 0.5, np.float32),
    "k.0": np.array([1, 2, 3], ml_dtypes.bfloat16),
}


def module() -> hlo_opt.Module:
    return hlo_opt.parse(TEXT, filename="m.hlo")


def test_who_runs_it_is_told_where_the_value_is_missing() -> None:
    calls: list[Any] = [
        lambda: hlo_opt.evaluate(module(), [P]),
        lambda: hlo_opt.evaluate_devices(module(), [[P]]),
        lambda: hlo_opt.compile(module(), "numpy")(P),
        lambda: check(module(), module(), [P], backend="numpy"),
    ]
    if has_compiler():
        executable = hlo_opt.compile(module(), "host")
        assert executable.report()["kernels"]
        calls += [lambda: executable(P), lambda: executable.run_devices([[P]])]
    for call in calls:
        with pytest.raises(hlo_opt.EvaluationError, match=r"constant v, f32\[4,16\], nor those of 2 others") as told:
            call()
        assert (told.value.code, told.value.line) == ("HLO407", 11) and "--elided" in (told.value.hint or "")


def test_values_that_are_given_are_taken_on_every_backend() -> None:
    wanted = [(P * 4 * 0.5).sum(axis=1), np.array([1, 2, 3], ml_dtypes.bfloat16)]
    for form in (module(), hlo_opt.fuse(module())[0]):
        for got, want in zip(hlo_opt.evaluate(form, [P], elided=GIVEN), wanted, strict=True):
            np.testing.assert_array_equal(got, want)
        for backend in ("numpy", *(["host"] if has_compiler() else [])):
            for got, want in zip(hlo_opt.compile(form, backend, elided=GIVEN)(P), wanted, strict=True):
                np.testing.assert_array_equal(got, want)
    zeros = hlo_opt.evaluate(module(), [P], elided="zeros")
    assert not zeros[0].any() and not zeros[1].any()


def test_random_values_go_by_the_name() -> None:
    fused = hlo_opt.fuse(module())[0]
    again = hlo_opt.parse(str(fused))
    drawn = [hlo_opt.evaluate(m, [P], elided="random") for m in (module(), fused, again)]
    for outputs in drawn[1:]:
        for got, want in zip(outputs, drawn[0], strict=True):
            np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=1e-5)
    renamed = hlo_opt.parse(TEXT.replace("w = ", "u = ").replace("(d, w)", "(d, u)"))
    assert not np.allclose(hlo_opt.evaluate(renamed, [P], elided="random")[0], drawn[0][0])
    assert drawn[0][1].any()


def test_two_texts_agree_by_name_and_only_then() -> None:
    other = hlo_opt.parse(TEXT.replace("multiply(x, v)", "multiply(v, x)"))
    assert check(module(), other, [P], backend="numpy", elided="random").ok
    swapped = hlo_opt.parse(
        TEXT.replace("{0,1} constant", "{1,0} constant").replace("multiply(d, w)", "multiply(w, w)")
    )
    assert not check(module(), swapped, [P], backend="numpy", elided="random").ok


def test_neither_cse_nor_the_proof_takes_two_for_one() -> None:
    text = (
        "HloModule m\n\nENTRY e {\n  a = f32[20] constant({...})\n  b = f32[20] constant({...})\n  ROOT s = f32[20] "
        "subtract(a, b)\n}\n"
    )
    two = hlo_opt.parse(text)
    fused = hlo_opt.fuse(two, simplify="always")[0]
    assert len(elided_constants(fused)) == 2
    assert hlo_opt.evaluate(fused, elided="random")[0].any()
    filled, same = all_with_values([two, two], "random")
    assert not elided_constants(filled) and elided_constants(two)
    literals = [[i.literal for i in m.entry.instructions if i.literal is not None] for m in (filled, same)]
    assert literals[0] == literals[1] and literals[0][0] != literals[0][1]
    assert with_values(filled, None) is filled and str(filled) == str(two)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"w": None}, "no array w for constant w"), ({"w": np.zeros((4, 15), np.float32)}, r"float32\[4, 15\]"),
        ({"w": np.zeros((4, 16), np.int32)}, "int32")],
)  # fmt: skip
def test_arrays_that_are_missing_or_do_not_fit(change: dict[str, Any], message: str) -> None:
    given = {key: value for key, value in {**GIVEN, **change}.items() if value is not None}
    with pytest.raises(hlo_opt.EvaluationError, match=message) as told:
        hlo_opt.evaluate(module(), [P], elided=given)
    assert told.value.code == "HLO407" and told.value.line == 17
