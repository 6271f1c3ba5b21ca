"""A kernel: CUDA text with everything a backend needs to launch it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from hlo_opt.codegen.tree import Kept, Statement, Table
from hlo_opt.ir import Shape
from hlo_opt.ops.code import Name
from hlo_opt.plans.plan import Launch


@dataclass(frozen=True)
class Pointer:
    """A parameter of a kernel: a pointer to elements of a C++ type, which are only read where it is `constant`. `alone`: what a thread reads through it no other has written since the launch
    began."""

    kind: str
    name: Name
    constant: bool = False
    alone: bool = True


@dataclass(frozen=True, eq=False)
class Tree:
    """A kernel as its emitter built it. Its statements are not to be changed."""

    launch: Launch
    parameters: tuple[Pointer, ...]
    tables: tuple[Table | Kept, ...]
    body: tuple[Statement, ...]


KEPT = "kept"
"""The pointer to memory in which blocks meet."""
_ELEMENT = 8
"""Bytes that an element gets there: those of the widest register."""


def kept_places(tree: Tree) -> list[tuple[Kept, int]]:
    """The arrays in which blocks meet, and the bytes at which they lie behind one another."""
    kept = [table for table in tree.tables if isinstance(table, Kept)]
    ends = itertools.accumulate((_ELEMENT * table.size for table in kept), initial=0)
    return list(zip(kept, ends, strict=False))


def kept_bytes(tree: Tree) -> int:
    """The bytes of all of them; 0 where no blocks meet."""
    return sum(_ELEMENT * table.size for table, _ in kept_places(tree))


@dataclass(frozen=True)
class Kernel:
    """`extern "C" __global__ void symbol(const T0* in0, ..., U0* out0, ...)`: one pointer per input, then one per output array, then one per array of scratch memory, then one to memory
    in which blocks meet, where they do.

    Pointers are to physical memory: an array lies as its shape's layout says, and starts at a multiple of 16 bytes on a GPU. Elements of 2 and 4 bits share bytes
    (`hlo_opt.library.arrays`); on a GPU such an array's last word of 4 bytes is whole. `source` stands alone (prelude included) and is what CuPy, NVRTC
    and the C++ compiler (after the host shim) read. Structurally equal fusions give equal sources and so share a kernel.

    outputs   the arrays that it writes; behind those of results, arrays that nobody reads afterwards
    tree      what `source` is printed from
    aliases   (output, input): before the launch the output must hold the input's elements, as they lie
    own       outputs among these that may take the input's own memory, where nothing needs it afterwards
    in_order  the result depends on which thread comes first; on the host they run one after another
    rereads   threads read each element many times
    meets     threads may write the same element
    kept      bytes of the memory in which blocks meet: zero before the first launch, and left by each as the next can take it. Launches that overlap need memory of their own. 0: none
    """

    symbol: str
    source: str
    launch: Launch
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    kind: str
    tree: Tree = field(repr=False, compare=False)
    aliases: tuple[tuple[int, int], ...] = ()
    own: tuple[int, ...] = ()
    in_order: bool = False
    rereads: bool = False
    meets: bool = False
    kept: int = 0
