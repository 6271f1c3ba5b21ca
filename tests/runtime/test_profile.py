import json
import types
from pathlib import Path

import numpy as np
import pytest

import hlo_opt
from hlo_opt.evaluate import module_inputs
from hlo_opt.report.runs import profile_page
from hlo_opt.runtime.measure import bench as bench_clock
from hlo_opt.runtime.measure import profile
from hlo_opt.runtime.measure.profile import ProfiledCall, RunProfile

DUMPS = Path(__file__).parents[2] / "testdata" / "dumps"


@pytest.fixture(autouse=True)
def small_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_clock, "COPIED_BYTES", 1 << 16)
    monkeypatch.setattr(bench_clock, "HOST_COPIED_BYTES", 1 << 16)


@pytest.mark.parametrize("backend", ["host", "cupy"])
def test_every_launch_is_an_event_and_the_outputs_are_those_of_a_run(backend: str, fake: types.ModuleType) -> None:
    module, _ = hlo_opt.fuse(hlo_opt.parse((DUMPS / "mlp_forward.hlo").read_text()))
    inputs = module_inputs(module, 1)
    (outputs,), found = profile.profile(module, backend, [inputs])
    executable = hlo_opt.compile(module, backend)
    for a, b in zip(outputs, executable(*inputs), strict=True):
        assert np.allclose(a, b, rtol=1e-4, atol=1e-5 * np.abs(b).max())  # sums of large terms in another order
    report = executable.report()
    kernels = [e for e in found.events if e.kind == "kernel"]
    if backend == "cupy":  # on the host a run takes kernels around products apart
        symbols = {k["symbol"] for k in report["kernels"]}
        assert len(kernels) == report["launches"] and {e.name for e in kernels} <= symbols
        assert sum(e.kind == "library" for e in found.events) == sum(report["library"].values())
    assert all(e.duration >= 0 and e.start >= 0 for e in found.events) and found.copy_bandwidth > 0
    trace = json.loads(json.dumps(found.trace()))
    assert sum(e["ph"] == "X" for e in trace["traceEvents"]) == len(found.events)
    assert "of copy" in str(profile_page(found))


def test_rows_add_up_by_kernel() -> None:
    events = tuple(
        ProfiledCall(name, "kernel", "i", start, 2.0, 4000.0) for name, start in (("a", 0.0), ("b", 2.0), ("a", 5.0))
    )
    found = RunProfile("m", "host", "CPU", 4e9, events)
    first, second = found.rows()
    assert (first.name, first.launches, first.microseconds, first.count) == ("a", 2, 4.0, 8000.0)
    assert first.bandwidth == 2e9 and found.share(first) == 0.5 and second.launches == 1
    assert found.microseconds == 7.0


def test_more_than_a_copy_is_explained() -> None:
    events = (ProfiledCall("a", "kernel", "i", 0.0, 1.0, 8000.0),)
    assert "in a cache" in str(profile_page(RunProfile("m", "host", "CPU", 4e9, events)))
    assert "in a cache" not in str(profile_page(RunProfile("m", "host", "CPU", 16e9, events)))


def test_the_table_names_instructions_and_python_lines() -> None:
    events = [ProfiledCall("loop_multiply_69c8d6a7e2555f58", "kernel", "mul.4", 0.0, 2.0, 1.0, "model.py:7", 3)]
    events += [
        ProfiledCall("dot", "library", name, 4.0, 1.0, 1.0, "model.py:9") for name in ("dot.1", "dot.2", "dot.1")
    ]
    lines = str(profile_page(RunProfile("m", "host", "CPU", 1e9, tuple(events)))).splitlines()
    assert [line.split("  ")[1].strip() for line in lines[2:]] == ["dot.1 and 1 more", "mul.4 and 2 more"]
    assert "dot (library)" in lines[2] and lines[2].endswith("model.py:9")
    assert "loop_multiply " in lines[3] and lines[3].endswith("model.py:7")


def test_a_fusion_has_the_line_of_its_root() -> None:
    module, _ = hlo_opt.fuse(hlo_opt.parse((DUMPS / "softmax.hlo").read_text()))
    _, found = profile.profile(module, "host", [module_inputs(module, 0)])
    assert all(".py:" in event.source for event in found.events)


def test_names_of_a_dump_are_escaped() -> None:
    name = 'x"}],\n\x1b[31m<script>'
    found = RunProfile(name, "host", "CPU", 1e9, (ProfiledCall(name, "library", name, 0.0, 0.0, 1.0),))
    assert json.loads(json.dumps(found.trace()))["traceEvents"][-1]["name"] == name
    assert "\x1b" not in str(profile_page(found))


@pytest.mark.parametrize("at_a_time", [1, 2, 100])
def test_launches_queue_up_behind_waits_that_are_not_part_of_the_times(
    at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(bench_clock.HostClock):
        """A clock whose every wait takes a second, and whose other steps take a microsecond."""

        now = 0.0
        held = 0

        def mark(self) -> float:
            self.now += 1
            return self.now

        def hold(self, microseconds: float) -> None:
            assert microseconds >= 0
            self.now, self.held = self.now + 1e6, self.held + 1

    clock = Slow()
    monkeypatch.setattr(profile, "AT_A_TIME", at_a_time)
    monkeypatch.setattr(profile, "clock_of", lambda backend: clock)
    module, _ = hlo_opt.fuse(hlo_opt.parse((DUMPS / "mlp_train_step.hlo").read_text()))
    _, found = profile.profile(module, "host", [module_inputs(module, 0)])
    assert len(found.events) > 2 and found.microseconds < 1000
    begins = [event.start for event in found.events]
    assert begins == sorted(begins) and clock.held == 1 + (len(found.events) - 1) // at_a_time


def test_a_trace_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "MOST_EVENTS", 1)
    module = hlo_opt.parse((DUMPS / "softmax.hlo").read_text())
    _, found = profile.profile(module, "host", [module_inputs(module, 0)])
    assert len(found.events) == 1 and found.left_out > 0
    assert "not timed" in str(profile_page(found))
