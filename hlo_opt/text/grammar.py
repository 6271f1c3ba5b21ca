"""Loads grammars/hlo.lark, the one definition of the syntax, and derives the reader's parsers from it.

It gives Lark's LALR parsers (for pieces, and for good error messages), the regular expression of any terminal, and that
of two kinds of rules. A *flat* rule has terminals only, such as `instruction_head: ROOT? NAME "=" SHAPE? OPCODE
OPERANDS`. A *regular* rule does not refer to itself, such as `window`. Neither needs a parser stack, so one match of an
expression replaces the LALR parser and is twenty times faster. Tests compare both.
"""

from __future__ import annotations

import functools
import re
import sys
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hlo_opt.diag import ParseError, Source, Span
from hlo_opt.diag.kept import KeptTexts
from hlo_opt.text.expressions import compiled, fitting

if TYPE_CHECKING:
    from lark import Lark, Tree
    from lark.lexer import TerminalDef, Token

USUAL_DEPTH = 16
"""The nesting depth of brackets in one instruction that the fast expressions read. XLA's own dumps stay under 8."""
MAXIMUM_DEPTH = 64
"""The largest nesting depth accepted. A text that needs it is read again, with larger expressions."""

EXPLAINED = 200_000
"""The length of a malformed piece, in characters, up to which the LALR parser locates the fault (300,000 a second)."""

_GROUP_REPETITION = re.compile(r"\)([*+])(?![+?])")
_NAMES = {
    "ARRAY": "a shape",
    "ATTRIBUTE": "an attribute",
    "BALANCED": "brackets",
    "COMMA": "','",
    "COLON": "':'",
    "ENTRY": "ENTRY",
    "EQUAL": "'='",
    "HLO_MODULE": "HloModule",
    "INTEGER": "an integer",
    "LBRACE": "'{'",
    "LPAR": "'('",
    "NAME": "a name",
    "NUMBER": "a number",
    "OPCODE": "an opcode",
    "OPERANDS": "operands in parentheses",
    "RBRACE": "'}'",
    "ROOT": "ROOT",
    "RPAR": "')'",
    "SHAPE": "a shape",
    "SIGNATURE": "a signature such as '(x: f32[2]) -> f32[2]'",
    "STRING": "a string",
    "TABLES": "stack-frame tables",
    "VALUE": "a value",
}
_OPENERS = {"(": ")", "[": "]", "{": "}"}


def grammar_text(name: str = "hlo.lark") -> str:
    """The text of a grammar file: from the installed package, or from `grammars/` in a source checkout."""
    packaged = resources.files("hlo_opt") / "grammars" / name
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8")
    return (Path(__file__).resolve().parents[2] / "grammars" / name).read_text(encoding="utf-8")


def _source() -> str:
    """The file whose code derives expressions: this one."""
    return Path(__file__).read_text(encoding="utf-8")


class _Loaded:
    """The grammar as Lark reads it, for one nesting depth: terminals as regular expressions, rules, white space."""

    def __init__(self, depth: int) -> None:
        from lark.load_grammar import load_grammar

        self.grammar, _ = load_grammar(grammar_text(), "hlo.lark", [], False)  # type: ignore[no-untyped-call]
        terminals, self.rules, ignored = self.grammar.compile([name for name, *_ in self.grammar.rule_defs], "*")
        bodies = {t.name: t.pattern.to_regexp() for t in terminals}
        self.recursive = {b: _widen(name, b, depth) for name, b in bodies.items() if f"(?#{name})" in b}
        self.terminals: dict[str, str] = {t.name: self.finish(t).pattern.to_regexp() for t in terminals}
        self.space = f"(?:{'|'.join(self.terminals[name] for name in ignored)})*+"

    def finish(self, terminal: TerminalDef) -> TerminalDef:
        """Add what Lark's notation cannot express: possessive repetition of groups, and nesting to a bounded depth."""
        from lark.lexer import PatternRE

        if isinstance(terminal.pattern, PatternRE):
            text = _GROUP_REPETITION.sub(r")\1+", terminal.pattern.value)
            for body, widened in self.recursive.items():
                text = text.replace(body, widened)
            terminal.pattern.value = fitting(text)
        return terminal


