"""The NumPy interpreter as backends use it: whole modules, and single instructions for library calls and fallbacks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo_opt.diag import EvaluationError
from hlo_opt.evaluate import Interpreter, evaluate, flatten, unflatten
from hlo_opt.evaluate.program import face, placed
from hlo_opt.ir import Instruction, Module
from hlo_opt.ops.spec import Device
from hlo_opt.runtime.memory import Array


class Reference:
    """Evaluates a module, or single instructions of it."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._interpreter = Interpreter()

    def play(self, device: Device) -> None:
        """From now on, collectives are those of this device of a run; before, of one that is alone."""
        self._interpreter.device = device

    def run(self, inputs: Sequence[Array], max_steps: int | None = None) -> list[Array]:
        """The entry's outputs, tuples flattened. `max_steps` as for `hlo_opt.evaluate`."""
        return evaluate(self._module, inputs, max_steps=max_steps)

    def leaves_of(self, instruction: Instruction, operands: Sequence[Array | None]) -> list[Array | None]:
        """The leaves of an instruction's value for the leaves of its operands; None stands for a token. Callers bound the libraries below NumPy (`bounded_libraries`), whole runs at once
        where they can: for a small product that takes as long as the product."""
        arrays = [a for a in operands if a is not None]
        values = unflatten([o.shape for o in instruction.operands], arrays)
        with np.errstate(all="ignore"):
            try:
                made = iter(flatten(face(instruction)(self._interpreter, instruction, values)))
            except EvaluationError as fault:
                raise placed(fault, instruction) from None
        return [next(made) if leaf.is_array else None for leaf in instruction.shape.leaves()]
