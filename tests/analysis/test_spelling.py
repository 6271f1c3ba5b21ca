"""What versions of a printer write in other ways is spelled alike; what means something is not."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.analysis.graph.spelling import config, constant_key, plain_attributes, sharding
from hlo_opt.ir import Instruction


def root(line: str, inputs: str = "p = f32[4,8]{1,0} parameter(0)") -> Instruction:
    return hlo_opt.parse(f"HloModule m\n\nENTRY e {{\n  {inputs}\n  ROOT r = {line}\n}}\n").entry.root


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (", dimensions={1,0}", ', metadata={op_name="x" source_line=7}, dimensions={1,0}'),
        (", dimensions={1,0}", ', dimensions={1,0}, frontend_attributes={a="b"}'),
        (", dimensions={1,0}", ", dimensions={1, 0}"),
    ],
)
def test_what_does_not_count_is_left_out(one, other):
    spelled = [plain_attributes(root(f"f32[8,4]{{1,0}} transpose(p){rest}")) for rest in (one, other)]
    assert spelled[0] == spelled[1] != ()


def test_a_default_that_is_written_counts_as_one_that_is_not():
    dot = "f32[8,8]{1,0} dot(p, p), lhs_contracting_dims={0}, rhs_contracting_dims={0}"
    assert plain_attributes(root(dot)) == plain_attributes(root(f"{dot}, operand_precision={{default,default}}"))
    assert plain_attributes(root(dot)) != plain_attributes(root(f"{dot}, operand_precision={{highest,highest}}"))


def test_the_number_of_a_channel_says_nothing():
    line = "f32[4,8]{1,0} collective-permute(p), source_target_pairs={{0,1}}, channel_id="
    assert plain_attributes(root(f"{line}1")) == plain_attributes(root(f"{line}23"))
    assert plain_attributes(root(f"{line}1")) != plain_attributes(
        root("f32[4,8]{1,0} collective-permute(p), source_target_pairs={{0,1}}")
    )


CALL = 'f32[4,8]{1,0} custom-call(p), custom_call_target="gemm", backend_config='


def test_a_config_counts_but_for_what_was_measured():
    told = [
        config(root(CALL + "{" + text + "}"))
        for text in (
            '"alpha":1,"selected_algorithm":"3"',
            '"selected_algorithm":"7","alpha":1,"operation_queue_id":"0"',
            '"alpha":2',
        )
    ]
    assert told[0] == told[1] != told[2]
    assert config(root(CALL + '"not { json"')) == "not { json"
    assert config(root('f32[4,8]{1,0} negate(p), backend_config={"a":1}')) == ""


def test_a_sharding_is_as_it_is_written():
    assert sharding(root("f32[4,8]{1,0} negate(p), sharding={replicated}")) == "{replicated}"
    assert sharding(root("f32[4,8]{1,0} negate(p)")) == ""


def test_elided_constants_of_one_shape_are_alike():
    literals = [root(f"f32[{n}]{{0}} constant({{...}})").literal for n in (2000, 2000, 3000)]
    keys = [constant_key(literal) for literal in literals if literal is not None]
    assert keys[0] == keys[1] != keys[2]
