"""The NumPy interpreter over the op table: the reference for everything that runs elsewhere."""

import sys
from types import ModuleType
from typing import Any

from hlo_opt.evaluate.device_inputs import device_inputs
from hlo_opt.evaluate.devices import evaluate_devices
from hlo_opt.evaluate.effects import Effects, Occurrence
from hlo_opt.evaluate.inputs import flatten, input_shapes, module_inputs, output_shapes, unflatten
from hlo_opt.evaluate.interpreter import Interpreter
from hlo_opt.evaluate.reference import evaluate
from hlo_opt.evaluate.watch import Event

__all__ = [
    "Effects",
    "Event",
    "Interpreter",
    "Occurrence",
    "device_inputs",
    "evaluate",
    "evaluate_devices",
    "flatten",
    "input_shapes",
    "module_inputs",
    "output_shapes",
    "unflatten",
]


class _Room(ModuleType):
    """Python binds a package's name in its parent to the package, so `hlo_opt.evaluate` is this module as soon as anything of it is
    imported; calling the module calls the public function of that name."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return evaluate(*arguments, **options)


sys.modules[__name__].__class__ = _Room
