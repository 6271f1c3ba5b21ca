"""Sorting networks of sort kernels as merges: a CPU does line after line, where a GPU compares pairs of places side by side.

A network of n places compares about n log(n)^2 / 4 times, a merge sort n log(n) times (host_sorts.h). Both order equal elements by their places, and so give the same
result where the comparator is an order. The text is that of the emitter of sort plans (sort.py); what this does not understand stays a network.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SHARED = re.compile(r"  __shared__ (?:__align__\(\d+\) )?(?P<type>[\w ]+?) (?P<name>\w+)\[(?P<size>\d+)\];")
_SIZES = re.compile(r"  for \(int (?P<size>\w+) = 2; (?P=size) <= (?P<last>\d+); (?P=size) \*= 2\) \{")
_STEPS = re.compile(r"    for \(int (\w+) = \w+ / 2; \1 > 0; \1 /= 2\) \{")
_LINE = re.compile(r"const int (\w+) = \w+(?:\.x)? [/%] \d+;")
_LIVE = re.compile(r"if \((blockIdx\.x \* \d+ \+ (\w+) < \d+)\) \{")
_FIRST = re.compile(r"const int (\w+) = 2 \* (\w+)(?:\.x)? - \(.*\);")
_SECOND = re.compile(r"const int (\w+) = (\w+) \^ \w+;")
_INSIDE = re.compile(r"if \((\w+) < (\d+)\) \{")
_CELL = re.compile(r"const (?:int|long long) (\w+) = ([^\[\]]*);")
_EXCHANGE = re.compile(r"if \((.*)\) \{")
_TIE = re.compile(r"(?P<less>.*) \|\| \(!.* && \w+ < \w+\)")

HEADER = "host_sorts.h"
_OF_HEAP = (
    "hlo_item *const hlo_held = (hlo_item*)__builtin_malloc(2 * {length}ll * sizeof(hlo_item));\n"
    "if (!hlo_held) {{ hlo::sorts_failed = true; return; }}\nhlo_item *const hlo_spare = hlo_held + {length};"
)


@dataclass(frozen=True)
class Merges:
    """A kernel's body with `MARK` in place of its network, and the statements that do the network's work for a block."""

    body: str
    statements: str


MARK = "hlo_once();"


def with_merges(body: str, scratch: str = "") -> Merges | None:
    """The merges of a sort kernel's body, which orders what is in shared memory or, where it has a name, in `scratch` memory; None for any other text."""
    lines = body.split("\n")
    start = next((n for n, line in enumerate(lines) if _SIZES.fullmatch(line)), None)
    if start is None or not _STEPS.fullmatch(lines[start + 1]):
        return None
    end = next(n for n in range(start, len(lines)) if lines[n] == "  }")
    shared = [m for m in map(_SHARED.fullmatch, lines) if m is not None]
    tables = {m["name"]: (m["type"], int(m["size"])) for m in shared} or ({scratch: ("int", 0)} if scratch else {})
    sizes = _SIZES.fullmatch(lines[start])
    assert sizes is not None
    statements = _statements([line.strip() for line in lines[start + 3 : end]], int(sizes["last"]), tables)
    if statements is None:
        return None
    return Merges("\n".join([*lines[:start], f"  {MARK}", *lines[end + 1 :]]), statements)


def _statements(inside: list[str], length: int, tables: dict[str, tuple[str, int]]) -> str | None:
    """What follows the mask of a step, up to the end of the network."""
    at = next((n for n, text in enumerate(inside) if _FIRST.fullmatch(text)), None)
    if at is None or not tables:
        return None
    first, second = _FIRST.fullmatch(inside[at]), _SECOND.fullmatch(inside[at + 1])
    lives = [m for m in map(_LIVE.fullmatch, inside[:at]) if m is not None]
    named = [m for m in map(_LINE.fullmatch, inside[:at]) if m is not None]
    if first is None or second is None or second[2] != first[1]:
        return None
    at += 2
    short = _INSIDE.fullmatch(inside[at])
    if short is not None and short[1] == second[1]:
        length, at = int(short[2]), at + 1
    cells = (first[1], second[1])
    low, high = (_CELL.fullmatch(inside[n]) for n in (at, at + 1))
    place = f"const int {first[1]} = hlo_place;"
    if low is not None and high is not None and _names(low[2], first[1]) and _names(high[2], second[1]):
        cells, at = (low[1], high[1]), at + 2
        place += f" {low[0]}"
    stores = tuple(f"{name}[{cells[0]}] = " for name in tables)
    swaps = [n for n in range(at, len(inside) - 1) if inside[n + 1].startswith(stores)]
    last = next((n for n in swaps if _EXCHANGE.fullmatch(inside[n])), None)
    if last is None or any("__sync" in text for text in inside[at:last]):
        return None
    condition = _EXCHANGE.fullmatch(inside[last])
    assert condition is not None
    tie = _TIE.fullmatch(condition[1])  # of two elements that are merged, the first one came first
    wanted = condition[1] if tie is None else tie["less"]
    compared = [_of_items(text, tables, cells) for text in (*inside[at:last], f"return {wanted};")]
    if any(re.search(rf"\b(?:{'|'.join((*tables, *cells))})\b", _plain(text)) for text in compared):
        return None
    per_block = next(size for _, size in tables.values()) // length
    is_shared = per_block > 0
    line = named[0][1] if named and per_block > 1 else "hlo_line"
    members = " ".join(f"{kind} {name};" for name, (kind, _) in tables.items())
    cell = cells[0]
    taken = " ".join(f"hlo_held[hlo_place].{name} = {name}[{cell}];" for name in tables)
    given = " ".join(f"{name}[{cell}] = hlo_held[hlo_place].{name};" for name in tables)
    every = f"for (int hlo_place = 0; hlo_place < {length}; ++hlo_place) {{ {place}"
    return "\n".join(
        [
            "{",
            f"struct hlo_item {{ {members} }};",
            f"hlo_item hlo_held[{length}], hlo_spare[{length}];" if is_shared else _OF_HEAP.format(length=length),
            f"for (int {line} = 0; {line} < {per_block}; ++{line}) {{" if is_shared else "{",
            *(f"if (!({live[1]})) continue;" for live in lives),
            f"{every} {taken} }}",
            f"hlo::merge_sort(hlo_held, hlo_spare, {length}, false, [&](const hlo_item& hlo_one, const hlo_item& hlo_two) -> bool {{",
            *compared,
            "});",
            f"{every} {given} }}",
            "}",
            "}" if is_shared else "__builtin_free(hlo_held);\n}",
        ]
    )


def _names(text: str, word: str) -> bool:
    return re.search(rf"\b{word}\b", text) is not None


def _of_items(text: str, tables: dict[str, tuple[str, int]], cells: tuple[str, str]) -> str:
    """A statement that reads two cells, reading two items."""
    for cell, item in zip(cells, ("hlo_one", "hlo_two"), strict=True):
        text = re.sub(rf"\b({'|'.join(tables)})\[{cell}\]", rf"{item}.\1", text)
    return text


def _plain(text: str) -> str:
    """The statement without what it reads of items."""
    return re.sub(r"\bhlo_(?:one|two)\.\w+", "0", text)
