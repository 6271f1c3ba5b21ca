"""Each rule of priority fusion by itself."""

from __future__ import annotations

import pytest
from small_modules import module_of, named, state_of

from hlo_opt.diag import Reason
from hlo_opt.fusion import priority_choices as rules
from hlo_opt.fusion.legality import Edge
from hlo_opt.fusion.priority_choices import ConstantChoices, PriorityChoices
from hlo_opt.fusion.traits import Traits
from hlo_opt.ir import Instruction

WIDE, ROW = "f32[64,96]{1,0}", "f32[64]{0}"
ROWS = "dimensions={1}, to_apply=sum"
TRITON = 'kind=kCustom, backend_config={"fusion_backend_config":{"kind":"__triton"}}'
GEMM = 'kind=kCustom, backend_config={"fusion_backend_config":{"kind":"__triton_gemm"}}'
INPUTS = (
    f"p = {WIDE} parameter(0)",
    f"v = {ROW} parameter(1)",
    "few = f32[4,64]{1,0} parameter(2)",
    "z = f32[] constant(0)",
)
KERNELS = {
    "negated": (f"x0 = {WIDE} parameter(0)", f"y0 = {WIDE} negate(x0)"),
    "turned": (f"x3 = {WIDE} parameter(0)", f"y3 = {WIDE} reverse(x3), dimensions={{0}}"),
    "sums": (f"x1 = {WIDE} parameter(0)", "z1 = f32[] constant(0)", f"e1 = {WIDE} exponential(x1)",
        f"y1 = {ROW} reduce(e1, z1), {ROWS}"),
    "folded": (
        f"x2 = {ROW} parameter(0)", "z2 = f32[] parameter(1)", "y2 = f32[] reduce(x2, z2), dimensions={0}, to_apply=sum"
    ),
    "scattered": (
        f"x4 = {WIDE} parameter(0)",
        "i4_ = s32[5,1]{1,0} parameter(1)",
        "u4_ = f32[5,96]{1,0} parameter(2)",
        f"y4 = {WIDE} scatter(x4, i4_, u4_), update_window_dims={{1}}, inserted_window_dims={{0}}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum",
    ),
}  # fmt: skip
CHOICES = PriorityChoices()


def edge(*lines: str, **kernels: tuple[str, ...]) -> Edge:
    """From `a` to `b`."""
    module = module_of(*INPUTS, *lines, "r = f32[] constant(0)", **KERNELS, **kernels)
    return Edge(named(module, "a"), named(module, "b"), state_of(module))


def value(line: str) -> Instruction:
    return module_of(*INPUTS, f"r = {line}", **KERNELS).entry.root


def no(code: str, **numbers: object) -> Reason:
    return Reason.of(code, **numbers)


@pytest.mark.parametrize(
    ("line", "taken"),
    [
        (f"{WIDE} broadcast(v), dimensions={{0}}", True),
        ("f32[128,96]{1,0} concatenate(p, p), dimensions={0}", True),
        ("f32[2]{0} constant({1, 2})", True),
        (f"{WIDE} copy(p)", True),
        ("f32[2,96]{1,0} dynamic-slice(p, i, i), dynamic_slice_sizes={2,96}", True),
        (f"{WIDE} dynamic-update-slice(p, p, i, i)", True),
        ("s32[5]{0} iota(), iota_dimension=0", True),
        ("f32[66,96]{1,0} pad(p, z), padding=1_1x0_0", True),
        (f"{ROW} reduce(p, z), {ROWS}", True),
        (f"{WIDE} reduce-window(p, z), window={{size=1x1}}, to_apply=sum", True),
        ("f32[96,64]{1,0} reshape(p)", True),
        (f"{WIDE} reverse(p), dimensions={{0}}", True),
        ("f32[2,96]{1,0} slice(p), slice={[0:2], [0:96]}", True),
        ("f32[96,64]{1,0} transpose(p), dimensions={1,0}", True),
        (f"{WIDE} negate(p)", True),
        (f"{WIDE} map(p, p), dimensions={{0,1}}, to_apply=sum", False),
        (f"{WIDE} rng(z, z), distribution=rng_uniform", False),
        (f'{WIDE} custom-call(p), custom_call_target="f"', False),
        ("f32[4,4]{1,0} dot(few, few), lhs_contracting_dims={1}, rhs_contracting_dims={1}", False),
        ("f32[6144]{0} bitcast(p)", True),
        ("s32[64,96]{1,0} bitcast(p)", True),
        ("f16[64,96,2]{2,1,0} bitcast(p)", False),
        (f"({WIDE}) bitcast(p)", False),
        (f"{WIDE} bitcast(whole)", False),
        (f"{WIDE} fusion(p), kind=kLoop, calls=negated", True),
        (f"{WIDE} fusion(p), {TRITON}, calls=negated", True),
        (f"{WIDE} fusion(p), {GEMM}, calls=negated", False),
    ],
)
def test_what_priority_fusion_takes(line: str, taken: bool):
    module = module_of(*INPUTS, "i = s32[] constant(0)", f"whole = ({WIDE}) tuple(p)", f"r = {line}", **KERNELS)
    assert rules.is_fusible(module.entry.root) == taken


A, B = f"a = {WIDE} negate(p)", f"b = {WIDE} tanh(a)"
CALL = f'{WIDE} custom-call(p), custom_call_target="cudnn"'


