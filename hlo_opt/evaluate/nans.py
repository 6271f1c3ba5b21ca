"""Events of a watched run, and a watcher that finds the operation that makes the first NaN.

The check stops at the first value with a NaN that does not come from a constant. A module may hold NaN constants on
purpose (as padding, or for a branch of a select that is rarely taken). They are ignored as long as they are only moved,
and reported at the operation that computes with them. An input with a NaN stops the run before anything is computed.
Infinities are allowed, since masks use them; where one led to the NaN, the operands' ranges show it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hlo_opt.diag import CheckError
from hlo_opt.ir import Instruction
from hlo_opt.ir.values import Array
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.values import Dynamic, Value, leaves_of
from hlo_opt.text.frames import source_location


@dataclass(frozen=True, slots=True)
class ValueEvent:
    """One evaluation of one instruction.

    operands  the operands' values, in order; empty for a parameter
    value     an array, a NumPy scalar, or a tuple of these
    loops     the enclosing loops, outermost first, each with its number of completed iterations
    device    the simulated device, from 0
    """

    instruction: Instruction
    operands: Sequence[Value]
    value: Value
    loops: tuple[tuple[Instruction, int], ...]
    device: int

    def place(self) -> str:
        """Where it happened, in words: computation, then iteration of each loop (from 0, outermost first)."""
        parent = self.instruction.parent
        parts = [] if parent is None else [parent.name]
        parts += [f"iteration {done} of {loop.name}" for loop, done in self.loops]
        return ", ".join(parts)


Watcher = Callable[[ValueEvent], None]
ValueChange = Callable[[Instruction, Sequence[Value], Value], Value]
"""Called with an instruction, its operands' values and its value; returns the value to continue with."""


def watching(*watchers: Watcher | None) -> Watcher | None:
    """One watcher that calls several; None for none."""
    active = [w for w in watchers if w is not None]
    if len(active) < 2:
        return active[0] if active else None

    def tell(event: ValueEvent) -> None:
        for watcher in active:
            watcher(event)

    return tell


CODE = "HLO720"
_MOVES = frozenset({"convert", "copy"})
"""Operations besides those that `moves_data` that pass NaNs through."""


class NanCheck:
    """A watcher that raises CheckError (HLO720) at the first NaN.

    The error names the instruction, its place in the loops, the number of NaNs and the first one, the operands with
    their ranges, and the Python line where the dump has it.
    """

    def __init__(self) -> None:
        self._arrays: weakref.WeakValueDictionary[int, Array] = weakref.WeakValueDictionary()
        self._scalars: dict[int, Any] = {}

    def __call__(self, event: ValueEvent) -> None:
        instruction = event.instruction
        spec = find(instruction.opcode)
        if (
            spec is not None
            and spec.kind is OpKind.CONTROL
            and instruction.literal is None
            and instruction.parameter_number is None
        ):
            return  # its value was checked where it was computed
        if instruction.parameter_number is not None and not _is_input(instruction):
            return
        for leaf in leaves_of(event.value):
            if not has_nan(leaf):
                continue
            if instruction.literal is not None or (
                ((spec is not None and spec.moves_data) or instruction.opcode in _MOVES)
                and all(self._is_constant(v) for value in event.operands for v in leaves_of(value) if has_nan(v))
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


def _array(leaf: Value) -> Array:
    return leaf.used if isinstance(leaf, Dynamic) else np.asarray(leaf)


def nan_mask(leaf: Value) -> Array | None:
    """Which elements are NaN; None for types without NaN."""
    array = _array(leaf)
    if array.dtype.kind in "biu":
        return None
    try:
        return np.asarray(np.isnan(array))
    except TypeError:  # a type without NaN
        return None


def has_nan(leaf: Value) -> bool:
    """Whether any element is NaN."""
    mask = nan_mask(leaf)
    return mask is not None and bool(mask.any())


def value_range(leaf: Value) -> str:
    """The range of the elements other than NaN, and the number of NaNs: `[-inf, 3.5], 2 NaN`."""
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
        bounds = f"[{array.min():.6g}, {array.max():.6g}]"
        return f"{bounds}, {count} NaN" if count else bounds
    if array.dtype.kind == "b":
        return f"{int(array.sum())} of {array.size} true"
    wide = array.astype(np.int64) if array.dtype.itemsize < 8 else array
    return f"[{wide.min()}, {wide.max()}]"


def _born(event: ValueEvent, leaf: Value) -> CheckError:
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
        said = f"the first NaN comes from {instruction.opcode} {instruction.name}"
    said += f": {amount}; in {event.place()}"
    if event.device:
        said += f"; on device {event.device}"
    if line:
        said += f"; from {line}"
    span = None if module is None else module.span(instruction)
    return CheckError(said, code=CODE, span=span, hint=_operands(instruction, event) or None)


def _operands(instruction: Instruction, event: ValueEvent) -> str:
    """The operands with their ranges, in words."""
    texts = []
    for operand, value in zip(instruction.operands, event.operands, strict=False):
        leaves = list(leaves_of(value))
        ranges = " and ".join(value_range(v) for v in leaves[:4])
        texts.append(f"{operand.name} in {ranges}" if leaves else operand.name)
    return "its operands are " + "; ".join(texts[:8]) if texts else ""
