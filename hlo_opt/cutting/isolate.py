"""One fusion, loop, computation or other instruction as a module that runs on its own, and its inputs in a run of the
whole module."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.cutting.parts import ModulePart, part_of
from hlo_opt.diag import UsageError, did_you_mean
from hlo_opt.evaluate import evaluate, evaluate_devices, flatten
from hlo_opt.evaluate.interpreter import Stopped
from hlo_opt.evaluate.nans import ValueEvent
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ir.values import Array
from hlo_opt.ir.walk import operands_first
from hlo_opt.ops.sets import tuple_elements
from hlo_opt.ops.values import Value

OFFERED = 6
"""Limit of the names in a hint."""


def named(module: Module, name: str) -> Instruction | Computation:
    """The instruction with a name (`COMPUTATION/NAME` where several have it), or else the computation. Raises
    UsageError where nothing has the name, or several instructions do."""
    name = name.lstrip("%")
    place, _, own = name.rpartition("/")
    instructions = [
        i for c in module.computations if place in ("", c.name) for i in c.instructions if i.name == own.lstrip("%")
    ]
    if len(instructions) > 1:
        places = " or ".join(f"{i.computation.name}/{name}" for i in instructions)
        raise _refused(module, f"{len(instructions)} instructions are called {name!r}", f"ask for {places}")
    if instructions:
        return instructions[0]
    for computation in module.computations:
        if computation.name == name:
            return computation
    names = [i.name for c in module.computations for i in c.instructions] + [c.name for c in module.computations]
    raise _refused(
        module, f"there is no instruction or computation {name!r}", did_you_mean(name, names) or _some(module)
    )


def _refused(module: Module, message: str, hint: str | None = None) -> UsageError:
    return UsageError(message, hint=hint, filename=None if module.source is None else module.source.filename)


def _some(module: Module) -> str:
    """A sentence with the names of instructions: fusions and loops first, then other operations."""
    parts = [i for c in reversed(list(module.computations)) for i in c.instructions if i.operands]
    parts.sort(key=lambda i: not i.called())
    more = f" and {len(parts) - OFFERED} more" if len(parts) > OFFERED else ""
    return f"it has {', '.join(i.name for i in parts[:OFFERED])}{more}" if parts else "nothing in it is computed"


def isolated(module: Module, name: str) -> ModulePart:
    """The instruction or computation with a name, as a module. Its operands, or its parameters, are the parameters of
    the entry; constants are copied. Raises UsageError."""
    target = named(module, name)
    if isinstance(target, Computation):
        needed = operands_first([target.root])
        effects = [i for i in target.instructions if i.control_predecessors or not i.users]
        kept = {i for i in (*needed, *effects) if i.parameter_number is None}
        if not kept:
            raise _refused(module, f"{target.name} hands its parameter on, and computes nothing")
        root = target.root
        return part_of(target, kept, tuple_elements(root) or [root])
    if target.parameter_number is not None:
        raise _refused(module, f"{target.name} is a parameter, and computes nothing")
    # A tuple that is its operand, such as the state of a loop, is put together in the part.
    together = [o for o in target.operands if tuple_elements(o) is not None]
    return part_of(target.computation, {target, *together}, [target])


def inputs_of(
    module: Module, name: str, part: ModulePart, inputs: Sequence[Sequence[Array]], call: int = 1
) -> list[list[Array]]:
    """The inputs of a part in its `call`-th run, from 1, when the whole module runs on `inputs`: for each device a list
    of arrays, tuples flattened.

    Raises UsageError where the part runs less often, or belongs to an operation that does not run by itself.
    """
    target = named(module, name)
    last = target.root if isinstance(target, Computation) else target
    wanted = set(part.inputs)
    latest: dict[int, dict[Instruction, Value]] = {device: {} for device in range(len(inputs))}
    recorded: dict[int, list[Array]] = {}
    times = dict.fromkeys(latest, 0)

    def watch(event: ValueEvent) -> None:
        if event.instruction in wanted and event.device not in recorded:
            latest[event.device][event.instruction] = event.value
        if event.instruction is last:
            times[event.device] += 1
            if times[event.device] == call:
                values = latest[event.device]
                recorded[event.device] = [leaf for i in part.inputs for leaf in flatten(values[i])]
                if len(inputs) == 1:
                    raise Stopped

    if not part.inputs:
        return [[] for _ in inputs]
    try:
        if len(inputs) > 1:
            evaluate_devices(module, inputs, watch=watch)
        else:
            evaluate(module, inputs[0], watch=watch)
    except Stopped:
        pass
    if len(recorded) < len(inputs):
        ran = min(times.values())
        often = "never runs by itself" if not ran else f"runs {ran} time{'s' * (ran > 1)}, not {call},"
        hint = "without --recorded the module alone is written"
        raise _refused(module, f"{name} {often} on these inputs", hint)
    return [recorded[device] for device in sorted(recorded)]
