from dataclasses import replace

import numpy as np
import pytest

import hlo_opt
from hlo_opt.diag import Reason
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.fusion.prices import Prices
from hlo_opt.ir import Instruction, Module
from hlo_opt.plans.price import FREE

SUM = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n\n"
TRITON = 'backend_config={"fusion_backend_config":{"kind":"__triton","block_level_fusion_config":{"num_warps":"1","output_tiles":[{"sizes":["1","128"]}]}}}'
TILED = "tiled {\n  p = f32[64,128]{1,0} parameter(0)\n  ROOT n = f32[64,128]{1,0} negate(p)\n}\n\n"


def fuse(
    body: str, head: str = "", *, passes: str = "priority-fusion", **options
) -> tuple[Module, list[FusionDecision]]:
    text = f"HloModule m\n\n{head}ENTRY e {{\n{body}\n}}\n"
    return hlo_opt.fuse(hlo_opt.parse(text), passes=passes, simplify="never", **options)


def launched(module: Module) -> list[str]:
    skipped = ("parameter", "constant", "tuple", "bitcast", "get-tuple-element")
    return [i.opcode for i in module.entry.instructions if i.opcode not in skipped]


def kernels(module: Module) -> list[set[str]]:
    """What each fusion of the entry holds."""
    return [
        {m.opcode for m in i.called_by("calls").instructions if m.opcode != "parameter"}
        for i in module.entry.instructions
        if i.opcode == "fusion"
    ]


def only(module: Module) -> Instruction:
    (fusion,) = (i for i in module.entry.instructions if i.opcode == "fusion")
    return fusion


def codes(decisions: list[FusionDecision]) -> dict[tuple[str, str], list[str]]:
    return {(d.producer, d.consumer): [r.code for r in d.reasons] for d in decisions if not d.fused}


TWO_USERS = """\
  p = f32[64]{0} parameter(0)
  q = f32[64]{0} parameter(1)
  t = f32[64]{0} tanh(p)
  a = f32[64]{0} negate(t)
  b = f32[64]{0} add(t, q)
  ROOT r = (f32[64]{0}, f32[64]{0}) tuple(a, b)"""


def test_a_producer_goes_into_all_its_users():
    fused, decisions = fuse(TWO_USERS)
    assert kernels(fused) == [{"tanh", "negate"}, {"tanh", "add"}]
    assert {d.rule for d in decisions} == {"priority-fusion"}
    assert not codes(decisions)


def test_or_into_none():
    fused, decisions = fuse(TWO_USERS.replace("tuple(a, b)", "tuple(a, t)").replace("  b = f32[64]{0} add(t, q)\n", ""))
    assert launched(fused) == ["tanh", "negate"]
    assert codes(decisions) == {("t", "a"): ["FUS108"]}


def test_without_that_rule_into_those_that_take_it():
    body = TWO_USERS.replace("tuple(a, b)", "tuple(a, t)").replace("  b = f32[64]{0} add(t, q)\n", "")
    fused, _ = fuse(body, what_if=["FUS108"])
    assert launched(fused) == ["tanh", "fusion"]
    fused, _ = fuse(body, force=[("t", "a")])
    assert launched(fused) == ["fusion"]  # it writes what others read
    fused, _ = fuse(body, force=[("t", "a")], decide_again=True)
    assert launched(fused) == ["tanh", "fusion"]


def test_what_costs_more_when_repeated_stays():
    body = """\
  p = f32[4096,64]{1,0} parameter(0)
  q = f32[4096,64]{1,0} parameter(1)
  x = f32[4096,64]{1,0} power(p, q)
  ROOT r = (f32[4096,64]{1,0}, f32[4096,64]{1,0}, f32[4096,64]{1,0}) tuple(a, b, c)"""
    users = "".join(f"  {n} = f32[4096,64]{{1,0}} {f}(x)\n" for n, f in (("a", "sine"), ("b", "cosine"), ("c", "abs")))
    fused, decisions = fuse(body.replace("  ROOT", users + "  ROOT"))
    assert launched(fused) == ["power", "sine", "cosine", "abs"]
    assert {code for found in codes(decisions).values() for code in found} == {"FUS408"}
    cheap, _ = fuse(body.replace("  ROOT", users + "  ROOT").replace("power", "add"))
    assert launched(cheap) == ["fusion"] * 3
    at_any_cost, _ = fuse(body.replace("  ROOT", users + "  ROOT"), what_if=["FUS408"])
    assert launched(at_any_cost) == ["fusion"] * 3


