"""Codes on the command line: of reasons (FUS105), of rules of `lint` (LNT101), of errors (HLO300)."""

from __future__ import annotations

import os
import re

from hlo_opt.cli.files import columns, show
from hlo_opt.diag import UsageError

CODE = re.compile(r"[A-Za-z]{3}[0-9]{3}")
"""A code as people type it: in small letters, too."""
_PART = re.compile(r"[A-Za-z]{3}[0-9]*")


def check_reason(code: str) -> None:
    """Raises UsageError for the code of a rule, whose page `lint` shows, and for that of an error, which has no
    page."""
    from hlo_opt.report.lint.base import rule_specs

    if code in rule_specs():
        raise UsageError(f"{code} is a rule of lint", hint=f"hlo-opt lint {code}")
    if code.startswith("LNT"):
        raise UsageError(f"there is no rule {code!r}", hint="hlo-opt lint --list shows all rules")
    if code.startswith("HLO"):
        hint = "its message and hint say all; reasons (FUS105) and rules of lint (hlo-opt lint --list) have pages"
        raise UsageError(f"{code} is the code of an error, and has no page", hint=hint)


def check_no_part(name: str) -> None:
    """Raises UsageError for what looks like a part of a code, where there is no file of that name."""
    if _PART.fullmatch(name) and not os.path.exists(name):
        hint = "a code has three letters and three digits, FUS105; hlo-opt help codes lists all"
        raise UsageError("no such file", filename=name, hint=hint)


def show_page(code: str) -> None:
    """Show the page of a reason, of a rule, or of what needs a size. Raises UsageError for any other code."""
    from hlo_opt.analysis.sizes import size_specs
    from hlo_opt.report.explain import code_page, spec_page
    from hlo_opt.report.lint.base import rule_specs

    rule = rule_specs().get(code) or size_specs().get(code)
    if rule is None:
        check_reason(code)
        show(code_page(code, columns()))
    else:
        show(spec_page(rule, columns()))
