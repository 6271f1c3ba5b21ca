"""The NumPy interpreter over the op table: the reference that every backend is compared with.

Names are imported at their first use, so that modules of this package that know no operation load without the table.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hlo_opt.evaluate.devices import device_inputs, evaluate_devices
    from hlo_opt.evaluate.inputs import flatten, input_shapes, module_inputs, unflatten
    from hlo_opt.evaluate.interpreter import Interpreter, evaluate
    from hlo_opt.evaluate.nans import ValueEvent
    from hlo_opt.evaluate.program import Effects, Occurrence

_HOMES = {
    "devices": ("device_inputs", "evaluate_devices"),
    "inputs": ("flatten", "input_shapes", "module_inputs", "unflatten"),
    "interpreter": ("Interpreter", "evaluate"),
    "nans": ("ValueEvent",),
    "program": ("Effects", "Occurrence"),
}

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


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Callable[..., object]:
    for home, names in _HOMES.items():
        if name in names:
            value: Callable[..., object] = getattr(importlib.import_module(f"{__name__}.{home}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Room(ModuleType):
    """`hlo_opt.evaluate` names both this package and the public function. Calling the module calls the function."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from hlo_opt.evaluate.interpreter import evaluate

        return evaluate(*arguments, **options)


sys.modules[__name__].__class__ = _Room
