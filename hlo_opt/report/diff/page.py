"""A comparison for people."""

from __future__ import annotations

from math import isinf

from hlo_opt.analysis.graph.compare.flat import FlatSite
from hlo_opt.analysis.graph.compare.matching import is_run
from hlo_opt.diag import Reason
from hlo_opt.report import sentences
from hlo_opt.report.diff.changes import Change, Detail, expression, is_small
from hlo_opt.report.diff.comparison import Comparison, Difference
from hlo_opt.report.diff.kernels import WAS_DONE, KernelGroup, LaunchedKernel, Seam
from hlo_opt.report.page import Page, Word, count, counted, microseconds, size
from hlo_opt.report.summary import unknown_loops

DIFFERENCES_SHOWN = 10
"""Differences that the text shows."""

CHANGES_SHOWN = 8
"""Instructions of one difference that the text names."""

GROUPS_SHOWN = 4
"""Groups of kernels of one difference that it names."""

KERNELS_NAMED = 3
"""Kernels that are named in a title."""

KERNELS_SHOWN = 4
"""Kernels on either side of a group that it names."""

VERB_ROOM, LEAST_ROOM = 13, 50
"""Columns of a verb and of what divides the columns of a row; the least columns that a sentence has."""

STYLES = {"added": "green", "lost": "red", "moved": "yellow", "changed": "yellow", "module": "yellow"}


def percent(share: float) -> str:
    """A share with its sign, three figures: `+12.3 %`, `+223,000 %`."""
    return f"{100 * share:+.3g} %" if isinf(share) or abs(share) < 9.995 else f"{float(f'{100 * share:.3g}'):+,.0f} %"


def signed(text: str, value: float) -> str:
    """A figure with a plus where it is one."""
    return f"+{text}" if value > 0 else text


def as_page(comparison: Comparison, most: int | None = DIFFERENCES_SHOWN) -> Page:
    """The figures, then the differences, `most` of them where that is given."""
    page = Page()
    page.add(Word(heading(comparison), "bold"))
    rows: list[list[str | Word]] = [["", "old", "new", ""]]
    for name, old, new, more in figures(comparison):
        rows.append([name, old, Word(new, "bold"), more])
    page.table(rows, right=frozenset({1, 2, 3}), indent=2)
    for side in (comparison.old, comparison.new):
        if side.summary.unknown_trips:
            page.add(unknown_loops(side.summary))
            break
    if comparison.too_large:
        page.add("  kernels are the operations of the texts: fusing both first takes a while, `--fuse always` does it")
    page.add(f"  {alike(comparison)}")
    for difference in comparison.differences[:most]:
        page.add()
        page.extend(difference_page(difference))
    if most is not None and len(comparison.differences) > most:
        page.add()
        page.add(f"{counted(len(comparison.differences) - most, 'more difference')}: --all shows them")
    return page


def heading(comparison: Comparison) -> str:
    """What was compared, on what, and what the kernels are."""
    names = [comparison.old.module.name, comparison.new.module.name]
    what = names[0] if names[0] == names[1] else f"{names[0]} -> {names[1]}"
    how = f"both fused by {comparison.fused_by}" if comparison.fused_by else "kernels as they are in the texts"
    return f"{what} on {comparison.target.name}, {how}"


def figures(comparison: Comparison) -> list[tuple[str, str, str, str]]:
    """The four numbers: name, old, new, and by how much it is more."""
    old, new = comparison.old.summary, comparison.new.summary
    more = new.bytes / old.bytes - 1 if old.bytes else 0.0
    return [
        ("kernels", count(old.kernels), count(new.kernels), _more(new.kernels - old.kernels)),
        ("launches", count(old.launches), count(new.launches), _more(new.launches - old.launches)),
        ("bytes", size(old.bytes), size(new.bytes), percent(more) if new.bytes != old.bytes else ""),
        (
            "estimated",
            microseconds(old.est_us),
            microseconds(new.est_us),
            percent(comparison.growth) if abs(comparison.growth) > 1e-9 else "",
        ),
    ]


def _more(value: float) -> str:
    return signed(count(value), value) if value else ""


