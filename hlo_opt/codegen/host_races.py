"""The C++ source of a shared library that watches what its kernels do: see `host_races.h`.

A kernel's text is read as it is, but for its declarations: pointers and shared memory become objects that see each access. A thread of a block is a fibre where threads meet;
else they run one after another.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hlo_opt.codegen.host_source import launcher_name, shim, threads_meet
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.codegen.scalars import memory_type

_SHARED = re.compile(r"__shared__ (?:__align__\(\d+\) )?(?P<type>[\w <>]+?) (?P<name>\w+)\[(?P<size>\d+)\];")
_KEPT = re.compile(r"^static __device__ volatile (?P<type>[\w <>]+?) (?P<name>\w+)\[(?P<size>\d+)\];", re.M)
_ARRIVED = re.compile(r"\batomicAdd\(&(arrived\d+)\[")
_ALIGNED = re.compile(r"^ *\w+ = \([^;]*\)__builtin_assume_aligned\([^;]*\);\n", re.M)
_PARAMETER = re.compile(r"(?:\bconst )?(?P<type>\b(?!const\b)\w[\w<> ]*?)\* __restrict__ (?P<name>\w+)")
_MEETING = re.compile(r"\b(__syncthreads|__syncwarp|__(?:shfl|ballot|any|all)\w*_sync)\(")
_INDICES = ("threadIdx", "blockIdx", "blockDim", "gridDim")


def watched_unit(kernels: Sequence[Kernel]) -> str:
    """One translation unit with the given kernels, each in a namespace of its own. Blocks and threads run in another order in each launch."""
    parts = ["#define HLO_RACES 1\n", shim("host_shim.h"), shim("host_math.h"), shim("host_races.h")]
    if any(map(threads_meet, kernels)):
        parts.append(shim("host_fibres.h"))
    for number, kernel in enumerate(kernels):
        parts.append(f"\nnamespace kernel_{number} {{\n{_watched(kernel)}{_launcher(kernel)}}}\n")
    return "".join(parts)


def _watched(kernel: Kernel) -> str:
    """The kernel as a function of a thread that sees each access."""
    start = kernel.source.index(f"{kernel.symbol}(")
    head, (signature, brace, body) = kernel.source[:start], kernel.source[start:].partition(") {\n")
    head = _KEPT.sub(r'static hlo::Kept<\g<type>, \g<size>> \g<name> = {"\g<name>"};', head)
    body = _ARRIVED.sub(r"hlo::count_block(&\1[", body).replace("__threadfence(", "hlo::publish(")
    signature = _PARAMETER.sub(r"hlo::Array<\g<type>> \g<name>", signature)
    indices = ", ".join(f"const hlo::Index {name}" for name in _INDICES)
    signature = signature.replace("(", f"_thread({indices}, ", 1)
    body = _SHARED.sub(r'static hlo::Shared<\g<type>, \g<size>> \g<name> = {"\g<name>"};', _ALIGNED.sub("", body))
    body = _MEETING.sub(lambda m: f"(hlo::wait_place(__LINE__), {m[1]}(", body)
    return f"{head}{signature}{brace}{_closed(body)}\n"


def _closed(body: str) -> str:
    """The body with a parenthesis behind each call that `_watched` has opened one before."""
    made, place = [], 0
    for found in re.finditer(r"\(hlo::wait_place\(__LINE__\), \w+\(", body):
        depth, end = 1, found.end()
        while depth:
            depth += (body[end] == "(") - (body[end] == ")")
            end += 1
        made += [body[place:end], ")"]
        place = end
    return "".join([*made, body[place:]])


def _launcher(kernel: Kernel) -> str:
    grid, block = kernel.launch.grid, kernel.launch.block
    arrays = [(f"in{k}", s) for k, s in enumerate(kernel.inputs)] + [
        (f"out{k}", s) for k, s in enumerate(kernel.outputs)
    ]
    declared = "".join(
        f'  const hlo::Array<{memory_type(s.type)}> p{k}(pointers[{k}], {s.element_count if _is_watched(kernel, name) else 0}, "{name}");\n'
        for k, (name, s) in enumerate(arrays)
    )
    indices = f"hlo::Index{{(unsigned int)t, 0u, 0u}}, hlo::Index{{(unsigned int)b, 0u, 0u}}, hlo::Index{{{block}u, 1u, 1u}}, hlo::Index{{{grid}u, 1u, 1u}}"
    names = ", ".join(f"p{k}" for k in range(len(arrays)))
    body = f"static void body_{kernel.symbol}(void** pointers, int t, int b) {{\n{declared}  {kernel.symbol}_thread({indices}, {names});\n}}\n"
    if threads_meet(kernel):
        run = f"    if (!hlo::run_block(body_{kernel.symbol}, pointers, {block}, (int)b)) return 1;\n"
    else:
        run = (
            f"    const hlo::Order threads({block}, hlo::blocks_run + hlo::seed);\n"
            f"    for (int k = 0; k < {block}; ++k) {{\n      const int t = (int)threads[k];\n"
            f"      hlo::here = {{hlo::blocks_run, (unsigned int)t, 0, 0}};\n      body_{kernel.symbol}(pointers, t, (int)b);\n    }}\n"
        )
    return (
        f'{body}extern "C" __attribute__((visibility("default"))) int {launcher_name(kernel)}(void** pointers, long long, long long) {{\n'
        f"  const hlo::Order blocks({grid}, ++hlo::seed);\n  for (long long n = 0; n < {grid}; ++n) {{\n"
        f"    const long long b = (long long)blocks[n];\n    ++hlo::blocks_run;\n{run}  }}\n  hlo::forget();\n  return 0;\n}}\n"
    )


def _is_watched(kernel: Kernel, name: str) -> bool:
    """Whether what threads do to an array shows a race. Updates of a scatter that are not atomic may meet: HLO leaves open which comes last, or the module promises that none do."""
    if "scatter" not in kernel.kind.split("+") or not name.startswith("out"):
        return True
    return re.search(rf"&{name}\[|\bhlo_seen_\d+\({name},", kernel.source) is not None
