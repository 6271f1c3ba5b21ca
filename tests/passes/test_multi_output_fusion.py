"""Multi-output fusion: siblings, producers that keep their output, and what stands against either."""

from __future__ import annotations

import numpy as np

import hlo_opt
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.ir import Module
from hlo_opt.passes import run

SUM = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"
ALONE = """
one {
  p = f32[64]{0} parameter(0)
  n = f32[64]{0} negate(p)
  ROOT cos = f32[64]{0} cosine(n)
}
"""


def fuse(body: str, options: str = "", extra: str = ALONE, **more: object) -> tuple[Module, list[FusionDecision]]:
    text = f"HloModule m\n{SUM}{extra}\nENTRY e {{\n{body}}}\n"
    return hlo_opt.fuse(
        hlo_opt.parse(text),
        passes=f"multi-output-fusion{options},dce",
        simplify="never",
        **more,  # type: ignore[arg-type]
    )


def launched(module: Module) -> list[str]:
    free = ("parameter", "constant", "tuple", "get-tuple-element")
    return [i.opcode for i in module.entry.instructions if i.opcode not in free]


def outputs(module: Module) -> list[int]:
    """How many outputs each fusion of the entry has."""
    return [sum(1 for _ in i.shape.leaves()) for i in module.entry.instructions if i.opcode == "fusion"]


def codes(decisions: list[FusionDecision], first: str, second: str) -> set[str]:
    (found,) = [d for d in decisions if (d.producer, d.consumer) == (first, second)]
    return {r.code for r in found.reasons}


SIBLINGS = """  p = f32[64]{0} parameter(0)
  f = f32[64]{0} fusion(p), kind=kLoop, calls=one
  t = f32[64]{0} tanh(p)
  u = f32[64]{0} abs(p)
  ROOT r = (f32[64]{0}, f32[64]{0}, f32[64]{0}) tuple(t, f, u)
"""


def test_siblings_join_the_fusion_among_them() -> None:
    fused, decisions = fuse(SIBLINGS)
    assert launched(fused) == ["fusion"] and outputs(fused) == [3]
    assert [(d.producer, d.consumer, d.relation) for d in decisions if d.relation == "sibling"] == [
        ("cos", "t", "sibling"),
        ("t", "u", "sibling"),
    ]
    assert all(d.fused for d in decisions)


def test_the_result_keeps_its_order() -> None:
    fused, _ = fuse(SIBLINGS)
    module = hlo_opt.parse(f"HloModule m\n{SUM}{ALONE}\nENTRY e {{\n{SIBLINGS}}}\n")
    data = [np.linspace(-3, 3, 64, dtype=np.float32)]
    for one, other in zip(hlo_opt.evaluate(module, data), hlo_opt.evaluate(fused, data), strict=True):
        assert (one == other).all()


def test_siblings_can_be_left_alone() -> None:
    assert launched(fuse(SIBLINGS, "{siblings=false}")[0]) == ["fusion", "tanh", "abs"]


def test_two_plain_siblings_stay_apart_as_in_xla() -> None:
    body = SIBLINGS.replace("fusion(p), kind=kLoop, calls=one", "negate(p)")
    fused, decisions = fuse(body, extra="")
    assert launched(fused) == ["negate", "tanh", "abs"]
    assert codes(decisions, "f", "t") == {"FUS135"}
    assert outputs(fuse(body, "{plain-siblings=true}", extra="")[0]) == [3]


def test_siblings_of_one_element_share_nothing() -> None:
    one = SIBLINGS.replace("[64]{0}", "[]")
    assert launched(fuse(one, extra=ALONE.replace("[64]{0}", "[]"))[0]) == ["fusion", "tanh", "abs"]


KEPT = """  p = f32[64]{0} parameter(0)
  n = f32[64]{0} negate(p)
  t = f32[64]{0} tanh(n)
  ROOT r = (f32[64]{0}, f32[64]{0}) tuple(t, n)
"""


def test_a_producer_joins_its_consumer_and_keeps_its_output() -> None:
    fused, decisions = fuse(KEPT)
    assert launched(fused) == ["fusion"] and outputs(fused) == [2]
    (edge,) = [d for d in decisions if d.relation == "operand"]
    assert (edge.producer, edge.consumer, edge.rule) == ("n", "t", "multi-output-fusion")
    assert launched(fuse(KEPT, "{producer-consumer=false}")[0]) == ["negate", "tanh"]


