"""A region's results are compared with XLA's before its kernels are taken."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

import hlo_opt.jax
from hlo_opt.diag import EvaluationError, HloOptError
from hlo_opt.diag.time_limit import TimeUpError, time_until
from hlo_opt.evaluate import evaluate
from hlo_opt.ir import Module
from hlo_opt.ir.values import Array
from hlo_opt.jax import agreement, decide, measure, regions
from hlo_opt.jax.agreement import disagreement, rounded_off
from hlo_opt.jax.calls import call_text
from hlo_opt.runtime.host import library
from hlo_opt.text import parse
from hlo_opt.text.aliases import ALIASES

X = np.random.default_rng(0).standard_normal(256).astype(np.float32)
SUM = """HloModule m

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY e {
  x = f32[256]{0} parameter(0)
  zero = f32[] constant(0)
  s = f32[] reduce(x, zero), dimensions={0}, to_apply=add
  m = f32[256]{0} broadcast(s), dimensions={}
  d = f32[256]{0} subtract(x, m)
  ROOT r = f32[256]{0} sine(d)
}
"""


def exact(module: Module) -> agreement.Run:
    return lambda inputs: evaluate(module, inputs)


def planted(change: Callable[[Array], object]) -> agreement.Run:
    """As the module, but for what is changed in its result."""

    def run(inputs: Sequence[Array]) -> list[Array]:
        (result,) = evaluate(parse(SUM), inputs)
        result = result.copy()
        change(result)
        return [result]

    return run


def test_results_that_are_equal_agree() -> None:
    module = parse(SUM)
    assert disagreement(module, exact(module), exact(module), [X]) is None


@pytest.mark.parametrize("where", [0, 255])
def test_one_wrong_element_is_seen_and_told(where: int) -> None:
    def change(result: Array) -> None:
        result[where] += 0.01

    found = disagreement(parse(SUM), planted(change), exact(parse(SUM)), [X])
    assert found is not None and found.code == "JAX212"
    assert f"result 0[{where}] is" in found.text and "1 of 256 elements" in found.text


def test_a_nan_is_seen() -> None:
    found = disagreement(parse(SUM), planted(lambda r: r.fill(np.nan)), exact(parse(SUM)), [X])
    assert found is not None and "256 of 256 elements" in found.text


def test_what_xlas_bounds_do_not_hold_says_nothing() -> None:
    """XLA's own results are others than those of the reference."""
    ours, theirs = planted(lambda r: r.fill(0.5)), planted(lambda r: r.fill(0.25))
    assert disagreement(parse(SUM), ours, theirs, [X]) is None


def test_as_far_as_inputs_that_are_a_rounding_off_is_no_fault() -> None:
    """A map that doubles every difference, in 40 rounds: whoever rounds otherwise ends elsewhere."""

    def rounds(inputs: Sequence[Array], first: float = 0.0) -> list[Array]:
        x = np.abs(inputs[0]) % 1 + np.float32(first)
        for _ in range(40):
            x = (x * np.float32(1.999)) % np.float32(1)
        return [x]

    module = parse("HloModule m\n\nENTRY e {\n  ROOT x = f32[256]{0} parameter(0)\n}\n")
    assert disagreement(module, lambda i: rounds(i, 1e-7), rounds, [X]) is None


def test_integers_must_be_equal_where_inputs_do_not_move() -> None:
    module = parse("HloModule m\n\nENTRY e {\n  x = s32[4]{0} parameter(0)\n  ROOT y = s32[4]{0} negate(x)\n}\n")
    x = np.arange(4, dtype=np.int32)
    found = disagreement(module, lambda i: [-i[0] - (i[0] == 2)], lambda i: [-i[0]], [x])
    assert found is not None and found.text.startswith("result 0[2] is -3 instead of -2")


def test_a_rounding_of_a_narrow_type_is_no_fault_and_an_eighth_is() -> None:
    module = parse("HloModule m\n\nENTRY e {\n  x = bf16[4]{0} parameter(0)\n  ROOT y = bf16[4]{0} negate(x)\n}\n")
    x = np.array([1, 1.5, 2, 3], ml_dtypes.bfloat16)
    for part, code in ((0.01, None), (0.125, "JAX212")):
        found = disagreement(module, lambda i, part=part: [-i[0] * x.dtype.type(1 + part)], exact(module), [x])
        assert (found and found.code) == code


def test_where_bounds_take_too_long_results_must_be_near(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "SECONDS", -1.0)
    for part, code in ((1e-4, None), (1e-2, "JAX213")):
        found = disagreement(parse(SUM), planted(lambda r, p=part: r.__iadd__(p)), exact(parse(SUM)), [X])
        assert (found and found.code) == code


def test_the_callers_time_is_the_callers() -> None:
    with time_until(time.monotonic()), pytest.raises(TimeUpError):
        disagreement(parse(SUM), planted(lambda r: r.fill(0)), exact(parse(SUM)), [X])


