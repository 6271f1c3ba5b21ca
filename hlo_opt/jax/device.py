"""A region's program for a GPU as plain data: kernels as machine code, and the steps that a call puts onto a stream one
after the other.

No step waits for the host, so that a call can be captured: loops that the host would have to test are refused. Memory
for values between kernels is a result of the call, behind all others: XLA plans it with its own, and a captured call
keeps it.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from hlo_opt.diag import BackendError
from hlo_opt.ir.values import Array
from hlo_opt.runtime.cupy.device import refuse_large_grids
from hlo_opt.runtime.numpy import to_memory
from hlo_opt.runtime.schedule import Schedule, told_array
from hlo_opt.runtime.schedule.lifetimes import ALIGNMENT, Arena, buffer_bytes, lifetimes
from hlo_opt.runtime.schedule.ops import Alias, Allocate, Branch, Call, Constant, Copy, Free, Launch, Op, Routine

Place = tuple[int, int]
"""The number of an array (inputs, then results, then the memory between if there is any, then constants) and an offset
in bytes."""


class DeviceStep(IntEnum):
    """What a word asks for; `cuda.cpp` has the same."""

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
    """What a schedule does on a device.

    words      the steps: LAUNCH with the kernel's number, how many pointers, and their places; COPY with where to,
               where from and how many bytes; CLEAR with where and how many bytes
    constants  the bytes of all of them
    inputs     bytes of each array that a call is given
    outputs    bytes of each that it makes
    memory     bytes of values between kernels
    pointers   that a kernel takes at most
    """

    kernels: tuple[DeviceKernel, ...]
    words: Array
    constants: Array
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    memory: int
    pointers: int


@dataclass(frozen=True)
class DeviceProgram:
    """Steps, with the machine code of each kernel."""

    steps: Steps
    code: tuple[bytes, ...]

    def packed(self) -> bytes:
        """As bytes, for a file."""
        s = self.steps
        head = {
            "kernels": [[k.symbol, k.grid, k.block, k.cooperative] for k in s.kernels],
            "inputs": s.inputs,
            "outputs": s.outputs,
            "memory": s.memory,
            "pointers": s.pointers,
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
        self.held = self.between + 1
        """The number of the constants, as if there were memory between."""

    def written(self) -> Steps:
        entry = self.schedule.entry
        wishes = {k: (len(self.inputs) + k, 0) for k in range(len(self.outputs))}
        self.routine(entry, [(k, 0) for k in range(len(self.inputs))], wishes)
        words = self.words if self.arena.size else _renumbered(self.words, self.held, self.between)
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
        )  # fmt: skip

    def routine(self, routine: Routine, given: Sequence[Place], wishes: Mapping[int, Place]) -> None:
        """The steps of a routine, with its inputs where they are given; result k is made, or copied, to where it is
        wished."""
        lives = lifetimes(routine.ops, routine.shapes)
        own = {b for made in lives.made for b in made}
        places: dict[int, Place] = dict(zip(routine.inputs, given, strict=True))
        targets: dict[int, int] = {}
        for k, b in enumerate(routine.results):
            root = lives.root[b]
            if root in own and root not in targets and buffer_bytes(routine.shapes[root]):
                targets[root] = k
        for op, made, dead in zip(routine.ops, lives.made, lives.dead, strict=True):
            for b in made:
                size = buffer_bytes(routine.shapes[b])
                places[b] = wishes[targets[b]] if b in targets else (self.between, self.arena.take(size))
            self.op(op, routine, places, lives.root)
            for b in dead:
                if b in places and b in own and b not in targets:
                    self.arena.give_back(places[b][1])
        for k, b in enumerate(routine.results):
            root = lives.root[b]
            size = buffer_bytes(routine.shapes[b])
            if targets.get(root) != k and size:
                self.copy(wishes[k], places[root], size)

    def op(self, op: Op, routine: Routine, places: dict[int, Place], root: Sequence[int]) -> None:
        def at(b: int) -> Place:
            return places[root[b]]

        match op:
            case Launch():
                self.launch(op, [at(b) for b in (*op.inputs, *op.outputs)])
            case Copy():
                self.copy(at(op.outputs[0]), at(op.inputs[0]), buffer_bytes(routine.shapes[op.outputs[0]]))
            case Constant():
                for b, literal in zip(op.outputs, op.literals, strict=True):
                    self.constants += bytes(-len(self.constants) % ALIGNMENT)
                    places[b] = (self.held, len(self.constants))
                    self.constants += to_memory(told_array(op, literal, None), routine.shapes[b]).tobytes() + bytes(4)
            case Branch(selector=None):
                inner = self.schedule.routines[op.branches[0]]
                self.routine(inner, [at(b) for b in op.arguments[0]], dict(enumerate(map(at, op.outputs))))
            case Allocate() | Alias() | Free() | Call(kind="empty"):
                pass  # places are known before anything runs
            case _:
                i = op.instruction
                raise BackendError(f"{i.opcode} {i.name} is no kernel, and needs the host or a library", code="HLO528")

    def launch(self, op: Launch, pointers: list[Place]) -> None:
        kernel = op.kernel
        if not kernel.launch.grid:
            return
        if kernel.kept:  # each launch begins with zeros: calls may overlap on several streams
            meeting = self.arena.take(kernel.kept)
            self.words += [DeviceStep.CLEAR, self.between, meeting, kernel.kept]
            self.arena.give_back(meeting)  # what comes next on the stream may have it
            pointers.append((self.between, meeting))
        self.pointers = max(self.pointers, len(pointers))
        flat = (word for place in pointers for word in place)
        self.words += [DeviceStep.LAUNCH, self.kernels[kernel.symbol], len(pointers), *flat]

    def copy(self, to: Place, source: Place, size: int) -> None:
        if size and to != source:
            self.words += [DeviceStep.COPY, *to, *source, size]


def _renumbered(words: Sequence[int], old: int, new: int) -> list[int]:
    """The steps with another number for one of the arrays."""
    found, at = list(words), 0
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
            found[k] = new if words[k] == old else words[k]
        at = after
    return found