def test_a_producer_that_only_one_plain_consumer_reads_is_left_to_other_passes() -> None:
    body = "  p = f32[64]{0} parameter(0)\n  n = f32[64]{0} negate(p)\n  ROOT t = f32[64]{0} tanh(n)\n"
    assert launched(fuse(body, extra="")[0]) == ["negate", "tanh"]


def test_a_kernel_with_several_outputs_takes_its_only_producer() -> None:
    two = (
        "two {\n  p = f32[64]{0} parameter(0)\n  a = f32[64]{0} abs(p)\n  b = f32[64]{0} sine(p)\n  ROOT t = "
        "(f32[64]{0}, f32[64]{0}) tuple(a, b)\n}\n"
    )
    body = """  p = f32[64]{0} parameter(0)
  n = f32[64]{0} negate(p)
  f = (f32[64]{0}, f32[64]{0}) fusion(n), kind=kLoop, calls=two
  x = f32[64]{0} get-tuple-element(f), index=0
  y = f32[64]{0} get-tuple-element(f), index=1
  ROOT r = (f32[64]{0}, f32[64]{0}) tuple(x, y)
"""
    fused, _ = fuse(body, extra=two)
    assert launched(fused) == ["fusion"]


def test_the_result_of_a_computation_can_be_a_second_output() -> None:
    body = """  p = f32[64]{0} parameter(0)
  f = f32[64]{0} fusion(p), kind=kLoop, calls=one
  start = token[] after-all()
  out = token[] custom-call(f, start), custom_call_target="log", custom_call_has_side_effect=true
  ROOT t = f32[64]{0} tanh(f)
"""
    fused, _ = fuse(body)
    assert outputs(fused) == [2]
    assert fused.entry.root.opcode == "get-tuple-element"


def test_a_path_through_another_kernel_forbids_it() -> None:
    body = """  p = f32[64,64]{1,0} parameter(0)
  n = f32[64,64]{1,0} negate(p)
  d = f32[64,64]{1,0} dot(n, n), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[64,64]{1,0} add(n, d)
  ROOT r = (f32[64,64]{1,0}, f32[64,64]{1,0}) tuple(s, n)
"""
    fused, decisions = fuse(body, extra="")
    assert launched(fused) == ["negate", "dot", "add"]
    assert "FUS131" in codes(decisions, "n", "s")
    switched, again = fuse(body, extra="", what_if=["FUS131"])
    assert launched(switched) == launched(fused)
    assert codes(again, "n", "s") == {"FUS110"}


def test_a_matrix_product_stays_with_its_library_in_any_form() -> None:
    body = """  p = f32[64,64]{1,0} parameter(0)
  d = f32[64,64]{1,0} dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  n = f32[64,64]{1,0} negate(d)
  ROOT r = (f32[64,64]{1,0}, f32[64,64]{1,0}) tuple(n, d)
"""
    fused, decisions = fuse(body, "{any-form=true,plain-siblings=true}", extra="")
    assert launched(fused) == ["dot", "negate"]
    assert codes(decisions, "d", "n") == {"FUS302"}


def test_row_reductions_of_one_value_fold_together() -> None:
    body = """  p = f32[64,128]{1,0} parameter(0)
  z = f32[] constant(0)
  n = f32[64,128]{1,0} negate(p)
  a = f32[64]{0} reduce(p, z), dimensions={1}, to_apply=sum
  b = f32[64]{0} reduce(n, z), dimensions={1}, to_apply=sum
  ROOT r = (f32[64]{0}, f32[64]{0}, f32[64,128]{1,0}) tuple(a, b, n)
"""
    fused, _ = fuse(body, "{plain-siblings=true}", extra="")
    assert outputs(fused) == [3]
    assert next(i for i in fused.entry.instructions if i.opcode == "fusion").word("kind") == "kInput"


def test_a_row_reduction_does_not_become_a_loop() -> None:
    """The consumer needs the sums in another shape, so that each of its threads would add up a row."""
    turned = """
turn {
  p = f32[64]{0} parameter(0)
  b = f32[64,128]{1,0} broadcast(p), dimensions={0}
  ROOT c = f32[64,128]{1,0} reverse(b), dimensions={0}
}
"""
    body = """  p = f32[64,128]{1,0} parameter(0)
  z = f32[] constant(0)
  a = f32[64]{0} reduce(p, z), dimensions={1}, to_apply=sum
  f = f32[64,128]{1,0} fusion(a), kind=kLoop, calls=turn
  ROOT r = (f32[64,128]{1,0}, f32[64]{0}) tuple(f, a)
"""
    fused, decisions = fuse(body, "{any-form=true}", extra=turned.replace("ROOT c", "ROOT turned"))
    assert launched(fused) == ["reduce", "fusion"]
    assert "FUS407" in {r.code for d in decisions for r in d.reasons}