def alike(comparison: Comparison) -> str:
    """How much of both is alike."""
    counts = comparison.counts
    if comparison.same:
        return "no difference, but for names, metadata and order"
    parts = [
        f"{count(number)} {what}"
        for what, number in (
            ("changed", counts.changed),
            ("added", counts.added),
            ("lost", counts.lost),
            ("moved", counts.moved),
        )
        if number
    ]
    return f"{counted(counts.alike, 'operation')} alike" + (f"; {', '.join(parts)}" if parts else "")


def difference_page(difference: Difference) -> Page:
    """One difference: what it costs, what it begins with, and the kernels."""
    page = Page()
    page.add(Word(title(difference), "bold"), *(("  ", difference.source) if difference.source else ()))
    rows: list[list[str | Word]] = []
    shown = difference.changes[1:CHANGES_SHOWN]  # the first is the title
    room = sentences.COLUMNS - VERB_ROOM - max((len(change.source) for change in shown), default=0)
    for change in shown:
        text = sentences.fit(sentence(change), max(room, LEAST_ROOM))
        rows.append([Word(verb(change), STYLES[change.kind]), text, change.source])
    page.table(rows, indent=2)
    if len(difference.changes) > CHANGES_SHOWN:
        page.add(f"  and {counted(len(difference.changes) - CHANGES_SHOWN, 'more operation')}")
    page.extend(_repeats_page(difference))
    for group in difference.groups[:GROUPS_SHOWN]:
        page.extend(_group_page(group))
    if len(difference.groups) > GROUPS_SHOWN:
        left = difference.groups[GROUPS_SHOWN:]
        page.add(f"  and {counted(len(left), 'more group')} of kernels, {_cost(sum(g.us for g in left))}")
    return page


def _repeats_page(difference: Difference) -> Page:
    """How many operations compute what others compute too, behind a barrier; nothing where none do."""
    page = Page()
    for kind, says in (("added", "compute"), ("lost", "computed")):
        number = sum(c.places for c in difference.changes if c.kind == kind and c.again is not None)
        if number:
            page.add(
                f"  {count(number)} of the {kind} {says} again what others compute, behind a barrier (rematerialized)"
            )
    return page


def title(difference: Difference) -> str:
    """What a difference costs, and what it begins with."""
    cost = _cost(difference.us)
    if difference.changes:
        first = difference.changes[0]
        apart = [g for g in difference.groups if g.kind in ("split", "joined")]
        return f"{cost}  {verb(first)} {sentence(first)}" + (f"; {group_title(apart[0])}" if apart else "")
    return f"{cost}  {group_title(difference.groups[0])}"


def verb(change: Change) -> str:
    """What became of an instruction, in a word."""
    return "header" if change.kind == "module" else change.kind


def _cost(us: float) -> str:
    return signed(microseconds(us), us) if abs(us) >= 5e-4 else "0 us"


def sentence(change: Change) -> str:
    """What a change is: names and opcodes, and what is another one now."""
    site = change.new or change.old
    details = "; ".join(map(detail, change.details))
    if site is None or (details and all(d.is_of_results for d in change.details)):
        return details + _places(change)
    ends = dict.fromkeys(s.instruction.name for s in change.sites)
    text = f"{' -> '.join(ends)} ({site.opcode})"
    if details:
        text += f": {details}"
    elif change.kind in ("added", "lost"):
        text = f"{site.instruction.name} = {short_shape(str(site.instruction.shape))} {site.opcode}"
        text += f"({', '.join(map(_read, site.inputs[:3]))}{', ...' if len(site.inputs) > 3 else ''})"
        if change.again is not None:
            text += f", as {change.again.instruction.name}"
        if all(is_small(body) and not is_run(body) for _, body in site.bodies):
            text += "".join(f", {name} {expression(body)}" for name, body in site.bodies)
        else:
            text += f", with {counted(change.holds, 'operation')} in what it calls"
        if not site.users and not site.roots:
            text += ", which nothing reads"
    return text + _places(change)


def _places(change: Change) -> str:
    return f", in {counted(change.places, 'place')}" if change.places > 1 else ""


