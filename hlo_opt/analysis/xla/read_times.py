"""What a kernel spends reading its operands, kept up while the kernel grows: a producer that moves in changes the reads of its own operands only.

Source: xla/service/gpu/model/gpu_performance_model_base.cc.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.analysis.xla.timing import read_ns
from hlo_opt.ir import Instruction

TUPLE_WIDTH = 4
"""Bytes that a tuple counts as where reads jump."""


@dataclass(frozen=True, slots=True)
class ReadTotal:
    """Of several operands. Times are whole quarters of a nanosecond, so that sums do not depend on the order in which they were made."""

    quarters: int
    bytes: int


class ReadTimes:
    """Of each operand of a kernel that is launched with so many blocks. `coalesced`: neighbouring threads read neighbouring elements."""

    def __init__(self, reads: Mapping[Instruction, int], blocks: int, coalesced: bool, target: DeviceTarget) -> None:
        self._blocks = blocks
        self._coalesced = coalesced
        self._target = target
        self.bytes: dict[Instruction, int] = {}
        self.quarters: dict[Instruction, int] = {}
        self._sum = self._size = 0
        self._known: dict[tuple[int, int, int], int] = {}
        """Times by bytes of the operand, bytes read and the size of an element: operands are often alike."""
        for operand, size in reads.items():
            self.put(operand, size)

    def one(self, operand: Instruction, size: int) -> int:
        """Quarters of a nanosecond that reading so many bytes of an operand takes."""
        shape = operand.shape
        width = 0
        if not self._coalesced:
            width = (shape.type.bytes or 1) if shape.is_array else TUPLE_WIDTH
        key = (shape.byte_size, size, width)
        found = self._known.get(key)
        if found is None:
            net = min(shape.byte_size, size)
            share = width / self._target.dram_transaction_bytes if width else 1.0
            found = self._known[key] = int(4 * read_ns(net, size, share, self._blocks, self._target))
        return found

    def put(self, operand: Instruction, size: int) -> None:
        """So many bytes of an operand are read from now on."""
        self.drop(operand)
        taken = self.one(operand, size)
        self.bytes[operand], self.quarters[operand] = size, taken
        self._size += size
        self._sum += taken

    def drop(self, operand: Instruction) -> None:
        """An operand is not read any more."""
        if operand in self.bytes:
            self._size -= self.bytes.pop(operand)
            self._sum -= self.quarters.pop(operand)

    def all_of(self, named: Iterable[Instruction] | None = None) -> ReadTotal:
        """Of the operands that are named, each as often as it is; of all, once, where none are."""
        if named is None:
            return ReadTotal(self._sum, self._size)
        operands = list(named)
        return ReadTotal(sum([self.quarters[o] for o in operands]), sum([self.bytes[o] for o in operands]))
