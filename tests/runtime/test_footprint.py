"""What a schedule will hold is known before kernels are built."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.diag import EvaluationError
from hlo_opt.runtime.host.library import has_compiler
from hlo_opt.runtime.schedule import build_schedule
from hlo_opt.runtime.schedule.footprint import check_schedule, peak_of

V = "f32[1000]{0}"
A = 4000  # bytes of one such array


def peak(body: str, functions: str = "") -> tuple[int, str]:
    module = hlo_opt.parse(f"HloModule m\n{functions}\nENTRY e {{\n  p = {V} parameter(0)\n  {body}\n}}\n")
    found = peak_of(build_schedule(module))
    return found.bytes, "" if found.at is None else found.at.name


LOOP = f"""body {{
  s = (s32[], {V}, {V}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = {V} get-tuple-element(s), index=1
  w = {V} get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = {V} add(v, w)
  ROOT t = (s32[], {V}, {V}) tuple(j, x, w)
}}
condition {{
  s = (s32[], {V}, {V}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(-1)
  ROOT l = pred[] compare(i, n), direction=NE
}}
"""
WHILE = (
    f"z = s32[] constant(0)\n  t = (s32[], {V}, {V}) tuple(z, p, p)\n"
    f"  w = (s32[], {V}, {V}) while(t), condition=condition, body=body\n  ROOT r = {V} get-tuple-element(w), index=1"
)


def test_buffers_live_from_their_step_to_the_last_use() -> None:
    chain = (
        f"a = {V} negate(p)\n  b = {V} negate(a)\n  c = {V} negate(b)\n  ROOT r = f32[1]{{0}} slice(c), slice={{[0:1]}}"
    )
    assert peak(chain) == (3 * A, "b")  # the input and two of the others
    kept = (
        f"a = {V} negate(p)\n  b = {V} negate(a)\n  c = {V} add(a, b)\n  ROOT r = f32[1]{{0}} slice(c), slice={{[0:1]}}"
    )
    assert peak(kept) == (4 * A, "c")


def test_outputs_count_twice_at_the_end() -> None:
    assert peak(f"ROOT a = {V} negate(p)") == (3 * A, "a")


def test_a_view_keeps_its_memory() -> None:
    body = f"a = {V} negate(p)\n  b = f32[10,100]{{1,0}} bitcast(a)\n  c = {V} negate(p)\n"
    body += "  d = f32[10,100]{1,0} bitcast(c)\n  e = f32[10,100]{1,0} add(b, d)\n  ROOT r = f32[1,1]{1,0} slice(e), slice={[0:1],[0:1]}"
    assert peak(body) == (4 * A, "e")


def test_a_loop_holds_its_state_and_the_next() -> None:
    found, at = peak(WHILE, LOOP)
    assert 4 * A <= found < 5 * A + 100 and at in ("w", "x", "j")


def test_a_module_that_holds_more_is_refused_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    module = hlo_opt.parse(
        f"HloModule m\n\nENTRY e {{\n  p = {V} parameter(0)\n  ROOT r = {V} negate(p)\n}}\n", "m.hlo"
    )
    monkeypatch.setenv("CXX", "/nonexistent/compiler")
    for backend in ("host", "numpy"):
        with pytest.raises(EvaluationError, match=r"negate r: the run would hold 11.7 KiB \(12000 bytes\)") as caught:
            hlo_opt.compile(module, backend=backend, memory_limit=11_999)
        assert (caught.value.code, caught.value.line) == ("HLO402", 5)
    check_schedule(build_schedule(module), 12_000)
    check_schedule(build_schedule(module), None)


@pytest.mark.parametrize("backend", ["numpy", "host"])
def test_an_endless_loop_ends_on_every_backend(backend: str) -> None:
    if backend == "host" and not has_compiler():
        pytest.skip("no C++ compiler")
    module = hlo_opt.parse(f"HloModule m\n{LOOP}\nENTRY e {{\n  p = {V} parameter(0)\n  {WHILE}\n}}\n")
    executable = hlo_opt.compile(module, backend=backend, max_steps=50)
    for _ in range(2):  # the count starts anew with each run
        with pytest.raises(EvaluationError, match="while w: the loop goes on after 50 iterations") as caught:
            executable(np.ones(1000, np.float32))
        assert caught.value.code == "HLO402"
    ending = hlo_opt.parse(
        f"HloModule m\n{LOOP.replace('constant(-1)', 'constant(50)')}\nENTRY e {{\n  p = {V} parameter(0)\n  {WHILE}\n}}\n"
    )
    assert hlo_opt.compile(ending, backend=backend, max_steps=50)(np.ones(1000, np.float32))[0][0] == 51
