"""When the hook acts, what it remembers, and what becomes of faults."""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.xla import PipelineStage
from jaxlib import _hlo, _jax
from snippets import HEAD, ROOT
from snippets import run as run_snippet

import hlo_opt
import hlo_opt.jax
from hlo_opt.codegen.lanes import launcher_name
from hlo_opt.diag import BackendError, UsageError
from hlo_opt.diag.time_limit import TimeUpError, time_until
from hlo_opt.jax import decide, handler, hook, measure, records
from hlo_opt.jax.decide import ESTIMATED_WIN
from hlo_opt.jax.options import HookOptions
from hlo_opt.jax.records import Verdict
from hlo_opt.jax.regions import simple_form
from hlo_opt.passes import run

X = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)


def wave(x: Any) -> Any:
    return jnp.sin(x) * 2 + jnp.cos(x * 3)


def rounds(x: Any) -> Any:
    return lax.scan(lambda c, _: (jnp.sin(c) * 1.01 + 0.1, None), x, None, length=50)[0]


WAVE = np.sin(X) * 2 + np.cos(X * 3)


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), 1e-5, 1e-5)


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of ours win, as it is said."""
    for name in ("times", "compared"):
        monkeypatch.setattr(decide, name, lambda *_, **_kind: (1.0, 100.0))


def test_a_gpu_is_asked_for_by_names_that_jax_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """After XLA fused and scheduled, for before nothing is fused for a GPU."""
    calls: list[tuple[str, PipelineStage, tuple[str, ...]]] = []

    def recorder(verb: str) -> Callable[..., None]:
        return lambda *_, stage, platforms, **_name: calls.append((verb, stage, platforms))

    monkeypatch.setattr(hook, "_has_cuda", lambda: True)
    monkeypatch.setattr(hook, "_cuda_handler", lambda: None)
    monkeypatch.setattr(hook, "register_hlo_module_transformation", recorder("register"))
    monkeypatch.setattr(hook, "clear_hlo_module_transformation", recorder("clear"))
    names = ("cuda",) if hasattr(_jax, "get_pjrt_plugin") else ("gpu", "cuda")
    with hlo_opt.jax.fusing():
        assert [c for c in calls if "cpu" not in c[2]] == [("register", PipelineStage.POST_SCHEDULER, names)]
    assert calls[1:] and {c[1:] for c in calls if c[0] == "clear"} == {c[1:] for c in calls if c[0] == "register"}


def test_what_xla_compiles_to_choose_a_kernel_is_left_alone() -> None:
    lines = "\n".join(f"  v{n} = f32[64]{{0}} sine(v{n - 1})" for n in range(1, 20))
    body = f"  v0 = f32[64]{{0}} parameter(0)\n{lines}\n  ROOT r = f32[64]{{0}} negate(v19)"
    text = f"HloModule m\n\nENTRY entry_computation {{\n{body}\n}}\n"
    report = hlo_opt.jax.Report()
    own = hook.Hook(HookOptions(), True, report)
    assert own(_hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()) is None
    assert not report.lines


def test_what_is_timed_is_what_runs(empty_cache: Callable[[], None]) -> None:
    """A long loop of little arithmetic for each of few elements: XLA begins each round anew."""
    x = X[:16]
    with hlo_opt.jax.fusing(min_saving_us=1, wait=True) as report:
        found = jax.jit(lambda x: lax.fori_loop(0, 2000, lambda _, c: c * 0.5 + jnp.sin(c), x))(x)
    timed = [line for line in report.lines if line.code in ("JAX001", "JAX202")]
    assert len(timed) == 1 and "us" in timed[0].message, str(report)
    close(found, jax.jit(lambda x: lax.fori_loop(0, 2000, lambda _, c: c * 0.5 + jnp.sin(c), x))(x))


@pytest.mark.parametrize(
    ("ours", "xla", "least", "takes"),
    [
        (90, 100, 1, True),
        (91, 100, 1, False),
        (90, 100, 11, False),
        (100, 100, 0, True),
        (102, 100, 0, True),
        (103, 100, 0, False),
    ],
)
def test_what_wins(ours: float, xla: float, least: float, takes: bool) -> None:
    assert HookOptions(min_saving_us=least).takes(Verdict(ours, xla)) is takes


@pytest.mark.parametrize(("ours", "takes"), [(98, True), (99, False)])
def test_what_wins_by_estimates(ours: float, takes: bool) -> None:
    """Both are quick, and sure to be the same next time."""
    assert HookOptions().takes(Verdict(ours, 100), win=ESTIMATED_WIN) is takes


@pytest.mark.parametrize(("rounds", "takes"), [(1, False), (100, True)])
def test_what_a_round_saves_counts_in_all_rounds(rounds: int, takes: bool) -> None:
    assert HookOptions(min_saving_us=100).takes(Verdict(8, 10), rounds) is takes


def test_regions_inside_a_loop_are_weighed_with_its_rounds(
    empty_cache: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that loses as a whole, with a region inside that wins in each round."""
    won = iter([(100.0, 90.0), (100.0, 90.0), (10.0, 12.0)])
    monkeypatch.setattr(decide, "times", lambda *_, **_kind: next(won))
    monkeypatch.setattr(decide, "bound", lambda *_, **_kind: (0.0, 100.0))
    monkeypatch.setattr(decide, "compared", lambda *_: (80.0, 300.0))

    def function(x: Any) -> Any:
        return rounds(x)

    expected = jax.jit(function)(X)
    for least, count in ((101, 0), (99, 1)):
        with hlo_opt.jax.fusing(min_saving_us=least, wait=True) as report:
            found = jax.jit(function)(X)
        assert len(report.replaced) == count, str(report)
        close(found, expected)
    (line,) = report.replaced
    assert "500.0 us instead of 600.0 us" in line.message and line.written == 50 * X.nbytes


