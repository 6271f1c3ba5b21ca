"""What lowers the peak does, and nothing else is said."""

from __future__ import annotations

import pytest

from hlo_opt import parse
from hlo_opt.ir import edit
from hlo_opt.passes.run import report_on, run
from hlo_opt.report.lint.base import rule_specs
from hlo_opt.report.memory.advice import Advice, advice, least_first
from hlo_opt.report.memory.page import as_page, memory_report
from hlo_opt.report.memory.timeline import moment_of
from hlo_opt.runtime.schedule import build_schedule

WIDE = """HloModule m

f {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y)
}

ENTRY e {
  p = f32[8]{0} parameter(0)
  z = f32[] constant(0)
  p1 = f32[8,4096]{1,0} broadcast(p), dimensions={0}
  a = f32[8,4096]{1,0} tanh(p1)
  p2 = f32[8,4096]{1,0} broadcast(p), dimensions={0}
  b = f32[8,4096]{1,0} cosine(p2)
  p3 = f32[8,4096]{1,0} broadcast(p), dimensions={0}
  c = f32[8,4096]{1,0} sine(p3)
  q = f32[8]{0} reduce(a, z), dimensions={1}, to_apply=f
  r = f32[8]{0} reduce(b, z), dimensions={1}, to_apply=f
  s = f32[8]{0} reduce(c, z), dimensions={1}, to_apply=f
  ROOT t = (f32[8]{0}, f32[8]{0}, f32[8]{0}) tuple(q, r, s)
}
"""


def told(text: str, passes: str | None = "dce") -> list[Advice]:
    report = report_on(run(parse(text), passes=passes, simplify="never"))
    return advice(report, moment_of(build_schedule(report.outcome.module)))


def test_another_order_is_found_and_keeps_operands_first() -> None:
    found = [a for a in told(WIDE) if a.kind == "order"]
    assert len(found) == 1 and found[0].saves >= 8 * 4096 * 4
    module = parse(WIDE)
    before = moment_of(build_schedule(module)).bytes
    edit.arrange(module.entry, least_first(module.entry))
    seen = set()
    for instruction in module.entry.instructions:
        assert seen.issuperset(instruction.operands)
        seen.add(instruction)
    assert moment_of(build_schedule(module)).bytes == before - found[0].saves


SMALL = """HloModule m

ENTRY e {
  p = f32[4096]{0} parameter(0)
  k = f32[8]{0} parameter(1)
  n = f32[4096]{0} negate(p)
  b = f32[8]{0} negate(k)
  c = f32[8]{0} tanh(b)
  ROOT t = (f32[4096]{0}, f32[8]{0}) tuple(n, c)
}
"""


def test_what_saves_next_to_nothing_is_not_told_and_small_arrays_are_added_up() -> None:
    report = memory_report(report_on(run(parse(SMALL), passes="dce", simplify="never")))
    assert report.advice and all(a.saves >= report.after.bytes // 1000 for a in report.advice)
    larger = SMALL.replace("4096", "4096000")
    report = memory_report(report_on(run(parse(larger), passes="dce", simplify="never")))
    assert {a.kind for a in report.advice} == {"donation"} and all(a.saves > 16_000_000 for a in report.advice)
    page = str(as_page(report))
    assert "stored" not in page and "more buffer" in page
    assert "more buffer" not in str(as_page(report, None))


def test_a_donation_saves_the_copy() -> None:
    found = [a for a in told(rule_specs()["LNT108"].example) if a.kind == "donation"]
    assert [a.saves for a in found] == [1024 * 1024 * 4]
    assert "donate_argnums=(0,)" in found[0].what


def test_a_given_input_is_not_asked_for_again() -> None:
    text = rule_specs()["LNT108"].example.replace(
        "HloModule example", "HloModule example, input_output_alias={ {}: (0, {}, may-alias) }"
    )
    assert [a for a in told(text) if a.kind == "donation"] == []


@pytest.mark.parametrize(("operation", "saves"), [("negate(p)", [4096]), ("reverse(p), dimensions={0}", [])])
def test_a_donation_saves_a_result_that_is_made_in_place(operation: str, saves: list[int]) -> None:
    text = f"HloModule m\n\nENTRY e {{\n  p = f32[1024]{{0}} parameter(0)\n  ROOT n = f32[1024]{{0}} {operation}\n}}\n"
    assert [one.saves for one in told(text) if one.kind == "donation"] == saves


def test_joining_an_edge_lowers_the_peak() -> None:
    text = (
        "HloModule m\n\nENTRY e {\n  p = f32[1024]{0} parameter(0)\n  w = f32[65536]{0} parameter(1)\n"
        "  a = f32[65536]{0} tanh(w)\n  b = f32[65536]{0} negate(a)\n  c = f32[1024]{0} slice(b), slice={[0:1024]}\n"
        "  ROOT r = f32[1024]{0} add(c, p)\n}\n"
    )
    found = [a for a in told(text) if a.kind == "fusion"]
    assert found and all(a.what.startswith("--force ") and a.why for a in found)
    assert found[0].saves >= 65536 * 4 - 4096


def test_the_report_has_both_peaks() -> None:
    report = memory_report(report_on(run(parse(WIDE))))
    assert report.after.bytes <= report.before.bytes


def test_many_inputs_cost_few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 40
    inputs = [f"p{n} = f32[{1024 * (n + 1)}]{{0}} parameter({n})" for n in range(count)]
    steps = [f"n{n} = f32[{1024 * (n + 1)}]{{0}} negate(p{n})" for n in range(count)]
    results = ", ".join(f"n{n}" for n in range(count))
    text = "HloModule m\n\nENTRY e {\n  " + "\n  ".join([*inputs, *steps]) + f"\n  ROOT t = tuple({results})\n}}\n"
    built = []
    monkeypatch.setattr(
        "hlo_opt.report.memory.advice.build_schedule", lambda *a: (built.append(a), build_schedule(*a))[1]
    )
    donations = [a for a in told(text) if a.kind == "donation"]
    assert len(built) <= 8
    assert donations[0].saves == sum(4096 * (n + 1) for n in range(count))
    assert "range(0, 40)" in donations[0].what
    assert [a.saves for a in donations[1:]] == [4096 * n for n in (40, 39, 38, 37, 36, 35)]
