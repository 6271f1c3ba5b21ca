"""What must wait for what among launches, and on which of a few streams each starts so that the others run side by side.

A launch waits for the last one that wrote what it reads, and for all that read or wrote what it overwrites: memory that is used again orders launches as much as a
value does. XLA:GPU orders the commands of a command buffer by the same conflicts (xla/backends/gpu/runtime/command_executor.cc).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

Span = tuple[int, int]
"""An address and the one behind the last byte."""


@dataclass(frozen=True)
class Access:
    """What a launch reads and writes. `alone` (empty: nothing) names what only one launch at a time may use, such as the counters that a kernel keeps."""

    reads: tuple[Span, ...]
    writes: tuple[Span, ...]
    alone: str = ""


@dataclass(frozen=True)
class Start:
    """The stream of a launch, and launches of other streams that it waits for."""

    stream: int
    waits: tuple[int, ...]


@dataclass
class _Region:
    """Who used some memory last: the launch that wrote it (-1: none of these) and those that have read it since."""

    span: Span
    writer: int
    readers: list[int] = field(default_factory=list)


def dependencies(accesses: Sequence[Access]) -> list[Set[int]]:
    """For each launch, earlier ones that must be done before it starts."""
    regions: list[_Region] = []
    alone: dict[str, int] = {}
    found: list[Set[int]] = []
    for number, access in enumerate(accesses):
        after: set[int] = set()
        for span in access.reads:
            after.update(r.writer for r in regions if _meet(r.span, span))
        for span in access.writes:
            for r in regions:
                if _meet(r.span, span):
                    after.update((r.writer, *r.readers))
        for span in dict.fromkeys(access.reads):
            same = next((r for r in regions if r.span == span), None)
            if same is None:
                regions.append(_Region(span, -1, [number]))
            else:
                same.readers.append(number)
        for first, last in dict.fromkeys(access.writes):
            regions = [r for r in regions if not (first <= r.span[0] and r.span[1] <= last)]
            regions.append(_Region((first, last), number))
        if access.alone:
            after.add(alone.get(access.alone, -1))
            alone[access.alone] = number
        found.append(after - {-1, number})
    return found


def _meet(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def starts(after: Sequence[Set[int]], streams: int) -> list[Start]:
    """A stream for each launch: where what it waits for ran last, else one whose work it waits for in any case, else a new one, else the one that was used least recently.
    Waits that follow from others are left out."""
    found: list[Start] = []
    last: list[int] = []  # the launch that each stream ends with
    known: list[list[int]] = []  # for each launch, up to where it is ordered behind each stream
    for number, before in enumerate(after):
        seen = [-1] * streams
        for n in before:
            seen = [max(a, b) for a, b in zip(seen, known[n], strict=True)]
        stream = _stream(before, last, seen, streams)
        if stream == len(last):
            last.append(-1)
        behind = known[last[stream]] if last[stream] >= 0 else [-1] * streams
        waits = []
        for n in sorted(before, reverse=True):
            if n > behind[found[n].stream]:
                waits.append(n)
                behind = [max(a, b) for a, b in zip(behind, known[n], strict=True)]
        found.append(Start(stream, tuple(sorted(waits))))
        known.append([number if s == stream else b for s, b in enumerate(behind)])
        last[stream] = number
    return found


def _stream(before: Set[int], last: Sequence[int], seen: Sequence[int], streams: int) -> int:
    follows = [(n, s) for s, n in enumerate(last) if n in before]
    if follows:
        return max(follows)[1]
    free = [(n, s) for s, n in enumerate(last) if n <= seen[s]]
    if free:
        return max(free)[1]
    if len(last) < streams:
        return len(last)
    return min((n, s) for s, n in enumerate(last))[1]
