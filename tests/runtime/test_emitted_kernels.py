"""Kernels of equal structure are emitted once, in one schedule and over the schedules of copies."""

import pytest

from hlo_opt import parse
from hlo_opt.codegen.emit import emit_kernel
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.ir import edit
from hlo_opt.plans.plan import Plan
from hlo_opt.runtime.schedule import EmittedKernels, build_schedule, lowering

LAYERS = """HloModule layers

ENTRY main {
  p0 = f32[64] parameter(0)
  c0 = f32[] constant(1)
  c1 = f32[] constant(2)
  one = f32[64] broadcast(c0), dimensions={}
  two = f32[64] broadcast(c1), dimensions={}
  a = f32[64] add(p0, one)
  b = f32[64] add(a, two)
  c = f32[64] add(b, b)
  d = f32[64] add(c, c)
  ROOT e = f32[64] exponential(d)
}
"""


@pytest.fixture
def emissions(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans that kernels are emitted from."""
    emitted: list[Plan] = []

    def emit(plan: Plan, *in_place: tuple[tuple[int, int], ...]) -> Kernel:
        emitted.append(plan)
        return emit_kernel(plan, *in_place)

    monkeypatch.setattr(lowering, "emit_kernel", emit)
    return emitted


def test_a_structure_is_emitted_once(emissions: list[Plan]) -> None:
    """Broadcasts of two constants, sums of two values and of a value and itself, an exponential."""
    schedule = build_schedule(parse(LAYERS))
    assert len(emissions) == 5
    assert len(schedule.kernels) == 3  # of these, broadcasts and sums read their operands as arrays: one text each


def test_copies_share_what_was_emitted(emissions: list[Plan]) -> None:
    module, known = parse(LAYERS), EmittedKernels()
    first = build_schedule(module, emitted=known)
    del emissions[:]
    again = build_schedule(edit.clone_module(module), emitted=known)
    assert not emissions
    assert [k.source for k in again.kernels] == [k.source for k in first.kernels]
