"""`hlo_opt.evaluate`: what a module computes, by NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlo_opt.evaluate.effects import Effects
from hlo_opt.evaluate.elided import Elided, with_values
from hlo_opt.evaluate.inputs import checked, flatten, unflatten
from hlo_opt.evaluate.interpreter import Interpreter, Observer
from hlo_opt.evaluate.memory import check_memory
from hlo_opt.evaluate.nans import NanCheck
from hlo_opt.evaluate.threads import bounded_libraries
from hlo_opt.evaluate.watch import Watcher, watching
from hlo_opt.ir import Module
from hlo_opt.ir.values import Array
from hlo_opt.ops.collective.module_devices import warn_of_one_device


@bounded_libraries()
def evaluate(
    module: Module,
    inputs: Sequence[Any] = (),
    *,
    observe: Observer | None = None,
    watch: Watcher | None = None,
    check_nans: bool = False,
    call_limit: int | None = None,
    max_steps: int | None = None,
    memory_limit: int | None = None,
    effects: Effects | None = None,
    elided: Elided = None,
) -> list[Array]:
    """The entry's results, tuples flattened in order.

    A module for several devices (`replica_count`, `num_partitions`) is run on the first of them, alone: its number is 0, groups hold nobody else, and what nobody sends is zero. A DeviceWarning (HLO406)
    says so where that matters; `evaluate_devices` runs all.

    inputs        one array per array of the entry's parameters, tuples flattened in order
    observe       called with every instruction and its value, for traces and checks
    watch         called with an `Event` for every evaluation: also the operands' values, and the iterations of the loops around
    check_nans    stop where the first NaN is born: see `hlo_opt.evaluate.nans`
    call_limit    how many computations may be run; None: any number
    max_steps     how many iterations all loops may take together; None: any number
    memory_limit  bytes that the run may hold at once, inputs and outputs included, found before anything is computed; None: any number
    effects       answers what the module does not say, such as random draws: see `hlo_opt.evaluate.effects`; None: that is an error
    elided        what constants are that the text leaves out (`{...}`): `zeros`, `random`, the name of an npz file or arrays by the constants' names; None: such a module is not run
    Raises EvaluationError for inputs that do not fit (HLO401), an operation without meaning here (HLO400), a limit passed (HLO402), a constant without a value (HLO407); CheckError for a NaN
    that was looked for (HLO720).
    """
    module = with_values(module, elided)
    warn_of_one_device(module)
    entry = module.entry
    interpreter = Interpreter(
        observe=observe,
        watch=watching(watch, NanCheck() if check_nans else None),
        call_limit=call_limit,
        max_steps=max_steps,
        effects=effects,
    )
    check_memory(module, memory_limit, program_of=interpreter.program)
    arguments = unflatten([p.shape for p in entry.parameters], checked(module, inputs))
    value = interpreter.call(entry, arguments)
    return [np.array(array, order="C") for array in flatten(value)]
