"""The C++ source of a shared library with kernels in their form as lanes, for speed: the shim, a function for each
kernel, and a launcher. `host_plain` has the form that takes the text of CUDA as it is.

The functions are printed from the kernels' trees. Where threads do not meet, a loop over the threads of a block becomes
vector code (`#pragma omp simd`: threads may run in any order, so also side by side); where they meet, `lanes_blocks`
makes loops of what is between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import resources

from hlo_opt.codegen.cuda import helpers, table_text
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.codegen.lanes_blocks import block_function
from hlo_opt.codegen.lanes_chunks import Chunks, chunks_of
from hlo_opt.codegen.lanes_text import ThreadText
from hlo_opt.codegen.lanes_updates import update_of
from hlo_opt.codegen.threads import is_ordered, leaves, meets, only_counts, threads_meet
from hlo_opt.codegen.tree import (
    Aligned,
    BlockRange,
    Kept,
    Network,
    Note,
    Statement,
    codes_of,
    names_in,
    walk,
)
from hlo_opt.diag.time_limit import check_time
from hlo_opt.ops.code import Cell, Name


def launcher_name(kernel: Kernel) -> str:
    """The C name of a kernel's launcher: `int launch(void** pointers, long long first, long long last)` runs the blocks
    from `first` up to `last`; 0 when they ran, 1 without memory for fibres."""
    return f"launch_{kernel.symbol}"


def has_lanes(kernel: Kernel) -> bool:
    """Whether a kernel has a form as lanes; where threads meet in a way that loops cannot follow, it has the plain form
    only."""
    return not threads_meet(kernel) or as_loops(kernel) is not None


def may_spread(kernel: Kernel) -> bool:
    """Whether several processors may run blocks of a launch. Two launches of a kernel that keeps memory must not be
    spread at the same time."""
    return has_lanes(kernel) and (not is_ordered(kernel) or (threads_meet(kernel) and only_counts(kernel)))


@cache
def shim(name: str) -> str:
    """The text of a header of the shim, as it is included once."""
    text = resources.files("hlo_opt.codegen").joinpath(name).read_text(encoding="utf-8")
    return text.replace("#pragma once\n", "")


SHIMS = ("host_c.h", "host_shim.h", "host_math.h", "host_rounding.h", "host_eights.h")
"""What every unit begins with."""


def lanes_unit(kernels: Sequence[Kernel]) -> str:
    """One translation unit with the given kernels, which have a form as lanes. Each lies in a namespace of its own,
    since each brings its helpers."""
    parts = [shim(name) for name in SHIMS]
    if any(map(_merges, kernels)):
        parts.append(shim("host_sorts.h"))
    for number, kernel in enumerate(kernels):
        check_time()
        function = _of_threads(kernel) if not threads_meet(kernel) else _of_blocks(kernel)
        parts.append(f"\nnamespace kernel_{number} {{\n{helpers(kernel.tree)}{''.join(_tables(kernel))}{function}}}\n")
    return "".join(parts)


def _merges(kernel: Kernel) -> bool:
    """Whether it sorts."""
    return any(isinstance(statement, Network) for statement in walk(kernel.tree.body))


def _tables(kernel: Kernel) -> Iterator[str]:
    """Constants, and memory in which blocks meet: one processor runs them all, and another may run the same kernel for
    somebody else at that time. Where blocks only count themselves, the memory is there twice: a thread's own for a
    launch on one processor, and what all processors see."""
    for table in kernel.tree.tables:
        if not isinstance(table, Kept):
            yield table_text(table)
        elif only_counts(kernel):
            name = table.name.text
            yield f"static __thread {table.kind} {name}_own[{table.size}];\n"
            yield f"static {table.kind} {name}_all[{table.size}];\n"
        else:
            yield f"static __thread {table.kind} {table.name.text}[{table.size}];\n"


@lru_cache(maxsize=1024)
def as_loops(kernel: Kernel) -> str | None:
    """A function of a whole block for a kernel whose threads meet; None where only fibres will do."""
    return None if kernel.launch.cluster > 1 else _loops_of(kernel, kernel.tree.body)


def _loops_of(kernel: Kernel, body: Sequence[Statement]) -> str | None:
    """As `as_loops`, of some of a kernel's statements."""
    check_time()
    counts = only_counts(kernel)
    grid = kernel.launch.grid if kernel.launch.cooperative else 0
    alone = "const bool hlo_alone, " if counts else ""
    which = "" if grid else f"{_indices_of('blockIdx')}, "
    signature = f"static inline void {_inner(kernel)}({alone}{which}{_parameters(kernel)})"
    kept = [table for table in kernel.tree.tables if isinstance(table, Kept)] if counts else []
    chosen = [f"{t.kind}* const {t.name.text} = hlo_alone ? {t.name.text}_own : {t.name.text}_all;" for t in kept]
    return block_function(
        signature,
        body,
        kernel.launch.block,
        simd=counts or bool(grid) or not is_ordered(kernel),
        counts=counts,
        chosen="\n".join(chosen),
        grid=grid,
        parameters=kernel.tree.parameters,
    )


