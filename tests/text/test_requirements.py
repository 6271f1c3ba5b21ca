"""What XLA's parser asks of instructions and headers beyond shapes: each text is put to both."""

from __future__ import annotations

import pytest

import hlo_opt

BEFORE = """HloModule m
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
neg { a = f32[2] parameter(0) ROOT s = f32[2] negate(a) }
neg2 { a = f32[2] parameter(0) ROOT s = f32[2] negate(a) }
ENTRY e {
  p = f32[2] parameter(0)
  s = f32[] constant(0)
  i = s32[] constant(0)
  b = pred[] constant(true)
"""
CHAIN = "((f32[2]), f32[2], s32[])"
START = f"st = {CHAIN} async-start(p), calls=neg"
SUGAR = f"st = {CHAIN} negate-start(p)"
TOKEN = "tok = token[] after-all()"
SEND = f"{TOKEN} sd = (f32[2], u32[], token[]) send(p, tok), channel_id=1"

RIGHT = [
    "ROOT a = f32[2] all-reduce(p), to_apply=add, use_global_device_ids=true, channel_id=1",
    "ROOT a = f32[2] all-to-all(p), dimensions={0}",
    f"{START} ROOT d = f32[2] async-done(st)",
    f"{START} ROOT d = f32[2] async-done(st), calls=neg",
    f"{START} ROOT d = f32[2] negate-done(st)",
    f'{START}, async_execution_thread="x" ROOT d = f32[2] async-done(st), async_execution_thread="x"',
    f'{SUGAR} ROOT d = f32[2] negate-done(st), async_execution_thread="main"',
    f'{SUGAR}, async_execution_thread="y" u = {CHAIN} negate-update(st) ROOT d = f32[2] negate-done(u), '
    f'async_execution_thread="y"',
    f"{SUGAR}, output_to_operand_aliasing={{{{}}: (0, {{}})}} ROOT d = f32[2] negate-done(st)",
    "ROOT a = f32[2] conditional(b, p, p), true_computation=neg, false_computation=neg",
    "ROOT a = f32[2] conditional(i, p, p), branch_computations={neg,neg2}",
    'ROOT a = f32[2] custom-call(p), custom_call_target="x", operand_layout_constraints={f32[2]{0}}',
    'ROOT a = f32[2] custom-call(p), custom_call_target="x", output_to_operand_aliasing={{}: (0, {})}',
    "ROOT q = f32[2] parameter(1), parameter_replication={true}",
    f"{SEND} ROOT d = token[] send-done(sd), channel_id=1",
    f"{TOKEN} ROOT a = (f32[2], token[]) infeed(tok)",
    f"{TOKEN} ROOT a = token[] outfeed(p, tok), outfeed_shape=f32[2]",
    "ROOT a = f32[2] negate(p), control-predecessors={s}",
    "ROOT a = f32[2] broadcast(s)",
    "ROOT a = f32[2] constant(1)",
    "ROOT a = u64[] constant(-1)",
    "ROOT a = f32[2]{0:D(D)T(2)(1,*)E(32)S(5)SC(0:1)M(8)} copy(p)",
]
WRONG = [
    ("ROOT a = f32[2] all-reduce(p), to_apply=add, use_global_device_ids=true", "needs a channel_id"),
    (
        "ROOT a = f32[1] reduce-scatter(p), to_apply=add, dimensions={0}, use_global_device_ids=true",
        "needs a channel_id",
    ),
    ("ROOT a = f32[2] all-to-all(p), dimensions={0,1}", "expected one dimension"),
    ("ROOT a = f32[2] collective-permute(p), source_target_pairs={{0,1,2}}", "expected pairs"),
    ("ROOT a = f32[2] collective-permute(p), source_target_pairs={{0,1}}, slice_sizes={{2}}", "slice_sizes needs 4"),
    (f"st = {CHAIN} async-start(p) ROOT d = f32[2] async-done(st)", "needs the attribute calls"),
    (f"{START} ROOT d = f32[2] async-done(st), calls=neg2", "st calls neg, not neg2"),
    (f"{START} u = {CHAIN} async-update(st), calls=neg2 ROOT d = f32[2] async-done(u)", "st calls neg, not neg2"),
    (f"{START} ROOT d = f32[2] abs-done(st)", "st runs negate"),
    (f'{START} ROOT d = f32[2] async-done(st), async_execution_thread="y"', "thread main, not y"),
    (f"{SUGAR} u = {CHAIN} negate-update(st) ROOT d = f32[2] abs-done(u)", "st runs negate"),
    (f"{SUGAR} ROOT d = f32[2] negate-done(st), calls=neg", "has no attribute calls"),
    (f"{SUGAR}, dimensions={{0}} ROOT d = f32[2] negate-done(st)", "has no attribute dimensions"),
    (
        "st = (f32[2], f32[2], s32[]) negate-start(p) ROOT d = f32[2] negate-done(st)",
        "has the shape ((operands), outputs",
    ),
    ("ROOT d = f32[2] negate-done(p)", "takes one operand, an async start or update"),
    (
        f"{SUGAR} d = f32[2] negate-done(st) ROOT e = f32[2] negate-done(d)",
        "takes one operand, an async start or update",
    ),
    (
        f"{SUGAR} u = ((f32[2]), f32[3], s32[]) negate-update(st) ROOT e = f32[2] negate-done(u)",
        "has the shape of its operand",
    ),
    (
        f"{START} t = {CHAIN} async-start(p), calls=neg d = f32[2] async-done(st) ROOT e = f32[2] async-done(t)",
        "already runs",
    ),
    (
        "ROOT a = f32[2] conditional(b, p, p), branch_computations={neg,neg2}",
        "a conditional on pred has no attribute branch_computations",
    ),
    ("ROOT a = f32[2] conditional(i, p, p), true_computation=neg, false_computation=neg2", "a conditional on s32"),
    ("ROOT a = f32[2] conditional(i, p), branch_computations={neg,neg2}", "2 branches"),
    (
        'ROOT a = f32[2] custom-call(p), custom_call_target="x", operand_layout_constraints={}',
        "0 shapes for 1 operands",
    ),
    ('ROOT a = f32[2] custom-call(p), custom_call_target="x", operand_layout_constraints={f32[3]{0}}', "operand 0 is"),
    ("ROOT q = f32[2] parameter(1), parameter_replication={true,false}", "2 values for 1 arrays"),
    (f"{SEND} ROOT d = token[] send-done(sd), channel_id=2", "differs from that of sd"),
    (f"{SEND} ROOT d = token[] send-done(sd)", "differs from that of sd"),
    (f"{TOKEN} ROOT a = f32[2] infeed(tok)", "an infeed returns a tuple"),
    ("ROOT a = f32[2] negate(p), control-predecessors={}", "expected the name"),
    ("ROOT a = f32[2,2] broadcast(p)", "broadcast"),
    ("ROOT a = s32[2] iota()", "needs the attribute iota_dimension"),
    ("ROOT a = f32[2] negate(p), backend_config=bare", "expected a string or text in braces"),
    ("ROOT a = f32[2]{0:D(X)} copy(p)", "expected a layout"),
    ("ROOT a = f32[2]{0:T(a)} copy(p)", "expected a layout"),
    ("ROOT a = f32[2]{0:X(1)} copy(p)", "expected a layout"),
    ("ROOT a = u64[] constant(18446744073709551616)", "constant"),
]
HEADERS_RIGHT = [
    "buffer_donor={ (0, {}) }",
    "input_output_alias={ {}: (0, {}, must-alias) }",
    "input_output_alias={ {}: (0, {}), }",
    "entry_computation_layout={(f32[2]{0})->f32[2]{0}}",
    "entry_computation_layout={(f32[2]{0},)->f32[2]{0}}",
    "allow_spmd_sharding_propagation_to_output={true,false}",
    "replica_count=2, num_partitions=2",
    'origin_recovery_table={{"a"}:{"b"}}',
]
HEADERS_WRONG = [
    "buffer_donor={ (-1, {}) }",
    "buffer_donor={ 0 }",
    "buffer_donor={ (zero, {0}) }",
    "buffer_donor={ (0, {0, a}) }",
    "input_output_alias={ {}: (0, {}, foo) }",
    "input_output_alias={ {0}: (0, {}) }",
    "input_output_alias={ {}: (-1, {}) }",
    "input_output_alias={ {}: 0 }",
    "is_scheduled=1",
    "replica_count=a",
    "entry_computation_layout={f32[2]{0}->f32[2]{0}}",
    "entry_computation_layout={(f32[2]{0})}",
    "allow_spmd_sharding_propagation_to_output={1}",
    'origin_recovery_table={{"a"}}',
    "frontend_attributes={a=b}",
    "scheduled=true",
]


