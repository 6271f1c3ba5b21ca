"""Kernels for a range of sizes: a module whose named dimension (`--dynamic`) is an argument of its kernels.

The schedule is built once for many sizes, from a module whose dimensions are a `hlo_opt.ir.size.Size`. Planning and
emission decide by sizes now and then (does a vector divide a row, does the last block end within the array). A variant
is the schedule of all sizes for which they decide alike, so that its kernels are, for each of these sizes, what would
be emitted for that size alone. Most kernels are the same in several variants; equal ones are built once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from hlo_opt.analysis.sizes.resize import Ties
from hlo_opt.analysis.targets import DeviceTarget, target_of
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.diag import UsageError
from hlo_opt.ir import Instruction, Module, Shape
from hlo_opt.ir.size import Range, shape_at
from hlo_opt.ir.values import Array
from hlo_opt.passes.for_kernels import expanded
from hlo_opt.runtime.executable import Executable, choose_backend
from hlo_opt.runtime.host.library import HostDevice, HostLibrary
from hlo_opt.runtime.numpy import Reference
from hlo_opt.runtime.schedule import Schedule, build_schedule
from hlo_opt.runtime.schedule.executor import Executor
from hlo_opt.runtime.schedule.lowering import known_value
from hlo_opt.runtime.schedule.ops import ConstantOp, LaunchOp, Op, Routine

MOST_VARIANTS = 64
"""More variants than this are no family: each size nearly has its own."""
FEW_TEXTS, SIZES_PER_TEXT = 8, 4
"""More texts than this many, with fewer sizes for each than that many, are said to be for few sizes."""


@dataclass(frozen=True, eq=False)
class SizeVariant:
    """The sizes for which planning decides alike, ascending, and the schedule of all of them."""

    sizes: tuple[int, ...]
    schedule: Schedule


@dataclass(frozen=True, eq=False)
class Family:
    """The variants of a module, which cover every size of its range."""

    ties: Ties
    target: DeviceTarget
    variants: tuple[SizeVariant, ...]
    _schedules: dict[int, Schedule] = field(default_factory=dict)

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """The distinct kernels of all variants."""
        every = {kernel.symbol: kernel for variant in self.variants for kernel in variant.schedule.kernels}
        return tuple(every.values())

    @cached_property
    def many_texts(self) -> list[tuple[str, str, int]]:
        """What is launched by kernels that are for few sizes each: the instruction, the plan, how many texts there are.
        It is planned by the size itself: by rungs of a loop, tiles or memory of a block."""
        texts: dict[str, dict[str, str]] = {}
        for variant in self.variants:
            for _, op in variant.schedule.ops():
                if isinstance(op, LaunchOp):
                    texts.setdefault(op.instruction.name, {})[op.kernel.symbol] = op.kernel.kind
        few = max(FEW_TEXTS, len(self.ties.sizes) // SIZES_PER_TEXT)
        return [(name, next(iter(of.values())), len(of)) for name, of in texts.items() if len(of) > few]

    def variant(self, size: int) -> SizeVariant:
        """The variant of a size. Raises UsageError for one out of range."""
        variant = next((v for v in self.variants if size in v.sizes), None)
        if variant is None:
            raise UsageError(f"size {size} is not one of {self.ties.range}")
        return variant

    def schedule(self, size: int) -> Schedule:
        """The schedule at a size, with the kernels of its variant."""
        if size not in self._schedules:
            module = expanded(self.ties.at(size), self.target)
            self._schedules[size] = _at(self.variant(size).schedule, module, size)
        return self._schedules[size]


def family(ties: Ties, target: str | DeviceTarget | None = None) -> Family:
    """The kernels of a module for the range of its ties. Raises UsageError (SIZ109) where nearly each size would need
    kernels of its own."""
    device = target_of(ties.module, target)
    left = list(ties.sizes)
    variants: list[SizeVariant] = []
    while left:
        if len(variants) == MOST_VARIANTS:
            raise UsageError(
                f"planning decides otherwise at more than {MOST_VARIANTS} places of sizes {ties.range}",
                code="SIZ109",
                hint="hlo-opt explain SIZ109",
            )
        variant = _variant(ties, device, left)
        variants.append(variant)
        covered = set(variant.sizes)
        left = [size for size in left if size not in covered]
    return Family(ties, device, tuple(variants))


def _variant(ties: Ties, target: DeviceTarget, left: Sequence[int]) -> SizeVariant:
    """The variant of the greatest size that is left. Its kernels are emitted again with other sizes as the example: the
    texts must be the same, so that no number of the first example is in them. Where they are not (a price was close, or
    a number is known that should not be), it is for the greater half only."""
    sizes, schedule = _traced(ties, target, left, left[-1])
    while True:
        again, schedule = _traced(ties, target, sizes, sizes[-1])  # what was decided late made earlier numbers plain
        if len(again) < len(sizes):
            sizes = again
            continue
        symbols = [kernel.symbol for kernel in schedule.kernels]
        examples = {sizes[0], sizes[len(sizes) // 2]} - {sizes[-1]}
        others = [_traced(ties, target, sizes, example) for example in sorted(examples)]
        if all(
            [kernel.symbol for kernel in other.kernels] == symbols and len(own) == len(sizes) for own, other in others
        ):
            return SizeVariant(tuple(sizes), schedule)
        sizes = sizes[(len(sizes) + 1) // 2 :]


def _traced(ties: Ties, target: DeviceTarget, sizes: Sequence[int], example: int) -> tuple[list[int], Schedule]:
    """The schedule that is built with one size as the example, and all sizes that it is for."""
    sizes_of_kernels = Range(ties.sizes, sizes, example)
    schedule = build_schedule(ties.at(sizes_of_kernels.size()), target)
    return sizes_of_kernels.sizes, schedule


def _at(schedule: Schedule, module: Module, size: int) -> Schedule:
    """A schedule of a range at one size; `module` is its module at that size."""
    named = {(c.name, i.name): i for c in module.computations for i in c.instructions}
    routines = {key: _routine_at(routine, named, size) for key, routine in schedule.routines.items()}
    return Schedule(module, schedule.target, routines, tuple(kernel.at(size) for kernel in schedule.kernels))


def _routine_at(routine: Routine, named: Mapping[tuple[str, str], Instruction], size: int) -> Routine:
    computation = routine.computation.name
    shapes = tuple(shape_at(shape, size) for shape in routine.shapes)
    ops = tuple(_op_at(op, named.get((computation, op.instruction.name), op.instruction), size) for op in routine.ops)
    return replace(routine, shapes=shapes, ops=ops)


def _op_at(op: Op, instruction: Instruction, size: int) -> Op:
    if isinstance(op, LaunchOp):
        return replace(op, instruction=instruction, kernel=op.kernel.at(size))
    if isinstance(op, ConstantOp):
        return replace(op, instruction=instruction, literals=known_value(instruction) or op.literals)
    return replace(op, instruction=instruction)


class _OwnInputs(HostDevice):
    """As `HostDevice`, with inputs in memory of their own: a run may write into those that the header donates."""

    def upload(self, array: Array, shape: Shape) -> Array:
        return self.copy(super().upload(array, shape))


class SizedExecutable:
    """A family on a backend: call it with arrays of any size of the range.

    backend, why  as for `Executable`
    """

    def __init__(self, kernels: Family, backend: str = "auto", *, precise: bool = False) -> None:
        """Raises UsageError for an unknown backend, BackendError where its compiler or GPU is missing or a kernel does
        not build."""
        self.backend, self.why = choose_backend(backend)
        self.family = kernels
        self._precise = precise
        self._library = HostLibrary(kernels.kernels, form="plain") if self.backend == "host" else None
        self._executables: dict[int, Executable] = {}

    def __call__(self, *inputs: Array) -> list[Array]:
        """The outputs for inputs of one size, tuples flattened. Raises UsageError for a size out of range or
        inputs that differ in size, EvaluationError for inputs that do not fit otherwise."""
        return self.at(self.family.ties.dimensions([tuple(array.shape) for array in inputs]))(*inputs)

    def at(self, size: int) -> Executable:
        """What runs at one size. Raises UsageError for one out of range."""
        if size not in self._executables:
            self._executables[size] = self._at(size)
        return self._executables[size]

    def _at(self, size: int) -> Executable:
        schedule = self.family.schedule(size)
        module = self.family.ties.at(size)
        executor: Executor | None = None
        if self._library is not None:
            executor = Executor(schedule, _OwnInputs(self._library, Reference(schedule.module)))
        elif self.backend == "cupy":
            from hlo_opt.runtime.cupy.device import CupyDevice

            executor = Executor(schedule, CupyDevice(schedule, precise=self._precise))
        return Executable(module, self.backend, self.why, schedule, executor, precise=self._precise)