def _parameters(kernel: Kernel) -> str:
    return ", ".join(
        f"{'const ' * p.constant}{p.kind}*{' __restrict__' * p.alone} {p.name.text}" for p in kernel.tree.parameters
    )


def _indices_of(*names: str) -> str:
    return ", ".join(f"const hlo::Index {name}" for name in names)


def _inner(kernel: Kernel) -> str:
    return f"{kernel.symbol}_thread"


def _head(kernel: Kernel) -> tuple[str, str, str]:
    """A launcher's signature, the declarations of its pointers, and their names."""
    kinds = [f"{'const ' * p.constant}{p.kind}*" for p in kernel.tree.parameters]
    pointers = "".join(f"  {kind} p{k} = ({kind})pointers[{k}];\n" for k, kind in enumerate(kinds))
    signature = (
        f'extern "C" __attribute__((visibility("default"))) int {launcher_name(kernel)}(void** pointers, long long '
        f"first, long long last)"
    )
    return signature, pointers, ", ".join(f"p{k}" for k in range(len(kinds)))


def _of_blocks(kernel: Kernel) -> str:
    """A function for a whole block, those of segments whose threads do not meet, and the launcher."""
    apart = _apart(kernel)
    if not apart:
        loops = as_loops(kernel)
        return _of_threads(kernel) if loops is None else f"{loops}{_block_launcher(kernel)}"
    own = {id(segment) for segment, _ in apart}
    body = [s for s in kernel.tree.body if id(s) not in own]
    loops = _loops_of(kernel, body)
    assert loops is not None
    texts, parts = [loops], []
    for number, (_, alone) in enumerate(apart):
        text, part = _part(alone, _segments(alone)[0], f"{_inner(kernel)}_{number}")
        texts.append(text)
        parts.append(part)
    parts += [_Part(s.first, s.last, "", False) for s in body if isinstance(s, BlockRange)]
    return "".join(texts) + _launcher(kernel, parts)


def _apart(kernel: Kernel) -> list[tuple[BlockRange, Kernel]]:
    """Segments whose threads neither meet nor share anything with other blocks, beside others whose threads do; each
    with a kernel of it alone."""
    body, tables = kernel.tree.body, kernel.tree.tables
    before = [s for s in body if not isinstance(s, BlockRange)]
    if kernel.in_order or kernel.launch.cooperative or _merges(kernel) or as_loops(kernel) is None or meets(before):
        return []
    kept = {table.name for table in tables if isinstance(table, Kept)}
    rest = tuple(table for table in tables if not isinstance(table, Kept))
    found = []
    for segment in (s for s in body if isinstance(s, BlockRange)):
        tree = replace(kernel.tree, body=(*before, segment), tables=rest)
        alone = replace(kernel, tree=tree)
        pieces = (piece for s in walk(segment.body) for c in codes_of(s) for piece in c.parts())
        shares = any(isinstance(p, Cell) and p.array in kept for p in pieces) or kept & names_in(segment.body)
        if not shares and not threads_meet(alone) and not is_ordered(alone):
            found.append((segment, alone))
    return found


def _block_call(kernel: Kernel, names: str) -> str:
    """The call of a function for a whole block."""
    alone = f"first == 0 && last == {kernel.launch.grid}, " if only_counts(kernel) else ""
    return f"{_inner(kernel)}({alone}hlo::Index{{(int)b, 0, 0}}, {names});"


