"""The kernel of a depthwise convolution (`hlo_opt.plans.depthwise`): one call of `device/depthwise.cuh`, with the sizes
as numbers that the compiler knows."""

from __future__ import annotations

import hashlib
import math
from dataclasses import astuple

from hlo_opt.codegen.cuda import kernel_text
from hlo_opt.codegen.emit import ALIGNMENT
from hlo_opt.codegen.kernel import Kernel, KernelTree, Pointer
from hlo_opt.codegen.names import comment
from hlo_opt.codegen.scalars import memory_type
from hlo_opt.codegen.tree import Aligned, Do
from hlo_opt.ops.code import Name, code
from hlo_opt.plans.depthwise import Depthwise, WindowSide

MOST_ROWS_AT_ONCE = 3
"""Rows of a window up to which a thread reads them all at once."""


def depthwise_kernel(plan: Depthwise) -> Kernel:
    """The kernel of a plan: of image and kernel it gives the result."""
    column, launch = plan.sides[2], plan.launch
    kinds = [memory_type(shape.type) for shape in plan.shapes]
    names = [Name("in0"), Name("in1"), Name("out0")]
    pointers = tuple(Pointer(kinds[k], name, constant=k < 2) for k, name in enumerate(names))
    promised = [Aligned(p.name, f"{'const ' * p.constant}{p.kind}*", ALIGNMENT) for p in pointers]
    rows = plan.sides[1].taps
    begin, columns = column.columns(plan.across)
    name, reading = "hlo_depthwise", [plan.vector, begin, columns, column.low, column.base]
    if plan.is_first:
        whole = math.gcd(plan.wide, plan.across, column.result)
        name, reading = "hlo_depthwise_features_first", [plan.wide, whole, column.before(plan.wide), column.low]
    options = (
        "true" if plan.shapes[0].type.name == "bf16" else "false",
        *(*reading, plan.across, column.taps, column.stride, column.dilation),
        rows if rows <= MOST_ROWS_AT_ONCE else 1,
        "double" if kinds[0] == "double" else "float",
    )
    tile = (plan.features, plan.step, plan.vectors, plan.rows, plan.strips)
    sizes = ", ".join([*map(_side, plan.sides), f"hlo_tile{{{', '.join(map(str, tile))}}}"])
    call = f"{name}<{', '.join(map(str, options))}>({{}}, {{}} + {plan.first}, {{}}, {{}})"
    tree = KernelTree(launch, pointers, (), (*promised, Do(code(call, *names, sizes))))
    before, after = kernel_text(tree, str(launch.block))
    image, window, result = map(str, plan.shapes)
    said = f"depthwise convolution: {launch.grid} blocks of {launch.block} threads"
    before = comment([said, f"{result} of {image} and {window}"]) + before
    symbol = f"depthwise_{hashlib.sha256(f'{launch.grid} {before}{after}'.encode()).hexdigest()[:16]}"
    source, inputs, outputs = f"{before}{symbol}{after}", plan.shapes[:2], plan.shapes[2:]
    return Kernel(symbol, source, launch, inputs, outputs, "depthwise", tree, rereads=True)


def _side(side: WindowSide) -> str:
    return f"hlo_side{{{', '.join(map(str, astuple(side)))}}}"
