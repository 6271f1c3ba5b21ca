"""Aliases and donations: which buffers share memory, and whether the indices they name exist.

A shape index, as in XLA, is a path through nested tuples: `{1,0}`.
Source: xla/hlo/ir/hlo_input_output_alias_config.cc and hlo_buffer_donor_config.cc (SetUpAlias, AddBufferDonor, Verify).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from hlo_opt.ir import Attribute, Instruction, Module, Shape, edit

_ALIAS = re.compile(r"\{([^{}]*)\}\s*:\s*\(\s*(-?\d+)\s*,\s*\{([^{}]*)\}\s*(?:,\s*(must-alias|may-alias)\s*)?\)")
_DONOR = re.compile(r"\(\s*(-?\d+)\s*,\s*\{([^{}]*)\}\s*\)")
ALIASES = "input_output_alias"
"""The attribute of the header."""
_COMMENT = re.compile(r"//[^\n\r]*|/\*[\s\S]*?\*/")

TuplePath = tuple[int, ...]
"""The way to an array in nested tuples: a number at each level. XLA calls it a shape index."""


@dataclass(frozen=True)
class Alias:
    """An output, by its path, that shares memory with a parameter, by its number and the path of the array in it."""

    output: TuplePath
    parameter: int
    index: TuplePath
    must: bool = False


def read_aliases(text: str) -> list[Alias]:
    """Parse aliases of a module, or of operands and outputs: `{{0}: (1, {}, must-alias)}`. Does not check the form."""
    matches = _ALIAS.finditer(_COMMENT.sub(" ", text))
    return [Alias(_index(m[1]), int(m[2]), _index(m[3]), m[4] == "must-alias") for m in matches]


def alias_text(aliases: Iterable[Alias]) -> str:
    """The result of `read_aliases`."""
    parts = [
        f"{_text(a.output)}: ({a.parameter}, {_text(a.index)}, {'must' if a.must else 'may'}-alias)" for a in aliases
    ]
    return f"{{ {', '.join(parts)} }}"


def aliases_of(module: Module) -> list[Alias]:
    """The aliases and donations of a module's header."""
    return read_aliases(module.attributes[ALIASES].text) if ALIASES in module.attributes else []


def read_donors(text: str) -> list[tuple[int, TuplePath]]:
    """Parse donors: `{(0, {}), (1, {0})}`, parameter numbers with shape indices. Does not check the form."""
    return [(int(m[1]), _index(m[2])) for m in _DONOR.finditer(_COMMENT.sub(" ", text))]


def _index(text: str) -> TuplePath:
    return tuple(int(part) for part in text.split(",") if part.strip())


def subshape(shape: Shape, index: TuplePath) -> Shape | None:
    """The shape at a shape index; None where the index does not exist."""
    for step in index:
        if shape.elements is None or not 0 <= step < len(shape.elements):
            return None
        shape = shape.elements[step]
    return shape


def aliased_leaves(module: Module) -> dict[int, int]:
    """Pairs of aliased array leaves: leaf number among the entry's parameters to leaf number in the result.

    Indices that do not exist are skipped.
    """
    inputs_shape = Shape.tuple_of(*(parameter.shape for parameter in module.entry.parameters))
    result, pairs = module.entry.root.shape, dict[int, int]()
    for alias in aliases_of(module):
        inputs, outputs = _leaves(inputs_shape, (alias.parameter, *alias.index)), _leaves(result, alias.output)
        pairs.update(zip(inputs, outputs, strict=False))
    return pairs


def _leaves(shape: Shape, index: TuplePath) -> range:
    """The numbers of the leaves below a shape index; empty where the index does not exist."""
    first = 0
    for step in index:
        parts = shape.elements
        if parts is None or not 0 <= step < len(parts):
            return range(0)
        first += sum(len(list(part.leaves())) for part in parts[:step])
        shape = parts[step]
    return range(first, first + len(list(shape.leaves())))


