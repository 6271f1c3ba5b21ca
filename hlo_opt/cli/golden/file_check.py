"""CHECK lines, matched by the package `filecheck`, LLVM's FileCheck in Python. It is imported when a RUN line asks for
it."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from hlo_opt.cli.golden.commands import REFUSED, confined, spelt
from hlo_opt.diag import UsageError, nearest

MISSING = "HLO341"
_FLAGS = ("allow-empty", "enable-var-scope", "match-full-lines", "strict-whitespace")
_VALUES = ("check-prefix", "check-prefixes")
MOST_SHOWN = 12
"""Lines of the output that are shown where nothing matches."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class _Options:
    """The arguments of FileCheck."""

    file: str = ""
    prefixes: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)


def require_filecheck() -> None:
    """Raises UsageError (HLO341), which says how to install it, where the package `filecheck` is missing."""
    try:
        import filecheck  # noqa: F401
    except ImportError:
        raise UsageError(
            "CHECK lines need the package filecheck, which is not installed",
            code=MISSING,
            hint="pip install 'hlo-opt[golden]', or pip install filecheck",
        ) from None


def file_check(arguments: tuple[str, ...], text: str, path: Path, root: Path) -> str:
    """Match a text with the CHECK lines of the file that the arguments name. Empty when they match, else what FileCheck
    says.

    Raises UsageError for arguments that are not understood, and where the package is missing.
    """
    options = _parse(arguments)
    if options.file != spelt(path) and not confined(options.file, root):
        raise UsageError(
            f"FileCheck reads `{options.file}`, which is no file below the folder under test", code=REFUSED
        )
    require_filecheck()
    from filecheck.finput import FInput
    from filecheck.matcher import Matcher
    from filecheck.options import Options
    from filecheck.parser import Parser

    complaints = io.StringIO()
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(complaints),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # Python's, about patterns that it reads otherwise than POSIX
            chosen = Options(
                options.file, check_prefixes=options.prefixes or ["CHECK"], variables=dict(options.variables)
            )
            for flag in options.flags:
                setattr(chosen, flag, True)
            matcher = Matcher(chosen, FInput("<output>", text), Parser.from_opts(chosen))
            status = matcher.run()
    except Exception as error:  # the package raises what comes to hand for CHECK lines that it does not support
        return f"FileCheck: {type(error).__name__}: {error}"
    if status == 0:
        return ""
    why = _COLOUR.sub("", complaints.getvalue()).rstrip("\n") or f"FileCheck: exit status {status}"
    return "\n".join([why, *_from(text, matcher.file.range.start)])


def _from(text: str, position: int) -> list[str]:
    """The lines of the output from where the match stopped."""
    lines = text[position : position + MOST_SHOWN * 400].lstrip("\n").split("\n")
    if not any(lines):
        return ["that is the end of the output"]
    number = text.count("\n", 0, position) + 1
    more = ["..."] if len(lines) > MOST_SHOWN else []
    return [f"the output from line {number} on:", *(f"  {line}" for line in lines[:MOST_SHOWN]), *more]


def _parse(arguments: tuple[str, ...]) -> _Options:
    options = _Options()
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        if word.startswith("-D") and equals:
            options.variables[name.removeprefix("D")] = value
        elif not word.startswith("-"):
            if options.file:
                raise UsageError(f"FileCheck takes one file, not {word!r} as well", code=REFUSED)
            options.file = word
        elif name in _VALUES:
            if not equals and not rest:
                raise UsageError(f"FileCheck's {word} wants a value", code=REFUSED)
            prefixes = (value if equals else rest.pop(0)).split(",")
            if not all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", p) for p in prefixes):
                raise UsageError(f"FileCheck's {word} wants words of letters, digits, - and _", code=REFUSED)
            options.prefixes += prefixes
        elif name in _FLAGS and not equals:
            options.flags.append(name.replace("-", "_"))
        else:
            known = (*_VALUES, *_FLAGS)
            close = nearest(name, known)
            hint = f"did you mean --{close}?" if close else f"options: {', '.join(f'--{n}' for n in known)}"
            raise UsageError(f"FileCheck has no option {word!r} here", code=REFUSED, hint=hint)
    if not options.file:
        raise UsageError("FileCheck wants the file with the CHECK lines", code=REFUSED, hint="... | FileCheck %s")
    return options
