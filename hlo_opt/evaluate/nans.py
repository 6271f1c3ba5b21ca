"""What somebody who watches a run sees, every evaluation of an instruction with where in the loops it happened; and a watcher that finds where the first NaN is born.

The check stops at the first value that holds a NaN which is not a constant's. A module may carry NaN constants on purpose (as padding, or for the branch of
a select that is rarely taken); they are nobody's fault as long as they are only moved, and count from the operation that makes something of them, or takes
them into its result. An input that holds a NaN stops the run before anything is computed. Infinities do not: masks are made of them. Where a NaN was made of
one, the ranges of the operands show it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hlo_opt.diag import CheckError
from hlo_opt.ir import Instruction
from hlo_opt.ir.values import Array
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.values import Dynamic, Value
from hlo_opt.text.frames import source_location


@dataclass(frozen=True, slots=True)
class Event:
    """One evaluation of one instruction.

    operands  the operands' values, in order; none for a parameter
    value     an array, a NumPy scalar, or a tuple of such
    loops     the loops that run, the outermost first, each with the iterations that it has done
    device    the simulated device, from 0
    """

    instruction: Instruction
    operands: Sequence[Value]
    value: Value
    loops: tuple[tuple[Instruction, int], ...]
    device: int

    def place(self) -> str:
        """Where it happened, in words: the computation, the iteration of each loop (from 0, the outermost first). Names are as the text has them."""
        parent = self.instruction.parent
        found = [] if parent is None else [parent.name]
        found += [f"iteration {done} of {loop.name}" for loop, done in self.loops]
        return ", ".join(found)


Watcher = Callable[[Event], None]
Change = Callable[[Instruction, Sequence[Value], Value], Value]
"""Puts another value in the place of one that was computed; it is given the instruction, its operands' values and that value."""


def watching(*watchers: Watcher | None) -> Watcher | None:
    """One watcher for several; None where there are none."""
    found = [w for w in watchers if w is not None]
    if len(found) < 2:
        return found[0] if found else None

    def tell(event: Event) -> None:
        for watcher in found:
            watcher(event)

    return tell


CODE = "HLO720"
_MOVES = frozenset({"convert", "copy"})
"""What hands numbers on besides the operations that only move them."""


class NanCheck:
    """Watches a run and raises CheckError (HLO720) at the first NaN.

    The error says which instruction made it, where in the loops, how many elements and the first of them, the operands with their ranges, and the source line of
    the Python program where the dump has it.
    """

    def __init__(self) -> None:
        self._arrays: weakref.WeakValueDictionary[int, Array] = weakref.WeakValueDictionary()
        self._scalars: dict[int, Any] = {}

    def __call__(self, event: Event) -> None:
        instruction = event.instruction
        spec = find(instruction.opcode)
        if (
            spec is not None
            and spec.kind is OpKind.CONTROL
            and instruction.literal is None
            and instruction.parameter_number is None
        ):
            return  # what it hands on has been looked at where it was made
        if instruction.parameter_number is not None and not _is_input(instruction):
            return
        for leaf in _leaves(event.value):
            if not has_nan(leaf):
                continue
            if instruction.literal is not None or (
                ((spec is not None and spec.moves_data) or instruction.opcode in _MOVES)
                and all(self._is_constant(v) for value in event.operands for v in _leaves(value) if has_nan(v))
            ):
                self._remember(leaf)
            else:
                raise _born(event, leaf)

    def _remember(self, leaf: Value) -> None:
        if isinstance(leaf, np.ndarray):
            self._arrays[id(leaf)] = leaf
        else:
            self._scalars[id(leaf)] = leaf

    def _is_constant(self, leaf: Value) -> bool:
        return self._arrays.get(id(leaf)) is leaf or self._scalars.get(id(leaf)) is leaf


def _is_input(parameter: Instruction) -> bool:
    parent = parameter.parent
    return parent is None or parent.module is None or parent.module.entry is parent


def _leaves(value: Value) -> Iterator[Value]:
    todo = [value]
    while todo:
        top = todo.pop()
        if isinstance(top, tuple):
            todo.extend(reversed(top))
        else:
            yield top


def _array(leaf: Value) -> Array:
    return leaf.used if isinstance(leaf, Dynamic) else np.asarray(leaf)


def nan_mask(leaf: Value) -> Array | None:
    """Which elements are NaN; None for types that have none."""
    array = _array(leaf)
    if array.dtype.kind in "biu":
        return None
    try:
        return np.asarray(np.isnan(array))
    except TypeError:  # a type without NaN
        return None


def has_nan(leaf: Value) -> bool:
    """Whether one element is NaN."""
    mask = nan_mask(leaf)
    return mask is not None and bool(mask.any())


def value_range(leaf: Value) -> str:
    """Least and greatest of the elements that are no NaN, with the number of those that are: `[-inf, 3.5], 2 NaN`."""
    array = _array(leaf)
    if not array.size:
        return "no elements"
    mask = nan_mask(array)
    if mask is not None:
        count = int(mask.sum())
        array = array[~mask]
        if not array.size:
            return "all NaN"
        if array.dtype.kind == "c":
            array = np.abs(array)
        elif array.dtype.kind != "f" or array.dtype.itemsize < 4:
            array = array.astype(np.float32)
        told = f"[{array.min():.6g}, {array.max():.6g}]"
        return f"{told}, {count} NaN" if count else told
    if array.dtype.kind == "b":
        return f"{int(array.sum())} of {array.size} true"
    wide = array.astype(np.int64) if array.dtype.itemsize < 8 else array
    return f"[{wide.min()}, {wide.max()}]"


def _born(event: Event, leaf: Value) -> CheckError:
    instruction = event.instruction
    mask = nan_mask(leaf)
    assert mask is not None
    first = ",".join(str(int(k)) for k in np.argwhere(mask)[0])
    amount = f"{int(mask.sum())} of {mask.size} elements, the first at [{first}]" if mask.ndim else "its value"
    parent = instruction.parent
    module = None if parent is None else parent.module
    line = "" if module is None else source_location(module, instruction)
    if instruction.parameter_number is not None:
        said = f"input {instruction.name} holds NaN"
    else:
        said = f"the first NaN is born in {instruction.opcode} {instruction.name}"
    said += f": {amount}; in {event.place()}"
    if event.device:
        said += f"; on device {event.device}"
    if line:
        said += f"; from {line}"
    span = None if module is None else module.span(instruction)
    return CheckError(said, code=CODE, span=span, hint=_operands(instruction, event) or None)


def _operands(instruction: Instruction, event: Event) -> str:
    """The operands with their ranges."""
    told = []
    for operand, value in zip(instruction.operands, event.operands, strict=False):
        leaves = list(_leaves(value))
        ranges = " and ".join(value_range(v) for v in leaves[:4])
        told.append(f"{operand.name} in {ranges}" if leaves else operand.name)
    return "its operands are " + "; ".join(told[:8]) if told else ""
