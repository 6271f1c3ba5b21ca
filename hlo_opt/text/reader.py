"""Text to module.

One pass over the text. Each step matches one flat rule of the grammar (a header, a computation's head, an instruction's head, an attribute) at the current
place; where none fits, the LALR parser says what was expected there. Pieces that repeat (shapes, attributes) are read once per spelling;
literals and attribute values are not decoded at all until somebody asks.

Where more than one error is asked for, reading goes on at the next computation after a fault, and what follows from a fault (a call of a computation that
was not read, a shape inferred from it) is passed over.
Source: xla/hlo/parser/hlo_parser.cc, ParseHloModule and down; grammars/hlo.lark.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NoReturn

from hlo_opt.diag import ParseError, Source, Span, nearest
from hlo_opt.ir import ELEMENT_TYPES, Attribute, Called, Computation, Instruction, Literal, Module, Shape, edit
from hlo_opt.ops import table
from hlo_opt.ops.shapes import compatible, inferred_shape
from hlo_opt.text.attributes import decoder
from hlo_opt.text.expressions import compiled
from hlo_opt.text.grammar import EXPLAINED, TOO_DEEP, USUAL_DEPTH, bracket_fault, grammar
from hlo_opt.text.literals import lazy_literal
from hlo_opt.text.shapes import ShapeTable, read_shape

_NO_SHAPE = Shape(None, elements=())


class _Patterns:
    """The expressions that reading uses, all derived from the grammar."""

    def __init__(self, depth: int) -> None:
        known = grammar(depth)
        self.space = known.space()
        self.header = known.flat("header_head")
        self.tables = known.terminal("TABLES")
        self.head = known.flat("computation_head")
        self.instruction = known.flat("instruction_head")
        self.attribute = known.flat("attribute")
        self.named_operand = known.flat("named_operand")
        self.nested = known.flat("nested_instruction")
        self.unnamed = known.flat("unnamed")
        self.shape = known.terminal("SHAPE")
        self.comment = known.terminal("COMMENT")
        self.name = known.terminal("NAME")
        self.names = compiled(rf"\{{\s*+(?:{self.name.pattern})(?:\s*+,\s*+(?:{self.name.pattern}))*+\s*+\}}")
        self.called = known.terminal("CALLED")
        self.called_list = known.terminal("CALLED_LIST")


@functools.cache
def _patterns(depth: int) -> _Patterns:
    return _Patterns(depth)


@dataclass(slots=True)
class Scope:
    """The names of a computation that is being read."""

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
        self.given = {spec.opcode: spec.given for spec in table() if spec.given is not None}
        """By opcode, the shapes that XLA takes from the operands, whatever the text says (HloInstruction::CreateSend, CreateRecvDone, ...)."""

    # ---- places and faults

    def fail(self, message: str, start: int, end: int | None = None, hint: str | None = None) -> NoReturn:
        raise ParseError(message, span=Span(self.source, start, start + 1 if end is None else end), hint=hint)

    def unexpected(self, rule: str, position: int, end: int | None = None) -> NoReturn:
        """Have the LALR parser say what it expected at a place where the rule does not fit."""
        rest = self.text[position:end]
        grammar(self.depth).parse(rule, rest, self.source, position)
        self.fail(f"unexpected {rest[:20].strip()!r}" if rest.strip() else "unexpected end of the text", position)

    def skip(self, position: int) -> int:
        found = self.patterns.space.match(self.text, position)
        return position if found is None else found.end()

    # ---- the module

    def module(self) -> Module:
        """Read the text. Raises ParseError."""
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

    def header(self, found: re.Match[str]) -> int:
        """Read what follows the module's name. Returns where the text goes on."""
        self.result.name = found["NAME"].removeprefix("%")
        position = self.attributes(found.end(), len(self.text), self.result.attributes, None)[0]
        tables = self.patterns.tables.match(self.text, position)
        if tables is not None:
            self.result.tables = tables[0].rstrip()
            position = self.skip(tables.end())
        return position

    def signature_first(self, position: int) -> bool:
        """Whether a text without a header starts with a computation that has a signature but no ENTRY: XLA takes that for an instruction."""
        head = self.patterns.head.match(self.text, position)
        return head is not None and head["ENTRY"] is None and head["SIGNATURE"] is not None

    def computation(self, position: int, entry: Computation | None, has_header: bool) -> tuple[Computation, bool, int]:
        """Read a computation: what was read, whether it is the entry, and where the text goes on."""
        head = self.patterns.head.match(self.text, position)
        if head is None:
            self.fail_computation(position, has_header)
        made = self.new_computation(head["NAME"], head.start("NAME"))
        is_entry = head["ENTRY"] is not None
        if is_entry and entry is not None:
            self.fail(f"a module has one ENTRY; {entry.name} is one already", head.start(), head.end("NAME"))
        position = self.body(made, head.end(), len(self.text))
        self.add_computation(made)
        if head["SIGNATURE"] is not None:
            self.check_signature(made, head)
        return made, is_entry, self.attributes(position, len(self.text), made.attributes, None)[0]

    # ---- going on after a fault

    def recover(self, error: ParseError, start: int) -> int:
        """Keep an error and find the next computation after it. Raises ParseError when there are as many errors as were asked for."""
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
            found = self.patterns.head.match(self.text, line.end())
            if found is not None:
                return found.start()
        return len(self.text)

    def all_errors(self) -> ParseError:
        """The first of the errors, with the others in it."""
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
        """Make a computation known, once it is read: those in its braces have come before it by then."""
        edit.add_computation(self.result, computation)
        self.computations[computation.name] = computation

    def body(self, computation: Computation, position: int, end: int) -> int:
        """Read the instructions and the closing brace of a computation. Returns where the text goes on."""
        scope = Scope(computation)
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
        found = self.patterns.space.match(signature, arrow)
        arrow = arrow if found is None else found.end()
        declared = self.shape(signature[arrow:], start + arrow)
        root = computation.root
        if root.shape is not _NO_SHAPE and not compatible(declared, root.shape):
            self.fail(
                f"computation {computation.name} is declared to give {declared}, its root {root.name} is {root.shape}",
                start + arrow,
                head.end("SIGNATURE"),
            )

    # ---- instructions

    def instructions(self, scope: Scope, position: int, end: int, once: bool = False) -> int:
        """Read instructions, or only one, as long as they come. Returns where the text goes on."""
        text, names, computation = self.text, scope.names, scope.computation
        match = self.patterns.instruction.match
        shapes, held = self.shapes, computation._instructions
        while (found := match(text, position, end)) is not None:
            root, written, shape_text, opcode, inner = found.groups()
            start = found.start()
            name = written[1:] if written[0] == "%" else written
            if name in names or name in ELEMENT_TYPES:
                self.fail_name(name, found.start(2), found.end(2), name in names)
            literal: Literal | None = None
            number: int | None = None
            operands: list[Instruction] = []
            if shape_text is None:
                shape = _NO_SHAPE
            else:
                try:
                    shape = shapes[shape_text]
                except ParseError:
                    self.shape(shape_text, found.start(3))
                    raise
            if inner[-1] != ")":
                self.fail(f"expected ')' or ',', found {inner[-1]!r}", found.end(5) - 1)
            if opcode == "constant":
                literal = lazy_literal(shape, inner[1:-1].strip(), name)
            elif opcode == "parameter":
                number = self.parameter_number(inner, found.start(5))
            elif inner != "()":
                try:
                    operands = [names[piece] for piece in inner[1:-1].split(", ")]
                except KeyError:
                    operands = self.operands(scope, found.start(5), found.end(5))
            attributes: dict[str, Attribute | Called] = {}
            position = found.end()
            finish = found.end(5)
            made = Instruction(
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
                position, finish = self.attributes(position, end, attributes, scope, made)
            made.end = finish
            if shape_text is None or opcode in self.given:
                made.shape = self.implied_shape(made, shape_text, found.start(4), found.end(4))
            names[written] = names[name] = made
            made.parent = computation
            held[made] = None
            if root is not None:
                if scope.root is not None:
                    self.fail(f"computation {computation.name} has two ROOTs", start, found.end(2))
                scope.root = made
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
        """A shape whose text is at a position, for reading and for placing the fault in it."""
        known = self.shapes.get(text)
        return read_shape(text, self.source, position) if known is None else known

    def implied_shape(self, instruction: Instruction, written: str | None, start: int, end: int) -> Shape:
        """The shape that the operands give, where the text leaves it out or does not count; else the one that is written. The opcode stands between the places."""
        given = self.given.get(instruction.opcode)
        if written is not None:
            return instruction.shape if given is None else given(instruction)
        try:
            return inferred_shape(instruction)
        except ValueError as error:
            if any(o.shape is _NO_SHAPE for o in instruction.operands) or any(
                c._root is None for c in instruction.called()
            ):
                return _NO_SHAPE  # follows from a fault that is known
            self.fail(str(error), start, end)

    # ---- operands

    def operands(self, scope: Scope, start: int, end: int) -> list[Instruction]:
        """The operands between the parentheses at `start` and `end`, read one by one: types, comments, nested instructions."""
        text, patterns, names = self.text, self.patterns, scope.names
        result: list[Instruction] = []
        position, last = self.skip(start + 1), end - 1
        while position < last:
            begin = position
            found = patterns.named_operand.match(text, position, last)
            if found is not None and (found.end() == last or text[found.end()] == ","):
                shape_text, written = found.groups()
                name = written[1:] if written[0] == "%" else written
                operand = names.get(name)
                if operand is None:
                    operand = self.missing_operand(scope, name, found)
                if shape_text is not None:
                    declared = self.shape(shape_text, found.start(1))
                    known = operand.shape
                    if declared is not known and known is not _NO_SHAPE and not compatible(declared, known):
                        self.fail(f"{name} is {operand.shape}, not {declared}", found.start(1), found.end(2))
                result.append(operand)
                position = found.end()
            elif (found := patterns.nested.match(text, position, last)) is not None:
                self.before_nested(scope, found)
                result.append(self.nested(scope, found))
                position = found.end()
            elif (found := patterns.shape.match(text, position, last)) is not None:
                result.extend(self.nameless_operand(scope, self.shape(found[0], position), position))
                position = self.skip(found.end())
            if position < last:
                if text[position] != ",":
                    self.fail_operands(begin, end)
                position = self.skip(position + 1)
        return result

    def fail_operands(self, start: int, end: int) -> NoReturn:
        """Have the LALR parser say what it expected in a list of operands, the first of which starts here and is malformed."""
        try:
            grammar(self.depth).parse("operands", f"({self.text[start:end]}", self.source, start - 1)
        except ParseError as error:
            if error.hint is None and self.text[start].isdigit():
                error.hint = "only parameter and constant take a number: is the opcode misspelt?"
            raise
        self.fail("expected ')' or ','", start, end)

    def missing_operand(self, scope: Scope, name: str, found: re.Match[str]) -> Instruction:
        """The operand for a name that is not defined; `found` is it with the type that is given for it. Raises ParseError."""
        self.fail_operand(scope, name, found.start(2), found.end(2))

    def nameless_operand(self, scope: Scope, shape: Shape, position: int) -> Iterable[Instruction]:
        """The operand for a type without a name; XLA passes over those."""
        return ()

    def before_nested(self, scope: Scope, found: re.Match[str]) -> None:
        """Called before an instruction in the place of an operand is read."""

    def fail_operand(self, scope: Scope, name: str, start: int, end: int) -> NoReturn:
        close = nearest(name, [n for n in scope.names if n[0] != "%"])
        self.fail(
            f"{name} is not defined before this place in computation {scope.computation.name}",
            start,
            end,
            f"did you mean {close}?" if close else None,
        )

    def nested(self, scope: Scope, found: re.Match[str], wish: str = "") -> Instruction:
        """An instruction written in the place of an operand; as in XLA it is named after its opcode unless a name is given."""
        shape_text, opcode, inner = found.groups()
        if inner[-1] != ")":
            self.fail(f"expected ')' or ',', found {inner[-1]!r}", found.end(3) - 1)
        shape = _NO_SHAPE if shape_text is None else self.shape(shape_text, found.start(1))
        literal = lazy_literal(shape, inner[1:-1].strip()) if opcode == "constant" else None
        number = self.parameter_number(inner, found.start(3)) if opcode == "parameter" else None
        operands = []
        if literal is None and number is None:
            operands = self.operands(scope, found.start(3), found.end(3))
        wish = name = wish or f"{opcode}.anon"
        while name in scope.names:
            self.anonymous[wish] = self.anonymous.get(wish, 0) + 1
            name = f"{wish}.{self.anonymous[wish]}"
        if literal is not None:
            literal.origin = name
        made = Instruction(
            name,
            opcode,
            shape,
            operands,
            literal=literal,
            parameter_number=number,
            offset=found.start(),
            end=found.end(3),
        )
        made.shape = self.implied_shape(made, shape_text, found.start(2), found.end(2))
        scope.names[name] = made
        return edit.append(scope.computation, made)

    # ---- attributes

    def attributes(
        self,
        position: int,
        end: int,
        into: dict[str, Attribute | Called],
        scope: Scope | None,
        owner: Instruction | None = None,
    ) -> tuple[int, int]:
        """Read `, name=value` as often as it comes. Returns where the text goes on and where the last value ends."""
        text, match, pieces = self.text, self.patterns.attribute.match, self.pieces
        finish = position
        while (found := match(text, position, end)) is not None:
            entry = pieces.get(found[1])
            if entry is None:
                entry = self.attribute(found, scope, owner)
            position, finish = found.end(), found.end(1)
            if entry is not None:
                name = entry[0]
                if name == "device_ids" and isinstance(groups := into.get("replica_groups"), Attribute):
                    # the order of a mesh's devices, no attribute of its own: mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)) {'x'}
                    into["replica_groups"] = Attribute(f"{groups.text}, {found[1]}", decoder("replica_groups"))
                    continue
                if name in into:
                    self.fail(f"attribute {name} is given twice", found.start(1), found.start(1) + len(name))
                into[name] = entry[1]
        return position, finish

    def attribute(
        self, found: re.Match[str], scope: Scope | None, owner: Instruction | None
    ) -> tuple[str, Attribute | Called] | None:
        """An attribute of a spelling that was not met before; None for control predecessors, which are no attribute."""
        piece = found[1]
        name, _, value = piece.partition("=")
        begin = self.skip(found.start(1) + len(name) + 1)
        value = self.text[begin : found.end(1)]
        if scope is not None and owner is not None:
            if name == "control-predecessors":
                if owner.control_predecessors:
                    self.fail(f"attribute {name} is given twice", found.start(1), found.start(1) + len(name))
                owner.control_predecessors = self.predecessors(scope, value, begin)
                return None
            if self.patterns.called.fullmatch(name + "="):
                called = Called(self.called(value, begin, found.end(1)))
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

    def predecessors(self, scope: Scope, value: str, position: int) -> list[Instruction]:
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
        """The computation that is named, or written out in braces, between two places."""
        if value[0] == "{":
            made = Computation("_", offset=start)
            if self.body(made, self.skip(start + 1), end) < end:
                self.unexpected("inline_computation", start, end)
            while made.name in self.computations:
                self.inline_count += 1
                made.name = f"_.{self.inline_count}"
            self.add_computation(made)
            return made
        if self.patterns.name.fullmatch(value) is None:
            self.fail(f"expected the name of a computation, found {value[:40]!r}", start, end)
        name = value.removeprefix("%")
        found = self.computations.get(name)
        if found is None and self.errors:
            return Computation(name)  # perhaps the one that could not be read
        if found is None:
            close = nearest(name, self.computations)
            hint = f"did you mean {close}?" if close else None
            self.fail(f"computation {name} is not defined before this place", start, end, hint)
        return found

    def called_list(self, value: str, position: int) -> Called:
        if value[0] != "{":
            return Called(self.called(value, position, position + len(value)), is_list=True)
        result = [self.called(name, at, at + len(name)) for name, at in self.listed_names(value, position)]
        return Called(*result, is_list=True)

    def listed_names(self, value: str, position: int) -> list[tuple[str, int]]:
        """The names, or computations in braces, of a list such as `{%f, %g}`, each with its place."""
        if self.patterns.names.fullmatch(value) is not None:
            return [(found[0], position + found.start()) for found in self.patterns.name.finditer(value)]
        if len(value) > EXPLAINED and "{" not in value[1:]:
            self.fail("expected names in braces, with commas between them", position, position + len(value))
        found = []
        for name in grammar(self.depth).parse("names", value, self.source, position).children:
            token = name.children[0]  # type: ignore[union-attr]
            found.append((str(token), position + (token.start_pos or 0)))  # type: ignore[union-attr]
        return found


_OPENING = re.compile(r"[(\[{]")
_LINE = re.compile(r"^[ \t]*+(?=[%A-Za-z_])", re.MULTILINE)

_RAW = frozenset({"backend_config", "frontend_attributes"})
"""Attributes whose braces XLA counts without looking at anything else in them."""


def _nesting_fault(value: str) -> tuple[str, int] | None:
    """A bracket in an attribute's value that is closed by one of another kind, and where."""
    found = None if value[0] in "\"'" else _OPENING.search(value)
    return None if found is None else bracket_fault(value, found.start())


def _foreign(text: str) -> str | None:
    """What a text that is not HLO at all may be instead, for a hint."""
    head = text[:2000]
    if "\0" in head or "\ufffd" in head:
        return "this is a binary file; hlo-opt reads HLO text"
    if "stablehlo" in head or "func.func" in head or head.lstrip().startswith(("module @", "#loc", "#map")):
        return "this looks like StableHLO; for HLO text call jax.jit(f).lower(...).as_text('hlo')"
    if _BESIDE.match(head):
        return "XLA writes this beside a module; the module is in NAME.before_optimizations.txt and NAME.*after_optimizations.txt"
    return None


_BESIDE = re.compile(
    r"\s*(?:BufferAssignment:|HloLiveRange|Memory Space:|Total bytes used|; ModuleID|source_filename|xla_\w+:|//\n// Generated by LLVM)"
)
"""How the other files begin that XLA writes with --xla_dump_to: buffers, live ranges, memory, LLVM, options, PTX."""


def _second(text: str, position: int) -> str | None:
    """The hint for a text that goes on with another module."""
    if re.match(r"HloModule\b", text[position : position + 10]) is None:
        return None
    return "one text is one module; divide several by lines of `// -----` and say --split-input-file"
