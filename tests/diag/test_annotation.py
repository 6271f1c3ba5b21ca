"""GitHub's workflow commands and SARIF, as their readers want them."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pytest

from hlo_opt.diag import reason_specs
from hlo_opt.diag.annotation import Annotation, github, sarif

SOME = Annotation("FUS302", "a -> d: no\nhint", file="model.py", line=7, key="k", properties={"slug": "library-call"})


def test_github_escapes_what_would_end_a_message_or_a_field() -> None:
    nasty = Annotation("FUS302", "50 % of\r\n::error::x", "note", "a,b:c%\n.py", 3)
    assert github([SOME, nasty]) == (
        "::warning file=model.py,line=7,title=FUS302::a -> d: no%0Ahint\n"
        "::notice file=a%2Cb%3Ac%25%0A.py,line=3,title=FUS302::50 %25 of%0D%0A::error::x\n"
    )


def test_github_hides_control_characters_from_terminals() -> None:
    """Names in a dump may hold them, and lone surrogates, which no output takes."""
    nasty = Annotation("FUS302", "x\x1b[31m\udc80", file="a\x1b]0;t\x07.py")
    assert github([nasty]) == "::warning file=a\\x1b]0;t\\x07.py,title=FUS302::x\\x1b[31m\\udc80\n"


def test_github_leaves_out_what_is_not_known() -> None:
    assert github([Annotation("HLO710", "x", "error")]) == "::error title=HLO710::x\n"
    assert github([Annotation("FUS302", "x", file="a.py")]) == "::warning file=a.py,title=FUS302::x\n"
    assert github([Annotation("FUS302", "x", line=3)]) == "::warning title=FUS302::x\n"


def test_sarif_has_what_the_standard_asks_for() -> None:
    log = sarif([SOME, Annotation("HLO710", "over", "error")], reason_specs(), "0.1.0")
    check_sarif(log)
    (run,) = log["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["FUS302", "HLO710"]
    first, second = run["results"]
    assert first["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "model.py", "uriBaseId": "SRCROOT"},
        "region": {"startLine": 7},
    }
    assert first["partialFingerprints"] == {"edge/v1": "k"} and first["level"] == "warning"
    assert "locations" not in second and second["level"] == "error"
    assert "{" not in run["tool"]["driver"]["rules"][0]["help"]["text"]


def test_sarif_without_results() -> None:
    check_sarif(sarif([], reason_specs(), "0.1.0"))


@pytest.mark.parametrize(
    ("file", "uri"),
    [
        ("a b/ä%.py", "a%20b/%C3%A4%25.py"),
        ("/home/me/x y.py", "file:///home/me/x%20y.py"),
        ("C:\\me\\x.py", "file:///C:/me/x.py"),
        ("<frozen>?#", "%3Cfrozen%3E%3F%23"),
        ("a\x1b\n.py", "a%1B%0A.py"),
    ],
)
def test_sarif_names_files_by_uris(file: str, uri: str) -> None:
    log = sarif([Annotation("FUS302", "x", file=file, line=1)], reason_specs(), "0.1.0")
    check_sarif(log)
    artifact = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact["uri"] == uri
    assert unquote(uri).endswith(file.replace("\\", "/"))


def check_sarif(log: dict[str, object]) -> None:
    """What section 3 of SARIF 2.1.0 requires of the objects that we write."""
    assert log["version"] == "2.1.0" and str(log["$schema"]).endswith("sarif-schema-2.1.0.json")
    runs = log["runs"]
    assert isinstance(runs, list)
    for run in runs:
        driver = run["tool"]["driver"]
        assert driver["name"] and re.fullmatch(r"\d+\.\d+\.\d+", driver["semanticVersion"])
        rules = driver["rules"]
        assert len({r["id"] for r in rules}) == len(rules)
        for rule in rules:
            assert all(rule[k]["text"] for k in ("shortDescription", "fullDescription", "help") if k in rule)
        assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
        assert isinstance(run["results"], list)
        for result in run["results"]:
            assert result["message"]["text"]
            assert result["level"] in ("none", "note", "warning", "error")
            assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
            for location in result.get("locations", []):
                physical = location["physicalLocation"]
                uri = physical["artifactLocation"]["uri"]
                assert re.fullmatch(r"[A-Za-z0-9\-._~:/@!$&'()*+,;=%]+", uri) and not re.search(
                    r"%(?![0-9A-F]{2})", uri
                )
                base = physical["artifactLocation"].get("uriBaseId")
                assert (base in run["originalUriBaseIds"]) if base else uri.startswith("file:///")
                assert physical.get("region", {"startLine": 1})["startLine"] >= 1
