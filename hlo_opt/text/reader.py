"""Text to module, in one pass.

Each step matches one flat rule of the grammar (module header, computation head, instruction head, attribute) at the
current position. Where none fits, the LALR parser says what was expected. Repeated pieces (shapes, attributes) are read
once per spelling; literals and attribute values are decoded on first use.
With `max_errors` above 1, reading resumes at the next computation after a fault. Consequences of a fault (a call of an
unread computation, a shape inferred from it) are not reported.
Source: xla/hlo/parser/hlo_parser.cc, ParseHloModule and down; grammars/hlo.lark.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, NoReturn

from hlo_opt.diag import ParseError, Source, Span, did_you_mean, nearest
from hlo_opt.ir import ELEMENT_TYPES, Attribute, Called, Computation, Instruction, Literal, Module, Shape, edit
from hlo_opt.ops import find, table
from hlo_opt.ops.shapes import compatible, inferred_shape
from hlo_opt.text.attributes import decoder
from hlo_opt.text.expressions import compiled
from hlo_opt.text.grammar import EXPLAINED, TOO_DEEP, USUAL_DEPTH, bracket_fault, grammar
from hlo_opt.text.literals import lazy_literal
from hlo_opt.text.shapes import ShapeTable, read_shape

_NO_SHAPE = Shape(None, elements=())


class _Patterns:
    """The regular expressions of the reader, derived from the grammar; each compiled when it is first used."""

    _FLAT: ClassVar[dict[str, str]] = {
        "header": "header_head",
        "head": "computation_head",
        "instruction": "instruction_head",
        "attribute": "attribute",
        "named_operand": "named_operand",
        "nested": "nested_instruction",
        "unnamed": "unnamed",
    }

    def __init__(self, depth: int) -> None:
        self._grammar = grammar(depth)

    def __getattr__(self, name: str) -> re.Pattern[str]:
        if name == "space":
            pattern = self._grammar.space()
        elif name in self._FLAT:
            pattern = self._grammar.flat(self._FLAT[name])
        elif name == "names":
            one = self.name.pattern
            pattern = compiled(rf"\{{\s*+(?:{one})(?:\s*+,\s*+(?:{one}))*+\s*+\}}")
        else:
            pattern = self._grammar.terminal(name.upper())
        setattr(self, name, pattern)
        return pattern


@functools.cache
def _patterns(depth: int) -> _Patterns:
    return _Patterns(depth)


@dataclass(slots=True)
class NameScope:
    """A computation being read, and the names defined in it so far."""

    computation: Computation
    names: dict[str, Instruction] = field(default_factory=dict)
    root: Instruction | None = None


class Reader:
    """Reads one module from a source."""

    def __init__(self, source: Source, max_errors: int = 1, depth: int = USUAL_DEPTH) -> None:
        self.source = source
        self.text = source.text
        self.depth = depth
        self.patterns = _patterns(depth)
        self.max_errors = max_errors
        self.errors: list[ParseError] = []
        self.shapes = ShapeTable()
        self.pieces: dict[str, tuple[str, Attribute | Called]] = {}
        self.computations: dict[str, Computation] = {}
        self.anonymous: dict[str, int] = {}
        self.inline_count = 0
        self.result = Module("", source=source)
        self.implied = {spec.opcode: spec.implied for spec in table() if spec.implied is not None}
        """By opcode, how XLA derives the shape from the operands, whatever the text says (HloInstruction::CreateSend,
        ...)."""

    # ---- positions and faults

    def fail(self, message: str, start: int, end: int | None = None, hint: str | None = None) -> NoReturn:
        raise ParseError(message, span=Span(self.source, start, start + 1 if end is None else end), hint=hint)

    def unexpected(self, rule: str, position: int, end: int | None = None) -> NoReturn:
        """Raise the LALR parser's error about what it expected at a position where `rule` does not match."""
        rest = self.text[position:end]
        grammar(self.depth).parse(rule, rest, self.source, position)
        self.fail(f"unexpected {rest[:20].strip()!r}" if rest.strip() else "unexpected end of the text", position)

    def skip(self, position: int) -> int:
        gap = self.patterns.space.match(self.text, position)
        return position if gap is None else gap.end()

    # ---- the module

    def module(self) -> Module:
        """Read the module. Raises ParseError."""
        position = self.skip(0)
        header = self.patterns.header.match(self.text, position)
        try:
            if header is not None:
                position = self.header(header)
            elif self.signature_first(position):
                message = "a text without HloModule starts with ENTRY or with a name and '{'"
                self.fail(
                    message, position, hint="write `HloModule name` before the computation, or leave the signature out"
                )
        except ParseError as error:
            position = self.recover(error, position)
        entry: Computation | None = None
        last: Computation | None = None
        while position < len(self.text):
            start = position
            try:
                last, is_entry, position = self.computation(position, entry, header is not None)
                entry = last if is_entry else entry
            except ParseError as error:
                position = self.recover(error, start)
        if self.errors:
            raise self.all_errors()
        if last is None:
            self.unexpected("computation_head" if header is not None else "start", position)
        self.result._entry = entry or last
        if header is None:
            self.result.name = f"module_{self.result.entry.name}"
        return self.result

    def header(self, match: re.Match[str]) -> int:
        """Read the rest of the header after the module's name. Returns the position after it."""
        self.result.name = match["NAME"].removeprefix("%")
        position = self.attributes(match.end(), len(self.text), self.result.attributes, None)[0]
        tables = self.patterns.tables.match(self.text, position)
        if tables is not None:
            self.result.tables = tables[0].rstrip()
            position = self.skip(tables.end())
        return position

    def signature_first(self, position: int) -> bool:
        """Whether a text without a header starts with a computation with signature but no ENTRY: XLA reads an
        instruction there."""
        head = self.patterns.head.match(self.text, position)
        return head is not None and head["ENTRY"] is None and head["SIGNATURE"] is not None

    def computation(self, position: int, entry: Computation | None, has_header: bool) -> tuple[Computation, bool, int]:
        """Read a computation. Returns it, whether it is the entry, and the position after it."""
        head = self.patterns.head.match(self.text, position)
        if head is None:
            self.fail_computation(position, has_header)
        computation = self.new_computation(head["NAME"], head.start("NAME"))
        is_entry = head["ENTRY"] is not None
        if is_entry and entry is not None:
            self.fail(f"a module has one ENTRY, and {entry.name} is one", head.start(), head.end("NAME"))
        position = self.body(computation, head.end(), len(self.text))
        self.add_computation(computation)
        if head["SIGNATURE"] is not None:
            self.check_signature(computation, head)
        return computation, is_entry, self.attributes(position, len(self.text), computation.attributes, None)[0]

    # ---- resuming after a fault

    def recover(self, error: ParseError, start: int) -> int:
        """Record an error and return the position of the next computation. Raises ParseError at the `max_errors`-th
        error."""
        self.errors.append(error)
        if len(self.errors) >= self.max_errors or error.code == TOO_DEEP:
            raise self.all_errors()
        head = self.patterns.head.match(self.text, start)
        after = start
        if head is not None:
            after = head.end()
            name = head["NAME"].removeprefix("%")
            self.computations.setdefault(name, Computation(name))
        for line in _LINE.finditer(self.text, max(after, start + 1, error.span.start if error.span else 0)):
            following = self.patterns.head.match(self.text, line.end())
            if following is not None:
                return following.start()
        return len(self.text)

    def all_errors(self) -> ParseError:
        """The first error, with the others in it."""
        first, *others = self.errors
        first.others = tuple(others)
        return first

    def fail_computation(self, position: int, has_header: bool) -> NoReturn:
        if self.text[position] == ",":
            self.unexpected("attribute", position)
        try:
            self.unexpected("computation_head" if has_header or self.computations else "start", position)
        except ParseError as error:
            error.hint = error.hint or (_second(self.text, position) if has_header else _foreign(self.text))
            raise

    def new_computation(self, written: str, position: int) -> Computation:
        name = written.removeprefix("%")
        if name in self.computations:
            self.fail(f"computation {name} is defined twice", position, position + len(written))
        return Computation(name, offset=position)

    def add_computation(self, computation: Computation) -> None:
        """Register a computation once it is read. Computations written inside it in braces are registered before it."""
        edit.add_computation(self.result, computation)
        self.computations[computation.name] = computation

    def body(self, computation: Computation, position: int, end: int) -> int:
        """Read the instructions and the closing brace of a computation. Returns the position after them."""
        scope = NameScope(computation)
        position = self.instructions(scope, position, end)
        if position >= end or self.text[position] != "}":
            rule = "attribute" if position < end and self.text[position] == "," else "inline_instructions"
            self.unexpected(rule, position, end)
        if not computation.instructions:
            self.fail(f"computation {computation.name} has no instructions", position)
        computation._root = scope.root or next(reversed(computation._instructions))
        return self.skip(position + 1)

    def check_signature(self, computation: Computation, head: re.Match[str]) -> None:
        signature, start = head["SIGNATURE"], head.start("SIGNATURE")
        arrow = signature.rindex("->") + 2
        gap = self.patterns.space.match(signature, arrow)
        arrow = arrow if gap is None else gap.end()
        declared = self.shape(signature[arrow:], start + arrow)
        root = computation.root
        if root.shape is not _NO_SHAPE and not compatible(declared, root.shape):
            self.fail(
                f"computation {computation.name} is declared to return {declared}, but its root {root.name} "
                f"is {root.shape}",
                start + arrow,
                head.end("SIGNATURE"),
            )

    # ---- instructions

    def instructions(self, scope: NameScope, position: int, end: int, once: bool = False) -> int:
        """Read instructions, or one where `once`. Returns the position after them."""
        text, names, computation = self.text, scope.names, scope.computation
        match = self.patterns.instruction.match
        shapes, existing = self.shapes, computation._instructions
        while (item := match(text, position, end)) is not None:
            root, written, shape_text, opcode, inner = item.groups()
            start = item.start()
            name = written[1:] if written[0] == "%" else written
            if name in names or name in ELEMENT_TYPES:
                self.fail_name(name, item.start(2), item.end(2), name in names)
            literal: Literal | None = None
            number: int | None = None
            operands: list[Instruction] = []
            if shape_text is None:
                shape = _NO_SHAPE
            else:
                try:
                    shape = shapes[shape_text]
                except ParseError:
                    self.shape(shape_text, item.start(3))
                    raise
            if inner[-1] != ")":
                self.fail(f"expected ')' or ',', found {inner[-1]!r}", item.end(5) - 1)
            if opcode == "constant":
                literal = lazy_literal(shape, inner[1:-1].strip(), name)
            elif opcode == "parameter":
                number = self.parameter_number(inner, item.start(5))
            elif inner != "()":
                try:
                    operands = [names[piece] for piece in inner[1:-1].split(", ")]
                except KeyError:
                    operands = self.operands(scope, item.start(5), item.end(5))
            attributes: dict[str, Attribute | Called] = {}
            position = item.end()
            finish = item.end(5)
            instruction = Instruction(
                name,
                opcode,
                shape,
                operands,
                attributes,
                literal=literal,
                parameter_number=number,
                offset=start,
            )
            if position < end and text[position] == ",":
                position, finish = self.attributes(position, end, attributes, scope, instruction)
            instruction.end = finish
            if shape_text is None or opcode in self.implied:
                instruction.shape = self.implied_shape(instruction, shape_text, item.start(4), item.end(4))
            names[written] = names[name] = instruction
            instruction.parent = computation
            existing[instruction] = None
            if root is not None:
                if scope.root is not None:
                    self.fail(f"computation {computation.name} has two ROOTs", start, item.end(2))
                scope.root = instruction
            if once:
                break
        return position

    def fail_name(self, name: str, start: int, end: int, is_taken: bool) -> NoReturn:
        if is_taken:
            self.fail(f"instruction {name} is defined twice", start, end)
        self.fail(f"{name} is an element type and cannot name an instruction", start, end, f"call it {name}_")

    def parameter_number(self, inner: str, position: int) -> int:
        digits = inner[1:-1]
        if not digits.isdecimal() or len(digits) > 18:
            tree = grammar().parse("parameter_number", inner, self.source, position)
            digits = str(tree.children[0])
            if digits[0] == "-":
                self.fail("a parameter's number is 0 or more", position + 1, position + len(inner) - 1)
        return int(digits)

    def shape(self, text: str, position: int) -> Shape:
        """The shape spelled by `text`, which is at `position`; a ParseError gets its position from there."""
        known = self.shapes.get(text)
        return read_shape(text, self.source, position) if known is None else known

    def implied_shape(self, instruction: Instruction, written: str | None, start: int, end: int) -> Shape:
        """The shape that the operands imply, where the text omits it or XLA ignores it; otherwise the written one.

        `start` and `end` are the position of the opcode.
        """
        derive = self.implied.get(instruction.opcode)
        if written is not None:
            return instruction.shape if derive is None else derive(instruction)
        try:
            return inferred_shape(instruction)
        except ValueError as error:
            if any(o.shape is _NO_SHAPE for o in instruction.operands) or any(
                c._root is None for c in instruction.called()
            ):
                return _NO_SHAPE  # a consequence of a fault that is reported already
            self.fail(str(error), start, end)

    # ---- operands

    def operands(self, scope: NameScope, start: int, end: int) -> list[Instruction]:
        """The operands in the parentheses at `start` and `end`, one by one: types, comments, nested instructions."""
        text, patterns, names = self.text, self.patterns, scope.names
        result: list[Instruction] = []
        position, last = self.skip(start + 1), end - 1
        while position < last:
            begin = position
            item = patterns.named_operand.match(text, position, last)
            if item is not None and (item.end() == last or text[item.end()] == ","):
                shape_text, written = item.groups()
                name = written[1:] if written[0] == "%" else written
                operand = names.get(name)
                if operand is None:
                    operand = self.missing_operand(scope, name, item)
                if shape_text is not None:
                    declared = self.shape(shape_text, item.start(1))
                    known = operand.shape
                    if declared is not known and known is not _NO_SHAPE and not compatible(declared, known):
                        self.fail(f"{name} is {operand.shape}, not {declared}", item.start(1), item.end(2))
                result.append(operand)
                position = item.end()
            elif (item := patterns.nested.match(text, position, last)) is not None:
                self.before_nested(scope, item)
                result.append(self.nested(scope, item))
                position = item.end()
            elif (item := patterns.shape.match(text, position, last)) is not None:
                result.extend(self.nameless_operand(scope, self.shape(item[0], position), position))
                position = self.skip(item.end())
            if position < last:
                if text[position] != ",":
                    self.fail_operands(begin, end)
                position = self.skip(position + 1)
        return result

    def fail_operands(self, start: int, end: int) -> NoReturn:
        """Raise the LALR parser's error for a malformed list of operands that starts at `start`."""
        try:
            grammar(self.depth).parse("operands", f"({self.text[start:end]}", self.source, start - 1)
        except ParseError as error:
            if error.hint is None and self.text[start].isdigit():
                word = (self.text[max(0, start - 80) : start].rpartition("(")[0].split() or [""])[-1]
                hint = None if find(word) else did_you_mean(word, (spec.opcode for spec in table()))
                error.hint = hint or "only parameter and constant take a number"
            raise
        self.fail("expected ')' or ','", start, end)

    def missing_operand(self, scope: NameScope, name: str, match: re.Match[str]) -> Instruction:
        """The operand for an undefined name; `found` matches the name and its type. Raises ParseError (except in
        subclasses)."""
        self.fail_operand(scope, name, match.start(2), match.end(2))

    def nameless_operand(self, scope: NameScope, shape: Shape, position: int) -> Iterable[Instruction]:
        """The operands that a type without a name gives: none, as in XLA."""
        return ()

    def before_nested(self, scope: NameScope, match: re.Match[str]) -> None:
        """Hook: called before an instruction in operand position is read."""

    def fail_operand(self, scope: NameScope, name: str, start: int, end: int) -> NoReturn:
        close = nearest(name, [n for n in scope.names if n[0] != "%"])
        self.fail(
            f"{name} is not defined before its use in computation {scope.computation.name}",
            start,
            end,
            f"did you mean {close}?" if close else None,
        )

    def nested(self, scope: NameScope, match: re.Match[str], wish: str = "") -> Instruction:
        """Read an instruction in operand position. As in XLA, it is named after its opcode unless it has a name."""
        shape_text, opcode, inner = match.groups()
        if inner[-1] != ")":
            self.fail(f"expected ')' or ',', found {inner[-1]!r}", match.end(3) - 1)
        shape = _NO_SHAPE if shape_text is None else self.shape(shape_text, match.start(1))
        literal = lazy_literal(shape, inner[1:-1].strip()) if opcode == "constant" else None
        number = self.parameter_number(inner, match.start(3)) if opcode == "parameter" else None
        operands = []
        if literal is None and number is None:
            operands = self.operands(scope, match.start(3), match.end(3))
        wish = name = wish or f"{opcode}.anon"
        while name in scope.names:
            self.anonymous[wish] = self.anonymous.get(wish, 0) + 1
            name = f"{wish}.{self.anonymous[wish]}"
        if literal is not None:
            literal.origin = name
        instruction = Instruction(
            name,
            opcode,
            shape,
            operands,
            literal=literal,
            parameter_number=number,
            offset=match.start(),
            end=match.end(3),
        )
        instruction.shape = self.implied_shape(instruction, shape_text, match.start(2), match.end(2))
        scope.names[name] = instruction
        return edit.append(scope.computation, instruction)

    # ---- attributes

    def attributes(
        self,
        position: int,
        end: int,
        into: dict[str, Attribute | Called],
        scope: NameScope | None,
        owner: Instruction | None = None,
    ) -> tuple[int, int]:
        """Read all `, name=value` pairs. Returns the position after them and the end of the last value."""
        text, match, pieces = self.text, self.patterns.attribute.match, self.pieces
        finish = position
        while (item := match(text, position, end)) is not None:
            entry = pieces.get(item[1])
            if entry is None:
                entry = self.attribute(item, scope, owner)
            position, finish = item.end(), item.end(1)
            if entry is not None:
                name = entry[0]
                if name == "device_ids" and isinstance(groups := into.get("replica_groups"), Attribute):
                    # a mesh's device order, not an attribute of its own: mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0))
                    # {'x'}
                    into["replica_groups"] = Attribute(f"{groups.text}, {item[1]}", decoder("replica_groups"))
                    continue
                if name in into:
                    self.fail(f"attribute {name} is given twice", item.start(1), item.start(1) + len(name))
                into[name] = entry[1]
        return position, finish

    def attribute(
        self, match: re.Match[str], scope: NameScope | None, owner: Instruction | None
    ) -> tuple[str, Attribute | Called] | None:
        """Read an attribute whose spelling is new. None for control predecessors, which are not an attribute."""
        piece = match[1]
        name, _, value = piece.partition("=")
        begin = self.skip(match.start(1) + len(name) + 1)
        value = self.text[begin : match.end(1)]
        if scope is not None and owner is not None:
            if name == "control-predecessors":
                if owner.control_predecessors:
                    self.fail(f"attribute {name} is given twice", match.start(1), match.start(1) + len(name))
                owner.control_predecessors = self.predecessors(scope, value, begin)
                return None
            if self.patterns.called.fullmatch(name + "="):
                called = Called(self.called(value, begin, match.end(1)))
                if value[0] == "{":
                    return name, called
                self.pieces[piece] = (name, called)
                return name, called
            if self.patterns.called_list.fullmatch(name + "="):
                return name, self.called_list(value, begin)
        if name not in _RAW and (fault := _nesting_fault(value)) is not None:
            self.fail(fault[0], begin + fault[1])
        entry = (name, Attribute(value, decoder(name)))
        self.pieces[piece] = entry
        return entry

    def predecessors(self, scope: NameScope, value: str, position: int) -> list[Instruction]:
        result = []
        for written, at in self.listed_names(value, position):
            name = written.removeprefix("%")
            if name not in scope.names:
                self.fail_operand(scope, name, at, at + len(written))
            result.append(scope.names[name])
        if not result:
            self.fail("expected the name of an instruction", position, position + len(value))
        return result

    def called(self, value: str, start: int, end: int) -> Computation:
        """The computation that `value` names or spells in braces."""
        if value[0] == "{":
            computation = Computation("_", offset=start)
            if self.body(computation, self.skip(start + 1), end) < end:
                self.unexpected("inline_computation", start, end)
            while computation.name in self.computations:
                self.inline_count += 1
                computation.name = f"_.{self.inline_count}"
            self.add_computation(computation)
            return computation
        if self.patterns.name.fullmatch(value) is None:
            self.fail(f"expected the name of a computation, found {value[:40]!r}", start, end)
        name = value.removeprefix("%")
        callee = self.computations.get(name)
        if callee is None and self.errors:
            return Computation(name)  # possibly the one that could not be read
        if callee is None:
            close = nearest(name, self.computations)
            hint = f"did you mean {close}?" if close else None
            self.fail(f"computation {name} is not defined before its use", start, end, hint)
        return callee

    def called_list(self, value: str, position: int) -> Called:
        if value[0] != "{":
            return Called(self.called(value, position, position + len(value)), is_list=True)
        result = [self.called(name, at, at + len(name)) for name, at in self.listed_names(value, position)]
        return Called(*result, is_list=True)

    def listed_names(self, value: str, position: int) -> list[tuple[str, int]]:
        """The names (or computations in braces) of a list such as `{%f, %g}`, each with its position."""
        if self.patterns.names.fullmatch(value) is not None:
            return [(item[0], position + item.start()) for item in self.patterns.name.finditer(value)]
        if len(value) > EXPLAINED and "{" not in value[1:]:
            self.fail("expected names in braces, with commas between them", position, position + len(value))
        names = []
        for name in grammar(self.depth).parse("names", value, self.source, position).children:
            token = name.children[0]  # type: ignore[union-attr]
            names.append((str(token), position + (token.start_pos or 0)))  # type: ignore[union-attr]
        return names


