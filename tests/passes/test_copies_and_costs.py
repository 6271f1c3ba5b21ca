"""Copies that kernels write themselves, and what the ends of an edge cost apart and as one."""

from __future__ import annotations

import pytest
from small_modules import H100, module_of

import hlo_opt
from hlo_opt.diag import Reason
from hlo_opt.fusion.context import FuseOptions, PassContext
from hlo_opt.fusion.decision import CostEstimate
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.joining import union_of
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Instruction, Module
from hlo_opt.passes.copy_fusion import CopyFusion
from hlo_opt.passes.decisions import MemberCosts
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.plans.price import Price, price

ROW = "f32[64]{0}"
PAIR = f"({ROW}, {ROW})"
COPIED = f"c = {ROW} copy(f)"
TRITON = 'kind=kCustom, calls=plain, backend_config={"fusion_backend_config":{"kind":"__triton"}}'
GEMM = TRITON.replace("__triton", "__triton_gemm")
SCATTER = (
    "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
    "to_apply=sum"
)
KERNELS = {
    "plain": (f"x0 = {ROW} parameter(0)", f"y0 = {ROW} negate(x0)"),
    "of_two": (f"x1 = {ROW} parameter(0)", f"y1 = {ROW} negate(x1)", f"w1 = {ROW} tanh(x1)",
        f"t1 = {PAIR} tuple(y1, w1)"),
    "scattered": (f"x2 = {ROW} parameter(0)", "i2 = s32[5,1]{1,0} parameter(1)", "u2_ = f32[5]{0} parameter(2)",
        f"y2 = {ROW} scatter(x2, i2, u2_), {SCATTER}"),
    "updated": (f"x3 = {ROW} parameter(0)", "u3_ = f32[5]{0} parameter(1)", "z3 = s32[] constant(3)",
        f"y3 = {ROW} dynamic-update-slice(x3, u3_, z3)"),
    "update_and_more": (
        f"x4 = {ROW} parameter(0)", "u4_ = f32[5]{0} parameter(1)", "z4 = s32[] constant(3)",
        f"y4 = {ROW} dynamic-update-slice(x4, u4_, z4)", f"n4 = {ROW} negate(x4)", f"t4 = {PAIR} tuple(y4, n4)",
    ),
    "sums": ("x5 = f32[64,96]{1,0} parameter(0)", "z5 = f32[] constant(0)",
        f"y5 = {ROW} reduce(x5, z5), dimensions={{1}}, to_apply=sum"),
    "sum_and_more": (
        "x6 = f32[64,96]{1,0} parameter(0)", "z6 = f32[] constant(0)", "n6 = f32[64,96]{1,0} negate(x6)",
        f"y6 = {ROW} reduce(n6, z6), dimensions={{1}}, to_apply=sum", f"t6 = (f32[64,96]{{1,0}}, {ROW}) tuple(n6, y6)",
    ),
    "cut": (f"x7 = {ROW} parameter(0)", "y7 = f32[32]{0} slice(x7), slice={[0:32]}"),
    "cut_twice": (f"x8 = {ROW} parameter(0)", "y8 = f32[32]{0} slice(x8), slice={[0:32]}",
        "w8 = f32[32]{0} slice(x8), slice={[32:64]}", "t8 = (f32[32]{0}, f32[32]{0}) tuple(y8, w8)"),
}  # fmt: skip
INPUTS = (
    f"p = {ROW} parameter(0)",
    "wide = f32[64,96]{1,0} parameter(1)",
    "places = s32[5,1]{1,0} parameter(2)",
    "some = f32[5]{0} parameter(3)",
)


def copied(*lines: str, steps: int | None = None) -> tuple[bool, Module]:
    module = module_of(*INPUTS, *lines, **KERNELS)
    changed = CopyFusion().run(module, PassContext(FuseOptions(H100, stop_after_step=steps)))
    hlo_opt.verify(hlo_opt.parse(str(module)))
    return changed, module


FUSION = f"f = {ROW} fusion(p), kind=kLoop, calls=plain"
BOTH = f"f = {PAIR} fusion(p), kind=kLoop, calls=of_two"
ELEMENTS = (f"g = {ROW} get-tuple-element(f), index=0", f"h = {ROW} get-tuple-element(f), index=1")


