"""What a decision says: names of the input, opcodes, source lines, kernels, and who spoke."""

from __future__ import annotations

import pytest
from small_modules import H100, module_of

import hlo_opt
from hlo_opt.diag import Reason
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.fusion.state import FusionState
from hlo_opt.passes import decisions, run
from hlo_opt.passes.decisions import MemberCosts

ROW = "f32[64]{0}"
PAIR = f"({ROW}, {ROW})"
GEMM = 'kind=kCustom, backend_config={"fusion_backend_config":{"kind":"__triton_gemm"}}'
KERNELS = {
    "of_two": (
        f"x0 = {ROW} parameter(0)",
        f'y0 = {ROW} negate(x0), metadata={{op_name="y" source_file="two.py" source_line=5}}',
        f"w0 = {ROW} tanh(x0)",
        f"t0 = {PAIR} tuple(y0, w0)",
    ),
    "product": (f"x1 = {ROW} parameter(0)", f"y1 = {ROW} negate(x1)"),
    "chain": (
        f"x2 = {ROW} parameter(0)",
        f'a2 = {ROW} abs(x2), metadata={{op_name="a" source_file="chain.py" source_line=1}}',
        f'b2 = {ROW} tanh(a2), metadata={{op_name="b" source_file="chain.py" source_line=2}}',
        f"y2 = {ROW} multiply(b2, b2)",
    ),
}


def line(number: int) -> str:
    return f', metadata={{op_name="x" source_file="m.py" source_line={number}}}'


def decided(*lines: str, passes: str = "dce", **options: object) -> dict[tuple[str, str], FusionDecision]:
    module = module_of(f"p = {ROW} parameter(0)", f"q = {ROW} parameter(1)", *lines, **KERNELS)
    found = run(module, passes=passes, simplify="never", **options).decide()  # type: ignore[arg-type]
    assert len({(d.producer, d.consumer) for d in found}) == len(found)
    return {(d.producer, d.consumer): d for d in found}


def test_an_edge_inside_a_fusion_of_the_input_is_told_as_fused():
    found = decided(f"f = {ROW} fusion(p), kind=kLoop, calls=chain")
    assert list(found) == [("a2", "b2"), ("b2", "y2")]
    one = found["a2", "b2"]
    assert (one.producer_opcode, one.consumer_opcode, one.rule, one.relation, one.computation) == (
        "abs",
        "tanh",
        "input",
        "operand",
        "e",
    )
    assert (one.producer_source, one.consumer_source) == ("chain.py:1", "chain.py:2")
    assert one.producer_kernel == one.consumer_kernel == "f" and one.fused and one.cost is not None
    assert found["b2", "y2"].consumer_source == ""


def test_an_edge_that_was_fused_names_its_pass_and_its_kernel():
    found = decided(f"a = {ROW} abs(p){line(3)}", f"b = {ROW} negate(a){line(4)}", passes="instruction-fusion")
    ((ends, one),) = found.items()
    assert ends == ("a", "b") and one.rule == "instruction-fusion"
    assert one.producer_kernel == one.consumer_kernel == "loop_negate_fusion"
    assert (one.producer_source, one.consumer_source) == ("m.py:3", "m.py:4")


def test_an_edge_that_was_copied_into_several_kernels_is_told_once():
    lines = (
        f"a = {ROW} abs(p)",
        f"b = {ROW} negate(a)",
        f"c = {ROW} cosine(b)",
        f"d = {ROW} tanh(b)",
        f"r = ({ROW}, {ROW}) tuple(c, d)",
    )
    found = decided(*lines, passes="instruction-fusion")
    assert sorted(found) == [("a", "b"), ("b", "c"), ("b", "d")] and all(d.fused for d in found.values())


def test_outputs_of_one_kernel_that_do_not_read_each_other_were_joined():
    lines = (
        f"f = {PAIR} fusion(p), kind=kLoop, calls=of_two",
        f"g = {ROW} get-tuple-element(f), index=0",
        f"h = {ROW} get-tuple-element(f), index=1",
        f"r = ({ROW}, {ROW}) tuple(g, h)",
    )
    ((ends, one),) = decided(*lines).items()
    assert ends == ("y0", "w0") and (one.relation, one.rule, one.producer_opcode, one.consumer_opcode) == (
        "sibling",
        "input",
        "negate",
        "tanh",
    )
    assert (one.producer_kernel, one.consumer_kernel, one.producer_source, one.consumer_source) == (
        "f",
        "f",
        "two.py:5",
        "",
    )
    module = module_of(f"p = {ROW} parameter(0)", *lines, **KERNELS)
    y, w = (i for c in module.computations for i in c.instructions if i.name in ("y0", "w0"))
    assert one.cost == MemberCosts(FusionState(module, H100)).beside(y, w)
    joined = decided(
        f"a = {ROW} abs(p)",
        f"b = {ROW} negate(p)",
        f"r = ({ROW}, {ROW}) tuple(a, b)",
        passes="multi-output-fusion{plain-siblings=true}",
    )
    assert joined["a", "b"].rule == "multi-output-fusion" and joined["a", "b"].relation == "sibling"


