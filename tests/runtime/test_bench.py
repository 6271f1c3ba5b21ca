import time
import types
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.evaluate import module_inputs
from hlo_opt.fusion.summary import module_summary
from hlo_opt.report.runs import bench_page, bench_png, bench_svg
from hlo_opt.runtime.measure import bench as bench_clock
from hlo_opt.runtime.measure.bench import Bench, Timing, Variant, bench

DUMPS = Path(__file__).parents[2] / "testdata" / "dumps"


@pytest.fixture(autouse=True)
def small_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_clock, "COPIED_BYTES", 1 << 16)
    monkeypatch.setattr(bench_clock, "HOST_COPIED_BYTES", 1 << 16)


class Counting:
    """A clock that writes down what it was asked."""

    device, cold = "a device", "emptied"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def mark(self) -> float:
        return 0.0

    def between(self, first: float, second: float) -> float:
        return second - first

    def timed(self, work: Callable[[], None], launches: int) -> float:
        work()
        self.asked.append(f"time {launches}")
        return float(len(self.asked))

    def empty_caches(self) -> None:
        self.asked.append("empty")

    def copy_bandwidth(self) -> float:
        return 1e9


@pytest.mark.parametrize("backend", ["host", "cupy", "numpy"])
def test_both_are_run_and_counted(backend: str, fake: types.ModuleType) -> None:
    module = hlo_opt.parse((DUMPS / "softmax.hlo").read_text())
    fused, _ = hlo_opt.fuse(module)
    found = bench({"unfused": module, "fused": fused}, backend, [module_inputs(module, 0)], 2)
    first, last = found.variants
    assert found.backend == backend and (first.name, last.name) == ("unfused", "fused")
    assert first.count > last.count > 0 and first.cold.median > 0 and found.copy_bandwidth > 0
    if backend != "numpy":
        assert first.launches > last.launches == last.kernels
        assert first.kernels == module_summary(module, target("h100_sxm")).kernels
    assert found.as_json()["gain"]["warm"] == found.gain("warm") > 0


def test_runs_alternate_and_each_has_a_cold_and_a_warm_one() -> None:
    module = hlo_opt.parse((DUMPS / "softmax.hlo").read_text())
    fused, _ = hlo_opt.fuse(module)
    clock = Counting()
    found = bench({"unfused": module, "fused": fused}, "host", [module_inputs(module, 0)], 2, clock)
    many, few = (f"time {v.launches}" for v in found.variants)
    assert many != few
    assert clock.asked == ["empty", many, many, "empty", few, few, "empty", few, few, "empty", many, many]
    assert found.variants[0].cold == Timing.of([2.0, 11.0]) and found.cold == "emptied"


@pytest.mark.parametrize(
    ("first", "last", "clear"),
    [
        ((4.0, 3.0, 5.0), (2.0, 1.0, 2.5), True),
        ((4.0, 3.0, 5.0), (2.0, 1.0, 3.5), False),
        ((2.0, 1.0, 2.5), (4.0, 3.0, 5.0), True),
    ],
)
def test_quartiles_that_overlap_are_told(first: tuple[float, ...], last: tuple[float, ...], clear: bool) -> None:
    variants = [Variant(n, 1, 1, 0, 1.0, Timing(*t), Timing(*t)) for n, t in (("unfused", first), ("fused", last))]
    found = Bench("m", "host", "asked for", "CPU", 1e9, "emptied", 3, tuple(variants))
    assert found.is_clear("cold") is clear and found.as_json()["clear"] == {"cold": clear, "warm": clear}
    assert ("warning: cold and warm: the quartiles overlap" in str(bench_page(found))) is not clear


@pytest.mark.parametrize("backend", ["host", "numpy", "cupy"])
def test_times_of_a_cpu_do_not_speak_for_the_target(backend: str) -> None:
    one = Variant("fused", 1, 1, 0, 1.0, Timing.of([4.0]), Timing.of([2.0]))
    found = Bench("m", backend, "asked for", "X", 1e9, "emptied", 3, (one,), target="b200")
    told = "times of this CPU and do not speak for b200" in str(bench_page(found))
    assert told is (backend != "cupy") is not found.as_json()["speaks_for_target"]


def test_figures() -> None:
    slow = Variant("unfused", 2, 2, 0, 4000.0, Timing.of([10.0, 12.0, 8.0]), Timing(8.0, 7.0, 9.0))
    fast = Variant("fused", 1, 1, 0, 2000.0, Timing.of([4.0]), Timing(2.0, 2.0, 2.0))
    found = Bench('<script>&"]]>\x1b', "cupy", "why", "GPU $x$", 1e9, "emptied", 3, (slow, fast))
    assert slow.cold == Timing(10.0, 9.0, 11.0)
    assert found.gain("cold") == 2.5 and found.gain("warm") == 4.0
    assert found.at_copy_speed(fast) == 2.0 and found.share(fast) == 0.5
    page = str(bench_page(found))
    assert "2.50 x cold, 4.00 x warm" in page and "\x1b" not in page and "(9 us .. 11 us)" in page
    drawing = ET.fromstring(bench_svg(found))
    texts = [t.text or "" for t in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == '<script>&"]]>?' and not list(drawing.iter("script"))
    bars = [float(r.get("width", "0")) for r in drawing.iter("{http://www.w3.org/2000/svg}rect")][1:]
    assert len(bars) == 6 and bars[0] == max(bars) and bars[3] == pytest.approx(bars[0] * 0.4, abs=0.1)


def test_a_png_without_matplotlib_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    one = Variant("fused", 1, 1, 0, 1.0, Timing.of([4.0]), Timing.of([2.0]))
    with pytest.raises(hlo_opt.UsageError, match="HLO340"):
        bench_png(Bench("m", "host", "why", "CPU", 1e9, "emptied", 3, (one,)))


def test_the_faster_of_two_ways_to_copy_counts(fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_clock, "COPIED_BYTES", 4096)
    clock = bench_clock.clock_of("cupy")
    monkeypatch.setattr(clock, "timed", lambda work, launches: 4.0 if "driver" in work.__name__ else 8.0)
    assert clock.copy_bandwidth() == pytest.approx(2 * 4096 / 4e-6)


@pytest.mark.parametrize("is_cold", [True, False])
def test_a_host_that_is_slower_than_the_wait_is_timed_behind_a_longer_one(
    is_cold: bool, fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = bench_clock.clock_of("cupy")
    assert isinstance(clock, bench_clock.CupyClock)
    asked: list[str] = []
    waits: list[float] = []
    empty = clock.empty_caches
    monkeypatch.setattr(clock, "empty_caches", lambda: asked.append("empty") or empty())
    monkeypatch.setattr(clock, "hold", lambda us: asked.append("wait") or waits.append(us))

    def work() -> None:
        asked.append("work")
        end = time.perf_counter() + 1e-3
        while time.perf_counter() < end:
            pass

    if is_cold:
        clock.empty_caches()
    assert clock.timed(work, 1) >= 1e3
    once = (["empty"] if is_cold else []) + ["wait", "work"]
    assert asked[: 2 * len(once)] == 2 * once and waits[0] == 90 and waits[1] >= 2e3
    asked.clear()
    clock.timed(lambda: asked.append("short"), 1)
    assert asked == ["wait", "short"]