def _block_launcher(kernel: Kernel) -> str:
    """The launcher of a function for a whole block."""
    grid = kernel.launch.grid
    signature, pointers, names = _head(kernel)
    if kernel.launch.cooperative:  # which is not spread
        return f"{signature} {{\n{pointers}  {_inner(kernel)}({names});\n  return 0;\n}}\n"
    call = _block_call(kernel, names)
    result = "hlo::asked_for_failure()" if _merges(kernel) else "0"
    known = f"if (b < 0 || b >= {grid}) __builtin_unreachable();"
    loop = f"  for (long long b = first; b < last; ++b) {{\n    {known}\n    {call}\n  }}\n"
    return f"{signature} {{\n{pointers}{loop}  return {result};\n}}\n"


# ---- kernels whose threads do not meet


@dataclass(frozen=True)
class _Part:
    """Blocks of a launch from `first` up to `last`, and the function that a thread of them runs, or that a chunk of
    their elements does; "" where it is the kernel's own for a whole block."""

    first: int
    last: int
    function: str
    leaves: bool
    chunks: Chunks | None = None
    computing: str = ""
    """The function that computes a thread's value before `function` combines it with memory; "" without one."""
    arrays: tuple[tuple[str, Name], ...] = ()
    """The types and names of the arrays between the two."""


def _of_threads(kernel: Kernel) -> str:
    """A function for each segment, and the launcher: vector code for all segments at once would compute each for every
    thread."""
    parts = [_part(kernel, s, f"{_inner(kernel)}_{number}") for number, s in enumerate(_segments(kernel))]
    return "".join(text for text, _ in parts) + _launcher(kernel, [part for _, part in parts])


def _part(kernel: Kernel, segment: BlockRange, name: str) -> tuple[str, _Part]:
    """The function of a segment, and what the launcher knows of it."""
    chunks = chunks_of(kernel, segment, name, _parameters(kernel))
    if chunks is not None:
        return chunks.text, _Part(segment.first, segment.last, name, leaves(segment.body), chunks)
    shared = {p.name for p in kernel.tree.parameters if not (p.constant and p.alone)}
    shared |= {table.name for table in kernel.tree.tables if isinstance(table, Kept)}
    update = update_of(segment.body, shared) if is_ordered(kernel) else None
    arrays = () if update is None else update.arrays
    if update is None:
        text, computing = _function(kernel, segment.body, name), ""
    else:
        computing = f"{name}_values"
        held = [f"{kind}* {array.text}, " for kind, array in arrays]
        text = _function(kernel, update.computing, computing, "".join(held))
        text += _function(kernel, update.combining, name, "".join(f"const {one}" for one in held))
    return text, _Part(segment.first, segment.last, name, leaves(segment.body), computing=computing, arrays=arrays)


def _segments(kernel: Kernel) -> list[BlockRange]:
    """The segments of a kernel, each with the statements that stand before all of them. A kernel without segments is
    one, of all blocks."""
    body = kernel.tree.body
    segments = [statement for statement in body if isinstance(statement, BlockRange)]
    if not segments:
        return [BlockRange(0, kernel.launch.grid, list(body))]
    before = [statement for statement in body if not isinstance(statement, BlockRange)]
    return [BlockRange(segment.first, segment.last, [*before, *segment.body]) for segment in segments]


def _function(kernel: Kernel, statements: Sequence[Statement], name: str, more: str = "") -> str:
    """The function of a thread; `more` are parameters before the kernel's."""
    body = [s for s in statements if not isinstance(s, Aligned | Note)]
    parameters = f"{_indices_of('threadIdx', 'blockIdx')}, {more}{_parameters(kernel)}"
    printed = "\n".join(ThreadText().lines(body))
    return f"__global__ void {name}({parameters}) {{\n{printed}\n}}\n"


