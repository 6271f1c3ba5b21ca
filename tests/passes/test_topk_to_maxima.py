"""The few largest elements of short rows as maxima: which these are, bit for bit, and what stays a sort."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.targets import DeviceTarget, InLanes
from tests.small_modules import H100


def module(kind: str, sizes: str, k: int, *, largest: bool = True, layout: str = "") -> str:
    kept = ",".join([*sizes.split(",")[:-1], str(k)])
    return (
        f"HloModule m\n\nENTRY e {{\n  x = {kind}[{sizes}]{layout} parameter(0)\n"
        f"  ROOT t = ({kind}[{kept}]{layout}, s32[{kept}]{layout}) topk(x), k={k}, largest={str(largest).lower()}\n}}\n"
    )


def rewritten(text: str, target: DeviceTarget = H100) -> hlo_opt.Module:
    made, _ = hlo_opt.fuse(hlo_opt.parse(text), passes="topk-to-maxima", target=target, simplify="never")
    hlo_opt.verify(made)
    return made


def opcodes(made: hlo_opt.Module) -> list[str]:
    return [i.opcode for i in made.entry.instructions]


def rows(kind: str, sizes: str) -> Any:
    """Elements of which many are equal, with zeros, infinities and NaN of both signs where the type has them."""
    shape = tuple(map(int, sizes.split(",")))
    x = np.random.default_rng(5).integers(-4, 5, shape)
    dtype = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}.get(kind) or np.dtype(f"int{kind[1:]}")
    made = x.astype(dtype)
    if not kind.startswith("s"):
        flat = made.reshape(-1, shape[-1])
        flat[0, :6] = [np.nan, np.inf, -np.inf, 0.0, -0.0, -np.nan]
        flat[1] = -np.inf
    else:
        made.reshape(-1, shape[-1])[1] = np.iinfo(dtype).min
    return made


@pytest.mark.parametrize("kind", ["f32", "bf16", "f16", "s32", "s16", "s8"])
@pytest.mark.parametrize("largest", [True, False])
def test_the_same_elements_at_the_same_positions(kind: str, largest: bool) -> None:
    text, x = module(kind, "4,2048,128", 3, largest=largest), rows(kind, "4,2048,128")
    made = rewritten(text)
    assert opcodes(made).count("reduce") == 3 and "topk" not in opcodes(made)
    want = hlo_opt.evaluate(hlo_opt.parse(text), [x])
    fused, _ = hlo_opt.fuse(hlo_opt.parse(text))
    for got in (hlo_opt.evaluate(made, [x]), hlo_opt.compile(fused, backend="host")(x)):
        for one, other in zip(got, want, strict=True):
            np.testing.assert_array_equal(one.view(np.uint8), other.view(np.uint8))


@pytest.mark.parametrize(
    ("text", "target"),
    [
        (module("f32", "32768,256", 16), H100),
        (module("f32", "32768,8", 2), H100),
        (module("f64", "32768,256", 2), H100),
        (module("f32", "256,32768", 2, layout="{0,1}"), H100),
        (module("f32", "32768,256", 2), InLanes.of(H100)),
    ],
    ids=["many", "a sort as quick", "no integers for it", "another layout", "a processor"],
)
def test_what_stays(text: str, target: DeviceTarget) -> None:
    assert opcodes(rewritten(text, target)) == ["parameter", "topk"]


def test_all_levels_are_one_kernel_with_what_is_sorted() -> None:
    text = (
        module("f32", "32768,256", 4)
        .replace("topk(x)", "topk(y)")
        .replace("ROOT", "y = f32[32768,256] tanh(x)\n  ROOT")
    )
    made, _ = hlo_opt.fuse(hlo_opt.parse(text))
    assert opcodes(made).count("fusion") == 2
    assert "tanh" not in opcodes(made)
