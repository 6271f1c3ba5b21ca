"""A text that is one instruction without a module: `f32[2] negate(f32[2] x)`.

XLA reads it as a module with one computation. Operands written with a type become parameters.
Source: xla/hlo/parser/hlo_parser.cc, ParseSingleInstruction, ParseOperands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hlo_opt.ir import Attribute, Computation, Instruction, Module, Shape, edit
from hlo_opt.text.attributes import decoder
from hlo_opt.text.reader import NameScope, Reader

START = re.compile(r"(?:ROOT\s+)?%?[A-Za-z_][A-Za-z0-9_.-]*+\s*=\s|[a-z][a-z0-9]*\s*\[|b?\s*\(")


class SingleReader(Reader):
    """Reads one instruction without a module into a module with one computation (see the file's docstring)."""

    def module(self) -> Module:
        """Read the instruction into a module. Raises ParseError."""
        self.result.name = "_"
        self.result.attributes["is_scheduled"] = Attribute("true", decoder("is_scheduled"))
        position, end = self.skip(0), len(self.text)
        computation = self.computations["_"] = Computation("_", offset=position)
        self.scope = NameScope(computation)
        self.created = 0
        if self.patterns.instruction.match(self.text, position) is not None:
            position = self.instructions(self.scope, position, end, once=True)
        elif (match := self.patterns.unnamed.match(self.text, position)) is not None:
            unnamed = self.nested(self.scope, match, "_")
            position, unnamed.end = self.attributes(match.end(), end, unnamed.attributes, self.scope, unnamed)
        if not computation.instructions:
            self.unexpected("single", position)
        if position < end:
            if self.text[position] == ",":
                self.unexpected("attribute", position)
            rest = self.text[position:].split(None, 1)[0][:40]
            self.fail(
                f"expected the end of the text after one instruction, found {rest!r}",
                position,
                position + len(rest),
                "write `HloModule name` and `ENTRY name {` before the first instruction, and '}' after the last",
            )
        computation._root = self.scope.root or next(reversed(computation._instructions))
        self.add_computation(computation)
        self.result._entry = computation
        return self.result

    def missing_operand(self, scope: NameScope, name: str, match: re.Match[str]) -> Instruction:
        """A new parameter, where the operand has a type."""
        if match[1] is None or scope is not self.scope:
            return super().missing_operand(scope, name, match)
        return self._parameter(self.shape(match[1], match.start(1)), match.start(), name)

    def nameless_operand(self, scope: NameScope, shape: Shape, position: int) -> Iterable[Instruction]:
        """A new parameter for a type without a name."""
        return (self._parameter(shape, position, f"_{self.created}"),) if scope is self.scope else ()

    def before_nested(self, scope: NameScope, match: re.Match[str]) -> None:
        """XLA first reads the opcode as a named operand, and keeps the parameter that it makes for it."""
        if scope is self.scope and match[1] is not None and match[2] not in scope.names:
            self._parameter(self.shape(match[1], match.start(1)), match.start(), match[2])

    def _parameter(self, shape: Shape, offset: int, name: str) -> Instruction:
        parameter = Instruction(name, "parameter", shape, parameter_number=self.created, offset=offset)
        self.created += 1
        self.scope.names[name] = parameter
        return edit.append(self.scope.computation, parameter)
