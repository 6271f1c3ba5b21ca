"""Indices of threads in the text of a kernel: how many threads go side by side, and how large an index gets."""

from __future__ import annotations

import re
from collections.abc import Mapping

WARP = 32

TYPE = r"(?:const )?(?:unsigned |signed )?(?:bool|char|short|int|long long|float|double)"
DECLARATION = re.compile(rf"(?P<type>{TYPE}) (?P<name>\w+) = (?P<value>.*);")

UNKNOWN = 1 << 62
_TERM = re.compile(r"\s*(?:(?P<number>\d+)u?|(?P<name>[A-Za-z_]\w*(?:\.x)?)|(?P<sign>[-+*/%()]))")


def greatest(text: str, known: Mapping[str, int], pure: Mapping[str, str]) -> int | None:
    """The greatest value of a sum of products of indices that are not negative; None for other expressions. `known` are the greatest values of names, `pure` declarations."""
    total, product, operator = 0, 1, "*"
    position = 0
    while position < len(text):
        term = _TERM.match(text, position)
        if term is None or term["sign"]:
            return None
        position = term.end()
        value: int | None = int(term["number"]) if term["number"] else known.get(term["name"])
        if value is None:
            declared = DECLARATION.fullmatch(pure.get(term["name"], ""))
            value = None if declared is None else greatest(declared["value"], known, {})
        if value is None or (operator in "/%" and not (term["number"] and value)):
            return None
        product = (
            product * value if operator == "*" else product // value if operator == "/" else min(product, value - 1)
        )
        sign = re.compile(r"\s*([-+*/%()])\s*").match(text, position)
        if sign is None:
            return total + product if not text[position:].strip() else None
        operator, position = sign[1], sign.end()
        if operator == "+":
            total, product, operator = total + product, 1, "*"
        elif operator not in "*/%":
            return None
    return None


_DIGIT = re.compile(r"(?P<before>[*/%] )?threadIdx\.x(?: (?P<operator>[%/]) (?P<divisor>\d+)\b)?")


def lanes_of(text: str) -> int:
    """How many threads run side by side: a warp, or fewer where each 8 or 16 go through something together, whose elements are neighbours."""
    if "hlo_first" in text:
        return WARP
    parts = {int(m["divisor"]) for m in _DIGIT.finditer(text) if m["divisor"] and not m["before"]}
    return min((d for d in parts if d in (8, 16)), default=WARP)


def taken_apart(text: str, lanes: int) -> str:
    """Quotients and remainders of the thread's index by as many as run side by side are those of the first of them: vectors then see neighbouring addresses."""

    def replaced(match: re.Match[str]) -> str:
        operator, divisor, before = match["operator"], match["divisor"], match["before"] or ""
        if operator is None or before or int(divisor) % lanes:
            return f"{before}hlo_thread" + ("" if operator is None else f" {operator} {divisor}")
        return f"(hlo_first / {divisor})" if operator == "/" else f"(hlo_first % {divisor} + hlo_lane)"

    return _DIGIT.sub(replaced, text)
