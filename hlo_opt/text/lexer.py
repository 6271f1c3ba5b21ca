"""HLO for Pygments: `pygmentize -l hlo dump.hlo`, and the colours of `hlo-opt` on a terminal.

Registered through the entry point group `pygments.lexers`. It also colours text that the grammar does not accept.
"""

from __future__ import annotations

import re
from typing import ClassVar

from pygments.lexer import RegexLexer, bygroups
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text, Whitespace

from hlo_opt.ir import ELEMENT_TYPES

_NAME = r"[A-Za-z_][A-Za-z0-9_.\-]*"
_TYPES = "|".join(sorted(ELEMENT_TYPES, key=len, reverse=True))
_CALLED = "to_apply|calls|condition|body|select|scatter|true_computation|false_computation"


class HloLexer(RegexLexer):  # type: ignore[misc] # Pygments has no types
    """XLA's HLO text."""

    name = "HLO"
    aliases: ClassVar[list[str]] = ["hlo"]
    filenames: ClassVar[list[str]] = ["*.hlo"]
    mimetypes: ClassVar[list[str]] = ["text/x-hlo"]
    url = "https://openxla.org/xla/hlo"
    flags = re.MULTILINE
    tokens: ClassVar[dict[str, list[object]]] = {
        "root": [
            (r"\s+", Whitespace),
            (r"//[^\n\r]*", Comment.Single),
            (r"/\*[^*]*(?:\*(?!/)[^*]*)*(?:\*/)?", Comment.Multiline),
            (r'"[^"\\]*(?:\\.[^"\\]*)*"', String.Double),
            (r"'[^'\\\n]*'", String.Single),
            (rf"(HloModule)(\s+)(%?{_NAME})", bygroups(Keyword.Namespace, Whitespace, Name.Namespace)),
            (rf"(ENTRY)(\s+)(%?{_NAME})", bygroups(Keyword, Whitespace, Name.Function)),
            (r"(?:FileNames|FunctionNames|FileLocations|StackFrames)\b", Keyword.Namespace),
            (r"ROOT\b", Keyword),
            (rf"({_CALLED})(=)(%?{_NAME})", bygroups(Name.Attribute, Operator, Name.Function)),
            (rf"{_NAME}(?==)", Name.Attribute),
            (rf"(?:{_TYPES})(?=\s*\[)", Keyword.Type),
            (rf"^%?{_NAME}(?=\s*[({{])", Name.Function),
            (rf"%{_NAME}", Name.Variable),
            (rf"{_NAME}(?=\s*\()", Name.Builtin),
            (r"(?:true|false|nan|inf)\b", Keyword.Constant),
            (r"[0-9bf?]{2,}_[0-9io?]{2,}->[0-9bf?]{2,}", Name.Constant),
            (rf"{_NAME}", Name),
            (r"-?\d+\.\d*(?:[eE][+-]?\d+)?|-?\d+[eE][+-]?\d+", Number.Float),
            (r"-?\d+(?:[x_]-?\d+)*", Number.Integer),
            (r"->|<=|=", Operator),
            (r"[\[\](){},:*#+~?.\-]", Punctuation),
            (r".", Text),
        ]
    }

    def analyse_text(text: str) -> float:  # noqa: N805 - Pygments makes it static
        """The likelihood that a text is HLO: 0.9 or 0."""
        return 0.9 if re.match(r"\s*(?://[^\n]*\n\s*)*HloModule\s", text) else 0.0
