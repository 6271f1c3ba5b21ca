from __future__ import annotations

import re
from pathlib import Path

import pytest

import hlo_opt
from hlo_opt.diag import UsageError
from hlo_opt.passes.run import ExplainReport, report_on, run
from hlo_opt.report.page import parse_size
from hlo_opt.report.summary import Budget, as_json, stats_json, summary_page

LOOP = """HloModule m

body {
  s = (s32[], f32[4]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[4]{0} get-tuple-element(s), index=1
  y = f32[4]{0} negate(x)
  ROOT t = (s32[], f32[4]{0}) tuple(j, y)
}

condition {
  s = (s32[], f32[4]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(ROUNDS)
  ROOT r = pred[] compare(i, n), direction=LT
}

ENTRY e {
  p = f32[4]{0} parameter(0)
  i = s32[] constant(0)
  s = (s32[], f32[4]{0}) tuple(i, p)
  ROOT w = (s32[], f32[4]{0}) while(s), condition=condition, body=body
}
"""


@pytest.mark.parametrize(("rounds", "told"), [("7", True), ("1", False)])
def test_a_loop_with_several_rounds_has_a_word_on_what_is_counted(rounds, told):
    report = report_on(run(hlo_opt.parse(LOOP.replace("ROUNDS", rounds))))
    page = str(summary_page(report))
    assert ("kernels and bytes count its body once" in page) is told


TEXT = """HloModule m

ENTRY e {
  p = f32[64,8]{1,0} parameter(0)
  q = f32[64,8]{1,0} parameter(1)
  a = f32[64,8]{1,0} add(p, q), metadata={op_name="a" source_file="model.py" source_line=7}
  ROOT d = f32[64,64]{1,0} dot(a, q), lhs_contracting_dims={1}, rhs_contracting_dims={1}
}
"""


@pytest.fixture(scope="module")
def report() -> ExplainReport:
    return report_on(run(hlo_opt.parse(TEXT, filename="m.hlo"), passes="instruction-fusion"))


def told(budget: Budget, report: ExplainReport) -> list[str]:
    return [str(e) for e in budget.exceeded(report)]


def test_what_is_kept_is_not_told(report: ExplainReport) -> None:
    kernels, size = report.after.kernels, int(report.after.bytes)
    assert told(Budget(), report) == told(Budget(kernels, size, ("FUS201",)), report) == []


def test_what_is_not_kept_is_one_line_each(report: ExplainReport) -> None:
    kernels, size = report.after.kernels, int(report.after.bytes)
    assert kernels == 2
    assert told(Budget(1, size - 24, ("fus302", "FUS302")), report) == [
        "m.hlo: HLO710 module m: 2 kernels, 1 more than the budget of 1",
        f"m.hlo: HLO711 module m: {size / 1000:.1f} kB ({size:,} bytes) read and written, 24 B (24 bytes) more than "
        f"the budget of "
        f"{(size - 24) / 1000:.1f} kB ({size - 24:,} bytes)",
        "m.hlo: HLO712 module m: 1 edge refused as FUS302 library-call, and the budget is 0 (the first: a -> d, "
        "model.py:7)",
    ]


def test_an_unknown_code_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="FUS2011"):
        Budget(fail_on=("FUS2011",)).check()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("4096", 4096),
        ("12MB", 12_000_000),
        ("12 MiB", 12 << 20),
        (" 1.5k ", 1500),
        ("2GiB", 2 << 30),
        ("7B", 7),
        ("0.1 TB", 10**11),
        ("12mb", 12_000_000),
    ],
)
def test_sizes(text: str, value: int) -> None:
    assert parse_size(text) == value


@pytest.mark.parametrize("text", ["", "-1", "1e9", "12XB", "MB", "1.MB", "1 2", "12im", "٣", "9" * 30])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize(
    "attribute",
    [
        'backend_config={"outer_dimension_partitions":["2"]}',
        'frontend_attributes={xla_cpu_small_call="true"}',
    ],
)
def test_a_module_that_xla_made_for_a_cpu_is_named_as_such(attribute: str) -> None:
    text = "HloModule m\n\nENTRY e {\n  p = f32[64] parameter(0)\n  ROOT s = f32[64] sine(p)ATTRIBUTE\n}\n"
    for given, told in ((f", {attribute}", True), ("", False), (', backend_config={"operation_queue_id":"0"}', False)):
        report = report_on(run(hlo_opt.parse(text.replace("ATTRIBUTE", given)), "default"))
        assert ("optimised this for a CPU" in str(summary_page(report))) is told


def test_the_page_of_json_has_every_key_and_no_other():
    text = "HloModule m\nENTRY e {\n  p = f32[64]{0} parameter(0)\n  t = f32[64]{0} tanh(p)\n  ROOT s = f32[64]{0} add(t, p)\n}\n"
    module = hlo_opt.parse(text)
    page = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
    written = as_json(hlo_opt.stats(module)), stats_json(report_on(run(module), module))
    for found, part in zip(written, page.split("\n## ")[1:], strict=True):
        rows = [line.split("|")[1:3] for line in part.splitlines() if line.startswith("| `")]
        assert {key for name, _ in rows for key in re.findall(r"`(\w+)`", name)} == found.keys()
        for name, meaning in rows:
            (key, *_) = re.findall(r"`(\w+)`", name)
            if isinstance(found[key], list):
                assert "as above" in meaning or set(re.findall(r"`(\w+)`", meaning)) == found[key][0].keys()
