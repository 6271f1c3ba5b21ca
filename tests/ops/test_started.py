"""Short spellings of asynchronous operations."""

import pytest

import hlo_opt
from hlo_opt.ops.started import started


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
