"""The smallest modules that exercise each opcode at each element type, and their comparison with XLA:CPU.

`families` holds, by name, the opcodes that one module of a type judges together.
"""

from __future__ import annotations

from hlo_opt.ops.coverage import evaluates
from xla_cases import control, devices, elementwise, folds, movement, products
from xla_cases.case import MAKERS, Case
from xla_cases.doubts import BOUNDS, DOUBTS, LACKS, Lack, lack_of
from xla_cases.judge import Difference, Verdict, compare
from xla_cases.values import EVERYTHING

__all__ = [
    "BOUNDS",
    "DOUBTS",
    "EVERYTHING",
    "FAMILIES",
    "LACKS",
    "MAKERS",
    "Case",
    "Difference",
    "Lack",
    "Verdict",
    "cases_of",
    "compare",
    "lack_of",
]

FAMILIES: dict[str, list[str]] = {
    module.__name__.rpartition(".")[2]: sorted(o for o, make in MAKERS.items() if make.__module__ == module.__name__)
    for module in (control, devices, elementwise, folds, movement, products)
}
"""The opcodes of each file of cases."""


def cases_of(opcode: str, element_type: str) -> list[Case]:
    """The cases of an opcode at a type that the reference evaluates and XLA:CPU can run; else none."""
    if not evaluates(opcode, element_type) or lack_of(opcode, element_type) is not None:
        return []
    return list(MAKERS[opcode](opcode, element_type))