@pytest.mark.parametrize(
    ("lines", "outputs"),
    [
        ((FUSION, COPIED), 2),
        ((FUSION, COPIED, f"d = {ROW} copy(f)", f"r = ({ROW}, {ROW}, {ROW}) tuple(c, d, f)"), 3),
        ((FUSION, "b = f32[8,8]{1,0} bitcast(f)", "c = f32[8,8]{1,0} copy(b)"), 2),
        ((BOTH, *ELEMENTS, f"c = {ROW} copy(g)", f"d = {ROW} copy(h)", f"r = ({ROW}, {ROW}) tuple(c, d)"), 4),
        # what else reads an element, or a bitcast, needs it anyway
        ((BOTH, *ELEMENTS, f"c = {ROW} copy(g)", f"r = ({ROW}, {ROW}, {ROW}) tuple(c, g, h)"), 0),
        ((FUSION, "b = f32[8,8]{1,0} bitcast(f)", "c = f32[8,8]{1,0} copy(b)",
            "r = (f32[8,8]{1,0}, f32[8,8]{1,0}) tuple(b, c)"), 0),
        ((FUSION, f"r = {ROW} abs(f)"), 0),
        ((f"f = {ROW} fusion(p), {TRITON}", COPIED), 0),
        ((f"f = {ROW} fusion(p), {GEMM}", COPIED), 0),
        ((f"f = {ROW} fusion(p), kind=kLoop, calls=plain, output_to_operand_aliasing={{{{}}: (0, {{}})}}", COPIED), 0),
        ((f"o = {ROW} abs(p)", f"{FUSION}, control-predecessors={{o}}", COPIED), 0),
        ((FUSION, f"o = {ROW} abs(p), control-predecessors={{f}}", COPIED), 0),
        ((FUSION, COPIED, f"o = {ROW} abs(p), control-predecessors={{c}}", f"r = ({ROW}, {ROW}) tuple(c, o)"), 0),
        ((f"o = {ROW} abs(p)", FUSION, "b = s32[64]{0} bitcast(f), "
                                       "control-predecessors={o}", "c = s32[64]{0} copy(b)"), 0),
        ((f"f = {ROW} fusion(p, places, some), kind=kInput, calls=scattered", COPIED), 0),
        ((f"f = {ROW} fusion(p, some), kind=kLoop, calls=updated", COPIED), 0),
        ((f"f = {PAIR} fusion(p, some), kind=kLoop, "
          f"calls=update_and_more", *ELEMENTS, f"c = {ROW} copy(h)", f"r = ({ROW}, {ROW}) tuple(c, g)"), 3),
        ((f"f = {ROW} fusion(wide), kind=kInput, calls=sums", COPIED), 0),
        # of a kernel that writes a reduction later, what is no reduction
        (
            (
                f"f = (f32[64,96]{{1,0}}, {ROW}) fusion(wide), kind=kInput, "
                f"calls=sum_and_more", "g = f32[64,96]{1,0} get-tuple-element(f), index=0",
                f"h = {ROW} get-tuple-element(f), index=1", "c = f32[64,96]{1,0} copy(g)", f"d = {ROW} copy(h)",
                f"r = (f32[64,96]{{1,0}}, {ROW}) tuple(c, d)",
            ),
            3,
        ),
        (("f = f32[32]{0} fusion(p), kind=kLoop, calls=cut", "c = f32[32]{0} copy(f)"), 2),
        (
            (
                "f = (f32[32]{0}, f32[32]{0}) fusion(p), kind=kLoop, "
                "calls=cut_twice", "g = f32[32]{0} get-tuple-element(f), index=0",
                "c = f32[32]{0} copy(g)",
            ),
            0,
        ),
        (
            (FUSION, f"n = ({ROW}) tuple(f)", f"r = {ROW} abs(p)"), 0,
        ),
    ],
)  # fmt: skip
def test_which_copies_a_kernel_writes(lines: tuple[str, ...], outputs: int):
    changed, module = copied(*lines)
    fusion = next(i for i in module.entry.instructions if i.opcode == "fusion")
    assert changed == (outputs > 0)
    if not outputs:
        return
    assert sum(1 for _ in fusion.shape.leaves()) == outputs
    body = fusion.called_by("calls")
    assert [i.opcode for i in body.instructions].count("tuple") == 1 and body.root.opcode == "tuple"
    left = [i.opcode for i in module.entry.instructions]
    assert left.count("copy") == (1 if "sum_and_more" in lines[0] else 0)
    assert all(
        i.users or i.is_root or i.opcode in ("parameter", "fusion")
        for i in module.entry.instructions
        if i.opcode in ("bitcast", "copy")
    )


