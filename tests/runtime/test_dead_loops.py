"""A loop that nobody reads anything of does not run, on any backend; any other one goes on for as long as it wants to:
`flips` never ends."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np
import pytest

import hlo_opt
from hlo_opt.runtime.driver.writer import driver_of
from hlo_opt.runtime.host.library import has_compiler
from hlo_opt.runtime.schedule import build_schedule
from hlo_opt.runtime.schedule.ops import LoopOp

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


def module(read: int = 0, more: str = "", root: str = "read") -> hlo_opt.Module:
    return hlo_opt.parse(FLIPS.format(read=read, more=more).replace("negate(read)", f"negate({root})"))


def loops(found: hlo_opt.Module) -> int:
    return sum(isinstance(step, LoopOp) for step in build_schedule(found).entry.ops)


def test_loops_that_nobody_reads_are_left_out() -> None:
    """The first one is read by the second one only."""
    assert loops(module(root="y")) == 0


def test_loops_of_which_something_is_read_run() -> None:
    """Also where it is what they hand on as it is."""
    assert loops(module(read=0)) == loops(module(read=1)) == 2


def test_loops_that_change_what_lasts_run() -> None:
    assert loops(module(more="seed = u64[2] rng-get-and-update-state(), delta=1", root="y")) == 2


BACKENDS = ["numpy", *(["host"] if has_compiler() else [])]


@pytest.mark.parametrize("backend", BACKENDS)
def test_dead_code_does_not_run_on_any_backend(backend: str) -> None:
    x, y = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
    run = hlo_opt.compile(module(root="y"), backend, max_steps=100)
    np.testing.assert_array_equal(run(x, y, np.array(True))[0], -y)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("read", [0, 1])
def test_what_never_ends_goes_on_until_a_limit(backend: str, read: int) -> None:
    x, y = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
    run = hlo_opt.compile(module(read=read), backend, max_steps=100)
    with pytest.raises(hlo_opt.EvaluationError, match=r"HLO402.*goes on after 100 iterations"):
        run(x, y, np.array(True))
    np.testing.assert_array_equal(run(x, y, np.array(False))[0], -(x, y)[read])


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("backend", BACKENDS)
def test_ctrl_c_ends_it(backend: str) -> None:
    x, y = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
    run = hlo_opt.compile(module(), backend)
    run(x, y, np.array(False))  # all is loaded
    timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
    timer.start()
    started = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        run(x, y, np.array(True))
    assert time.perf_counter() - started < 5
    np.testing.assert_array_equal(run(x, y, np.array(False))[0], -x)


def test_a_driver_has_no_dead_loop() -> None:
    for found, number in ((module(root="y"), 0), (module(read=1), 2)):
        schedule = build_schedule(found)
        text = driver_of(schedule, {kernel.symbol: "k.cu" for kernel in schedule.kernels}).text
        assert text.count("    while ") == number
