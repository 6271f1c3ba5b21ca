"""Rules about values: f64 by accident, constants that are data, random numbers in a loop."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from hlo_opt.diag import HloOptError
from hlo_opt.ir import Instruction
from hlo_opt.ir.walk import executed_computations
from hlo_opt.ops.sets import is_free, mixes_bits
from hlo_opt.plans.price import together
from hlo_opt.report.lint.base import Finding, FusedProgram, everything
from hlo_opt.report.page import count, counted, size
from hlo_opt.text import parse, verify
from hlo_opt.text.frames import source_location

LARGE = 1 << 20
"""Bytes of a constant that is data rather than a number of the program."""

_WIDE = {"f64": "f32", "c128": "c64"}

MIXING = 40
"""Operations that mix bits from which on a kernel draws random numbers: the 20 rounds of threefry take 80."""


def _is_wide(instruction: Instruction) -> bool:
    return any(leaf.is_array and leaf.type.name in _WIDE for leaf in instruction.shape.leaves())


def wide_types(program: FusedProgram) -> Iterator[Finding]:
    """f64 values in a program without f64 inputs. Their cost is the difference to the same program in f32; where there
    is none, what their kernels take."""
    module = program.original
    if any(_is_wide(parameter) for parameter in module.entry.parameters):
        return
    wide = [i for c in executed_computations(module) for i in c.instructions if _is_wide(i)]
    if not any(not is_free(i.opcode) for i in wide):
        return
    first = next((i for i in wide if source_location(module, i) and not is_free(i.opcode)), wide[0])
    numbers = {"count": count(len(wide)), "name": first.name, "type": _name(first)}
    saved = _saved_by_narrow(program)
    kernels = (kernel for kernel in program.kernels if any(map(_is_wide, kernel.members)))
    us = sum(kernel.price.us * kernel.rounds for kernel in kernels) if saved is None else max(saved, 0.0)
    yield Finding("LNT104", numbers, source_location(module, first), first.name, us, saves=saved is not None)


def _saved_by_narrow(program: FusedProgram) -> float | None:
    """Microseconds that the program in narrow types takes less; None where something in it asks for the wide ones."""
    text = str(program.original)
    for name, narrow in _WIDE.items():
        text = re.sub(rf"\b{name}(?=\[)", narrow, text)
    try:
        module = parse(text)
        verify(module)
    except HloOptError:
        return None
    return program.saved(module)


def _name(instruction: Instruction) -> str:
    return next(leaf.type.name for leaf in instruction.shape.leaves() if leaf.is_array and leaf.type.name in _WIDE)


def large_constants(program: FusedProgram) -> Iterator[Finding]:
    """Constants that are as large as data: they are compiled in, held twice, and another value compiles again."""
    module = program.original
    for computation in executed_computations(module):
        for instruction in computation.instructions:
            if instruction.literal is None or instruction.shape.byte_size < LARGE:
                continue
            numbers = {
                "name": instruction.name,
                "shape": str(instruction.shape.without_layout()),
                "size": size(instruction.shape.byte_size),
            }
            readers = (source_location(module, i) for i in (instruction, *instruction.users))
            source = next((line for line in readers if line), "")
            yield Finding("LNT107", numbers, source, instruction.name, bytes=instruction.shape.byte_size)


def _elements(instruction: Instruction) -> int:
    return sum(leaf.element_count for leaf in instruction.shape.leaves() if leaf.is_array)


def random_in_loops(program: FusedProgram) -> Iterator[Finding]:
    """Random numbers that each iteration of a loop computes by mixing bits, as threefry does: some 140 operations for
    each number."""
    looped = {c.name for c in executed_computations(program.fused)} - {program.fused.entry.name}
    for kernel in program.kernels:
        in_loop = kernel.instruction.computation.name in looped
        own = set(kernel.members)
        members = [m for m in everything(kernel) if not is_free(m.opcode) and (in_loop or m not in own)]
        mixing = [m for m in members if mixes_bits(m)]
        if len(mixing) < MIXING:
            continue
        price = kernel.price
        left = 1 - sum(map(_elements, mixing)) / (sum(map(_elements, members)) or 1)
        way = price.way if in_loop else price.way * left  # a loop in a kernel waits for each operation
        without = together((price.memory, price.cache, price.instructions * left, price.slow, way))
        most = _of_most_numbers(mixing, program)
        numbers = {"name": most.name, "count": counted(len(mixing), "operation")}
        us = max(0.0, price.us - price.launch - without) * kernel.rounds
        yield Finding("LNT109", numbers, program.source(kernel, most), most.name, us)


def _of_most_numbers(mixing: Sequence[Instruction], program: FusedProgram) -> Instruction:
    """The instruction that stands for those of the Python line which mixes the most elements, the first in the text:
    keys are split by the same operations, and are few."""
    lines: defaultdict[str, list[Instruction]] = defaultdict(list)
    for instruction in mixing:
        lines[source_location(program.fused, instruction)].append(instruction)
    if len(lines) > 1:
        lines.pop("", None)
    most = max(lines.values(), key=lambda own: sum(map(_elements, own)))
    places = {i: n for c in {m.computation: None for m in most} for n, i in enumerate(c.instructions)}
    return min(most, key=lambda m: (-_elements(m), places[m], m.name))
