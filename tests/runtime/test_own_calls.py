"""The host's own selection of the first elements of rows, and its substitution in triangular systems."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import hlo_opt
from hlo_opt.runtime.host.library import has_compiler

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")


def topk(kind: str, rows: str, columns: int, k: int, largest: str) -> str:
    value, place = f"{kind}[{rows}{k}]", f"s32[{rows}{k}]"
    return (
        f"HloModule m\n\nENTRY e {{\n  p = {kind}[{rows}{columns}] parameter(0)\n"
        f"  ROOT t = ({value}, {place}) topk(p), k={k}, largest={largest}\n}}\n"
    )


def selected(text: str, value: np.ndarray) -> None:
    module = hlo_opt.parse(text)
    executable = hlo_opt.compile(module)
    got, want = executable(value), hlo_opt.evaluate(module, [value])
    routines = executable.report()["routines"]
    assert routines == {"topk": ["a selection of the host's own (host_selection.h)"]}
    np.testing.assert_array_equal(got[1], want[1])
    assert got[0].tobytes() == want[0].tobytes()


@pytest.mark.parametrize("largest", ["true", "false"])
@pytest.mark.parametrize("kind", ["f32", "bf16", "f16", "s32", "u32", "s16", "u16", "s8", "u8", "pred"])
def test_the_first_of_every_type(kind: str, largest: str) -> None:
    """Narrow integers are often equal: then the first places count."""
    generator = np.random.default_rng(3)
    dtype = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "pred": np.bool_}.get(kind)
    if dtype is None:
        dtype = np.dtype(f"{'int' if kind[0] == 's' else 'uint'}{kind[1:]}")
        ends = np.iinfo(dtype)
        value = generator.integers(ends.min, ends.max, (3, 5000), dtype, endpoint=True)
    else:
        value = generator.standard_normal((3, 5000)).astype(np.float32).round(1 + 2 * (kind == "f32")).astype(dtype)
    selected(topk(kind, "3,", 5000, 37, largest), value)


@pytest.mark.parametrize(("columns", "k"), [(5000, 1), (4500, 4500), (6000, 3000), (5000, 64)])
def test_few_and_all_of_a_row(columns: int, k: int) -> None:
    generator = np.random.default_rng(4)
    for value in (generator.standard_normal(columns), np.zeros(columns), np.arange(columns), -np.arange(columns)):
        selected(topk("f32", "", columns, k, "true"), value.astype(np.float32))


def test_numbers_that_are_none_and_zeros_of_both_signs_are_in_total_order() -> None:
    value = np.zeros(5000, np.float32)
    value[::7], value[5], value[1000], value[2000] = -0.0, np.nan, np.inf, -np.inf
    value.view(np.uint32)[3000] = 0xFFC00000  # a negative NaN, the least of all
    for largest in ("true", "false"):
        selected(topk("f32", "", 5000, 12, largest), value)


def solve(kind: str, size: int, sides: int, form: tuple[str, str, str, str], batch: str = "") -> str:
    left, lower, transpose, unit = form
    given = f"{kind}[{batch}{size},{sides}]" if left == "true" else f"{kind}[{batch}{sides},{size}]"
    return (
        f"HloModule m\n\nENTRY e {{\n  a = {kind}[{batch}{size},{size}] parameter(0)\n  b = {given} parameter(1)\n"
        f"  ROOT x = {given} triangular-solve(a, b), left_side={left}, lower={lower}, transpose_a={transpose}, "
        f"unit_diagonal={unit}\n}}\n"
    )


def solves(text: str, lower: str, unit: str, tolerance: float) -> None:
    module = hlo_opt.parse(text)
    generator = np.random.default_rng(5)
    a, b = (generator.standard_normal(p.shape.dimensions).astype(p.shape.type.dtype) for p in module.entry.parameters)
    a /= a.shape[-1]
    unread = np.triu(np.ones(a.shape, bool), 1) if lower == "true" else np.tril(np.ones(a.shape, bool), -1)
    a[unread] = np.nan
    at = np.arange(a.shape[-1])
    a[..., at, at] = np.nan if unit == "true" else 1 + np.abs(a[..., at, at])
    executable = hlo_opt.compile(module)
    (got,), (want,) = executable(a, b), hlo_opt.evaluate(module, [a, b])
    routines = executable.report()["routines"]
    assert routines == {"triangular-solve": ["a substitution of the host's own (host_substitution.h)"]}
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


FORMS = list(itertools.product(("true", "false"), ("true", "false"), ("NO_TRANSPOSE", "TRANSPOSE"), ("true", "false")))


@pytest.mark.parametrize("form", FORMS, ids="-".join)
def test_every_form_of_a_system(form: tuple[str, str, str, str]) -> None:
    solves(solve("f32", 37, 21, form, "3,"), form[1], form[3], 1e-5)


@pytest.mark.parametrize(("size", "sides"), [(1, 1), (5, 1), (6, 3), (64, 16), (130, 70)])
def test_few_right_sides_and_many(size: int, sides: int) -> None:
    solves(solve("f64", size, sides, FORMS[0], ""), "true", "true", 1e-12)
    solves(solve("f64", size, sides, FORMS[1], "2,3,"), "true", "false", 1e-12)


def test_what_lies_otherwise_or_is_wider_goes_to_numpy() -> None:
    columns_first = topk("f32", "4,", 5000, 5, "true").replace("f32[4,5000]", "f32[4,5000]{0,1}")
    module = hlo_opt.parse(columns_first)
    value = np.random.default_rng(6).standard_normal((4, 5000)).astype(np.float32)
    executable = hlo_opt.compile(module)
    for got, want in zip(executable(value), hlo_opt.evaluate(module, [value]), strict=True):
        np.testing.assert_array_equal(got, want)
    assert "host_selection" not in str(executable.report()["routines"])
    wide = hlo_opt.compile(hlo_opt.parse(topk("f64", "", 5000, 5, "true")))
    np.testing.assert_array_equal(wide(value[0].astype(np.float64))[1], np.argsort(-value[0], kind="stable")[:5])
    assert "host_selection" not in str(wide.report()["routines"])
