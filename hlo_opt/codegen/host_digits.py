"""Quotients and remainders of a thread's position, as the host's compiler needs them to see that neighbouring threads read neighbouring elements.

A block of B threads begins at a multiple of B. Where B divides D, `position % D` is the block's own remainder plus the thread's place in the block, and `position / D` is the same for
all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_KIND = r"const (?:int|long long)"
_FIRST = re.compile(
    rf" *{_KIND} (?P<name>\w+) = (?P<block>(?:\(long long\))?blockIdx\.x|\((?:\(long long\))?blockIdx\.x - \d+\)) \* (?P<size>\d+) \+ threadIdx\.x;"
)
_SEVERAL = re.compile(rf" *{_KIND} (?P<name>\w+) = (?P<of>\w+) \* (?P<count>\d+) \+ (?P<number>\w+);")
_SPREAD = re.compile(
    rf" *{_KIND} (?P<name>\w+) = \((?P<of>\w+) - threadIdx\.x\) \* (?P<count>\d+) \+ (?P<inside>\w+ \* \w+ \+ threadIdx\.x);"
)
_DIGIT = re.compile(rf"(?P<head> *{_KIND} \w+ = )(?P<of>\w+) (?P<operator>[/%]) (?P<divisor>\d+);")


@dataclass(frozen=True)
class _Position:
    """The block's first position, what a thread adds to it, and how many positions a block has."""

    first: str
    inside: str
    span: int


def taken_apart(body: str) -> str:
    """The body of a kernel, a statement per line, with such quotients and remainders taken apart."""
    known: dict[str, _Position] = {}
    made = []
    for line in body.splitlines():
        first, several, digit = _FIRST.fullmatch(line), _SEVERAL.fullmatch(line), _DIGIT.fullmatch(line)
        spread = _SPREAD.fullmatch(line)
        if first is not None:
            size = int(first["size"])
            known[first["name"]] = _Position(f"{first['block']} * {size}", "threadIdx.x", size)
        elif several is not None and several["of"] in known:
            of, count = known[several["of"]], int(several["count"])
            inside = f"{of.inside} * {count} + {several['number']}"
            known[several["name"]] = _Position(f"{of.first} * {count}", inside, of.span * count)
        elif spread is not None and spread["of"] in known:
            of, count = known[spread["of"]], int(spread["count"])
            known[spread["name"]] = _Position(f"{of.first} * {count}", spread["inside"], of.span * count)
        elif digit is not None and digit["of"] in known and int(digit["divisor"]) % known[digit["of"]].span == 0:
            of, divisor = known[digit["of"]], digit["divisor"]
            rest = f" + {of.inside}" if digit["operator"] == "%" else ""
            line = f"{digit['head']}({of.first}) {digit['operator']} {divisor}{rest};"
        made.append(line)
    return "\n".join(made) + "\n"
