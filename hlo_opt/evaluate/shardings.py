"""How an array is spread over partitions: what `sharding` says about an array of a parameter.

Source of the forms: xla/hlo/parser/hlo_parser.cc (ParseSharding) and xla/hlo/ir/named_sharding.cc.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from hlo_opt.ir import Attribute, Instruction

_TILES = re.compile(r"devices=\[([\d,]+)\](?:<=\[([\d,]+)\](?:T\(([\d,]+)\))?|([\d,]+))(.*)\}$", re.DOTALL)
_LAST = re.compile(r"last_tile_dims=\{([\w, ]*)\}")
_MESH = re.compile(r"\{mesh\s*\[([^\]]*)\]\s*,?\s*\[([^\]]*)\](?:,\s*(?:replicated|unreduced)=\{[^}]*\})*\}$")
_SIZED = re.compile(r"'([^']*)'\s*=\s*(\d+)")


@dataclass(frozen=True)
class Tiling:
    """An array cut into `counts` tiles along its dimensions. `tiles` says which of them, counted in row-major order, each partition holds."""

    counts: tuple[int, ...]
    tiles: tuple[int, ...]

    def place(self, partition: int) -> tuple[int, ...]:
        """Where a partition's tile is, counted in tiles along each dimension."""
        return tuple(int(k) for k in np.unravel_index(self.tiles[partition], self.counts)) if self.counts else ()


def sharding_of(parameter: Instruction, place: int) -> str:
    """The sharding of one array of a parameter; of a tuple, `{{..}, {..}}`, the one at its place. Empty where there is none."""
    found = parameter.attributes.get("sharding")
    text = found.text.strip() if isinstance(found, Attribute) else ""
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


def tiling(sharding: str, rank: int, partitions: int) -> Tiling | None:
    """What a sharding says; None for no sharding, for one that does not cut the array (`manual`, `unknown`, ...) and for one that does not fit `rank` or `partitions`."""
    if sharding.startswith(("{replicated", "{maximal")):
        return Tiling((1,) * rank, (0,) * partitions)
    mesh = _MESH.match(sharding)
    if mesh is not None:
        return _of_mesh(dict(_SIZED.findall(mesh[1])), mesh[2], rank, partitions)
    found = _TILES.search(sharding)
    if found is None:
        return None
    sizes, iota, order, listed, rest = found.groups()
    dimensions = _numbers(sizes)
    if listed is not None:
        devices = np.array(_numbers(listed))
    else:
        base, axes = _numbers(iota), _numbers(order or "")
        if math.prod(base) != partitions or (order is not None and sorted(axes) != list(range(len(base)))):
            return None
        devices = np.arange(partitions).reshape(base).transpose(axes or None)
    last = _LAST.search(rest)
    kept = len(dimensions) - (len(last[1].split(",")) if last else int("last_tile_dim_replicate" in rest))
    if kept != rank or math.prod(dimensions) != partitions:
        return None
    return _assigned(tuple(dimensions[:rank]), devices.reshape(-1).tolist(), partitions)


def _of_mesh(axes: dict[str, str], dimensions: str, rank: int, partitions: int) -> Tiling | None:
    """`mesh['x'=2,'y'=2], [{'x'}, {}]`: the axes along which each dimension is cut, the slowest first."""
    cut = [re.findall(r"'([^']*)'", part) for part in re.findall(r"\{([^}]*)\}", dimensions)]
    used = [name for names in cut for name in names]
    sizes = {name: int(size) for name, size in axes.items()}
    if ":" in dimensions or len(cut) != rank or not set(used) <= set(sizes) or len(set(used)) < len(used):
        return None
    if math.prod(sizes.values()) != partitions:
        return None
    names = list(sizes)
    order = [names.index(name) for name in [*used, *(n for n in names if n not in used)]]
    devices = np.arange(partitions).reshape([*sizes.values()]).transpose(order)
    counts = tuple(math.prod(sizes[name] for name in part) for part in cut)
    return _assigned(counts, devices.reshape(-1).tolist(), partitions)


def _assigned(counts: tuple[int, ...], devices: list[int], partitions: int) -> Tiling | None:
    """Tiles in row-major order, each held by as many partitions as there are copies of it."""
    if sorted(devices) != list(range(partitions)):
        return None
    copies = partitions // math.prod(counts)
    tiles = [0] * partitions
    for place, device in enumerate(devices):
        tiles[device] = place // copies
    return Tiling(counts, tuple(tiles))


def _numbers(text: str) -> list[int]:
    return [int(n) for n in text.split(",") if n]
