"""A pipeline's text as a tree, without an LALR parser, which takes longer to build than a small module to fuse. The
syntax is grammars/passes.lark; a text that does not fit goes to that parser, which says what it expected."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"[ \t\r\n]*(?:(?P<NAME>[A-Za-z_][A-Za-z0-9_\-]*)|(?P<NUMBER>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<STRING>\"[^\"]*\")|(?P<SIGN>[,(){}|=])|(?P<END>\Z))"
)
_GROUPS = ("best", "fixpoint")


class Token(str):
    """A token: its text, its kind and its place."""

    type: str
    start_pos: int
    end_pos: int


@dataclass(frozen=True)
class Branch:
    """A rule of the grammar, and its parts."""

    data: str
    children: list[Branch | Token]


class _UnreadError(Exception):
    """The text does not fit."""


def read(text: str) -> Branch | None:
    """The tree of a pipeline's text; None where it does not fit."""
    try:
        return _Reader(text).start()
    except _UnreadError:
        return None


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.next = self._word(0)

    def _word(self, position: int) -> Token:
        match = _TOKEN.match(self.text, position)
        if match is None or match.lastgroup is None:
            raise _UnreadError
        word = Token(match[match.lastgroup])
        word.type, (word.start_pos, word.end_pos) = match.lastgroup, match.span(match.lastgroup)
        return word

    def take(self, *kinds: str) -> Token:
        """The next token, which must be of one of these kinds, or one of these signs."""
        word = self.next
        if (word if word.type == "SIGN" else word.type) not in kinds:
            raise _UnreadError
        if word.type != "END":
            self.next = self._word(word.end_pos)
        return word

    def several(self, read: str, separator: str) -> list[Branch | Token]:
        parts = [getattr(self, read)()]
        while self.next == separator:
            self.take(separator)
            parts.append(getattr(self, read)())
        return parts

    def start(self) -> Branch:
        parts = self.several("part", ",") if self.next.type != "END" else []
        self.take("END")
        return Branch("start", parts)

    def part(self) -> Branch:
        if self.next != "best":
            return self.step()
        self.take("NAME")
        self.take("(")
        branches = self.several("branch", "|")
        self.take(")")
        if len(branches) < 2:
            raise _UnreadError
        return Branch("best", branches)

    def branch(self) -> Branch:
        return Branch("branch", self.several("step", ","))

    def step(self) -> Branch:
        name = self.take("NAME")
        if name not in _GROUPS:
            return self._pass(name)
        if name == "best":
            raise _UnreadError
        self.take("(")
        steps = self.several("step", ",")
        self.take(")")
        return Branch("fixpoint", steps)

    def _pass(self, name: Token) -> Branch:
        options: list[Branch | Token] = []
        if self.next == "{":
            self.take("{")
            options = self.several("option", ",") if self.next != "}" else []
            self.take("}")
        return Branch("pass", [name, *options])

    def option(self) -> Branch:
        name = self.take("NAME")
        if name in _GROUPS:
            raise _UnreadError
        self.take("=")
        return Branch("option", [name, Branch("value", [self.take("NUMBER", "STRING", "NAME")])])