class Grammar:
    """The loaded grammar for one nesting depth. Get it from `grammar()`."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self._parsers: dict[str, Lark] = {}
        self._kept = KeptTexts("grammar", f"{depth} {sys.version} {version('lark')} {_source()} {grammar_text()}")

    @functools.cached_property
    def _loaded(self) -> _Loaded:
        """The grammar as Lark reads it, which takes longer than reading a small module."""
        return _Loaded(self.depth)

    def lark(self, start: str) -> Lark:
        """The LALR parser of one start rule, built on first use; building all of them takes ten times as long."""
        from lark import Lark

        if start not in self._parsers:
            self._parsers[start] = Lark(
                self._loaded.grammar,
                parser="lalr",
                lexer="contextual",
                start=start,
                propagate_positions=False,
                edit_terminals=self._loaded.finish,
            )
        return self._parsers[start]

    def terminal(self, name: str) -> re.Pattern[str]:
        """The regular expression of a terminal."""
        return compiled(self._kept.text(name, lambda: self._loaded.terminals[name]))

    def space(self) -> re.Pattern[str]:
        """The regular expression of white space and comments, possibly none."""
        return compiled(self._kept.text("space", lambda: self._loaded.space))

    def flat(self, rule: str, *, space: bool = True) -> re.Pattern[str]:
        """The regular expression of a flat rule: one group per named terminal, white space and comments between and
        after them.

        Raises ValueError when the rule is not a sequence of distinct terminals, some of them optional.
        """
        return compiled(self._kept.text(f"flat {rule} {space}", lambda: self._flat(rule, space=space)))

    def _flat(self, rule: str, *, space: bool) -> str:
        expansions = [
            tuple(symbol.name for symbol in r.expansion)
            for r in self._loaded.rules
            if r.origin.name == rule and all(symbol.is_term for symbol in r.expansion)
        ]
        if not expansions or len(expansions) != sum(r.origin.name == rule for r in self._loaded.rules):
            raise ValueError(f"rule {rule} is not made of terminals only")
        longest = max(expansions, key=len)
        optional = {name for name in longest if any(name not in e for e in expansions)}
        variants = {tuple(n for n in longest if n not in optional or n in e) for e in expansions}
        if len(set(longest)) != len(longest) or variants != set(expansions) or len(variants) != 2 ** len(optional):
            raise ValueError(f"rule {rule} is not one sequence with optional terminals")
        gap = self._loaded.space if space else ""
        parts = []
        for name in longest:
            text = self._loaded.terminals[name]
            part = f"(?:{text})" if name in _PUNCTUATION else f"(?P<{name}>{text})"
            parts.append(f"(?:{part}{gap})?" if name in optional else f"{part}{gap}")
        return "".join(parts)

    def regular(self, rule: str) -> re.Pattern[str]:
        """The regular expression of a regular rule, with white space between and after its tokens.

        It matches a subset of the rule: no comments, and choices and repetitions do not backtrack. Text that it does
        not match goes to the LALR parser. Raises ValueError for a recursive rule.
        """
        return compiled(self._kept.text(f"regular {rule}", lambda: self._whole(rule)))

    def _whole(self, rule: str) -> str:
        trees = {name: tree for name, _, tree, _ in self._loaded.grammar.rule_defs}
        text = self._regular(trees, rule, ())
        for gap in (self._loaded.space, self._loaded.terminals["_S"]):
            text = text.replace(gap, r"[ \t\r\n]*+")
        return text

    def _regular(self, trees: dict[str, Any], rule: str, outer: tuple[str, ...]) -> str:
        if rule in outer:
            raise ValueError(f"rule {rule} is recursive")

        def convert(node: Any) -> str:
            kind = getattr(node, "data", None)
            if kind == "expansions":
                return f"(?>{'|'.join(map(convert, node.children))})"
            if kind == "expansion":
                return "".join(map(convert, node.children))
            if kind == "expr":
                return f"(?:{convert(node.children[0])}){node.children[1]}+"
            if kind in ("alias", "value"):
                return convert(node.children[0])
            if kind == "literal":
                return re.escape(str(node.children[0])[1:-1]) + self._loaded.space
            if node.name in trees:
                return self._regular(trees, node.name, (*outer, rule))
            return f"(?:{self._loaded.terminals[node.name]}){self._loaded.space}"

        return convert(trees[rule])

    def parse(self, start: str, text: str, source: Source | None = None, offset: int = 0) -> Tree[Token]:
        """Parse with LALR. Raises ParseError, with a position when `source` and the text's `offset` in it are given."""
        from lark.exceptions import UnexpectedInput

        try:
            return self.lark(start).parse(text)
        except UnexpectedInput as error:
            raise self._explain(error, self.lark(start), text, source, offset) from None

    def _explain(self, error: Exception, lark: Lark, text: str, source: Source | None, offset: int) -> ParseError:
        from lark.exceptions import UnexpectedCharacters, UnexpectedToken

        width = 1
        if isinstance(error, UnexpectedCharacters):
            position, expected = error.pos_in_stream or 0, set(error.allowed or ())
        elif isinstance(error, UnexpectedToken) and error.token.type != "$END":
            position, expected = error.token.start_pos or 0, set(error.accepts or error.expected)
            width = max(1, len(str(error.token).split("\n")[0]))
        else:
            position = len(text.rstrip())
            expected = set(getattr(error, "accepts", None) or getattr(error, "expected", None) or ())
        fault = bracket_fault(text, position, self.depth) or _deep_result(text, position, expected, self.depth)
        fault = fault or _unfinished(text, position, expected, self.depth)
        if fault is None and source is not None and not text.strip():
            fault = _runs_on(source.text, offset)
        if fault is not None:
            message, position, width = *fault, 1
        else:
            wanted = _wanted(lark, expected)
            at_end = position >= len(text.rstrip())
            shown = "the end of the text" if at_end else repr(text[position : position + width][:40])
            message = f"expected {_any_of(wanted)}, found {shown}" if wanted else f"unexpected {shown}"
        span = None if source is None else Span(source, offset + position, offset + position + width)
        code = TOO_DEEP if fault is not None and message.startswith(_DEEP) else None
        hint = _CUT if source is not None and _is_cut(source.text) else None
        return ParseError(message, code=code, span=span, hint=hint)


