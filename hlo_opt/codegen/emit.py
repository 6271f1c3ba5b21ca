"""From a plan to a kernel."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from importlib import import_module
from typing import Any

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.cuda import kernel_text
from hlo_opt.codegen.kernel import KEPT, Kernel, KernelTree, Pointer, kept_bytes
from hlo_opt.codegen.names import comment, identifier
from hlo_opt.codegen.scalars import memory_type
from hlo_opt.codegen.tree import Aligned, Note, Statement
from hlo_opt.codegen.vectors import Targets
from hlo_opt.ir import Attribute, Instruction, Shape
from hlo_opt.ir.attribute import render
from hlo_opt.ir.literal import SizedLiteral
from hlo_opt.ir.size import NAME as SIZE
from hlo_opt.ir.size import most, size_in
from hlo_opt.ops.code import Name
from hlo_opt.ops.spec import find
from hlo_opt.plans.plan import Plan, Region, Segment

Emitter = Callable[[Builder, Plan, Segment[Any], int, Targets], None]
"""Emits a segment, given its first block and the (pointer, shape) targets of each root of the region."""


@cache
def emitter(kind: str) -> Emitter:
    """The emitter of a kind: `emit` in the file named after it."""
    emit: Emitter = import_module(f"hlo_opt.codegen.{kind.replace('-', '_')}").emit
    return emit


ALIGNMENT = 16
"""Every buffer on a GPU starts at a multiple of this many bytes, the widest load of a thread. CuPy's start at multiples
of 512."""

FEWEST_MULTIPROCESSORS = 108
"""The multiprocessors of the smallest GPU that kernels are tuned for, an A100."""

_MOST_COMMENTED = 60  # instructions listed in a kernel's comment


def emit_kernel(plan: Plan, in_place: Sequence[tuple[int, int]] = ()) -> Kernel:
    """The kernel of a plan. Equal plans over structurally equal regions give equal texts, and so equal symbols.
    `in_place`: outputs, each with a parameter, among `sharing_of(plan)`; the kernel is made for one memory of both.

    Raises BackendError for a region that `hlo_opt.plans.plan` would have refused.
    """
    region = plan.region
    numbers = {instruction: number for number, instruction in enumerate(_order(region))}
    outputs = [(Name(f"out{number}"), shape) for number, shape in enumerate(region.outputs)]
    rest = iter(outputs)
    of_roots = [[next(rest) for _ in root.shape.leaves()] for root in region.roots]
    pointers = {parameter: Name(f"in{number}") for number, parameter in enumerate(region.parameters)}
    own = (*(output for segment in plan.segments for output in segment.own), *(output for output, _ in in_place))
    aliases = (*(alias for segment in plan.segments for alias in segment.aliases), *in_place)
    places = dict(pointers)  # an updated input is read from the output, so that both pointers may be equal
    places.update((region.parameters[number], Name(f"out{output}")) for output, number in aliases if output in own)
    unread = [name for p, name in pointers.items() if places[p] != name]
    scratch = [(Name(name), shape) for name, shape in zip(plan.scratch_names, plan.scratch, strict=True)]
    size = next((size for i in numbers if (size := _size_of(i))), 0)
    builder = Builder(
        numbers, places, [*unread, *(name for name, _ in (*outputs, *scratch)), Name(KEPT), *[Name(SIZE)] * bool(size)]
    )
    first = 0
    for segment in plan.segments:
        with nullcontext() if len(plan.segments) == 1 else builder.own_blocks(first, segment.blocks):
            if segment.blocks:
                emitter(segment.kind)(builder, plan, segment, first, of_roots)
        first += segment.blocks
    if builder.moves_neighbours or any(segment.vector > 1 or segment.in_rows for segment in plan.segments):
        builder.body[:0] = _alignment(pointers, outputs)
    parameters = [Pointer(memory_type(p.shape.type), name, constant=True) for p, name in pointers.items()]
    parameters += [Pointer(memory_type(shape.type), name) for name, shape in outputs]
    parameters += [Pointer(memory_type(shape.type), name, alone=not plan.launch.cooperative) for name, shape in scratch]
    tree = KernelTree(plan.launch, tuple(parameters), tuple(builder.tables), tuple(builder.body), size)
    before, after = kernel_text(tree, _bounds(plan))
    before = comment(_description(plan, numbers)) + before
    stem = f"{identifier(plan.kind)}_{identifier(plan.segments[0].hero.opcode)}"
    launch = plan.launch
    content = f"{launch.grid} {launch.block} {launch.shared_bytes}\n{before}{after}"
    symbol = f"{stem}_{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    inputs, outputs_of = list(region.declared_inputs), (*region.declared_outputs, *plan.scratch)
    for output, number in aliases:
        if inputs[number].dimensions == outputs_of[output].dimensions:
            inputs[number] = outputs_of[output]  # in the layout of the updated copy
    traits = {name: any(getattr(s, name) for s in plan.segments) for name in ("in_order", "rereads", "meets")}
    source = f"{before}{symbol}{after}"
    return Kernel(
        symbol,
        source,
        launch,
        tuple(inputs),
        outputs_of,
        plan.kind,
        tree,
        aliases,
        own,
        kept=kept_bytes(tree),
        size=size,
        **traits,
    )


def _bounds(plan: Plan) -> str:
    """The arguments of `__launch_bounds__`: threads per block, and the minimum of resident blocks.

    One resident block suffices where the grid is at most one block per multiprocessor; left alone, the compiler would
    spill registers to fit a second (CUDA C++ Programming Guide, "Launch Bounds"). Tiled products need only two.
    """
    launch = plan.launch
    if most(launch.grid) <= FEWEST_MULTIPROCESSORS:
        return f"{launch.block}, 1"
    resident = max(segment.resident for segment in plan.segments)
    return f"{launch.block}, {resident}" if resident else f"{launch.block}"


def _alignment(pointers: Mapping[Instruction, Name], outputs: Sequence[tuple[Name, Shape]]) -> list[Statement]:
    """The promise that buffers are aligned, so that NVRTC combines consecutive accesses of a thread into wide ones."""
    says = f"every buffer starts at a multiple of {ALIGNMENT} bytes, so that neighbouring elements move together"
    inputs = [(n, f"const {memory_type(p.shape.type)}*") for p, n in pointers.items() if p.shape.element_count > 1]
    written = [(n, f"{memory_type(shape.type)}*") for n, shape in outputs if shape.element_count > 1]
    return [Note(says), *(Aligned(name, kind, ALIGNMENT) for name, kind in inputs + written)]


def _order(region: Region) -> list[Instruction]:
    """The instructions that outputs need, parameters first, then operands before users, in an order that depends on
    structure only."""
    done: set[Instruction] = set(region.parameters)
    order = list(region.parameters)
    stack = [(root, False) for root in reversed(region.roots)]
    while stack:
        instruction, ready = stack.pop()
        if instruction in done:
            continue
        if ready:
            done.add(instruction)
            order.append(instruction)
        else:
            stack.append((instruction, True))
            stack.extend((o, False) for o in reversed(instruction.operands) if o not in done)
    return order


def _description(plan: Plan, numbers: Mapping[Instruction, int]) -> list[str]:
    """The region as HLO, with the names that its values have in the code."""
    launch = plan.launch
    lines = [f"{plan.kind}: {launch.grid} blocks of {launch.block} threads"]
    names = {
        i: f"x{i.parameter_number}" if i.parameter_number is not None else f"{identifier(i.opcode)}_{n}"
        for i, n in numbers.items()
    }
    shown = [i for i in numbers if i.parameter_number is None]
    for instruction in shown[:_MOST_COMMENTED]:
        arguments = ", ".join(f"{names[o]}" for o in instruction.operands)
        if instruction.literal is not None:
            arguments = _short_literal(instruction)
        attributes = "".join(f", {text}" for text in _attributes(instruction))
        lines.append(f"{names[instruction]} = {instruction.shape} {instruction.opcode}({arguments}){attributes}")
    if len(shown) > _MOST_COMMENTED:
        lines.append(f"... and {len(shown) - _MOST_COMMENTED} more")
    return lines


def _size_of(instruction: Instruction) -> int:
    """The size of a range that an instruction's shape or constant follows; 0 where none does."""
    return instruction.literal.size if isinstance(instruction.literal, SizedLiteral) else size_in(instruction.shape)


def _short_literal(instruction: Instruction) -> str:
    import numpy as np

    assert instruction.literal is not None
    if isinstance(instruction.literal, SizedLiteral) and instruction.literal.code is not None:
        return instruction.literal.code
    value = np.asarray(instruction.literal.value)
    return str(value.reshape(-1)[0]) if value.size == 1 else "..."


def _attributes(instruction: Instruction) -> list[str]:
    """The attributes that the opcode declares; called computations by their root opcode."""
    spec = find(instruction.opcode)
    if spec is None:
        return []
    shown = []
    for name in sorted(spec.attributes):
        value = instruction.attributes.get(name)
        if isinstance(value, Attribute):
            shown.append(f"{name}={render(value.value)}")
        elif value is not None:
            shown.append(f"{name}={' '.join(c.root.opcode for c in value.computations)}")
    return shown
