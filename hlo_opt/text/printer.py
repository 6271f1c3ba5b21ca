"""Module to text.

Styles: `canonical` is XLA's default, including the order of attributes, so that a diff against XLA's dumps shows only
what changed. `as-read` keeps the conventions of the text that was read (percent signs, signatures, operand types, order
of attributes), for diffs against that text. `short` is for people: no percent signs, signatures, metadata or backend
configuration. Attribute and constant values keep the text that was read.
Source: xla/hlo/ir/hlo_print_options.h, HloPrintOptions::Default and ShortParsable.

XLA prints the attributes of the opcode first, in the order of the op table (xla/hlo/ir/hlo_instructions.cc,
PrintExtraAttributesImpl), then the shared ones (hlo_instruction.cc, PrintExtraAttributes; hlo_module.cc, Print). A test
compares the order with XLA's. Attributes that an opcode does not take keep their order, before the shared ones.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from hlo_opt.diag import UsageError, nearest
from hlo_opt.ir import Called, Computation, Instruction, Module, Shape
from hlo_opt.text.literals import format_literal

HEADER_ORDER = (
    *("is_scheduled", "input_output_alias", "buffer_donor", "alias_passthrough_params", "entry_computation_layout"),
    *("allow_spmd_sharding_propagation_to_parameters", "allow_spmd_sharding_propagation_to_output"),
    *("replica_count", "num_partitions", "frontend_attributes", "origin_recovery_table"),
)
"""The attributes of the module header, in order (xla/hlo/parser/hlo_parser.cc, ParseHloModule)."""

_LAST = (
    *("sharding", "frontend_attributes", "control-predecessors", "statistics", "result_accuracy"),
    *("origin", "metadata", "backend_config"),
)
_UNKNOWN = 999
_HEADER_RANK = {name: rank for rank, name in enumerate(HEADER_ORDER)}
_SHARED_RANK = {name: _UNKNOWN + 1 + rank for rank, name in enumerate(_LAST)}


@functools.cache
def _ranks(opcode: str) -> dict[str, int]:
    from hlo_opt.text.asynchronous import attributes_of

    return {name: rank for rank, name in enumerate(attributes_of(opcode))} | _SHARED_RANK


def ordered(opcode: str, names: Iterable[str]) -> list[str]:
    """The names of an instruction's attributes in XLA's order."""
    ranks = _ranks(opcode)
    return sorted(names, key=lambda name: ranks.get(name, _UNKNOWN))


def ordered_header(names: Iterable[str]) -> list[str]:
    """The names of a module's attributes in XLA's order."""
    return sorted(names, key=lambda name: _HEADER_RANK.get(name, len(HEADER_ORDER)))


_INTERVAL = 5
"""XLA annotates every n-th item of a list with its index (HloPrintOptions::print_operand_index_annotation_interval)."""


def listed(items: list[str], is_noted: bool) -> str:
    """Join items with commas; where `is_noted`, with XLA's `/*index=5*/` before every fifth item."""
    if is_noted and len(items) > _INTERVAL:
        items = [f"/*index={n}*/{item}" if n and n % _INTERVAL == 0 else item for n, item in enumerate(items)]
    return ", ".join(items)


class ShapeTexts(dict[Shape, str]):
    """The text of each shape, with index annotations in long tuples."""

    def __missing__(self, shape: Shape) -> str:
        text = str(shape) if shape.elements is None else f"({listed([self[e] for e in shape.elements], True)})"
        self[shape] = text
        return text


@dataclass(frozen=True)
class PrintOptions:
    """The options of a print style."""

    percent: bool = True
    signature: bool = True
    operand_types: bool = False
    control: bool = True
    is_ordered: bool = True
    is_noted: bool = True
    are_operands_noted: bool = True
    hidden: frozenset[str] = frozenset()
    shapes: dict[Shape, str] = field(default_factory=ShapeTexts, compare=False)

    def shape(self, shape: Shape) -> str:
        """The text of a shape."""
        return self.shapes[shape] if self.is_noted else str(shape)


STYLES = ("canonical", "as-read", "short")
SHORT = PrintOptions(
    percent=False,
    signature=False,
    control=False,
    is_noted=False,
    are_operands_noted=False,
    hidden=frozenset({"metadata", "backend_config", "origin"}),
)
_NOTED_OPERAND = re.compile(r"/\*index=5\*/(?:[^()=\n]* )?%?[A-Za-z_][A-Za-z0-9_.-]*[,)]")
_TYPED_OPERAND = re.compile(r"= .*?\(\s*\(*[a-z][a-z0-9]*\[")


