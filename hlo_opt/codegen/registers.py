"""Values that a thread computes in one pass over its columns and needs again in a later one: they stay in its registers.

So a softmax reads its row once and takes each exponential once. Which values those are, a trial tells: it writes all passes and offers each what the passes
before it have computed.
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
from hlo_opt.ops.code import Code, Name, call, cell, code, of

MOST_REGISTERS = 32
"""Registers of a thread that hold kept values. In a block of 1,024 threads each has 64 for all that it does."""

PAIR = "unsigned int"
"""Of a register with two values of 16 bits."""

_COLUMN = "hlo_column"
"""Stands for the variable that a pass walks the columns with."""


class Keeper(Protocol):
    """Told of the column that a pass visits, before it computes anything there and after."""

    @property
    def keeps(self) -> bool:
        """Whether passes must number a thread's columns by constants, as positions of an array in registers have to be."""

    def begin(self, builder: Builder, number: int, column: Variable, slot: Code) -> None:
        """Pass `number` is about to compute values at a column, which is so many-th of the thread's."""

    def end(self, builder: Builder, number: int, column: Variable, slot: Code) -> None:
        """It has."""


@dataclass
class _Value:
    """Something computed at each column in the pass `made`; the pass `last` is the last one that needs it again, -1 where none does."""

    instruction: Instruction
    element: int | None
    index: tuple[Expression, ...]
    made: int
    last: int = -1

    @property
    def type(self) -> ElementType:
        return list(self.instruction.shape.leaves())[self.element or 0].type

    def registers(self, *, in_pairs: bool) -> float:
        """Of a thread, for one of its columns."""
        if in_pairs and self.is_half:
            return 0.5
        return 2 if register_type(self.type) in ("double", "long long", "unsigned long long") else 1

    @property
    def is_half(self) -> bool:
        """Whether a register may hold two."""
        return self.type.name == "bf16"

    def at(self, column: Expression) -> tuple[Expression, ...]:
        return tuple(substitute(e, {_COLUMN: column}) for e in self.index)


class _Nothing:
    """Every pass computes all that it needs."""

    keeps = False

    def begin(self, builder: Builder, number: int, column: Variable, slot: Code) -> None:
        """Nothing to find."""

    def end(self, builder: Builder, number: int, column: Variable, slot: Code) -> None:
        """Nothing to keep."""


class _Trial:
    """Finds out what later passes could use."""

    keeps = True

    def __init__(self, steady: frozenset[str], loads_only: bool) -> None:
        self.values: list[_Value] = []
        self._offered: dict[Name, _Value] = {}
        self._steady = steady
        self._loads_only = loads_only

    def begin(self, builder: Builder, number: int, column: Variable, slot: Code) -> None:
        for place, value in enumerate(self.values):
            if value.made < number:
                name = Name(f"offered{place}")
                self._offered[name] = value
                builder.provide(value.instruction, value.element, value.at(column), of(name))

    def end(self, builder: Builder, number: int, column: Variable, slot: Code) -> None:
        for mentioned in names_in(builder.statements):
            if mentioned in self._offered:
                self._offered[mentioned].last = number
        back = {column.name: Variable(column.low, column.high, _COLUMN)}
        found = {(v.instruction, v.element, v.index) for v in self.values}
        for (instruction, element, index), name in builder.known().items():
            read = frozenset[str]().union(*map(variables_of, index))
            if column.name not in read or not read <= self._steady | {column.name} or name.name is None:
                continue  # a constant, or of something that only this pass has
            value = _Value(instruction, element, tuple(substitute(e, back) for e in index), number)
            wanted = instruction.parameter_number is not None or not self._loads_only
            if wanted and not value.type.is_complex and (instruction, element, value.index) not in found:
                self.values.append(value)


class _Registers:
    """Keeps what a trial has found."""

    keeps = True

    def __init__(self, builder: Builder, values: Sequence[_Value], slots: int, in_pairs: bool) -> None:
        self._values = [
            (v, builder.fresh(f"kept_{builder.stem_of(v.instruction)}"), in_pairs and v.is_half) for v in values
        ]
        for value, name, halves in self._values:
            kind, size = (PAIR, -(-slots // 2)) if halves else (register_type(value.type), slots)
            builder.array(kind, name, size)

    def begin(self, builder: Builder, number: int, column: Variable, slot: Code) -> None:
        for value, name, halves in self._values:
            if value.made < number <= value.last:
                builder.name_after(value.instruction)
                held = call("hlo_half_bf16", _pair(name, slot), slot) if halves else cell(name, slot)
                bound = builder.bind_exact(value.type, held)
                builder.provide(value.instruction, value.element, value.at(column), bound)

    def end(self, builder: Builder, number: int, column: Variable, slot: Code) -> None:
        for value, name, halves in self._values:
            if value.made != number:
                continue
            at = value.at(column)
            known = value.element is None
            computed = (
                builder.value(value.instruction, at)
                if known
                else builder.element(value.instruction, value.element or 0, at)
            )
            if halves:
                pair = _pair(name, slot)
                builder.assign(pair, call("hlo_pair_bf16", pair, slot, computed))
            else:
                builder.assign(cell(name, slot), computed)


def _pair(name: Name, slot: Code) -> Code:
    """The register that holds a column with the one beside it."""
    return cell(name, code("({}) / 2", slot))


def keeper(
    builder: Builder, slots: int, passes: int, steady: Sequence[str], write: Callable[[Builder, Keeper], None]
) -> Keeper:
    """What `passes` passes keep of `slots` columns per thread, as far as registers allow; `write` writes them all. `steady` are the names of the variables that mean the same
    in every pass. Declares the arrays."""
    if passes < 2 or slots > 2 * MOST_REGISTERS:
        return _Nothing()
    for loads_only in (False, True):
        trial = _Trial(frozenset(steady), loads_only)
        write(builder.trial(), trial)
        values = [v for v in trial.values if v.last >= 0]
        if not values:
            return _Nothing()
        for in_pairs in (False, True):
            taken = ((n, v.registers(in_pairs=in_pairs)) for v in values for n in range(v.made, v.last))
            held = [0.0] * passes
            for number, registers in taken:
                held[number] += registers
            if max(held) * slots <= MOST_REGISTERS:
                return _Registers(builder, values, slots, in_pairs)
    return _Nothing()
