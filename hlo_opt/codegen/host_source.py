"""The C++ source of a shared library with kernels: the shim, the kernels' own text, and a launcher for each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib import resources

from hlo_opt.codegen.kernel import Kernel
from hlo_opt.codegen.scalars import memory_type

_MEETS = re.compile(r"\b__(?:sync|shfl|ballot|any|all)\w*\(")


def launcher_name(kernel: Kernel) -> str:
    """The C name of a kernel's launcher: `int launch(void** pointers, long long grid, int block)`, 0 when it ran, 1 without memory for fibres."""
    return f"launch_{kernel.symbol}"


def threads_meet(kernel: Kernel) -> bool:
    """Whether the threads of a block wait for each other, so that a plain loop over them would be wrong."""
    code = (line for line in kernel.source.splitlines() if not line.lstrip().startswith("//"))
    return any(_MEETS.search(line) for line in code)


def host_unit(kernels: Sequence[Kernel]) -> str:
    """One translation unit with the given kernels. Each lies in a namespace of its own, since each brings its helpers."""
    parts = ["#define HLO_FIBRES 1\n" if any(threads_meet(k) for k in kernels) else "", shim()]
    for number, kernel in enumerate(kernels):
        parts.append(f"\nnamespace kernel_{number} {{\n{kernel.source}\n{_launcher(kernel)}}}\n")
    return "".join(parts)


@cache
def shim() -> str:
    """The text of `host_shim.h`, without the pragma that only an included file may have."""
    text = resources.files("hlo_opt.codegen").joinpath("host_shim.h").read_text(encoding="utf-8")
    return text.replace("#pragma once\n", "")


def _launcher(kernel: Kernel) -> str:
    kinds = [f"const {memory_type(s.type)}*" for s in kernel.inputs] + [
        f"{memory_type(s.type)}*" for s in kernel.outputs
    ]
    signature = f'extern "C" __attribute__((visibility("default"))) int {launcher_name(kernel)}'
    pointers = "".join(f"  {kind} p{k} = ({kind})pointers[{k}];\n" for k, kind in enumerate(kinds))
    call = f"{kernel.symbol}({', '.join(f'p{k}' for k in range(len(kinds)))});"
    head = f"{signature}(void** pointers, long long grid, int block) {{\n  gridDim.x = (unsigned int)grid;\n  blockDim.x = (unsigned int)block;\n"
    step = "  for (long long b = 0; b < grid; ++b) {\n    blockIdx.x = (unsigned int)b;\n"
    if threads_meet(kernel):
        body = f"static void body_{kernel.symbol}(void** pointers) {{\n{pointers}  {call}\n}}\n"
        return f"{body}{head}{step}    if (!hlo::run_block(body_{kernel.symbol}, pointers, block)) return 1;\n  }}\n  return 0;\n}}\n"
    loop = f"    for (int t = 0; t < block; ++t) {{\n      threadIdx.x = (unsigned int)t;\n      {call}\n    }}\n"
    return f"{head}{pointers}{step}{loop}  }}\n  return 0;\n}}\n"