def test_outputs_that_read_each_other_are_no_siblings_but_those_that_do_not_are():
    lines = (f"a = {ROW} abs(p)", f"b = {ROW} negate(a)", f"c = {ROW} cosine(b)", f"r = ({ROW}, {ROW}) tuple(a, c)")
    found = decided(*lines, passes="instruction-fusion{may-duplicate=false},multi-output-fusion")
    assert {ends: d.relation for ends, d in found.items()} == {
        ("a", "b"): "operand",
        ("b", "c"): "operand",
        ("c", "a"): "sibling",
    }


def test_an_edge_that_is_left_has_its_reasons_once():
    call = f'c = {ROW} custom-call(p), custom_call_target="x"{line(7)}'
    found = decided(call, f"r = {ROW} abs(c){line(8)}", passes="instruction-fusion,priority-fusion,multi-output-fusion")
    ((ends, one),) = found.items()
    assert ends == ("c", "r") and (one.producer_opcode, one.consumer_opcode, one.relation) == (
        "custom-call",
        "abs",
        "operand",
    )
    assert (one.producer_source, one.consumer_source, one.producer_kernel, one.consumer_kernel) == (
        "m.py:7",
        "m.py:8",
        "c",
        "r",
    )
    assert [r.code for r in one.reasons] == ["FUS308", "FUS122"] and one.rule == "priority-fusion"
    assert [r.code for r in decided(call, f"r = {ROW} abs(c)", passes="instruction-fusion")[ends].reasons] == ["FUS308"]


def test_of_a_kernel_with_several_outputs_the_member_behind_the_element_is_named():
    lines = (
        f"f = {PAIR} fusion(p), kind=kLoop, calls=of_two",
        f"g = {ROW} get-tuple-element(f), index=0",
        f"h = {ROW} get-tuple-element(f), index=1",
        "k = s32[64]{0} bitcast(g)",
        f'c = {ROW} custom-call(k, h, g), custom_call_target="x"',
    )
    found = decided(*lines)
    assert list(found) == [("y0", "w0"), ("y0", "c"), ("w0", "c")]
    assert (found["y0", "c"].producer_opcode, found["y0", "c"].producer_kernel, found["y0", "c"].producer_source) == (
        "negate",
        "f",
        "two.py:5",
    )
    assert found["w0", "c"].producer_opcode == "tanh" and found["w0", "c"].producer_source == ""
    assert found["y0", "c"].rule == "legality" and [r.code for r in found["y0", "c"].reasons] == ["FUS308", "FUS105"]


def test_the_member_that_reads_a_kernel_is_named():
    lines = (
        f'c = {ROW} custom-call(p), custom_call_target="x"',
        "k = f32[64]{0} bitcast(c)",
        f"f = {ROW} fusion(k), kind=kLoop, calls=chain",
    )
    one = decided(*lines)["c", "a2"]
    assert (one.consumer_opcode, one.consumer_source, one.consumer_kernel) == ("abs", "chain.py:1", "f")
    library = decided(
        f'c = {ROW} custom-call(p), custom_call_target="x"', f"f = {ROW} fusion(c), {GEMM}, calls=product{line(9)}"
    )
    assert (library["c", "f"].consumer_opcode, library["c", "f"].consumer_source) == ("fusion", "m.py:9")
    above = decided(f"f = {ROW} fusion(p), {GEMM}, calls=product{line(9)}", f"r = {ROW} abs(f)")
    assert (above["f", "r"].producer_opcode, above["f", "r"].producer_source) == ("fusion", "m.py:9")


def test_through_an_element_only_what_counts_there_counts():
    """Too many operands are no matter where the edge could not be fused as it stands."""
    many = ", ".join(f"p{n}" for n in range(96))
    lines = [f"p{n} = {ROW} parameter({n + 2})" for n in range(96)]
    call = f'c = ({ROW}, {ROW}) custom-call(p), custom_call_target="x"'
    found = decided(
        *lines,
        call,
        f"g = {ROW} get-tuple-element(c), index=0",
        f'd = {ROW} custom-call(g, {many}), custom_call_target="x"',
    )
    assert [r.code for r in found["c", "d"].reasons] == ["FUS308", "FUS105"]


def test_through_a_bitcast_a_library_is_told_of():
    lines = (
        "w = f32[64,64]{1,0} parameter(2)",
        "d = f32[64,64]{1,0} dot(w, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "b = f32[4096]{0} bitcast(d)",
        "r = f32[4096]{0} negate(b)",
    )
    assert [r.code for r in decided(*lines)["d", "r"].reasons] == ["FUS302"]
    found = decided(*lines, passes="multi-output-fusion", what_if=["FUS302"])["d", "r"]
    assert [r.code for r in found.reasons] == ["FUS110", "FUS503"] and found.rule == "pipeline"


