"""The host's own sorts of long lines."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest

import hlo_opt
from hlo_opt.runtime.host.library import has_compiler

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

OWN = {"sort": ["a sort of the host's own (host_sort.h)"]}


def comparator(kinds: Sequence[str], body: str) -> str:
    parameters = "".join(
        f"  {side}{k} = {kind}[] parameter({2 * k + number})\n"
        for k, kind in enumerate(kinds)
        for number, side in enumerate("xy")
    )
    return f"HloModule m\n\nc {{\n{parameters}{body}}}\n\n"


def compared(number: int = 0, direction: str = "LT", total: bool = False, root: str = "ROOT r") -> str:
    kind = ", type=TOTALORDER" if total else ""
    return f"  {root} = pred[] compare(x{number}, y{number}), direction={direction}{kind}\n"


def jax_compared(kind: str) -> str:
    """As JAX compares floats."""
    lines = [f"  none = {kind}[] constant(nan)", f"  zero = {kind}[] constant(0)"]
    for v in ("x0", "y0"):
        lines += [f"  ne.{v} = pred[] compare({v}, {v}), direction=NE"]
        lines += [f"  eq.{v} = pred[] compare({v}, zero), direction=EQ"]
        lines += [f"  in.{v} = {kind}[] select(eq.{v}, zero, {v})", f"  of.{v} = {kind}[] select(ne.{v}, none, in.{v})"]
    lines += ["  ROOT r = pred[] compare(of.x0, of.y0), direction=LT, type=TOTALORDER"]
    return "\n".join(lines) + "\n"


def entry(shapes: Sequence[str], dimension: int = 0) -> str:
    parameters = "".join(f"  p{k} = {shape} parameter({k})\n" for k, shape in enumerate(shapes))
    result = shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"
    operands = ", ".join(f"p{k}" for k in range(len(shapes)))
    return f"ENTRY e {{\n{parameters}  ROOT s = {result} sort({operands}), dimensions={{{dimension}}}, to_apply=c\n}}\n"


def sorts(text: str, values: Sequence[np.ndarray]) -> None:
    """The host's own sort and the reference agree bit by bit."""
    module = hlo_opt.parse(text)
    executable = hlo_opt.compile(module)
    got, want = executable(*values), hlo_opt.evaluate(module, list(values))
    assert executable.report()["routines"] == OWN
    pairs = zip(got, want, strict=True) if isinstance(want, tuple | list) else [(got, want)]
    for one, other in pairs:
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def integers(name: str, shape: tuple[int, ...]) -> np.ndarray:
    dtype = np.dtype(f"{'int' if name[0] == 's' else 'uint'}{name[1:]}")
    ends = np.iinfo(dtype)
    return np.random.default_rng(5).integers(ends.min, ends.max, shape, dtype, endpoint=True)


def floats(name: str, count: int) -> np.ndarray:
    """Some of them equal, infinite, none, and zeros of both signs."""
    value = np.random.default_rng(6).standard_normal(count).astype(np.float32).round(2)
    value[::31], value[1::37], value[2::101], value[3::97] = 0.0, -0.0, np.inf, -np.inf
    value[5::211], value.view(np.uint32)[6::211] = np.nan, 0xFFC10000
    return value.astype({"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[name])


@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize("kind", ["s32", "u32", "s16", "u16", "s8", "u8"])
def test_integers_of_every_type(kind: str, direction: str) -> None:
    text = comparator([kind], compared(direction=direction)) + entry([f"{kind}[40000]"])
    sorts(text, [integers(kind, (40000,))])


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_floats_in_total_order_and_as_jax_compares_them(kind: str) -> None:
    """NaN with different bits keep their order where they count as equal, and so do zeros."""
    for body in (compared(total=True), compared(direction="GT", total=True), jax_compared(kind)):
        sorts(comparator([kind], body) + entry([f"{kind}[40000]"]), [floats(kind, 40000)])


@pytest.mark.parametrize("dimension", [0, 1, 2])
def test_lines_of_every_dimension_with_an_operand_that_is_not_compared(dimension: int) -> None:
    sizes = [3, 3, 3]
    sizes[dimension] = 20000
    shape = f"[{','.join(map(str, sizes))}]"
    text = comparator(["s8", "c64"], compared()) + entry([f"s8{shape}", f"c64{shape}"], dimension)
    carried = np.arange(180000).reshape(sizes).astype(np.complex64)
    sorts(text, [integers("s8", tuple(sizes)), carried])


def test_wide_operands_and_an_even_order_of_two_keys() -> None:
    """The first key decides, the second orders what is equal in the first."""
    body = compared(1, "GT", root="a") + "  b = pred[] compare(x1, y1), direction=EQ\n" + compared(0, root="d")
    body += "  f = pred[] and(b, d)\n  ROOT r = pred[] or(a, f)\n"
    text = comparator(["s16", "u8", "c128"], body) + entry(["s16[40000]", "u8[40000]", "c128[40000]"])
    sorts(text, [integers("s16", (40000,)), integers("u8", (40000,)), np.arange(40000).astype(np.complex128)])


def test_places_beside_the_elements() -> None:
    text = (
        comparator(["f32", "s32"], jax_compared("f32"))
        + "f {\n  p = f32[40000] parameter(0)\n  i = s32[40000] iota(), iota_dimension=0\n"
        + "  ROOT s = (f32[40000], s32[40000]) sort(p, i), dimensions={0}, to_apply=c\n}\n\n"
        + "ENTRY e {\n  p = f32[40000] parameter(0)\n"
        + "  ROOT t = (f32[40000], s32[40000]) fusion(p), kind=kCustom, calls=f\n}\n"
    )
    sorts(text, [floats("f32", 40000)])


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("f32", compared()),  # with NaN that is no order
        ("s64", compared()),
        ("s32", "  a = s32[] negate(x0)\n  b = s32[] negate(y0)\n  ROOT r = pred[] compare(a, b), direction=LT\n"),
    ],
)
def test_other_orders_are_left_to_numpy(kind: str, body: str) -> None:
    module = hlo_opt.parse(comparator([kind], body) + entry([f"{kind}[40000]"]))
    executable = hlo_opt.compile(module)
    assert executable.report()["routines"] == {"sort": ["numpy.argsort"]}
