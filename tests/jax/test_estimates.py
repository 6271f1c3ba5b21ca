"""What XLA's kernels and a call of ours are estimated to take."""

from __future__ import annotations

import pytest

from hlo_opt.analysis.targets import target
from hlo_opt.fusion.summary import module_summary
from hlo_opt.jax.device import steps_of
from hlo_opt.jax.estimates import CALL_US, XLA_BY_KIND, call_us, xla_us
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


@pytest.mark.parametrize(
    ("kind", "factor"),
    [("kLoop", XLA_BY_KIND["kLoop"]), ("kInput", XLA_BY_KIND["kInput"]), ("kOutput", 1.0)],
)
def test_xlas_kernels_by_kind(kind: str, factor: float) -> None:
    module, device = parse(FUSED.replace("KIND", kind)), target("h200")
    assert xla_us(module, device) == pytest.approx(factor * module_summary(module, device).est_us)


def test_a_kernel_of_triton() -> None:
    config = 'kCustom, backend_config={"fusion_backend_config":{"kind":"__triton"}}'
    module, device = parse(FUSED.replace("kind=KIND, calls=f", f"calls=f, kind={config}")), target("h200")
    assert xla_us(module, device) == pytest.approx(XLA_BY_KIND["__triton"] * module_summary(module, device).est_us)


@pytest.mark.parametrize(("function", "copies"), [("subtract(p, q)", 0), ("reverse(p), dimensions={0}", 1)])
def test_a_call_pays_for_what_it_copies(function: str, copies: int) -> None:
    device = target("h200")
    steps = steps_of(build_schedule(parse(HELD.replace("FUNCTION", function))))
    copied = 2e6 * 4096 * 1024 * 4 / device.copied_per_second + device.kernel_launch_us
    assert call_us(steps, device) == pytest.approx(CALL_US + copies * copied)
