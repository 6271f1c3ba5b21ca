"""A device of a run, as `evaluate` faces see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from hlo_opt.ir import Instruction

if TYPE_CHECKING:
    from hlo_opt.ops.values import Value


class Device(Protocol):
    """One of `replicas` x `partitions` devices that run the same program."""

    @property
    def replica(self) -> int: ...
    @property
    def partition(self) -> int: ...
    @property
    def replicas(self) -> int: ...
    @property
    def partitions(self) -> int: ...

    @property
    def number(self) -> int:
        """replica * partitions + partition"""
        ...

    def exchange(
        self, instruction: Instruction, values: Sequence[Value], group: Sequence[int]
    ) -> list[Sequence[Value]]:
        """The operands that the devices with these numbers bring to a collective, after all of them have brought theirs."""
        ...


@dataclass(frozen=True, slots=True)
class OnlyDevice:
    """The device of a run of one, where collectives move nothing: groups may name more devices, but there are none."""

    replica: int = 0
    partition: int = 0
    replicas: int = 1
    partitions: int = 1

    @property
    def number(self) -> int:
        return 0

    def exchange(
        self, instruction: Instruction, values: Sequence[Value], group: Sequence[int]
    ) -> list[Sequence[Value]]:
        return [values]
