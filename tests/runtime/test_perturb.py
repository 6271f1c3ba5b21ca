import numpy as np

import hlo_opt
from hlo_opt.runtime.perturb import moved_runs


def moved(body: str, *inputs: np.ndarray, count: int = 3) -> list[list[np.ndarray]]:  # type: ignore[type-arg]
    add = "add {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT z = f32[] add(x, y)\n}\n\n"
    most = add.replace("add", "maximum")
    return moved_runs(hlo_opt.parse(f"HloModule m\n\n{add}{most}ENTRY e {{\n{body}\n}}\n"), inputs, count, 0)


def test_exact_operations_do_not_move() -> None:
    a = np.linspace(-3, 3, 64, dtype=np.float32)
    runs = moved("  a = f32[64]{0} parameter(0)\n  b = f32[64]{0} multiply(a, a)\n  ROOT c = f32[64]{0} add(b, a)", a)
    assert all(np.array_equal(run[0], a * a + a) for run in runs)


def test_functions_move_within_their_tolerance() -> None:
    a = np.linspace(-3, 3, 1000, dtype=np.float32)
    runs = moved("  a = f32[1000]{0} parameter(0)\n  ROOT b = f32[1000]{0} exponential(a)", a)
    exact = np.exp(a.astype(np.float64))
    for run in runs:
        off = np.abs(run[0] / exact - 1) / np.finfo(np.float32).eps
        assert 0.5 < off.max() < 5
    assert not np.array_equal(runs[0][0], runs[1][0])


def test_cancellation_shows() -> None:
    a = np.full(100, 1.0, np.float32)
    body = "  a = f32[100]{0} parameter(0)\n  b = f32[100]{0} exponential(a)\n  c = f32[100]{0} sine(a)\n  k = f32[] constant(1.87681)\n"
    body += "  s = f32[100]{0} broadcast(k), dimensions={}\n  d = f32[100]{0} subtract(b, c)\n  ROOT e = f32[100]{0} subtract(d, s)"
    (run,) = moved(body, a, count=1)
    assert np.ptp(run[0]) > 1e-3 * np.abs(np.median(run[0]))


def test_sums_move_with_the_magnitude_of_their_terms_and_maxima_do_not() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(50, 400)).astype(np.float32)
    body = "  a = f32[50,400]{1,0} parameter(0)\n  z = f32[] constant(0)\n"
    body += "  ROOT s = f32[50]{0} reduce(a, z), dimensions={1}, to_apply="
    exact = a.astype(np.float64).sum(axis=1)
    for run in moved(body + "add", a):
        error = np.abs(run[0] - exact)
        assert 0 < error.max() < 20 * np.finfo(np.float32).eps * np.abs(a).sum(axis=1).max()
    assert all(
        np.array_equal(run[0], a.max(axis=1))
        for run in moved(body.replace("constant(0)", "constant(-inf)") + "maximum", a)
    )


def test_runs_are_the_same_for_the_same_seed() -> None:
    a = np.linspace(0, 1, 10, dtype=np.float32)
    body = "  a = f32[10]{0} parameter(0)\n  ROOT b = f32[10]{0} tanh(a)"
    first, second = moved(body, a), moved(body, a)
    assert all(np.array_equal(x[0], y[0]) for x, y in zip(first, second, strict=True))
