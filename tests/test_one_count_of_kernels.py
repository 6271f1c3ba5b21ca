"""Kernels are the same number in every verb: stats, explain, fuse, run, bench, check's budget, and profiles."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.cli.golden.execute import run_captured
from hlo_opt.cutting.bisect import watch_of
from hlo_opt.cutting.questions import question_of
from hlo_opt.passes.run import report_on, run
from hlo_opt.report.totals import totals

DUMPS = Path(__file__).resolve().parent.parent / "testdata" / "dumps"

FUSED_LOOP = """HloModule m

body {
  s = (s32[], f32[16777216]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[16777216]{0} get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  d = f32[16777216]{0} reverse(v), dimensions={0}
  n = f32[16777216]{0} tanh(d)
  ROOT t = (s32[], f32[16777216]{0}) tuple(j, n)
}

condition {
  s = (s32[], f32[16777216]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(3)
  ROOT c = pred[] compare(i, limit), direction=LT
}

held {
  p = f32[16777216]{0} parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[16777216]{0}) tuple(zero, p)
  w = (s32[], f32[16777216]{0}) while(t), condition=condition, body=body
  ROOT r = f32[16777216]{0} get-tuple-element(w), index=1
}

ENTRY e {
  p = f32[16777216]{0} parameter(0)
  ROOT f = f32[16777216]{0} fusion(p), kind=kLoop, calls=held
}
"""


@pytest.fixture(params=["k_means", "lstm", "fused_loop"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param != "fused_loop":
        return DUMPS / f"{request.param}.hlo"
    (tmp_path / "m.hlo").write_text(FUSED_LOOP)
    return tmp_path / "m.hlo"


def printed(*arguments: str) -> tuple[str, str]:
    done = run_captured(list(arguments))
    assert done.status == 0, done.err
    return done.out, done.err


def table(text: str) -> list[int]:
    """The row `kernels` of a table of figures."""
    found = re.search(r"^ *kernels +([\d,]+)(?: +([\d,]+))?", text, re.MULTILINE)
    assert found is not None, text
    return [int(n.replace(",", "")) for n in found.groups() if n]


def test_every_verb_says_the_same_number(file: Path, tmp_path: Path) -> None:
    name, figures, fused = str(file), tmp_path / "s.json", str(tmp_path / "fused.hlo")
    stats = json.loads(printed("stats", name, "--json")[0])
    before = stats["kernels"]
    assert sum(stats["launched"].values()) == before == len(stats["prices"])
    assert table(printed("stats", name)[0]) == [before]
    after = json.loads(printed("explain", name, "--format", "json")[0])["after"]["kernels"]
    for text in (
        printed("explain", name)[0],
        printed("explain", name, "-v")[0],
        printed("fuse", name, "-o", fused, "--stats", str(figures))[1],
    ):
        assert table(text) == [before, after]
    written = json.loads(figures.read_text())
    assert (written["before"]["kernels"], written["after"]["kernels"]) == (before, after)
    assert json.loads(printed("stats", fused, "--json")[0])["kernels"] == after
    assert (
        f": {before:,} kernel{'' if before == 1 else 's'} before, {after:,} after fusing"
        in printed("explain", name, "--format", "github")[0]
    )
    bench = json.loads(printed("bench", name, "--backend", "numpy", "--rounds", "1", "--json")[0])
    assert [v["kernels"] for v in bench["variants"]] == [before, after]
    for given, number in ((name, before), (fused, after)):
        ran = printed("run", given, "--backend", "host")[1]
        assert re.search(rf"^{number:,} kernels?; ", ran, re.MULTILINE), ran
    over = run_captured(["explain", name, "--max-kernels", str(after - 1)])
    assert over.status == 1 and f"{after} kernel" in over.err
    same = json.loads(printed("diff", name, fused, "--fuse", "never", "--format", "json")[0])
    assert (same["old"]["kernels"], same["new"]["kernels"]) == (before, after)
    shown = question_of(f"kernels == {after}", lambda module: run(module)).ways()[0]
    assert shown(hlo_opt.parse(file.read_text(encoding="utf-8")), "") == f"kernels == {after}"
    for given, number in ((name, before), (fused, after)):
        module = hlo_opt.parse(Path(given).read_text(encoding="utf-8"))
        (asked,) = watch_of(f"kernels == {number}", target("h100_sxm")).ways
        assert asked(module, module, "") == f"kernels == {number}"
    report = report_on(run(hlo_opt.parse(file.read_text(encoding="utf-8"))))
    assert totals(report, "op").kernels == after
