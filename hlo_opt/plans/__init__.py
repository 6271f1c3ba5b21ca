"""Plans: for a region, the launch and the segments of a kernel, or the reason why there is none."""

from __future__ import annotations

import hlo_opt.ops  # noqa: F401 - fills the op table
from hlo_opt.plans.choose import lowering_reason, plan
from hlo_opt.plans.plan import Launch, Plan, Region, Segment
from hlo_opt.plans.region import region_of

__all__ = ["Launch", "Plan", "Region", "Segment", "lowering_reason", "plan", "region_of"]
