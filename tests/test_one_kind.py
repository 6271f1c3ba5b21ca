"""Adding a kind of kernel is two files and a row: a part with its matcher, an emitter of the same name, and the row of
the table. Everything else follows from it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.targets import DeviceTarget, target
from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.emit import emitter
from hlo_opt.codegen.indices import block_of, thread_of
from hlo_opt.codegen.tree import Leave
from hlo_opt.codegen.vectors import Targets
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import Variable, add, constant, multiply
from hlo_opt.ops.code import code
from hlo_opt.plans import plan, region_of
from hlo_opt.plans.kinds import KINDS, Kind
from hlo_opt.plans.plan import Plan, Region, Segment
from hlo_opt.plans.price import price
from hlo_opt.plans.sketch import Sketch
from hlo_opt.runtime.host.library import KernelForm
from scripts.launches import rows

TEXT = """HloModule m

ENTRY e {
  p = f32[1000]{0} parameter(0)
  n = f32[1000]{0} negate(p)
  ROOT r = f32[1000]{0} reverse(n), dimensions={0}
}
"""


@dataclass(frozen=True)
class Mirror:
    """An output of one dimension that is reversed: a thread writes an element and the one across from it."""

    kind: ClassVar[str] = "mirror"
    hero: Instruction
    roots: tuple[int, ...]

    @property
    def pairs(self) -> int:
        return self.hero.shape.element_count // 2

    @property
    def block(self) -> int:
        return 64

    def segment(self, block: int) -> Segment[Mirror]:
        return Segment(self, -(-self.pairs // block))

    def shared_bytes(self, block: int) -> int:
        return 0


def match(region: Region, roots: Sequence[int], target: DeviceTarget, room: int) -> tuple[list[Mirror], list[int]]:
    found = [n for n in roots if region.roots[n].opcode == "reverse" and region.roots[n].shape.rank == 1]
    return [Mirror(region.roots[n], (n,)) for n in found], [n for n in roots if n not in found]


def emit(builder: Builder, plan: Plan, segment: Segment[Mirror], first_block: int, targets: Targets) -> None:
    part, block = segment.part, plan.launch.block
    number = builder.declare("pair", add(multiply(block_of(first_block, segment.blocks), block), thread_of(block)))
    builder.add(Leave(code("{} >= {}", number, part.pairs)))
    near = Variable(0, part.pairs - 1, number.name)
    far = add(constant(2 * part.pairs - 1), multiply(near, -1))
    ((pointer, shape),) = targets[part.roots[0]]
    for index in ((near,), (far,)):
        builder.store(pointer, shape, index, builder.value(part.hero, index))


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module = ModuleType("hlo_opt.codegen.mirror")
    module.emit = emit  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hlo_opt.codegen.mirror", module)
    row = Kind("mirror", frozenset({"reverse"}), 3, match)
    KINDS.insert(0, row)
    yield
    KINDS.remove(row)
    emitter.cache_clear()


@pytest.mark.usefixtures("mirror")
@pytest.mark.parametrize("form", ["lanes", "plain"])
def test_it_is_planned_printed_and_run(form: KernelForm) -> None:
    given = np.arange(1000, dtype=np.float32)
    fused, _ = hlo_opt.fuse(hlo_opt.parse(TEXT))
    executable = hlo_opt.compile(fused, backend="host", form=form)
    (got,) = executable(given)
    np.testing.assert_array_equal(got, -given[::-1])
    assert executable.report()["fallbacks"] == {}


@pytest.mark.usefixtures("mirror")
def test_it_is_emitted_and_in_the_manifest(tmp_path: Path) -> None:
    fused, _ = hlo_opt.fuse(hlo_opt.parse(TEXT))
    hlo_opt.emit(fused, tmp_path / "out")
    (kernel,) = json.loads((tmp_path / "out" / "manifest.json").read_text())["kernels"]
    assert kernel["symbol"].startswith("mirror_reverse_") and (kernel["grid"], kernel["block"]) == (8, 64)
    text = (tmp_path / "out" / kernel["file"]).read_text()
    assert "if (pair >= 500) return;" in text and text.count("out0[") == 2


@pytest.mark.usefixtures("mirror")
def test_other_outputs_are_left_to_other_kinds(tmp_path: Path) -> None:
    fused, _ = hlo_opt.fuse(hlo_opt.parse(TEXT.replace("reverse(n), dimensions={0}", "abs(n)")))
    hlo_opt.emit(fused, tmp_path / "out")
    (kernel,) = json.loads((tmp_path / "out" / "manifest.json").read_text())["kernels"]
    assert kernel["symbol"].startswith("loop_")


@pytest.mark.usefixtures("mirror")
def test_it_is_priced_and_explained_by_its_plan() -> None:
    fused, _ = hlo_opt.fuse(hlo_opt.parse(TEXT))
    (row,) = rows(fused, "h100_sxm")
    assert row.agrees and row.kind == "mirror" and row.price == (8, 64, 0)
    made = plan(region_of(fused, fused.entry.root), target("h100_sxm"))
    assert (
        isinstance(made, Plan) and price(made, target("h100_sxm")).least == 2 * 4000
    )  # that it has no walks does not matter
    state = FusionState(fused, target("h100_sxm"))
    found = state.sketch(state.structure(fused.entry.root), lambda: state.cluster(fused.entry.root))
    assert isinstance(found, Sketch) and found.kind == "mirror"  # what rules and reasons name
