"""The NumPy interpreter over the op table: the reference for everything that runs elsewhere."""

import sys
from types import ModuleType
from typing import Any

from hlo_opt.evaluate.devices import device_inputs, evaluate_devices
from hlo_opt.evaluate.inputs import flatten, input_shapes, module_inputs, unflatten
from hlo_opt.evaluate.interpreter import Interpreter, evaluate
from hlo_opt.evaluate.nans import Event
from hlo_opt.evaluate.program import Effects, Occurrence

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
    "unflatten",
]


class _Room(ModuleType):
    """Python binds a package's name in its parent to the package, so `hlo_opt.evaluate` is this module as soon as anything of it is
    imported; calling the module calls the public function of that name."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return evaluate(*arguments, **options)


sys.modules[__name__].__class__ = _Room
