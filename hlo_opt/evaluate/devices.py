"""Runs of one module on several simulated devices, which meet in its collectives.

Every device is an interpreter in a thread of its own, and exactly one of them runs at any time, until it waits at a collective or ends; then the
next one that can go on does, in order of their numbers. So a run is deterministic, and when nobody can go on although somebody has not ended, the devices
have gone different ways and the run stops with an error that names where each one waits.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hlo_opt.diag import EvaluationError
from hlo_opt.evaluate.effects import Effects
from hlo_opt.evaluate.inputs import Array, checked, flatten, unflatten
from hlo_opt.evaluate.interpreter import Interpreter, Stopped
from hlo_opt.evaluate.memory import check_memory, inputs_bytes
from hlo_opt.evaluate.nans import NanCheck
from hlo_opt.evaluate.program import error
from hlo_opt.evaluate.reference import CALLS
from hlo_opt.evaluate.watch import Watcher, watching
from hlo_opt.ir import Attribute, Instruction, Module

LEFT_BEHIND = 0.5
"""Seconds that the threads of a run that failed get to end."""

MOST = 1024
"""More devices than this are refused: each takes a thread and its own copy of every value."""


def counts(module: Module) -> tuple[int, int]:
    """(replicas, partitions) of a module, from `replica_count` and `num_partitions` in its header."""
    return _count(module, "replica_count"), _count(module, "num_partitions")


def _count(module: Module, name: str) -> int:
    found = module.attributes.get(name)
    value = found.value if isinstance(found, Attribute) else 1
    return value if isinstance(value, int) and value > 0 else 1


def check_devices(module: Module) -> int:
    """How many devices a module runs on. Raises EvaluationError (HLO402) for more than are simulated."""
    number = math.prod(counts(module))
    if number > MOST:
        raise EvaluationError(f"{number} devices are more than the {MOST} that are simulated", code="HLO402")
    return number


@dataclass(eq=False)
class _Device:
    """A device of a run: `ready` is set while it may run. `offers` are what it brought to the collectives that it reached, by turn within a group."""

    replica: int
    partition: int
    replicas: int
    partitions: int
    run: _Run
    ready: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    waits: tuple[Any, ...] | None = None
    at: Instruction | None = None
    ended: bool = False
    outputs: list[Array] = field(default_factory=list)
    turns: dict[tuple[int, ...], int] = field(default_factory=dict)
    interpreter: Interpreter | None = None

    @property
    def number(self) -> int:
        return self.replica * self.partitions + self.partition

    def exchange(self, instruction: Instruction, values: Sequence[Any], group: Sequence[int]) -> list[Any]:
        members = tuple(group)
        if any(not 0 <= member < len(self.run.devices) for member in members):
            raise ValueError(f"the group {list(members)} names devices beyond the {len(self.run.devices)} of this run")
        if len(set(members)) != len(members):
            raise ValueError(f"the group {list(members)} names a device twice")
        if self.number not in members:
            return []
        turn = self.turns.get(members, 0)
        self.turns[members] = turn + 1
        return self.run.meet(self, instruction, (members, turn), values)


class _Run:
    """The devices of a run, and what they have brought to the meetings that not all have reached."""

    def __init__(self, replicas: int, partitions: int) -> None:
        self.devices = [_Device(r, p, replicas, partitions, self) for r in range(replicas) for p in range(partitions)]
        self.meetings: dict[tuple[Any, ...], dict[int, tuple[Instruction, Sequence[Any]]]] = {}
        self.left: dict[tuple[Any, ...], int] = {}
        self.back = threading.Semaphore(0)
        self.failure: BaseException | None = None

    def meet(self, device: _Device, instruction: Instruction, key: tuple[Any, ...], values: Sequence[Any]) -> list[Any]:
        """Bring values to a meeting; returns what all members brought, in the group's order, once they have."""
        brought = self.meetings.setdefault(key, {})
        brought[device.number] = (instruction, values)
        members = key[0]
        if len(brought) < len(members):
            device.waits, device.at = key, instruction
            self.back.release()
            device.ready.acquire()
            device.waits = device.at = None
            if self.failure is not None:
                raise Stopped
        other = next((found for found, _ in brought.values() if not _same(found, instruction)), None)
        if other is not None:
            raise error(instruction, f"other devices of its group are at {other.opcode} {other.name}", code="HLO405")
        made = [brought[member][1] for member in members]
        self.left[key] = self.left.get(key, 0) + 1
        if self.left[key] == len(members):
            del self.meetings[key], self.left[key]
        return made

    def can_go_on(self, device: _Device) -> bool:
        if device.ended:
            return False
        return device.waits is None or len(self.meetings[device.waits]) == len(device.waits[0])

    def drive(self) -> None:
        """Let the devices run in turn until all have ended or one has failed. Raises EvaluationError when they wait for each other."""
        try:
            while self.failure is None and not all(device.ended for device in self.devices):
                device = next((d for d in self.devices if self.can_go_on(d)), None)
                if device is None:
                    self.failure = self._stuck()
                    break
                device.ready.release()
                self.back.acquire()
        except BaseException as fault:  # Ctrl-C: the device that runs now ends at its next call, all others at once
            self.failure = self.failure or fault
            raise
        finally:
            for device in self.devices:
                if device.interpreter is not None:
                    device.interpreter.stopped = self.failure is not None
                device.ready.release()

    def _stuck(self) -> EvaluationError:
        waiting = [d for d in self.devices if d.at is not None]
        places = ", ".join(f"device {d.number} at {d.at.name}" for d in waiting[:8] if d.at is not None)
        ended = [str(d.number) for d in self.devices if d.ended]
        told = f"; ended: {', '.join(ended[:8])}" if ended else ""
        assert waiting and waiting[0].at is not None
        return error(
            waiting[0].at,
            f"the devices wait for each other: {places}{told}",
            hint="every device of a group must reach the same collectives in the same order",
            code="HLO405",
        )


