"""The scripts that time loops on a GPU, as far as they go without one."""

import ctypes
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import hlo_opt
from scripts.bench import cartpole_gpu, made_apart
from scripts.bench.counted import WIDTH, shortest_round
from scripts.bench.loop_table import chosen
from scripts.bench.loops_gpu import in_turn, told
from scripts.bench.made_apart import ready

ALWAYS, NOT = 0x7947, 0x8947
"""A jump, and one that a predicate guards."""


def _text(*words: int) -> bytes:
    return b"".join(word.to_bytes(WIDTH, "little") for word in words)


def _jump(opcode: int, distance: int) -> int:
    words = distance * WIDTH // 4
    return opcode | (words & 0xFF) << 16 | (words >> 8 & (1 << 48) - 1) << 34


def test_the_shortest_round_leaves_branches_for_rare_values_out() -> None:
    skip, back = _jump(NOT, 3), _jump(NOT, -7)
    assert shortest_round(_text(1, 2, skip, 3, 4, 5, 6, back, 7)) == 4
    assert shortest_round(_text(1, 2, 3)) == 0
    over = _jump(ALWAYS, 1)  # what nothing guards is not passed by
    assert shortest_round(_text(1, 2, over, 3, 4, _jump(NOT, -6))) == 5


SHIM = """
#include <cmath>
#include <cstring>
#define __device__
#define __global__
#define __forceinline__ inline
struct float4 { float x, y, z, w; };
struct uint2 { unsigned x, y; };
float4 make_float4(float a, float b, float c, float d) { return {a, b, c, d}; }
uint2 make_uint2(unsigned a, unsigned b) { return {a, b}; }
float __uint_as_float(unsigned a) { float f; memcpy(&f, &a, 4); return f; }
struct Place { int x; } blockIdx, threadIdx, blockDim, gridDim;
extern "C" void place(int block, int thread, int threads, int blocks) {
  blockIdx.x = block; threadIdx.x = thread; blockDim.x = threads; gridDim.x = blocks;
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_kernels_by_hand_do_what_the_programs_do(tmp_path: Path) -> None:
    source, library = tmp_path / "by_hand.cpp", tmp_path / "by_hand.so"
    source.write_text(SHIM + cartpole_gpu.SOURCE.read_text().replace("__restrict__", ""))
    command = ["g++", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-DPER_THREAD=2", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    kernels = ctypes.CDLL(str(library))
    n, block = 19, 4
    for rollout in (cartpole_gpu.rollout(form, n, 10) for form in ("joined", "random")):
        arrays = [np.ascontiguousarray(a) for a in rollout.inputs()]
        wanted = [np.asarray(a) for a in jax.tree.leaves(jax.jit(rollout.naive)(*arrays))]
        outputs = [np.zeros_like(a) for a in wanted]
        pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (*arrays, *outputs)]
        grid = -(-n // (2 * block))
        for place in range(grid * block):
            kernels.place(place // block, place % block, block, grid)
            kernels[rollout.entry](*pointers, n, rollout.steps)
        assert cartpole_gpu.close(outputs[0], wanted[0]) == 1.0, rollout.form
        assert all((a == b).all() for a, b in zip(outputs[1:], wanted[1:], strict=True)), rollout.form


def test_a_process_that_hangs_or_ends_says_so() -> None:
    begins = 'import json, sys, time; print(json.dumps({"begins": "x"}), flush=True);'
    assert list(told([sys.executable, "-c", begins + "time.sleep(60)"], 30, 0.2)) == [
        {"begins": "x"},
        {"ends": "stopped after 0 s"},
    ]
    assert [*told([sys.executable, "-c", begins + "sys.exit(3)"], 30, 20)][-1] == {"ends": "exit status 3"}


def fused_text(text: str, target: str) -> tuple[hlo_opt.ir.Module, dict[str, str]]:
    """A job."""
    return hlo_opt.fuse(hlo_opt.parse(text), target=target)[0], {"target": target}


def test_programs_are_fused_apart_and_faults_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With threads, for processes take seconds to start."""
    monkeypatch.setattr(made_apart, "ProcessPoolExecutor", lambda workers, *_: ThreadPoolExecutor(workers))
    text = "HloModule m\n\nENTRY e {\n  ROOT x = f32[4] parameter(0)\n}\n"
    good, bad = ready(fused_text, [text, "HloModule"], "h200", "numpy", lambda item: {"size": len(item)}, 2, 60.0)
    assert good["target"] == "h200" and good["size"] == len(text) and "fault" in bad
    np.testing.assert_array_equal(good["ours"](np.ones(4, np.float32))[0], np.ones(4, np.float32))
    told = threading.Event()

    def waits(*given: Any) -> Any:
        told.wait()
        return fused_text(*given)

    (late,) = ready(waits, [text], "h200", "numpy", lambda item: {}, 1, 0.0)
    told.set()
    assert late == {"fault": "not compiled in time"}


def test_few_loops_are_of_all_rungs() -> None:
    rungs = {each.case.name: each.rung for each in chosen()}
    assert {rungs[name] for name in in_turn("", 4)} == {"launches", "grid", "block", "lanes"}
    assert in_turn("lorenz", 40) == ["lorenz"]
