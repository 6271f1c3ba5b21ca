"""Module to text.

Styles: `canonical` is how XLA prints by default, down to the order of attributes, so that a diff against XLA's dumps shows what changed; `as-read` keeps
the conventions of the text that was read (percent signs, signatures, types of operands, order of attributes), so that a diff against it does;
`short` is for people: no percent signs, signatures, metadata or backend configuration. The values of attributes and constants stay as they were read.
Source: xla/hlo/ir/hlo_print_options.h, HloPrintOptions::Default and ShortParsable.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hlo_opt.diag import UsageError, nearest
from hlo_opt.ir import Called, Computation, Instruction, Module, Shape
from hlo_opt.text.canonical import ShapeTexts, listed, ordered, ordered_header
from hlo_opt.text.literals import format_literal


@dataclass(frozen=True)
class PrintOptions:
    """What a style shows."""

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
    """The HLO text of a module, which XLA's parser reads back as the same module. Raises UsageError for an unknown style."""
    if style not in STYLES:
        close = nearest(style, STYLES)
        raise UsageError(f"there is no print style {style!r}", hint=f"did you mean {close}?" if close else None)
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
    """One instruction, without ROOT and indentation."""
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
    """How the text that was read writes names, heads and operands."""
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
