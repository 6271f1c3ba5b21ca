import hlo_opt
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.ir import Module

FIRST = "instruction-fusion{may-duplicate=false}"


def fuse(users: str, passes: str, size: int = 64) -> tuple[Module, list[FusionDecision]]:
    text = f"""HloModule m

ENTRY e {{
  p = f32[64]{{0}} parameter(0)
  q = f32[64]{{0}} parameter(1)
  m = f32[64]{{0}} multiply(p, q)
  s = f32[64]{{0}} add(m, q)
{users}
}}
""".replace("[64]", f"[{size}]")
    return hlo_opt.fuse(hlo_opt.parse(text), passes=passes, simplify="never")


def launched(module: Module) -> list[str]:
    return [i.opcode for i in module.entry.instructions if i.opcode not in ("parameter", "constant", "tuple")]


TWO = "  a = f32[64]{0} negate(s)\n  b = f32[64]{0} tanh(s)\n  ROOT r = (f32[64]{0}, f32[64]{0}) tuple(a, b)"


def test_a_fusion_moves_into_all_its_users():
    assert launched(fuse(TWO, FIRST)[0]) == ["fusion", "negate", "tanh"]
    fused, decisions = fuse(TWO, f"{FIRST},fusion-merger")
    assert launched(fused) == ["fusion", "fusion"]
    assert all(d.fused for d in decisions)
    assert {d.rule for d in decisions} == {"instruction-fusion", "fusion-merger"}


def test_or_into_none():
    fused, decisions = fuse(TWO.replace("tuple(a, b)", "tuple(a, s)"), f"{FIRST},fusion-merger,dce")
    assert launched(fused) == ["fusion", "negate"]
    (left,) = [d for d in decisions if not d.fused]
    assert (left.producer, left.consumer, left.rule) == ("s", "a", "fusion-merger")
    assert [r.code for r in left.reasons] == ["FUS108"]


def test_not_where_the_model_says_slower():
    slow = TWO.replace("b = f32[64]{0} tanh(s)", "b = f32[64]{0} cosine(s)").replace("negate", "sine")
    fused, decisions = fuse(slow.replace("add(m, q)", "power(m, q)"), f"{FIRST},fusion-merger", size=1 << 22)
    assert launched(fused)  # large arrays: each user would read both operands instead of one
    costs = [d.cost for d in decisions if not d.fused and any(r.code == "FUS408" for r in d.reasons)]
    for cost in costs:
        assert cost is not None


def test_copies_are_limited():
    fused, decisions = fuse(TWO, f"{FIRST},fusion-merger{{max-copies=1}}")
    assert launched(fused) == ["fusion", "negate", "tanh"]
    assert {r.code for d in decisions for r in d.reasons} == {"FUS205"}
