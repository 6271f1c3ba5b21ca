"""XLA's order of attributes, and its notes on long lists.

The orders are those of XLA's own prints (xla/hlo/ir/hlo_instruction.cc, PrintExtraAttributes; hlo_instructions.cc, PrintExtraAttributesImpl;
hlo_module.cc, Print); a test asks XLA whether they still are. Attributes that are not listed keep their places, before the shared ones.
"""

from __future__ import annotations

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

_FIRST = (
    "async_execution_thread",
    "window",
    "dim_labels",
    "feature_group_count",
    "batch_group_count",
    "convolution_kind",
    "lhs_batch_dims",
    "lhs_contracting_dims",
    "rhs_batch_dims",
    "rhs_contracting_dims",
    "operand_precision",
    "algorithm",
    "lhs_ragged_dims",
    "rhs_group_dims",
    "channel_id",
    "is_host_transfer",
    "source_target_pairs",
    "replica_groups",
    "constrain_layout",
    "kind",
    "offset_dims",
    "collapsed_slice_dims",
    "start_index_map",
    "operand_batching_dims",
    "start_indices_batching_dims",
    "update_window_dims",
    "inserted_window_dims",
    "scatter_dims_to_operand_dims",
    "input_batching_dims",
    "scatter_indices_batching_dims",
    "index_vector_dim",
    "slice_sizes",
    "indices_are_sorted",
    "unique_indices",
    "custom_call_target",
    "operand_layout_constraints",
    "custom_call_has_side_effect",
    "literal",
    "schedule",
    "output_to_operand_aliasing",
    "api_version",
    "direction",
    "type",
    "epsilon",
    "feature_index",
    "exponent_bits",
    "mantissa_bits",
    "fft_type",
    "fft_length",
    "outfeed_shape",
    "outfeed_config",
    "left_side",
    "lower",
    "unit_diagonal",
    "transpose_a",
    "k",
    "largest",
)
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
_MIDDLE = {
    "all-gather": ("dimensions", "use_global_device_ids"),
    "all-gather-start": ("dimensions", "use_global_device_ids"),
}
_OTHERWISE = (
    "use_global_device_ids",
    "dimensions",
    "is_stable",
    "num_carries",
    "is_reverse",
    "is_associative",
    "calls",
    "condition",
    "body",
    "select",
    "scatter",
    "true_computation",
    "false_computation",
    "branch_computations",
    "to_apply",
    "called_computations",
    "is_composite",
)
_HEADER_RANK = {name: rank for rank, name in enumerate(HEADER_ORDER)}
_SHARED_RANK = {name: 1000 + rank for rank, name in enumerate(_LAST)}


def _ranks(middle: Iterable[str]) -> dict[str, int]:
    names = [*_FIRST, *middle]
    return {name: rank for rank, name in enumerate(names)} | _SHARED_RANK


_USUAL = _ranks(_OTHERWISE)
_OF_OPCODE = {opcode: _ranks(middle) for opcode, middle in _MIDDLE.items()}
_UNKNOWN = 999


def ordered(opcode: str, names: Iterable[str]) -> list[str]:
    """The names of an instruction's attributes as XLA orders them."""
    ranks = _OF_OPCODE.get(opcode, _USUAL)
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
