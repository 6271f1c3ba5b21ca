"""Runs of one module on several simulated devices, which meet in its collectives.

Every device runs in a thread of its own, and exactly one of them runs at any time, until it waits at a collective or ends; then the
next one that can go on does, in order of their numbers. So a run is deterministic, and when nobody can go on although somebody has not ended, the devices
have gone different ways and the run stops with an error that names where each one waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from hlo_opt.diag import EvaluationError
from hlo_opt.evaluate.device_inputs import spread
from hlo_opt.evaluate.effects import Effects
from hlo_opt.evaluate.elided import Elided, with_values
from hlo_opt.evaluate.inputs import checked, flatten, unflatten
from hlo_opt.evaluate.interpreter import Interpreter, Stopped
from hlo_opt.evaluate.memory import check_memory, inputs_bytes
from hlo_opt.evaluate.nans import NanCheck
from hlo_opt.evaluate.program import error
from hlo_opt.evaluate.threads import bounded_libraries
from hlo_opt.evaluate.watch import Change, Watcher, watching
from hlo_opt.ir import Instruction, Module
from hlo_opt.ir.values import Array
from hlo_opt.ops.collective.module_devices import check_devices, counts
from hlo_opt.ops.values import Value

T = TypeVar("T")

LEFT_BEHIND = 0.5
"""Seconds that the threads of a run that failed get to end."""


class Player(Protocol):
    """What runs the program of a device. Once `stopped` is set it ends soon, with `Stopped`."""

    stopped: bool


@dataclass(eq=False)
class SimulatedDevice:
    """A device of a run. `player` is what runs its program, where that can be stopped; `ready` is set while it may run. `turns` counts the collectives that it has
    reached, by group."""

    replica: int
    partition: int
    replicas: int
    partitions: int
    run: _Run
    player: Player | None = None
    ready: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    waits: tuple[Any, ...] | None = None
    at: Instruction | None = None
    ended: bool = False
    turns: dict[tuple[int, ...], int] = field(default_factory=dict)

    @property
    def number(self) -> int:
        return self.replica * self.partitions + self.partition

    def exchange(
        self, instruction: Instruction, values: Sequence[Value], group: Sequence[int]
    ) -> list[Sequence[Value]]:
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
        self.devices = [
            SimulatedDevice(r, p, replicas, partitions, self) for r in range(replicas) for p in range(partitions)
        ]
        self.meetings: dict[tuple[Any, ...], dict[int, tuple[Instruction, Sequence[Value]]]] = {}
        self.left: dict[tuple[Any, ...], int] = {}
        self.back = threading.Semaphore(0)
        self.failure: BaseException | None = None

    def meet(
        self, device: SimulatedDevice, instruction: Instruction, key: tuple[Any, ...], values: Sequence[Value]
    ) -> list[Sequence[Value]]:
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

    def can_go_on(self, device: SimulatedDevice) -> bool:
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
                if device.player is not None:
                    device.player.stopped = self.failure is not None
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


def play(module: Module, work: Callable[[SimulatedDevice], T]) -> list[T]:
    """What `work` gives for each device of a module, in order of their numbers: replica * partitions + partition.

    Each device works in a thread of its own, one at a time. Raises what one of them raises; EvaluationError for too many devices (HLO402), and when they wait for
    each other for ever or meet in different collectives (HLO405).
    """
    check_devices(module)
    run = _Run(*counts(module))
    results: dict[int, T] = {}

    def begin(device: SimulatedDevice) -> None:
        device.ready.acquire()
        try:
            if run.failure is None:
                results[device.number] = work(device)
        except Stopped:
            pass
        except BaseException as fault:  # handed to the caller's thread
            run.failure = run.failure or fault
        finally:
            device.ended = True
            device.player = None
            run.back.release()

    threads = [threading.Thread(target=begin, args=(device,), daemon=True) for device in run.devices]
    for thread in threads:
        thread.start()
    try:
        run.drive()
    finally:
        for thread in threads:  # after Ctrl-C, one may be in the middle of a long NumPy call: it is left behind
            thread.join(None if run.failure is None else LEFT_BEHIND / len(threads))
    if run.failure is not None:
        raise run.failure
    return [results[device.number] for device in run.devices]


def _same(left: Instruction, right: Instruction) -> bool:
    return left is right or (left.name == right.name and left.opcode == right.opcode)


@bounded_libraries()
def evaluate_devices(
    module: Module,
    inputs: Sequence[Sequence[Value]],
    *,
    watch: Watcher | None = None,
    check_nans: bool = False,
    call_limit: int | None = None,
    max_steps: int | None = None,
    memory_limit: int | None = None,
    effects: Effects | None = None,
    elided: Elided = None,
    change: Change | None = None,
) -> list[list[Array]]:
    """The entry's results on every simulated device, in order of their numbers: replica * partitions + partition.

    inputs        per device what `evaluate` takes: one array per array of the entry's parameters. One list alone goes to all devices; its arrays may be global ones, which the
                  parameters' shardings cut
    watch         as for `evaluate`; the events say on which device they happened
    check_nans    as for `evaluate`
    call_limit    how many computations each device may run; None: any number
    max_steps     how many iterations the loops of each device may take together; None: any number
    memory_limit  bytes that all devices may hold at once, inputs and outputs included, found before anything is computed; None: any number
    effects       as for `evaluate`; an occurrence says on which device it is
    elided        as for `evaluate`
    change        called with every value on every device; gives the one to go on with: see `Interpreter`
    Raises EvaluationError as `evaluate` does; for another number of input lists than devices (HLO401); for too many devices (HLO402); when devices wait
    for each other for ever or meet in different collectives (HLO405). CheckError as `evaluate` does.
    """
    module = with_values(module, elided)
    number = check_devices(module)
    own = spread(module, inputs)
    is_shared = len(inputs) == 1 and all(a is b for some in own for a, b in zip(own[0], some, strict=True))
    check_memory(module, memory_limit, devices=number, inputs=inputs_bytes(module) if is_shared else None)
    arrays = [checked(module, some) for some in own]
    watcher = watching(watch, NanCheck() if check_nans else None)

    def work(device: SimulatedDevice) -> list[Array]:
        device.player = interpreter = Interpreter(
            watch=watcher,
            call_limit=call_limit,
            max_steps=max_steps,
            device=device,
            effects=effects,
            change=change,
        )
        value = interpreter.call(
            module.entry, unflatten([p.shape for p in module.entry.parameters], arrays[device.number])
        )
        return [np.array(array, order="C") for array in flatten(value)]

    return play(module, work)
