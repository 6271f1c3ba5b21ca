"""Loops whose iterations are one graph, which the GPU repeats on its own decision."""

import ctypes
import types

import numpy as np
import pytest

import hlo_opt
from hlo_opt.evaluate import evaluate
from hlo_opt.ir import Module
from hlo_opt.runtime.cupy import graphs
from hlo_opt.runtime.cupy.conditional import ConditionError, NodeParams
from hlo_opt.runtime.executable import Executable
from hlo_opt.runtime.schedule import in_line

UNTIL = """HloModule m
body {
  s = (s32[], f32[4,4]{1,0}, f32[8]{0}, f32[4,4]{1,0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4,4]{1,0} get-tuple-element(s), index=1
  rows = f32[8]{0} get-tuple-element(s), index=2
  w = f32[4,4]{1,0} get-tuple-element(s), index=3
  one = s32[] constant(1)
  n = s32[] add(i, one)
  product = f32[4,4]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  y = f32[4,4]{1,0} tanh(product)
  row = f32[1,1]{1,0} slice(y), slice={[0:1], [0:1]}
  flat = f32[1]{0} bitcast(row)
  written = f32[8]{0} dynamic-update-slice(rows, flat, i)
  ROOT r = (s32[], f32[4,4]{1,0}, f32[8]{0}, f32[4,4]{1,0}) tuple(n, y, written, w)
}
condition {
  s = (s32[], f32[4,4]{1,0}, f32[8]{0}, f32[4,4]{1,0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(7)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY e {
  m = s32[] parameter(0)
  a = f32[4,4]{1,0} parameter(1)
  rows = f32[8]{0} parameter(2)
  w = f32[4,4]{1,0} parameter(3)
  t = (s32[], f32[4,4]{1,0}, f32[8]{0}, f32[4,4]{1,0}) tuple(START, a, rows, w)
  l = (s32[], f32[4,4]{1,0}, f32[8]{0}, f32[4,4]{1,0}) while(t), condition=condition, body=body
  i = s32[] get-tuple-element(l), index=0
  x = f32[4,4]{1,0} get-tuple-element(l), index=1
  written = f32[8]{0} get-tuple-element(l), index=2
  ROOT r = (s32[], f32[4,4]{1,0}, f32[8]{0}, f32[8]{0}) tuple(i, x, written, rows)
}
"""
"""A product by cuBLAS, an array that is updated in place, and one that the caller keeps."""


def until(start: str = "m") -> Module:
    zero = "" if start == "m" else f"  {start} = s32[] constant(0)\n"
    return hlo_opt.parse(UNTIL.replace("ENTRY e {\n", "ENTRY e {\n" + zero).replace("START", start))


def inputs(start: int) -> list[np.ndarray]:
    random = np.random.default_rng(start)
    arrays = [random.uniform(-1, 1, shape).astype(np.float32) for shape in ((4, 4), 8, (4, 4))]
    return [np.array(start, np.int32), *arrays]


def agrees(executable: Executable, given: list[np.ndarray]) -> None:
    for got, want in zip(executable(*given), evaluate(executable.module, given), strict=True):
        assert np.allclose(got, want, rtol=1e-5, atol=1e-6)


def test_the_gpu_decides_how_often_a_body_runs(fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = hlo_opt.compile(until(), "cupy")
    agrees(executable, inputs(4))
    read: list[int] = []
    download = fake.asnumpy
    monkeypatch.setattr(fake, "asnumpy", lambda a: read.append(a.size) or download(a))
    for start in (4, 0, 7, 6, 9):
        read.clear()
        fake.launched.clear()
        fake.graphs.clear()
        agrees(executable, inputs(start))
        assert read[-4:] == [1, 16, 8, 8] and len(read) - 4 == (start == 4)  # the first time, whether the GPU can count
        assert len(fake.graphs) == 1 + (start == 4)
        report = executable.report()
        assert report["launches"] == report["graphs"]["replayed"] == len(fake.launched)
        assert report["graphs"]["loops"] == 1 and report["graphs"]["refused"] == []


@pytest.mark.parametrize("together", [2, 4, 6, 64])
def test_a_known_number_of_iterations_runs_a_few_at_a_time(
    together: int, fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_line, "MOST_IN_LINE", 0)
    monkeypatch.setattr(graphs, "NODES_TOGETHER", together)
    executable = hlo_opt.compile(until("zero"), "cupy")
    for run in range(3):
        fake.launched.clear()
        agrees(executable, inputs(0))
        report = executable.report()
        assert report["launches"] == len(fake.launched)
        assert report["graphs"]["replayed"] == (report["launches"] if run else report["graphs"]["replayed"])
    assert report["graphs"]["loops"] == 1 and report["graphs"]["refused"] == []


def test_a_driver_that_refuses_leaves_a_graph_of_each_iteration(
    fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise ConditionError("cuGraphAddNode_v2 returns 801")

    monkeypatch.setattr(fake.Driver, "add_while", refuse)
    executable = hlo_opt.compile(until(), "cupy")
    for _ in range(3):
        agrees(executable, inputs(2))
    report = executable.report()["graphs"]
    assert report["loops"] == 1 and report["replayed"] and report["refused"] == ["cuGraphAddNode_v2 returns 801"]


def test_a_failure_in_the_body_leaves_a_graph_of_each_iteration(
    fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = fake.Driver.end
    calls = []

    def refuse(self: object, stream: int) -> None:
        end(self, stream)
        calls.append(stream)
        if len(calls) == 2:  # not the trial
            raise ConditionError("cuStreamEndCapture returns 901")

    monkeypatch.setattr(fake.Driver, "end", refuse)
    executable = hlo_opt.compile(until(), "cupy")
    for _ in range(3):
        agrees(executable, inputs(2))
    report = executable.report()["graphs"]
    assert report["replayed"] and report["refused"] == ["cuStreamEndCapture returns 901"]


def test_a_gpu_that_cannot_count_is_found_out(fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    add = fake.Driver.add_while
    monkeypatch.setattr(fake.Driver, "add_while", lambda self, stream, _: add(self, stream, self.handle(stream)))
    executable = hlo_opt.compile(until(), "cupy")
    for _ in range(3):
        agrees(executable, inputs(2))
    report = executable.report()["graphs"]
    assert report["loops"] == 1 and report["refused"] == ["a graph of 3 rounds counts [0, 1]"]


def test_much_state_is_not_copied_in_each_iteration(fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MOST_COPIED", 0)
    executable = hlo_opt.compile(until(), "cupy")
    for _ in range(3):
        agrees(executable, inputs(2))
    (refused,) = executable.report()["graphs"]["refused"]
    assert refused.startswith("each iteration would copy ") and executable.report()["graphs"]["loops"] == 1


def test_a_node_is_described_as_the_driver_reads_it() -> None:
    """Offsets and size as a C compiler finds them in cuda.h of CUDA 13."""
    offsets = [getattr(NodeParams, name).offset for name in ("type", "handle", "kind", "size", "bodies", "context")]
    assert offsets == [0, 16, 24, 28, 32, 40] and ctypes.sizeof(NodeParams) == 256