def _read(leaf: tuple[FlatSite, int]) -> str:
    """What an operation reads: of a scalar constant its value."""
    site, result = leaf
    instruction = site.instruction
    if instruction.literal is not None and instruction.shape.is_array and not instruction.shape.rank:
        return str(instruction.literal.text or instruction.literal.value)
    return instruction.name + (f"{{{result}}}" if instruction.shape.is_tuple else "")


def short_shape(text: str) -> str:
    """A shape that fits a line."""
    return text if len(text) <= 60 else text[:56] + " ..."


def detail(one: Detail) -> str:
    """One thing that is another one now."""
    if not one.old or not one.new:
        return f"{one.what} {'+' if one.new else '-'}{one.new or one.old}"
    return f"{one.what} {one.old} -> {one.new}"


def group_title(group: KernelGroup) -> str:
    """What became of some kernels."""
    old, new = counted(len(group.old), "kernel"), counted(len(group.new), "kernel")
    match group.kind:
        case "split":
            return f"kernel {group.old[0].name} split into {_named(group.new)}"
        case "joined":
            return f"kernels {_named(group.old)} joined into {group.new[0].name}"
        case "regrouped":
            return f"{old} regrouped into {count(len(group.new))}"
        case "added":
            return f"{new} added"
        case "lost":
            return f"{old} lost"
    one, other = group.old[0], group.new[0]
    if one.label != other.label:
        return f"kernel {one.name} ({one.label}) is now {other.name} ({other.label})"
    return f"kernel {_ends(one, other)} takes {'longer' if group.us > 0 else 'less' if group.us < 0 else 'as long'}"


def _named(kernels: list[LaunchedKernel]) -> str:
    """Kernels by their names, where they are few."""
    names = [k.name for k in sorted(kernels, key=lambda k: -k.total_us)]
    return ", ".join(names) if len(names) <= KERNELS_NAMED else count(len(names))


def _ends(one: LaunchedKernel, other: LaunchedKernel) -> str:
    return " -> ".join(dict.fromkeys((one.name, other.name)))


def _group_page(group: KernelGroup) -> Page:
    page = Page()
    page.add(f"  {group_title(group)}: {_cost(group.us)}, {_bytes(group.bytes)}")
    rows: list[list[str | Word]] = []
    for side, kernels in (("old", group.old), ("new", group.new)):
        shown = sorted(kernels, key=lambda k: -k.total_us)
        for kernel in shown[:KERNELS_SHOWN]:
            took = microseconds(kernel.us) + (f" x {count(kernel.rounds)}" if kernel.rounds > 1 else "")
            rows.append([side, took, size(kernel.bytes), f"{kernel.name} ({kernel.label})", kernel.source])
        left = shown[KERNELS_SHOWN:]
        if left:
            rows.append([side, microseconds(sum(k.total_us for k in left)), "", f"{count(len(left))} more", ""])
    page.table(rows, right=frozenset({1, 2}), indent=4)
    for seam in group.seams:
        page.add(f"    {seam.producer} -> {seam.consumer}: ", *seam_words(seam))
    return page


def _bytes(value: float) -> str:
    return signed(size(value), value) if abs(value) >= 1 else "as many bytes"


def seam_words(seam: Seam) -> list[str | Word]:
    """What is said of an edge on both sides."""
    words: list[str | Word] = []
    if seam.old is not None and seam.new is not None and seam.passed:
        told = [sentences.sentence(decision) for decision in (seam.old, seam.new)]
        if told[0] == told[1]:
            return ["refused on both sides: ", Word(told[0], "yellow")]
    for side, decision in (("old", seam.old), ("new", seam.new)):
        words.append(f"{'; ' if words else ''}{side} ")
        if decision is None:
            words.append(Word("fused", "green"))
            continue
        first: Reason = decision.reasons[0]
        if not seam.passed and first.code == WAS_DONE:
            words += [
                Word(f"{first.code} {first.slug}", "yellow"),
                " (no rule of ours refuses it: hlo-opt fuse would join them)",
            ]
            continue
        words.append(Word(sentences.sentence(decision), "yellow"))
    return words