def test_users_of_the_fusion_and_of_the_copy_read_elements():
    _, module = copied(
        FUSION,
        "b = s32[64]{0} bitcast(f)",
        "c = s32[64]{0} copy(b)",
        f"u = {ROW} add(f, f)",
        "d = s32[64]{0} abs(c)",
        f"r = ({ROW}, s32[64]{{0}}) tuple(u, d)",
    )
    of = {i.name: i for i in module.entry.instructions}
    numbers = {name: [o.attribute("index", int) for o in of[name].operands] for name in ("u", "d")}
    assert numbers == {"u": [0, 0], "d": [1]} and "b" not in of and "c" not in of
    _, module = copied(COPIED.replace("copy(f)", "copy(p)"), f"o = {ROW} abs(p)", FUSION)
    assert module.entry.root.opcode == "fusion"
    _, module = copied(f"f0 = {ROW} fusion(p), kind=kLoop, calls=plain", f"c = {ROW} copy(f0)", f"r = {ROW} abs(c)")
    assert module.entry.root.operands[0].attribute("index", int) == 1


@pytest.mark.parametrize(("operands", "copies", "outputs"), [(90, 10, 6), (95, 3, 0), (94, 3, 2), (1, 3, 4)])
def test_there_is_room_for_so_many_outputs(operands: int, copies: int, outputs: int):
    held = (*(f"x{n} = {ROW} parameter({n})" for n in range(operands)), f"y = {ROW} negate(x0)")
    lines = [f"p{n} = {ROW} parameter({n})" for n in range(operands)]
    lines.append(f"f = {ROW} fusion({', '.join(f'p{n}' for n in range(operands))}), kind=kLoop, calls=held")
    lines += [f"c{n} = {ROW} copy(f)" for n in range(copies)]
    lines.append(f"r = ({', '.join([ROW] * copies)}) tuple({', '.join(f'c{n}' for n in range(copies))})")
    module = module_of(*lines, held=held)
    CopyFusion().run(module, PassContext(FuseOptions(H100)))
    fusion = next(i for i in module.entry.instructions if i.opcode == "fusion")
    assert sum(1 for _ in fusion.shape.leaves()) == (outputs or 1)
    assert operands + outputs <= 96


def test_each_kernel_is_a_step_and_copies_keep_their_names():
    lines = (
        FUSION,
        COPIED,
        f"f2 = {ROW} fusion(p), kind=kLoop, calls=plain2",
        f"d = {ROW} copy(f2)",
        f"r = ({ROW}, {ROW}, {ROW}, {ROW}) tuple(c, d, f, f2)",
    )
    second = (f"x = {ROW} parameter(0)", f"y = {ROW} abs(x)")
    for steps, copies in ((0, 2), (1, 1), (2, 0)):
        module = module_of(*INPUTS, *lines, **KERNELS, plain2=second)
        context = PassContext(FuseOptions(H100, stop_after_step=steps))
        assert CopyFusion().run(module, context) == (steps > 0)
        assert sum(i.opcode == "copy" for i in module.entry.instructions) == copies
    assert sorted(context.origins.values()) == ["c", "d"]


# ---- costs

WIDE = "f32[4096]{0}"


def ends(*lines: str, producer: str = "a", consumer: str = "b") -> tuple[Engine, Instruction, Instruction, Module]:
    module = module_of(f"p = {WIDE} parameter(0)", f"q = {WIDE} parameter(1)", *lines)
    of = {i.name: i for i in module.entry.instructions}
    return Engine(module, PassContext(FuseOptions(H100))), of[producer], of[consumer], module


def alone(engine: Engine, *instructions: Instruction) -> list[Price]:
    """Prices from the plans of instructions, each a launch."""
    found = []
    for instruction in instructions:
        made = plan(region_of(engine.module, instruction), H100)
        assert isinstance(made, Plan)
        found.append(price(made, H100))
    return found


def cost_of_edge(engine: Engine, producer: Instruction, consumer: Instruction) -> CostEstimate | None:
    """Of both as one kernel; None where there can be none."""
    found = union_of(engine, producer, consumer)
    return None if isinstance(found, Reason) else found.cost


