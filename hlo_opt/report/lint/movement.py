"""Rules about kernels that move what need not be moved: concatenates, copies into another order, reductions that read
badly."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from hlo_opt.cutting.parts import part_of
from hlo_opt.fusion.summary import module_summary
from hlo_opt.ir import Attribute, Instruction, Shape, edit
from hlo_opt.ir.shape import array
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.sets import is_free, joins_arrays, launches, reorders, tuple_elements
from hlo_opt.plans.columns import WARP
from hlo_opt.report.lint.base import Finding, FusedProgram
from hlo_opt.report.lint.by_parts import multiply_parts, work_on_parts
from hlo_opt.report.page import count, counted, microseconds, size
from hlo_opt.report.view.kernels import DrawnKernel

SLOWER = 1.5
"""How many times as long as a copy of the bytes that it has to move a reduction may take before it is spoken of."""

LEAST = 1_000_000
"""Bytes below which the launch is most of what a kernel takes, so that how it reads counts little."""


def _work(kernel: DrawnKernel) -> list[Instruction]:
    """What a kernel computes, without what is free and without itself where it is a fusion."""
    return [
        m for m in kernel.members if not is_free(m.opcode) and (m is not kernel.instruction or len(kernel.members) == 1)
    ]


def _readers(kernel: DrawnKernel) -> set[Instruction]:
    """The kernels and calls that read a result, elements of tuples and views looked through."""
    readers: set[Instruction] = set()
    todo = list(kernel.instruction.users)
    seen = set(todo)
    while todo:
        user = todo.pop()
        if launches(user):
            readers.add(user)
            continue
        fresh = [u for u in user.users if u not in seen]
        seen.update(fresh)
        todo += fresh
    return readers


def concatenates(program: FusedProgram) -> Iterator[Finding]:
    """A kernel that writes a concatenate, which others read, where less time passes if they work on its parts."""
    takes = {kernel.instruction: kernel.price.us * kernel.rounds for kernel in program.kernels}
    places = []
    for kernel in program.kernels:
        readers = _readers(kernel)
        join = next((m for m in kernel.members if joins_arrays(m) and _is_written(m, kernel)), None)
        if join is not None and readers:
            us = sum(takes.get(one, 0.0) for one in {kernel.instruction, *readers})
            places.append((us, (kernel, join, readers)))
    for kernel, join, readers in program.worth_trying("LNT101", places):
        us, change, rewrite = max(_by_parts(join, program), default=(0.0, "", ""))
        if us <= 0:
            continue
        numbers = {
            "name": join.name,
            "parts": count(len(join.operands)),
            "readers": counted(len(readers), "kernel"),
            "size": size(join.shape.byte_size),
            "change": change,
        }
        yield Finding("LNT101", numbers, program.source(kernel, join), join.name, us, saves=True, rewrite=rewrite)


_CHANGES = (
    (
        work_on_parts,
        "work on the parts and join the results, or do not join at all",
        "by parts and fused again; each part of a result reads the elements that it read before",
    ),
    (
        multiply_parts,
        "multiply each part by its own rows and add the products, as `a @ w[:n] + b @ w[n:]`",
        "by parts and fused again; the sums are the same but for roundings",
    ),
)


def _by_parts(join: Instruction, program: FusedProgram) -> Iterator[tuple[float, str, str]]:
    """Ways to do without a concatenate: the microseconds that each saves, what to write, and how it was tried."""
    for rewritten, change, tried in _CHANGES:
        copy = program.copy_with(join)
        if copy is not None and rewritten(copy[1]):
            yield program.saved(copy[0]) or 0.0, change, tried


def _is_written(member: Instruction, kernel: DrawnKernel) -> bool:
    """Whether a member of a kernel is one of its results."""
    is_result = member.is_root or any(u.is_root and tuple_elements(u) is not None for u in member.users)
    return member is kernel.instruction or is_result


def copies(program: FusedProgram) -> Iterator[Finding]:
    """A kernel that does nothing but move elements, and puts them in another order or into memory of their own."""
    for kernel in program.kernels:
        work = _work(kernel)
        moved = next((m for m in work if reorders(m)), None)
        if moved is None or not all((s := find(m.opcode)) is not None and s.kind is OpKind.MOVEMENT for m in work):
            continue
        numbers = {"name": moved.name, "opcode": moved.opcode, "size": size(moved.shape.byte_size)}
        yield Finding("LNT102", numbers, program.source(kernel, moved), moved.name, kernel.price.us * kernel.rounds)


def _folds(instruction: Instruction) -> bool:
    """Whether an operation folds elements by a reducer, in a kernel of ours: a sort has an order of its own."""
    spec = find(instruction.opcode)
    return spec is not None and spec.kind is OpKind.REDUCTION and not spec.is_library


def _reads_rows(reduce: Instruction, kernel: DrawnKernel) -> bool:
    """Whether a reduction folds at least a warp's worth of the elements that lie side by side, and nothing before it in
    its kernel changes their order: no other order of dimensions reads better. What it waits for is too few rows."""
    shape = reduce.operands[0].shape
    fastest = next((d for d in shape.minor_to_major if shape.dimensions[d] > 1), -1)
    is_row = fastest in reduce.ints("dimensions") and shape.dimensions[fastest] >= WARP
    return is_row and not _is_reordered_before(reduce, kernel)


def _is_reordered_before(reduce: Instruction, kernel: DrawnKernel) -> bool:
    """Whether the kernel changes the order of elements on their way to a reduction. What it writes in another order
    after that does not slow the reading."""
    members, seen, todo = set(kernel.members), set[Instruction](), [*reduce.operands]
    while todo:
        instruction = todo.pop()
        if instruction in seen or instruction not in members:
            continue
        if reorders(instruction):
            return True
        seen.add(instruction)
        todo += instruction.operands
    return False


_APART = "a dimension that is kept stands between those that are reduced: reduce the last ones first, then the others"
_LAST = (
    "put the reduced dimension last where the array is made, and let it be long; a transpose beside the reduction "
    "changes nothing"
)


def _folds_apart(reduce: Instruction) -> bool:
    """Whether a dimension that a reduction keeps lies in memory between two that it folds."""
    shape, folded = reduce.operands[0].shape, reduce.ints("dimensions")
    sides = [d in folded for d in shape.minor_to_major if shape.dimensions[d] > 1]
    return sum(a and not b for a, b in zip(sides, [*sides[1:], False], strict=True)) > 1


def _saving(reduce: Instruction, kernel: DrawnKernel, program: FusedProgram) -> float:
    """Microseconds that a reduction by itself would save if it were written as the hint says; 0 where it would save
    less than is worth a word."""
    as_it_is, advised = (part_of(reduce.computation, {reduce}, [reduce]).module for _ in range(2))
    _advise(advised.entry.root)
    now, better = (
        module_summary(m, program.target).est_us - program.target.kernel_launch_us for m in (as_it_is, advised)
    )
    if _is_reordered_before(reduce, kernel):  # what is slow is not the reduction by itself
        now = kernel.price.us - kernel.price.launch
    return now - better if now > SLOWER * better else 0.0


def _advise(reduce: Instruction) -> None:
    """Change a reduction of parameters as the hint says: where a kept dimension lies between those that are folded,
    the last of these first; else those that are folded are made the last ones."""
    folded = sorted(reduce.ints("dimensions"))
    arrays = reduce.operands[: len(reduce.operands) // 2]
    shape = arrays[0].shape
    if not _folds_apart(reduce):
        kept = [d for d in range(shape.rank) if d not in folded]
        for operand in arrays:
            sizes = (operand.shape.dimensions[d] for d in (*kept, *folded))
            edit.set_shape(operand, array(operand.shape.type, *sizes))
        edit.set_attribute(reduce, "dimensions", Attribute.of(tuple(range(len(kept), shape.rank))))
        return
    order = [d for d in shape.minor_to_major if shape.dimensions[d] > 1]
    first = next(n for n, d in enumerate(order) if d in folded)
    last = list(itertools.takewhile(lambda d: d in folded, order[first:]))
    left = [d for d in range(shape.rank) if d not in last]
    shapes = [array(o.shape.type, *(o.shape.dimensions[d] for d in left)) for o in arrays]
    attributes = {**reduce.attributes, "dimensions": Attribute.of(tuple(sorted(last)))}
    whole = shapes[0] if len(shapes) == 1 else Shape.tuple_of(*shapes)
    inner = edit.create(reduce.computation, "last", reduce.opcode, whole, reduce.operands, attributes)
    parts = [inner] if len(shapes) == 1 else [edit.create_element(inner, n) for n in range(len(shapes))]
    edit.set_operands(reduce, [*parts, *reduce.operands[len(arrays) :]])
    edit.set_attribute(reduce, "dimensions", Attribute.of(tuple(left.index(d) for d in folded if d in left)))
    edit.sort(reduce.computation)


def reductions(program: FusedProgram) -> Iterator[Finding]:
    """A reduction of dimensions that takes longer than its bytes and its arithmetic do, for the order in which it
    reads: in another order of dimensions the estimate of the reduction by itself is lower."""
    for kernel in program.kernels:
        reduce = next((m for m in _work(kernel) if _folds(m) and m.ints("dimensions")), None)
        price = kernel.price
        if reduce is None or price.least < LEAST or _reads_rows(reduce, kernel):
            continue
        least = max(program.copying(price.least), price.instructions, price.slow)
        us = price.us - price.launch - least
        if us < (SLOWER - 1) * least:
            continue
        us = min(us, _saving(reduce, kernel, program))
        if us <= 0:
            continue
        numbers = {
            "name": reduce.name,
            "shape": str(reduce.operands[0].shape.without_layout()),
            "time": microseconds(price.us - price.launch),
            "least": microseconds(least),
            "advice": _APART if _folds_apart(reduce) else _LAST,
        }
        yield Finding("LNT103", numbers, program.source(kernel, reduce), reduce.name, us * kernel.rounds, saves=True)
