"""XLA's order of attributes, and its notes on long lists.

The order is that of XLA's own prints: first those of the opcode, as its entry in the op table lists them (xla/hlo/ir/hlo_instructions.cc,
PrintExtraAttributesImpl), then the shared ones (hlo_instruction.cc, PrintExtraAttributes; hlo_module.cc, Print); a test asks XLA whether it still is.
Attributes that an opcode does not take keep their places, before the shared ones.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from hlo_opt.ir import Shape

HEADER_ORDER = (
    "is_scheduled",
    "input_output_alias",
    "buffer_donor",
    "alias_passthrough_params",
    "entry_computation_layout",
    "allow_spmd_sharding_propagation_to_parameters",
    "allow_spmd_sharding_propagation_to_output",
    "replica_count",
    "num_partitions",
    "frontend_attributes",
    "origin_recovery_table",
)
"""What may follow the module's name (xla/hlo/parser/hlo_parser.cc, ParseHloModule)."""

_LAST = (
    "sharding",
    "frontend_attributes",
    "control-predecessors",
    "statistics",
    "result_accuracy",
    "origin",
    "metadata",
    "backend_config",
)
_UNKNOWN = 999
_HEADER_RANK = {name: rank for rank, name in enumerate(HEADER_ORDER)}
_SHARED_RANK = {name: _UNKNOWN + 1 + rank for rank, name in enumerate(_LAST)}


@functools.cache
def _ranks(opcode: str) -> dict[str, int]:
    from hlo_opt.text.asynchronous import attributes_of

    return {name: rank for rank, name in enumerate(attributes_of(opcode))} | _SHARED_RANK


def ordered(opcode: str, names: Iterable[str]) -> list[str]:
    """The names of an instruction's attributes as XLA orders them."""
    ranks = _ranks(opcode)
    return sorted(names, key=lambda name: ranks.get(name, _UNKNOWN))


def ordered_header(names: Iterable[str]) -> list[str]:
    """The names of a module's attributes as XLA orders them."""
    return sorted(names, key=lambda name: _HEADER_RANK.get(name, len(HEADER_ORDER)))


_INTERVAL = 5
"""After how many items XLA notes the number of the next (HloPrintOptions::print_operand_index_annotation_interval)."""


def listed(items: list[str], is_noted: bool) -> str:
    """Items with commas between them and, where notes are wanted, XLA's `/*index=5*/` before every fifth."""
    if is_noted and len(items) > _INTERVAL:
        items = [f"/*index={n}*/{item}" if n and n % _INTERVAL == 0 else item for n, item in enumerate(items)]
    return ", ".join(items)


class ShapeTexts(dict[Shape, str]):
    """The texts of shapes, with notes on the numbers of elements in long tuples."""

    def __missing__(self, shape: Shape) -> str:
        text = str(shape) if shape.elements is None else f"({listed([self[e] for e in shape.elements], True)})"
        self[shape] = text
        return text
