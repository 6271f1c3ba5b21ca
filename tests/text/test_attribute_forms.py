"""Values of attributes against their forms; XLA's parser says which are right."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.diag import ParseError, Source
from hlo_opt.ops import table
from hlo_opt.ops.spec import SHARED_ATTRIBUTES
from hlo_opt.text.attribute_forms import FORMS, OPCODE_FORMS, check_form
from hlo_opt.text.grammar import grammar
from hlo_opt.text.printer import HEADER_ORDER

CALLED = {
    "body",
    "branch_computations",
    "called_computations",
    "calls",
    "condition",
    "control-predecessors",
    "false_computation",
    "scatter",
    "select",
    "to_apply",
    "true_computation",
}


def test_every_attribute_has_a_form():
    known = {name for spec in table() for name in spec.attributes} | SHARED_ATTRIBUTES | set(HEADER_ORDER)
    assert known - CALLED - {"sparsity_config"} <= set(FORMS)


def test_every_rule_and_terminal_is_in_the_grammar():
    for form in [*FORMS.values(), *OPCODE_FORMS.values()]:
        for name in form.terminals:
            assert grammar().terminal(name)
        if form.rule:
            with pytest.raises(ParseError):
                grammar().parse(form.rule, "(]")


VALUES = [
    (
        "negate",
        "sharding",
        [
            "{replicated}",
            "{maximal device=0}",
            "{devices=[2]0,1}",
            "{devices=[2]<=[2]}",
            "{manual}",
            "{unreduced}",
            "{devices=[2]<=[2,1]T(1,0)}",
            "{unknown shard_as 1}",
            "{}",
            "{{replicated}, {maximal device=1}}",
            "{devices=[2,2]<=[4] last_tile_dim_replicate}",
            "{devices=[1,2]<=[2] last_tile_dims={manual}}",
            '{replicated metadata={op_name="a"}}',
            "{mesh['x'=2], [{'x'}]}",
            "{mesh['x'=4], [{'x':(1)2}], unreduced={'x':(2)2}}",
            "{mesh['x'=2], replicated}",
            "{mesh['x'=2], device_ids=(1,0), [{'x'}]}",
            "{maximal_mesh[device_id=0]}",
            "{mesh['x'=2], [{?}]}",
        ],
        [
            "replicated",
            "{replicated device=0}",
            "{maximal}",
            "{device=0}",
            "{devices=[1]0}",
            "{devices=[2]<=[2,1]}",
            "{devices=[2]<=[2]T(0)}",
            "{devices=[2]<=[2,1]T(1,2)}",
            "{shard_as 1}",
            "{{replicated},}",
            "{foo}",
            "{mesh[x=2], [{x}]}",
            "{devices=[2,2]<=[4] last_tile_dims={foo}}",
            '{devices=[2]0,1, metadata={op_name="a"}}',
            "{mesh['a'=2,'b'=2], device_ids=(0,1), [{'a'}]}",
        ],
    ),
    (
        "negate",
        "statistics",
        ["{}", "{visualizing_index=1,stat-1=33,stat-2=4.5}", "{stat-1=33}"],
        ["{x=1.5}", "{x=1,}", "{x=1 y=2}"],
    ),
    (
        "negate",
        "frontend_attributes",
        ["{}", '{a="b"}', "{a={x y [z}}", "{a='b',c=\"d\"}"],
        ['{a="b",}', "{a=1}", '{a="1" b="2"}'],
    ),
    (
        "negate",
        "origin",
        ["{}", '{{"a"}}', '{{"a" {0}}}', '{({"a"}, {})}', "{[synthetic_call]}"],
        ["{[foo]}", '{"a"}', "{{a}}"],
    ),
    (
        "negate",
        "metadata",
        ["{}", '{op_name="a" op_type="b"}', '{op_name="a", source_line=1}', "{profile_type={1}}", '{,op_name="a"}'],
        [
            "{foo=1}",
            "{op_name=x}",
            '{source_line="1"}',
            "{source_line=99999999999}",
            '{op_name="a" op_name="b"}',
            "{profile_type={9}}",
        ],
    ),
    (
        "exponential",
        "result_accuracy",
        ["{mode=highest}", "{mode=HIGHEST}", "{tolerance={rtol=0.5, atol=1, ulps=2}}", "{tolerance={}}"],
        ["{mode=high}", "{tolerance={foo=1}}", "{tolerance={rtol=a}}", "{foo=1}", "{}", "highest", "{0.5}"],
    ),
    (
        "domain",
        "domain",
        [
            '{kind="sharding", entry={replicated}, exit={maximal device=0}}',
            '{kind="sharding" entry={replicated} exit={}}',
        ],
        ['{kind="foo", entry={replicated}, exit={}}', '{kind="sharding", entry={replicated}}'],
    ),
    (
        "all-reduce",
        "replica_groups",
        ["{{0,1},{2,3}}", "[2,2]<=[4]", "[2,2]<=[2,2]T(1,0)", "{}", "{{}}"],
        ["{0,1}", "[2,2]<=[2,2]", "[2,2,1]<=[4]", "[2,2]0,1,2,3"],
    ),
    (
        "custom-call",
        "api_version",
        ["API_VERSION_ORIGINAL", "API_VERSION_TYPED_FFI", "api_version_typed_ffi"],
        ["API_VERSION_UNSPECIFIED", "API", '"x"'],
    ),
    ("custom-call", "schedule", ["SCHEDULE_LATEST", "schedule_none"], ["LATEST"]),
    (
        "custom-call",
        "dim_labels",
        ["b0f_0io->b0f", "b0?f_?0io->b0f", "bf_io->fb"],
        ["b0f_io->bf", "bb_io->bf", "b2f_0io->b0f", "bf"],
    ),
    (
        "custom-call",
        "window",
        ["{}", "{size=2 pad=0_1}", "{size=2x2 stride=1x1}"],
        ["{stride=2}", "{size=2 stride=2x2}", "{size=2 pad=1}", "{size=2 size=2}"],
    ),
    (
        "custom-call",
        "literal",
        ["f32[] 1", "f32[2]{0} {1,2}", "(f32[] 1, s32[2]{0} {1, 2})"],
        ["1", "f32[2]{0} {1,2,3}", "(f32[], s32[]) (1, 2)"],
    ),
    ("custom-call", "operand_layout_constraints", ["{f32[2]{0}}"], ["{f33[2]{0}}", "f32[2]{0}", "{f32[2]{0},}"]),
    ("slice", "slice", ["{[0:2]}", "{[0:2:1]}"], ["{[0:1:1:1]}", "{[0]}", "{0:1}"]),
    ("dot", "operand_precision", ["{high,default}", "{HIGHEST,high}"], ["{high,foo}", "high"]),
    ("dot", "algorithm", ["dot_f32_f32_f32", "DOT_TF32_TF32_F32_X3", "unset"], ["alg_unset", "rng_default"]),
]
CASES = [(o, n, v, True) for o, n, right, _ in VALUES for v in right] + [
    (o, n, v, False) for o, n, _, w in VALUES for v in w
]
TAILS = {
    "domain": "",
    "all-reduce": ", to_apply=add",
    "custom-call": ', custom_call_target="x"',
    "dot": ", lhs_contracting_dims={0}, rhs_contracting_dims={0}",
}


@pytest.mark.parametrize("opcode, name, value, is_right", CASES)
def test_values(opcode, name, value, is_right):
    if is_right:
        check_form(opcode, name, value)
        return
    source = Source(f"  {value}", "f.hlo")
    with pytest.raises(ParseError) as caught:
        check_form(opcode, name, value, source, 2)
    assert caught.value.span is not None and caught.value.span.start >= 2


@pytest.mark.parametrize("opcode, name, value, is_right", CASES)
def test_xla_agrees(opcode, name, value, is_right):
    hlo = pytest.importorskip("jaxlib._hlo")
    if "device_ids=(0,1), [{'a'}]" in value:
        pytest.skip("XLA aborts the process")
    operands = "p, p" if opcode == "dot" else "p"
    text = (
        "HloModule m\nadd { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }\n"
        f"ENTRY e {{ p = f32[2]{{0}} parameter(0) ROOT r = f32[2]{{0}} {opcode}({operands}){TAILS.get(opcode, '')}, {name}={value} }}"
    )
    try:
        hlo.hlo_module_from_text(text)
        accepted = True
    except Exception:
        accepted = False
    assert accepted == is_right


def test_a_misspelt_word_has_a_hint():
    with pytest.raises(hlo_opt.VerifyError) as caught:
        hlo_opt.verify(
            hlo_opt.parse(
                "HloModule m\nENTRY e {\n p = f32[2] parameter(0)\n ROOT c = pred[2] compare(p, p), direction=LTE }",
                "m.hlo",
            )
        )
    assert (caught.value.line, caught.value.column) == (4, 44)
    assert caught.value.hint in ("did you mean LT?", "did you mean LE?")


def test_usual_values_match_their_rule():
    """They are taken without it."""
    usual = [(form, text) for form in FORMS.values() for text in sorted(form.usual)]
    assert usual
    for form, text in usual:
        assert grammar().regular(form.rule).fullmatch(text) is not None