def whole(body):
    return f"{BEFORE}  {body}\n}}\n"


def header(attribute):
    return f"HloModule m, {attribute}\n\nENTRY e {{\n  p = f32[2] parameter(0)\n  ROOT q = f32[2] negate(p)\n}}\n"


def is_accepted_by_xla(text):
    hlo = pytest.importorskip("jaxlib._hlo")
    try:
        hlo.hlo_module_from_text(text)
    except Exception:
        return False
    return True


@pytest.mark.parametrize("body", RIGHT)
def test_right_instructions(body):
    hlo_opt.verify(hlo_opt.parse(whole(body)))
    assert is_accepted_by_xla(whole(body))


@pytest.mark.parametrize("body, message", WRONG)
def test_wrong_instructions(body, message):
    with pytest.raises((hlo_opt.ParseError, hlo_opt.VerifyError)) as caught:
        hlo_opt.verify(hlo_opt.parse(whole(body)))
    assert message in str(caught.value)
    assert caught.value.line == 10
    assert not is_accepted_by_xla(whole(body))


@pytest.mark.parametrize("attribute", HEADERS_RIGHT)
def test_right_headers(attribute):
    hlo_opt.verify(hlo_opt.parse(header(attribute)))
    assert is_accepted_by_xla(header(attribute))