LEVELS = """  x = f32[512,2048]{1,0} parameter(0)
  z = f32[] constant(0)
  s = f32[512]{0} reduce(x, z), dimensions={1}, to_apply=sum
  b = f32[512,2048]{1,0} broadcast(s), dimensions={0}
  d = f32[512,2048]{1,0} subtract(x, b)
  q = f32[512,2048]{1,0} multiply(d, d)
  v = f32[512]{0} reduce(q, z), dimensions={1}, to_apply=sum
  ROOT r = (f32[512]{0}, f32[512]{0}) tuple(s, v)
"""
INSIDE = "instruction-fusion{may-duplicate=false},"


def levels(body: str, options: str) -> tuple[Module, list[FusionDecision]]:
    text = f"HloModule m\n{SUM}\nENTRY e {{\n{body}}}\n"
    return hlo_opt.fuse(hlo_opt.parse(text), passes=f"{INSIDE}multi-output-fusion{options},dce", simplify="never")


def test_a_row_that_several_levels_fold_is_read_once() -> None:
    """Mean and variance: the second reduction needs the first, which the caller wants, too."""
    apart, _ = levels(LEVELS, "{xla-prices=true}")
    assert launched(apart) == ["reduce", "fusion"]
    fused, _ = levels(LEVELS, "{levels=true}")
    assert outputs(fused) == [2] and launched(fused) == ["fusion"]
    x = np.random.default_rng(0).normal(size=(512, 2048)).astype(np.float32)
    for got, want in zip(
        hlo_opt.compile(fused, backend="host")(x), hlo_opt.evaluate(hlo_opt.parse(str(apart)), [x]), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-4)


GROUPS = """  p = f32[32,14,14,1024]{3,2,1,0} parameter(0)
  q = f32[32,14,14,1024]{3,2,1,0} parameter(1)
  a = f32[32,14,14,1024]{3,2,1,0} add(p, q)
  g = f32[32,14,14,32,32]{4,3,2,1,0} reshape(a)
  z = f32[] constant(0)
  s = f32[32,32]{1,0} reduce(g, z), dimensions={1,2,4}, to_apply=sum
  b = f32[32,14,14,32,32]{4,3,2,1,0} broadcast(s), dimensions={0,3}
  d = f32[32,14,14,32,32]{4,3,2,1,0} subtract(g, b)
  v = f32[32,32]{1,0} reduce(d, z), dimensions={1,2,4}, to_apply=sum
  ROOT r = (f32[32,14,14,1024]{3,2,1,0}, f32[32,32]{1,0}) tuple(a, v)
"""


def test_what_rows_are_made_of_is_written_by_their_kernel() -> None:
    """A residual sum before a group norm: XLA sees two loops, but our rows go over its elements as they lie."""
    module = hlo_opt.parse(f"HloModule m\n{SUM}\nENTRY e {{\n{GROUPS}}}\n")
    by_walks, _ = hlo_opt.fuse(module, passes=f"{INSIDE}instruction-fusion,multi-output-fusion,dce", simplify="never")
    assert launched(by_walks)[0] == "add"
    fused, _ = hlo_opt.fuse(module)
    assert launched(fused) == ["fusion"] and outputs(fused) == [2]
    data = [np.random.default_rng(n).normal(size=(32, 14, 14, 1024)).astype(np.float32) for n in range(2)]
    for got, want in zip(hlo_opt.compile(fused, backend="host")(*data), hlo_opt.evaluate(module, data), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4)


def test_columns_of_several_levels_would_be_read_twice() -> None:
    columns = (
        LEVELS.replace("f32[512]", "f32[2048]")
        .replace("dimensions={1}", "dimensions={0}")
        .replace("(s), dimensions={0}", "(s), dimensions={1}")
    )
    fused, decisions = levels(columns, "{levels=true,xla-prices=true}")
    assert len(launched(fused)) == 2 and "FUS434" in codes(decisions, "s", "b")
    fused, _ = levels(columns, "{levels=true}")  # of the second reading L2 holds all: it costs less than a launch
    assert len(launched(fused)) == 1
    computed = columns.replace("reduce(x, z)", "reduce(y, z)").replace("  z = ", "  y = f32[512,2048] tanh(x)\n  z = ")
    apart, _ = levels(computed, "")  # the sum of what a kernel computes is a reduction kernel
    fused, _ = levels(computed, "{levels=true}")
    assert (len(launched(apart)), len(launched(fused))) == (2, 1)


