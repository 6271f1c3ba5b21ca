"""Values that a thread computes in one pass over its columns and reuses in a later one from registers.

A softmax then reads its row once and computes each exponential once. A trial finds out which values are reused: it
emits all passes, and offers each the values of earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.scalars import register_type
from hlo_opt.codegen.tree import names_in
from hlo_opt.ir import ElementType, Instruction
from hlo_opt.ir.index_map import Expression, Variable, substitute, variables_of
from hlo_opt.ops.code import NOTHING, Code, Name, call, cell, code, of
from hlo_opt.plans.row_reduction import PAIRED_TYPES

MOST_REGISTERS = 32
"""The most registers per thread for kept values. A thread of a 1,024-thread block has 64 in total."""

PAIR = "unsigned int"
"""The type of a register with two 16-bit values."""

_COLUMN = "hlo_column"
"""The placeholder for the column variable of a pass."""


class Keeper(Protocol):
    """Called for each column of a pass, before and after its values are computed."""

    @property
    def keeps(self) -> bool:
        """Whether passes must unroll a thread's columns, since register arrays need constant indices."""

    def unpacks(self, number: int) -> bool:
        """Whether pass `number` reads registers with two values. Then the registers are full: the compiler has none for
        what passes have in common, and should not see that they have."""

    def begin(self, builder: Builder, number: int, column: Variable, slot: Code, zero: Code = NOTHING) -> None:
        """Pass `number` is about to compute values at a column, the thread's column number `slot`. `zero` is a 0 that
        the compiler does not know."""

    def end(self, builder: Builder, number: int, column: Variable, slot: Code) -> None:
        """Pass `number` has computed its values at the column."""


@dataclass
class _Value:
    """A value computed per column in pass `first` and last reused in pass `last`, -1 for never."""

    instruction: Instruction
    element: int | None
    index: tuple[Expression, ...]
    first: int
    last: int = -1

    @property
    def type(self) -> ElementType:
        return list(self.instruction.shape.leaves())[self.element or 0].type

    def registers(self, paired: frozenset[str]) -> float:
        """Registers per thread and column; `paired` are the types of which one keeps two."""
        return PAIRED_TYPES[self.type.name] if self.type.name in paired else _words(self.type)

    def at(self, column: Expression) -> tuple[Expression, ...]:
        return tuple(substitute(e, {_COLUMN: column}) for e in self.index)


def _words(kind: ElementType) -> int:
    """Registers for an element."""
    return 2 if register_type(kind) in ("double", "long long", "unsigned long long") else 1


class _Nothing:
    """Keeps nothing: every pass computes what it needs."""

    keeps = False

    def unpacks(self, number: int) -> bool:
        return False

    def begin(self, builder: Builder, number: int, column: Variable, slot: Code, zero: Code = NOTHING) -> None:
        """Nothing to provide."""

    def end(self, builder: Builder, number: int, column: Variable, slot: Code) -> None:
        """Nothing to keep."""


class _Trial:
    """Finds the values that later passes could reuse."""

    keeps = True

    def __init__(self, steady: frozenset[str], loads_only: bool, held: frozenset[Instruction]) -> None:
        self.values: list[_Value] = []
        self._offered: dict[Name, _Value] = {}
        self._steady = steady
        self._loads_only = loads_only
        self._held = held

    def unpacks(self, number: int) -> bool:
        return False

    def begin(self, builder: Builder, number: int, column: Variable, slot: Code, zero: Code = NOTHING) -> None:
        for place, value in enumerate(self.values):
            if value.first < number:
                name = Name(f"offered{place}")
                self._offered[name] = value
                builder.provide(value.instruction, value.element, value.at(column), of(name))

    def end(self, builder: Builder, number: int, column: Variable, slot: Code) -> None:
        for mentioned in names_in(builder.statements):
            if mentioned in self._offered:
                self._offered[mentioned].last = number
        back = {column.name: Variable(column.low, column.high, _COLUMN)}
        known = {(v.instruction, v.element, v.index) for v in self.values}
        for (instruction, element, index), name in builder.known().items():
            read = frozenset[str]().union(*map(variables_of, index))
            if column.name not in read or not read <= self._steady | {column.name} or name.name is None:
                continue  # a constant, or dependent on variables of this pass only
            value = _Value(instruction, element, tuple(substitute(e, back) for e in index), number)
            is_new = instruction not in self._held
            wanted = is_new and (instruction.parameter_number is not None or not self._loads_only)
            if wanted and not value.type.is_complex and (instruction, element, value.index) not in known:
                self.values.append(value)