@pytest.mark.parametrize(
    ("passes", "options", "code", "rule"),
    [
        ("dce", {}, "FUS503", "pipeline"),
        ("instruction-fusion", {"stop_after_step": 0}, "FUS502", "stop-after-step"),
        ("dce", {"stop_after_step": 0}, "FUS503", "pipeline"),
        ("instruction-fusion{may-duplicate=false}", {}, "", "instruction-fusion"),
    ],
)
def test_why_an_edge_is_left_that_nothing_speaks_against(passes: str, options: dict[str, int], code: str, rule: str):
    found = decided(f"a = {ROW} abs(p)", f"r = {ROW} negate(a)", passes=passes, **options)["a", "r"]
    numbers = {"FUS503": {"producer": "a", "consumer": "r"}, "FUS502": {"limit": 0}}
    assert found.reasons == ((Reason.of(code, **numbers[code]),) if code else ()) and found.rule == rule


def test_of_each_kind_of_pass_the_last_explains():
    """The producer passes: the last that takes such edges. Multi-output fusion is of another kind, and speaks, too."""
    lines = (
        f"a = {ROW} tanh(p)",
        f"b = {ROW} reverse(a), dimensions={{0}}",
        f"c = {ROW} cosine(a)",
        f"r = ({ROW}, {ROW}) tuple(b, c)",
    )
    spec = "instruction-fusion,instruction-fusion{may-duplicate=false},multi-output-fusion"
    one = decided(*lines, passes=spec, stop_after_step=0)["a", "b"]
    assert one.rule == "instruction-fusion, multi-output-fusion" and [r.code for r in one.reasons] == [
        "FUS501",
        "FUS133",
    ]
    assert [[r.code for r in against] for against in one.by_pass] == [["FUS501"], ["FUS133"]]
    assert decided(*lines, passes="instruction-fusion", stop_after_step=0)["a", "b"].reasons[0].code == "FUS401"


def test_only_some_kernels_and_no_siblings():
    lines = (
        f"a = {ROW} abs(p)",
        f"b = {ROW} negate(a)",
        f"c = {ROW} cosine(b)",
        f"s = {ROW} sine(p)",
        f"r = ({ROW}, {ROW}) tuple(c, s)",
    )
    module = module_of(f"p = {ROW} parameter(0)", *lines)
    outcome = run(module, passes="multi-output-fusion", simplify="never", stop_after_step=0)
    assert {(d.producer, d.consumer) for d in outcome.decide()} == {("a", "b"), ("b", "c"), ("a", "s")}
    assert [(d.producer, d.consumer) for d in outcome.decide({"b"}, siblings=False)] == [("a", "b")]
    assert [(d.producer, d.consumer, d.relation) for d in outcome.decide(set())] == [("a", "s", "sibling")]
    assert outcome.seconds["decisions"] > 0


def test_neighbours_that_stay_apart():
    lines = (
        f"f = {ROW} fusion(p), kind=kLoop, calls=chain{line(6)}",
        f"s = {ROW} reverse(p), dimensions={{0}}{line(7)}",
        f"r = ({ROW}, {ROW}) tuple(f, s)",
    )
    one = decided(*lines, passes="multi-output-fusion")["y2", "s"]
    assert (one.relation, one.rule, one.producer_opcode, one.consumer_opcode) == (
        "sibling",
        "multi-output-fusion",
        "multiply",
        "reverse",
    )
    assert (one.producer_source, one.consumer_source, one.producer_kernel, one.consumer_kernel) == (
        "m.py:6",
        "m.py:7",
        "f",
        "s",
    )
    assert one.reasons == (Reason.of("FUS133", instruction="s", form="reverse"),) and one.cost is not None


def test_what_a_kernel_computes_last():
    module = module_of(
        f"p = {ROW} parameter(0)",
        f"f = {PAIR} fusion(p), kind=kLoop, calls=of_two",
        f"g = {ROW} fusion(p), {GEMM}, calls=product",
        f"r = {ROW} fusion(g), kind=kLoop, calls=chain",
        **KERNELS,
    )
    of = {i.name: i for i in module.entry.instructions}
    assert [decisions._root(of[name]).name for name in "pfgr"] == ["p", "y0", "g", "y2"]


def test_a_kernel_that_computes_nothing_has_no_last_value():
    module = module_of(
        f"p = {ROW} parameter(0)",
        "f = () fusion(p), kind=kLoop, calls=empty",
        empty=(f"x = {ROW} parameter(0)", "t = () tuple()"),
    )
    assert decisions._root(module.entry.root).name == "t"


def test_reasons_that_say_the_same_are_one():
    one, other = Reason.of("FUS502", limit=1), Reason.of("FUS502", limit=2)
    assert decisions._unique([one, other, Reason.of("FUS502", limit=1)]) == [one, other]


def test_a_module_without_edges_has_no_decisions():
    assert run(hlo_opt.parse("HloModule m\n\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n")).decide() == []


@pytest.mark.parametrize("passes", ["horizontal-input-fusion", "horizontal-loop-fusion"])
def test_passes_that_join_neighbours_do_not_speak_of_operands(passes: str):
    found = decided(f"a = {ROW} negate(p)", f"r = {ROW} tanh(a)", passes=passes)
    assert [r.code for r in found["a", "r"].reasons] == ["FUS503"]