def test_what_is_known_is_not_found_out_again(empty_cache: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    timed = []
    monkeypatch.setattr(decide, "times", lambda *_, **_kind: timed.append(1) or (1.0, 100.0))
    for codes in (("JAX402",), ("JAX401",)):
        empty_cache()
        with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
            close(jax.jit(wave)(X), WAVE)
        assert [line.code for line in report.lines] == [*codes, "JAX001"]
    assert timed == [1]


def test_only_what_another_shape_touches_is_compiled_again(
    empty_cache: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)

    def function(x: Any, y: Any) -> Any:
        return rounds(x), wave(y)

    with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
        jax.jit(function)(X, X)
        first = report.count("JAX402")
        jax.jit(function)(X, X[:32])
    assert (first, report.count("JAX402"), report.count("JAX401")) == (2, 3, 1), str(report)


def test_what_loses_together_is_left(empty_cache: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Three regions that win by themselves, of which the best wins in the whole module."""
    won = iter([(10.0, 100.0), (50.0, 100.0), (20.0, 100.0)])
    together = iter([(120.0, 100.0), (90.0, 100.0)])
    monkeypatch.setattr(decide, "times", lambda *_, **_kind: next(won))
    monkeypatch.setattr(decide, "compared", lambda *_: next(together))

    def function(x: Any, y: Any, z: Any) -> Any:
        return rounds(x), wave(y), rounds(z)

    with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
        text = jax.jit(function).lower(X, X[:32], X[:16]).compile().as_text()
    assert report.count("JAX208") == 1 and len(report.replaced) == 1 and text.count("hlo_opt.run") == 1, str(report)


def test_a_whole_module_is_timed_as_its_regions_are(empty_cache: Callable[[], None]) -> None:
    def function(x: Any, w: Any) -> Any:
        return wave(wave(x) @ w) + 1

    w = np.eye(128, dtype=np.float32)
    expected = jax.jit(function)(X, w)
    with hlo_opt.jax.fusing(min_saving_us=-1e9, wait=True) as report:
        close(jax.jit(function)(X, w), expected)
    assert report.count("JAX303") == 0, str(report)


def test_nothing_is_timed_without_the_hook(empty_cache: Callable[[], None]) -> None:
    """It hands XLA what is timed: else both forms would be the program that does nothing."""
    module = hlo_opt.jax.lower(jax.jit(rounds), X)
    decision = decide.Decision("m", HookOptions(), hlo_opt.jax.Report())
    with pytest.raises(BackendError) as caught:
        decision.run(module)
    assert caught.value.code == "HLO529" and not decision.chosen


def test_a_loser_is_left_and_remembered(empty_cache: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "times", lambda *_, **_kind: (100.0, 100.0))
    monkeypatch.setattr(decide, "bound", lambda *_, **_kind: (0.0, 100.0))
    with hlo_opt.jax.fusing(wait=True) as report:
        text = jax.jit(rounds).lower(X).compile().as_text()
    assert report.count("JAX202") >= 2 and "hlo_opt.run" not in text, "the loop, and what is in it"
    monkeypatch.setattr(decide, "build", lambda *_: pytest.fail("built again"))
    records.forget()
    with hlo_opt.jax.fusing(wait=True) as report:
        jax.jit(rounds).lower(X).compile()
    assert report.count("JAX303") == 0


@pytest.mark.usefixtures("uncompared")
def test_what_takes_no_longer_than_no_work_is_not_built(
    empty_cache: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless what little there is to save adds up over the rounds of a loop: the verdict holds for all."""
    quick(monkeypatch)
    monkeypatch.setattr(decide, "bound", lambda *_, **_kind: (10.0, 12.0))
    report = hlo_opt.jax.Report()
    module = hlo_opt.jax.lower(jax.jit(wave), X)
    for _ in range(2):
        decide.Decision("m", HookOptions(min_saving_us=2.5), report).run(module)
        records.forget()
    assert report.count("JAX102") == len(report.lines) == 2 and "12.0 us, a call of ours takes 10.0 us" in str(report)
    for least in (2.5, 1.5):
        decision = decide.Decision("m", HookOptions(min_saving_us=least), report)
        decision._run_in(module.entry, 1 if least == 1.5 else 2, None)
        assert len(decision.chosen) == 1, str(report)
        records.forget()


def test_no_work_takes_little(empty_cache: Callable[[], None]) -> None:
    """The least time of a call, beside one of a region that computes for a while."""
    x = np.zeros(999999, np.float32)
    module = hlo_opt.jax.lower(jax.jit(wave), x)
    for is_whole in (True, False):
        with hlo_opt.jax.fusing():
            least_us, xla_us, *_ = measure.bound(measure.runnable(module, is_whole=is_whole), [x], is_whole=is_whole)
        assert 0 < least_us < xla_us


@pytest.mark.usefixtures("uncompared")
def test_kernels_are_made_in_the_background(empty_cache: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    function = jax.jit(rounds)
    report = hlo_opt.jax.install(min_saving_us=0)
    before = handler.handler().calls
    expected = function(X)
    assert report.count("JAX301") == 1 and handler.handler().calls == before
    hlo_opt.jax.wait()
    close(function(X), expected)
    assert len(report.replaced) == 2 and handler.handler().calls == before + 1, str(report)


def test_a_kernel_that_does_not_build_leaves_xlas_code(
    empty_cache: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise BackendError("the C++ compiler refused a kernel: planted", code="HLO511")

    monkeypatch.setattr(decide, "freeze", refused)
    with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
        close(jax.jit(wave)(X), WAVE)
    assert report.count("JAX201") == 1 and "HLO511" in str(report)


def test_a_fault_in_the_handler_is_jaxs_own_error(
    empty_cache: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A region that finds no memory: the call fails as others do that find none, and the next one is fine."""
    quick(monkeypatch)
    own = handler.handler()
    runs = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 6)
    failing = runs(lambda *_: 4)
    with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
        compiled = jax.jit(wave).lower(X).compile()
    assert report.replaced
    own.library.hlo_opt_start(ctypes.cast(failing, ctypes.c_void_p))
    try:
        with pytest.raises(jax.errors.JaxRuntimeError, match="hlo_opt: a kernel found no memory"):
            jax.block_until_ready(compiled(X))
    finally:
        own.start()
    close(compiled(X), WAVE)


def test_kernels_are_those_of_the_backend_host(empty_cache: Callable[[], None]) -> None:
    """A loop with products is one kernel on a GPU; here its rounds are kernels and a routine for products."""

    def function(x: Any, w: Any) -> Any:
        return lax.fori_loop(0, 20, lambda _, c: jnp.tanh(c @ w) + 0.1, x)

    module = hlo_opt.jax.lower(jax.jit(function), X, np.eye(128, dtype=np.float32))
    on_host = hlo_opt.compile(run(simple_form(module)).module, backend="host")
    assert on_host.schedule is not None
    expected = {launcher_name(k) for k in on_host.schedule.kernels}
    assert set(decide.build(module, "default").launchers) == expected
    assert not any("grid_loop" in name for name in expected)


@pytest.mark.parametrize("damage", [b"", b"damaged"])
def test_a_damaged_cache_is_filled_again(
    empty_cache: Callable[[], None], monkeypatch: pytest.MonkeyPatch, damage: bytes
) -> None:
    quick(monkeypatch)

    def function(x: Any) -> Any:
        return jnp.cos(x) * len(damage) + jnp.sin(x + 1)

    with hlo_opt.jax.fusing(min_saving_us=0, wait=True):
        expected = jax.jit(function)(X)
    files = list((Path(os.environ["HLO_OPT_CACHE"]) / "jax").iterdir())
    assert {f.suffix for f in files} == {".verdict", ".program", ".module"}
    for file in files:
        file.write_bytes(damage)
    empty_cache()
    monkeypatch.setattr(handler.handler(), "_loaded", {})
    with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
        close(jax.jit(function)(X), expected)
    assert report.replaced and report.count("JAX303") == 0, str(report)


def test_kernels_that_the_cache_has_lost_are_built_again(
    empty_cache: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)

    def function(x: Any) -> Any:
        return jnp.cos(x) * 7 + jnp.sin(x + 2)

    for code in ("JAX402", "JAX401", "JAX402"):
        with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
            jax.jit(function)(X)
        assert len(report.replaced) == report.count(code) == 1, str(report)
        if code == "JAX401":
            for file in Path(os.environ["HLO_OPT_CACHE"]).glob("*.so"):
                file.unlink()
            empty_cache()
            monkeypatch.setattr(handler.handler(), "_loaded", {})


def test_where_the_handler_does_not_build_xla_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise BackendError("the C++ compiler refused a kernel: No space left on device", code="HLO511")

    monkeypatch.setattr(hook, "handler", full)
    with hlo_opt.jax.fusing(wait=True) as report:
        close(jax.jit(wave)(X), WAVE)
    says = "JAX303 every module: failed: HLO511 the C++ compiler refused a kernel: No space left on device"
    assert str(report) == says


def test_a_full_disk_is_only_forgetful(empty_cache: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(records.tempfile, "NamedTemporaryFile", full)
    with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
        close(jax.jit(wave)(X), WAVE)
    assert report.replaced, str(report)
    assert list((Path(os.environ["HLO_OPT_CACHE"]) / "jax").iterdir()) == []


def test_the_time_for_choosing_is_bounded(empty_cache: Callable[[], None]) -> None:
    report = hlo_opt.jax.Report()
    decision = decide.Decision("m", HookOptions(seconds=-1.0), report)
    decision.run(hlo_opt.jax.lower(jax.jit(rounds), X))
    assert {line.code for line in report.lines} == {"JAX206"} and not decision.is_whole


def test_a_region_that_the_time_is_not_enough_for_is_not_begun(
    empty_cache: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decide, "build", lambda *_: pytest.fail("built"))
    report = hlo_opt.jax.Report()
    decision = decide.Decision("m", HookOptions(seconds=decide.SECONDS_OF_OPERATION), report)
    decision.run(hlo_opt.jax.lower(jax.jit(rounds), X))
    assert {line.code for line in report.lines} == {"JAX206"} and not decision.is_whole


def test_what_the_time_was_enough_for_is_kept(empty_cache: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The next compilation of the module does not begin again; what does most was looked at first."""
    quick(monkeypatch)

    def function(x: Any, y: Any) -> Any:
        return wave(y), rounds(x)

    now = time.monotonic()
    clock = itertools.chain([now, now + 1], itertools.repeat(now + 100))
    monkeypatch.setattr(decide, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
        jax.jit(function).lower(X, X).compile()
    (one,) = report.replaced
    assert report.count("JAX206") >= 1 and one.region.startswith("while"), str(report)
    monkeypatch.setattr(hook._BACKGROUND, "put", lambda _: None)
    with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
        jax.jit(function).lower(X, X).compile()
    assert [line.code for line in report.lines] == ["JAX401", "JAX001", "JAX304"]


def compiled_with(seconds: float, wish: Path | None = None) -> hlo_opt.jax.Report:
    """The report of a compilation of `wave` with so much time, and of what follows in the background. `wish` is there
    meanwhile."""
    with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
        hook._installed[-1].wish = HookOptions(min_saving_us=0, seconds=seconds)
        if wish is not None:
            wish.touch()
        close(jax.jit(lambda x: wave(x))(X), WAVE)
        hook._BACKGROUND.wait()
    if wish is not None:
        wish.unlink()
    return report


def test_a_compiler_that_sleeps_ends_with_the_time(
    empty_cache: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XLA's code runs then, nothing is remembered of the region, and the next compilation does not wait for it."""
    quick(monkeypatch)
    asleep, wish = tmp_path / "asleep", tmp_path / "wish"
    asleep.write_text(f'#!/bin/sh\nif [ -e {wish} ]; then exec sleep 99; fi\nexec g++ "$@"\n')
    asleep.chmod(0o755)
    monkeypatch.setenv("CXX", str(asleep))
    begun = time.monotonic()
    report = compiled_with(2.0, wish)
    assert time.monotonic() - begun < 50  # less than a compiler has for an empty file
    assert [line.code for line in report.lines] == ["JAX206"], str(report)
    assert not list(Path(os.environ["HLO_OPT_CACHE"]).rglob("*.verdict"))
    empty_cache()
    report = compiled_with(60.0)
    assert [line.code for line in report.lines] == ["JAX304", "JAX402", "JAX001"], str(report)
    assert [line.code for line in compiled_with(60.0).lines] == ["JAX401", "JAX001"]


def test_a_piece_is_told_from_its_whole(empty_cache: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have the name of the instruction with the most work."""
    monkeypatch.setattr(decide, "times", lambda *_, **_kind: (100.0, 1.0))
    with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
        jax.jit(lambda x: jax.nn.softmax(rounds(wave(x)), -1)).lower(X).compile()
    lost = [line.region for line in report.lines if line.code == "JAX202"]
    assert len(lost) > 1 and len(set(lost)) == len(lost), str(report)
    assert any(" of its " in region and region.endswith(" operations)") for region in lost)


def test_time_is_looked_at_between_the_steps_of_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "lanes_schedule", lambda _: pytest.fail("went on"))
    module = hlo_opt.jax.lower(jax.jit(wave), X)
    with time_until(time.monotonic()), pytest.raises(TimeUpError):
        decide.build(module, "default")


def test_what_there_is_never_time_for_is_given_up(empty_cache: Callable[[], None]) -> None:
    reports = [compiled_with(-1.0) for _ in range(4)]
    assert [report.count("JAX304") for report in reports] == [0, 1, 0, 0]


def test_loops_that_may_not_end_are_not_timed(empty_cache: Callable[[], None]) -> None:
    def function(x: Any) -> Any:
        return lax.while_loop(lambda c: jnp.all(c < jnp.inf), lambda c: jnp.minimum(c + 1, 3.0), x)

    with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
        jax.jit(function).lower(X).compile()
    assert report.count("JAX203") == 1, str(report)
    assert not any(line.region.startswith("while") for line in report.replaced), "only what is in it is timed"


def test_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLO_OPT_JAX", "0")
    with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
        assert "hlo_opt.run" not in jax.jit(rounds).lower(X).compile().as_text()
    assert hlo_opt.jax.install(wait=True).lines == report.lines == []


def test_unknown_words_are_usage_errors() -> None:
    with pytest.raises(UsageError, match="preset"):
        hlo_opt.jax.install(preset="fast")
    with pytest.raises(UsageError, match="backend"), hlo_opt.jax.fusing(backend="cupy"):
        pass


def test_ctrl_c_while_kernels_are_compiled(tmp_path: Path) -> None:
    """A compiler that does not end: Ctrl-C ends it, as it ends everything else, and leaves nothing half-written."""
    slow, wish = tmp_path / "slow", tmp_path / "wish"
    slow.write_text(f'#!/bin/sh\nif [ -e {wish} ]; then echo > {tmp_path}/begun; exec sleep 100; fi\nexec g++ "$@"\n')
    slow.chmod(0o755)
    (tmp_path / "cache").mkdir(mode=0o700)
    code = HEAD + (
        "import pathlib, time\n"
        "from hlo_opt.jax import records\nrecords.environment()\n"
        "report = hlo_opt.jax.install(min_saving_us=0, wait=True)\n"
        f"pathlib.Path({str(wish)!r}).touch()\n"
        "try:\n"
        "    jax.jit(lambda x: jnp.sin(x) * 2 + 1)(np.ones((64, 128), np.float32)).block_until_ready()\n"
        "    time.sleep(5)\n"
        "except KeyboardInterrupt:\n    print('interrupted', flush=True)\n"
        "while not report.count('JAX302'):\n    time.sleep(0.1)\n"
        "print(jax.jit(lambda x: x * 2 + 1)(np.ones(3, np.float32)))\n"
    )
    environment = {
        **os.environ,
        "CXX": str(slow),
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(ROOT),
        "HLO_OPT_CACHE": str(tmp_path / "cache"),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    end = time.monotonic() + 120
    while not (tmp_path / "begun").exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    try:
        out, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    assert "interrupted" in out and "[3. 3. 3.]" in out, (out, errors)
    assert not list((tmp_path / "cache").glob("build-*"))


def test_a_small_region_of_a_loop_must_win_in_its_loop(
    empty_cache: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself it takes no longer than a call, so that chance decides: a step of Runge and Kutta of 128 numbers was
    replaced by one that took 15 us instead of 1. A loop of unknown length is not timed as a whole module."""
    quick(monkeypatch)
    monkeypatch.setattr(decide, "bound", lambda *_, **_kind: (1.0, 100.0))

    def body(state: tuple[Any, Any]) -> tuple[Any, Any]:
        x, count = state
        return jnp.sin(jnp.sort(x) * 2 + 1) / 2, count + 1

    def function(x: Any) -> Any:
        return lax.while_loop(lambda s: jnp.all(s[0] < jnp.inf) & (s[1] < 3), body, (x, 0))

    with hlo_opt.jax.fusing(wait=True) as report:
        jax.jit(function).lower(X).compile()
    left = [entry.region for entry in report.lines if entry.code == "JAX203" and "fusion" in entry.region]
    assert left and not {entry.region for entry in report.replaced}.intersection(left), str(report)


def test_a_process_that_finds_its_kernels_imports_no_compiler(tmp_path: Path) -> None:
    """All that decides and fuses takes 0.3 s to import, as much as XLA takes for several small programs."""
    code = """
        x = np.ones((64, 128), np.float32)
        report = hlo_opt.jax.install(min_saving_us=0, wait=True)
        jax.jit(lambda x: jnp.sin(x) * 2 + jnp.cos(x * 3))(x).block_until_ready()
        loaded = {"hlo_opt.ops", "hlo_opt.passes", "hlo_opt.text"} & set(sys.modules)
        print(bool(loaded), *(each.code for each in report.lines), file=sys.stderr)
        """
    plain = HEAD.partition("from hlo_opt.jax import decide")[0]
    assert run_snippet(code, HEAD, HLO_OPT_CACHE=str(tmp_path)) == "True JAX402 JAX001\n"
    assert run_snippet(code, plain, HLO_OPT_CACHE=str(tmp_path)) == "False JAX401 JAX001\n"


@pytest.mark.usefixtures("winning")
def test_a_configuration_that_changes_later_is_that_of_the_next_compilation() -> None:
    @jax.jit
    def function(x: Any, y: Any) -> Any:
        return jnp.sin(x) * 2 + jnp.tanh(x @ y).sum(), lax.fori_loop(0, 7, lambda i, c: jnp.cos(c) + i, x)

    x = np.random.default_rng(0).standard_normal((60, 60))
    with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
        narrow = function(x, x)
        with jax.enable_x64(True):
            wide = function(x, x)
        with jax.default_matmul_precision("bfloat16"):
            rounded = function(x, x)
        with jax.debug_nans(True), pytest.raises(FloatingPointError):
            function(x * np.inf, x)
        infinite = function(x * np.inf, x)
        with jax.disable_jit():
            one_by_one = function(x, x)
    assert report.replaced and not report.count("JAX303"), str(report)
    assert [a.dtype for a in (narrow[1], wide[1], rounded[1])] == ["float32", "float64", "float32"]
    np.testing.assert_allclose(wide[1], one_by_one[1], 1e-5, 1e-5)
    np.testing.assert_allclose(narrow[1], wide[1], 1e-5, 1e-5)
    np.testing.assert_array_equal(narrow[1], rounded[1])
    assert np.isnan(infinite[1]).all()
