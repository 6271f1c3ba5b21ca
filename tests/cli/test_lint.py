"""`hlo-opt lint`: formats, the choice of rules, folders, pages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hlo_opt.cli.group import run
from hlo_opt.report.lint.base import rule_specs


@pytest.fixture
def file(tmp_path: Path) -> str:
    made = tmp_path / "m.hlo"
    made.write_text(rule_specs()["LNT108"].example.replace("1024,1024", "64,1024"))
    return str(made)


def said(capfd: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    assert run(["lint", *arguments]) == status
    return capfd.readouterr().out


def test_the_dearest_comes_first(file: str, capfd: pytest.CaptureFixture[str]) -> None:
    lines = said(capfd, file).splitlines()
    heads = [line for line in lines if " LNT" in line]
    assert "LNT108 missed-donation" in heads[0] and "LNT111 too-small" in heads[1]
    assert lines[-1].startswith("2 findings in a module of")


def test_rules_are_chosen_by_code_beginning_and_name(file: str, capfd: pytest.CaptureFixture[str]) -> None:
    for select, ignore, left in (
        (("LNT108",), (), ["LNT108"]),
        (("missed-donation",), (), ["LNT108"]),
        (("LNT11",), (), ["LNT111"]),
        ((), ("LNT1",), []),
        ((), ("too-small",), ["LNT108"]),
    ):
        chosen = [*(f"--select={s}" for s in select), *(f"--ignore={i}" for i in ignore)]
        found = json.loads(said(capfd, file, "--format", "json", *chosen))["findings"]
        assert [f["code"] for f in found] == left, (select, ignore)


def test_strict_makes_findings_a_failure(file: str, capfd: pytest.CaptureFixture[str]) -> None:
    said(capfd, file, "--strict", status=1)
    said(capfd, file, "--strict", "--ignore", "LNT", status=0)


def test_what_costs_next_to_nothing_is_left_out_and_counted(
    file: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hlo_opt.report.lint.check.LEAST_SHARE", 2.0)  # no finding about time alone costs that much
    assert "LNT111" not in (text := said(capfd, file)) and "; 1 below 0.5 % of the time left out (--all)" in text
    assert "LNT108" in text, "what costs memory is shown all the same"
    text = said(capfd, file, "--all")
    assert "LNT111" in text and "left out" not in text


def test_places_without_a_try_are_counted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(rule_specs()["LNT101"].example)
    assert "no change tried" not in said(capfd, str(file), "--select=LNT101")
    monkeypatch.setattr("hlo_opt.report.lint.base.MOST_TRIED", 0)
    assert "; no change tried at 1 cheaper place" in said(capfd, str(file), "--select=LNT101")
    assert json.loads(said(capfd, str(file), "--select=LNT101", "--format=json"))["untried"] == 1


def test_annotations(file: str, capfd: pytest.CaptureFixture[str]) -> None:
    text = said(capfd, file, "--format", "github")
    assert "title=LNT108" in text and "m.hlo" in text
    log = json.loads(said(capfd, file, "--format", "sarif"))
    rules = log["runs"][0]["tool"]["driver"]["rules"]
    assert {r["id"] for r in rules} == {"LNT108", "LNT111"} and rules[0]["fullDescription"]["text"]


def test_a_folder_is_looked_at_together(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    example = rule_specs()["LNT110"].example
    for size in ("64", "128"):
        (tmp_path / f"{size}.hlo").write_text(example.replace("64", size))
    found = json.loads(said(capfd, str(tmp_path), "--format", "json", "--select", "LNT110"))["findings"]
    assert [f["slug"] for f in found] == ["recompiled"]


def test_pages_and_the_list(capfd: pytest.CaptureFixture[str]) -> None:
    assert "missed-donation" in said(capfd, "lnt108")
    listed = said(capfd, "--list")
    assert all(code in listed for code in rule_specs())


@pytest.mark.parametrize(
    ("arguments", "why"),
    [((), "takes a file"), (("x.hlo", "--select", "LNT999"), "no rule 'LNT999'"), (("x.hlo",), "no such file")],
)
def test_what_is_refused(capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], why: str) -> None:
    assert run(["lint", *arguments]) == 2
    assert why in capfd.readouterr().err


@pytest.mark.parametrize(
    ("code", "hint"), [("LNT199", "hlo-opt lint --list shows all rules"), ("FUS105", "hlo-opt explain FUS105")]
)
def test_a_code_that_is_no_rule(code: str, hint: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["lint", code]) == 2
    text = capfd.readouterr().err
    assert f"there is no rule '{code}'" in text and hint in text


@pytest.mark.parametrize(("code", "words"), [("LNT101", "hlo-opt lint LNT101"), ("HLO511", "the code of an error")])
def test_explain_says_where_the_page_of_another_code_is(
    code: str, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", code]) == 2
    assert words in capfd.readouterr().err


def test_of_a_folder_each_finding_says_its_module(file: str, capfd: pytest.CaptureFixture[str]) -> None:
    folder = Path(file).parent
    other = folder / "n.hlo"
    other.write_text(Path(file).read_text())
    heads = [line for line in said(capfd, str(folder), "--select", "LNT108").splitlines() if " LNT108" in line]
    assert sorted(line.rpartition("  in ")[2] for line in heads) == [file, str(other)]
    found = json.loads(said(capfd, str(folder), "--select", "LNT108", "--format", "json"))["findings"]
    assert sorted(f["file"] for f in found) == [file, str(other)]
    text = said(capfd, str(folder), "--select", "LNT108", "--format", "sarif")
    assert "m.hlo" in text and "n.hlo" in text
