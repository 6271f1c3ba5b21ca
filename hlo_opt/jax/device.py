"""A region's program for a GPU as plain data: kernels as machine code, and the steps that a call enqueues on a stream.

No step waits for the host, so that a call can be captured in a CUDA graph; loops that the host would have to test are
refused. Memory for intermediate values is the last result of the call: XLA allocates it with its own buffers, and a
captured call keeps it.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType

import numpy as np

from hlo_opt.diag import BackendError
from hlo_opt.ir.values import Array
from hlo_opt.runtime.cupy.device import refuse_large_grids
from hlo_opt.runtime.numpy import to_memory
from hlo_opt.runtime.schedule import Schedule, constant_array
from hlo_opt.runtime.schedule.lifetimes import ALIGNMENT, Arena, buffer_bytes, lifetimes
from hlo_opt.runtime.schedule.ops import (
    AliasOp,
    Allocate,
    BranchOp,
    CallOp,
    ConstantOp,
    Copy,
    Free,
    LaunchOp,
    Op,
    Routine,
)
from hlo_opt.text.aliases import aliased_leaves

ArrayOffset = tuple[int, int]
"""The number of an array, and an offset in bytes. Arrays are the inputs, the results, the intermediate memory if there
is any, and the constants."""


class DeviceStep(IntEnum):
    """The operations of steps; `cuda.cpp` has the same numbers."""

    LAUNCH = 0
    COPY = 1
    CLEAR = 2


@dataclass(frozen=True)
class DeviceKernel:
    """A kernel: its name and its launch, one-dimensional."""

    symbol: str
    grid: int
    block: int
    cooperative: bool


@dataclass(frozen=True)
class Steps:
    """A schedule as steps on a device.

    words      the steps: LAUNCH, kernel number, number of pointers, their places; COPY, destination, source, bytes;
               CLEAR, place, bytes
    constants  the bytes of all constants
    inputs     bytes of each input
    outputs    bytes of each result
    memory     bytes of the intermediate memory
    pointers   the largest number of pointers of a kernel
    held       for each input, the number of the result that shares its memory (`input_output_alias`), or -1
    """

    kernels: tuple[DeviceKernel, ...]
    words: Array
    constants: Array
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    memory: int
    pointers: int
    held: tuple[int, ...]


@dataclass(frozen=True)
class DeviceProgram:
    """Steps, with the machine code of each kernel."""

    steps: Steps
    code: tuple[bytes, ...]

    def packed(self) -> bytes:
        """The program as bytes, for a file."""
        s = self.steps
        head = {
            "kernels": [[k.symbol, k.grid, k.block, k.cooperative] for k in s.kernels],
            "inputs": s.inputs,
            "outputs": s.outputs,
            "memory": s.memory,
            "pointers": s.pointers,
            "held": s.held,
        }
        arrays = {f"code{k}": np.frombuffer(c, np.uint8) for k, c in enumerate(self.code)}
        file = io.BytesIO()
        first = np.frombuffer(json.dumps(head).encode(), np.uint8)
        np.savez(file, allow_pickle=False, head=first, words=s.words, constants=s.constants, **arrays)
        return file.getvalue()

    @classmethod
    def unpacked(cls, data: bytes) -> DeviceProgram:
        """The opposite of `packed`. Raises ValueError for other bytes."""
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
            head = json.loads(arrays["head"].tobytes())
            kernels = tuple(DeviceKernel(str(n), int(g), int(b), bool(c)) for n, g, b, c in head["kernels"])
            steps = Steps(
                kernels,
                arrays["words"],
                arrays["constants"],
                tuple(map(int, head["inputs"])),
                tuple(map(int, head["outputs"])),
                int(head["memory"]),
                int(head["pointers"]),
                tuple(map(int, head["held"])),
            )
            return cls(steps, tuple(arrays[f"code{k}"].tobytes() for k in range(len(kernels))))
        except (KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as fault:
            raise ValueError(f"no program for a device: {fault}") from fault


def steps_of(schedule: Schedule) -> Steps:
    """The steps of a schedule. Raises BackendError (HLO528) for one that needs a library, or the host between its
    kernels, and (HLO525) for a launch of more blocks than a GPU takes."""
    refuse_large_grids(schedule, "backend cuda", "split the array")
    return _Writer(schedule).written()


class _Writer:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.kernels = {kernel.symbol: number for number, kernel in enumerate(schedule.kernels)}
        self.arena = Arena()
        self.words: list[int] = []
        self.pointers = 1
        self.constants = bytearray()
        entry = schedule.entry
        self.inputs = tuple(buffer_bytes(entry.shapes[b]) for b in entry.inputs)
        self.outputs = tuple(buffer_bytes(entry.shapes[b]) for b in entry.results)
        self.between = len(self.inputs) + len(self.outputs)
        self.held = aliased_leaves(schedule.module)
        self.constants_number = self.between + 1
        """The array number of the constants if there is intermediate memory."""

    def written(self) -> Steps:
        entry = self.schedule.entry
        targets = {k: (len(self.inputs) + k, 0) for k in range(len(self.outputs))}
        self.routine(entry, [(k, 0) for k in range(len(self.inputs))], targets, self.held)
        words = self.words if self.arena.size else _renumbered(self.words, self.constants_number, self.between)
        return Steps(
            tuple(
                DeviceKernel(k.symbol, k.launch.grid, k.launch.block, k.launch.cooperative)
                for k in self.schedule.kernels
            ),
            np.array(words, np.int64),
            np.frombuffer(bytes(self.constants), np.uint8),
            self.inputs,
            self.outputs,
            self.arena.size,
            self.pointers,
            tuple(self.held.get(k, -1) for k in range(len(self.inputs))),
        )  # fmt: skip

    def routine(
        self,
        routine: Routine,
        inputs: Sequence[ArrayOffset],
        targets: Mapping[int, ArrayOffset],
        held: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        """Writes the steps of a routine whose inputs are at `inputs`; result k is computed, or copied, to `targets[k]`
        if there is such a key. `held`: by input, the result whose target has its memory. Such a result is made there
        where the routine does that; else it is computed elsewhere, and copied when nothing reads the input any more."""
        places_of_held = {k: inputs[number] for number, k in held.items()}
        lives = lifetimes(routine.ops, routine.shapes)
        created = {b for created_by_op in lives.born for b in created_by_op}
        places: dict[int, ArrayOffset] = dict(zip(routine.inputs, inputs, strict=True))
        result_of: dict[int, int] = {}
        for k, b in enumerate(routine.results):
            root = lives.root[b]
            if (
                k not in held.values()
                and root in created
                and root not in result_of
                and buffer_bytes(routine.shapes[root])
            ):
                result_of[root] = k
        for op, created_by_op, dead in zip(routine.ops, lives.born, lives.dead, strict=True):
            for b in created_by_op:
                size = buffer_bytes(routine.shapes[b])
                places[b] = targets[result_of[b]] if b in result_of else (self.between, self.arena.take(size))
            self.op(op, routine, places, lives.root)
            for b in dead:
                if b in places and b in created and b not in result_of:
                    self.arena.give_back(places[b][1])
        copies = []
        for k, b in enumerate(routine.results):
            source = places[lives.root[b]]
            if result_of.get(lives.root[b]) == k or places_of_held.get(k) == source:
                continue
            if k in places_of_held and source in inputs:
                raise BackendError("a result that shares memory with an input is another input", code="HLO528")
            copies.append((targets[k], source, buffer_bytes(routine.shapes[b])))
        for to, source, size in sorted(copies, key=lambda c: c[1] not in inputs):  # inputs before they are overwritten
            self.copy(to, source, size)

    def op(self, op: Op, routine: Routine, places: dict[int, ArrayOffset], root: Sequence[int]) -> None:
        def at(b: int) -> ArrayOffset:
            return places[root[b]]

        match op:
            case LaunchOp():
                self.launch(op, [at(b) for b in (*op.inputs, *op.outputs)])
            case Copy():
                self.copy(at(op.outputs[0]), at(op.inputs[0]), buffer_bytes(routine.shapes[op.outputs[0]]))
            case ConstantOp():
                for b, literal in zip(op.outputs, op.literals, strict=True):
                    self.constants += bytes(-len(self.constants) % ALIGNMENT)
                    places[b] = (self.constants_number, len(self.constants))
                    self.constants += to_memory(constant_array(op, literal, None), routine.shapes[b]).tobytes() + bytes(
                        4
                    )
            case BranchOp(selector=None):
                inner = self.schedule.routines[op.branches[0]]
                self.routine(inner, [at(b) for b in op.arguments[0]], dict(enumerate(map(at, op.outputs))))
            case Allocate() | AliasOp() | Free() | CallOp(kind="empty"):
                pass  # all places are static
            case _:
                i = op.instruction
                raise BackendError(f"{i.opcode} {i.name} is no kernel, and needs the host or a library", code="HLO528")

    def launch(self, op: LaunchOp, pointers: list[ArrayOffset]) -> None:
        kernel = op.kernel
        if not kernel.launch.grid:
            return
        if kernel.kept:  # cleared before each launch, because calls may overlap on several streams
            meeting = self.arena.take(kernel.kept)
            self.words += [DeviceStep.CLEAR, self.between, meeting, kernel.kept]
            self.arena.give_back(meeting)  # later steps on the stream may reuse it
            pointers.append((self.between, meeting))
        self.pointers = max(self.pointers, len(pointers))
        flat = (word for place in pointers for word in place)
        self.words += [DeviceStep.LAUNCH, self.kernels[kernel.symbol], len(pointers), *flat]

    def copy(self, to: ArrayOffset, source: ArrayOffset, size: int) -> None:
        if size and to != source:
            self.words += [DeviceStep.COPY, *to, *source, size]


def _renumbered(words: Sequence[int], old: int, new: int) -> list[int]:
    """The steps with the number of one array changed from `old` to `new`."""
    result, at = list(words), 0
    while at < len(words):
        match words[at]:
            case DeviceStep.LAUNCH:
                arrays = range(at + 3, at + 3 + 2 * words[at + 2], 2)
                after = arrays.stop
            case DeviceStep.COPY:
                arrays, after = range(at + 1, at + 5, 2), at + 6
            case _:
                arrays, after = range(at + 1, at + 3, 2), at + 4
        for k in arrays:
            result[k] = new if words[k] == old else words[k]
        at = after
    return result
