"""A schedule compiled for the host: one call runs stretches, loops and conditionals, and comes back for library calls
only."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, ClassVar

import numpy as np

from hlo_opt.diag import BackendError, CheckError
from hlo_opt.evaluate.devices import SimulatedDevice, play
from hlo_opt.evaluate.interpreter import Stopped, endless
from hlo_opt.evaluate.threads import bounded_libraries, processors
from hlo_opt.ir import Shape
from hlo_opt.ir.values import Array
from hlo_opt.ops.collective.module_devices import WHICH_DEVICE, counts, exchanges
from hlo_opt.runtime.host.crashes import STATUS, address, are_told, crash
from hlo_opt.runtime.host.fences import Fences
from hlo_opt.runtime.host.library import HostLibrary, KernelForm
from hlo_opt.runtime.host.own_routines import routine, runner
from hlo_opt.runtime.host.words import HostCall, ProgramWords, RoutineWords, words_of
from hlo_opt.runtime.numpy import WORD, Reference, empty_memory, from_memory, held_dtype, logical, to_memory
from hlo_opt.runtime.schedule import Schedule, constant_array
from hlo_opt.runtime.schedule.lifetimes import buffer_bytes
from hlo_opt.runtime.schedule.ops import Relayout

_FINE, _CALL, _FIBRES, _STEPS, _MEMORY, _PAUSE = range(6)
_NEW, _GO_ON = 0, -1
_ALONE = -1


class _Routine(ctypes.Structure):
    _fields_: ClassVar[list[tuple[str, Any]]] = [
        ("words", ctypes.c_void_p),
        ("buffers", ctypes.c_longlong),
        ("slots", ctypes.c_longlong),
    ]


class _Program(ctypes.Structure):
    _fields_: ClassVar[list[tuple[str, Any]]] = [
        ("routines", ctypes.c_void_p),
        ("functions", ctypes.c_void_p),
        ("timings", ctypes.c_void_p),
        ("constants", ctypes.c_void_p),
        ("most_steps", ctypes.c_longlong),
        ("processors", ctypes.c_int),
        ("launches", ctypes.c_longlong),
        ("steps", ctypes.c_longlong),
        ("at_instruction", ctypes.c_longlong),
        ("at_iterations", ctypes.c_longlong),
        ("at_slots", ctypes.c_void_p),
        ("depth", ctypes.c_longlong),
    ]


def constants_of(words: ProgramWords) -> list[Array]:
    """What the words call constants, as they lie in memory; of what differs from device to device, that of one that is
    alone."""
    return [_as_buffer(constant_array(op, value, None), shape) for op, value, shape in words.constants]


class HostProgram:
    """Runs a schedule; the same face as `Executor`.

    launches  kernel launches of the last run, on all its devices
    """

    def __init__(
        self, schedule: Schedule, reference: Reference, max_steps: int | None = None, form: KernelForm = "lanes"
    ) -> None:
        """`max_steps` as for `Executor`. Raises BackendError as `HostLibrary`."""
        self.schedule = schedule
        self.form = form
        self.launches = 0
        self.devices = 1
        """Devices of the last run."""
        self._reference = reference
        self.max_steps = max_steps
        self._library = HostLibrary(schedule.kernels, form=form)
        self._program = self.words = words_of(schedule, spread=form == "lanes")
        self._constants: list[Array] | None = None
        self._kept: dict[int, _Run] = {}
        self._timings = np.zeros((max(1, len(schedule.kernels)), 2), np.int64)
        self._words = [np.array(r.words, np.int64) for r in self._program.routines]
        functions = [*(self._library.address(k) for k in schedule.kernels), *map(routine, self.words.own)]
        self._functions = np.array(functions or [0], np.uint64)
        self._routines = (_Routine * len(self._words))(
            *(
                _Routine(w.ctypes.data, r.buffers, r.slots)
                for w, r in zip(self._words, self._program.routines, strict=True)
            )
        )

    @property
    def library(self) -> str:
        """The file with the kernels; empty if there are none."""
        return self._library.path

    @property
    def memory(self) -> dict[str, int]:
        """Bytes that the last run held on all its devices: `buffers` (all intermediate values, in one block per
        device), `constants` (which they share), `inputs` and `outputs`; `peak` is their sum."""
        entry = self.schedule.entry
        sizes = {
            "buffers": self.devices * self._program.routines[0].bytes,
            "constants": sum(buffer_bytes(shape) for _, _, shape in self._program.constants),
            "inputs": self.devices * sum(buffer_bytes(entry.shapes[b]) for b in entry.inputs),
            "outputs": self.devices * sum(buffer_bytes(entry.shapes[b]) for b in entry.results),
        }
        return {**sizes, "peak": sum(sizes.values())}

    def run(self, inputs: Sequence[Array], *, donate: bool = False) -> list[Array]:
        """The entry's output arrays for its flattened parameters; tokens are left out on both sides. `donate`: the run
        may write into the inputs that the module's header gives away, and results lie there; else it takes a copy
        first."""
        run = self._memory_for(None)
        try:
            with bounded_libraries() if self._program.calls else nullcontext():
                return run(inputs, donate)
        finally:
            self.launches, self.devices = run.program.launches, 1
            self._kept[_ALONE] = run

    def run_devices(self, inputs: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """What `run` gives on every device of the module for its inputs. Raises what `play` raises."""
        launches = 0

        def work(device: SimulatedDevice) -> list[Array]:
            nonlocal launches
            device.player = run = self._memory_for(device)
            try:
                return run(inputs[device.number])
            finally:
                launches += run.program.launches
                self._kept[device.number] = run

        try:
            return play(self.schedule.module, work)
        finally:
            self.launches, self.devices = launches, math.prod(counts(self.schedule.module))

    def crashed(self, status: int, number: int, place: str = "") -> BackendError:
        """The error of a run that ended in a function of the program with such a status. `place`: what it accessed, in
        words, where that is known."""
        kernels, where = self.schedule.kernels, f" at {place}" if place else ""
        if number < len(kernels):
            return self._library.crashed(status, kernels[number], self.schedule, where)
        return crash(status, f"the routine {self.words.own[number - len(kernels)]} of the host", where)

    def constants(self) -> list[Array]:
        """What the words call constants, as they lie in memory; of what differs from device to device, that of one that
        is alone."""
        return constants_of(self._program)

    def _memory_for(self, device: SimulatedDevice | None) -> _Run:
        """Memory for a run on a device (None: one that is alone); a second run at the same time gets memory of its
        own."""
        if self._constants is None:
            self._constants = self.constants()
        run = self._kept.pop(_ALONE if device is None else device.number, None) or _Run(self)
        run.play(device)
        return run


class _Run:
    """Memory for one run at a time, on one device. Once `stopped` is set, a run that pauses ends."""

    def __init__(self, owner: HostProgram) -> None:
        words: ProgramWords = owner._program
        entry: RoutineWords = words.routines[0]
        self.owner = owner
        assert owner._constants is not None
        self.constants = np.array([a.ctypes.data for a in owner._constants] or [0], np.uint64)
        self.arena = np.empty(entry.bytes + 64, np.uint8)
        self.slots = np.zeros(entry.deepest, np.uint64)
        self.frames = np.zeros(entry.depth * 8, np.int64)
        self.scratch = np.zeros(words.pointers, np.uint64)
        self.program = _Program(
            ctypes.addressof(owner._routines),
            owner._functions.ctypes.data,
            owner._timings.ctypes.data,
            self.constants.ctypes.data,
            -1 if owner.max_steps is None else owner.max_steps,
            processors(),
        )
        self.table = (ctypes.c_uint64 * len(self.slots)).from_buffer(self.slots.data)
        """`slots` once more: NumPy takes long for an element."""
        self.own_memory()
        routine = owner.schedule.entry
        shapes = routine.shapes
        self.inputs = [(b, shapes[b], shapes[b].is_array, _is_plain(shapes[b])) for b in routine.inputs]
        self.outputs = [(shapes[b], shapes[b].is_array, _is_plain(shapes[b])) for b in routine.results]
        self.wrapped: dict[tuple[int, Shape], Array] = {}
        self.reference = owner._reference
        self.numbers: list[Array] = []
        self.stopped = False
        self.is_one_of_several = False

    def own_memory(self) -> None:
        """Values lie in memory that is kept from run to run."""
        self.fences: Fences | None = None
        self.program.constants = self.constants.ctypes.data
        self.base_at(-(-self.arena.ctypes.data // 64) * 64)

    def fence(self) -> None:
        """The next run's values lie in memory that kernels cannot leave unseen."""
        self.fences = Fences()
        block = self.fences.block(self.owner._program.routines[0].bytes, "the values between kernels")
        self.base_at(block.ctypes.data)
        if not self.is_one_of_several and self.owner._constants:
            copies = (self.fences.copy(a, "a constant", is_read_only=True) for a in self.owner._constants)
            self.fenced_constants = np.array([a.ctypes.data for a in copies], np.uint64)
            self.program.constants = self.fenced_constants.ctypes.data

    def base_at(self, base: int) -> None:
        """Where the entry's values lie."""
        pointers = (self.slots.ctypes.data, base, self.frames.ctypes.data, self.scratch.ctypes.data)
        self.arguments = (ctypes.byref(self.program), *map(ctypes.c_void_p, pointers))

    def play(self, device: SimulatedDevice | None) -> None:
        """Run as this device from now on; None: as one that is alone."""
        self.stopped = False
        self.is_one_of_several = device is not None
        if device is None:
            return
        if self.reference is self.owner._reference:
            self.reference = Reference(self.owner.schedule.module)
        self.reference.play(device)
        self.numbers.clear()
        for k, (op, literal, shape) in enumerate(self.owner._program.constants):
            if op.instruction.opcode in WHICH_DEVICE:
                self.numbers.append(_as_buffer(constant_array(op, literal, device), shape))
                self.constants[k] = self.numbers[-1].ctypes.data

    def __call__(self, inputs: Sequence[Array], donate: bool = False) -> list[Array]:
        if not are_told() or donate:
            return self.outputs_of(inputs, donate)
        self.fence()
        try:
            return self.outputs_of(inputs, donate)
        finally:
            self.own_memory()

    def outputs_of(self, inputs: Sequence[Array], donate: bool) -> list[Array]:
        """What a call gives, in the memory that was chosen for it."""
        donated = self.owner.schedule.entry.donated
        table = self.table
        arrays = iter(inputs)
        arguments = [
            _as_buffer(next(arrays), shape, plain) if is_array else None for _, shape, is_array, plain in self.inputs
        ]
        for k, _ in donated:
            arguments[k] = _writable(arguments, k, () if donate else inputs, self.inputs[k][1])
        if self.fences is not None:
            changed = {k for k, _ in donated}
            arguments = [
                None if a is None else self.fences.copy(a, f"input {k}", is_read_only=k not in changed)
                for k, a in enumerate(arguments)
            ]
        there = {result: arguments[k] for k, result in donated}
        outputs = [
            there[k] if k in there else self._new_buffer(k, shape, plain) if is_array else None
            for k, (shape, is_array, plain) in enumerate(self.outputs)
        ]
        for (b, *_), array in zip(self.inputs, arguments, strict=True):
            table[b] = 0 if array is None else array.ctypes.data
        first = self.owner._program.routines[0].buffers
        for k, array in enumerate(outputs):
            table[first + k] = 0 if array is None else array.ctypes.data
        status = self._go(_NEW)
        while status in (_CALL, _PAUSE):
            if status == _CALL:
                self._call(self.owner._program.calls[self.program.at_instruction], self.program.at_slots or 0)
            if self.stopped:
                raise Stopped
            status = self._go(_GO_ON)
        self.wrapped.clear()
        self._check(status)
        # views in the order of the layout: a copy into NumPy's own order may take longer than the run
        return [
            a if plain and k not in there else from_memory(a, s)
            for k, (a, (s, _, plain)) in enumerate(zip(outputs, self.outputs, strict=True))
            if a is not None
        ]

    def _check(self, status: int) -> None:
        if status > STATUS:
            place = "" if self.fences is None else self.fences.place(address())
            raise self.owner.crashed(status, self.program.at_instruction, place)
        damage = "" if self.fences is None else self.fences.damage()
        if damage:
            form = self.owner.form
            raise CheckError(f"a kernel writes outside of its arrays in the {form} form: {damage}", code="HLO721")
        if status == _FIBRES:
            kernel = self.owner.schedule.kernels[self.program.at_instruction]
            raise self.owner._library.fault(kernel)
        if status == _MEMORY:
            raise BackendError(
                "no memory for what a product, a convolution, fft, sort, topk or triangular-solve holds meanwhile",
                code="HLO512",
            )
        if status == _STEPS:
            loop = self.owner._program.loops[self.program.at_instruction].instruction
            raise endless(loop, self.program.at_iterations, self.program.steps, self.program.most_steps)

    def _new_buffer(self, number: int, shape: Shape, plain: bool) -> Array:
        """A new buffer for an output; in the array's own dimensions where it is `plain`."""
        if self.fences is not None:
            new = self.fences.empty(shape, f"output {number}")
            return new.reshape(shape.dimensions) if plain else new
        return np.empty(shape.dimensions, shape.type.dtype) if plain else empty_memory(shape)

    def _go(self, entry: int) -> int:
        program, *pointers = self.arguments
        status: int = runner()(program, entry, *pointers)
        return status

    def _call(self, call: HostCall, slots: int) -> None:
        op, shapes = call
        table = (ctypes.c_uint64 * len(shapes)).from_address(slots)
        arrays = [
            from_memory(self._at(table[b], shapes[b]), shapes[b]) if shapes[b].is_array else None for b in op.inputs
        ]
        if self.is_one_of_several and exchanges(
            op.instruction
        ):  # others read them when this memory holds something else
            arrays = [None if a is None else a.copy() for a in arrays]
        relaid = isinstance(op, Relayout)
        results = arrays if relaid else self.reference.leaves_of(op.instruction, arrays)
        for b, result in zip(op.outputs, results, strict=True):
            if result is not None and result.size:
                memory, shape = self._at(table[b], shapes[b]), shapes[b]
                if shape.type.per_byte > 1:
                    np.copyto(memory, to_memory(result, shape))
                else:
                    np.copyto(logical(memory, shape), result)

    def _at(self, address: int, shape: Shape) -> Array:
        """The buffer at an address."""
        wrapper = self.wrapped.get((address, shape))
        if wrapper is None:
            size = buffer_bytes(shape)
            memory = memoryview((ctypes.c_uint8 * size).from_address(address) if size else bytearray()).cast("B")
            wrapper = self.wrapped[address, shape] = (
                np.frombuffer(memory, held_dtype(shape)) if size else empty_memory(shape)
            )
        return wrapper


def _writable(arguments: Sequence[Array | None], number: int, kept: Sequence[Array], shape: Shape) -> Array:
    """An input that a run may write into: itself, or a copy where its memory belongs to another input as well, or to
    what the caller has `kept`. Kernels change narrow elements in whole words."""
    own = arguments[number]
    assert own is not None
    others = [*kept, *(a for k, a in enumerate(arguments) if k != number and a is not None)]
    if own.flags.writeable and own.nbytes % WORD == 0 and not any(np.may_share_memory(own, a) for a in others):
        return own
    memory = empty_memory(shape)
    np.copyto(memory, own.reshape(-1))
    return memory


def _is_plain(shape: Shape) -> bool:
    """Whether an array that NumPy makes of itself is a buffer of that shape."""
    return shape.is_array and shape.is_row_major and shape.type.per_byte == 1 and shape.stored_bytes % WORD == 0


def _as_buffer(array: Array, shape: Shape, plain: bool = False) -> Array:
    """The array as a buffer: in one piece, at a multiple of its element's size; flat unless it is `plain`."""
    if plain and array.flags.c_contiguous and array.flags.aligned:
        return array
    memory = to_memory(array, shape)
    return memory if memory.flags.aligned else memory.copy()
