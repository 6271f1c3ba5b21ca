"""Random inputs for several simulated devices.

What a module says about its parameters decides which devices get the same numbers: scalars are the same everywhere, as loop bounds and steps must be; a parameter
that is sharded or replicated over partitions (`sharding`) is the same where the partitions hold the same tile; one that is replicated over replicas
(`parameter_replication`) is the same in all of these. Otherwise each device gets its own.

Source of the forms: xla/hlo/parser/hlo_parser.cc (ParseSharding, ParseParameterReplication).
"""

from __future__ import annotations

import math
import re

import numpy as np

from hlo_opt.evaluate.devices import counts
from hlo_opt.evaluate.inputs import Array, module_inputs
from hlo_opt.ir import Attribute, Instruction, Module

_TILES = re.compile(r"devices=\[([\d,]+)\](?:<=\[([\d,]+)\](?:T\(([\d,]+)\))?|([\d,]+))(.*)\}$", re.DOTALL)
_LAST = re.compile(r"last_tile_dims=\{([\w, ]*)\}")


def device_inputs(module: Module, seed: int = 0) -> list[list[Array]]:
    """Inputs for every device, the same for the same seed; those of device 0 are `module_inputs(module, seed)`."""
    replicas, partitions = counts(module)
    drawn: dict[int, list[Array]] = {}
    found: list[list[Array]] = [[] for _ in range(replicas * partitions)]
    for device, own in enumerate(found):
        number = 0
        for parameter in module.entry.parameters:
            for place, leaf in enumerate(parameter.shape.leaves()):
                if not leaf.is_array:
                    continue
                leader = 0 if not leaf.rank else _leader(parameter, place, device, partitions)
                if leader not in drawn:
                    drawn[leader] = module_inputs(module, seed, device=leader)
                own.append(drawn[leader][number])
                number += 1
    return found


def _leader(parameter: Instruction, place: int, device: int, partitions: int) -> int:
    """The first device that gets the same numbers for one array of a parameter."""
    replica, partition = divmod(device, partitions)
    if _flag(parameter, place):
        replica = 0
    tiles = _tiles(_sharding(parameter, place), partitions)
    return replica * partitions + tiles.index(tiles[partition])


def _text(parameter: Instruction, name: str) -> str:
    found = parameter.attributes.get(name)
    return found.text.strip() if isinstance(found, Attribute) else ""


def _flag(parameter: Instruction, place: int) -> bool:
    """`parameter_replication={true,false}`: one flag for each array, or one for all."""
    flags = re.findall(r"true|false", _text(parameter, "parameter_replication"))
    return bool(flags) and flags[place if place < len(flags) else -1] == "true"


def _sharding(parameter: Instruction, place: int) -> str:
    """The sharding of one array; of a tuple, `{{..}, {..}}`, the one at its place."""
    text = _text(parameter, "sharding")
    if not parameter.shape.is_tuple or not text.startswith("{{"):
        return text
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text[1:-1], 1):
        if letter == "{":
            start = start if depth else at
            depth += 1
        elif letter == "}":
            depth -= 1
            if not depth:
                parts.append(text[start : at + 1])
    return parts[place] if place < len(parts) else ""


def _tiles(sharding: str, partitions: int) -> list[int]:
    """Which tile each partition holds; with no sharding, or one that does not fit, each its own."""
    own = list(range(partitions))
    if sharding.startswith(("{replicated", "{maximal")):
        return [0] * partitions
    found = _TILES.search(sharding)
    if found is None:
        return own
    sizes, iota, order, listed, rest = found.groups()
    dimensions = [int(n) for n in sizes.split(",") if n]
    if math.prod(dimensions) != partitions:
        return own
    if listed is not None:
        devices = np.array([int(n) for n in listed.split(",") if n])
    else:
        base = [int(n) for n in iota.split(",") if n]
        if math.prod(base) != partitions:
            return own
        devices = np.arange(partitions).reshape(base)
        if order is not None:
            axes = [int(n) for n in order.split(",") if n]
            if sorted(axes) != list(range(len(base))):
                return own
            devices = devices.transpose(axes)
    if devices.size != partitions or sorted(devices.reshape(-1).tolist()) != own:
        return own
    last = _LAST.search(rest)
    kept = len(dimensions) - (len(last[1].split(",")) if last else int("last_tile_dim_replicate" in rest))
    tiles = [0] * partitions
    copies = math.prod(dimensions[max(kept, 0) :])
    for place, device in enumerate(devices.reshape(-1).tolist()):
        tiles[device] = place // copies
    return tiles