def _same(left: Instruction, right: Instruction) -> bool:
    return left is right or (left.name == right.name and left.opcode == right.opcode)


def evaluate_devices(
    module: Module,
    inputs: Sequence[Sequence[Any]],
    *,
    watch: Watcher | None = None,
    check_nans: bool = False,
    call_limit: int | None = CALLS,
    max_steps: int | None = None,
    memory_limit: int | None = None,
    effects: Effects | None = None,
) -> list[list[Array]]:
    """The entry's results on every simulated device, in order of their numbers: replica * partitions + partition.

    inputs        per device what `evaluate` takes: one array per array of the entry's parameters. One list alone goes to all devices
    watch         as for `evaluate`; the events say on which device they happened
    check_nans    as for `evaluate`
    call_limit    how many computations each device may run; None: any number
    max_steps     how many iterations the loops of each device may take together; None: any number
    memory_limit  bytes that all devices may hold at once, inputs and outputs included, found before anything is computed; None: any number
    effects       as for `evaluate`; an occurrence says on which device it is
    Raises EvaluationError as `evaluate` does; for another number of input lists than devices (HLO401); for too many devices (HLO402); when devices wait
    for each other for ever or meet in different collectives (HLO405). CheckError as `evaluate` does.
    """
    replicas, partitions = counts(module)
    number = check_devices(module)
    if len(inputs) not in (1, number):
        raise EvaluationError(f"the module runs on {number} devices, inputs for {len(inputs)} are given", code="HLO401")
    given = None if len(inputs) > 1 else inputs_bytes(module)
    check_memory(module, memory_limit, devices=number, inputs=given)
    arrays = [checked(module, own) for own in inputs]
    run = _Run(replicas, partitions)
    watcher = watching(watch, NanCheck() if check_nans else None)

    def work(device: _Device) -> None:
        device.ready.acquire()
        try:
            if run.failure is None:
                own = arrays[device.number if len(arrays) > 1 else 0]
                device.interpreter = Interpreter(
                    watch=watcher,
                    call_limit=call_limit,
                    max_steps=max_steps,
                    device=device,
                    effects=effects,
                )
                value = device.interpreter.call(
                    module.entry, unflatten([p.shape for p in module.entry.parameters], own)
                )
                device.outputs = [np.array(array, order="C") for array in flatten(value)]
        except Stopped:
            pass
        except BaseException as fault:  # handed to the caller's thread
            run.failure = run.failure or fault
        finally:
            device.ended = True
            device.interpreter = None
            run.back.release()

    threads = [threading.Thread(target=work, args=(device,), daemon=True) for device in run.devices]
    for thread in threads:
        thread.start()
    try:
        run.drive()
    finally:
        for thread in threads:  # after Ctrl-C, one may be in the middle of a long NumPy call: it is left behind
            thread.join(None if run.failure is None else LEFT_BEHIND / len(threads))
    if run.failure is not None:
        raise run.failure
    return [device.outputs for device in run.devices]