@pytest.mark.parametrize(
    ("launch", "kept", "together"), [(1.0, 3.3, False), (1.0, 3.5, True), (2.0, 3.3, True), (1.0, None, True)]
)
def test_by_own_prices_not_where_one_user_had_better_write_it(
    launch: float, kept: float | None, together: bool, monkeypatch: pytest.MonkeyPatch
):
    """Unless the producer is little more than its launch, or no kernel does that."""
    one = Reason.of("FUS306", values=2, limit=1) if kept is None else replace(FREE, us=kept)
    monkeypatch.setattr(Prices, "of", lambda self, kernel: replace(FREE, us=3.0, launch=launch))
    monkeypatch.setattr(Prices, "joined", lambda self, producer, consumer: replace(FREE, us=3.2))
    monkeypatch.setattr(Prices, "with_producer", lambda self, producer, consumer: one)
    fused, decisions = fuse(TWO_USERS, passes="priority-fusion{own-prices=true}")
    assert launched(fused) == (["fusion"] * 2 if together else ["tanh", "negate", "add"])
    assert {code for found in codes(decisions).values() for code in found} == (set() if together else {"FUS408"})


def test_bitcasts_move_but_no_kernel_ends_in_one():
    body = """\
  p = f32[8,8]{1,0} parameter(0)
  n = f32[8,8]{1,0} negate(p)
  b = f32[64]{0} bitcast(n)
  a = f32[64]{0} abs(b)
  c = f32[16,4]{1,0} bitcast(a)
  ROOT r = (f32[16,4]{1,0}) tuple(c)"""
    fused, _ = fuse(body)
    assert kernels(fused) == [{"negate", "bitcast", "abs"}]
    assert [i.name for i in fused.entry.instructions if i.opcode == "bitcast"] == ["c"]


def test_constants_of_one_element_come_last_and_go_everywhere():
    body = """\
  p = f32[64]{0} parameter(0)
  k = f32[] constant(2)
  b = f32[64]{0} broadcast(k), dimensions={}
  ROOT m = f32[64]{0} multiply(p, b)"""
    fused, _ = fuse(body)
    assert kernels(fused) == [{"constant", "broadcast", "multiply"}]
    several = (
        body.replace("f32[] constant(2)", "f32[2]{0} constant({1, 2})")
        .replace("f32[64]{0} broadcast(k), dimensions={}", "f32[64]{0} pad(k, z), padding=0_62")
        .replace("  k =", "  z = f32[] parameter(1)\n  k =")
    )
    fused, _ = fuse(several)
    assert kernels(fused) == [{"pad", "multiply"}]


def test_a_reduction_keeps_its_kernel():
    body = """\
  p = f32[256,1024]{1,0} parameter(0)
  z = f32[] constant(0)
  s = f32[256]{0} reduce(p, z), dimensions={1}, to_apply=sum
  n = f32[256]{0} negate(s)
  ROOT b = f32[256,1024]{1,0} broadcast(n), dimensions={0}"""
    fused, decisions = fuse(body, SUM)
    assert launched(fused) == ["fusion", "broadcast"]
    assert kernels(fused) == [{"constant", "reduce", "negate"}]
    assert next(i.word("kind") for i in fused.entry.instructions if i.opcode == "fusion") == "kInput"
    assert list(codes(decisions).values()) == [["FUS404"]]


@pytest.mark.parametrize(("inner", "kernel_count"), [(64, 2), (8, 1)])
def test_reductions_that_fold_many_are_not_nested(inner: int, kernel_count: int):
    body = f"""\
  p = f32[64,64,{inner}]{{2,1,0}} parameter(0)
  z = f32[] constant(0)
  s = f32[64,64]{{1,0}} reduce(p, z), dimensions={{2}}, to_apply=sum
  ROOT t = f32[64]{{0}} reduce(s, z), dimensions={{1}}, to_apply=sum"""
    fused, decisions = fuse(body, SUM)
    assert len(launched(fused)) == kernel_count
    assert any("FUS420" in found for found in codes(decisions).values()) == (kernel_count == 2)


def test_a_tiled_kernel_takes_what_it_can_compute_and_gets_other_tiles():
    body = f"""\
  p = f32[64,128]{{1,0}} parameter(0)
  a = f32[64,128]{{1,0}} abs(p)
  t = f32[64,128]{{1,0}} fusion(a), kind=kCustom, calls=tiled, {TRITON}
  ROOT s = f32[64,128]{{1,0}} tanh(t)"""
    fused, _ = fuse(body, TILED)
    assert kernels(fused) == [{"abs", "negate", "tanh"}]
    fusion = only(fused)
    assert fusion.word("kind") == "kCustom"
    config = fusion.attributes["backend_config"].text
    assert '"__triton"' in config
    assert '"sizes":["1","128"]' not in config


