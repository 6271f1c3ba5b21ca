"""Texts that people write: names used twice, computations called twice."""

import importlib

import numpy as np
import pytest

import hlo_opt
from hlo_opt.diag import HloOptError, VerifyError
from hlo_opt.fusion.preparation import prepare
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
    prepare(module)
    assert len(set(names(module))) == len(names(module))
    assert [i.name for i in module.entry.instructions] == ["x", "y", "z", "r"]
    assert hlo_opt.parse(str(module))


def test_every_fusion_gets_its_own_computation():
    module = hlo_opt.parse(TEXT)
    prepare(module)
    bodies = [i.called_by("calls") for i in module.entry.instructions if i.opcode == "fusion"]
    assert len({b.name for b in bodies}) == len(bodies) == 3
    hlo_opt.verify(module)


def test_a_copy_keeps_its_order_and_its_attributes():
    text = TEXT.replace(
        "ROOT r = f32[8]{0} add(y, x)",
        "w = f32[8]{0} exponential(x), control-predecessors={y}\n  ROOT r = f32[8]{0} add(y, w)",
    )
    module = hlo_opt.parse(text)
    prepare(module)
    bodies = [c for c in module.computations if c is not module.entry]
    assert len(bodies) == 3
    for body in bodies:
        (after,) = (i for i in body.instructions if i.opcode == "exponential")
        assert [p.opcode for p in after.control_predecessors] == ["negate"]
        assert all(p.computation is body for p in after.control_predecessors)


def test_what_preparing_breaks_is_seen(monkeypatch: pytest.MonkeyPatch):
    def broken(module: Module) -> bool:
        changed = prepare(module)
        fusion = next(i for i in module.entry.instructions if i.opcode == "fusion")
        inner = next(i for i in fusion.called_by("calls").instructions if i.opcode == "negate")
        inner.opcode = "exponential"
        return changed

    monkeypatch.setattr(importlib.import_module("hlo_opt.passes.run"), "prepare", broken)
    with pytest.raises(HloOptError, match="HLO600"):
        hlo_opt.fuse(hlo_opt.parse(TEXT), simplify="never")


def test_what_is_prepared_already_stays():
    module = hlo_opt.parse(TEXT)
    prepare(module)
    once = str(module)
    prepare(module)
    assert str(module) == once


@pytest.mark.parametrize("passes", ["fusion-merger", "instruction-fusion,fusion-merger,cse,dce", None])
def test_shared_computations_are_merged_rightly(passes: str | None):
    fused, _ = hlo_opt.fuse(hlo_opt.parse(TEXT), passes=passes, simplify="never")
    hlo_opt.verify(fused)
    assert sum(i.opcode == "fusion" for i in fused.entry.instructions) == 1


def test_there_is_a_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("hlo_opt.fusion.preparation.GROWTH_LIMIT", 4)
    with pytest.raises(VerifyError, match="share"):
        prepare(hlo_opt.parse(TEXT))


MISMATCHED = """HloModule m

inner {
  p = f32[4,8]{0,1} parameter(0)
  n = f32[4,8]{0,1} negate(p)
  ROOT a = f32[4,8]{0,1} abs(n)
}

ENTRY e {
  x = f32[4,8]{1,0} parameter(0)
  f = f32[4,8]{0,1} fusion(x), kind=kLoop, calls=inner
  ROOT t = f32[4,8]{0,1} tanh(f)
}
"""


def test_a_fusion_that_takes_another_layout_is_fused_anew():
    fused, _ = hlo_opt.fuse(hlo_opt.parse(MISMATCHED), passes="priority-fusion", simplify="never")
    assert [i.opcode for i in fused.entry.instructions] == ["parameter", "fusion"]


def test_one_that_must_stay_as_it_is_stays():
    text = MISMATCHED.replace(
        "kind=kLoop", 'kind=kCustom, backend_config={"fusion_backend_config":{"kind":"__triton_gemm"}}'
    )
    fused, _ = hlo_opt.fuse(hlo_opt.parse(text), passes="priority-fusion", simplify="never")
    assert [i.opcode for i in fused.entry.instructions] == ["parameter", "fusion", "tanh"]


def mismatched_reader(body: str, root: str = "f32[8]{0}") -> str:
    return (
        f"HloModule m\n\ninner {{\n  p = f32[8]{{0}} parameter(0)\n  {body}\n}}\n\nENTRY e "
        f"{{\n  x = f32[8]{{0}} parameter(0)\n"
        f"  n = f32[8]{{0:S(1)}} negate(x)\n  ROOT f = {root} fusion(n), kind=kLoop, calls=inner\n}}\n"
    )


@pytest.mark.parametrize("preset", ["xla-2023", "xla-2026", "default"])
@pytest.mark.parametrize(
    "text",
    [
        mismatched_reader("ROOT b = f32[2,4]{1,0} bitcast(p)", "f32[2,4]{1,0}"),
        mismatched_reader(
            "a = f32[8]{0} abs(p)\n  ROOT t = (f32[8]{0}, f32[8]{0}) tuple(a, p)", "(f32[8]{0}, f32[8]{0})"
        ),
        mismatched_reader("ROOT a = f32[8]{0} abs(p)", "f32[8]{0:S(1)}"),
    ],
    ids=["a bitcast reads it", "the result is the operand", "the result lies elsewhere"],
)
def test_a_fusion_that_can_tell_the_layout_stays(text: str, preset: str):
    fused, decisions = hlo_opt.fuse(hlo_opt.parse(text), preset=preset)
    assert fused.entry.root.opcode == "fusion" and fused.entry.root.operands[0].name == "n"
    assert {r.code for d in decisions for r in d.reasons} >= {"FUS309"}