@pytest.mark.parametrize("attribute", HEADERS_WRONG)
def test_wrong_headers(attribute):
    with pytest.raises((hlo_opt.ParseError, hlo_opt.VerifyError)) as caught:
        hlo_opt.verify(hlo_opt.parse(header(attribute)))
    assert caught.value.line == 1 and caught.value.column >= 14
    assert not is_accepted_by_xla(header(attribute))


@pytest.mark.parametrize(
    "attribute, message",
    [
        ("buffer_donor={ (7, {}) }", "there is no parameter 7"),
        ("buffer_donor={ (0, {0}) }", "has no place {0}"),
        ("input_output_alias={ {}: (0, {3}) }", "has no place {3}"),
        ("input_output_alias={ {}: (0, {}) }, buffer_donor={ (0, {}) }", "is in input_output_alias already"),
        ("input_output_alias={ {}: (0, {}), {}: (0, {}) }", "aliased twice"),
        ("entry_computation_layout={()->f32[2]{0}}", "has 0 parameters"),
        ("entry_computation_layout={(f32[3]{0})->f32[2]{0}}", "not f32[3]"),
        ("entry_computation_layout={(f32[2]{0})->f32[3]{0}}", "returns f32[2]"),
    ],
)
def test_what_only_the_verifier_sees_in_headers(attribute, message):
    with pytest.raises(hlo_opt.VerifyError, match="HLO200") as caught:
        hlo_opt.verify(hlo_opt.parse(header(attribute)))
    assert message in caught.value.message and caught.value.line == 1


def test_unknown_header_attributes_may_be_allowed():
    module = hlo_opt.parse(header("scheduled=true"))
    with pytest.raises(hlo_opt.VerifyError) as caught:
        hlo_opt.verify(module)
    assert caught.value.hint == "did you mean is_scheduled?"
    hlo_opt.verify(module, allow_unknown=True)
