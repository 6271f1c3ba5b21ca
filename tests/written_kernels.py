"""Kernels that a test writes itself: as statements, or as CUDA text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hlo_opt.codegen.cuda import kernel_text
from hlo_opt.codegen.kernel import Kernel, KernelTree, Pointer
from hlo_opt.codegen.scalars import memory_type
from hlo_opt.codegen.tree import Barrier, Block, ConstantTable, Kept, Merge, Statement
from hlo_opt.ir import Shape
from hlo_opt.ops.code import Name
from hlo_opt.plans.plan import Launch


def of_tree(
    symbol: str,
    body: Sequence[Statement],
    launch: Launch,
    inputs: Sequence[Shape],
    outputs: Sequence[Shape],
    tables: Sequence[ConstantTable | Kept] = (),
) -> Kernel:
    """The kernel of these statements; its parameters are `in0`, ..., `out0`, ..."""
    tree = KernelTree(launch, _pointers(inputs, outputs), tuple(tables), tuple(body))
    before, after = kernel_text(tree, str(launch.block))
    return Kernel(symbol, f"{before}{symbol}{after}", launch, tuple(inputs), tuple(outputs), "loop", tree)


def of_text(symbol: str, source: str, launch: Launch, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> Kernel:
    """A kernel of CUDA text, for the plain form. Its tree says whether threads meet, and which memory is its own; no
    statement of it is the text's."""
    text = re.sub(r"//.*", "", source)
    meets = re.search(r"__sync|_sync\(", text) is not None
    own = re.findall(r"static __device__ (?!const)(?:volatile )?([\w ]+) (\w+)\[(\d+)\];", text)
    kept = tuple(Kept(kind, Name(name), int(size)) for kind, name, size in own)
    tree = KernelTree(launch, _pointers(inputs, outputs), kept, (Barrier(),) * meets)
    return Kernel(symbol, source, launch, tuple(inputs), tuple(outputs), "loop", tree)


def _pointers(inputs: Sequence[Shape], outputs: Sequence[Shape]) -> tuple[Pointer, ...]:
    given = [Pointer(memory_type(shape.type), Name(f"in{k}"), constant=True) for k, shape in enumerate(inputs)]
    return (*given, *(Pointer(memory_type(shape.type), Name(f"out{k}")) for k, shape in enumerate(outputs)))


class OnlySteps(Block):
    """In place of a `Network`: the steps alone, so that the host does what a GPU does and merges nothing."""

    def __init__(self, steps: Sequence[Statement] = (), merge: Merge | None = None, **fields: Any) -> None:
        super().__init__(**({"body": list(steps)} | fields))

    @property
    def steps(self) -> list[Statement]:
        return self.body