@pytest.mark.parametrize("body", ["bitcast(p)", "reverse(p), dimensions={0}"])
def test_a_layout_that_is_not_written_is_the_default_one(body: str):
    text = mismatched_reader(f"ROOT b = f32[8]{{0}} {body}").replace("p = f32[8]{0}", "p = f32[8]").replace(":S(1)", "")
    fused, _ = hlo_opt.fuse(hlo_opt.parse(text), passes="instruction-fusion", simplify="never")
    assert [i.opcode for i in fused.entry.instructions] == ["parameter", "fusion"]


def test_a_call_whose_result_has_no_layout_is_inlined():
    call = "inner {\n  p = f32[8]{0} parameter(0)\n  ROOT n = f32[8]{0} negate(p)\n}\n"
    text = (
        f"HloModule m\n\n{call}\nENTRY e "
        f"{{\n  p = f32[8]{{0}} parameter(0)\n  ROOT c = f32[8] call(p), to_apply=inner\n}}\n"
    )
    fused, _ = hlo_opt.fuse(hlo_opt.parse(text))
    assert "call" not in [i.opcode for i in fused.entry.instructions]


def test_a_call_that_reads_another_layout_stays():
    call = "inner {\n  p = f32[2,4]{0,1} parameter(0)\n  ROOT b = f32[8]{0} bitcast(p)\n}\n"
    text = (
        f"HloModule m\n\n{call}\nENTRY e "
        f"{{\n  p = f32[2,4]{{1,0}} parameter(0)\n  ROOT c = f32[8]{{0}} call(p), to_apply=inner\n}}\n"
    )
    fused, _ = hlo_opt.fuse(hlo_opt.parse(text))
    assert [i.opcode for i in fused.entry.instructions] == ["parameter", "call"]


SHARED = """\
HloModule m

inner {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] multiply(a, b)
}

twice {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] fusion(a, b), kind=kLoop, calls=inner
  n = f32[] negate(c)
  ROOT t = (f32[], f32[]) tuple(n, a)
}

ENTRY e {
  x = f32[] parameter(0)
  y = f32[8] parameter(1)
  z = f32[8] parameter(2)
  m = (f32[], f32[]) fusion(x, x), kind=kLoop, calls=twice
  n = f32[] get-tuple-element(m), index=0
  f = f32[] fusion(x, n), kind=kLoop, calls=inner
  product = f32[] reduce(y, f), dimensions={0}, to_apply=inner
  g = f32[] fusion(product, n), kind=kLoop, calls=inner
  h = f32[] exponential(g)
  products = f32[8] map(y, z), dimensions={0}, to_apply=inner
  ROOT r = (f32[], f32[], f32[8]) tuple(f, h, products)
}
"""


def test_a_fusion_shares_with_nothing_that_calls():
    module = hlo_opt.parse(SHARED)
    prepare(module)
    bodies = [i.called_by("calls") for i in module.entry.instructions if i.opcode == "fusion"]
    callers = [c for computation in module.computations for c in computation.called]
    assert [callers.count(b) for b in bodies] == [1, 1, 1]


@pytest.mark.parametrize("preset", ["default", "xla-2026", "xla-2023"])
def test_what_shared_a_computation_is_fused(preset: str):
    module = hlo_opt.parse(SHARED)
    fused, _ = hlo_opt.fuse(module, preset)
    inputs = [np.float32(1.5), np.linspace(0.5, 1, 8, dtype=np.float32), np.linspace(-1, 1, 8, dtype=np.float32)]
    for found, wanted in zip(hlo_opt.evaluate(fused, inputs), hlo_opt.evaluate(module, inputs), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_copies_of_what_has_odd_layouts_are_no_news():
    text = """HloModule m

body {
  x = f32[5,7] parameter(0)
  y = f32[5,7] sine(x)
  z = f32[5,7] cosine(x)
  ROOT t = (f32[5,7]{0,1}, f32[5,7]) tuple(y, z)
}

ENTRY e {
  x = f32[5,7] parameter(0)
  a = (f32[5,7], f32[5,7]) fusion(x), kind=kLoop, calls=body
  y = f32[5,7] get-tuple-element(a), index=0
  b = (f32[5,7], f32[5,7]) fusion(y), kind=kLoop, calls=body
  ROOT r = ((f32[5,7], f32[5,7]), (f32[5,7], f32[5,7])) tuple(a, b)
}
"""
    module = hlo_opt.parse(text)
    fused, _ = hlo_opt.fuse(module)
    x = np.linspace(0, 1, 35, dtype=np.float32).reshape(5, 7)
    for found, wanted in zip(hlo_opt.evaluate(fused, [x]), hlo_opt.evaluate(module, [x]), strict=True):
        np.testing.assert_array_equal(found, wanted)
