"""Changed copies of a module: which instruction is changed."""

from __future__ import annotations

from hlo_opt import parse
from hlo_opt.passes.run import report_on, run
from hlo_opt.report.lint.base import Finding, rule_specs
from hlo_opt.report.lint.check import lint


def found(code: str, text: str) -> list[Finding]:
    return lint(report_on(run(parse(text))), [code])


def test_names_may_repeat_between_computations() -> None:
    text = rule_specs()["LNT101"].example
    largest = "f {\n  c = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT m = f32[] maximum(c, y)\n}\n\nENTRY"
    both = text.replace("ENTRY", largest).replace(
        "ROOT d =", "z = f32[] constant(0)\n  r = f32[] reduce(w, z), dimensions={0,1}, to_apply=f\n  d ="
    )
    both = both.rstrip().removesuffix("}") + "  ROOT t = (f32[8192,1024]{1,0}, f32[]) tuple(d, r)\n}\n"
    assert [f.name for f in found("LNT101", both)] == ["c"]
