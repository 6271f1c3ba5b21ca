"""The interpreter: runs computations instruction by instruction over the op table's `evaluate` faces."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hlo_opt.diag import EvaluationError
from hlo_opt.diag.time_limit import check_time
from hlo_opt.evaluate.elided import Elided, with_values
from hlo_opt.evaluate.inputs import checked, flatten, unflatten
from hlo_opt.evaluate.memory import check_memory
from hlo_opt.evaluate.nans import NanCheck, ValueChange, ValueEvent, Watcher, watching
from hlo_opt.evaluate.program import (
    FAULTS,
    Acting,
    Effects,
    Occurrence,
    Program,
    compile_computation,
    compile_elementwise,
    error,
    is_answered,
    located,
    placed,
)
from hlo_opt.evaluate.threads import bounded_libraries
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ir.values import Array
from hlo_opt.ops.collective.module_devices import warn_of_one_device
from hlo_opt.ops.reduction.reducers import widened
from hlo_opt.ops.spec import Device, OnlyDevice
from hlo_opt.ops.values import Value

DEEPEST = 100
"""The deepest nesting of calls; each level takes a few Python frames."""


class Stopped(BaseException):
    """Ends a run from outside. Not an Exception, so that no handler mistakes it for a fault."""


class EndlessError(EvaluationError):
    """A loop would exceed the limit on iterations of all loops together."""


def endless(loop: Instruction, done: int, steps: int, most: int) -> EndlessError:
    """The error of a loop that would exceed the limit on iterations of all loops together."""
    others = "" if steps == done else f" ({steps} with those of other loops)"
    fault = error(
        loop,
        f"the loop goes on after {done} iterations{others}; the loops of a run may take {most}",
        hint="it may never end; --max-steps N (in Python max_steps) sets how many iterations all loops may take "
        "together",
        code="HLO402",
    )
    return EndlessError(fault.message, span=fault.span, hint=fault.hint, code=fault.code)


@dataclass(slots=True)
class RunningLoop:
    """A loop in progress, and its number of completed iterations."""

    interpreter: Interpreter
    instruction: Instruction
    done: int = 0

    def begin(self) -> None:
        most, steps = self.interpreter.max_steps, self.interpreter.steps
        if most is not None and steps >= most:
            raise endless(self.instruction, self.done, steps, most)
        self.interpreter.steps += 1

    def end(self) -> None:
        self.done += 1


class Interpreter:
    """Evaluates computations. It can be called many times, and caches the compiled form of each computation.

    watch      called for every evaluation, in order, with its `ValueEvent`
    max_steps  the most iterations of all loops together; None: no limit
    device     the simulated device; None: the only one
    effects    supplies values that the module does not define, such as random draws (`hlo_opt.evaluate.program`); None:
               these are errors
    change     called with every value, except of parameters, before it is read; returns the value to continue with

    Set `stopped` from another thread to end a run with `Stopped` at its next call of a computation.
    """

    def __init__(
        self,
        *,
        watch: Watcher | None = None,
        max_steps: int | None = None,
        device: Device | None = None,
        effects: Effects | None = None,
        change: ValueChange | None = None,
    ) -> None:
        self.watch = watch
        self.max_steps = max_steps
        self.device: Device = OnlyDevice() if device is None else device
        self.effects = effects
        self.change = change
        self.acting = None if effects is None else Acting()
        self.callers: list[Instruction] = []
        self.steps = 0
        self.stopped = False
        self.loops: list[RunningLoop] = []
        self._depth = 0
        self._programs: dict[Computation, Program] = {}
        self._elementwise: dict[Computation, Program | None] = {}
        self._widened: dict[Computation, Computation] = {}

    def call(self, computation: Computation, arguments: Sequence[Value]) -> Value:
        """The value of the root. Raises EvaluationError for an operation that cannot be evaluated, and where a limit is
        exceeded."""
        program = self.program(computation)
        if self._depth:
            return self._run(program, computation, arguments)
        with np.errstate(all="ignore"):
            return self._run(program, computation, arguments)

    @contextlib.contextmanager
    def loop(self, instruction: Instruction) -> Iterator[RunningLoop]:
        """Counts the iterations of a loop while entered."""
        running = RunningLoop(self, instruction)
        self.loops.append(running)
        try:
            yield running
        finally:
            self.loops.pop()

    def program(self, computation: Computation) -> Program:
        """The compiled form of a computation."""
        program = self._programs.get(computation)
        if program is None:
            program = self._programs[computation] = compile_computation(
                computation, whole=self._is_watched(), acting=self.acting
            )
        return program

    def widened(self, reducer: Computation) -> Computation:
        """The reducer that accumulates in a wider type: see `hlo_opt.ops.reduction.reducers`."""
        if reducer not in self._widened:
            self._widened[reducer] = widened(reducer)
        return self._widened[reducer]

    def map_elements(self, computation: Computation, arguments: Sequence[Value], *, wide: bool = False) -> list[Value]:
        """Apply a computation over scalars to arrays of one shape, elementwise. Returns one array per leaf of its root.

        `wide`: accumulate in a wider type (`hlo_opt.ops.reduction.reducers`).
        """
        if wide:
            computation = self.widened(computation)
        if computation not in self._elementwise:
            acts = self.acting is not None and self.acting.computation(computation)
            self._elementwise[computation] = None if acts else compile_elementwise(computation)
        program = self._elementwise[computation]
        arrays = [np.asarray(a) for a in arguments]
        sizes = np.broadcast_shapes(*(a.shape for a in arrays))
        leaves = list(computation.root.shape.leaves())
        if program is not None:
            results = map(np.asarray, _leaves(self._run(program, computation, arguments)))
            return [m if m.shape == sizes else np.broadcast_to(m, sizes) for m in results]
        outputs: list[Array] = [np.empty(sizes, leaf.type.dtype) for leaf in leaves]
        spread = [np.broadcast_to(a, sizes) for a in arrays]
        for position in np.ndindex(*sizes):
            value = self.call(computation, [a[position] for a in spread])
            for target, element in zip(outputs, _leaves(value), strict=True):
                target[position] = element
        return [*outputs]

    def _run(self, program: Program, computation: Computation, arguments: Sequence[Value]) -> Value:
        if self.stopped:
            raise Stopped
        if self._depth >= DEEPEST:
            raise EvaluationError(
                f"{computation.name}: computations call each other more than {DEEPEST} deep", code="HLO402"
            )
        if len(arguments) != len(program.parameters):
            raise EvaluationError(
                f"{computation.name} takes {len(program.parameters)} parameters, {len(arguments)} values are given"
            )
        values: list[Value] = [()] * program.slots
        for slot, argument in zip(program.parameters, arguments, strict=True):
            if slot >= 0:
                values[slot] = argument
        check_time()
        self._depth += 1
        step = None
        try:
            if not self._is_watched():
                for step in program.steps:
                    values[step.slot] = step.evaluate(self, step.instruction, [values[o] for o in step.operands])
                    for slot in step.frees:
                        values[slot] = ()
            else:
                self._watched(program, computation, values)
        except FAULTS as fault:
            if step is None:
                raise
            raise located(step.instruction, fault) from fault
        except EvaluationError as fault:
            raise fault if step is None else placed(fault, step.instruction) from None
        finally:
            self._depth -= 1
        return values[program.root]

    def _is_watched(self) -> bool:
        return self.watch is not None or self.effects is not None or self.change is not None

    def _watched(self, program: Program, computation: Computation, values: list[Value]) -> None:
        """Run the steps with watchers, changes and effects."""
        watch, device = self.watch, self.device.number
        loops = tuple((loop.instruction, loop.done) for loop in self.loops)
        for parameter in computation.parameters if watch is not None else ():
            slot = program.parameters[parameter.parameter_number or 0]
            if slot >= 0 and watch is not None:
                watch(ValueEvent(parameter, (), values[slot], loops, device))
        for step in program.steps:
            operands = [values[o] for o in step.operands]
            self.callers.append(step.instruction)
            try:
                if self.effects is not None and is_answered(step.instruction):
                    iterations = tuple(done for _, done in loops)
                    result = self.effects(
                        Occurrence(step.instruction, operands, tuple(self.callers[:-1]), iterations, device)
                    )
                else:
                    result = step.evaluate(self, step.instruction, operands)
            except FAULTS as fault:
                raise located(step.instruction, fault) from fault
            except EvaluationError as fault:
                raise placed(fault, step.instruction) from None
            finally:
                self.callers.pop()
            if self.change is not None:
                result = self.change(step.instruction, operands, result)
            values[step.slot] = result
            if watch is not None:
                watch(ValueEvent(step.instruction, operands, result, loops, device))
            for slot in step.frees:
                values[slot] = ()


def _leaves(value: Value) -> list[Value]:
    """The arrays of a value, tuples flattened."""
    if not isinstance(value, tuple):
        return [value]
    return [leaf for element in value for leaf in _leaves(element)]


@bounded_libraries()
def evaluate(
    module: Module,
    inputs: Sequence[Any] = (),
    *,
    watch: Watcher | None = None,
    check_nans: bool = False,
    max_steps: int | None = None,
    memory_limit: int | None = None,
    effects: Effects | None = None,
    elided: Elided = None,
) -> list[Array]:
    """The entry's results, tuples flattened in order.

    A module for several devices (`replica_count`, `num_partitions`) runs on the first one alone: its number is 0,
    groups hold nobody else, and values from others are zero. Where that matters, a DeviceWarning (HLO406) says so;
    `evaluate_devices` runs all devices.

    inputs        one array per array of the entry's parameters, tuples flattened in order
    watch         called for every evaluation with a `ValueEvent`: operands, value, iterations of enclosing loops
    check_nans    stop at the operation that makes the first NaN: see `hlo_opt.evaluate.nans`
    max_steps     the most iterations of all loops together; None: no limit
    memory_limit  the most bytes that the run may hold at once, inputs and outputs included; checked before anything is
                  computed; None: no limit
    effects       supplies values that the module does not define, such as random draws (`hlo_opt.evaluate.program`);
                  None: these are errors
    elided        values of elided constants (`{...}`): `zeros`, `random`, the path of an npz file or arrays by constant
                  name; None: a module with such constants is an error

    Raises EvaluationError for inputs that do not fit (HLO401), an operation that cannot be evaluated (HLO400), an
    exceeded limit (HLO402), a constant without a value (HLO407); CheckError for a NaN under `check_nans` (HLO720).
    """
    module = with_values(module, elided)
    warn_of_one_device(module)
    entry = module.entry
    interpreter = Interpreter(
        watch=watching(watch, NanCheck() if check_nans else None),
        max_steps=max_steps,
        effects=effects,
    )
    check_memory(module, memory_limit, program_of=interpreter.program)
    arguments = unflatten([p.shape for p in entry.parameters], checked(module, inputs))
    value = interpreter.call(entry, arguments)
    return [np.array(array, order="C") for array in flatten(value)]
