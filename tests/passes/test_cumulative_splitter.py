"""Long cumulative windows over few lines across memory: which are split, into what, and that the values stay."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.fusion.summary import module_summary
from hlo_opt.passes.cumulative_splitter import part_length
from tests.codegen.test_cumulative import cumulative
from tests.ops.test_symmetry import LOG_OF_SUM
from tests.small_modules import H100

PASSES = "cumulative-splitter,dce"
LONG = 1 << 16
"""A line that three kernels fold sooner than one."""


def split(text: str) -> hlo_opt.Module:
    made, _ = hlo_opt.fuse(hlo_opt.parse(text), passes=PASSES)
    hlo_opt.verify(made)
    return made


def opcodes(module: hlo_opt.Module) -> list[str]:
    return [i.opcode for i in module.entry.instructions]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis", "kind", "opcode"),
    [
        ((LONG, 2), 0, "s32", "add"),
        ((LONG + 27, 3), 0, "s32", "add"),  # a prime number
        ((3 * LONG, 3), 0, "u8", "multiply"),
        ((20000, 3), 0, "s16", "xor"),
        ((2, LONG + 1, 3), 1, "s32", "add"),
        ((LONG + 27, 2), 0, "pred", "or"),
    ],
)
def test_the_values_stay(shape: tuple[int, ...], axis: int, kind: str, opcode: str, reverse: bool) -> None:
    init = {"pred": "false"}.get(kind, {"add": "0", "multiply": "1", "xor": "0"}.get(opcode, ""))
    module = hlo_opt.parse(cumulative(shape, axis, kind, opcode, init, reverse=reverse))
    made = split(str(module))
    assert opcodes(made).count("reduce-window") == 2 and opcodes(made).count("reduce") == 1
    dtype = module.entry.root.shape.type.dtype
    given = (np.random.default_rng(1).integers(0, 7, shape) * (kind != "pred")).astype(dtype)
    given.reshape(-1)[shape[0] // 2] = 1
    (want,), (got,) = hlo_opt.evaluate(module, [given]), hlo_opt.evaluate(made, [given])
    np.testing.assert_array_equal(got, want)
    fused, _ = hlo_opt.fuse(module)
    np.testing.assert_array_equal(hlo_opt.compile(fused, backend="host")(given)[0], want)


def with_reducer(body: str, kind: str = "f32", init: str = "0", size: int = LONG, reverse: bool = False) -> str:
    text = cumulative((size, 2), 0, kind, "add", init, reverse=reverse)
    return text.replace(f"ROOT z = {kind}[] add(x, y)", body.replace("f32", kind))


@pytest.mark.parametrize(("kind", "size", "reverse"), [("f32", LONG, False), ("bf16", LONG + 27, True)])
def test_logarithms_of_sums_are_split(kind: str, size: int, reverse: bool) -> None:
    module = hlo_opt.parse(with_reducer(LOG_OF_SUM, kind, "-inf", size, reverse))
    made = split(str(module))
    assert opcodes(made).count("reduce-window") == 2 and opcodes(made).count("reduce") == 1
    dtype = module.entry.root.shape.type.dtype
    given = np.random.default_rng(1).standard_normal((size, 2)).astype(dtype)
    wide = given.astype(np.float64)
    want = np.logaddexp.accumulate(wide[::-1])[::-1] if reverse else np.logaddexp.accumulate(wide)
    fused, _ = hlo_opt.fuse(module)
    for (got,) in (hlo_opt.evaluate(made, [given]), hlo_opt.compile(fused, backend="host")(given)):
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=1e-2 if kind == "bf16" else 1e-5)


def test_narrow_sums_are_rounded_once() -> None:
    module = hlo_opt.parse(cumulative((LONG, 2), 0, "bf16"))
    ones = np.ones((LONG, 2), module.entry.root.shape.type.dtype)
    made = split(str(module))
    assert opcodes(made).count("reduce-window") == 2
    (got,) = hlo_opt.evaluate(made, [ones])
    np.testing.assert_array_equal(got[:, 1], np.arange(1, LONG + 1).astype(np.float32).astype(ones.dtype))


@pytest.mark.parametrize(
    "text",
    [
        cumulative((LONG,), 0),  # one kernel looks back
        cumulative((LONG // 64, 2), 0),
        cumulative((4096, 1000), 0),  # the bytes take longer
        cumulative((LONG, 132 * 32), 0),  # lines enough
        cumulative((LONG, 2), 0, init="1"),  # would be added in each part
        with_reducer("e = pred[] compare(y, x), direction=EQ\n  ROOT z = f32[] select(e, x, y)"),  # keeps the order
        cumulative((LONG, 2), 0).replace("p = f32[65536,2]{1,0}",
            "q = f32[65536,2]{1,0} parameter(0)\n  p = f32[65536,2]{1,0}").replace("} parameter(0)\n  i",
            "} negate(q)\n  i").replace("i = f32[] constant(0)", "i = f32[] parameter(1)"),
    ],
)  # fmt: skip
def test_what_is_not_split(text: str) -> None:
    assert opcodes(split(text)).count("reduce-window") == 1


@pytest.mark.parametrize(("length", "lines"), [(2048, 64), (8192, 64), (8192, 512), (1 << 16, 2)])
def test_what_is_split_is_quicker(length: int, lines: int) -> None:
    whole = hlo_opt.parse(cumulative((length, lines), 0))
    alone, _ = hlo_opt.fuse(whole, passes="priority-fusion")
    parts, _ = hlo_opt.fuse(whole)
    us = [module_summary(module, H100).est_us for module in (alone, parts)]
    assert us[1] < 0.75 * us[0], us


def test_parts_are_near_the_square_root() -> None:
    assert [part_length(n) for n in (1 << 24, 1 << 15, 40000, 3 * 7 * 997)] == [4096, 128, 200, 128]
    assert 20000 % part_length(20000) == 0 and part_length(20000) % 4 == 0


def test_it_counts_as_a_step() -> None:
    module = hlo_opt.parse(cumulative((LONG, 2), 0))
    made, _ = hlo_opt.fuse(module, passes=PASSES, stop_after_step=0)
    assert "reduce" not in opcodes(made)
