"""What becomes of the inputs that a module's header gives away (`input_output_alias`): whether the result is made in
the input's memory."""

from __future__ import annotations

from dataclasses import dataclass

from hlo_opt.ir import Instruction, Module
from hlo_opt.runtime.schedule import Schedule
from hlo_opt.runtime.schedule.lifetimes import buffer_bytes, lifetimes
from hlo_opt.text.aliases import aliased_leaves


@dataclass(frozen=True)
class Donation:
    """An array of a parameter that is given away.

    parameter    the parameter, or the tuple that holds the array
    result       the number of the array among all results whose memory it may be
    bytes        the array's size
    is_honoured  whether the result is made in the array's memory
    why          where it is not: why, in words
    """

    parameter: Instruction
    result: int
    bytes: int
    is_honoured: bool
    why: str = ""


def donations(module: Module, schedule: Schedule) -> list[Donation]:
    """The donations of a module, in the order of its inputs. `schedule`: the module's program."""
    entry = schedule.entry
    root = lifetimes(entry.ops, entry.shapes).root
    parameters = [p for p in module.entry.parameters for _ in p.shape.leaves()]
    donated, apart = [], dict(entry.apart)
    for leaf, result in sorted(aliased_leaves(module).items()):
        source, target = entry.inputs[leaf], entry.results[result]
        size, is_honoured = buffer_bytes(entry.shapes[source]), root[source] == root[target]
        donated.append(Donation(parameters[leaf], result, size, is_honoured, "" if is_honoured else apart[leaf]))
    return donated
