"""What was found out about kernels of a structure: shared by the passes, and the pipelines, of one run, for layers repeat and pipelines try the same pairs.

All of it holds for one device and one set of rules that are switched off.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from hlo_opt.analysis.graph.structure import Structures
from hlo_opt.analysis.xla.timing import KernelEstimate
from hlo_opt.fusion.decision import CostEstimate
from hlo_opt.plans.sketch import Sketch


@dataclass(eq=False)
class ByStructure:
    """Tables by the numbers of `structures`.

    plans      of candidates, by all that a kernel holds, in its order
    made       of fusions that were made, by what they hold
    traits     what the members of a fusion add up to
    sketches   the same by structure
    alone      estimates of kernels, as XLA launches and prices them
    estimates  the same of two kernels as one
    costs      of edges between kernels, as we launch them
    verdicts   whether a policy allows an edge
    merges     microseconds of a fusion and the users that it may be merged into, apart and merged
    """

    structures: Structures = field(default_factory=Structures)
    plans: dict[bytes, Sketch] = field(default_factory=dict)
    made: dict[bytes, Sketch] = field(default_factory=dict)
    traits: dict[int, object] = field(default_factory=dict)
    sketches: dict[int, Sketch] = field(default_factory=dict)
    alone: dict[int, KernelEstimate] = field(default_factory=dict)
    estimates: dict[int, KernelEstimate] = field(default_factory=dict)
    costs: dict[Hashable, CostEstimate | None] = field(default_factory=dict)
    verdicts: dict[Hashable, bool] = field(default_factory=dict)
    merges: dict[Hashable, tuple[float, float]] = field(default_factory=dict)
