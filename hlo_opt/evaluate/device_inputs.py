"""Inputs of several simulated devices: drawn, or cut from arrays for all.

What a module says about its parameters decides which devices get the same numbers. In a module with loops or branches, scalars are the same everywhere, as bounds and
steps must be; a parameter that is sharded or replicated over partitions (`sharding`) is the same where the partitions hold the same tile; one that is replicated over replicas
(`parameter_replication`) is the same in all of these. Otherwise each device gets its own.

Source of the forms: xla/hlo/parser/hlo_parser.cc (ParseParameterReplication).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from hlo_opt.diag import EvaluationError
from hlo_opt.evaluate.drawing import PLAIN, Style
from hlo_opt.evaluate.inputs import as_numpy, module_inputs
from hlo_opt.evaluate.shardings import Tiling, sharding_of, tiling
from hlo_opt.ir import Attribute, Instruction, Module, Shape
from hlo_opt.ir.values import Array
from hlo_opt.ops.collective.module_devices import counts


def device_inputs(module: Module, seed: int = 0, *, style: Style = PLAIN) -> list[list[Array]]:
    """Inputs for every device, the same for the same seed; those of device 0 are `module_inputs(module, seed)`. `style` as for `module_inputs`."""
    replicas, partitions = counts(module)
    drawn: dict[int, list[Array]] = {}
    found: list[list[Array]] = [[] for _ in range(replicas * partitions)]
    chooses = any(i.opcode in ("while", "conditional") for c in module.computations for i in c.instructions)
    for device, own in enumerate(found):
        number = 0
        for parameter in module.entry.parameters:
            for place, leaf in enumerate(parameter.shape.leaves()):
                if not leaf.is_array:
                    continue
                leader = 0 if chooses and not leaf.rank else _leader(parameter, place, leaf, device, partitions)
                if leader not in drawn:
                    drawn[leader] = module_inputs(module, seed, device=leader, style=style)
                own.append(drawn[leader][number])
                number += 1
    return found


def _leader(parameter: Instruction, place: int, leaf: Shape, device: int, partitions: int) -> int:
    """The first device that gets the same numbers for one array of a parameter."""
    replica, partition = divmod(device, partitions)
    if _is_replicated(parameter, place):
        replica = 0
    found = tiling(sharding_of(parameter, place), leaf.rank, partitions)
    return replica * partitions + (partition if found is None else found.tiles.index(found.tiles[partition]))


def _is_replicated(parameter: Instruction, place: int) -> bool:
    """`parameter_replication={true,false}`: one flag for each array, or one for all."""
    found = parameter.attributes.get("parameter_replication")
    flags = re.findall(r"true|false", found.text if isinstance(found, Attribute) else "")
    return bool(flags) and flags[place if place < len(flags) else -1] == "true"


def spread(module: Module, inputs: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The inputs of each device, from theirs or from one list for all, whose arrays are cut where they hold those of all devices: see `cut`.

    Raises EvaluationError (HLO401) for another number of lists.
    """
    devices = math.prod(counts(module))
    if len(inputs) == devices > 1:
        return [list(own) for own in inputs]
    if len(inputs) != 1:
        raise EvaluationError(
            f"the module runs on {devices} devices, inputs for {len(inputs)} are given", code="HLO401"
        )
    if devices == 1 or len(inputs[0]) != len(_leaves(module)):
        return [list(inputs[0])] * devices
    found: list[list[Any]] = [[] for _ in range(devices)]
    for number, given in enumerate(inputs[0]):
        sizes = getattr(given, "shape", None)
        is_whole = isinstance(sizes, tuple) and is_global(module, number, sizes)
        pieces = cut(module, number, as_numpy(given)) if is_whole else [given] * devices
        for own, piece in zip(found, pieces, strict=True):
            own.append(piece)
    return found


def is_global(module: Module, number: int, sizes: tuple[int, ...]) -> bool:
    """Whether an array of these sizes is no device's own, but one that holds those of all: see `cut`."""
    parameter, place, leaf = _leaves(module)[number]
    return sizes != leaf.dimensions and _pieces(module, parameter, place, leaf, sizes) is not None


def global_forms(module: Module, number: int) -> str:
    """What else than its own array a device's input may be cut from, in words; empty where there is nothing."""
    parameter, place, leaf = _leaves(module)[number]
    replicas, partitions = counts(module)
    found = tiling(sharding_of(parameter, place), leaf.rank, partitions)
    forms = []
    if found is not None and math.prod(found.counts) > 1:
        whole = [n * size for n, size in zip(found.counts, leaf.dimensions, strict=True)]
        forms.append(f"[{','.join(map(str, whole))}], which its sharding cuts")
    if replicas > 1 and not _is_replicated(parameter, place):
        forms.append(f"[{','.join(map(str, (replicas, *leaf.dimensions)))}], one for each replica")
    return " or ".join(forms)


def cut(module: Module, number: int, array: Array) -> list[Array]:
    """What each device gets of input `number` where one array for all is given: the array itself, where it has the size that a device takes; its tile of a global array, as the parameter's
    sharding cuts that; its replica's part of an array with one more dimension, the first, for the replicas. A tile that reaches beyond the end of the
    global array is filled up with zeros there, as XLA pads. An array that is none of these comes back as it is."""
    parameter, place, leaf = _leaves(module)[number]
    replicas, partitions = counts(module)
    if array.shape == leaf.dimensions:
        return [array] * (replicas * partitions)
    pieces = _pieces(module, parameter, place, leaf, array.shape)
    if pieces is None:
        return [array] * (replicas * partitions)
    made: dict[Piece, Array] = {}
    for row, starts in dict.fromkeys(pieces):
        windows = tuple(slice(start, start + size) for start, size in zip(starts, leaf.dimensions, strict=True))
        part = (array[row[0]] if row else array)[windows]
        taken = made[row, starts] = np.zeros(leaf.dimensions, array.dtype)
        taken[tuple(map(slice, part.shape))] = part
    return [made[piece] for piece in pieces]


Piece = tuple[tuple[int, ...], tuple[int, ...]]
"""The replica's row in a stack, if it is one, and where the tile begins."""


def _pieces(
    module: Module, parameter: Instruction, place: int, leaf: Shape, sizes: tuple[int, ...]
) -> list[Piece] | None:
    """What each device takes of an array of these sizes; None where it cannot be cut."""
    replicas, partitions = counts(module)
    found = tiling(sharding_of(parameter, place), leaf.rank, partitions) or Tiling((1,) * leaf.rank, (0,) * partitions)
    stacked = len(sizes) == leaf.rank + 1 and sizes[0] == replicas > 1 and not _is_replicated(parameter, place)
    whole = sizes[1:] if stacked else sizes
    if len(whole) != leaf.rank:
        return None
    if whole == leaf.dimensions:
        starts = [(0,) * leaf.rank] * partitions
    elif any(-(-w // n) != size for w, n, size in zip(whole, found.counts, leaf.dimensions, strict=True)):
        return None
    else:
        places = [found.place(p) for p in range(partitions)]
        starts = [tuple(k * size for k, size in zip(at, leaf.dimensions, strict=True)) for at in places]
    return [((r,) if stacked else (), start) for r in range(replicas) for start in starts]


def _leaves(module: Module) -> list[tuple[Instruction, int, Shape]]:
    """(parameter, place among its arrays, shape) of each input."""
    return [
        (parameter, place, leaf)
        for parameter in module.entry.parameters
        for place, leaf in enumerate(parameter.shape.leaves())
        if leaf.is_array
    ]
