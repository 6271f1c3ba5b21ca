"""The launches of a stretch by the addresses of its buffers, without an array for any of them: what depends on
addresses alone is written into the parameters of all kernels at once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from hlo_opt.codegen.kernel import Kernel
from hlo_opt.ir.values import Array
from hlo_opt.runtime.cupy.capture import address
from hlo_opt.runtime.schedule.lifetimes import buffer_bytes
from hlo_opt.runtime.schedule.ops import CallOp, Copy, LaunchOp
from hlo_opt.runtime.schedule.stretch import BoundLaunch, PlacingDevice, Start, Stretch


@dataclass(frozen=True, slots=True)
class AddressedMemory:
    """Memory by address and bytes: as much of an array as launches, copies and products need."""

    ptr: int
    nbytes: int

    @property
    def data(self) -> AddressedMemory:
        """Itself, as an array has its pointer."""
        return self


_Offset = tuple[int, int, int]
"""The number of an address, the bytes from there to a buffer, and the buffer's bytes."""


class AddressedLaunches:
    """The launches of a stretch for any addresses of its existing buffers, of those that it keeps, and of its block, in
    this order."""

    def __init__(self, device: PlacingDevice, stretch: Stretch) -> None:
        self.device = device
        number = {b: n for n, b in enumerate((*stretch.existing, *stretch.kept))}
        block, shapes = len(number), stretch.routine.shapes

        def offset(b: int) -> _Offset:
            root, size = stretch.root[b], buffer_bytes(shapes[b])
            return (number[root], 0, size) if root in number else (block, stretch.offsets[root], size)

        self._work: list[tuple[Kernel | CallOp | None, list[_Offset], list[_Offset]]] = []
        for op in stretch.work:
            inputs, outputs = [offset(b) for b in op.inputs], [offset(b) for b in op.outputs]
            if not isinstance(op, Copy) or inputs[0][:2] != outputs[0][:2]:
                work = op.kernel if isinstance(op, LaunchOp) else op if isinstance(op, CallOp) else None
                self._work.append((work, inputs, outputs))
        self._names: list[BoundLaunch] = [(work, [], []) for work, _, _ in self._work]
        self._meeting = [w for w, _, _ in self._work if isinstance(w, Kernel) and w.kept and w.launch.grid]
        self._lock = threading.Lock()  # of the parameters, which one call after another writes and launches
        self._starts = self._prepared(block + 1)

    def _prepared(self, first: int) -> list[Start | None]:
        """The start of each kernel; None for copies and calls. Kernels read their parameters from one array, for which
        `_sources` are the numbers of addresses, kept memory (from `first` on) and a 0, and `_offsets` what to add."""
        parameters: list[tuple[int, int]] = []
        ends = []
        zero, kept = first + len(self._meeting), first
        for work, inputs, outputs in self._work:
            if isinstance(work, Kernel):
                parameters += [(n, offset) for n, offset, _ in (*inputs, *outputs)]
                if work.kept and work.launch.grid:
                    parameters.append((kept, 0))
                    kept += 1
                if work.size:
                    parameters.append((zero, work.size))
            ends.append(len(parameters))
        self._sources = np.array([n for n, _ in parameters], np.intp)
        self._offsets = np.array([offset for _, offset in parameters], np.uint64)
        self._parameters = np.zeros(len(parameters), np.uint64)
        begins = [0, *ends]
        return [
            self.device.start_at(work, self._parameters[begin:end]) if isinstance(work, Kernel) else None
            for (work, _, _), begin, end in zip(self._work, begins, ends, strict=False)
        ]

    def __len__(self) -> int:
        return len(self._work)

    def _bound(self, number: int, addresses: Sequence[int]) -> BoundLaunch:
        work, inputs, outputs = self._work[number]
        of = [[AddressedMemory(addresses[n] + offset, size) for n, offset, size in part] for part in (inputs, outputs)]
        return work, cast("list[Array]", of[0]), cast("list[Array]", of[1])

    def bound(self, addresses: Sequence[int]) -> list[BoundLaunch]:
        """The launches, to be captured."""
        return [self._bound(number, addresses) for number in range(len(self._work))]

    def start(self, addresses: Sequence[int]) -> None:
        """Start them in order, on the current stream. Raises BackendError that names the kernel or call that fails."""
        device = self.device
        with self._lock:
            meeting = [address(device.kept_by(kernel)) for kernel in self._meeting]
            table = np.array((*addresses, *meeting, 0), np.uint64)
            np.add(table[self._sources], self._offsets, out=self._parameters)
            starts = [
                device.start_of(self._bound(number, addresses)) if start is None else start
                for number, start in enumerate(self._starts)
            ]
            device.start_all(starts, self._names)