def _launcher(kernel: Kernel, parts: Sequence[_Part]) -> str:
    """The launcher of functions: loops over blocks, and in these over chunks or threads."""
    signature, pointers, names = _head(kernel)
    loops = []
    for part in parts:
        # blocks before the last one are whole: the compiler sees that none of their threads leaves early
        whole = part.last - 1 if part.last - part.first > 1 and part.leaves else part.last
        for low, high in ((part.first, whole), (whole, part.last)):
            if low >= high:
                continue
            begin = "first" if low == 0 else f"(first < {low} ? {low} : first)"
            known = f"if (b < {low} || b >= {high}) __builtin_unreachable();"
            inside = _threads(kernel, part, names) if part.chunks is None else _chunks(part, part.chunks, names, high)
            inside = inside if part.function else f"    {_block_call(kernel, names)}\n"
            step = "++b" if part.chunks is None or part.chunks.blocks == 1 else f"b += {part.chunks.blocks}"
            loops.append(
                f"  for (long long b = {begin}; b < (last < {high} ? last : {high}); {step}) "
                f"{{\n    {known}\n{inside}  }}\n"
            )
    return f"{signature} {{\n{pointers}{''.join(loops)}  return 0;\n}}\n"


def _threads(kernel: Kernel, part: _Part, names: str) -> str:
    simd, block = "#pragma omp simd\n", kernel.launch.block
    indices = "hlo::Index{t, 0, 0}, hlo::Index{(int)b, 0, 0}"
    loop = f"    for (int t = 0; t < {block}; ++t)\n      "
    if part.computing:
        given = ", ".join([*(array.text for _, array in part.arrays), names])
        computing, combining = (f"{f}({indices}, {given});\n" for f in (part.computing, part.function))
        declared = "".join(f"    {kind} {array.text}[{block}];\n" for kind, array in part.arrays)
        return f"{declared}{simd}{loop}{computing}{loop}{combining}"
    return f"{'' if is_ordered(kernel) else simd}{loop}{part.function}({indices}, {names});\n"


def _ends(part: _Part, chunks: Chunks, elements: str) -> tuple[str, str]:
    """The first element of a block, among those of all blocks of a part, and the one behind its last."""
    first = f"(b - {part.first}) * {chunks.span}ll"
    return first, f"{first} + {elements}"


def _chunks(part: _Part, chunks: Chunks, names: str, high: int) -> str:
    """The loop over the chunks of a block; the chunk of some blocks."""
    lanes, elements, live = chunks.lanes, str(chunks.span), str(chunks.lanes)
    if chunks.blocks > 1:
        elements = f"((last < {high} ? last : {high}) - b) * {chunks.span}ll"
        elements = f"({elements} < {lanes} ? {elements} : {lanes})"
    if chunks.count and high == part.last:
        rest = f"{chunks.count} - (b - {part.first}) * {chunks.span}ll"
        elements = f"({rest} < {elements} ? {rest} : {elements})"
    block = f"{part.function}(hlo::Index{{(int)b, 0, 0}}"
    if chunks.row == chunks.lanes == chunks.run:  # a row belongs to the block in which it begins
        first, end = (f"({at} + {chunks.row - 1}) / {chunks.row}" for at in _ends(part, chunks, elements))
        return (
            f"    const long long end = {end};\n"
            f"    for (long long row = {first}; row < end; ++row)\n"
            f"      {block}, row, 0, {lanes}, {names});\n"
        )
    if chunks.row:
        first, end = _ends(part, chunks, elements)
        if chunks.run > 1:  # a run belongs to the block in which it ends
            first, end = (f"hlo::at_run<{chunks.row}, {chunks.run}>({at})" for at in (first, end))
        return (
            f"    const long long end = {end};\n"
            f"    for (long long at = {first}, live; at < end; at += live) {{\n"
            f"      const long long row = at / {chunks.row}, from = at % {chunks.row};\n"
            f"      live = {chunks.row} - from < {lanes} ? {chunks.row} - from : {lanes};\n"
            f"      live = end - at < live ? end - at : live;\n"
            f"      {block}, row, from, live, {names});\n    }}\n"
        )
    if elements != str(chunks.span) or chunks.span % lanes:
        left = f"{elements} - chunk * {lanes}"
        live = f"({left} < {lanes} ? {left} : {lanes})"
    return (
        f"    for (long long chunk = 0; chunk * {lanes} < {elements}; ++chunk)\n      {block}, chunk, {live}, "
        f"{names});\n"
    )
