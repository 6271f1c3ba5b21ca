"""The C++ source of a shared library with kernels in their form as lanes, for speed: the shim, the kernels' text made over, and a launcher for each. `host_plain` has the form that
leaves the text as it is.

A kernel's text is read. A macro with the kernel's name puts `threadIdx` and `blockIdx` before its parameters, so that they are values and no memory,
and a loop over the threads of a block becomes vector code (`#pragma omp simd`: threads that do not meet may run in any order, so also side by side).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources

from hlo_opt.codegen import host_sorts
from hlo_opt.codegen.host_digits import taken_apart
from hlo_opt.codegen.host_loops import loops_of
from hlo_opt.codegen.host_vectors import by_position, one_loop, spread_out
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.codegen.scalars import memory_type

_MEETS = re.compile(r"\b__(?:sync|shfl|ballot|any|all|reduce)\w*\(")
_ORDERED = re.compile(r"\batomic[A-Z]\w*\(|\b__threadfence\w*\(|\bvolatile\b")
_OF_LAUNCH = re.compile(r"^static __device__ (?!const )", re.M)
"""Memory in which blocks meet: one processor runs them all, and another may run the same kernel for somebody else at that time."""
_LEAVES = re.compile(r"\breturn;")


def launcher_name(kernel: Kernel) -> str:
    """The C name of a kernel's launcher: `int launch(void** pointers, long long first, long long last)` runs the blocks from `first` up to `last`;
    0 when they ran, 1 without memory for fibres."""
    return f"launch_{kernel.symbol}"


def keeps_memory(kernel: Kernel) -> bool:
    """Whether blocks of a kernel meet in memory of the kernel's own, so that two launches of it must not overlap."""
    return _OF_LAUNCH.search(kernel.source) is not None


def threads_meet(kernel: Kernel) -> bool:
    """Whether the threads of a block wait for each other, so that a plain loop over them would be wrong."""
    return _MEETS.search(_code(kernel)) is not None


def is_ordered(kernel: Kernel) -> bool:
    """Whether blocks update the same memory (atomics), so that one processor must run them all, in order: a sum then comes out the same every time."""
    return kernel.in_order or _ORDERED.search(_code(kernel)) is not None


def _code(kernel: Kernel) -> str:
    """The kernel's text without its comments."""
    return re.sub(r"//[^\n]*", "", kernel.source)


def has_lanes(kernel: Kernel) -> bool:
    """Whether a kernel has a form as lanes; where threads meet in a way that loops cannot follow, it has the plain form only."""
    return not threads_meet(kernel) or as_loops(kernel) is not None


def lanes_unit(kernels: Sequence[Kernel]) -> str:
    """One translation unit with the given kernels, which have a form as lanes. Each lies in a namespace of its own, since each brings its helpers."""
    parts = [shim("host_c.h"), shim("host_shim.h"), shim("host_math.h")]
    loops = [as_loops(k) for k in kernels]
    if any(text is not None and "hlo::merge_sort(" in text for text in loops):
        parts.append(shim(host_sorts.HEADER))
    for number, (kernel, text) in enumerate(zip(kernels, loops, strict=True)):
        if text is not None:
            named = f"{text}{_launcher(kernel, text)}"
        else:
            functions, segments = _cut(kernel)
            named = f"{functions}{_straight_launcher(kernel, segments)}"
        named = _OF_LAUNCH.sub("static __thread ", named)
        parts.append(f"\nnamespace kernel_{number} {{\n{named}}}\n")
    return "".join(parts)


_KERNEL = re.compile(
    r'^extern "C" __global__ void (?:__launch_bounds__\([\d, ]+\) )?(\w+)\(([^{}]*)\) \{\n(.*)^\}\n*\Z', re.M | re.S
)


@lru_cache(maxsize=1024)
def as_loops(kernel: Kernel) -> str | None:
    """The text of a kernel whose threads meet as a function of a whole block; None for other kernels, and where only fibres will do."""
    if not threads_meet(kernel):
        return None
    found = _KERNEL.search(kernel.source)
    if found is None or found[1] != kernel.symbol:
        return None
    merges = None
    if kernel.kind in ("sort", "long-sort"):
        merges = host_sorts.with_merges(found[3], "scratch0" if kernel.kind == "long-sort" else "")
    text = found[3] if merges is None else merges.body
    before, alone = kernel.source[: found.start()], ""
    if _only_counts(kernel):
        before, text, alone = _counted(before, text)
    signature = f"static inline void {_inner(kernel)}({alone}{_parameters(_INDICES[1:])}, {found[2].strip()})"
    body = loops_of(
        signature,
        one_loop(by_position(text)),
        kernel.launch.block,
        bool(alone) or not is_ordered(kernel),
        kernel.launch.grid,
    )
    if body is not None and alone:
        body = body.replace(f"{signature} {{\n", f"{signature} {{\n{_chosen(before)}", 1)
    if body is not None and merges is not None:
        body = body.replace(host_sorts.MARK, merges.statements)
    return None if body is None else before + body


