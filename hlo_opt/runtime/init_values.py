"""How often the init value of a reduction goes in, which HLO leaves open where it is no identity of the reducer: here as often as on XLA:CPU.

There a reduction that reduces nothing is a reshape, and one over long dimensions starts anew in windows of 32 elements, whose results are reduced again
(xla/hlo/transforms/simplifiers/tree_reduction_rewriter.cc). Most programs give an identity, and nothing changes for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from hlo_opt.evaluate import Interpreter
from hlo_opt.ir import Attribute, Computation, Instruction, Module, Shape, edit
from hlo_opt.ir.attribute import Window, WindowDimension
from hlo_opt.ops.reducers import monoid
from hlo_opt.ops.reduction import reduced
from hlo_opt.ops.reduction_numpy import levels, same_windows


def with_init_values_of_xla_cpu(module: Module) -> Module:
    """The module itself where nothing is open, else a copy in which the reductions in question are written out."""
    if not any(_open(i) for i in _reductions(module)):
        return module
    copy = edit.clone_module(module)
    for instruction in list(_reductions(copy)):
        if _open(instruction):
            _write_out(instruction)
    for computation in copy.computations:
        edit.sort(computation)
    return copy


def _reductions(module: Module) -> Iterator[Instruction]:
    for computation in module.computations:
        for i in computation.instructions:
            if i.opcode in ("reduce", "reduce-window") and all(
                leaf.is_array and not any(leaf.dynamic) for leaf in _leaves(i)
            ):
                yield i


def _leaves(i: Instruction) -> list[Shape]:
    return [leaf for shape in (i.shape, *(o.shape for o in i.operands)) for leaf in shape.leaves()]


def _open(i: Instruction) -> bool:
    """Whether the outcome depends on how often the init values go in."""
    return (_reduces_nothing(i) or bool(_levels(i))) and not _starts_from_identity(i)


def _reduces_nothing(i: Instruction) -> bool:
    value = i.operands[0].shape
    if i.opcode == "reduce-window":
        return not value.rank
    return value.element_count == next(i.shape.leaves()).element_count


def _levels(i: Instruction) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    if i.opcode != "reduce" or len(i.operands) != 2 or not i.shape.is_array:
        return []
    return levels(i.operands[0].shape.dimensions, reduced(i), i.shape.type)


_SAMPLES = (-3.0, -1.0, -0.25, 0.0, 0.5, 1.0, 2.0, 7.0)


def _starts_from_identity(i: Instruction) -> bool:
    """Whether the init values are constants that the reducer leaves other values with; asked by example."""
    half = len(i.operands) // 2
    inits = [_constant(init) for init in i.operands[half:]]
    if any(init is None for init in inits):
        return False
    reducer = i.called_by("to_apply")
    types = [o.shape.type.dtype for o in i.operands[:half]]
    with np.errstate(all="ignore"):
        given = [np.array(_SAMPLES).astype(t) for t in types]
        start = [np.full(len(_SAMPLES), init).astype(t) for init, t in zip(inits, types, strict=True)]
        for arguments in ([*start, *given], [*given, *start]):
            made = Interpreter().map_elements(reducer, arguments)
            if any(not np.array_equal(m, g) for m, g in zip(made, given, strict=True)):
                return False
    return True


def _constant(value: Instruction) -> Any:
    """The number that a scalar is, also where a fusion takes it from outside; None for one that is not known."""
    while value.parameter_number is not None and value.parent is not None:
        caller = _only_fusion(value.parent)
        if caller is None:
            return None
        value = caller.operands[value.parameter_number]
    if value.literal is None or value.literal.is_elided:
        return None
    return np.asarray(value.literal.value)[()]


def _only_fusion(computation: Computation) -> Instruction | None:
    """The fusion that calls a computation, where it is the only caller."""
    module = computation.module
    if module is None:
        return None
    callers = [i for c in module.computations for i in c.instructions if computation in i.called()]
    return callers[0] if len(callers) == 1 and callers[0].opcode == "fusion" else None


def _write_out(i: Instruction) -> None:
    computation, half = i.computation, len(i.operands) // 2
    if _reduces_nothing(i):
        leaves = list(i.shape.leaves())
        made = [
            edit.create(computation, i.name, "reshape", leaf, [o])
            for o, leaf in zip(i.operands[:half], leaves, strict=True)
        ]
        edit.redirect_users(
            i, made[0] if i.shape.is_array else edit.create(computation, i.name, "tuple", i.shape, made)
        )
        return
    value, init = i.operands
    for sizes, step in _levels(i):
        windows = tuple(same_windows(size, w) for size, w in zip(sizes, step, strict=True))
        dimensions = tuple(-(-size // w) for size, w in zip(sizes, step, strict=True))
        attributes = {"to_apply": i.attributes["to_apply"], "window": Attribute.of(Window(windows))}
        shape = replace(i.shape, dimensions=dimensions, layout=None)
        value = edit.create(computation, i.name, "reduce-window", shape, [value, init], attributes)
    if monoid(i.called_by("to_apply")) is not None:
        edit.set_operands(i, [value, init])
        return
    gone = reduced(i)  # in order: of what else a reducer may be, threads would not make the same
    window = Window(tuple(WindowDimension(size if d in gone else 1) for d, size in enumerate(value.shape.dimensions)))
    sizes = tuple(1 if d in gone else size for d, size in enumerate(value.shape.dimensions))
    attributes = {"to_apply": i.attributes["to_apply"], "window": Attribute.of(window)}
    shape = replace(i.shape, dimensions=sizes, layout=None)
    whole = edit.create(computation, i.name, "reduce-window", shape, [value, init], attributes)
    edit.redirect_users(i, edit.create(computation, i.name, "reshape", i.shape, [whole]))
