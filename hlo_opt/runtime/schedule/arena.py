"""Places for buffers in one block of memory: what is alive at the same time lies apart, what is not may share."""

from __future__ import annotations

from dataclasses import dataclass, field

ALIGNMENT = 64
"""Bytes that every place is a multiple of: a cache line, and no less than the widest vector."""


@dataclass
class Arena:
    """Gives out places first fit, in the order of use; `size` is the most bytes ever taken, `alive` those taken now."""

    size: int = 0
    alive: int = 0
    _taken: list[tuple[int, int]] = field(default_factory=list)

    def take(self, count: int) -> int:
        """The offset of a free place of so many bytes."""
        wanted = max(ALIGNMENT, -(-count // ALIGNMENT) * ALIGNMENT)
        offset = position = 0
        for first, last in self._taken:
            if first - offset >= wanted:
                break
            offset = last
            position += 1
        self._taken.insert(position, (offset, offset + wanted))
        self.alive += wanted
        self.size = max(self.size, offset + wanted)
        return offset

    def give_back(self, offset: int) -> None:
        """Free a place."""
        for position, (first, last) in enumerate(self._taken):
            if first == offset:
                del self._taken[position]
                self.alive -= last - first
                return
        raise KeyError(offset)
