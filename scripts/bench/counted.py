"""What a program comes to on a device, without one: launches, bytes and price, and the machine code of its kernels."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import hlo_opt
from hlo_opt.analysis.graph.loops import trip_count
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.codegen import Kernel
from hlo_opt.codegen.options import compile_options
from hlo_opt.fusion.summary import executions, module_summary
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ops.sets import fused, looped
from hlo_opt.passes import run
from hlo_opt.runtime.schedule import build_schedule, ops

PRESETS = {"xla": "xla-2026", "ours": "default"}
"""As XLA fuses a program, and as we do."""
WIDTH = 16
"""Bytes of a machine instruction, since compute capability 7.0."""
BRANCH, EXIT = 0x947, 0x94D
"""The opcodes of a jump and of a thread's end: the low 12 bits of an instruction."""
ALWAYS = 0x7
"""The predicate of what no condition guards: the 4 bits above the opcode, the highest of them for not."""


@dataclass(frozen=True)
class Group:
    """Kernels that are launched equally often, by the names of their instructions: those of the entry, or those of a
    loop's round."""

    times: int
    kernels: tuple[str, ...]


@dataclass(frozen=True)
class Counts:
    """Of a whole run: launches, those of them that stand in loops, bytes between memory and L2 and microseconds, both
    as the plans are priced; `kernels` counts each once."""

    kernels: int
    launches: int
    in_loops: int
    bytes: float
    us: float
    groups: tuple[Group, ...]


def _times(module: Module) -> dict[Computation, int]:
    """How often each computation runs; those of fusions too, for a fusion without a plan is launched as what it
    holds."""
    return executions(module, is_opened=lambda i: True)[0]


def counts_of(module: Module, device: DeviceTarget) -> Counts:
    """Count a fused module."""
    summary = module_summary(module, device)
    times = {c.name: often for c, often in _times(module).items()}
    by_computation: dict[str, list[str]] = {}
    for one in summary.launched:
        by_computation.setdefault(one.computation, []).append(one.instruction)
    groups = tuple(Group(times[name], tuple(kernels)) for name, kernels in by_computation.items())
    in_loops = sum(g.times * len(g.kernels) for g in groups if g.times > 1)
    moved = sum(one.bytes * times[one.computation] for one in summary.launched)
    return Counts(summary.kernels, summary.launches, in_loops, moved, summary.est_us, groups)


@dataclass(frozen=True)
class Code:
    """A kernel's machine code: registers of a thread, instructions in the text, how many of them the longest loop has,
    and how many of those a thread passes on the shortest way through a round."""

    registers: int
    instructions: int
    loop: int
    shortest: int = 0


def code_of(kernel: Kernel, architecture: str) -> Code | None:
    """What NVRTC makes of a kernel, which needs no GPU; nothing where NVRTC is not there."""
    try:
        from cupy.cuda import nvrtc

        from scripts.compile_kernels import REGISTERS
    except ImportError:
        return None
    program = nvrtc.createProgram(kernel.source, f"{kernel.symbol}.cu", (), ())
    try:
        nvrtc.compileProgram(program, (f"-arch={architecture}", *compile_options(), "--ptxas-options=-v"))
        registers = max(int(n) for n in REGISTERS.findall(nvrtc.getProgramLog(program)))
        text = sections(nvrtc.getCUBIN(program))[f".text.{kernel.symbol}"]
    finally:
        nvrtc.destroyProgram(program)
    return Code(registers, *instructions(text), shortest_round(text))


def sections(elf: bytes) -> dict[str, bytes]:
    """The sections of a 64-bit ELF file by name."""
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, of_names = struct.unpack_from("<HHH", elf, 0x3A)
    heads = [struct.unpack_from("<IIQQQQ", elf, table + size * k) for k in range(count)]
    names = heads[of_names][4]

    def name(at: int) -> str:
        return elf[names + at : elf.index(b"\0", names + at)].decode()

    return {name(head[0]): elf[head[4] : head[4] + head[5]] for head in heads}


def _words(text: bytes) -> list[int]:
    return [int.from_bytes(text[at : at + WIDTH], "little") for at in range(0, len(text), WIDTH)]


def _target(word: int, at: int) -> int:
    """The number of the instruction that a jump at a place leads to."""
    # the distance in words of 4 bytes, from the next instruction on: its low 8 bits, then 48 signed bits above
    above = word >> 34 & (1 << 48) - 1
    distance = ((above - (1 << 48) if above >> 47 else above) << 8) + (word >> 16 & 0xFF)
    return at + 1 + distance * 4 // WIDTH


