from __future__ import annotations

import os

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import hlo_opt
from hlo_opt import UsageError
from hlo_opt.evaluate import threads
from hlo_opt.runtime.executable import compile

PRODUCT = """HloModule m

ENTRY e {
  a = f32[4,4] parameter(0)
  b = f32[4,4] parameter(1)
  ROOT d = f32[4,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
LIBRARIES = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]


def most() -> int:
    return max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")


def test_the_variable_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(threads.VARIABLE, " 7 ")
    assert threads.processors() == 7
    monkeypatch.setenv(threads.VARIABLE, "")
    assert threads.processors() == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("wish", ["abc", "0", "-1", "1.5", "\u0663", "9" * 5000])
def test_what_is_no_number_is_refused_before_anything_runs(wish: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(threads.VARIABLE, wish)
    module = hlo_opt.parse(PRODUCT)
    inputs = [np.eye(4, dtype=np.float32)] * 2
    for run in (lambda: hlo_opt.evaluate(module, inputs), lambda: compile(module, backend="host")(*inputs)):
        with pytest.raises(UsageError, match=r"HLO312 .HLO_OPT_THREADS must be a whole number from 1"):
            run()


@pytest.mark.skipif(not LIBRARIES, reason="NumPy has no library with threads of its own")
@pytest.mark.parametrize("backend", ["numpy", "host"])
def test_libraries_keep_to_it_while_they_run(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = hlo_opt.parse(PRODUCT)
    seen = []
    plain = np.matmul

    def watched(*arguments: object, **options: object) -> object:
        seen.append(most())
        return plain(*arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(np, "matmul", watched)
    before = most()
    executable = compile(module, backend=backend)
    for wish in ("1", "3"):
        monkeypatch.setenv(threads.VARIABLE, wish)
        executable(np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32))
    assert set(seen) == {1, 3} or (not seen and backend == "host")
    assert most() == before
