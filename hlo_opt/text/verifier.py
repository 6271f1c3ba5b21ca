"""Is the module well formed? Names, order, parameters, attributes and shapes against the op table.

Source: xla/service/hlo_verifier.cc and the checks that xla/hlo/parser/hlo_parser.cc makes while it builds instructions.
"""

from __future__ import annotations

import re
from typing import NoReturn

from hlo_opt.diag import ParseError, Span, VerifyError, nearest
from hlo_opt.ir import Attribute, Called, Computation, Instruction, Module, Shape
from hlo_opt.ops import OpSpec, ShapeError, find, table
from hlo_opt.ops.spec import SHARED_ATTRIBUTES
from hlo_opt.text.shapes import compatible

HEADER_ATTRIBUTES = frozenset(
    {
        "alias_passthrough_params",
        "allow_spmd_sharding_propagation_to_output",
        "allow_spmd_sharding_propagation_to_parameters",
        "buffer_donor",
        "entry_computation_layout",
        "frontend_attributes",
        "input_output_alias",
        "is_scheduled",
        "num_partitions",
        "origin_recovery_table",
        "replica_count",
    }
)
"""What may follow the module's name (xla/hlo/parser/hlo_parser.cc, ParseHloModule)."""

_SUGAR = re.compile(r"(.+)-(start|update|done)")
_WITH_OWN_START = frozenset({"all-gather", "all-reduce", "collective-permute", "copy", "recv", "send"})
"""Opcodes that have asynchronous opcodes of their own (`all-gather-start`), so that other spellings mean nothing."""
_SUGAR_ATTRIBUTES = frozenset({"async_execution_thread", "calls", "output_to_operand_aliasing"})


def verify(module: Module, allow_unknown: bool = False) -> None:
    """Check a module. Raises VerifyError, with the line of the instruction at fault, for the first thing that is wrong.

    With `allow_unknown`, opcodes and attributes that the op table does not have are taken as they are.
    """
    _Verifier(module, allow_unknown).run()


def base_opcode(opcode: str) -> str | None:
    """The operation that an async spelling such as `add-start` runs; None for an opcode that is none."""
    found = _SUGAR.fullmatch(opcode)
    if found is None or found[1] in _WITH_OWN_START or find(found[1]) is None:
        return None
    return found[1]


