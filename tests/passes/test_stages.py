"""When a module is simplified before fusing."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.diag import UsageError
from hlo_opt.fusion.proof import prove_same_graph
from hlo_opt.ir import Module
from hlo_opt.passes.run import run
from hlo_opt.passes.stages import first_stage, is_raw
from tests.loops import loop

RAW = """HloModule m

ENTRY e {
  x = f32[4,3]{1,0} parameter(0)
  a = f32[4,3]{1,0} negate(x)
  b = f32[4,3]{1,0} negate(a)
  c = f32[12]{0} OPCODE(b)
  ROOT d = f32[12]{0} abs(c)
}
"""


def names(simplify: str, opcode: str = "reshape", own_passes: bool = False) -> list[str]:
    stage = first_stage(hlo_opt.parse(RAW.replace("OPCODE", opcode)), simplify, own_passes=own_passes)
    return [p.name for p in stage.passes()]


def test_a_module_with_a_bitcast_is_not_raw() -> None:
    assert is_raw(hlo_opt.parse(RAW.replace("OPCODE", "reshape")))
    assert not is_raw(hlo_opt.parse(RAW.replace("OPCODE", "bitcast")))


def test_auto_simplifies_raw_modules_before_presets_only() -> None:
    assert "algebraic-simplifier" in names("auto")
    for few in (names("auto", "bitcast"), names("auto", own_passes=True)):
        assert few == ["inline", "cse", "dce"]
    assert "algebraic-simplifier" in names("always", "bitcast", own_passes=True)
    assert names("never") == []
    with pytest.raises(UsageError):
        names("sometimes")


@pytest.mark.parametrize(("simplify", "left"), [("auto", 0), ("always", 0), ("never", 2)])
def test_fuse_simplifies_first(simplify: str, left: int) -> None:
    fused, _ = hlo_opt.fuse(hlo_opt.parse(RAW.replace("OPCODE", "reshape")), simplify=simplify)
    assert sum(i.opcode == "negate" for c in fused.computations for i in c.instructions) == left
    own, _ = hlo_opt.fuse(hlo_opt.parse(RAW.replace("OPCODE", "reshape")), passes="dce", simplify="auto")
    assert [i.opcode for i in own.entry.instructions].count("negate") == 2


def test_a_preset_rewrites_no_loop_where_nothing_is_to_be_simplified() -> None:
    module = hlo_opt.parse(loop(["f32[8]"], ["y = f32[8] sine(x1)"], ["y"], rounds=3))
    assert not holds_loop(hlo_opt.fuse(module)[0])  # three rounds, one after another
    outcome = run(module, simplify="never")
    assert holds_loop(outcome.module)
    prove_same_graph(module, outcome.module)
    own = hlo_opt.fuse(module, passes="while-loop-unroller", simplify="never")[0]
    assert not holds_loop(own)  # who names a pass gets it


def holds_loop(module: Module) -> bool:
    return any(i.opcode == "while" for c in module.computations for i in c.instructions)
