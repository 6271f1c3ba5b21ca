"""Limits that a fused module must keep, for continuous integration: kernels, bytes, and codes under which no edge may be refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hlo_opt.diag import CheckError, reason_spec
from hlo_opt.passes import ExplainReport
from hlo_opt.report.page import count, counted, size

KERNELS = "HLO710"
BYTES = "HLO711"
REFUSALS = "HLO712"


@dataclass(frozen=True)
class Budget:
    """What is allowed. None and empty set no limit.

    max_kernels  kernels of the fused module, those in the body of a loop counted once
    max_bytes    bytes that they read and write, counted the same way
    fail_on      codes of reasons under which no edge may be refused
    """

    max_kernels: int | None = None
    max_bytes: int | None = None
    fail_on: tuple[str, ...] = ()

    def check(self) -> None:
        """Raises UsageError, naming the nearest one, for a code that does not exist."""
        for code in self.fail_on:
            reason_spec(code.upper())

    def exceeded(self, report: ExplainReport) -> list[CheckError]:
        """One coded error, of one line, for each limit that the module does not keep."""
        module = report.outcome.module
        filename = None if module.source is None else module.source.filename
        return [
            CheckError(f"module {module.name}: {message}", code=code, filename=filename)
            for code, message in self._told(report)
        ]

    def _told(self, report: ExplainReport) -> Iterator[tuple[str, str]]:
        after = report.after
        if self.max_kernels is not None and after.kernels > self.max_kernels:
            over = count(after.kernels - self.max_kernels)
            yield (
                KERNELS,
                f"{counted(after.kernels, 'kernel')}, {over} more than the budget of {count(self.max_kernels)}",
            )
        if self.max_bytes is not None and after.bytes > self.max_bytes:
            over = _both(after.bytes - self.max_bytes)
            yield (
                BYTES,
                f"{_both(after.bytes)} read and written, {over} more than the budget of {_both(self.max_bytes)}",
            )
        refusals = report.refusals_by_code
        for code in dict.fromkeys(c.upper() for c in self.fail_on):
            if code not in refusals:
                continue
            first = next(d for d in report.refused if any(r.code == code for r in d.reasons))
            places = [p for p in (first.consumer_source, first.producer_source) if p]
            where = f"{first.producer} -> {first.consumer}" + (f", {places[0]}" if places else "")
            yield (
                REFUSALS,
                f"{counted(refusals[code], 'edge')} refused as {code} {reason_spec(code).slug}, and the budget is 0 (the first: {where})",
            )


def _both(value: float) -> str:
    """Bytes for people and exactly: `12.3 MB (12,345,678 bytes)`."""
    return f"{size(value)} ({count(value)} bytes)"
