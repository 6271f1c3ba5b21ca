"""Which instructions of a module are kernels, and which of them share one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.codegen import emit_kernel
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.diag import Reason
from hlo_opt.ir import Instruction, Module
from hlo_opt.ops import find
from hlo_opt.ops.calls.call import call_of
from hlo_opt.plans import region_of
from hlo_opt.plans.choose import plan
from hlo_opt.plans.plan import Plan


@dataclass(frozen=True, eq=False)
class Part:
    """A kernel and which of an instruction's array leaves it writes; what it writes besides, nobody reads."""

    kernel: Kernel
    leaves: tuple[int, ...]


class KernelSet:
    """The distinct kernels of a module. Structurally equal instructions give equal texts, hence equal symbols, and share a kernel.

    reasons  why an instruction that was asked for has no kernel
    """

    def __init__(self, module: Module, target: DeviceTarget) -> None:
        self._module = module
        self._target = target
        self._by_symbol: dict[str, Kernel] = {}
        self._of: dict[Instruction, tuple[Part, ...]] = {}
        self.reasons: dict[Instruction, Reason] = {}

    def parts_of(self, instruction: Instruction) -> tuple[Part, ...]:
        """The kernel that computes an instruction; several for one whose outputs one kernel cannot write together (`rng-bit-generator`: bits and state);
        none when a library or the interpreter must compute it.

        What a GPU library does well (a `dot`) is left to it; other library operations get a kernel where a plan covers them.
        """
        if instruction not in self._of:
            spec = find(instruction.opcode)
            is_call = spec is not None and spec.is_library and not spec.own_kernel
            left = spec is not None and (spec.side_effects or (is_call and call_of(instruction) is not None))
            self._of[instruction] = () if left else self._planned(instruction)
        return self._of[instruction]

    def _planned(self, instruction: Instruction) -> tuple[Part, ...]:
        region = region_of(self._module, instruction)
        positions: list[tuple[int, ...]] = []
        for root in region.roots:
            first = sum(map(len, positions))
            positions.append(tuple(range(first, first + len(list(root.shape.leaves())))))
        made = plan(region, self._target)
        if isinstance(made, Plan):
            return (self._part(made, positions),)
        if instruction.opcode == "fusion" or len(region.roots) == 1:
            self.reasons[instruction] = made
            return ()
        parts = []
        for root, leaves in zip(region.roots, positions, strict=True):
            made = plan(replace(region, roots=(root,)), self._target)
            if not isinstance(made, Plan):
                self.reasons[instruction] = made
                return ()
            parts.append(self._part(made, [leaves]))
        return tuple(parts)

    def _part(self, made: Plan, positions: list[tuple[int, ...]]) -> Part:
        kernel = emit_kernel(made)
        first = self._by_symbol.setdefault(kernel.symbol, kernel)
        if (kernel.inputs, kernel.outputs) == (first.inputs, first.outputs):
            kernel = first
        else:  # equal texts may read arrays of other dimensions
            kernel = replace(kernel, source=first.source)
        return Part(kernel, tuple(leaf for leaves in positions for leaf in leaves))

    def distinct(self) -> tuple[Kernel, ...]:
        """Every kernel once, in the order of first use."""
        return tuple(self._by_symbol.values())
