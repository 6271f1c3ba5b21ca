"""The C++ source of a shared library with kernels in their plain form: the emitted text as it stands.

What stands in front of a kernel's text is what CUDA itself gives (`host_cuda.h`, `host_fibres.h`), and what stands
behind it runs its threads: one after another, or a fibre for each where threads meet. Nothing reads the text to write
another. The same holds for kernels that are watched for races (`host_races.h`): there the compiler calls the watch at
each access to memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.codegen.kernel import Kernel
from hlo_opt.codegen.lanes import launcher_name, shim
from hlo_opt.codegen.scalars import memory_type
from hlo_opt.codegen.threads import changed_at_once, keeps_memory, takes_turns, threads_meet
from hlo_opt.ir import Shape
from hlo_opt.ir.size import NAME as SIZE
from hlo_opt.ir.size import most, unsigned
from hlo_opt.ops.code import Name

IN_TURN = 7
"""Blocks that run at the same time where blocks wait for those before them: enough for some to wait for several."""
WAITING = 70
"""The first devices whose threads say that they wait for others: a fibre that does not would wait for ever."""


def plain_unit(kernels: Sequence[Kernel]) -> str:
    """One translation unit with the given kernels."""
    return _unit(kernels, [])


def watched_unit(kernels: Sequence[Kernel]) -> str:
    """One translation unit with the given kernels, to be built with `-fsanitize=thread` and without its library. Blocks
    and threads run in another order in each launch."""
    return _unit(kernels, ["#define HLO_RACES 1\n"])


def _unit(kernels: Sequence[Kernel], settings: Sequence[str]) -> str:
    parts = [*settings, shim("host_c.h"), shim("host_cuda.h")]
    if settings:
        parts.append(shim("host_races.h"))
    if any(map(threads_meet, kernels)):
        parts += ["#define HLO_FIBRES 1\n", shim("host_fibres.h"), shim("host_tensor.h"), shim("host_clusters.h")]
    parts.append(shim("host_launch.h"))
    for kernel in kernels:
        section = f"hlo_{kernel.symbol}"
        parts.append(
            f'\n#undef HLO_SHARED\n#define HLO_SHARED HLO_SECTION("{section}")\n'
            f"#undef __CUDA_ARCH__\n#define __CUDA_ARCH__ {10 * max(kernel.compute_capability, WAITING)}\n#line 1\n"
            f"namespace of_{kernel.symbol} {{\n{kernel.source}{_launch(kernel, section)}}}\n"
        )
    return "".join(parts)


def _launch(kernel: Kernel, section: str) -> str:
    """The launcher: what a launch needs to know of a kernel."""
    shapes = [*kernel.inputs, *kernel.outputs]
    kinds = ["const " * (k < len(kernel.inputs)) + memory_type(s.type) for k, s in enumerate(shapes)]
    arguments = [f"({kind}*)pointers[{k}]" for k, kind in enumerate(kinds)] + ["kept"] * bool(kernel.kept)
    arguments += [SIZE] * bool(kernel.size)
    own = f"alignas(16) static unsigned char kept[{most(kernel.kept)}];\n" if kernel.kept else ""
    arrays = "".join(f"  {_array(kernel, k, s)},\n" for k, s in enumerate(shapes))
    in_any_order = keeps_memory(kernel) and not kernel.in_order
    facts = (
        f"{unsigned(kernel.launch.grid)}, {kernel.launch.block}, {_truth(threads_meet(kernel))}, "
        f"{_truth(in_any_order)}, {_together(kernel)}, {_truth(takes_turns(kernel))}, &shared, &shared_end, arrays, "
        f"{len(kernel.inputs)}, {len(kernel.outputs)}"
    )
    table = f'const hlo::Array arrays[] = {{\n{arrays}  {{"", 0, 0, 8}}}};\n'
    first = ""
    if kernel.size:  # what depends on the size is known when a launch starts
        own += f"static int {SIZE};\n"
        reset = "__builtin_memset(kept, 0, sizeof kept);\n" if kernel.kept else ""
        first, table = f"  {SIZE} = (int)first;\n{reset}{table}", ""
    else:
        table = f"static {table}"
    return (
        f'HLO_BOUNDS("start", shared, "{section}");\nHLO_BOUNDS("stop", shared_end, "{section}");\n'
        f"{own}static void thread(void** pointers) {{ {kernel.symbol}({', '.join(arguments)}); }}\n"
        f"{table}"
        f'extern "C" __attribute__((visibility("default"))) int {launcher_name(kernel)}(void** pointers, '
        f"long long{' first' * bool(kernel.size)}, long long) {{\n{first}"
        f"  return hlo::run({{thread, {facts}}}, pointers);\n}}\n"
    )


def _array(kernel: Kernel, number: int, shape: Shape) -> str:
    """What a launch knows of an array: its name, elements, bytes, bits of an element, whether a launch finds nothing in
    it, is watched and puts elements into shared bytes, and what nothing looks like."""
    output = number - len(kernel.inputs)
    name = f"in{number}" if output < 0 else f"out{output}"
    is_fresh = output >= 0 and output not in (*kernel.own, *(o for o, _ in kernel.aliases))
    puts = not kernel.meets
    bits = shape.type.bits if shape.type.per_byte > 1 else 8 * shape.type.bytes
    fill = 0xFF if shape.type.is_float or shape.type.is_complex else 0xA5
    truths = ", ".join(map(_truth, (is_fresh, _is_watched(kernel, name), puts)))
    return f'{{"{name}", {shape.element_count}, {shape.stored_bytes}, {bits}, {truths}, {fill}}}'


def _is_watched(kernel: Kernel, name: str) -> bool:
    """Whether what threads do to an array shows a race. Updates of a scatter that are not atomic may meet: HLO leaves
    open which comes last, or the module promises that none do."""
    if not kernel.meets or name.startswith("in"):
        return True
    return Name(name) in changed_at_once(kernel)


def _together(kernel: Kernel) -> str:
    """How many blocks run at the same time because they wait for each other; 0: each block alone."""
    if kernel.launch.cooperative:
        return unsigned(kernel.launch.grid)
    if takes_turns(kernel):
        return str(IN_TURN)
    return str(kernel.launch.cluster if kernel.launch.cluster > 1 else 0)


def _truth(value: bool) -> str:
    return "true" if value else "false"
