"""The spelling of an instruction without insignificant parts: names, metadata, and what printer versions write
differently.

Two dumps of one program that differ in names, text order, ids or default attributes are spelled alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable

from hlo_opt.analysis.graph.numbering import IGNORED, literal_key
from hlo_opt.analysis.properties import is_boundary_fusion
from hlo_opt.ir import Attribute, Instruction, Literal
from hlo_opt.ops import OpKind, find

_UNSAID = frozenset({"false", "{}", '""'})
"""Texts that mean the same as an absent attribute."""

_DEFAULTS = {
    "feature_group_count": "1",
    "batch_group_count": "1",
    "algorithm": "dot_unset",
    "api_version": "API_VERSION_ORIGINAL",
    "custom_call_schedule": "SCHEDULE_NONE",
    "schedule": "SCHEDULE_NONE",
}
"""Attributes with other default values."""

_IDS = frozenset({"channel_id", "channel_handle"})
"""Attributes whose numbers are arbitrary ids."""

_PRECISION = "operand_precision"

_CHOSEN = frozenset(
    {
        "selected_algorithm",
        "autotune_workspace_size",
        "operation_queue_id",
        "wait_on_operation_queues",
        "force_earliest_schedule",
        "reification_cost",
        "device_type",
    }
)
"""Fields of a backend config written by autotuning and scheduling; they differ between runs."""

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None

_SPACE = re.compile(r"\s+")


def plain_attributes(instruction: Instruction) -> tuple[tuple[str, str], ...]:
    """The significant attributes, sorted by name, without called computations, configs, shardings and defaults."""
    attributes = []
    for name, value in instruction.attributes.items():
        if name in IGNORED or not isinstance(value, Attribute):
            continue
        text = value.text
        if " " in text or "\n" in text:
            text = _SPACE.sub("", text)
        if text in _UNSAID or _DEFAULTS.get(name) == text:
            continue
        if name in _IDS:
            text = "yes"
        elif name == _PRECISION and not text.strip("{}").replace("default", "").strip(","):
            continue
        attributes.append((name, text))
    attributes.sort()
    return tuple(attributes)


def sharding(instruction: Instruction) -> str:
    """The sharding, as written without white space; "" for none."""
    value = instruction.attributes.get("sharding")
    return "" if value is None else _SPACE.sub("", value.text)


def config(instruction: Instruction) -> str:
    """The config of a library or opaque call, without measurements; "" for other operations, whose config does not
    affect values."""
    value = instruction.attributes.get("backend_config")
    if value is None:
        return ""
    spec = find(instruction.opcode)
    if spec is not None and spec.kind is not OpKind.OPAQUE and not is_boundary_fusion(instruction):
        return ""
    text = instruction.word("backend_config") or value.text
    try:
        return json.dumps(_without_chosen(json.loads(text)), sort_keys=True)
    except (ValueError, RecursionError):
        return text


def _without_chosen(value: Json) -> Json:
    if isinstance(value, dict):
        left = {name: _without_chosen(part) for name, part in value.items() if name not in _CHOSEN}
        return {name: part for name, part in left.items() if part not in ({}, [], "", False)}
    return [_without_chosen(part) for part in value] if isinstance(value, list) else value


def constant_key(literal: Literal) -> Hashable:
    """The key by which constants of two dumps compare. Elided ones of one shape are equal, as the text says no more."""
    if literal.is_elided:
        return ("elided", literal.shape.without_layout())
    key = literal_key(literal)
    return _SPACE.sub("", key) if isinstance(key, str) else key
