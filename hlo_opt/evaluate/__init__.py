"""The NumPy interpreter over the op table: the reference that every backend is compared with."""

import sys
from types import ModuleType
from typing import Any

from hlo_opt.evaluate.devices import device_inputs, evaluate_devices
from hlo_opt.evaluate.inputs import flatten, input_shapes, module_inputs, unflatten
from hlo_opt.evaluate.interpreter import Interpreter, evaluate
from hlo_opt.evaluate.nans import ValueEvent
from hlo_opt.evaluate.program import Effects, Occurrence

__all__ = [
    "Effects",
    "Interpreter",
    "Occurrence",
    "ValueEvent",
    "device_inputs",
    "evaluate",
    "evaluate_devices",
    "flatten",
    "input_shapes",
    "module_inputs",
    "unflatten",
]


class _Room(ModuleType):
    """`hlo_opt.evaluate` names both this package and the public function. Calling the module calls the function."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return evaluate(*arguments, **options)


sys.modules[__name__].__class__ = _Room