@pytest.mark.parametrize(
    ("lines", "against"),
    [
        ((A, B), None),
        ((f"a = {CALL}", B), no("FUS122", instruction="a", opcode="custom-call cudnn")),
        ((A, f"b = {CALL.replace('(p)', '(a)')}"), no("FUS122", instruction="b", opcode="custom-call cudnn")),
        ((f"a = {WIDE} fusion(p), {GEMM}, "
          f"calls=negated", B), no("FUS122", instruction="a", opcode="fusion __triton_gemm")),
        ((A, f"b = {WIDE} map(a, a), dimensions={{0,1}}, to_apply=sum"), no("FUS122", instruction="b", opcode="map")),
    ],
)  # fmt: skip
def test_opcodes_that_are_not_fused(lines: tuple[str, ...], against: Reason | None):
    found = edge(*lines)
    assert rules.opcode_not_fused(found) == against
    assert rules.constant_conflict(found) == against
    for choices in (CHOICES, ConstantChoices()):
        assert list(choices.against(found)) == ([] if against is None else [against])
        assert not list(choices.against(found, frozenset({"FUS122"})))
        assert not choices.rules_out(found, frozenset({"FUS122"}))
    assert CHOICES.rules_out(found) == (against is not None)
    assert ConstantChoices().rules_out(found) == (against is not None and against.numbers["instruction"] == "b")


@pytest.mark.parametrize(("above", "below"), [(0, 1), (1, 0), (2, 3)])
def test_folding_what_folds(above: int, below: int):
    found = edge(A, B)
    found._above, found._below = Traits(significant_reduces=above), Traits(significant_reduces=below)
    wanted = no("FUS420", producer="a", consumer="b", above=2, below=3) if above and below else None
    assert rules.reduce_into_reduce(found) == wanted


@pytest.mark.parametrize(
    ("lines", "against"),
    [
        ((A, B), None),
        # it stays the hero of one kernel
        ((f"a = {ROW} reduce(p, z), {ROWS}", f"b = {ROW} negate(a)"), None),
        # in a loop already
        (("a = f32[64]{0} reduce(few, z), dimensions={0}, "
          "to_apply=sum", f"b = {ROW} reverse(a), dimensions={{0}}"), None),
        (
            (f"a = {ROW} reduce(p, z), {ROWS}", f"b = {ROW} reverse(a), dimensions={{0}}"),
            no("FUS404", producer="a", reduction="row", sizes="1x64x96", consumer="b"),
        ),
        (
            ("a = f32[96]{0} reduce(p, z), dimensions={0}, to_apply=sum", "b = f32[96]{0} reverse(a), dimensions={0}"),
            no("FUS404", producer="a", reduction="column", sizes="1x64x96", consumer="b"),
        ),
        (
            (f"a = {ROW} fusion(p), kind=kInput, calls=sums", f"b = {ROW} reverse(a), dimensions={{0}}"),
            no("FUS404", producer="y1", reduction="row", sizes="1x64x96", consumer="b"),
        ),
        # the hero is a scatter: no loop
        (
            (
                "i = s32[5,1]{1,0} parameter(3)",
                "u = f32[5]{0} parameter(4)",
                f"a = {ROW} reduce(p, z), {ROWS}",
                f"b = {ROW} scatter(a, i, u), update_window_dims={{}}, inserted_window_dims={{0}}, "
                "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum",
            ),
            None,
        ),
    ],
)  # fmt: skip
def test_a_reduction_that_threads_share_stays_one(lines: tuple[str, ...], against: Reason | None):
    assert rules.reduction_becomes_loop(edge(*lines)) == against


def test_how_much_code_a_kernel_has():
    """Two slices read it at two places."""
    cut = (
        f"x5 = {WIDE} parameter(0)",
        "c0 = f32[8,96]{1,0} slice(x5), slice={[0:8], [0:96]}",
        "c1 = f32[8,96]{1,0} slice(x5), slice={[1:9], [0:96]}",
        "y5 = f32[8,96]{1,0} add(c0, c1)",
    )
    for found, copies in (
        (edge(f"a = {WIDE} tanh(p)", "b = f32[8,96]{1,0} fusion(a), kind=kLoop, calls=cut", cut=cut), 2),
        (edge(f"a = {WIDE} tanh(p)", f"b = {WIDE} negate(a)"), 1),
    ):
        above, below = (found.state.priced_by_xla(i).usage.code_size for i in (found.producer, found.consumer))
        size = copies * above + below
        assert PriorityChoices(size).code_size(found) is None
        limited = no("FUS220", producer="a", consumer=found.consumer_name, size=size, limit=size - 1)
        assert PriorityChoices(size - 1).code_size(found) == limited
        assert (
            PriorityChoices(size - 1).likeness(found)
            != PriorityChoices(size).likeness(found)
            != CHOICES.likeness(found)
        )
        assert CHOICES.likeness(found) != ConstantChoices().likeness(found)


def test_a_tiled_kernel_has_rules_of_its_own():
    for lines in (
        (f"a = {WIDE} fusion(p), {TRITON}, calls=negated", f"b = {WIDE} reverse(a), dimensions={{0}}"),
        (f"a = {WIDE} reverse(p), dimensions={{0}}", f"b = {WIDE} fusion(a), {TRITON}, calls=negated"),
    ):
        found = edge(*lines)
        assert [r.code for r in CHOICES.against(found)] == ["FUS321"]
    assert len(CHOICES.checks(edge(A, B))) == 7
    below = edge(A, f"b = {WIDE} fusion(a), {TRITON}, calls=turned")
    assert rules.constant_conflict(below) == no("FUS321", instruction="y3", element_type="f32", opcode="reverse")


def test_a_scatter_takes_its_constant_operand_only_where_it_may():
    lines = ("i = s32[5,1]{1,0} parameter(3)", "u = f32[5,96]{1,0} parameter(4)")
    found = edge(*lines, A, f"b = {WIDE} fusion(a, i, u), kind=kInput, calls=scattered")
    wanted = rules.scatter_conflict(found)
    assert wanted is not None and rules.constant_conflict(found) == wanted
