"""Findings at places in a user's program, in the formats of continuous integration: GitHub workflow commands, SARIF
2.1.0."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, Literal
from urllib.parse import quote

from hlo_opt.diag.errors import printable
from hlo_opt.diag.reason import ReasonSpec

Level = Literal["error", "warning", "note"]

SARIF_VERSION = "2.1.0"
SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT_ID = "SRCROOT"
"""The base of SARIF's relative paths: the repository root."""

_FIELD = re.compile(r"`?\{\w+\}`?")
_GITHUB_LEVELS = {"error": "error", "warning": "warning", "note": "notice"}


@dataclass(frozen=True, slots=True)
class Annotation:
    """One finding. `file` is "" and `line` (from 1) is 0 where unknown; `key` identifies it when line numbers shift."""

    code: str
    message: str
    level: Level = "warning"
    file: str = ""
    line: int = 0
    key: str = ""
    properties: Mapping[str, Any] = field(default_factory=dict)


def github(annotations: Iterable[Annotation]) -> str:
    """GitHub workflow commands, one per line: `::warning file=model.py,line=7,title=FUS201::message`.

    Source of the form and of the escaping: actions/toolkit, packages/core/src/command.ts.
    """
    lines = []
    for a in annotations:
        place = {"file": a.file, "line": str(a.line) if a.file and a.line else "", "title": a.code}
        fields = ",".join(f"{key}={_property(value)}" for key, value in place.items() if value)
        lines.append(f"::{_GITHUB_LEVELS[a.level]} {fields}::{_data(a.message)}\n")
    return "".join(lines)


def _data(text: str) -> str:
    """Control characters that a terminal or a log would obey are escaped as in messages; ends of lines are kept."""
    shown = "".join(c if c in "\r\n" else printable(c) for c in text)
    return shown.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def sarif(annotations: Sequence[Annotation], rules: Iterable[ReasonSpec], version: str) -> dict[str, Any]:
    """A SARIF log of one run of this version of the program.

    `rules` describe the codes; the log declares those that occur. A code without a rule (of a budget, say) is declared
    by its id alone.
    """
    known = {spec.code: spec for spec in rules}
    used = sorted({a.code for a in annotations})
    described = {code: _rule(known[code]) if code in known else {"id": code} for code in used}
    index = {code: n for n, code in enumerate(described)}
    driver = {"name": "hlo-opt", "semanticVersion": version, "rules": list(described.values())}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {ROOT_ID: {"description": {"text": "The top of the repository."}}},
        "results": [_result(a, index[a.code]) for a in annotations],
    }
    return {"$schema": SARIF_SCHEMA, "version": SARIF_VERSION, "runs": [run]}


def _rule(spec: ReasonSpec) -> dict[str, Any]:
    return {
        "id": spec.code,
        "name": "".join(word.capitalize() for word in spec.slug.split("-")),
        "shortDescription": {"text": spec.slug.replace("-", " ")},
        "fullDescription": {"text": " ".join(spec.page.split())},
        "help": {
            "text": f"{_FIELD.sub('...', spec.hint)}\n\n`hlo-opt explain {spec.code}` shows the page of this code."
        },
        "defaultConfiguration": {"level": "warning"},
    }


def _result(a: Annotation, rule: int) -> dict[str, Any]:
    result: dict[str, Any] = {"ruleId": a.code, "ruleIndex": rule, "level": a.level, "message": {"text": a.message}}
    if a.file:
        physical: dict[str, Any] = {"artifactLocation": _artifact(a.file)}
        if a.line > 0:
            physical["region"] = {"startLine": a.line}
        result["locations"] = [{"physicalLocation": physical}]
    if a.key:
        result["partialFingerprints"] = {"edge/v1": a.key}
    if a.properties:
        result["properties"] = dict(a.properties)
    return result


def _artifact(file: str) -> dict[str, str]:
    """A path as a URI: an absolute one as `file:`, others relative to the repository root."""
    if PureWindowsPath(file).drive:
        return {"uri": "file:///" + quote(PureWindowsPath(file).as_posix(), safe="/:", errors="surrogatepass")}
    if PurePosixPath(file).is_absolute():
        return {"uri": "file://" + quote(file, safe="/", errors="surrogatepass")}
    return {"uri": quote(file, safe="/", errors="surrogatepass"), "uriBaseId": ROOT_ID}