_ARRIVAL = re.compile(r"\batomicAdd\((?=&arrived\d+\[)")
_MEMORY = re.compile(r"^static __device__ (?!const )(?P<type>[\w ]+?) (?P<name>\w+)\[(?P<size>\d+)\];\n", re.M)
_ALONE = "const bool hlo_alone, "


def _only_counts(kernel: Kernel) -> bool:
    """Whether blocks update the same memory only to see which of them comes last: what they compute then does not depend on their order."""
    code = _ARRIVAL.sub("", _code(kernel)).replace("__threadfence();", "").replace("static __device__ volatile", "")
    return keeps_memory(kernel) and not kernel.in_order and _ORDERED.search(code) is None


def _counted(before: str, text: str) -> tuple[str, str, str]:
    """The text in front of a kernel with its memory twice: a thread's own for a launch on one processor, and what all processors see; the body, whose blocks may run
    on any of them; and the parameter that says which memory it takes."""
    twice = r"static __thread \g<type> \g<name>_own[\g<size>];\nstatic \g<type> \g<name>_all[\g<size>];\n"
    text = _ARRIVAL.sub("hlo::arrive(", text).replace("__threadfence();", "hlo::fence();")
    return _MEMORY.sub(twice, before), text, _ALONE


def _chosen(before: str) -> str:
    """The pointers to that memory."""
    found = re.findall(r"^static __thread ([\w ]+?) (\w+)_own\[", before, re.M)
    return "".join(f"{kind}* const {name} = hlo_alone ? {name}_own : {name}_all;\n" for kind, name in found)


def may_spread(kernel: Kernel) -> bool:
    """Whether several processors may run blocks of a launch. Two launches of a kernel that keeps memory must not be spread at the same time."""
    if not has_lanes(kernel):
        return False
    if not is_ordered(kernel):
        return True
    text = as_loops(kernel) if _only_counts(kernel) else None
    return text is not None and _ALONE in text


@cache
def shim(name: str) -> str:
    """The text of a header of the shim, without the pragma that only an included file may have."""
    text = resources.files("hlo_opt.codegen").joinpath(name).read_text(encoding="utf-8")
    return text.replace("#pragma once\n", "")


_INDICES = ("threadIdx", "blockIdx", "blockDim", "gridDim")


@dataclass(frozen=True)
class _Part:
    """Blocks of a launch from `first` up to `last`, the function that a thread of them runs, and how many neighbouring elements each of its so many threads takes, where not
    one."""

    first: int
    last: int
    function: str
    leaves: bool
    vector: int = 1
    threads: int = 0


_OWN_BLOCKS = re.compile(r"  if \(blockIdx\.x >= (\d+)u && blockIdx\.x < (\d+)u\) \{")
_SHARED_LINE = re.compile(r"  (?://.*|\w+ = \([^;]*\)__builtin_assume_aligned\([^;]*\);)")


def _cut(kernel: Kernel) -> tuple[str, list[_Part]]:
    """The kernel's text as functions of a thread, one for each segment: vector code for all of them at once would compute each for every thread."""
    grid, block = kernel.launch.grid, kernel.launch.block
    found = _KERNEL.search(kernel.source)
    if found is None or found[1] != kernel.symbol:
        return _named(kernel), [_Part(0, grid, _inner(kernel), _LEAVES.search(_code(kernel)) is not None)]
    body = one_loop(found[3])
    text, parts = [kernel.source[: found.start()]], []
    for number, (first, last, lines) in enumerate(_segments(body) or [(0, grid, body.splitlines())]):
        name = f"{_inner(kernel)}_{number}"
        spread = spread_out("\n".join(lines), block * (last - first))
        parameters = f"{_parameters(_INDICES)}, const long long hlo_part, const long long hlo_live"
        text.append(f"__global__ void {name}({parameters},{found[2]}) {{\n{taken_apart(spread.body)}}}\n")
        leaves = _LEAVES.search(spread.body) is not None
        parts.append(_Part(first, last, name, leaves, spread.vector, spread.threads))
    return "".join(text), parts