def print_module(module: Module, style: str = "canonical") -> str:
    """The HLO text of a module, which XLA's parser reads back. Raises UsageError for an unknown style."""
    if style not in STYLES:
        close = nearest(style, STYLES)
        hint = f"did you mean {close}?" if close else f"styles: {', '.join(STYLES)}"
        raise UsageError(f"there is no print style {style!r}", hint=hint)
    options = PrintOptions() if style == "canonical" else SHORT if style == "short" else _conventions(module)
    parts = [_header(module, options)]
    if module.tables and "metadata" not in options.hidden:
        parts.append(module.tables + "\n")
    entry = module._entry
    parts.extend(_computation(c, options, c is entry) for c in module.computations)
    end = "\n"
    if style == "as-read" and module.source is not None:
        text = module.source.text
        end = text[len(text.rstrip()) :].replace("\r\n", "\n").strip(" \t") or end
    return "\n\n".join(parts) + end


def print_instruction(instruction: Instruction, options: PrintOptions | None = None) -> str:
    """The text of one instruction, without ROOT and indentation."""
    options = options or PrintOptions()
    sign = "%" if options.percent else ""
    if instruction.literal is not None:
        inner = format_literal(instruction.literal)
    elif instruction.parameter_number is not None:
        inner = str(instruction.parameter_number)
    else:
        types = [options.shape(o.shape) + " " if options.operand_types else "" for o in instruction.operands]
        operands = [f"{t}{sign}{o.name}" for t, o in zip(types, instruction.operands, strict=True)]
        inner = listed(operands, options.are_operands_noted)
    text = f"{sign}{instruction.name} = {options.shape(instruction.shape)} {instruction.opcode}({inner})"
    attributes = instruction.attributes
    names: list[str] = list(attributes)
    if instruction.control_predecessors and options.control:
        names.append(_CONTROL)
    if options.is_ordered and len(names) > 1:
        names = ordered(instruction.opcode, names)
    for name in names:
        if name == _CONTROL:
            predecessors = ", ".join(f"{sign}{p.name}" for p in instruction.control_predecessors)
            text += f", {_CONTROL}={{{predecessors}}}"
        elif name not in options.hidden:
            value = attributes[name]
            text += f", {name}={_called(value, sign) if isinstance(value, Called) else value.text}"
    return text


_CONTROL = "control-predecessors"


def _called(value: Called, sign: str) -> str:
    names = ", ".join([sign + c.name for c in value.computations])
    return f"{{{names}}}" if value.is_list else names


def _header(module: Module, options: PrintOptions) -> str:
    names = ordered_header(module.attributes) if options.is_ordered else list(module.attributes)
    return f"HloModule {module.name}" + "".join(f", {name}={module.attributes[name].text}" for name in names)


def _computation(computation: Computation, options: PrintOptions, is_entry: bool) -> str:
    sign = "%" if options.percent else ""
    head = f"{'ENTRY ' if is_entry else ''}{sign}{computation.name}"
    if options.signature:
        parameters = ", ".join(f"{p.name}: {options.shape(p.shape.without_layout())}" for p in computation.parameters)
        head += f" ({parameters}) -> {options.shape(computation.root.shape.without_layout())}"
    root = computation.root
    lines = [
        f"  {'ROOT ' if instruction is root else ''}{print_instruction(instruction, options)}"
        for instruction in computation.instructions
    ]
    tail = "".join(f", {name}={value.text}" for name, value in computation.attributes.items())
    return "\n".join([f"{head} {{", *lines, f"}}{tail}"])


def _conventions(module: Module) -> PrintOptions:
    """The print options that match the text that was read: its names, computation heads and operands."""
    if module.source is None:
        return PrintOptions()
    text = module.source.text
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.offset >= 0 and instruction.operands:
                written = text[instruction.offset : instruction.end]
                head = text[computation.offset : text.find("{", max(computation.offset, 0))]
                return PrintOptions(
                    percent=written.removeprefix("ROOT").lstrip().startswith("%"),
                    signature="->" in head,
                    operand_types=_TYPED_OPERAND.match(written, written.index("=")) is not None,
                    is_ordered=False,
                    is_noted="/*index=5*/" in text,
                    are_operands_noted=_NOTED_OPERAND.search(text) is not None,
                )
    return PrintOptions()
