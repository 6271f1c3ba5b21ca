"""A loop that only hands on what is read of it does not run, on any backend: `flips` would never end."""

import numpy as np
import pytest

import hlo_opt
from hlo_opt.runtime.driver import driver_of
from hlo_opt.runtime.executor import Executor
from hlo_opt.runtime.host import HostLibrary, has_compiler
from hlo_opt.runtime.host_device import HostDevice
from hlo_opt.runtime.reference import Reference
from hlo_opt.runtime.schedule import Schedule, build_schedule
from hlo_opt.runtime.steps import WhileStep

FLIPS = """
HloModule flips

body {{
  p = (f32[3], f32[3], pred[]) parameter(0)
  changed = f32[3] get-tuple-element(p), index=0
  kept = f32[3] get-tuple-element(p), index=1
  goes_on = pred[] get-tuple-element(p), index=2
  difference = f32[3] subtract(kept, changed)
  {more}
  ROOT state = (f32[3], f32[3], pred[]) tuple(difference, kept, goes_on)
}}

condition {{
  p = (f32[3], f32[3], pred[]) parameter(0)
  ROOT goes_on = pred[] get-tuple-element(p), index=2
}}

ENTRY e {{
  x = f32[3] parameter(0)
  y = f32[3] parameter(1)
  goes_on = pred[] parameter(2)
  start = (f32[3], f32[3], pred[]) tuple(x, y, goes_on)
  first = (f32[3], f32[3], pred[]) while(start), condition=condition, body=body
  second = (f32[3], f32[3], pred[]) while(first), condition=condition, body=body
  read = f32[3] get-tuple-element(second), index={read}
  ROOT r = f32[3] negate(read)
}}
"""


def schedule_of(read: int = 1, more: str = "") -> Schedule:
    return build_schedule(hlo_opt.parse(FLIPS.format(read=read, more=more)))


def are_idle(schedule: Schedule) -> list[bool]:
    return [step.is_idle for step in schedule.entry.steps if isinstance(step, WhileStep)]


def test_loops_whose_changes_nobody_reads_are_idle() -> None:
    """The second loop reads what the first one changes, and runs as little."""
    assert are_idle(schedule_of()) == [True, True]


def test_loops_whose_changes_are_read_run() -> None:
    assert are_idle(schedule_of(read=0)) == [False, False]


def test_loops_that_change_what_lasts_run() -> None:
    assert are_idle(schedule_of(more="seed = u64[2] rng-get-and-update-state(), delta=1")) == [False, False]


@pytest.mark.parametrize("backend", ["numpy", "host"])
def test_an_idle_loop_ends_on_every_backend(backend: str) -> None:
    if backend == "host" and not has_compiler():
        pytest.skip("no C++ compiler")
    x, y = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
    run = hlo_opt.compile(hlo_opt.parse(FLIPS.format(read=1, more="")), backend, max_steps=100)
    np.testing.assert_array_equal(run(x, y, np.array(True))[0], -y)


def test_an_idle_loop_ends_step_by_step() -> None:
    """As the sanitizers and CuPy run a schedule."""
    if not has_compiler():
        pytest.skip("no C++ compiler")
    schedule = schedule_of()
    device = HostDevice(HostLibrary(schedule.kernels), Reference(schedule.module))
    x, y = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
    executor = Executor(schedule, device, max_steps=100)
    np.testing.assert_array_equal(executor.run([x, y, np.array(True)])[0], -y)
    assert executor.launches == 1


def test_a_driver_has_no_idle_loop() -> None:
    for schedule, loops in ((schedule_of(), 0), (schedule_of(read=0), 2)):
        text = driver_of(schedule, {kernel.symbol: "k.cu" for kernel in schedule.kernels}).text
        assert text.count("    while ") == loops
