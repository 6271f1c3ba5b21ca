"""Kernels for a range of sizes: which sizes share them, and that they compute what kernels of one size do."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.sizes.resize import SizeRequest, tie
from hlo_opt.diag import UsageError
from hlo_opt.ir.size import Size
from hlo_opt.runtime.check.sizes import check_sizes, tried
from hlo_opt.runtime.family.emission import emit_family, runs, sizes_of
from hlo_opt.runtime.family.kernels import Family, SizedExecutable, family
from hlo_opt.runtime.schedule import build_schedule

SOFTMAX = """
HloModule m

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY e {
  x = f32[6,40]{1,0} parameter(0)
  zero = f32[] constant(0)
  y = f32[6,40]{1,0} exponential(x)
  s = f32[6]{0} reduce(y, zero), dimensions={1}, to_apply=add
  b = f32[6,40]{1,0} broadcast(s), dimensions={0}
  d = f32[6,40]{1,0} divide(y, b)
  columns = f32[40]{0} reduce(d, zero), dimensions={0}, to_apply=add
  turned = f32[40,6]{1,0} transpose(d), dimensions={1,0}
  doubled = f32[40,6]{1,0} add(turned, turned)
  ROOT r = (f32[6,40]{1,0}, f32[40]{0}, f32[40,6]{1,0}) tuple(d, columns, doubled)
}
"""


def made(text: str, request: str) -> Family:
    fused, _ = hlo_opt.fuse(hlo_opt.parse(text))
    return family(tie(fused, [SizeRequest.of(request)]))


@pytest.fixture(scope="module")
def softmax() -> Family:
    return made(SOFTMAX, "p0:0=1..70")


def test_every_size_has_one_variant(softmax: Family) -> None:
    sizes = sorted(size for variant in softmax.variants for size in variant.sizes)
    assert sizes == list(range(1, 71))
    assert len(softmax.variants) < 20


@pytest.mark.parametrize("size", [1, 2, 33, 64, 70])
def test_a_kernel_is_the_one_of_that_size(softmax: Family, size: int) -> None:
    """Written for the range, then put at a size, it launches as a plan for that size does."""
    alone = build_schedule(softmax.ties.at(size))
    schedule = softmax.schedule(size)
    for own, other in zip(schedule.kernels, alone.kernels, strict=True):
        assert own.kind == other.kind
        assert [str(s) for s in (*own.inputs, *own.outputs)] == [str(s) for s in (*other.inputs, *other.outputs)]
        assert not isinstance(own.launch.grid, Size) and own.launch.block >= other.launch.block


def test_it_computes_what_the_module_does_at_each_size(softmax: Family) -> None:
    original = tie(hlo_opt.parse(SOFTMAX), [SizeRequest.of("p0:0=1..70")])
    reports = check_sizes(original, SizedExecutable(softmax, "host"), tried(original))
    assert list(reports) == [1, 6, 35, 69, 70] and all(report.ok for report in reports.values())


def test_blocks_that_meet_count_a_size() -> None:
    """A sum over all rows is one of parts, whose number the size says."""
    text = (
        SOFTMAX[: SOFTMAX.index("ENTRY")]
        + """ENTRY e {
  x = f32[640,1000]{1,0} parameter(0)
  y = f32[640]{0} parameter(1)
  z = f32[] constant(0)
  b = f32[640,1000]{1,0} broadcast(y), dimensions={0}
  d = f32[640,1000]{1,0} subtract(x, b)
  ROOT s = f32[] reduce(d, z), dimensions={0,1}, to_apply=add
}
"""
    )
    of_sizes = made(text, "p0:0=600..640")
    original = tie(hlo_opt.parse(text), [SizeRequest.of("p0:0=600..640")])
    reports = check_sizes(original, SizedExecutable(of_sizes, "host"), tried(original))
    assert all(report.ok for report in reports.values())


def test_inputs_say_the_size(softmax: Family) -> None:
    executable = SizedExecutable(softmax, "numpy")
    outputs = executable(np.zeros((3, 40), np.float32))
    assert [o.shape for o in outputs] == [(3, 40), (40,), (40, 3)]
    with pytest.raises(UsageError, match="sizes are 1 to 70"):
        executable(np.zeros((71, 40), np.float32))


def test_a_wrong_kernel_is_noticed(softmax: Family) -> None:
    """The check is against the original module, not against the family's own."""
    other = SOFTMAX.replace("divide(y, b)", "multiply(y, b)")
    original = tie(hlo_opt.parse(other), [SizeRequest.of("p0:0=1..70")])
    reports = check_sizes(original, SizedExecutable(softmax, "host"), [2, 35])
    assert not any(report.ok for report in reports.values())


def test_the_folder_has_kernels_and_expressions(softmax: Family, tmp_path: Path) -> None:
    emit_family(softmax, tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    range_ = {"size": "size", "least": 1, "most": 70, "sizes": [[1, 70, 1]], "of": ["p0:0"]}
    assert manifest["dynamic"] == range_
    assert sorted(n for v in manifest["variants"] for n in sizes_of(v["sizes"])) == list(range(1, 71))
    for kernel in manifest["kernels"]:
        text = (tmp_path / "out" / kernel["file"]).read_text()
        assert kernel["symbol"] in text and ("const int size)" in text) == kernel["takes_size"]
        for variant in manifest["variants"]:
            if any(launch["symbol"] == kernel["symbol"] for launch in variant["launches"]):
                size = variant["sizes"][0][0]
                grid = eval(str(kernel["grid"]).replace("/", "//"), {"size": size})
                assert grid == next(
                    k.launch.grid for k in softmax.schedule(size).kernels if k.symbol == kernel["symbol"]
                )


def test_kernels_for_few_sizes_each_are_named(softmax: Family) -> None:
    """A row that is rolled by one: planning counts its elements one by one."""
    assert softmax.many_texts == []
    rolled = made(
        "HloModule m\nENTRY e {\n  x = f32[65,96] parameter(0)\n  a = f32[1,96] slice(x), slice={[64:65], [0:96]}\n"
        "  b = f32[64,96] slice(x), slice={[0:64], [0:96]}\n  c = f32[65,96] concatenate(a, b), dimensions={0}\n"
        "  d = f32[65,96] add(c, x)\n  e = f32[65,96] slice(d), slice={[0:65], [0:96]}\n"
        "  f = f32[65,1] slice(d), slice={[0:65], [95:96]}\n  g = f32[65,95] slice(d), slice={[0:65], [0:95]}\n"
        "  h = f32[65,96] concatenate(f, g), dimensions={1}\n  ROOT r = f32[65,96] add(d, h)\n}\n",
        "p0:0=..12",
    )
    ((_, plan, texts),) = rolled.many_texts
    assert plan == "loop" and texts > 8


def test_runs_are_short_and_complete() -> None:
    for sizes in ([1], [1, 2, 3, 7], [4, 8, 12, 13, 14, 30], list(range(3, 90, 4))):
        assert sizes_of(runs(sizes)) == sizes
    assert runs(list(range(4, 65, 4))) == [[4, 64, 4]]
