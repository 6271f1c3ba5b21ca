"""The facts that are kept about a computation until its next edit (`Computation.facts`).

A fact is computed once and read often. `hlo_opt.ir.edit` clears all facts of a computation that it changes; an edit of
a called computation clears nothing in its callers.
"""

from __future__ import annotations

from typing import Final, Literal

Fact = Literal["has-effects", "no-equal-values", "no-dead-values", "snapshot", "post-order"]

HAS_EFFECTS: Final = "has-effects"
"""A bool: whether an instruction of the computation itself has a side effect (`hlo_opt.analysis.properties`)."""

NO_EQUAL_VALUES: Final = "no-equal-values"
"""True: no two values are equal, apart from equal values that must stay (`hlo_opt.passes.cse`)."""

NO_DEAD_VALUES: Final = "no-dead-values"
"""True: each value is used or must stay, and no fusion writes several arrays (`hlo_opt.passes.dce`)."""

SNAPSHOT: Final = "snapshot"
"""A computation: the copy in the last snapshot of the module (`hlo_opt.ir.edit.snapshot`)."""

POST_ORDER: Final = "post-order"
"""A tuple: the instructions in post order (`hlo_opt.ir.walk.post_order`)."""

IN_ORDER: Final = (SNAPSHOT, POST_ORDER)
"""The facts that depend on the order of the instructions."""
