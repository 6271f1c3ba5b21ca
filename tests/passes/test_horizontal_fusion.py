"""Horizontal loop and input fusion: what feeds one consumer shares a launch."""

from __future__ import annotations

import hlo_opt
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.fusion.summary import module_summary
from hlo_opt.ir import Module
from hlo_opt.plans import Plan, plan, region_of
from tests.small_modules import H100

SUM = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"


def fuse(body: str, passes: str = "horizontal-loop-fusion", **more: object) -> tuple[Module, list[FusionDecision]]:
    text = f"HloModule m\n{SUM}\nENTRY e {{\n{body}}}\n"
    return hlo_opt.fuse(hlo_opt.parse(text), passes=passes, simplify="never", **more)  # type: ignore[arg-type]


def launched(module: Module) -> list[str]:
    free = ("parameter", "constant", "tuple", "get-tuple-element")
    return [i.opcode for i in module.entry.instructions if i.opcode not in free]


def updates(sizes: list[int], element_type: str = "f32") -> str:
    lines = [f"  p{n} = {element_type}[{size}]{{0}} parameter({n})\n" for n, size in enumerate(sizes)]
    lines += [f"  new{n} = {element_type}[{size}]{{0}} negate(p{n})\n" for n, size in enumerate(sizes)]
    shapes = ", ".join(f"{element_type}[{size}]{{0}}" for size in sizes)
    names = ", ".join(f"new{n}" for n in range(len(sizes)))
    return "".join(lines) + f"  ROOT t = ({shapes}) tuple({names})\n"


def reasons(decisions: list[FusionDecision]) -> set[str]:
    return {r.code for d in decisions for r in d.reasons}


def test_updates_of_all_sizes_are_one_launch() -> None:
    fused, decisions = fuse(updates([64, 10, 1000, 64, 7]))
    assert launched(fused) == ["fusion"]
    assert all(d.fused and d.relation == "sibling" and d.rule == "horizontal-loop-fusion" for d in decisions)
    fusion = next(i for i in fused.entry.instructions if i.opcode == "fusion")
    found = plan(region_of(fused, fusion), H100)
    assert isinstance(found, Plan)
    assert sorted(s.part.elements for s in found.segments) == [7, 10, 64, 64, 1000]


def test_large_kernels_share_only_with_their_like() -> None:
    fused, decisions = fuse(updates([300000, 300000, 64, 32]))
    assert sorted(launched(fused)) == ["fusion", "fusion"]
    assert reasons(decisions) == {"FUS441"}
    assert launched(
        fuse(updates([300000, 300000, 64, 32]), "horizontal-loop-fusion{max-mixed-elements=300000}")[0]
    ) == ["fusion"]


def test_the_largest_kernels_that_share() -> None:
    for size, is_joined in ((8192 * 8192, True), (8192 * 8192 + 1, False)):
        assert (launched(fuse(updates([size, size]))[0]) == ["fusion"]) is is_joined
    for size, is_joined in ((128 * 2048, True), (128 * 2048 + 1, False)):
        assert (launched(fuse(updates([size, 64]))[0]) == ["fusion"]) is is_joined


def test_a_launch_has_a_limited_number_of_outputs() -> None:
    fused, decisions = fuse(updates([8] * 70))
    assert [sum(1 for _ in i.shape.leaves()) for i in fused.entry.instructions if i.opcode == "fusion"] == [64, 6]
    assert "FUS241" in reasons(decisions)


def test_a_launch_has_a_limited_number_of_pointers() -> None:
    """Each negation reads one buffer and writes one: 16 bytes of pointers."""
    for limit, launches in ((65, 1), (64, 2), (33, 2)):
        fused, decisions = fuse(updates([8] * 4), f"horizontal-loop-fusion{{max-argument-bytes={limit}}}")
        assert len(launched(fused)) == launches
        assert ("FUS242" in reasons(decisions)) is (launches > 1)


def test_types_do_not_mix_unless_told_so() -> None:
    body = """  p = f32[64]{0} parameter(0)
  q = s32[64]{0} parameter(1)
  a = f32[64]{0} negate(p)
  b = s32[64]{0} negate(q)
  ROOT t = (f32[64]{0}, s32[64]{0}) tuple(a, b)
"""
    fused, decisions = fuse(body)
    assert launched(fused) == ["negate", "negate"] and reasons(decisions) == {"FUS444"}
    assert launched(fuse(body, "horizontal-loop-fusion{mixed-types=true}")[0]) == ["fusion"]
    assert launched(fuse(body, what_if=["FUS444"])[0]) == ["fusion"]


def test_a_kernel_that_something_else_reads_stays() -> None:
    """Joined, the dot would wait for `b`, and `b` for the dot that it reads."""
    body = """  p = f32[64,64]{1,0} parameter(0)
  q = f32[64,64]{1,0} parameter(1)
  a = f32[64,64]{1,0} negate(p)
  d = f32[64,64]{1,0} dot(a, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[64,64]{1,0} negate(d)
  ROOT t = (f32[64,64]{1,0}, f32[64,64]{1,0}) tuple(a, b)
"""
    fused, decisions = fuse(body)
    assert launched(fused) == ["negate", "dot", "negate"]
    assert "FUS141" in reasons(decisions)
    forbidden, still = fuse(body, what_if=["FUS141"])
    assert launched(forbidden) == launched(fused)
    assert "FUS132" in reasons(still)


