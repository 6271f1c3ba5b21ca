"""What the rules found: as text, as JSON, and as annotations of the Python lines."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from hlo_opt.diag.annotation import Annotation
from hlo_opt.report.annotate import place_of, relative
from hlo_opt.report.lint.base import Finding, rule_specs
from hlo_opt.report.page import Page, Word, count, counted, microseconds, size

SCHEMA = 1


def price_of(finding: Finding) -> str:
    """What it costs: time, else memory. `saves` is what a change saved in a copy of the module, `takes` what the place
    takes."""
    if finding.us is not None:
        return f"{'saves' if finding.saves else 'takes'} {microseconds(finding.us)}"
    return f"holds {size(finding.bytes)}" if finding.bytes else "costs compilation"


def as_page(findings: Sequence[Finding], total: float | None, left: int = 0, untried: int = 0) -> Page:
    """Each finding in a few lines. Shares are of the module's time, with the copies that its estimate leaves out.

    total    microseconds of the module, None for several modules
    left     the number of findings that are left out because they cost next to nothing
    untried  the number of places at which no change was tried
    """
    page = Page()
    apart = sum(f.us or 0.0 for f in findings if f.is_apart)
    for finding in findings:
        us = finding.us
        share = f" ({100 * us / (total + apart):.1f} %)" if total and us is not None else ""
        where = finding.source or f"`{finding.name}`"
        page.add(
            Word(f"{price_of(finding)}{share}", "bold"),
            "  ",
            Word(where, "cyan"),
            "  ",
            Word(f"{finding.code} {finding.spec.slug}", "yellow"),
            f"  in {finding.file}" if finding.file else "",
        )
        page.add("    ", finding.message)
        page.add("    change: ", finding.hint)
        if finding.rewrite:
            page.add("    tried: ", finding.rewrite)
    of = f" in a module of {microseconds(total)}" if total else ""
    if total and apart:
        of += f" and {microseconds(apart)} of copied inputs"
    page.add(
        Word(counted(len(findings), "finding"), "bold"),
        of,
        f"; {count(left)} below 0.5 % of the time left out (--all)" if left else "",
        f"; no change tried at {counted(untried, 'cheaper place')}" if untried else "",
        "; hlo-opt lint CODE shows a rule's page" if findings else "",
    )
    return page


def as_json(findings: Sequence[Finding], total: float | None, untried: int = 0) -> dict[str, object]:
    """The findings for programs. Fields are only added within a version."""
    return {
        "schema": SCHEMA,
        "est_us": None if total is None else round(total, 3),
        "untried": untried,
        "findings": [
            {
                "code": f.code,
                "slug": f.spec.slug,
                "file": f.file,
                "source": f.source,
                "instruction": f.name,
                "us": None if f.us is None else round(f.us, 3),
                "saves": f.saves,
                "bytes": round(f.bytes),
                "message": f.message,
                "hint": f.hint,
                "rewrite": f.rewrite,
            }
            for f in findings
        ],
    }


def as_annotations(findings: Sequence[Finding], file: str, root: str) -> list[Annotation]:
    """An annotation for each finding, at its Python line, else at its own dump, or at `file` where there is one."""
    annotations = []
    for finding in findings:
        place, line = place_of(finding.source) or (finding.file or file, 0)
        text = f"{price_of(finding)}: {finding.message}\nchange: {finding.hint}"
        if finding.rewrite:
            text += f"\ntried: {finding.rewrite}"
        parts = "\0".join((finding.code, finding.name, *([finding.file] if finding.file else []))).encode(
            "utf-8", "surrogatepass"
        )
        key = hashlib.sha256(parts).hexdigest()[:32]
        annotations.append(Annotation(finding.code, text, file=relative(place, root), line=line, key=key))
    return annotations


def list_page() -> Page:
    """All rules."""
    page = Page()
    page.table([[Word(code, "bold"), spec.slug, spec.short] for code, spec in rule_specs().items()])
    return page
