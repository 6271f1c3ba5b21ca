"""What orders the lines of a block where one processor runs its threads: a merge sort in the place of a network."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_opt.codegen.lanes_text import ThreadText
from hlo_opt.codegen.tree import Merge


def merges(writer: ThreadText, merge: Merge) -> Iterator[str]:
    """Code that sorts the lines of a block, one line after another."""
    shared, length = merge.in_shared, merge.length
    yield "{"
    yield f"struct hlo_item {{ {' '.join(f'{kind} {table.text};' for kind, table in merge.tables)} }};"
    if shared:
        yield f"hlo_item hlo_held[{length}], hlo_spare[{length}];"
    else:
        yield f"hlo_item *const hlo_held = (hlo_item*)__builtin_malloc(2 * {length}ll * sizeof(hlo_item));"
        yield "if (!hlo_held) { hlo::sorts_failed = true; return; }"
        yield f"hlo_item *const hlo_spare = hlo_held + {length};"
    line, place = merge.line.text, merge.place.text
    yield f"for (int {line} = 0; {line} < {merge.lines}; ++{line}) {{"
    if merge.live:
        yield f"if (!({writer.text(merge.live)})) continue;"
    every = f"for (int {place} = 0; {place} < {length}; ++{place}) {{"
    at = writer.text(merge.cell)
    yield every
    yield from writer.lines(merge.placing)
    yield from (f"hlo_held[{place}].{table.text} = {table.text}[{at}];" for _, table in merge.tables)
    yield "}"
    items = f"const hlo_item& {merge.one.text}, const hlo_item& {merge.two.text}"
    few = 2 * merge.kept <= length
    function = (
        f"sort_first(hlo_held, hlo_spare, {length}, {merge.kept}"
        if few
        else f"merge_sort(hlo_held, hlo_spare, {length}, false"
    )
    yield f"hlo::{function}, [&]({items}) -> bool {{"
    yield from writer.lines(merge.comparing)
    yield f"return {writer.text(merge.less)};"
    yield "});"
    yield f"for (int {place} = 0; {place} < {merge.kept if few else length}; ++{place}) {{"
    yield from writer.lines(merge.placing)
    yield from (f"{table.text}[{at}] = hlo_held[{place}].{table.text};" for _, table in merge.tables)
    yield "}"
    yield "}"
    yield "}" if shared else "__builtin_free(hlo_held);\n}"
