"""Module to text.

Styles: `canonical` is how XLA prints by default; `as-read` keeps the conventions of the text that was read (percent signs, signatures, types of
operands), so that a diff against it shows what changed; `short` is for people: no percent signs, signatures, metadata or backend configuration.
Source: xla/hlo/ir/hlo_print_options.h, HloPrintOptions::Default and ShortParsable.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hlo_opt.diag import UsageError, nearest
from hlo_opt.ir import Called, Computation, Instruction, Module
from hlo_opt.text.literals import format_literal


@dataclass(frozen=True)
class PrintOptions:
    """What a style shows."""

    percent: bool = True
    signature: bool = True
    operand_types: bool = False
    control: bool = True
    hidden: frozenset[str] = frozenset()


STYLES = ("canonical", "as-read", "short")
_SHORT = PrintOptions(
    percent=False, signature=False, control=False, hidden=frozenset({"metadata", "backend_config", "origin"})
)
_TYPED_OPERAND = re.compile(r"= .*?\(\s*\(*[a-z][a-z0-9]*\[")


def print_module(module: Module, style: str = "canonical") -> str:
    """The HLO text of a module, which XLA's parser reads back as the same module. Raises UsageError for an unknown style."""
    if style not in STYLES:
        close = nearest(style, STYLES)
        raise UsageError(f"there is no print style {style!r}", hint=f"did you mean {close}?" if close else None)
    options = PrintOptions() if style == "canonical" else _SHORT if style == "short" else _conventions(module)
    parts = [_header(module)]
    if module.tables and "metadata" not in options.hidden:
        parts.append(module.tables + "\n")
    entry = module._entry
    parts.extend(_computation(c, options, c is entry) for c in module.computations)
    return "\n\n".join(parts) + "\n"


def print_instruction(instruction: Instruction, options: PrintOptions | None = None) -> str:
    """One instruction, without ROOT and indentation."""
    options = options or PrintOptions()
    sign = "%" if options.percent else ""
    if instruction.opcode == "constant" and instruction.literal is not None:
        inner = format_literal(instruction.literal)
    elif instruction.parameter_number is not None:
        inner = str(instruction.parameter_number)
    elif options.operand_types:
        inner = ", ".join(f"{o.shape} {sign}{o.name}" for o in instruction.operands)
    else:
        inner = ", ".join([sign + o.name for o in instruction.operands])
    text = f"{sign}{instruction.name} = {instruction.shape} {instruction.opcode}({inner})"
    for name, value in instruction.attributes.items():
        if name not in options.hidden:
            text += f", {name}={_called(value, sign) if isinstance(value, Called) else value.text}"
    if instruction.control_predecessors and options.control:
        names = ", ".join(f"{sign}{p.name}" for p in instruction.control_predecessors)
        text += f", control-predecessors={{{names}}}"
    return text


def _called(value: Called, sign: str) -> str:
    names = ", ".join([sign + c.name for c in value.computations])
    return f"{{{names}}}" if value.is_list else names


def _header(module: Module) -> str:
    return f"HloModule {module.name}" + "".join(f", {name}={value.text}" for name, value in module.attributes.items())


def _computation(computation: Computation, options: PrintOptions, is_entry: bool) -> str:
    sign = "%" if options.percent else ""
    head = f"{'ENTRY ' if is_entry else ''}{sign}{computation.name}"
    if options.signature:
        parameters = ", ".join(f"{p.name}: {p.shape.without_layout()}" for p in computation.parameters)
        head += f" ({parameters}) -> {computation.root.shape.without_layout()}"
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
                )
    return PrintOptions()
