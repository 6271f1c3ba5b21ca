"""Run a module on several simulated devices, and make their inputs: drawn, or cut from global arrays.

Every device runs in its own thread, but only one at a time: until it waits at a collective or ends. Then the lowest
numbered device that can continue runs, so a run is deterministic. When none can continue and some have not ended, the
devices have diverged, and the run stops with an error that names where each one waits.

Devices share drawn inputs as the module requires. With loops or branches in the module, scalars are equal on all
devices, since bounds and steps must be. A parameter that is sharded or replicated over partitions (`sharding`) is equal
where partitions hold the same tile; one replicated over replicas (`parameter_replication`) is equal on all replicas.
Otherwise each device gets its own.
Source of the forms: xla/hlo/parser/hlo_parser.cc (ParseParameterReplication, ParseSharding) and
xla/hlo/ir/named_sharding.cc.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from hlo_opt.diag import EvaluationError
from hlo_opt.evaluate.elided import Elided, with_values
from hlo_opt.evaluate.inputs import PLAIN, Style, as_numpy, checked, flatten, module_inputs, unflatten
from hlo_opt.evaluate.interpreter import Interpreter, Stopped
from hlo_opt.evaluate.memory import check_memory, inputs_bytes
from hlo_opt.evaluate.nans import NanCheck, ValueChange, Watcher, watching
from hlo_opt.evaluate.program import Effects, error
from hlo_opt.evaluate.threads import bounded_libraries
from hlo_opt.ir import Attribute, Instruction, Module, Shape
from hlo_opt.ir.values import Array
from hlo_opt.ops.collective.module_devices import check_devices, counts
from hlo_opt.ops.values import Value

_TILES = re.compile(r"devices=\[([\d,]+)\](?:<=\[([\d,]+)\](?:T\(([\d,]+)\))?|([\d,]+))(.*)\}$", re.DOTALL)
_LAST = re.compile(r"last_tile_dims=\{([\w, ]*)\}")
_MESH = re.compile(r"\{mesh\s*\[([^\]]*)\]\s*,?\s*\[([^\]]*)\](?:,\s*(?:replicated|unreduced)=\{[^}]*\})*\}$")
_SIZED = re.compile(r"'([^']*)'\s*=\s*(\d+)")


@dataclass(frozen=True)
class Tiling:
    """An array split into `counts` tiles per dimension. `tiles[p]` is the row-major number of the tile on partition
    p."""

    counts: tuple[int, ...]
    tiles: tuple[int, ...]

    def place(self, partition: int) -> tuple[int, ...]:
        """The position of a partition's tile, counted in tiles along each dimension."""
        return tuple(int(k) for k in np.unravel_index(self.tiles[partition], self.counts)) if self.counts else ()


def sharding_of(parameter: Instruction, place: int) -> str:
    """The sharding text of one array of a parameter (element `place` of a tuple sharding `{{..}, {..}}`), or ""."""
    attribute = parameter.attributes.get("sharding")
    text = attribute.text.strip() if isinstance(attribute, Attribute) else ""
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
    """Parse a sharding. None where it is "", does not split the array (`manual`, `unknown`, ...) or does not fit the
    arguments."""
    if sharding.startswith(("{replicated", "{maximal")):
        return Tiling((1,) * rank, (0,) * partitions)
    mesh = _MESH.match(sharding)
    if mesh is not None:
        return _of_mesh(dict(_SIZED.findall(mesh[1])), mesh[2], rank, partitions)
    match = _TILES.search(sharding)
    if match is None:
        return None
    sizes, iota, order, listed, rest = match.groups()
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
    """The tiling of `mesh['x'=2,'y'=2], [{'x'}, {}]`: each dimension is split along the named axes, major first."""
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
    """The tiling for devices listed in row-major tile order, with equally many copies of each tile."""
    if sorted(devices) != list(range(partitions)):
        return None
    copies = partitions // math.prod(counts)
    tiles = [0] * partitions
    for place, device in enumerate(devices):
        tiles[device] = place // copies
    return Tiling(counts, tuple(tiles))


def _numbers(text: str) -> list[int]:
    return [int(n) for n in text.split(",") if n]


def device_inputs(module: Module, seed: int = 0, *, style: Style = PLAIN) -> list[list[Array]]:
    """Random inputs for every device, determined by the seed; those of device 0 equal `module_inputs(module, seed)`."""
    replicas, partitions = counts(module)
    drawn: dict[int, list[Array]] = {}
    inputs: list[list[Array]] = [[] for _ in range(replicas * partitions)]
    chooses = any(i.opcode in ("while", "conditional") for c in module.computations for i in c.instructions)
    for device, own in enumerate(inputs):
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
    return inputs


