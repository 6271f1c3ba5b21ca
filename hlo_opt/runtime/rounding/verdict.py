"""Whether another backend's outputs are within the bounds of the original's analysis, and what agreement is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hlo_opt.ir import Instruction, Module
from hlo_opt.ir.values import Array
from hlo_opt.ops import find
from hlo_opt.ops.sets import results_of
from hlo_opt.ops.values import HIGH, LOW, Spread
from hlo_opt.runtime.differences import LOOSE_SHARE, Enclosure, OutputReport, compare_output, is_floating, real_parts
from hlo_opt.runtime.rounding.analysis import Analysis


def enclosures(analysis: Analysis, expected: Sequence[Array]) -> list[Enclosure]:
    """One enclosure per output. It includes the reference's own value, even where that run rounds differently from the
    analysis."""
    return [_enclosure(s, e) for s, e in zip(analysis.outputs, expected, strict=True)]


def _enclosure(value: Any, expected: Array) -> Enclosure:
    if type(value) is not Spread or value.rows.shape[1:] != expected.shape:
        return Enclosure.exact(expected)
    low, high = (np.array(value.rows[k], order="C") for k in (LOW, HIGH))
    return Enclosure(real_parts(low), real_parts(high))


def compared(
    module: Module, expected: Sequence[Array], actual: Sequence[Array], analysis: Analysis | None
) -> list[OutputReport]:
    """One report per output, from the original's analysis; without one, outputs must be equal."""
    bounds: Sequence[Enclosure | None] = [None] * len(expected)
    if analysis is not None:
        bounds = enclosures(analysis, expected)
    reports = [compare_output(n, e, a, b) for n, (e, a, b) in enumerate(zip(expected, actual, bounds, strict=True))]
    if analysis is not None:
        reports = [
            replace(r, weak=_lost(module, analysis, r)) if r.ok and r.loose > LOOSE_SHARE else r for r in reports
        ]
    free = unread(module)
    return [r if r.weak or not r.ok else replace(r, weak=_plain(expected[r.output], r.output in free)) for r in reports]


def _lost(module: Module, analysis: Analysis, report: OutputReport) -> str:
    """Why the bounds of an output are wide."""
    size = int(np.prod(report.dimensions, dtype=np.int64))
    if analysis.ties and report.set_aside * 2 > size:
        tie = max(analysis.ties, key=lambda t: t.elements)
        return f"{report.set_aside} of {size} elements hang on {tie.on} of {_named(module, tie.instruction)}"
    value = analysis.outputs[report.output]
    loss = value.loss if type(value) is Spread else None
    share = f"bounds above 5 % of the value on {100 * report.loose:.0f} % of it"
    if loss is None:
        return share
    return f"{share}: {_named(module, loss.instruction)} makes relative differences {loss.gain:.2g} times larger"


def _named(module: Module, instruction: Instruction) -> str:
    span = module.span(instruction)
    place = "" if span is None else f" (line {span.line})"
    return f"{instruction.opcode} {instruction.name}{place}"


def _plain(expected: Array, is_free: bool) -> str | None:
    """Why an output's own values make its agreement weak; None if they do not."""
    if not expected.size:
        return None
    if is_free:
        return "it does not depend on the inputs"
    if is_floating(expected.dtype) and bool(np.isnan(real_parts(expected)).all()):
        return "all elements are NaN" if expected.size > 1 else "it is NaN"
    if expected.size > 1 and bool((expected.reshape(-1) == expected.reshape(-1)[0]).all()):
        return f"all elements are {expected.reshape(-1)[0]}"
    return None


def unread(module: Module) -> frozenset[int]:
    """The outputs of the entry that do not depend on its inputs; none if it has no inputs. Each result of a called
    computation counts as reading every operand."""
    entry = module.entry
    if not any(leaf.is_array and leaf.element_count for p in entry.parameters for leaf in p.shape.leaves()):
        return frozenset()
    parts = results_of(entry)
    outputs: set[int] = set()
    number = 0
    for part in parts:
        count = sum(1 for leaf in part.shape.leaves() if leaf.is_array)
        if not _reads(part):
            outputs.update(range(number, number + count))
        number += count
    return frozenset(outputs)


def _reads(instruction: Instruction) -> bool:
    """Whether an instruction depends on a parameter, or on another outside source."""
    seen, todo = {instruction}, [instruction]
    while todo:
        i = todo.pop()
        spec = find(i.opcode)
        if i.parameter_number is not None or (spec is not None and (spec.hides_state or spec.evaluate is None)):
            return True
        for operand in i.operands:
            if operand not in seen:
                seen.add(operand)
                todo.append(operand)
    return False