def test_the_default_preset_reads_rows_once() -> None:
    text = f"HloModule m\n{SUM}\nENTRY e {{\n{LEVELS}}}\n"
    fused, _ = hlo_opt.fuse(hlo_opt.parse(text))
    assert launched(fused) == ["fusion"]


def test_a_limited_number_of_buffers() -> None:
    """A kernel takes 96 at most: the operand and 95 outputs."""
    lines = ["  p = f32[64]{0} parameter(0)\n", "  f = f32[64]{0} fusion(p), kind=kLoop, calls=one\n"]
    names = [f"v{k}" for k in range(110)]
    lines += [f"  {name} = f32[64]{{0}} tanh(p)\n" for name in names]
    shapes = ", ".join(["f32[64]{0}"] * 111)
    lines.append(f"  ROOT r = ({shapes}) tuple(f, {', '.join(names)})\n")
    fused, decisions = fuse("".join(lines), "{plain-siblings=true}")
    assert outputs(fused) == [95, 16]
    (full,) = [d for d in decisions if not d.fused]
    assert {r.code for r in full.reasons} == {"FUS201"}


def test_forcing_a_pair_of_siblings() -> None:
    body = """  p = f32[64]{0} parameter(0)
  f = f32[64]{0} fusion(p), kind=kLoop, calls=one
  s = f32[32]{0} slice(p), slice={[0:32]}
  ROOT r = (f32[64]{0}, f32[32]{0}) tuple(f, s)
"""
    fused, decisions = fuse(body)
    assert launched(fused) == ["fusion", "slice"]
    assert codes(decisions, "cos", "s") == {"FUS133", "FUS431"}
    assert outputs(fuse(body, force=[("cos", "s")])[0]) == [2]
    assert outputs(fuse(body, "{any-form=true}")[0]) == [2]


def test_steps_are_counted() -> None:
    text = f"HloModule m\n{SUM}{ALONE}\nENTRY e {{\n{SIBLINGS}}}\n"
    for limit, kernels in ((0, 3), (1, 2), (2, 1), (9, 1)):
        outcome = run(hlo_opt.parse(text), passes="multi-output-fusion", simplify="never", stop_after_step=limit)
        assert len(launched(outcome.module)) == kernels
        assert outcome.steps == min(limit, 2)


def test_a_full_kernel_takes_no_more_siblings_and_the_next_begins() -> None:
    size = 400
    lines = ["  p = f32[64]{0} parameter(0)\n"]
    names = [f"v{k}" for k in range(size)]
    lines += [f"  {name} = f32[64]{{0}} tanh(p)\n" for name in names]
    shapes = ", ".join(["f32[64]{0}"] * size)
    lines.append(f"  ROOT r = ({shapes}) tuple({', '.join(names)})\n")
    text = f"HloModule m\nENTRY e {{\n{''.join(lines)}}}\n"
    outcome = run(hlo_opt.parse(text), passes="multi-output-fusion{plain-siblings=true}", simplify="never")
    assert outputs(outcome.module) == [95, 95, 95, 95, 20]


TWICE = """
two {
  a = f32[64]{0} parameter(0)
  b = f32[64]{0} parameter(1)
  c = f32[64]{0} parameter(2)
  s = f32[64]{0} add(b, c)
  ROOT m = f32[64]{0} multiply(a, s)
}
"""


def test_a_fusion_may_be_given_an_operand_twice() -> None:
    body = """  p = f32[64]{0} parameter(0)
  q = f32[64]{0} parameter(1)
  n = f32[64]{0} sine(q)
  f = f32[64]{0} fusion(n, p, p), kind=kLoop, calls=two
  g = f32[64]{0} fusion(p, n, n), kind=kLoop, calls=two
  ROOT t = (f32[64]{0}, f32[64]{0}, f32[64]{0}) tuple(f, n, g)
"""
    fused, _ = fuse(body, extra=TWICE)
    assert launched(fused) == ["fusion"] and outputs(fused) == [3]
    read = hlo_opt.parse(str(fused))
    hlo_opt.verify(read)
    given = [np.arange(64, dtype=np.float32), np.linspace(0, 3, 64, dtype=np.float32)]
    sine = np.sin(given[1])
    wanted = [sine * (2 * given[0]), sine, given[0] * (2 * sine)]
    for got, want in zip(hlo_opt.evaluate(read, given), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
