"""Texts that people write: names used twice, computations called twice."""

import pytest

import hlo_opt
from hlo_opt.diag import VerifyError
from hlo_opt.fusion.separate import separate
from hlo_opt.ir import Module

TEXT = """\
HloModule m

body {
  x = f32[8]{0} parameter(0)
  y = f32[8]{0} negate(x)
  ROOT r = f32[8]{0} add(y, x)
}

ENTRY e {
  x = f32[8]{0} parameter(0)
  y = f32[8]{0} fusion(x), kind=kLoop, calls=body
  z = f32[8]{0} fusion(y), kind=kLoop, calls=body
  ROOT r = f32[8]{0} fusion(z), kind=kLoop, calls=body
}
"""


def names(module: Module) -> list[str]:
    return [i.name for c in module.computations for i in c.instructions]


def test_names_become_unique_and_the_entry_keeps_its_own():
    module = hlo_opt.parse(TEXT)
    separate(module)
    assert len(set(names(module))) == len(names(module))
    assert [i.name for i in module.entry.instructions] == ["x", "y", "z", "r"]
    assert hlo_opt.parse(str(module))


def test_every_fusion_gets_its_own_computation():
    module = hlo_opt.parse(TEXT)
    separate(module)
    bodies = [i.called_by("calls") for i in module.entry.instructions if i.opcode == "fusion"]
    assert len({b.name for b in bodies}) == len(bodies) == 3
    hlo_opt.verify(module)


def test_what_is_separate_already_stays():
    module = hlo_opt.parse(TEXT)
    separate(module)
    once = str(module)
    separate(module)
    assert str(module) == once


@pytest.mark.parametrize("passes", ["fusion-merger", "instruction-fusion,fusion-merger,cse,dce", None])
def test_shared_computations_are_merged_rightly(passes: str | None):
    fused, _ = hlo_opt.fuse(hlo_opt.parse(TEXT), passes=passes, simplify="never")
    hlo_opt.verify(fused)
    assert sum(i.opcode == "fusion" for i in fused.entry.instructions) == 1


def test_there_is_a_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("hlo_opt.fusion.separate.GROWTH_LIMIT", 4)
    with pytest.raises(VerifyError, match="share"):
        separate(hlo_opt.parse(TEXT))
