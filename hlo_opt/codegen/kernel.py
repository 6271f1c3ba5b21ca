"""A kernel: CUDA text with everything a backend needs to launch it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

from hlo_opt.codegen.tree import ConstantTable, Kept, Statement
from hlo_opt.ir import Shape
from hlo_opt.ir.size import at_size, shape_at
from hlo_opt.ops.code import Name
from hlo_opt.plans.plan import Launch


@dataclass(frozen=True)
class Pointer:
    """A kernel parameter: a pointer to elements of a C++ type, read-only where `constant`.

    `alone`: nothing that a thread reads through it was written by another thread during the launch.
    """

    kind: str
    name: Name
    constant: bool = False
    alone: bool = True


@dataclass(frozen=True, eq=False)
class KernelTree:
    """A kernel as its emitter built it. Do not modify its statements. `size` as in `Kernel`."""

    launch: Launch
    parameters: tuple[Pointer, ...]
    tables: tuple[ConstantTable | Kept, ...]
    body: tuple[Statement, ...]
    size: int = 0


KEPT = "kept"
"""The name of the pointer to memory in which blocks meet."""
_ELEMENT = 8
"""Bytes per element in that memory, enough for the widest register."""


def kept_places(tree: KernelTree) -> list[tuple[Kept, int]]:
    """The arrays of kept memory, through which the blocks of a launch communicate, each with its offset in bytes."""
    kept = [table for table in tree.tables if isinstance(table, Kept)]
    ends = itertools.accumulate((_ELEMENT * table.size for table in kept), initial=0)
    return list(zip(kept, ends, strict=False))


def kept_bytes(tree: KernelTree) -> int:
    """The bytes of kept memory that a kernel needs; 0 where its blocks do not communicate."""
    return sum(_ELEMENT * table.size for table, _ in kept_places(tree))


@dataclass(frozen=True)
class Kernel:
    """`extern "C" __global__ void symbol(const T0* in0, ..., U0* out0, ...)`: one pointer per input, output array and
    scratch array, then one to the memory in which blocks meet, if any.

    Arrays are laid out as their shapes say and start at a multiple of 16 bytes on a GPU. Elements of 2 and 4 bits are
    packed (`hlo_opt.library.arrays`); on a GPU the last 4-byte word of such an array is complete. `source` is
    self-contained (with prelude) and compiles with CuPy, NVRTC, and the C++ compiler after the host shim. Structurally
    equal fusions have equal sources and share a kernel.

    outputs   the arrays it writes; after the results, scratch arrays
    tree      what `source` is printed from
    aliases   (output, input): before the launch, the output must hold the input's elements, in its layout
    own       outputs among these that may share the input's memory, where nothing needs the input afterwards
    in_order  the result depends on the order of threads; the host runs them sequentially
    rereads   threads read each element many times
    meets     threads may write the same element
    kept      bytes of kept memory: zero before the first launch, and reset by each launch for the next. Overlapping
              launches need separate memory. 0: none
    compute_capability  of the device that it is for: which branches of its text the plain form has
    size      the kernel is for a range of sizes, and takes the size as its last argument, an `int`: a
              `hlo_opt.ir.size.Size` until `at` says which, as are dimensions and numbers of the launch. 0: it takes
              none
    """

    symbol: str
    source: str
    launch: Launch
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    kind: str
    tree: KernelTree = field(repr=False, compare=False)
    aliases: tuple[tuple[int, int], ...] = ()
    own: tuple[int, ...] = ()
    in_order: bool = False
    rereads: bool = False
    meets: bool = False
    compute_capability: int = 90
    kept: int = 0
    size: int = 0

    def at(self, size: int) -> Kernel:
        """The launch at a size, with the same source. Itself, if it takes none."""
        if not self.size:
            return self
        grid = at_size(self.launch.grid, size)
        shapes = ([shape_at(shape, size) for shape in shapes] for shapes in (self.inputs, self.outputs))
        inputs, outputs = map(tuple, shapes)
        launch = replace(self.launch, grid=grid)
        return replace(self, launch=launch, inputs=inputs, outputs=outputs, kept=at_size(self.kept, size), size=size)