REDUCTIONS = """  p = f32[64,128]{1,0} parameter(0)
  q = f32[64,128]{1,0} parameter(1)
  s = f32[32,256]{1,0} parameter(2)
  z = f32[] constant(0)
  a = f32[64]{0} reduce(p, z), dimensions={1}, to_apply=sum
  b = f32[64]{0} reduce(q, z), dimensions={1}, to_apply=sum
  c = f32[32]{0} reduce(s, z), dimensions={1}, to_apply=sum
  ROOT t = (f32[64]{0}, f32[64]{0}, f32[32]{0}) tuple(a, b, c)
"""


def test_reductions_of_one_form_share_a_launch() -> None:
    fused, decisions = fuse(REDUCTIONS, "horizontal-input-fusion")
    assert sorted(launched(fused)) == ["fusion", "reduce"]
    assert reasons(decisions) == {"FUS432"}
    fusion = next(i for i in fused.entry.instructions if i.opcode == "fusion")
    assert fusion.word("kind") == "kInput"
    found = plan(region_of(fused, fusion), H100)
    assert isinstance(found, Plan) and found.row_reductions == 2


def test_reductions_of_any_form_too_when_told_so() -> None:
    fused, _ = fuse(REDUCTIONS, "horizontal-input-fusion{any-form=true}")
    assert launched(fused) == ["fusion"]


def test_loop_fusion_leaves_reductions_alone() -> None:
    fused, decisions = fuse(REDUCTIONS)
    assert launched(fused) == ["reduce", "reduce", "reduce"]
    assert "FUS142" in reasons(decisions)


def test_an_optimizer_step() -> None:
    """An update of each of 20 parameters of other sizes, with two moments each."""
    lines, roots, shapes = ["  rate = f32[] parameter(0)\n"], [], []
    for n in range(20):
        t = f"f32[{n + 3},{2 * n + 1}]{{1,0}}"
        lines += [f"  {v}{n} = {t} parameter({4 * n + k + 1})\n" for k, v in enumerate(("par", "grad", "mean", "var"))]
        lines += [
            f"  rates{n} = {t} broadcast(rate), dimensions={{}}\n",
            f"  m{n}_ = {t} add(mean{n}, grad{n})\n",
            f"  sq{n} = {t} multiply(grad{n}, grad{n})\n",
            f"  v{n}_ = {t} add(var{n}, sq{n})\n",
            f"  st{n} = {t} sqrt(v{n}_)\n",
            f"  d{n} = {t} divide(m{n}_, st{n})\n",
            f"  e{n} = {t} multiply(d{n}, rates{n})\n",
            f"  n{n}_ = {t} subtract(par{n}, e{n})\n",
        ]
        roots += [f"n{n}_", f"m{n}_", f"v{n}_"]
        shapes += [t] * 3
    body = "".join(lines) + f"  ROOT t = ({', '.join(shapes)}) tuple({', '.join(roots)})\n"
    before = "fixpoint(instruction-fusion,fusion-merger,multi-output-fusion,cse,dce)"
    apart, _ = fuse(body, before)
    together, _ = fuse(body, f"{before},horizontal-loop-fusion")
    assert (len(launched(apart)), len(launched(together))) == (20, 2)


WEIGHTS = 16
NORMALIZED = "\n".join(
    [f"  x{k} = f32[1024,256] parameter({k})" for k in range(WEIGHTS)]
    + ["  z = f32[] constant(0)"]
    + [
        f"  {line.format(k=k)}"
        for k in range(WEIGHTS)
        for line in (
            "sum{k} = f32[256] reduce(x{k}, z), dimensions={{0}}, to_apply=sum",
            "b{k} = f32[1024,256] broadcast(sum{k}), dimensions={{1}}",
            "d{k} = f32[1024,256] divide(x{k}, b{k})",
        )
    ]
    + [f"  ROOT r = ({', '.join(['f32[1024,256]'] * WEIGHTS)}) tuple({', '.join(f'd{k}' for k in range(WEIGHTS))})"]
)
"""Weights by their sums along columns, a kernel for each, as in weight standardization."""


def test_reductions_join_only_while_that_pays() -> None:
    """In one launch they share the shared memory: the last found none, and single threads folded their columns."""

    each = "instruction-fusion{may-duplicate=true}"
    wide = "max-elements=10000000,max-mixed-elements=10000000"
    apart, _ = fuse(NORMALIZED, each)
    joined, _ = fuse(NORMALIZED, f"{each},horizontal-loop-fusion{{{wide}}}")
    paying, decisions = fuse(NORMALIZED, f"{each},horizontal-loop-fusion{{{wide},reductions-pay=true}}")
    assert [len(launched(m)) for m in (apart, joined, paying)] == [WEIGHTS, 1, 2]
    us = [module_summary(m, H100).est_us for m in (apart, joined, paying)]
    assert us[2] < us[0] < us[1]
    assert "FUS434" in reasons(decisions)
