"""A few planted faults: `bisect` finds the step, `reduce` a small module (scripts/reduce_faults.py)."""

import pytest

import hlo_opt
from hlo_opt.runtime.schedule import build_schedule
from scripts import reduce_faults
from scripts.kernel_faults import form, sites

TEXT = """HloModule m
ENTRY e {
  p = f32[64]{0} parameter(0)
  n = f32[64]{0} negate(p)
  ROOT r = f32[64]{0} sine(n)
}
"""


@pytest.mark.parametrize("seed", [0, 3])
def test_an_operation_that_is_another_from_some_pass_on(seed):
    result = reduce_faults.in_a_series(seed, jobs=2)
    assert result.is_right and result.instructions <= 3


def test_a_mistake_in_kernels_is_found_and_made_small(tmp_path):
    file = tmp_path / "m.hlo"
    file.write_text(TEXT)
    (kernel,) = build_schedule(hlo_opt.fuse(hlo_opt.parse(TEXT))[0]).kernels
    lines = kernel.source.split("\n")
    stores = [n for n, line in enumerate(lines) if "out0[" in line and " = " in line]
    place = next(s for s in sites(lines, stores) if s.kind == "statement")
    at = list(sites(lines, [place.line])).index(place)
    fault = reduce_faults.InKernels(form(lines[place.line]), "statement", at, 0)
    assert fault.planted(kernel.source) != kernel.source
    result = reduce_faults._measured("kernels", "a lost store", reduce_faults.ROOT, [str(file)], 2, fault, {})
    assert result is not None and result.is_good, result
