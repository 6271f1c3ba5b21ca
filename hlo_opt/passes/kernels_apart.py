"""What passes share that take values out of kernels, for processors: a launch costs little there, and what was just
written is in a cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_opt.ir import Called, Computation, Instruction, Module, edit
from hlo_opt.ir.walk import executed_computations
from hlo_opt.ops.sets import fused
from hlo_opt.passes.base import PassContext
from hlo_opt.passes.dce import DeadCodeElimination, drop_unread, sweep
from hlo_opt.passes.expansion import Expansion
from hlo_opt.plans import Plan, plan, region_of


@dataclass(frozen=True)
class KernelsApart(Expansion):
    """Take values out of kernels, by their plans. What is left of a kernel is looked at again, and so is what came out
    of it."""

    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"

    def may_hold(self, instruction: Instruction) -> bool:
        """Whether an instruction is a kernel that may have values to take out, as far as is seen without a plan."""
        raise AssertionError(f"{type(self).__name__} does not define may_hold")

    def change(self, kernel: Instruction, kernel_plan: Plan) -> Callable[[], object] | None:
        """What takes values out of a kernel with a plan; None where they are better inside."""
        raise AssertionError(f"{type(self).__name__} does not define change")

    def concerns(self, module: Module) -> bool:
        return any(self.may_hold(i) for c in executed_computations(module) for i in c.instructions)

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        module = computation.module
        assert module is not None
        for kernel in filter(self.may_hold, list(computation.instructions)):
            kernel_plan = plan(region_of(module, kernel), context.options.target)
            change = self.change(kernel, kernel_plan) if isinstance(kernel_plan, Plan) else None
            if change is not None:
                yield change

    def run(self, module: Module, context: PassContext) -> bool:
        changed = False
        while super().run(module, context):
            DeadCodeElimination().run(module, context)
            changed = True
        return changed


def has(kernel: Instruction, values: Iterable[Instruction]) -> bool:
    """Whether these values of a kernel's plan are in its computation: a plan is of one in which nothing stands for
    other operations, and no narrow float is only moved (`region_of`)."""
    body = fused(kernel)
    return all(value.parent is body for value in values)


def copied(body: Computation) -> tuple[Computation, dict[Instruction, Instruction]]:
    """A copy of a kernel's computation, and its instructions by those of the computation."""
    copy = edit.clone_computation(body)
    return copy, dict(zip(body.instructions, copy.instructions, strict=True))


def kernel_of(old: Instruction, body: Computation, operands: Iterable[Instruction]) -> Instruction:
    """A new kernel for a computation beside an old one, without what the computation does not read."""
    sweep(body, set())
    called = {**old.attributes, "calls": Called(body)}
    new = edit.create(old.computation, old.name, "fusion", body.root.shape, list(operands), called)
    drop_unread(new, body)
    return new


def take_out(kernel: Instruction, values: Sequence[Instruction]) -> None:
    """Replace a kernel by one for these of its values and one for the rest."""
    body = fused(kernel)
    assert body is not None
    above, copies = copied(body)
    if len(values) == 1:
        edit.set_root(above, copies[values[0]])
        made = first = kernel_of(kernel, above, list(kernel.operands))
        taken = [made]
    else:
        edit.create_tuple(above, [copies[value] for value in values], root=True)
        first = kernel_of(kernel, above, list(kernel.operands))
        taken = [edit.create_element(first, number) for number in range(len(values))]
    rest, copies = copied(body)
    operands = list(kernel.operands)
    for value, outside in zip(values, taken, strict=True):
        read = edit.create_parameter(rest, "value", value.shape, len(operands))
        edit.replace_all_uses(copies[value], read)
        operands.append(outside)
    edit.sort(rest)
    edit.replace_all_uses(kernel, kernel_of(kernel, rest, operands))
    edit.remove(kernel)
