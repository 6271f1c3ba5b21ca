"""Programs of the host as plain data."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hlo_opt.codegen.lanes import launcher_name
from hlo_opt.diag import BackendError
from hlo_opt.runtime.host.frozen import Frozen, FrozenRoutine
from hlo_opt.runtime.host.program import HostProgram, constants_of
from hlo_opt.runtime.host.words import ProgramWords
from hlo_opt.runtime.schedule import Schedule
from hlo_opt.runtime.schedule.lifetimes import buffer_bytes


def freeze(program: HostProgram) -> Frozen:
    """The program as data. Raises BackendError (HLO528) for one that needs NumPy on its way."""
    return frozen(program.schedule, program.words, Path(program.library).name)


def check_alone(words: ProgramWords) -> None:
    """Raises BackendError (HLO528) for a program that needs NumPy on its way."""
    if words.calls:
        called = sorted({op.instruction.opcode for op, _ in words.calls})
        raise BackendError(f"only NumPy computes {', '.join(called)}", code="HLO528")


def frozen(schedule: Schedule, words: ProgramWords, library: str = "") -> Frozen:
    """A schedule's program as data; `library` is the file in the cache that has its kernels. Raises as `freeze`."""
    check_alone(words)
    entry, routine = words.routines[0], schedule.entry
    outputs = tuple((entry.buffers + k, buffer_bytes(routine.shapes[b])) for k, b in enumerate(routine.results))
    return Frozen(
        library,
        tuple(launcher_name(k) for k in schedule.kernels),
        tuple(FrozenRoutine(r.buffers, r.slots) for r in words.routines),
        tuple(np.array(r.words, np.int64) for r in words.routines),
        tuple(constants_of(words)),
        tuple((b, buffer_bytes(routine.shapes[b])) for b in routine.inputs),
        outputs,
        routine.donated,
        entry.bytes,
        entry.deepest,
        entry.depth,
        words.pointers,
        tuple(words.own),
    )
