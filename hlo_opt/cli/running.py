"""What the options of verbs that run modules ask for, and doing it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hlo_opt.ir import Module
    from hlo_opt.runtime.check.compare import CheckReport
    from hlo_opt.runtime.memory import Array


@dataclass(frozen=True)
class Running:
    """How to run. The fields are the options; not every verb has all of them."""

    backend: str
    inputs: str | None
    seed: int
    memory_limit: int | None
    elided: str | None
    sanitize: bool = False
    max_steps: int | None = None
    trace: tuple[str, ...] = ()
    check_nans: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Running:
        """From what was typed; other options than these are left to others."""
        return cls(**{f.name: options[f.name] for f in fields(cls) if f.name in options})

    def devices(self, module: Module) -> int:
        """How many devices the module is for. Raises EvaluationError (HLO402) for too many, and where drawing inputs for them, because no file gives any, would take more bytes than the limit."""
        from hlo_opt.evaluate.memory import check_drawing
        from hlo_opt.ops.collective.module_devices import check_devices

        devices = check_devices(module)
        if self.inputs is None:
            check_drawing(module, self.memory_limit, devices=devices)
        return devices

    def given(self, module: Module) -> list[list[Array]]:
        """The inputs of each of the module's devices: those in an npz file, else drawn. Raises as `load_device_inputs`."""
        from hlo_opt.cli.arrays import load_device_inputs
        from hlo_opt.evaluate.device_inputs import device_inputs

        if self.inputs is None:
            return device_inputs(module, self.seed)
        return load_device_inputs(self.inputs, module)

    def compare(self, module: Module, second: Module) -> CheckReport:
        """Run both on the same inputs, those in the file or drawn ones. Raises as `runtime.check.compare.check` and `load_device_inputs` do."""
        from hlo_opt.runtime.check.compare import check, on_named_devices

        given: list[Any] | None = None
        if self.inputs is not None:
            module, second = on_named_devices(module, second)
            given = self.given(module)
        return check(
            module,
            second,
            inputs=given[0] if given is not None and len(given) == 1 else given,
            seed=self.seed,
            backend=self.backend,
            sanitize=self.sanitize,
            memory_limit=self.memory_limit,
            elided=self.elided,
        )
