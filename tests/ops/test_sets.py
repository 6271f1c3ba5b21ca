"""Short spellings of asynchronous operations."""

import pytest

import hlo_opt
from hlo_opt.ops import table
from hlo_opt.ops.sets import at_once, goes_on, passes_on, started


@pytest.mark.parametrize(
    ("text", "opcode"),
    [
        ("((f32[4]), f32[4]) negate-start(a)", "negate"),
        ('((f32[4]), f32[4], u32[]) custom-call-start(a), custom_call_target="f"', "custom-call"),
        ("f32[4] negate(a)", None),
        ("(f32[4], f32[4], u32[]) copy-start(a)", None),
        ("((f32[4]), f32[4]) what-start(a)", None),
        ("f32[4] negate-start(a)", None),
        ("((f32[4])) negate-start(a)", None),
        ("((f32[4]), f32[4]) negate-update(a)", None),
    ],
)
def test_what_is_started(text: str, opcode: str | None) -> None:
    module = hlo_opt.parse(f"HloModule m\nENTRY e {{\n  a = f32[4] parameter(0)\n  ROOT s = {text}\n}}\n")
    found = started(module.entry.root)
    assert (None if found is None else found.opcode) == opcode
    if found is not None:
        assert str(found.shape).startswith("f32[4]") and found.name == "s" and found.computation is module.entry
        assert found.attributes == module.entry.root.attributes


HEAD = """HloModule m
add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT z = f32[] add(x, y) }
work { p = f32[4] parameter(0) ROOT n = f32[4] negate(p) }
ENTRY e {
  a = f32[4] parameter(0)
"""


@pytest.mark.parametrize(
    ("start", "opcode", "shape"),
    [
        ("((f32[4]), f32[4], u32[]) async-start(a), calls=work", "call", "f32[4]"),
        ("(f32[4], f32[4], u32[]) copy-start(a)", "copy", "f32[4]"),
        ("((f32[4]), f32[4]) negate-start(a)", "negate", "f32[4]"),
        ("(f32[4], f32[8]) all-gather-start(a), dimensions={0}", "all-gather", "f32[8]"),
        ("f32[4] all-reduce-start(a), to_apply=add", "all-reduce", "f32[4]"),
        ("(f32[4], f32[4]) all-reduce-start(a), to_apply=add", "all-reduce", "f32[4]"),
        ("(f32[4], f32[4]) all-reduce-start(a, a), to_apply=add", "all-reduce", "(f32[4], f32[4])"),
        ("f32[4] collective-permute-start(a), source_target_pairs={{0,0}}", "collective-permute", "f32[4]"),
        ("f32[4] negate(a)", None, ""),
    ],
)
def test_what_is_done_at_once(start: str, opcode: str | None, shape: str) -> None:
    found = at_once(hlo_opt.parse(f"{HEAD}  ROOT s = {start}\n}}\n").entry.root)
    assert (None if found is None else found.opcode) == opcode
    assert found is None or str(found.shape.without_layout()) == shape


@pytest.mark.parametrize(
    ("start", "done", "path"),
    [
        ("((f32[4]), f32[4], u32[]) async-start(a), calls=work", "f32[4] async-done(s)", (1,)),
        ("((f32[4]), f32[4]) negate-start(a)", "((f32[4]), f32[4]) negate-update(s)", ()),
        ("((f32[4]), f32[4]) negate-start(a)", "f32[4] negate-done(s)", (1,)),
        ("(f32[4], f32[4], u32[]) copy-start(a)", "f32[4] copy-done(s)", (0,)),
        ("(f32[4], f32[8]) all-gather-start(a), dimensions={0}", "f32[8] all-gather-done(s)", (1,)),
        ("f32[4] all-reduce-start(a), to_apply=add", "f32[4] all-reduce-done(s)", ()),
        ("(f32[4], f32[4]) all-reduce-start(a), to_apply=add", "f32[4] all-reduce-done(s)", (1,)),
        ("(f32[4], f32[4]) all-reduce-start(a, a), to_apply=add", "(f32[4], f32[4]) all-reduce-done(s)", ()),
        ("f32[4] negate(a)", "f32[4] negate(s)", None),
    ],
)
def test_where_the_value_of_a_done_is(start: str, done: str, path: tuple[int, ...] | None) -> None:
    assert goes_on(hlo_opt.parse(f"{HEAD}  s = {start}\n  ROOT d = {done}\n}}\n").entry.root) == path


def test_what_passes_its_operand_on_is_a_barrier_or_rounds_it() -> None:
    passing = {spec.opcode for spec in table() if passes_on(spec.opcode)}
    assert passing == {"add-dependency", "async-update", "domain", "opt-barrier", "reduce-precision"}
