"""The constants of the price model as a GPU shows them: a stand-in takes the times that it is given."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hlo_opt.analysis.targets import target
from hlo_opt.codegen.device_code import helpers
from hlo_opt.runtime.measure import calibration
from hlo_opt.runtime.measure.calibration import calibrate, device_file

COPY, LAUNCH, LOAD, BARRIER, L2, CLOCK = 4.0e12, 1.5, 0.7, 2.5, 9.0e12, 1.7
"""What the stand-in shows: bytes per second, microseconds, GHz."""
ATTRIBUTES = {1: 1024, 8: 49152, 10: 32, 12: 65536, 13: 1_980_000, 16: 132, 36: 3_201_000, 37: 6144, 38: 50 << 20}
ATTRIBUTES |= {39: 2048, 75: 9, 76: 0, 81: 233472, 97: 232448}


class Gpu:
    """Time passes as kernels are launched."""

    def __init__(self) -> None:
        self.now = 0.0
        self.device, self.cold = "NVIDIA H200", ""

    def launched(self, symbol: str, meets: bool) -> Callable[..., None]:
        assert (symbol == "hlo_opt_meet") == meets

        def launch(grid: tuple[int], block: tuple[int], arguments: tuple[Any, ...]) -> None:
            last = int(arguments[-1]) if arguments else 0
            self.now += LAUNCH
            if symbol == "hlo_opt_chase":
                self.now += last * LOAD
            elif symbol == "hlo_opt_meet":
                self.now += last * BARRIER
            elif symbol == "hlo_opt_reread":
                self.now += last * arguments[0].nbytes / L2 * 1e6
            elif symbol == "hlo_opt_spin":
                arguments[0][:] = (int(1e6 * CLOCK), 1_000_000)

        return launch

    def module(
        self, code: str, options: tuple[str, ...], enable_cooperative_groups: bool = False
    ) -> types.SimpleNamespace:
        return types.SimpleNamespace(get_function=lambda symbol: self.launched(symbol, enable_cooperative_groups))

    def timed(self, work: Callable[[], None], launches: int) -> float:
        before = self.now
        work()
        return self.now - before

    def empty_caches(self) -> None:
        pass

    def copy_bandwidth(self) -> float:
        return COPY


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> calibration.Calibration:
    gpu = Gpu()
    runtime = types.SimpleNamespace(
        getDevice=lambda: 0,
        deviceGetAttribute=lambda code, number: ATTRIBUTES[code],
        memGetInfo=lambda: (0, 141 << 30),
    )
    cupy = types.SimpleNamespace(
        cuda=types.SimpleNamespace(runtime=runtime),
        RawModule=gpu.module,
        zeros=np.zeros,
        asarray=np.asarray,
        asnumpy=np.asarray,
    )
    monkeypatch.setattr(calibration, "CupyClock", lambda cupy: gpu)
    return calibrate(cupy)  # type: ignore[arg-type]


def test_each_constant_is_what_the_device_showed(found: calibration.Calibration) -> None:
    device = found.device
    assert device.memory_bandwidth == target("h200").memory_bandwidth  # as its maker has it, by its name
    assert device.copied_per_second == pytest.approx(COPY)
    assert device.l2_share == pytest.approx(L2 / device.memory_bandwidth)
    assert device.idle_load_us == pytest.approx(LOAD)
    assert device.barrier_us == pytest.approx(BARRIER)
    assert device.clock_share == pytest.approx(CLOCK / 1.98)
    assert device.kernel_launch_us == pytest.approx(LAUNCH)
    assert {c.name: c.before for c in found.constants}["barrier_us"] == target("h200").barrier_us


def test_the_file_is_a_target(found: calibration.Calibration, tmp_path: Any) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(device_file(found), encoding="utf-8")
    device = target(str(path))
    assert device.barrier_us == pytest.approx(BARRIER) and device.core_count == 132
    assert (device.fpus_per_core, device.compute_capability) == (128, 90)


def test_a_name_cannot_leave_its_line(found: calibration.Calibration) -> None:
    assert calibration._escaped('a"\n\\b') == "a\\u0022\\u000a\\u005cb"


def test_nvrtc_takes_the_kernels() -> None:
    nvrtc = pytest.importorskip("cupy").cuda.nvrtc
    text = helpers(["hlo_meet_grid"]) + calibration._TEXT + calibration._MEETING
    program = nvrtc.createProgram(text, "calibration.cu", (), ())
    nvrtc.compileProgram(program, ("-arch=sm_90", "--std=c++17"))
    assert nvrtc.getCUBIN(program)