class _Registers:
    """Keeps the values that a trial found."""

    keeps = True

    def __init__(self, builder: Builder, values: Sequence[_Value], slots: int, paired: frozenset[str]) -> None:
        self._values = [
            (v, builder.fresh(f"kept_{builder.stem_of(v.instruction)}"), v.type.name in paired) for v in values
        ]
        for value, name, halves in self._values:
            kind, size = (PAIR, -(-slots // 2)) if halves else (register_type(value.type), slots)
            builder.array(kind, name, size)

    def unpacks(self, number: int) -> bool:
        return any(halves and value.first < number <= value.last for value, _, halves in self._values)

    def begin(self, builder: Builder, number: int, column: Variable, slot: Code, zero: Code = NOTHING) -> None:
        for value, name, halves in self._values:
            if value.first < number <= value.last:
                builder.name_after(value.instruction)
                given = [pair_of(name, slot), slot, *([zero] if zero else [])]
                stored = call(f"hlo_half_{value.type.name}", *given) if halves else cell(name, slot)
                bound = builder.bind_exact(value.type, stored)
                builder.provide(value.instruction, value.element, value.at(column), bound)

    def end(self, builder: Builder, number: int, column: Variable, slot: Code) -> None:
        for value, name, halves in self._values:
            if value.first != number:
                continue
            at = value.at(column)
            known = value.element is None
            computed = (
                builder.value(value.instruction, at)
                if known
                else builder.element(value.instruction, value.element or 0, at)
            )
            if halves:
                pair = pair_of(name, slot)
                builder.assign(pair, call(f"hlo_pair_{value.type.name}", pair, slot, computed))
            else:
                builder.assign(cell(name, slot), computed)


def pair_of(name: Name, slot: Code) -> Code:
    """The register that holds a column and its neighbour."""
    return cell(name, code("({}) / 2", slot))


def keeper(
    builder: Builder,
    slots: int,
    passes: int,
    steady: Sequence[str],
    write: Callable[[Builder, Keeper], None],
    held: frozenset[Instruction] = frozenset(),
    paired: frozenset[str] = frozenset({"bf16"}),
    *,
    tight: bool = False,
) -> Keeper:
    """The values to keep in registers between `passes` passes, for `slots` columns per thread. Declares their arrays.

    `write` emits all passes. `steady` are the names of variables that have one meaning in all passes. `held` are
    parameters that registers hold anyway, `paired` the types of which one may keep two values. Where registers are
    `tight`, one does so if else these values took more than half of them.
    """
    filled = sum(_words(p.shape.type) for p in held)
    if passes < 2 or slots > 2 * MOST_REGISTERS:
        return _Nothing()
    for loads_only in (False, True):
        trial = _Trial(frozenset(steady), loads_only, held)
        write(builder.trial(), trial)
        values = [v for v in trial.values if v.last >= 0]
        if not values:
            return _Nothing()
        for pairs in (frozenset[str](), paired):
            uses = ((n, v.registers(pairs)) for v in values for n in range(v.first, v.last))
            needed = [0.0] * passes
            for number, registers in uses:
                needed[number] += registers
            if (
                not pairs
                and tight
                and any(v.type.name in paired for v in values)
                and max(needed) * slots > MOST_REGISTERS // 2
            ):
                continue
            if (max(needed) + filled) * slots <= MOST_REGISTERS:
                return _Registers(builder, values, slots, pairs)
    return _Nothing()
