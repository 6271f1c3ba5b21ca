"""A comparison as one page of HTML that loads nothing. Every text that comes from a dump is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from hlo_opt.diag.errors import printable
from hlo_opt.report.diff.comparison import Comparison, Difference
from hlo_opt.report.diff.kernels import Group
from hlo_opt.report.diff.page import alike, figures, group_title, heading, seam_words, sentence, signed, title, verb
from hlo_opt.report.page import Word, count, microseconds, size

STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em;
  color: #1b1b1b; background: #fff }
h1 { font-size: 1.3em } summary { cursor: pointer; padding: .3em 0 }
details { border-top: 1px solid #ccc; padding: .3em 0 }
table { border-collapse: collapse; margin: .4em 0 .4em 1.2em }
td, th { padding: .1em .8em .1em 0; text-align: left; vertical-align: top }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
code { font-size: .93em } p { margin: .3em 0 .3em 1.2em }
.worse { color: #a40000 } .better { color: #00632b } .where { color: #555 }
@media (prefers-color-scheme: dark) { body { color: #e4e4e4; background: #161616 } details { border-color: #444 }
.worse { color: #ff8a80 } .better { color: #7bd69b } .where { color: #aaa } }
""".strip()


def as_html(found: Comparison) -> str:
    """The page."""
    head = heading(found)
    rows = [[name, old, new, more] for name, old, new, more in figures(found)]
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f"<title>{_text(head)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{_text(head)}</h1>",
        f'<p class="where">{_text(found.old.name)} &rarr; {_text(found.new.name)}</p>',
        _table(["", "old", "new", ""], rows, numbers={1, 2, 3}),
        f"<p>{_text(alike(found))}</p>",
        *(_difference(d, is_open=n == 0) for n, d in enumerate(found.differences)),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _text(text: str) -> str:
    return escape(printable(text), quote=True).encode("utf-8", "backslashreplace").decode("utf-8")


def _table(head: list[str], rows: Iterable[list[str]], numbers: set[int]) -> str:
    def line(cells: list[str], tag: str) -> str:
        marks = (
            "".join((f"<{tag}", ' class="n"' if n in numbers else "", f">{_text(c)}</{tag}>"))
            for n, c in enumerate(cells)
        )
        return f"<tr>{''.join(marks)}</tr>"

    body = "\n".join(line(row, "td") for row in rows)
    return f"<table>\n{line(head, 'th')}\n{body}\n</table>"


def _difference(difference: Difference, *, is_open: bool) -> str:
    worse = "worse" if difference.us > 5e-4 else "better" if difference.us < -5e-4 else ""
    where = f' <span class="where">{_text(difference.source)}</span>' if difference.source else ""
    changes = [[verb(c), sentence(c), c.source] for c in difference.changes]
    parts = [
        f'<details{" open" if is_open else ""}><summary class="{worse}">{_text(title(difference))}{where}</summary>',
        _table(["", "operation", "line"], changes, numbers=set()) if changes else "",
        *map(_group, difference.groups),
        "</details>",
    ]
    return "\n".join(part for part in parts if part)


def _group(group: Group) -> str:
    more = signed(microseconds(group.us), group.us), signed(size(group.bytes), group.bytes)
    rows = [
        [side, microseconds(k.us), count(k.rounds), size(k.bytes), f"{k.name} ({k.label})", k.source]
        for side, kernels in (("old", group.old), ("new", group.new))
        for k in sorted(kernels, key=lambda k: -k.total_us)
    ]
    seams = [
        f"<p><code>{_text(s.producer)} &rarr; {_text(s.consumer)}</code>: {_words(seam_words(s))}</p>"
        for s in group.seams
    ]
    table = _table(["", "time", "rounds", "bytes", "kernel", "line"], rows, numbers={1, 2, 3})
    return "\n".join([f"<p>{_text(group_title(group))}: {_text(', '.join(more))}</p>", table, *seams])


def _words(words: Iterable[str | Word]) -> str:
    return "".join(_text(w.text if isinstance(w, Word) else w) for w in words)