def test_inputs_are_moved_by_a_rounding() -> None:
    x, n, z = np.float32([1, -2, 0, np.inf]), np.arange(3), np.array([1 + 1j], np.complex64)
    a, b, c = rounded_off([x, n, z], np.random.default_rng(0))
    assert (np.abs(a[:2] / x[:2] - 1) > 0).all() and np.allclose(a[:3], x[:3], 3e-7) and a[3] == np.inf
    assert b is n and c.dtype == z.dtype and c != z
    np.testing.assert_allclose(c, z, 3e-7)


TWO = SUM.replace("ROOT r =", "r =").replace(
    "sine(d)\n", "sine(d)\n  ROOT t = (f32[256]{0}, f32[256]{0}) tuple(r, x)\n"
)


def test_each_result_is_judged_by_itself() -> None:
    """Of two, one moves as XLA's own do, and hides nothing of the other."""
    two = parse(TWO)

    def ours(inputs: Sequence[Array]) -> list[Array]:
        moved, same = (np.array(r) for r in exact(two)(rounded_off(inputs, np.random.default_rng(9))))
        same[3] += 0.5
        return [moved, same]

    found = disagreement(two, ours, exact(two), [X])
    assert found is not None and found.code == "JAX212" and found.text.startswith("result 1[")


def test_what_moves_as_far_as_xlas_own_needs_no_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise AssertionError

    def ours(inputs: Sequence[Array]) -> Sequence[Array]:
        return far(rounded_off(inputs, np.random.default_rng(9)))

    far = exact(parse(SUM.replace("subtract(x, m)", "power(m, x)").replace("sine(d)", "exponential(d)")))
    monkeypatch.setattr(agreement, "_outside_bounds", never)
    assert disagreement(parse(SUM), ours, far, [X]) is None
    with pytest.raises(AssertionError):
        disagreement(parse(SUM), planted(lambda r: r.fill(0)), far, [X])


def test_a_slow_program_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = 0

    def slow(inputs: Sequence[Array]) -> Sequence[Array]:
        nonlocal runs
        runs += 1
        time.sleep(0.05)
        return exact(parse(SUM))(inputs)

    monkeypatch.setattr(agreement, "SECONDS", 0.1)
    for part, code in ((1e-4, None), (1e-2, "JAX213")):
        found = disagreement(parse(SUM), planted(lambda r, p=part: r.__iadd__(p)), slow, [X])
        assert (found and found.code) == code
    assert runs == 2


