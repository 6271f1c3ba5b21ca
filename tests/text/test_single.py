"""One instruction without a module: XLA makes the same module of it."""

from __future__ import annotations

import pytest

import hlo_opt

TEXTS = [
    "f32[2] negate(f32[2])",
    'f32[2]{0} negate(f32[2]{0} %x), metadata={op_name="n"}',
    "%a = f32[2]{0} add(f32[2] %p, f32[2] %p)",
    "ROOT a = add(f32[2]{0} p, abs(f32[2]{0} q))",
    "a = f32[2] add(f32[2] p, p)",
    "a = f32[2] parameter(0)",
    "// a comment\n(f32[2], f32[]) tuple(f32[2], f32[] x)",
    "f32[] reduce(f32[2] x, f32[] constant(0)), dimensions={0}, to_apply={ a = f32[] parameter(0) b = f32[] "
    "parameter(1) ROOT c = f32[] add(a, b) }",
    "f32[2] fusion(f32[2]), kind=kLoop, calls={ p = f32[2] parameter(0) ROOT n = negate(p) }",
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_module_is_xlas(text):
    hlo = pytest.importorskip("jaxlib._hlo")
    module = hlo_opt.parse(text)
    hlo_opt.verify(module)
    assert hlo.hlo_module_from_text(str(module)).to_string() == hlo.hlo_module_from_text(text).to_string()


@pytest.mark.parametrize(
    "text, line, column, message",
    [
        ("a = f32[2] negate(p)", 1, 19, "p is not defined"),
        ("a = f32[2] parameter(0)\nb = f32[2] negate(a)", 2, 1, "expected the end of the text after one instruction"),
        ("f32[2] foo", 1, 11, "expected operands in parentheses"),
        ("f32[2] negate(f32[2]), ", 1, 23, "expected an attribute"),
        ("negate(f32[2])", 1, 7, "expected '{' or a signature"),
        (
            "c (p: f32[]) -> f32[] {\n  ROOT p = f32[] parameter(0)\n}",
            1,
            1,
            "a text without HloModule starts with ENTRY",
        ),
    ],
)
def test_faults(text, line, column, message):
    with pytest.raises(hlo_opt.ParseError) as caught:
        hlo_opt.parse(text)
    assert message in caught.value.message
    assert (caught.value.line, caught.value.column) == (line, column)
