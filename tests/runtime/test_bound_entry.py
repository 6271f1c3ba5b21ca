"""`Executable.on_device` of an entry that is one stretch: what it reads in place, allocates, copies and captures."""

import types

import numpy as np
import pytest

import hlo_opt
from hlo_opt.ir import Module
from hlo_opt.runtime.cupy import bound_entry
from hlo_opt.runtime.executable import Executable
from hlo_opt.runtime.host.library import has_compiler

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

STEP = """HloModule m, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }
sum {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}
ENTRY e {
  w = f32[64]{0} parameter(0)
  v = f32[64]{0} parameter(1)
  g = f32[64]{0} parameter(2)
  a = f32[64]{0} add(v, g)
  b = f32[64]{0} subtract(w, a)
  c = f32[64]{0} exponential(g)
  zero = f32[] constant(0)
  s = f32[] reduce(c, zero), dimensions={0}, to_apply=sum
  ROOT r = (f32[64]{0}, f32[64]{0}, f32[]) tuple(b, a, s)
}
"""


def step() -> tuple[Module, Executable, list[np.ndarray], list[np.ndarray]]:
    """A module, ready with a kernel per instruction, its inputs, and what it gives."""
    module = hlo_opt.parse(STEP)
    given = [np.arange(64, dtype=np.float32) / n for n in (3, 5, 70)]
    return module, hlo_opt.compile(module, "cupy"), given, hlo_opt.compile(module, "host")(*given)


def same(outputs: list, want: list[np.ndarray], fake: types.ModuleType) -> bool:  # type: ignore[type-arg]
    return all(np.allclose(fake.asnumpy(a), b, rtol=1e-6, atol=0) for a, b in zip(outputs, want, strict=True))


def test_inputs_that_are_kept_are_neither_copied_nor_changed(
    fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, executable, given, want = step()
    arrays = [fake.asarray(a) for a in given]
    monkeypatch.setattr(fake.cuda.runtime, "memcpyAsync", None)
    for _ in range(4):
        assert same(executable.on_device(*arrays), want, fake)
    report = executable.report()
    assert same(arrays, given, fake) and report["graphs"]["replayed"] == report["launches"] == 4


def test_a_donated_input_that_others_share_is_copied_first(fake: types.ModuleType) -> None:
    module, executable, given, _ = step()
    w, g = (fake.asarray(a) for a in given[:2])
    want = hlo_opt.compile(module, "host")(given[0], given[1], given[1])
    for _ in range(3):
        outputs = executable.on_device(w.copy(), g, g, donate=True)
        assert same(outputs, want, fake) and not np.may_share_memory(outputs[1], g)
        assert np.array_equal(fake.asnumpy(g), given[1])
    taken = [fake.asarray(a) for a in given]
    assert np.may_share_memory(executable.on_device(*taken, donate=True)[1], taken[1])


def test_outputs_of_one_size_are_allocated_together_up_to_a_bound(
    fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, executable, given, want = step()
    arrays = [fake.asarray(a) for a in given]
    executable.on_device(*arrays)
    fake.allocated.clear()
    held = executable.on_device(*arrays)
    assert 512 in fake.allocated  # two arrays of 256 bytes
    monkeypatch.setattr(bound_entry, "MOST_BYTES", 256)
    apart = step()[1]
    fake.allocated.clear()
    assert same(apart.on_device(*arrays), want, fake) and 512 not in fake.allocated
    assert same(held, want, fake)


def test_results_that_somebody_holds_stay_as_they_are(fake: types.ModuleType) -> None:
    _, executable, given, _ = step()
    host, held = hlo_opt.compile(executable.module, "host"), []
    for n in range(6):
        inputs = [a + n for a in given]
        held.append((executable.on_device(*(fake.asarray(a) for a in inputs)), host(*inputs)))
    assert all(same(outputs, want, fake) for outputs, want in held)


def test_columns_first_is_read_and_written_as_it_lies(fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    module = hlo_opt.parse(
        "HloModule m\nENTRY e {\n  p = f32[3,5]{0,1} parameter(0)\n  ROOT n = f32[3,5]{0,1} negate(p)\n}\n"
    )
    executable = hlo_opt.compile(module, "cupy")
    rows = np.arange(15, dtype=np.float32).reshape(3, 5)
    columns = fake.asarray(rows.T.copy()).transpose()
    before = len(fake.allocated)
    (got,) = executable.on_device(columns)
    assert np.array_equal(fake.asnumpy(got), -rows) and got.strides == (4, 12) and len(fake.allocated) == before + 1
    (again,) = executable.on_device(got)
    assert np.array_equal(fake.asnumpy(again), rows)
    (other,) = executable.on_device(fake.asarray(rows))  # rows first: moved
    assert np.array_equal(fake.asnumpy(other), -rows)


def test_without_memory_for_all_at_once_it_runs_step_by_step(
    fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(size: int) -> None:
        raise fake.cuda.memory.OutOfMemoryError("Out of memory allocating the outputs")

    _, executable, given, want = step()
    monkeypatch.setattr(fake.cuda, "alloc", full)
    assert same(executable.on_device(*(fake.asarray(a) for a in given)), want, fake)


def test_without_graphs_or_with_a_limit_of_memory_the_results_are_the_same(fake: types.ModuleType) -> None:
    module, _, given, want = step()
    arrays = [fake.asarray(a) for a in given]
    for executable in (
        hlo_opt.compile(module, "cupy", graphs=False),
        hlo_opt.compile(module, "cupy", memory_limit=1 << 20),
    ):
        for _ in range(3):
            assert same(executable.on_device(*arrays), want, fake)
