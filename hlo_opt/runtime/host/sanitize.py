"""Kernels built with the compiler's address and undefined-behaviour sanitizers, and then with a watch over races, run
in a process of their own.

The sanitizers must be there before anything else allocates, and end the process where they find something; so a child
runs the module, each buffer in memory of its own, and writes down which instruction's kernel it starts. When it ends
early, that instruction is at fault.

Threads that the sanitizers see run in one order. So the child runs the module twice more from kernels that watch each
access to memory (`codegen/host_races.h`), built from the same text, blocks and threads in another order each time: two
threads that meet at an element with no barrier between them are a fault, and so is a result that depends on the order,
unless the module leaves it open (updates of a scatter that meet).

The child is this module: `python -m hlo_opt.runtime.host.sanitize FOLDER`.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hlo_opt.codegen.host_plain import plain_unit, watched_unit
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.diag import BackendError, CheckError, EvaluationError
from hlo_opt.ir import Instruction, Module, Shape
from hlo_opt.ir.values import Array
from hlo_opt.runtime.host.compiler import CALLS, asked, built, find_compiler, takes
from hlo_opt.runtime.host.library import HostDevice, HostLibrary, flags_of, units
from hlo_opt.runtime.numpy import Reference
from hlo_opt.runtime.schedule import Schedule, build_schedule
from hlo_opt.runtime.schedule.executor import Executor
from hlo_opt.runtime.schedule.ops import LaunchOp

WATCHED_FLAGS = (CALLS, "-g1")
_VOLATILE = (("--param=tsan-distinguish-volatile=1",), ("-mllvm", "-tsan-distinguish-volatile"))
"""The declaration for g++ and clang++ that memory in which blocks meet is volatile."""
WATCHED_LAUNCHES = 12
"""Launches of a kernel that are watched in a run; a loop may make thousands."""
WATCHED_ELEMENTS, WATCHED_FACTORS = 1 << 22, 1 << 18
"""Elements that a kernel that is watched may read and write together, and one that multiplies matrices: each access
costs some 20 nanoseconds."""
FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1")
_SECTIONS = "-fsanitize-sections=hlo_*"
"""Has g++ look after shared memory, which lies in sections of its own."""
_FOUND = 97
"""The exit status of a process that a sanitizer ended."""
_FINDING = re.compile(
    r"(?:AddressSanitizer: (?P<address>[\w-]+)|runtime error: (?P<undefined>[^\n]+)|race: (?P<race>[^\n]+))"
)
_ACCESS = re.compile(r"\b(READ|WRITE) of size (\d+)")


class SanitizedProgram:
    """Runs a schedule under the sanitizers; the same face as `HostProgram`.

    launches  kernel launches of the last run
    """

    def __init__(self, schedule: Schedule, max_steps: int | None = None) -> None:
        """Builds the kernels. Raises BackendError as `HostLibrary`, and (HLO515) where the compiler has no sanitizers
        to run with."""
        self.schedule = schedule
        self.launches = 0
        self.max_steps = max_steps
        self._preloaded = _runtime_libraries()
        self._library = self._watched = None
        if schedule.kernels:
            flags = flags_of("plain")
            more = (*flags, *FLAGS, *([_SECTIONS] if takes(_SECTIONS) else []))
            self._library = built(units(schedule.kernels, plain_unit), more)
            volatile = _VOLATILE[0] if takes(_VOLATILE[0][0]) else _VOLATILE[1]
            self._watched = built(units(schedule.kernels, watched_unit), (*flags, *WATCHED_FLAGS, *volatile))

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The entry's output arrays. Raises CheckError (HLO721), with the instruction's line, where a kernel does what
        C++ does not define."""
        return self._run([inputs], all_devices=False)[0]

    def run_devices(self, inputs: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """What `run` gives on every device of the module for its inputs. Raises what `play` raises, too."""
        return self._run(inputs, all_devices=True)

    def _run(self, inputs: Sequence[Sequence[Array]], all_devices: bool) -> list[list[Array]]:
        module = self.schedule.module
        with tempfile.TemporaryDirectory(prefix="hlo-opt-") as name:
            folder = Path(name)
            order = {
                "module": str(module),
                "target": self.schedule.target,
                "library": str(self._library or ""),
                "watched": str(self._watched or ""),
                "max_steps": self.max_steps,
                "inputs": inputs,
                "all_devices": all_devices,
            }
            (folder / "order").write_bytes(pickle.dumps(order))
            done = subprocess.run(
                [sys.executable, "-m", "hlo_opt.runtime.host.sanitize", str(folder)],
                capture_output=True,
                text=True,
                errors="replace",
                env=_environment(self._preloaded),
                check=False,
            )
            if done.returncode:
                raise self._fault(done, folder)
            answer = pickle.loads((folder / "answer").read_bytes())
        if "error" in answer:
            raise EvaluationError(answer["error"], code=answer["code"])
        self.launches = answer["launches"]
        outputs: list[list[Array]] = answer["outputs"]
        return outputs

    def _fault(self, done: subprocess.CompletedProcess[str], folder: Path) -> Exception:
        finding = _FINDING.search(done.stderr)
        name = (folder / "at").read_text(encoding="utf-8") if (folder / "at").exists() else ""
        if finding is None or done.returncode not in (_FOUND, 1):
            return BackendError(
                f"the process under the sanitizers ended with status {done.returncode}{f' in {name}' if name else ''}",
                code="HLO516",
            )
        access = _ACCESS.search(done.stderr, finding.end()) if finding["address"] else None
        what = finding["undefined"] or finding["address"] or finding["race"]
        if access is not None:
            what = f"{what}, {access[1].lower()} of {access[2]} bytes"
        instruction = _named(self.schedule.module, name)
        span = None if instruction is None else self.schedule.module.span(instruction)
        return CheckError(f"the kernel of {name}: {what}" if name else str(what), code="HLO721", span=span)


def _named(module: Module, path: str) -> Instruction | None:
    """The instruction `computation/name`."""
    for computation in module.computations:
        for instruction in computation.instructions:
            if f"{computation.name}/{instruction.name}" == path:
                return instruction
    return None


def _runtime_libraries() -> str:
    """The sanitizers' own libraries, which must be loaded first."""
    command = find_compiler()
    paths = []
    for name in ("libasan.so", "libubsan.so"):
        done = asked(command, f"-print-file-name={name}")
        path = done.stdout.strip()
        if done.returncode or not os.path.isabs(path):
            raise BackendError(
                f"{command[0]} has no {name}, which --sanitize needs",
                code="HLO515",
                hint="install the compiler's sanitizer libraries, or set CXX=g++",
            )
        paths.append(path)
    return ":".join(paths)


def _environment(preloaded: str) -> dict[str, str]:
    root = str(Path(__file__).resolve().parents[3])
    path = os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH", "")) if p)
    settings = f"detect_leaks=0:exitcode={_FOUND}:abort_on_error=0:detect_stack_use_after_return=0"
    return {
        **os.environ,
        "PYTHONPATH": path,
        "LD_PRELOAD": preloaded,
        "ASAN_OPTIONS": settings,
        "UBSAN_OPTIONS": f"print_stacktrace=0:exitcode={_FOUND}",
        "PYTHONMALLOC": "malloc",
        "OPENBLAS_NUM_THREADS": "1",
    }


class _TellingDevice(HostDevice):
    """Writes down what it starts; inputs lie in memory of their own size, so that a step beyond their ends is seen."""

    def __init__(self, library: HostLibrary, reference: Reference, folder: Path) -> None:
        super().__init__(library, reference)
        self._at = os.open(folder / "at", os.O_WRONLY | os.O_CREAT, 0o600)

    def upload(self, array: Array, shape: Shape) -> Array:
        return super().upload(array, shape).copy()

    def tell(self, instruction: Instruction) -> None:
        name = f"{instruction.computation.name}/{instruction.name}".encode()
        os.pwrite(self._at, name, 0)
        os.ftruncate(self._at, len(name))


class _WatchingDevice(_TellingDevice):
    """Runs the first launches of each kernel from another library."""

    def __init__(self, watched: HostLibrary, library: HostLibrary, reference: Reference, folder: Path) -> None:
        super().__init__(library, reference, folder)
        self._watched = watched
        self._count: dict[str, int] = {}

    def launch(self, kernel: Kernel, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        number = self._count[kernel.symbol] = self._count.get(kernel.symbol, 0) + 1
        elements = sum(shape.element_count for shape in (*kernel.inputs, *kernel.outputs))
        most = WATCHED_FACTORS if kernel.rereads else WATCHED_ELEMENTS
        is_watched = number <= WATCHED_LAUNCHES and elements <= most
        (self._watched if is_watched else self._library).launch(kernel, inputs, outputs)


class _TellingExecutor(Executor):
    """An executor that says which instruction comes next."""

    def _launch(self, frame: Any, op: LaunchOp) -> None:
        assert isinstance(self.device, _TellingDevice)
        self.device.tell(op.instruction)
        super()._launch(frame, op)


def _watch(
    watched: HostLibrary,
    library: HostLibrary,
    schedule: Schedule,
    inputs: Sequence[Sequence[Array]],
    all_devices: bool,
    max_steps: int | None,
    folder: Path,
) -> None:
    """Two runs of watched kernels. Raises CheckError where they, or their results, show that something depends on the
    order of threads."""
    runs = []
    for _ in range(2):
        device = _WatchingDevice(watched, library, Reference(schedule.module), folder)
        runs.append(_outputs(_TellingExecutor(schedule, device, max_steps), inputs, all_devices))
    if any(kernel.meets for kernel in schedule.kernels):
        return  # whose updates come in any order
    for one_device, other_device in zip(*runs, strict=True):
        for k, (one, other) in enumerate(zip(one_device, other_device, strict=True)):
            if one.tobytes() != other.tobytes():
                os.ftruncate(os.open(folder / "at", os.O_WRONLY), 0)
                raise CheckError(f"the module: out{k} depends on the order of threads", code="HLO721")


def _outputs(executor: Executor, inputs: Sequence[Sequence[Array]], all_devices: bool) -> list[list[Array]]:
    return executor.run_devices(inputs) if all_devices else [executor.run(inputs[0])]


def _child(folder: Path) -> int:
    from hlo_opt.text import parse

    order = pickle.loads((folder / "order").read_bytes())
    module, inputs = parse(order["module"]), order["inputs"]
    all_devices, max_steps = order["all_devices"], order["max_steps"]
    schedule = build_schedule(module, order["target"])
    library = HostLibrary(schedule.kernels, order["library"] or None)
    executor = _TellingExecutor(schedule, _TellingDevice(library, Reference(module), folder), max_steps)
    try:
        answer = {"outputs": _outputs(executor, inputs, all_devices), "launches": executor.launches}
        if order["watched"]:
            watched = HostLibrary(schedule.kernels, order["watched"])
            _watch(watched, library, schedule, inputs, all_devices, max_steps, folder)
    except CheckError as error:
        print(f"race: {error.message.split(': ', 1)[1]}", file=sys.stderr, flush=True)
        return _FOUND
    except EvaluationError as error:
        answer = {"error": error.message, "code": error.code}
    (folder / "answer").write_bytes(pickle.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(_child(Path(sys.argv[1])))
