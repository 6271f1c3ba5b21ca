"""The verifier: checks names, order, parameters, attributes and shapes of a module against the op table.

Source: xla/service/hlo_verifier.cc and the checks that xla/hlo/parser/hlo_parser.cc makes while it builds instructions.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NoReturn

from hlo_opt.diag import ParseError, Span, VerifyError, nearest
from hlo_opt.ir import Attribute, Called, Computation, Instruction, Module, Shape
from hlo_opt.ops import ShapeError, find, table
from hlo_opt.ops.sets import started
from hlo_opt.ops.shapes import compatible
from hlo_opt.ops.spec import SHARED_ATTRIBUTES
from hlo_opt.text.aliases import alias_fault
from hlo_opt.text.asynchronous import ChainError, attributes_of, base_opcode, check_link, link
from hlo_opt.text.attribute_forms import check_form
from hlo_opt.text.printer import HEADER_ORDER
from hlo_opt.text.requirements import group_fault, instruction_fault
from hlo_opt.text.shapes import read_entry_layout

_COMPUTATION_ATTRIBUTES = ("execution_thread",)

DEEPEST = 200
"""The deepest nesting of calls. What walks called computations takes a few Python frames for each level."""

_KEPT = "`--allow-unknown` keeps it (fuse, explain, print and other verbs that only read); nothing can run it"


class _EnoughError(Exception):
    """Raised to stop once `max_errors` faults are collected."""


class Verifier:
    """One verification of a module. `run` raises the VerifyError that `hlo_opt.text.verify` documents."""

    def __init__(self, module: Module, allow_unknown: bool, max_errors: int) -> None:
        self.module = module
        self.allow_unknown = allow_unknown
        self.max_errors = max_errors
        self.errors: list[VerifyError] = []
        self.devices = 1, 1
        self.formed: set[tuple[str, str, str]] = set()
        self.started: dict[Computation, Instruction] = {}
        self.laid_out: set[Shape] = set()
        self.depths: dict[Computation, int] = {}  # how many computations call each other below each, with itself

    def fail(
        self, place: Instruction | Computation | Module | None, message: str, hint: str | None = None, at: str = ""
    ) -> NoReturn:
        """Raise a VerifyError at an instruction, a computation or the header; at `at`, an attribute or the
        instruction's opcode, where it is given."""
        source = self.module.source
        span = self.attribute_span(place, at) if at else None
        if span is None and isinstance(place, Instruction) and at == place.opcode:
            span = self.opcode_span(place)
        if span is None and isinstance(place, Instruction):
            span = self.module.span(place)
        elif span is None and isinstance(place, Computation) and source is not None and place.offset >= 0:
            span = Span(source, place.offset, place.offset + len(place.name))
        raise VerifyError(message, span=span, hint=hint, filename=None if source is None else source.filename)

    def opcode_span(self, instruction: Instruction) -> Span | None:
        """The position of an instruction's opcode in the text."""
        source = self.module.source
        if source is None or instruction.offset < 0:
            return None
        match = re.compile(rf"\s({re.escape(instruction.opcode)})\(").search(
            source.text, instruction.offset, instruction.end
        )
        return None if match is None else Span(source, match.start(1), match.end(1))

    def attribute_span(self, place: Instruction | Computation | Module | None, name: str) -> Span | None:
        """The position of an attribute's name in the text."""
        source = self.module.source
        if source is None:
            return None
        start, end = 0, len(source.text)
        if isinstance(place, Instruction):
            start, end = place.offset, place.end
        elif isinstance(place, Computation):
            start = max((i.end for i in place.instructions), default=place.offset)
        else:
            end = min((c.offset for c in self.module.computations if c.offset >= 0), default=end)
        if start < 0:
            return None
        match = re.compile(rf",\s*({re.escape(name)})=\s*").search(source.text, start, end)
        return None if match is None else Span(source, match.start(1), match.end(1))

    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        """Collect a VerifyError raised inside; stop verification once there are `max_errors`."""
        try:
            yield
        except VerifyError as error:
            self.errors.append(error)
            if len(self.errors) >= self.max_errors:
                raise _EnoughError from None

    def run(self) -> None:
        """Raises the first fault, which holds the others."""
        with contextlib.suppress(_EnoughError):
            self.module_faults()
        if self.errors:
            first, *others = self.errors
            first.others = tuple(others)
            raise first

    def module_faults(self) -> None:
        module = self.module
        with self.collecting():
            self.free_attributes(module, module.attributes, HEADER_ORDER, "HloModule")
            self.devices = self.count("replica_count"), self.count("num_partitions")
        with self.collecting():
            self.computations()
        if not self.errors:  # the header's statements about the entry need a valid entry
            with self.collecting():
                self.interface()

    def count(self, name: str) -> int:
        """An integer of the header; 1 where it is absent."""
        written = self.module.attributes.get(name)
        return int(written.text) if written is not None else 1

    def computations(self) -> None:
        module = self.module
        if module._entry is None or module._entry not in module.computations:
            self.fail(None, f"module {module.name} has no entry computation")
        names: set[str] = set()
        known: set[Computation] = set()
        for computation in module.computations:
            with self.collecting():
                if computation.name in names:
                    self.fail(computation, f"computation {computation.name} is defined twice")
                names.add(computation.name)
                self.free_attributes(computation, computation.attributes, _COMPUTATION_ATTRIBUTES, "a computation")
                self.computation(computation, known)
            known.add(computation)

    def free_attributes(
        self,
        place: Module | Computation,
        attributes: Mapping[str, Attribute | Called],
        known: Collection[str],
        what: str,
    ) -> None:
        """Check the attributes of the header or of a computation."""
        for name, value in attributes.items():
            if name not in known:
                self.unknown_attribute(place, what, name, known)
            if isinstance(value, Attribute):
                self.form(place, "", name, value)

    def unknown_attribute(
        self, place: Instruction | Computation | Module, what: str, name: str, known: Collection[str]
    ) -> None:
        """Fail for an unknown attribute, unless `allow_unknown`."""
        if not self.allow_unknown:
            allowed = sorted(known)
            close = nearest(name, allowed)
            hint = f"did you mean {close}?" if close else f"it takes {', '.join(allowed)}"
            self.fail(place, f"{what} has no attribute {name}", hint, name)

    def interface(self) -> None:
        """Check the header against the entry's parameters and result."""
        module = self.module
        fault = alias_fault(module)
        if fault is not None:
            self.fail(module, f"{fault[0]}: {fault[1]}", at=fault[0])
        name = "entry_computation_layout"
        if name not in module.attributes:
            return
        parameters, result = read_entry_layout(module.attributes[name].text)
        ours = [p.shape for p in module.entry.parameters]
        if len(parameters) != len(ours):
            self.fail(module, f"{name} has {len(parameters)} parameters, {module.entry.name} has {len(ours)}", at=name)
        for number, (declared, shape) in enumerate(zip(parameters, ours, strict=True)):
            if not compatible(declared, shape):
                message = (
                    f"parameter {number} of {module.entry.name} is {shape.without_layout()}, "
                    "not "
                    f"{declared.without_layout()}"
                )
                self.fail(module, f"{name}: {message}", at=name)
        root = module.entry.root.shape
        if not compatible(result, root):
            message = f"{module.entry.name} returns {root.without_layout()}, not {result.without_layout()}"
            self.fail(module, f"{name}: {message}", at=name)

    def form(self, place: Instruction | Computation | Module, opcode: str, name: str, value: Attribute) -> None:
        """Check an attribute's value against its form."""
        key = (opcode, name, value.text)
        if key in self.formed:
            return
        try:
            check_form(opcode, name, value.text)
        except ParseError as error:
            where = self.attribute_span(place, name)
            span = where
            if where is not None:  # check again, to locate the fault within the value
                begin = where.end + 1
                text = where.source.text
                while begin < len(text) and text[begin] in " \t\r\n":
                    begin += 1
                try:
                    check_form(opcode, name, value.text, where.source, begin)
                except ParseError as placed:
                    span = placed.span
            filename = self.module.source.filename if self.module.source is not None else None
            raise VerifyError(f"{name}: {error.message}", span=span, hint=error.hint, filename=filename) from None
        self.formed.add(key)

    def computation(self, computation: Computation, known: set[Computation]) -> None:
        if not computation.instructions:
            self.fail(computation, f"computation {computation.name} has no instructions")
        if computation._root is None or computation._root not in computation.instructions:
            self.fail(computation, f"computation {computation.name} has no root")
        names: set[str] = set()
        done: set[Instruction] = set()
        numbers: dict[int, Instruction] = {}
        for instruction in computation.instructions:
            with self.collecting():
                if instruction.name in names:
                    self.fail(instruction, f"instruction {instruction.name} is defined twice")
                names.add(instruction.name)
                self.references(instruction, done, known)
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

    def references(self, instruction: Instruction, done: set[Instruction], known: set[Computation]) -> None:
        """Operands, control predecessors and callees are defined before their use."""
        for other in (*instruction.operands, *instruction.control_predecessors):
            if other not in done:
                computation = instruction.computation
                self.fail(instruction, f"{other.name} is used before it is defined in {computation.name}")
        for callee in instruction.called():
            if callee not in known:
                where = "after its use" if callee in self.module.computations else "in another module"
                self.fail(instruction, f"computation {callee.name}, which {instruction.name} calls, is defined {where}")
            depth = self.depths.get(callee, 1) + 1
            if depth > DEEPEST:
                self.fail(instruction, f"computations call each other more than {DEEPEST} deep")
            self.depths[instruction.computation] = max(depth, self.depths.get(instruction.computation, 1))

    def instruction(self, instruction: Instruction) -> None:
        opcode = instruction.opcode
        spec = find(opcode)
        base = None if spec is not None else base_opcode(opcode)
        if spec is None and base is None:
            if self.allow_unknown:
                return
            close = nearest(opcode, [s.opcode for s in table()])
            self.fail(instruction, f"unknown opcode {opcode}", f"did you mean {close}?" if close else _KEPT, opcode)
        if spec is not None and not spec.arity.accepts(len(instruction.operands)):
            self.fail(instruction, f"{opcode} takes {spec.arity.words}, but has {len(instruction.operands)}")
        self.attributes(instruction, base)
        self.layout(instruction)
        self.literal(instruction)
        if link(opcode) is not None:
            self.chain(instruction)
        fault = instruction_fault(instruction)
        if fault is not None:
            self.fail(instruction, f"{opcode} {instruction.name}: {fault[0]}", at=fault[1])
        whole = instruction if spec is not None else started(instruction)
        if whole is not None:
            self.callees(whole)
            self.shape(whole)
            self.groups(instruction, whole)

    def attributes(self, instruction: Instruction, base: str | None) -> None:
        """Check attribute names against the op table, values against their forms."""
        opcode = instruction.opcode
        known = attributes_of(opcode)
        for name, value in instruction.attributes.items():
            if name not in known and name not in SHARED_ATTRIBUTES:
                self.unknown_attribute(instruction, opcode, name, {*known, *SHARED_ATTRIBUTES})
            if isinstance(value, Attribute):
                self.form(instruction, base or opcode, name, value)
        for name, is_required in known.items():
            if is_required and name not in instruction.attributes:
                self.fail(instruction, f"{opcode} needs the attribute {name}")

    def layout(self, instruction: Instruction) -> None:
        """Every layout lists each dimension once (LayoutUtil::ValidateLayoutInShape)."""
        if instruction.shape in self.laid_out:
            return
        for leaf in instruction.shape.leaves():
            order = None if leaf.layout is None else leaf.layout.minor_to_major
            if order is not None and sorted(order) != list(range(leaf.rank)):
                self.fail(instruction, f"layout {leaf.layout} does not list each of {leaf.rank} dimensions once")
        self.laid_out.add(instruction.shape)

    def chain(self, instruction: Instruction) -> None:
        """Check a link of an asynchronous chain."""
        try:
            check_link(instruction)
        except ChainError as error:
            self.fail(instruction, f"{instruction.opcode} {instruction.name}: {error}", at=error.attribute)
        if instruction.opcode == "async-start":
            for callee in instruction.called():
                other = self.started.setdefault(callee, instruction)
                if other is not instruction:
                    self.fail(
                        instruction,
                        f"{other.name} already runs {callee.name}; each async-start needs a computation of its own",
                    )

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

    def shape(self, instruction: Instruction) -> None:
        """The declared shape against the inferred one."""
        spec = find(instruction.opcode)
        if spec is None or spec.infer is None:
            return
        try:
            inferred = spec.infer(instruction)
        except ShapeError as error:
            self.fail(instruction, f"{instruction.opcode} {instruction.name}: {error}")
        except (KeyError, TypeError, ValueError, IndexError) as error:
            self.fail(instruction, f"{instruction.opcode} {instruction.name} is malformed: {error}")
        if not compatible(instruction.shape, inferred):
            self.fail(
                instruction,
                f"{instruction.name} is declared {instruction.shape.without_layout()}, but "
                f"{instruction.opcode} returns {inferred.without_layout()}",
            )

    def groups(self, instruction: Instruction, whole: Instruction) -> None:
        """Check the devices of a collective."""
        try:
            fault = group_fault(whole, *self.devices)
        except ValueError as error:
            self.fail(instruction, f"{instruction.opcode} {instruction.name}: {error}", at="replica_groups")
        if fault is not None:
            self.fail(instruction, f"{instruction.opcode} {instruction.name}: {fault[0]}", at=fault[1])

    # ---- called computations

    def callees(self, instruction: Instruction) -> None:
        """Check arguments and results of called computations."""
        spec = find(instruction.opcode)
        if spec is None or spec.calls is None:
            return
        try:
            calls = list(spec.calls(instruction))
        except ShapeError as error:
            self.fail(instruction, str(error))
        for callee, arguments, result in calls:
            self.callee(instruction, callee, arguments, result)

    def callee(
        self, instruction: Instruction, callee: Computation, arguments: Sequence[Shape | None], result: Shape | None
    ) -> None:
        """Check parameters against arguments, and the root against the result where one is given."""
        parameters = callee.parameters
        if len(parameters) != len(arguments):
            what = f"{instruction.opcode} {instruction.name} passes {len(arguments)} arguments"
            self.fail(instruction, f"{callee.name} has {len(parameters)} parameters, but {what}")
        for parameter, argument in zip(parameters, arguments, strict=True):
            if argument is not None and not compatible(parameter.shape, argument):
                self.fail(
                    instruction,
                    f"parameter {parameter.parameter_number} of {callee.name} is {parameter.shape.without_layout()}, "
                    f"but {instruction.opcode} {instruction.name} passes {argument.without_layout()}",
                )
        if result is not None and not compatible(result, callee.root.shape):
            self.fail(
                instruction,
                f"{instruction.name} is declared {result.without_layout()}, but {callee.name} returns "
                f"{callee.root.shape.without_layout()}",
            )
