"""`hlo_opt.evaluate`: what a module computes, by NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlo_opt.evaluate.inputs import Array, checked, flatten, unflatten
from hlo_opt.evaluate.interpreter import Interpreter, Observer
from hlo_opt.ir import Module

CALLS = 100_000_000
"""How many computations may be run by default: some minutes of the shortest ones. A loop that never ends becomes an error."""


def evaluate(
    module: Module,
    inputs: Sequence[Any] = (),
    *,
    observe: Observer | None = None,
    call_limit: int | None = CALLS,
    memory_limit: int | None = None,
    as_xla_cpu: bool = True,
) -> list[Array]:
    """The entry's results, tuples flattened in order.

    inputs        one array per array of the entry's parameters, tuples flattened in order
    observe       called with every instruction and its value, for traces and checks
    call_limit    how many computations may be run; None: any number
    memory_limit  bytes that the run may hold at once, found before anything is computed; None: any number
    as_xla_cpu    what is open in HLO comes out as on XLA:CPU: how often the init value of a reduction goes in that is no identity of its reducer, the order
                  of equal elements in an unstable sort, which roundings to bf16 a conversion to f32 undoes. Otherwise as in kernels: once, stable, none
    Raises EvaluationError for inputs that do not fit (HLO401), an operation without meaning here (HLO400), a limit passed (HLO402).
    """
    entry = module.entry
    arguments = unflatten([p.shape for p in entry.parameters], checked(module, inputs))
    interpreter = Interpreter(observe=observe, call_limit=call_limit, memory_limit=memory_limit, as_xla_cpu=as_xla_cpu)
    value = interpreter.call(entry, arguments)
    return [np.array(array, order="C") for array in flatten(value)]