@pytest.mark.parametrize(
    ("consumer", "code"),
    [
        ("s = f32[8,128]{1,0} dynamic-slice(t, i, i), dynamic_slice_sizes={8,128}", "FUS321"),
        ("s = f32[68,128]{1,0} pad(t, z), padding=2_2x0_0", "FUS321"),
        ("s = f32[8,128]{1,0} slice(t), slice={[0:8], [0:128]}", None),
    ],
)
def test_what_a_tiled_kernel_does_not_know_stays_outside(consumer: str, code: str | None):
    body = f"""\
  p = f32[64,128]{{1,0}} parameter(0)
  i = s32[] parameter(1)
  z = f32[] parameter(2)
  t = f32[64,128]{{1,0}} fusion(p), kind=kCustom, calls=tiled, {TRITON}
  ROOT {consumer}"""
    fused, decisions = fuse(body, TILED)
    assert len(launched(fused)) == (2 if code else 1)
    assert list(codes(decisions).values()) == ([[code]] if code else [])


def test_a_reshape_that_leaves_no_tile_stays_outside():
    body = f"""\
  p = f32[6,10]{{1,0}} parameter(0)
  t = f32[6,10]{{1,0}} fusion(p), kind=kCustom, calls=tiled, {TRITON}
  ROOT s = f32[4,15]{{1,0}} reshape(t)"""
    fused, decisions = fuse(body, TILED.replace("64,128", "6,10"))
    assert codes(decisions) == {("n", "s"): ["FUS322"]}
    fused, decisions = fuse(body.replace("4,15", "60,1"), TILED.replace("64,128", "6,10"))
    assert launched(fused) == ["fusion"]


def test_libraries_are_boundaries():
    body = """\
  p = f32[64,64]{1,0} parameter(0)
  n = f32[64,64]{1,0} negate(p)
  d = f32[64,64]{1,0} dot(n, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT a = f32[64,64]{1,0} abs(d)"""
    fused, decisions = fuse(body)
    assert launched(fused) == ["negate", "dot", "abs"]
    assert codes(decisions) == {("n", "d"): ["FUS122"], ("d", "a"): ["FUS122"]}


def test_bodies_of_loops_are_fused_too():
    head = """\
body {
  s = (s32[], f32[64]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[64]{0} get-tuple-element(s), index=1
  y = f32[64]{0} negate(x)
  z = f32[64]{0} tanh(y)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (s32[], f32[64]{0}) tuple(j, z)
}

condition {
  s = (s32[], f32[64]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}

"""
    fused, _ = fuse(
        "  s = (s32[], f32[64]{0}) parameter(0)\n  ROOT w = (s32[], f32[64]{0}) while(s), condition=condition, "
        "body=body",
        head,
    )
    body = fused.entry.root.called_by("body")
    assert sorted(i.opcode for i in body.instructions if i.opcode == "fusion") == ["fusion", "fusion"]
    assert fused.entry.root.called_by("condition").root.opcode == "fusion"


def test_code_size_is_limited():
    body = (
        "  p = f32[64]{0} parameter(0)\n  a = f32[64]{0} negate(p)\n  b = f32[64]{0} abs(a)\n  ROOT c = f32[64]{0} "
        "tanh(b)"
    )
    assert launched(fuse(body)[0]) == ["fusion"]
    fused, decisions = fuse(body, passes="priority-fusion{max-code-size=3}")
    assert len(launched(fused)) == 2
    assert list(codes(decisions).values()) == [["FUS220"]]


def test_steps_are_counted_one_by_one():
    body = (
        "  p = f32[64]{0} parameter(0)\n  a = f32[64]{0} negate(p)\n  b = f32[64]{0} abs(a)\n  ROOT c = f32[64]{0} "
        "tanh(b)"
    )
    sizes = [len(launched(fuse(body, stop_after_step=n)[0])) for n in range(4)]
    assert sizes == [3, 2, 1, 1]


def test_a_producer_that_its_consumer_does_not_read():
    """A fusion may have parameters that nothing inside it uses."""
    module = hlo_opt.parse("""HloModule m
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
body {
  x = f64[] parameter(0)
  y = f32[] parameter(1)
  ROOT c = f64[] negate(x)
}
ENTRY e {
  p = f32[2]{0} parameter(0)
  q = f64[] parameter(1)
  zero = f32[] constant(0)
  r = f32[] reduce(p, zero), dimensions={0}, to_apply=sum
  c = f32[] clamp(zero, r, r)
  ROOT f = f64[] fusion(q, c), kind=kLoop, calls=body
}
""")
    fused, _ = hlo_opt.fuse(module, preset="xla-2026", simplify="never")
    values = [np.array([1, 2], np.float32), np.array(3.0)]
    assert hlo_opt.evaluate(fused, values)[0] == hlo_opt.evaluate(module, values)[0] == -3.0