class _Verifier:
    def __init__(self, module: Module, allow_unknown: bool) -> None:
        self.module = module
        self.allow_unknown = allow_unknown
        self.decoded: set[int] = set()

    def fail(
        self, place: Instruction | Computation | None, message: str, hint: str | None = None, at: str = ""
    ) -> NoReturn:
        """Raise a VerifyError at an instruction or a computation; `at` is an attribute's name, to point at it."""
        span: Span | None = None
        source = self.module.source
        if isinstance(place, Instruction):
            span = self.module.span(place)
            if span is not None and at:
                found = re.compile(rf",\s*{re.escape(at)}=").search(span.source.text, span.start, span.end)
                if found is not None:
                    start = found.end() - len(at) - 1
                    span = Span(span.source, start, start + len(at))
        elif isinstance(place, Computation) and source is not None and place.offset >= 0:
            span = Span(source, place.offset, place.offset + len(place.name))
        raise VerifyError(message, span=span, hint=hint, filename=None if source is None else source.filename)

    def run(self) -> None:
        module = self.module
        if not self.allow_unknown:
            for name in module.attributes:
                if name not in HEADER_ATTRIBUTES:
                    close = nearest(name, HEADER_ATTRIBUTES)
                    self.fail(None, f"HloModule has no attribute {name}", f"did you mean {close}?" if close else None)
        if module._entry is None or module._entry not in module.computations:
            self.fail(None, f"module {module.name} has no entry computation")
        names: set[str] = set()
        known: set[Computation] = set()
        for computation in module.computations:
            if computation.name in names:
                self.fail(computation, f"computation {computation.name} is defined twice")
            names.add(computation.name)
            self.computation(computation, known)
            known.add(computation)

    def computation(self, computation: Computation, known: set[Computation]) -> None:
        if not computation.instructions:
            self.fail(computation, f"computation {computation.name} has no instructions")
        if computation._root is None or computation._root not in computation.instructions:
            self.fail(computation, f"computation {computation.name} has no root")
        names: set[str] = set()
        done: set[Instruction] = set()
        numbers: dict[int, Instruction] = {}
        for instruction in computation.instructions:
            if instruction.name in names:
                self.fail(instruction, f"instruction {instruction.name} is defined twice")
            names.add(instruction.name)
            for other in (*instruction.operands, *instruction.control_predecessors):
                if other not in done:
                    self.fail(instruction, f"{other.name} is used before it is defined in {computation.name}")
            for callee in instruction.called():
                if callee not in known:
                    where = "after its use" if callee in self.module.computations else "in another module"
                    self.fail(
                        instruction, f"computation {callee.name}, which {instruction.name} calls, is defined {where}"
                    )
            if instruction.parameter_number is not None:
                if instruction.parameter_number in numbers:
                    self.fail(instruction, f"parameter number {instruction.parameter_number} is given twice")
                numbers[instruction.parameter_number] = instruction
            self.instruction(instruction)
            done.add(instruction)
        for number in range(len(numbers)):
            if number not in numbers:
                highest = max(numbers)
                self.fail(numbers[highest], f"{computation.name} has a parameter {highest} but no parameter {number}")

    # ---- one instruction

    def instruction(self, instruction: Instruction) -> None:
        spec = find(instruction.opcode)
        base = None if spec is not None else base_opcode(instruction.opcode)
        if spec is None and base is None:
            if self.allow_unknown:
                return
            close = nearest(instruction.opcode, [s.opcode for s in table()])
            self.fail(instruction, f"unknown opcode {instruction.opcode}", f"did you mean {close}?" if close else None)
        if spec is not None:
            count = len(instruction.operands)
            if not spec.arity.accepts(count):
                self.fail(instruction, f"{instruction.opcode} takes {spec.arity} operands, but has {count}")
        self.attributes(instruction, spec, base)
        self.literal(instruction)
        self.callees(instruction)
        if spec is not None and spec.infer is not None:
            self.shape(instruction, spec)

    def attributes(self, instruction: Instruction, spec: OpSpec | None, base: str | None) -> None:
        wanted = spec or find(base or "")
        for name, value in instruction.attributes.items():
            known = (
                name in SHARED_ATTRIBUTES
                or (wanted is not None and name in wanted.attributes)
                or (base is not None and name in _SUGAR_ATTRIBUTES)
            )
            if not known and not self.allow_unknown:
                allowed = sorted({*(wanted.attributes if wanted is not None else ()), *SHARED_ATTRIBUTES})
                close = nearest(name, allowed)
                hint = f"did you mean {close}?" if close else f"it takes {', '.join(allowed)}"
                self.fail(instruction, f"{instruction.opcode} has no attribute {name}", hint, name)
            if isinstance(value, Attribute) and id(value) not in self.decoded:
                try:
                    value.value  # noqa: B018 - decoding is the check
                except ParseError as error:
                    self.fail(instruction, f"{name}: {error.message}", error.hint, name)
                self.decoded.add(id(value))
        if spec is not None:
            for name, is_required in spec.attributes.items():
                if is_required and name not in instruction.attributes:
                    self.fail(instruction, f"{instruction.opcode} needs the attribute {name}")

    def literal(self, instruction: Instruction) -> None:
        if instruction.opcode == "parameter" and instruction.parameter_number is None:
            self.fail(instruction, f"parameter {instruction.name} has no number")
        literal = instruction.literal
        if instruction.opcode != "constant":
            return
        if literal is None:
            self.fail(instruction, f"constant {instruction.name} has no value")
        todo = [literal]
        while todo:
            value = todo.pop()
            if value.is_elided or any(leaf.is_array and not leaf.type.numpy_name for leaf in value.shape.leaves()):
                continue
            try:
                decoded = value.value
            except ParseError as error:
                self.fail(instruction, f"{instruction.name}: {error.message}", error.hint)
            if isinstance(decoded, tuple):
                todo.extend(decoded)

    def shape(self, instruction: Instruction, spec: OpSpec) -> None:
        assert spec.infer is not None
        try:
            inferred = spec.infer(instruction)
        except ShapeError as error:
            self.fail(instruction, f"{instruction.opcode} {instruction.name}: {error}")
        except (KeyError, TypeError, ValueError, IndexError) as error:
            self.fail(instruction, f"{instruction.opcode} {instruction.name} is malformed: {error}")
        if not compatible(instruction.shape, inferred):
            self.fail(
                instruction,
                f"{instruction.name} is declared {instruction.shape.without_layout()}, but {instruction.opcode} gives {inferred.without_layout()}",
            )

    # ---- what it calls

    def callees(self, instruction: Instruction) -> None:
        operands = [o.shape for o in instruction.operands]
        opcode, shape = instruction.opcode, instruction.shape
        match opcode:
            case "call" | "fusion":
                for callee in instruction.called():
                    self.callee(instruction, callee, operands, shape)
            case "map":
                for callee in instruction.called():
                    if len(callee.parameters) != len(operands):
                        self.callee_count(instruction, callee, len(operands))
            case "while":
                for name, result in (("condition", None), ("body", shape)):
                    value = instruction.attributes.get(name)
                    if isinstance(value, Called):
                        self.callee(instruction, value.computations[0], operands, result)
            case "conditional":
                branches = list(instruction.called())
                if len(branches) + 1 != len(operands):
                    self.fail(
                        instruction,
                        f"conditional has {len(branches)} branches and {len(operands) - 1} operands for them",
                    )
                for callee, operand in zip(branches, operands[1:], strict=True):
                    self.callee(instruction, callee, [operand], shape)
            case _:
                pass

    def callee_count(self, instruction: Instruction, callee: Computation, count: int) -> NoReturn:
        self.fail(
            instruction,
            f"{callee.name} has {len(callee.parameters)} parameters, but {instruction.opcode} {instruction.name} gives it {count} operands",
        )

    def callee(
        self, instruction: Instruction, callee: Computation, arguments: list[Shape], result: Shape | None
    ) -> None:
        """Parameters against arguments, and the root against the result where one is given."""
        parameters = callee.parameters
        if len(parameters) != len(arguments):
            self.callee_count(instruction, callee, len(arguments))
        for parameter, argument in zip(parameters, arguments, strict=True):
            if not compatible(parameter.shape, argument):
                self.fail(
                    instruction,
                    f"parameter {parameter.parameter_number} of {callee.name} is {parameter.shape.without_layout()}, "
                    f"but {instruction.opcode} {instruction.name} gives it {argument.without_layout()}",
                )
        if result is not None and not compatible(result, callee.root.shape):
            self.fail(
                instruction,
                f"{instruction.name} is declared {result.without_layout()}, but {callee.name} gives {callee.root.shape.without_layout()}",
            )
