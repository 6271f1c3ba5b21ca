"""What the operations of a schedule need of a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias, cast

from hlo_opt.codegen.kernel import Kernel
from hlo_opt.ir import Shape
from hlo_opt.runtime.memory import Array
from hlo_opt.runtime.schedule.ops import Call

Memory: TypeAlias = Array
"""A buffer as a device holds it; None for a token."""

NOTHING: Memory = cast("Memory", None)
"""What a token has, and a buffer that is free."""


class Device(Protocol):
    """How a backend allocates and launches. Buffers are flat and lie as their shape's layout says."""

    def upload(self, array: Array, shape: Shape) -> Memory:
        """A buffer holding a logical array."""
        ...

    def download(self, memory: Memory, shape: Shape) -> Array:
        """The logical array in a buffer, in memory of its own."""
        ...

    def allocate(self, shape: Shape) -> Memory:
        """An uninitialised buffer."""
        ...

    def copy(self, memory: Memory) -> Memory:
        """Another buffer with the same elements."""
        ...

    def view(self, memory: Memory, shape: Shape) -> Memory:
        """The same memory as a buffer of another shape of the same size."""
        ...

    def relayout(self, memory: Memory, shape: Shape, target: Shape) -> Memory:
        """A buffer with the elements of another where the target's layout wants them."""
        ...

    def launch(self, kernel: Kernel, inputs: Sequence[Memory], outputs: Sequence[Memory]) -> None:
        """Start a kernel. Everything started later sees its results."""
        ...

    def call(self, op: Call, inputs: Sequence[Memory], shapes: Sequence[Shape]) -> list[Memory]:
        """The outputs of a library call or a fallback."""
        ...