def test_what_others_read_is_written_by_the_kernel_of_both():
    for more, shared in (((), False), ((f"c = {WIDE} cosine(a)",), True)):
        engine, a, b, _ = ends(f"a = {WIDE} tanh(p)", f"b = {WIDE} negate(a)", *more, f"r = {WIDE} abs(b)")
        above, below = alone(engine, a, b)
        found = cost_of_edge(engine, a, b)
        assert found is not None and not found.kept
        assert (found.us_unfused, found.bytes_unfused) == (above.us + below.us, above.bytes + below.bytes)
        assert found.bytes_saved == pytest.approx(4 * 4096 * (1 if shared else 2), rel=0.01)
        assert found.us_fused < found.us_unfused - 0.9 * H100.kernel_launch_us
        assert cost_of_edge(engine, a, b) == found and len(engine.state.known.costs) == 1 + shared


def test_a_producer_that_is_needed_on_another_way_stays_a_kernel():
    """One kernel of both would wait for itself."""
    engine, a, b, _ = ends(
        f"a = {WIDE} tanh(p)",
        'd = f32[4096]{0} custom-call(a), custom_call_target="other"',
        f"b = {WIDE} add(a, d)",
        f"r = {WIDE} abs(b)",
    )
    found = cost_of_edge(engine, a, b)
    assert found is not None and found.kept and found.us_saved < 0 < found.bytes_unfused


def test_a_call_of_a_library_cannot_be_joined_and_the_edge_has_no_price():
    engine, a, b, _ = ends(
        "m = f32[64,64]{1,0} bitcast(p)",
        "a = f32[64,64]{1,0} cholesky(m), lower=true",
        "b = f32[64,64]{1,0} negate(a)",
        "r = f32[64,64]{1,0} abs(b)",
    )
    assert cost_of_edge(engine, a, b) is None and not engine.state.known.costs


def test_through_a_bitcast_an_edge_costs_what_one_kernel_of_both_would():
    """A value that nobody else reads is not written any more."""
    for more, shared in (((), False), (("c = s32[4096]{0} negate(t)",), True), ((f"c = {WIDE} abs(a)",), True)):
        engine, a, b, module = ends(
            f"a = {WIDE} tanh(p)",
            "t = s32[4096]{0} bitcast(a)",
            "b = s32[4096]{0} abs(t)",
            *more,
            "r = s32[4096]{0} negate(b)",
        )
        next(i for i in module.entry.instructions if i.name == "t")
        found = cost_of_edge(engine, a, b)
        above, below = alone(engine, a, b)
        assert found is not None and found.us_unfused == above.us + below.us
        assert found.bytes_saved == pytest.approx(4 * 4096 * (1 if shared else 2), rel=0.01)


def test_the_result_of_a_computation_is_written():
    engine, a, b, module = ends(
        "b0 = s32[4096]{0} iota(), iota_dimension=0",
        f"a = {WIDE} tanh(p)",
        "t = s32[4096]{0} bitcast(a)",
        "b = s32[4096]{0} add(t, b0)",
        "r = (s32[4096]{0}, s32[4096]{0}) tuple(b, t)",
    )
    next(i for i in module.entry.instructions if i.name == "t")
    found = cost_of_edge(engine, a, b)
    assert found is not None and found.bytes_saved == pytest.approx(4 * 4096, rel=0.01)


def test_members_alike_cost_the_same_and_what_they_share_counts():
    lines = (
        f"a = {WIDE} add(p, q)",
        f"b = {WIDE} subtract(p, q)",
        f"c = {WIDE} subtract(q, p)",
        f"d = {WIDE} subtract(q, q)",
        f"e2 = {WIDE} add(q, p)",
        f"k = {WIDE} abs(a)",
        f"l = {WIDE} abs(e2)",
        "r = f32[] constant(0)",
    )
    _, a, b, module = ends(*lines)
    of = {i.name: i for i in module.entry.instructions}
    member = MemberCosts(FusionState(module, H100))
    first = member.beside(a, b)
    assert first is not None and first.bytes_saved == pytest.approx(2 * 4 * 4096, rel=0.01)
    assert member.beside(a, b) is first
    other = member.beside(a, of["d"])
    assert other is not None and other.bytes_saved == pytest.approx(4 * 4096, rel=0.01)
    assert member.beside(a, of["c"]) == first
    one = member.of(a, of["k"])
    assert one is not None and member.of(of["e2"], of["l"]) is one