_CUT = "the text ends inside a computation: is the file cut off?"


def _is_cut(text: str) -> bool:
    """Whether a text has a computation, and but for comments does not end with the brace that closes one."""
    lines = (line.partition("//")[0].rstrip() for line in reversed(text.splitlines()))
    return not next(filter(None, lines), "").endswith("}") and _OPENS.search(text) is not None


def _wanted(lark: Lark, expected: set[str]) -> list[str]:
    """The expected tokens in words: named terminals, and words that the grammar spells out (`devices=`)."""
    spelled = {t.name: t.pattern.value for t in lark.terminals if type(t.pattern).__name__ == "PatternStr"}
    words = {_NAMES[name] for name in expected if name in _NAMES}
    return sorted(words | {repr(spelled[n]) for n in expected if n not in _NAMES and spelled.get(n, "")[-1:] == "="})


def _any_of(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


_DEEP = "brackets nest deeper than"
TOO_DEEP = "HLO101"
"""The code of the ParseError for brackets that nest too deeply."""


def bracket_fault(text: str, position: int, depth: int = MAXIMUM_DEPTH) -> tuple[str, int] | None:
    """The fault of the bracket or string that opens at `position`, and where it is; None when there is none."""
    if text[position : position + 1] == "'":
        closes = grammar().terminal("STRING").match(text, position) is not None
        return None if closes else ("this string is never closed", position)
    if text[position : position + 1] not in ("(", "[", "{", '"'):
        return None
    still_open: list[int] = []
    is_deep = False
    for token in _TOKENS.finditer(text, position):
        char = token[0]
        if char in _OPENERS:
            still_open.append(token.start())
            is_deep = is_deep or len(still_open) > depth
        elif char == '"':
            return "this string is never closed", token.start()
        elif len(char) == 1:
            if _OPENERS[text[still_open[-1]]] != char and not is_deep:
                return f"{text[still_open[-1]]!r} is closed by {char!r}", token.start()
            still_open.pop()
        if not still_open:
            return (f"{_DEEP} {depth} levels", position) if is_deep else None
    return f"this {text[position]!r} is never closed", position


def _runs_on(text: str, end: int) -> tuple[str, int] | None:
    """The fault of an attribute's `{` that goes on over the next instruction, and its position from `end`, where a `}`
    was missed: this one took it. None where there is none."""
    still_open: list[int] = []
    begun = -1  # the last instruction
    for token in _LINES.finditer(text):
        if token[0][-1] == "=":
            begun = token.start()
        elif token[0] == "{":
            still_open.append(token.start())
        elif token[0] == "}" and still_open:
            opened = still_open.pop()
            if opened < begun and _VALUE.search(text, max(0, opened - 8), opened):
                return f"this {text[opened]!r} is never closed", opened - end
    return None


def _deep_result(text: str, position: int, expected: set[str], depth: int) -> tuple[str, int] | None:
    """The fault of a signature's result type that nests too deeply."""
    arrow = text.find("->", position) if "SIGNATURE" in expected else -1
    if arrow < 0:
        return None
    fault = bracket_fault(text, arrow + 2 + len(text[arrow + 2 :]) - len(text[arrow + 2 :].lstrip()), depth)
    return fault if fault is not None and fault[0].startswith(_DEEP) else None


def _unfinished(text: str, position: int, expected: set[str], depth: int) -> tuple[str, int] | None:
    """A more precise fault for an opcode without operands, an attribute without a value, or a malformed layout."""
    word = _IDENTIFIER.match(text, position)
    if word is None:
        is_layout = "OPCODE" in expected and text[position : position + 1] == "{"
        return ("expected a layout such as {1,0} or an opcode, found '{'", position) if is_layout else None
    if not expected.isdisjoint({"OPCODE", "SHAPE", "ARRAY"}) and text[word.end() : word.end() + 1] == "[":
        return bracket_fault(text, word.end(), depth) or _strange_size(text, word.end() + 1)
    if "OPCODE" in expected:
        return f"expected operands in parentheses after the opcode {word[0][:40]}", word.end()
    if "ATTRIBUTE" in expected:
        name = word[0]
        if text[word.end() : word.end() + 1] != "=":
            return f"expected '=' right after {name[:40]}", word.end()
        value = word.end() + 1 + len(text[word.end() + 1 :]) - len(text[word.end() + 1 :].lstrip())
        return bracket_fault(text, value, depth) or (f"expected a value for {name[:40]}", value)
    return None


def _strange_size(text: str, position: int) -> tuple[str, int] | None:
    """The first malformed dimension size in a list that ends with a bracket, and its position."""
    for size in text[position : text.find("]", position)].split(","):
        if _SIZE.fullmatch(size) is None:
            shown = repr(size.strip()[:40]) if size.strip() else "nothing"
            sizes = "of 0 to 2^63 - 1" if size.strip().isdecimal() else "of 0 or more"
            return f"expected a dimension size {sizes}, found {shown}", position + len(size) - len(size.lstrip())
        position += len(size) + 1
    return None


_SIZE = re.compile(r"\s*(?:(?:<=)?[0-9]{1,19}|\?)\s*|\s*(?://|/\*)[\s\S]*")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_TOKENS = re.compile(r"[()\[\]{}]|\"[^\"\\]*+(?:\\[\s\S][^\"\\]*+)*+\"|//[^\n\r]*+|/\*[\s\S]*?\*/|\"")
_LINES = re.compile(rf"\n[ \t]*+(?:ROOT\s++)?+%?+[A-Za-z_][\w.-]*+\s*+=|{_TOKENS.pattern}")
"""Brackets, strings and comments, and where a line begins with an instruction."""
_OPENS = re.compile(r"\{[ \t\r]*\n")
"""The end of a computation's first line."""
_VALUE = re.compile(r"=\s*\Z")
_PUNCTUATION = frozenset({"COLON", "COMMA", "EQUAL", "LBRACE", "LPAR", "RBRACE", "RPAR"})


def _widen(name: str, body: str, depth: int) -> str:
    """The expression of a terminal that contains itself, expanded to a depth."""
    nested = "(?!)"
    for _ in range(depth):
        nested = body.replace(f"(?#{name})", nested)
    return nested


@functools.cache
def grammar(depth: int = USUAL_DEPTH) -> Grammar:
    """The grammar, loaded on first use."""
    return Grammar(depth)


@functools.cache
def terminal(name: str) -> re.Pattern[str]:
    """The expression of a terminal of the grammar for the usual depth, cached."""
    return grammar().terminal(name)
