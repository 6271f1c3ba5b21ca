"""What XLA's kernels and a call of ours are estimated to take."""

from __future__ import annotations

import pytest

from hlo_opt.analysis.targets import target
from hlo_opt.fusion.state import FusionState
from hlo_opt.fusion.summary import module_summary
from hlo_opt.jax.device import steps_of
from hlo_opt.jax.estimates import CALL_US, XLA_AHEAD, XLA_BY_KIND, call_us, least_us, xla_us
from hlo_opt.runtime.schedule import build_schedule
from hlo_opt.text import parse

FUSED = """HloModule m
f {
  x = f32[4096,1024] parameter(0)
  ROOT y = f32[4096,1024] negate(x)
}
ENTRY e {
  p = f32[4096,1024] parameter(0)
  ROOT r = f32[4096,1024] fusion(p), kind=KIND, calls=f
}
"""
HELD = """HloModule m, input_output_alias={ {0}: (0, {}, may-alias) }
ENTRY e {
  p = f32[4096,1024] parameter(0)
  q = f32[4096,1024] parameter(1)
  a = f32[4096,1024] FUNCTION
  ROOT r = (f32[4096,1024]) tuple(a)
}
"""


def estimated_us(kind: str) -> float:
    return xla_us(parse(FUSED.replace("kind=KIND", f"kind={kind}")), target("h200"))


def by_kind_us(factor: float) -> float:
    """What a kernel is estimated to take that takes so many times as long as one of no kind in particular, but for its
    launch."""
    module, device = parse(FUSED), target("h200")
    launch = FusionState(module, device).prices.of(module.entry.root).launch
    return launch + factor * (estimated_us("kOutput") - launch)


TWO = "q = f32[64] fusion(p), kind=kLoop, calls=f\n  ROOT r = f32[64] fusion(q)"
LAST_SUMS = """HloModule m
add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT t = f32[] add(x, y)
}
f {
  p = f32[4096,128,16] parameter(0)
  z = f32[] constant(0)
  w = f32[4096,128,16] reduce-window(p, z), window={size=1x1x16 pad=0_0x0_0x15_0}, to_apply=add
  ROOT s = f32[4096,128,1] slice(w), slice={[0:4096], [0:128], [15:16]}
}
ENTRY e {
  p = f32[4096,128,16] parameter(0)
  ROOT r = f32[4096,128,1] fusion(p), kind=kLoop, calls=f
}
"""
"""The last of every 16 cumulative sums: it took XLA 10.7 us on an H200."""


COLUMNS = """HloModule m
add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT t = f32[] add(x, y)
}
f {
  p = f32[2,48,4] parameter(0)
  z = f32[] constant(0)
  ROOT s = f32[2,4] reduce(p, z), dimensions={1}, to_apply=add
}
ENTRY e {
  p = f32[2,48,4] parameter(0)
  ROOT r = f32[2,4] fusion(p), kind=kLoop, calls=f
}
"""


@pytest.mark.parametrize(("kind", "factor"), [("kLoop", XLA_BY_KIND["kLoop"]), ("kInput", XLA_BY_KIND["kInput"])])
def test_xlas_kernels_by_kind(kind: str, factor: float) -> None:
    assert estimated_us(kind) == pytest.approx(by_kind_us(factor))


def test_a_kernel_of_triton() -> None:
    config = 'kCustom, backend_config={"fusion_backend_config":{"kind":"__triton"}}'
    assert estimated_us(config) == pytest.approx(by_kind_us(XLA_BY_KIND["__triton"]))


def test_xla_reads_neighbours_in_one_access() -> None:
    """The price of our plan counts the lines that each of its accesses touches."""
    device = target("h200")
    ours, xla = module_summary(parse(LAST_SUMS), device).est_us, xla_us(parse(LAST_SUMS), device)
    assert ours > 30 and 8 < xla < 15


@pytest.mark.parametrize("folded", [4, 48])
def test_xla_loads_what_a_thread_folds_together(folded: int) -> None:
    """Two such loops over 48 elements of a decoder took 1.1 and 1.2 us on an H200 beside their launches."""
    module, device = parse(COLUMNS.replace("48", str(folded))), target("h200")
    ours, xla = module_summary(module, device).est_us, xla_us(module, device)
    assert (xla < ours) == (folded > XLA_AHEAD)
    assert device.kernel_launch_us < xla < 3


@pytest.mark.parametrize(
    ("text", "launches"),
    [
        (FUSED.replace("4096,1024", "64"), 0),
        (FUSED, 1),  # another plan may be quicker
        (FUSED.replace("4096,1024", "64").replace("ROOT r = f32[64] fusion(p)", TWO), 1),
    ],
)
def test_the_least_time_of_a_call(text: str, launches: int) -> None:
    module, device = parse(text.replace("KIND", "kLoop")), target("h200")
    kernel = device.kernel_launch_us if launches else module_summary(module, device).est_us
    assert least_us(module, device) == pytest.approx(CALL_US + kernel)


@pytest.mark.parametrize(("function", "copies"), [("subtract(p, q)", 0), ("reverse(p), dimensions={0}", 1)])
def test_a_call_pays_for_what_it_copies(function: str, copies: int) -> None:
    device = target("h200")
    steps = steps_of(build_schedule(parse(HELD.replace("FUNCTION", function))))
    copied = 2e6 * 4096 * 1024 * 4 / device.copied_per_second + device.kernel_launch_us
    assert call_us(steps, device) == pytest.approx(CALL_US + copies * copied)
