"""The page: one file that loads nothing. The data goes in as JSON that cannot end its element; the program, in plain
JavaScript, puts it into the document as text only."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib import resources

PROGRAM = (
    "format.js",
    "dom.js",
    "layout.js",
    "canvas.js",
    "panel.js",
    "kernels.js",
    "edges.js",
    "source.js",
    "passes.js",
    "diff.js",
    "roofline.js",
    "main.js",
)
"""The parts of the program, in order. Together they are one function, so that they share their names with each other
and with nothing else."""

_ESCAPED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src '{script}'; style-src '{style}';
  base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>hlo-opt view</title>
<style>{css}</style>
</head>
<body>
<noscript>This page needs JavaScript to draw the graph. It loads nothing from the network.</noscript>
<script type="application/json" id="data">{data}</script>
<script>{program}</script>
</body>
</html>
"""


def as_html(data: Mapping[str, object]) -> str:
    """The page that shows some data. The same data gives the same bytes."""
    css, program = style_text(), program_text()
    values = {"script": _hash(program), "style": _hash(css), "css": css, "data": json_text(data), "program": program}
    parts = _PAGE.split("{")
    return parts[0] + "".join(values[name] + rest for name, _, rest in (part.partition("}") for part in parts[1:]))


def json_text(value: Mapping[str, object]) -> str:
    """A value as JSON that may stand in a script element: nothing in it ends the element, or a line of JavaScript. A
    number that is not finite becomes null. Lone surrogates become escapes, as all that is not ASCII."""
    text = json.dumps(value, separators=(",", ":"))
    if "NaN" in text or "Infinity" in text:
        text = json.dumps(json.loads(text, parse_constant=lambda _: None), separators=(",", ":"), allow_nan=False)
    for character, escaped in _ESCAPED.items():
        text = text.replace(character, escaped)
    return text


@cache
def style_text() -> str:
    """The style sheet."""
    return _asset("style.css")


@cache
def program_text() -> str:
    """The program: its parts in one function."""
    return '(() => {\n"use strict";\n' + "\n".join(map(_asset, PROGRAM)) + "\n})();\n"


def _asset(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """How a content security policy names a text."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