_OPENING = re.compile(r"[(\[{]")
_LINE = re.compile(r"^[ \t]*+(?=[%A-Za-z_])", re.MULTILINE)

_RAW = frozenset({"backend_config", "frontend_attributes"})
"""Attributes whose values XLA scans for matching braces only."""


def _nesting_fault(value: str) -> tuple[str, int] | None:
    """The message and offset of a mismatched bracket in an attribute's value; None when brackets match."""
    opening = None if value[0] in "\"'" else _OPENING.search(value)
    return None if opening is None else bracket_fault(value, opening.start())


def _foreign(text: str) -> str | None:
    """A hint for a text that is not HLO at all: what it may be instead."""
    head = text[:2000]
    if "\0" in head or "\ufffd" in head:
        return "this is a binary file; hlo-opt reads HLO text"
    if "stablehlo" in head or "func.func" in head or head.lstrip().startswith(("module @", "#loc", "#map")):
        return "this looks like StableHLO; for HLO text call jax.jit(f).lower(...).as_text('hlo')"
    if _BESIDE.match(head):
        return (
            "XLA writes this file beside a module; the module is in NAME.before_optimizations.txt "
            "and "
            "NAME.*after_optimizations.txt"
        )
    return None


_BESIDE = re.compile(
    r"\s*(?:BufferAssignment:|HloLiveRange|Memory Space:|Total bytes used|; "
    r"ModuleID|source_filename|xla_\w+:|//\n// Generated by LLVM)"
)
"""How the other files of --xla_dump_to begin: buffer assignment, live ranges, memory, LLVM, options, PTX."""


def _second(text: str, position: int) -> str | None:
    """The hint for a text that continues with another module."""
    if re.match(r"HloModule\b", text[position : position + 10]) is None:
        return None
    return "a text is one module; separate several by lines of `// -----` and pass --split-input-file"