@pytest.mark.parametrize("fault", [EvaluationError("none"), TimeUpError("late")])
def test_without_bounds_results_must_be_near(fault: HloOptError, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(*_: Any, **_how: Any) -> None:
        raise fault

    monkeypatch.setattr(agreement, "analyse_devices", without)
    for part, code in ((1e-4, None), (1e-2, "JAX213")):
        found = disagreement(parse(SUM), planted(lambda r, p=part: r.__iadd__(p)), exact(parse(SUM)), [X])
        assert (found and found.code) == code


@pytest.mark.parametrize("piece", [agreement.PIECE, 3])
@pytest.mark.parametrize(
    ("wanted", "off", "excess"),
    [
        ([1] * 9, {2: 40, 5: -17, 7: 15}, [24, 1]),  # 16 roundings of the element
        ([1] * 9 + [100], {2: 399, 3: 408}, [8]),  # four of the largest
        ([128] * 9 + [1], {9: 2040}, []),  # 16 of the middle one
        ([1] * 9 + [1024], {9: 16 << 10}, []),
        ([1] * 9 + [1024], {9: 17 << 10}, [1 << 10]),
        ([0, 0, 0], {1: 1}, [1]),
        ([np.inf, np.nan, 1], {}, []),
        ([np.inf, 1, 1], {0: -np.inf, 1: np.nan}, [np.inf, np.inf]),
    ],
)
def test_what_is_more_than_a_few_roundings(
    wanted: list[float], off: dict[int, float], excess: list[float], piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`off`: by how many roundings of one elements are off."""
    monkeypatch.setattr(agreement, "PIECE", piece)
    eps = float(np.finfo(np.float32).eps)
    right = np.float32(wanted)
    given = right.copy()
    for k, roundings in off.items():
        given[k] = right[k] + roundings * eps if np.isfinite(roundings) else roundings
    np.testing.assert_allclose(agreement._excess(given, right) / eps, excess, rtol=1e-6)


def test_of_narrow_types_fewer_roundings_are_few() -> None:
    right = np.ones(5, ml_dtypes.bfloat16)
    for roundings, excess in ((2, []), (3, [1])):
        given = right.copy()
        given[1] += ml_dtypes.bfloat16(roundings * 2.0**-7)
        np.testing.assert_allclose(agreement._excess(given, right) * 2**7, excess)
    wide = np.ones(5, np.float32)
    assert not agreement._excess(wide + np.float32(10 * 2.0**-23), wide).size


def test_moves_cover_eight_times_as_far_and_eight_times_as_many() -> None:
    def covered(own: list[float], *moves: list[float]) -> bool:
        return agreement._covered(np.array(own), [np.array(m) for m in moves])

    assert covered([8.0] * 8, [1.0]) and covered([16.0] * 8 + [8.0] * 8, [2.0, 1.0])
    assert not covered([8.0] * 9, [1.0]) and not covered([8.5], [1.0]) and not covered([1.0], [])
    assert covered([8.0], [0.5], [1.0]) and covered([8.0], [1.0], [0.5]) and covered([], [])


# ---- in the hook


def with_cosine(is_planted: Callable[[Module], bool]) -> Callable[[Module], Module]:
    """A fault of a compiler: it takes sines for cosines."""

    def changed(module: Module) -> Module:
        text = str(module)
        return regions.simple_form(parse(text.replace(" sine(", " cosine(")) if is_planted(module) else module)

    return changed


@pytest.mark.usefixtures("winning")
def test_a_wrong_kernel_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "simple_form", with_cosine(lambda _: True))
    x = X.reshape(16, 16)
    with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
        found = jax.jit(lambda x: jnp.sin(x) * 2 + 1)(x)
    np.testing.assert_allclose(found, np.sin(x) * 2 + 1, 1e-5, 1e-5)
    assert not report.replaced and report.count("JAX212") >= 1, str(report)
    assert "kernels of ours are wrong, please report it: result 0[0, " in str(report)
    assert report.summary.endswith("1 left: kernels of ours give other results")


@pytest.mark.usefixtures("winning", "empty_cache")
def test_a_kernel_that_crashes_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    unit = library.lanes_unit
    monkeypatch.setattr(
        library,
        "lanes_unit",
        lambda kernels: unit(kernels).replace("long long last) {", "long long last) { *(volatile int*)8 = 1;"),
    )
    with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
        found = jax.jit(lambda x: jnp.sin(x) * 3 + 1)(X)
    np.testing.assert_allclose(found, np.sin(X) * 3 + 1, 1e-5, 1e-5)
    assert not report.replaced and report.count("JAX214") >= 1, str(report)
    assert "please report it: a kernel crashed: Segmentation fault (SIGSEGV)" in str(report)


@pytest.mark.usefixtures("winning", "empty_cache")
@pytest.mark.parametrize("is_wrong", [False, True])
def test_kernels_that_write_the_state_in_place_are_compared(is_wrong: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that do not are right here. XLA sorts in the loop, which therefore stays one."""

    def function(x: Any) -> Any:
        def step(state: Any, _: None) -> Any:
            a, b = state
            part = 0.9 - 0.1 * is_wrong  # so that no kernel of the other case is found
            return (jnp.sin(a) * part + jnp.sort(a[:8])[-1], jnp.sin(b) * part + a), None

        return lax.scan(step, (x, x * 0.3), None, length=7)[0]

    placed: list[Module] = []

    def planted(module: Module) -> bool:
        placed.extend([module] if ALIASES in module.attributes else [])
        return is_wrong and ALIASES in module.attributes

    x = np.tile(X, 32)
    expected = jax.jit(lambda x: function(x))(x)
    monkeypatch.setattr(decide, "simple_form", with_cosine(planted))
    with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
        found = jax.jit(lambda x: function(x))(x)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, 1e-4, 1e-4)
    assert placed and bool(report.count("JAX212")) is is_wrong and report.count("JAX213") == 0, str(report)


@pytest.mark.usefixtures("winning")
def test_a_whole_module_is_compared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each region is right, and calls are in the wrong places."""

    def function(x: Any, w: Any) -> Any:
        return jnp.sin(jnp.tanh(x) @ w) + 1

    x, w = X.reshape(16, 16), np.eye(16, dtype=np.float32)
    other = hlo_opt.jax.lower(jax.jit(lambda x, w: jnp.cos(jnp.tanh(x) @ w) + 1), x, w)
    message = measure.runnable(other, is_whole=True).message
    monkeypatch.setattr(decide, "changed", lambda *_: message)
    with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
        found = jax.jit(function)(x, w)
    np.testing.assert_allclose(found, np.sin(np.tanh(x) @ w) + 1, 1e-5, 1e-5)
    assert report.count("JAX212") == 1 and not report.replaced, str(report)


def test_a_call_in_place_has_the_result_in_its_operands_memory() -> None:
    module = parse("HloModule m\n\nENTRY e {\n  x = f32[64]{0} parameter(0)\n  ROOT y = f32[64]{0} negate(x)\n}\n")
    shapes = [module.entry.root.shape]
    text = call_text(shapes, shapes, "key", in_place=[(0, 0)])
    assert "output_to_operand_aliasing={{}: (0, {})}" in text and "custom-call(h0)" in text and "copy(p0)" in text
    text = call_text(shapes * 2, shapes * 2, "key", in_place=[(1, 0)])
    assert "output_to_operand_aliasing={{0}: (1, {})}" in text and "custom-call(p0, h1)" in text