def shortest_round(text: bytes) -> int:
    """The fewest instructions that a thread passes in a round of a kernel's longest loop, from its first one to the
    jump back: without branches for rare values. 0 where there is no loop."""
    words = _words(text)
    jumps = {at: _target(word, at) for at, word in enumerate(words) if word & 0xFFF == BRANCH}
    back = max((at for at, to in jumps.items() if to < at), key=lambda at: at - jumps[at], default=None)
    if back is None:
        return 0
    steps = {jumps[back]: 1}
    for at in range(jumps[back], back):  # jumps inside of a round lead forwards
        if at not in steps:
            continue
        is_always = words[at] >> 12 & 0xF == ALWAYS
        following = [jumps[at]] if at in jumps else []
        if at not in jumps or not is_always:
            following.append(at + 1)
        for to in following:
            if at < to <= back:
                steps[to] = min(steps.get(to, len(words)), steps[at] + 1)
    return steps.get(back, 0)


def instructions(text: bytes) -> tuple[int, int]:
    """How many instructions a kernel's text has, what fills it up left aside, and how many of them lie between the two
    ends of its longest loop."""
    last, longest = 0, 0
    for at, word in enumerate(_words(text)):
        if word & 0xFFF == BRANCH:
            target = _target(word, at)
            if target == at:
                break  # a thread never comes to the jump to itself that ends the text
            longest = max(longest, at + 1 - target)
        last = at + 1
    return last, longest


@dataclass(frozen=True)
class Machine:
    """The machine code of a whole program: the most registers of a thread; instructions of all threads, as the text
    counts them (each branch as taken, each loop of a kernel that holds one as often as it runs); calls of libraries,
    whose code is not ours to count."""

    registers: int
    instructions: float
    calls: int


def machine_of(module: Module, device: DeviceTarget) -> Machine | None:
    """Compile the kernels of a fused module; nothing where NVRTC is not there."""
    times = _times(module)
    registers, total, calls = 0, 0.0, 0
    codes: dict[str, Code] = {}
    for _, op in build_schedule(module, device.name).ops():
        often = times[op.instruction.computation]
        if isinstance(op, ops.CallOp):
            calls += often * (op.kind == "library")
        if not isinstance(op, ops.LaunchOp):
            continue
        kernel = op.kernel
        code = codes.get(kernel.symbol) or code_of(kernel, device.architecture)
        if code is None:
            return None
        codes[kernel.symbol] = code
        registers = max(registers, code.registers)
        of_thread = code.instructions + code.loop * (rounds(op.instruction) - 1)
        total += often * of_thread * kernel.launch.grid * kernel.launch.block
    return Machine(registers, total, calls)


def rounds(instruction: Instruction) -> int:
    """How often the loop runs that a fusion holds; 1 where it holds none."""
    body = fused(instruction)
    inside: Iterable[Instruction] = () if body is None else body.instructions
    return max((trip_count(i) or 1 for i in inside if looped(i) is not None), default=1)


@dataclass(frozen=True)
class Both:
    """A program as XLA fuses it and as we do; `build_s` is what ours takes from text to machine code for the device, in
    seconds, where NVRTC is there."""

    xla: Counts
    ours: Counts
    xla_machine: Machine | None = None
    ours_machine: Machine | None = None
    build_s: float | None = None


def both(text: str, device: DeviceTarget, *, compiled: bool = False) -> Both:
    """Fuse a text in both ways, and compile what becomes of it for the device where that is wanted."""
    start = time.perf_counter()
    ours, _ = hlo_opt.fuse(hlo_opt.parse(text), preset=PRESETS["ours"], target=device.name)
    ours_machine = machine_of(ours, device) if compiled else None
    seconds = time.perf_counter() - start
    xla, _ = hlo_opt.fuse(hlo_opt.parse(text), preset=PRESETS["xla"], target=device.name)
    xla_machine = machine_of(xla, device) if compiled else None
    counts = counts_of(xla, device), counts_of(ours, device)
    return Both(*counts, xla_machine, ours_machine, None if ours_machine is None else seconds)


def relaxed(text: str, device: DeviceTarget) -> Counts:
    """As XLA fuses it when concatenates that several read may stand in a kernel with several results: the authors'
    change to XLA's own rules."""
    passes = "variadic-op-splitter,sort-iota-fusion,priority-fusion,cse,dce,"
    passes += "multi-output-fusion{xla-prices=true,any-form=true},cse,dce"
    return counts_of(run(hlo_opt.parse(text), passes=passes, target=device, what_if=["FUS133"]).module, device)


def counts_from(found: dict[str, Any]) -> Counts:
    """What `asdict` made a dictionary of."""
    return Counts(**{**found, "groups": tuple(Group(g["times"], tuple(g["kernels"])) for g in found["groups"])})


def both_from(found: dict[str, Any]) -> Both:
    """What `asdict` made a dictionary of."""
    xla, ours = (None if found[name] is None else Machine(**found[name]) for name in ("xla_machine", "ours_machine"))
    return Both(counts_from(found["xla"]), counts_from(found["ours"]), xla, ours, found["build_s"])
