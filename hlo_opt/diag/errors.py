"""Errors that a user may see. Each is one sentence with a code and, where known, a position and a hint.

Every class keeps these parts as attributes, can be pickled (results cross process pools), and prints as
`file:line:column: CODE message`, the source line (unless it is blank), carets and the hint.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from hlo_opt.diag.source import Span

_CONTEXT = 160  # characters of a source line that are shown around the carets


def nearest(word: str, known: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """The known word most like a misspelt one, or None when none is close.
    `likeness` is from 0, no letter in common, to 1, the same word."""
    matches = difflib.get_close_matches(word[:200], list(known), n=1, cutoff=likeness)
    return matches[0] if matches else None


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """The hint for a misspelt word; None when no known word is close."""
    close = nearest(word, known)
    return None if close is None else f"did you mean {close}?"


def printable(text: str) -> str:
    """The text with control characters escaped, so that no input can steer a terminal."""
    return "".join(c if c.isprintable() or c == " " else c.encode("unicode_escape").decode() for c in text)


class HloOptError(Exception):
    """The base of all errors caused by the input or the user. An internal fault is never an HloOptError."""

    default_code = "HLO000"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        span: Span | None = None,
        hint: str | None = None,
        filename: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.span = span
        self.hint = hint
        self.filename = filename if span is None else span.source.filename
        self.others: tuple[HloOptError, ...] = ()

    @property
    def errors(self) -> tuple[HloOptError, ...]:
        """This error and further ones found in the same input, in text order."""
        return (self, *self.others)

    @property
    def line(self) -> int | None:
        """The 1-based line of the fault; None where there is no position."""
        return None if self.span is None else self.span.line

    @property
    def column(self) -> int | None:
        """The 1-based column of the fault; None where there is no position."""
        return None if self.span is None else self.span.column

    def __reduce__(self) -> tuple[object, ...]:
        return (_bare, (type(self), self.message), self.__dict__)

    def __str__(self) -> str:
        return "\n".join(error._one() for error in self.errors)

    def _one(self) -> str:
        message = f"{self.code} {printable(self.message)}"
        if self.span is None:
            head = f"{printable(self.filename)}: {message}" if self.filename else message
            return head if self.hint is None else f"{head}\n  hint: {printable(self.hint)}"
        line, column = self.span.source.position(self.span.start)
        text = self.span.source.line_text(line)
        first = max(0, column - 1 - _CONTEXT // 2)
        shown = printable(text[first : first + _CONTEXT])
        indent = len(printable(text[first : column - 1]))
        width = max(1, min(self.span.end - self.span.start, len(text) - column + 1, _CONTEXT - indent))
        rows = [f"{printable(self.span.source.filename)}:{line}:{column}: {message}"]
        if shown.strip():
            rows += [f"  {shown}", f"  {' ' * indent}{'^' * width}"]
        if self.hint is not None:
            rows.append(f"  hint: {printable(self.hint)}")
        return "\n".join(rows)


def _bare(cls: type[HloOptError], message: str) -> HloOptError:
    """An error without attributes, which unpickling sets."""
    return cls.__new__(cls, message)


class ParseError(HloOptError):
    """The text is not HLO."""

    default_code = "HLO100"


class VerifyError(HloOptError):
    """The text is HLO, but the module that it describes is not well formed."""

    default_code = "HLO200"


class UsageError(HloOptError):
    """An unknown preset, pass, option, target or backend, or an argument out of range."""

    default_code = "HLO300"


class EvaluationError(HloOptError):
    """An operation cannot be evaluated: an unknown custom call, an op without an evaluator, wrong inputs."""

    default_code = "HLO400"


class BackendError(HloOptError):
    """A backend cannot build or run a kernel."""

    default_code = "HLO500"


class ProofError(HloOptError):
    """A pass that must preserve the graph did not. This is a fault of hlo-opt, found before anything is printed."""

    default_code = "HLO600"


class CheckError(HloOptError):
    """Original and fused module disagree."""

    default_code = "HLO700"


class DeviceWarning(UserWarning):
    """A module for several devices ran on the first one only, although its result depends on the others."""