def give_away(module: Module, pairs: Iterable[tuple[int, int]]) -> None:
    """Add to the header that arrays of the entry's parameters may hold results; pairs as of `aliased_leaves`."""
    inputs = [(number, index) for number, p in enumerate(module.entry.parameters) for index in _paths(p.shape)]
    results = list(_paths(module.entry.root.shape))
    added = [Alias(results[result], *inputs[leaf]) for leaf, result in pairs]
    edit.set_header(module, ALIASES, Attribute(alias_text([*aliases_of(module), *added])))


def _paths(shape: Shape) -> Iterator[TuplePath]:
    """The shape indices of all leaves, in order."""
    if shape.elements is None:
        yield ()
        return
    for step, part in enumerate(shape.elements):
        yield from ((step, *rest) for rest in _paths(part))


def alias_fault(module: Module) -> tuple[str, str] | None:
    """The first fault of the module's aliases and donations: the attribute and a message. None when there is none."""
    parameters = module.entry.parameters
    used: dict[tuple[int, TuplePath], str] = {}
    outputs: set[TuplePath] = set()
    attribute = ALIASES
    for alias in aliases_of(module):
        output = subshape(module.entry.root.shape, alias.output)
        if output is None:
            return (
                attribute,
                f"the result {module.entry.root.shape.without_layout()} has no place {_text(alias.output)}",
            )
        if alias.output in outputs:
            return attribute, f"output {_text(alias.output)} is aliased twice"
        outputs.add(alias.output)
        fault = _parameter_fault(parameters, alias.parameter, alias.index, used, attribute)
        if fault is not None:
            return attribute, fault
        donated = subshape(parameters[alias.parameter].shape, alias.index)
        assert donated is not None
        if donated.is_array and output.is_array and donated.byte_size != output.byte_size:
            return attribute, (
                f"parameter {alias.parameter} at {_text(alias.index)} is {donated.without_layout()}, output "
                f"{_text(alias.output)} is "
                f"{output.without_layout()}: they cannot share memory"
            )
    attribute = "buffer_donor"
    text = module.attributes[attribute].text if attribute in module.attributes else ""
    for number, index in dict.fromkeys(read_donors(text)):
        fault = _parameter_fault(parameters, number, index, used, attribute)
        if fault is not None:
            return attribute, fault
    return None


def _parameter_fault(
    parameters: list[Instruction], number: int, index: TuplePath, used: dict[tuple[int, TuplePath], str], attribute: str
) -> str | None:
    if not 0 <= number < len(parameters):
        return f"there is no parameter {number}; the entry has {len(parameters)}"
    shape = parameters[number].shape
    if subshape(shape, index) is None:
        return f"parameter {number} is {shape.without_layout()} and has no place {_text(index)}"
    if (number, index) in used:
        return f"parameter {number} at {_text(index)} is in {used[number, index]} already"
    used[number, index] = attribute
    return None


def operand_alias_fault(instruction: Instruction) -> str | None:
    """The first fault of `output_to_operand_aliasing`; None when there is none."""
    for alias in read_aliases(instruction.attributes["output_to_operand_aliasing"].text):
        shape = instruction.shape
        output = subshape(shape, alias.output)
        if output is None:
            return f"{shape.without_layout()} has no place {_text(alias.output)}"
        if not 0 <= alias.parameter < len(instruction.operands):
            return f"there is no operand {alias.parameter}"
        operand = subshape(instruction.operands[alias.parameter].shape, alias.index)
        if operand is None:
            return f"operand {alias.parameter} has no place {_text(alias.index)}"
        if not replace(operand, is_buffer=False).same_values(replace(output, is_buffer=False)):
            return f"operand {alias.parameter} is {operand.without_layout()}, the output {output.without_layout()}"
    return None


def _text(index: TuplePath) -> str:
    return "{" + ",".join(map(str, index)) + "}"