def _leader(parameter: Instruction, place: int, leaf: Shape, device: int, partitions: int) -> int:
    """The first device that shares its numbers for one array of a parameter."""
    replica, partition = divmod(device, partitions)
    if _is_replicated(parameter, place):
        replica = 0
    tiles = tiling(sharding_of(parameter, place), leaf.rank, partitions)
    return replica * partitions + (partition if tiles is None else tiles.tiles.index(tiles.tiles[partition]))


def _is_replicated(parameter: Instruction, place: int) -> bool:
    """Whether an array is equal on all replicas: `parameter_replication={true,false}` has a flag per array, or one for
    all."""
    attribute = parameter.attributes.get("parameter_replication")
    flags = re.findall(r"true|false", attribute.text if isinstance(attribute, Attribute) else "")
    return bool(flags) and flags[place if place < len(flags) else -1] == "true"


def spread(module: Module, inputs: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The inputs of each device, from one list per device, or from one list for all, which may hold global arrays: see
    `cut`.

    Raises EvaluationError (HLO401) for another number of lists.
    """
    devices = math.prod(counts(module))
    if len(inputs) == devices > 1:
        return [list(own) for own in inputs]
    if len(inputs) != 1:
        raise EvaluationError(
            f"the module runs on {devices} devices, but inputs for {len(inputs)} are given", code="HLO401"
        )
    if devices == 1 or len(inputs[0]) != len(_leaves(module)):
        return [list(inputs[0])] * devices
    by_device: list[list[Any]] = [[] for _ in range(devices)]
    for number, value in enumerate(inputs[0]):
        sizes = getattr(value, "shape", None)
        is_whole = isinstance(sizes, tuple) and is_global(module, number, sizes)
        pieces = cut(module, number, as_numpy(value)) if is_whole else [value] * devices
        for own, piece in zip(by_device, pieces, strict=True):
            own.append(piece)
    return by_device


def is_global(module: Module, number: int, sizes: tuple[int, ...]) -> bool:
    """Whether an array of these sizes is global rather than one device's own: see `cut`."""
    parameter, place, leaf = _leaves(module)[number]
    return sizes != leaf.dimensions and _pieces(module, parameter, place, leaf, sizes) is not None


def global_forms(module: Module, number: int) -> str:
    """A description of the global arrays that a device's input may be cut from; "" if there are none."""
    parameter, place, leaf = _leaves(module)[number]
    replicas, partitions = counts(module)
    tiles = tiling(sharding_of(parameter, place), leaf.rank, partitions)
    forms = []
    if tiles is not None and math.prod(tiles.counts) > 1:
        whole = [n * size for n, size in zip(tiles.counts, leaf.dimensions, strict=True)]
        forms.append(f"[{','.join(map(str, whole))}], which its sharding splits")
    if replicas > 1 and not _is_replicated(parameter, place):
        forms.append(f"[{','.join(map(str, (replicas, *leaf.dimensions)))}], one for each replica")
    return " or ".join(forms)


def cut(module: Module, number: int, array: Array) -> list[Array]:
    """The part of input `number` for each device, if the caller passes one array for all.

    An array of the parameter's own size goes to every device. A global array is split as the parameter's sharding says.
    An array with an additional first dimension of the number of replicas is split among them. Tiles that extend beyond
    the global array are padded with zeros, as in XLA. Any other array is returned unchanged for every device.
    """
    parameter, place, leaf = _leaves(module)[number]
    replicas, partitions = counts(module)
    if array.shape == leaf.dimensions:
        return [array] * (replicas * partitions)
    pieces = _pieces(module, parameter, place, leaf, array.shape)
    if pieces is None:
        return [array] * (replicas * partitions)
    parts: dict[DevicePiece, Array] = {}
    for row, starts in dict.fromkeys(pieces):
        windows = tuple(slice(start, start + size) for start, size in zip(starts, leaf.dimensions, strict=True))
        part = (array[row[0]] if row else array)[windows]
        tile = parts[row, starts] = np.zeros(leaf.dimensions, array.dtype)
        tile[tuple(map(slice, part.shape))] = part
    return [parts[piece] for piece in pieces]


DevicePiece = tuple[tuple[int, ...], tuple[int, ...]]
"""The replica's row in a stacked array (empty if it is not stacked), and the tile's start indices."""


def _pieces(
    module: Module, parameter: Instruction, place: int, leaf: Shape, sizes: tuple[int, ...]
) -> list[DevicePiece] | None:
    """The part of an array of these sizes that each device takes; None where it cannot be split."""
    replicas, partitions = counts(module)
    tiles = tiling(sharding_of(parameter, place), leaf.rank, partitions) or Tiling((1,) * leaf.rank, (0,) * partitions)
    stacked = len(sizes) == leaf.rank + 1 and sizes[0] == replicas > 1 and not _is_replicated(parameter, place)
    whole = sizes[1:] if stacked else sizes
    if len(whole) != leaf.rank:
        return None
    if whole == leaf.dimensions:
        starts = [(0,) * leaf.rank] * partitions
    elif any(-(-w // n) != size for w, n, size in zip(whole, tiles.counts, leaf.dimensions, strict=True)):
        return None
    else:
        places = [tiles.place(p) for p in range(partitions)]
        starts = [tuple(k * size for k, size in zip(at, leaf.dimensions, strict=True)) for at in places]
    return [((r,) if stacked else (), start) for r in range(replicas) for start in starts]


def _leaves(module: Module) -> list[tuple[Instruction, int, Shape]]:
    """(parameter, number among its arrays, shape) of each input."""
    return [
        (parameter, place, leaf)
        for parameter in module.entry.parameters
        for place, leaf in enumerate(parameter.shape.leaves())
        if leaf.is_array
    ]


T = TypeVar("T")

GRACE = 0.5
"""Seconds that the threads of a failed run get to end."""


class Player(Protocol):
    """Runs the program of a device. Once `stopped` is set, it raises `Stopped` soon."""

    stopped: bool


@dataclass(eq=False)
class SimulatedDevice:
    """A device of a run.

    `player` runs its program, where that can be stopped; `ready` is set while it may run. `turns` counts the
    collectives that it has reached, by group.
    """

    replica: int
    partition: int
    replicas: int
    partitions: int
    run: _Run
    player: Player | None = None
    ready: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    waits: tuple[Any, ...] | None = None
    at: Instruction | None = None
    ended: bool = False
    turns: dict[tuple[int, ...], int] = field(default_factory=dict)

    @property
    def number(self) -> int:
        return self.replica * self.partitions + self.partition

    def exchange(
        self, instruction: Instruction, values: Sequence[Value], group: Sequence[int]
    ) -> list[Sequence[Value]]:
        members = tuple(group)
        if any(not 0 <= member < len(self.run.devices) for member in members):
            raise ValueError(f"the group {list(members)} names devices beyond the {len(self.run.devices)} of this run")
        if len(set(members)) != len(members):
            raise ValueError(f"the group {list(members)} names a device twice")
        if self.number not in members:
            return []
        turn = self.turns.get(members, 0)
        self.turns[members] = turn + 1
        return self.run.meet(self, instruction, (members, turn), values)


class _Run:
    """The devices of a run, and the values at collectives that some members have not reached yet."""

    def __init__(self, replicas: int, partitions: int) -> None:
        self.devices = [
            SimulatedDevice(r, p, replicas, partitions, self) for r in range(replicas) for p in range(partitions)
        ]
        self.meetings: dict[tuple[Any, ...], dict[int, tuple[Instruction, Sequence[Value]]]] = {}
        self.left: dict[tuple[Any, ...], int] = {}
        self.back = threading.Semaphore(0)
        self.failure: BaseException | None = None

    def meet(
        self, device: SimulatedDevice, instruction: Instruction, key: tuple[Any, ...], values: Sequence[Value]
    ) -> list[Sequence[Value]]:
        """Bring values to a collective. Blocks until all members have; returns what they brought, in group order."""
        brought = self.meetings.setdefault(key, {})
        brought[device.number] = (instruction, values)
        members = key[0]
        if len(brought) < len(members):
            device.waits, device.at = key, instruction
            self.back.release()
            device.ready.acquire()
            device.waits = device.at = None
            if self.failure is not None:
                raise Stopped
        other = next((first for first, _ in brought.values() if not _same(first, instruction)), None)
        if other is not None:
            raise error(instruction, f"other devices of its group are at {other.opcode} {other.name}", code="HLO405")
        received = [brought[member][1] for member in members]
        self.left[key] = self.left.get(key, 0) + 1
        if self.left[key] == len(members):
            del self.meetings[key], self.left[key]
        return received

    def can_go_on(self, device: SimulatedDevice) -> bool:
        if device.ended:
            return False
        return device.waits is None or len(self.meetings[device.waits]) == len(device.waits[0])

    def drive(self) -> None:
        """Run the devices in turn until all have ended or one has failed. Raises EvaluationError when they deadlock."""
        try:
            while self.failure is None and not all(device.ended for device in self.devices):
                device = next((d for d in self.devices if self.can_go_on(d)), None)
                if device is None:
                    self.failure = self._stuck()
                    break
                device.ready.release()
                self.back.acquire()
        except BaseException as fault:  # Ctrl-C: the running device ends at its next call, all others at once
            self.failure = self.failure or fault
            raise
        finally:
            for device in self.devices:
                if device.player is not None:
                    device.player.stopped = self.failure is not None
                device.ready.release()

    def _stuck(self) -> EvaluationError:
        waiting = [d for d in self.devices if d.at is not None]
        places = ", ".join(f"device {d.number} at {d.at.name}" for d in waiting[:8] if d.at is not None)
        ended = [str(d.number) for d in self.devices if d.ended]
        ended_text = f"; ended: {', '.join(ended[:8])}" if ended else ""
        assert waiting and waiting[0].at is not None
        return error(
            waiting[0].at,
            f"the devices wait for each other: {places}{ended_text}",
            hint="every device of a group must reach the same collectives in the same order",
            code="HLO405",
        )


def play(module: Module, work: Callable[[SimulatedDevice], T]) -> list[T]:
    """The result of `work` for each device of a module, ordered by number: replica * partitions + partition.

    Each device works in its own thread, one at a time. Raises what any of them raises; EvaluationError for too many
    devices (HLO402), and when they deadlock or meet in different collectives (HLO405).
    """
    check_devices(module)
    run = _Run(*counts(module))
    results: dict[int, T] = {}

    def begin(device: SimulatedDevice) -> None:
        device.ready.acquire()
        try:
            if run.failure is None:
                results[device.number] = work(device)
        except Stopped:
            pass
        except BaseException as fault:  # raised again in the caller's thread
            run.failure = run.failure or fault
        finally:
            device.ended = True
            device.player = None
            run.back.release()

    threads = [threading.Thread(target=begin, args=(device,), daemon=True) for device in run.devices]
    for thread in threads:
        thread.start()
    try:
        run.drive()
    finally:
        for thread in threads:  # after Ctrl-C, a thread in a long NumPy call is abandoned
            thread.join(None if run.failure is None else GRACE / len(threads))
    if run.failure is not None:
        raise run.failure
    return [results[device.number] for device in run.devices]


def _same(left: Instruction, right: Instruction) -> bool:
    return left is right or (left.name == right.name and left.opcode == right.opcode)


@bounded_libraries()
def evaluate_devices(
    module: Module,
    inputs: Sequence[Sequence[Value]],
    *,
    watch: Watcher | None = None,
    check_nans: bool = False,
    max_steps: int | None = None,
    memory_limit: int | None = None,
    effects: Effects | None = None,
    elided: Elided = None,
    change: ValueChange | None = None,
) -> list[list[Array]]:
    """The entry's results on every simulated device, ordered by number: replica * partitions + partition.

    inputs        per device what `evaluate` takes: one array per array of the entry's parameters. A single list goes to
                  all devices; its arrays may be global, to be split by the parameters' shardings
    watch         as for `evaluate`; events carry the device
    check_nans    as for `evaluate`
    max_steps     the most loop iterations per device, all loops together; None: no limit
    memory_limit  the most bytes that all devices may hold at once, inputs and outputs included; checked before anything
                  is computed; None: no limit
    effects       as for `evaluate`; occurrences carry the device
    elided        as for `evaluate`
    change        called with every value on every device; returns the value to continue with: see `Interpreter`

    Raises EvaluationError as `evaluate` does; for another number of input lists than devices (HLO401); for too many
    devices (HLO402); when devices deadlock or meet in different collectives (HLO405). CheckError as `evaluate` does.
    """
    module = with_values(module, elided)
    number = check_devices(module)
    own = spread(module, inputs)
    is_shared = len(inputs) == 1 and all(a is b for some in own for a, b in zip(own[0], some, strict=True))
    check_memory(module, memory_limit, devices=number, inputs=inputs_bytes(module) if is_shared else None)
    arrays = [checked(module, some) for some in own]
    watcher = watching(watch, NanCheck() if check_nans else None)

    def work(device: SimulatedDevice) -> list[Array]:
        device.player = interpreter = Interpreter(
            watch=watcher, max_steps=max_steps, device=device, effects=effects, change=change
        )
        value = interpreter.call(
            module.entry, unflatten([p.shape for p in module.entry.parameters], arrays[device.number])
        )
        return [np.array(array, order="C") for array in flatten(value)]

    return play(module, work)