def _segments(body: str) -> list[tuple[int, int, list[str]]]:
    """The first block, the one after the last, and the statements of each segment; none where the body is that of one segment."""
    shared: list[str] = []
    segments: list[tuple[int, int, list[str]]] = []
    inside = False
    for line in body.splitlines():
        header = None if inside else _OWN_BLOCKS.fullmatch(line)
        if header is not None:
            segments.append((int(header[1]), int(header[2]), []))
            inside = True
        elif inside and line == "  }":
            inside = False
        elif inside:
            segments[-1][2].append(line)
        elif _SHARED_LINE.fullmatch(line):
            shared.append(line)
        else:
            return []
    return [(first, last, [*shared, *lines]) for first, last, lines in segments]


def _named(kernel: Kernel) -> str:
    """The kernel's text under another name, with the indices as its first parameters."""
    return f"#define {kernel.symbol}(...) {_inner(kernel)}({_parameters(_INDICES)}, __VA_ARGS__)\n{kernel.source}\n#undef {kernel.symbol}\n"


def _parameters(names: Sequence[str]) -> str:
    return ", ".join(f"const hlo::Index {name}" for name in names)


def _inner(kernel: Kernel) -> str:
    return f"{kernel.symbol}_thread"


def _head(kernel: Kernel) -> tuple[str, str, str]:
    """A launcher's signature, the declarations of its pointers, and their names."""
    kinds = [f"const {memory_type(s.type)}*" for s in kernel.inputs] + [
        f"{memory_type(s.type)}*" for s in kernel.outputs
    ]
    pointers = "".join(f"  {kind} p{k} = ({kind})pointers[{k}];\n" for k, kind in enumerate(kinds))
    signature = f'extern "C" __attribute__((visibility("default"))) int {launcher_name(kernel)}(void** pointers, long long first, long long last)'
    return signature, pointers, ", ".join(f"p{k}" for k in range(len(kinds)))


def _indices(kernel: Kernel, *, of_thread: bool) -> str:
    grid, block = kernel.launch.grid, kernel.launch.block
    shared = f"hlo::Index{{(int)b, 0, 0}}, hlo::Index{{{block}, 1, 1}}, hlo::Index{{(int){grid}u, 1, 1}}"
    return f"hlo::Index{{t, 0, 0}}, {shared}" if of_thread else shared


def _launcher(kernel: Kernel, loops: str) -> str:
    """The launcher of a kernel whose threads meet: of a function for a whole block."""
    grid = kernel.launch.grid
    signature, pointers, names = _head(kernel)
    call = f"{_inner(kernel)}({_indices(kernel, of_thread=False)}, {names});"
    result = "hlo::asked_for_failure()" if "hlo::sorts_failed" in loops else "0"
    if _ALONE in loops:
        call = call.replace("(", f"(first == 0 && last == {grid}, ", 1)
    known = f"if (b < 0 || b >= {grid}) __builtin_unreachable();"
    return f"{signature} {{\n{pointers}  for (long long b = first; b < last; ++b) {{\n    {known}\n    {call}\n  }}\n  return {result};\n}}\n"


def _straight_launcher(kernel: Kernel, parts: Sequence[_Part]) -> str:
    """The launcher of a kernel whose threads do not meet: loops over blocks and threads."""
    signature, pointers, names = _head(kernel)
    simd = "" if is_ordered(kernel) else "#pragma omp simd\n"
    loops = []
    block = kernel.launch.block
    kernel_is_cut = parts[0].function != _inner(kernel)
    for part in parts:
        # blocks before the last one are whole: the compiler sees that none of their threads leaves early
        whole = part.last - 1 if part.last - part.first > 1 and part.leaves else part.last
        for low, high in ((part.first, whole), (whole, part.last)):
            if low >= high:
                continue
            begin = "first" if low == 0 else f"(first < {low} ? {low} : first)"
            known = f"if (b < {low} || b >= {high}) __builtin_unreachable();"
            live = str(block)
            if part.vector > 1 and high == part.last:
                rest = f"{part.threads} - (b - {part.first}) * {block}"
                live = f"({rest} < {block} ? {rest} : {block})"
            extra = f"part, {live}, " if kernel_is_cut else ""
            loops.append(
                f"  for (long long b = {begin}; b < (last < {high} ? last : {high}); ++b) {{\n    {known}\n"
                f"  for (long long part = 0; part < {part.vector}; ++part) {{\n"
                f"{simd}    for (int t = 0; t < {block}; ++t)\n"
                f"      {part.function}({_indices(kernel, of_thread=True)}, {extra}{names});\n  }}}}\n"
            )
    return f"{signature} {{\n{pointers}{''.join(loops)}  return 0;\n}}\n"
