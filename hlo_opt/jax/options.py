"""What a user asks of the hook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hlo_opt.jax import records
from hlo_opt.jax.records import Chosen, Verdict

WIN = 0.9
"""Limit of the ratio of our time to XLA's, unless the user accepts any saving: then ours must not be slower."""

EVEN = 1.02
"""Ratio of times up to which one is not slower: series of one executable differ by as much."""


@dataclass(frozen=True)
class HookOptions:
    """The user's options: see `hlo_opt.jax.install`. `seconds` is the limit of the time for a module, by the clock."""

    preset: str = "default"
    min_saving_us: float = 1.0
    seconds: float = 60.0

    def key(self, module: str, backend: str) -> str:
        """The cache key of the decision about a module."""
        return records.key_of("module", module, self.preset, str(self.min_saving_us), backend)

    def takes(self, verdict: Verdict, rounds: int = 1, win: float = WIN) -> bool:
        """Whether a region that runs `rounds` times in a run of the module is replaced. `win` is the limit of the ratio
        of our time to XLA's, unless any saving is accepted."""
        if self.min_saving_us <= 0:
            return verdict.ours_us <= EVEN * verdict.xla_us
        saved = (verdict.xla_us - verdict.ours_us) * rounds
        return verdict.ours_us <= win * verdict.xla_us and saved >= self.min_saving_us

    def rule(self, verdict: Verdict, rounds: int = 1, win: float = WIN) -> str:
        """What a region would have to do that `takes` refuses."""
        if self.min_saving_us <= 0:
            return f"they may take {100 * (EVEN - 1):.0f} % more at most"
        if verdict.ours_us > win * verdict.xla_us:
            return f"they must take {100 * (1 - win):.0f} % less"
        return f"they must save min_saving_us={self.min_saving_us:g}"

    def is_sure(self, verdict: Verdict, rounds: int = 1, win: float = WIN) -> bool:
        """Whether `takes` would find the same in another series."""
        return len({self.takes(replace(verdict, ours_us=us), rounds, win) for us in verdict.possible_us}) == 1

    def keeps(self, chosen: Sequence[Chosen], ours_us: float, xla_us: float) -> bool:
        """Whether a whole module with these regions wins by a tenth, or saves half of the sum of its regions. Not all
        of the sum, because XLA runs some regions in parallel, and each was timed with the overhead of a module call. If
        the user accepts any saving, the module must not be slower."""
        if self.min_saving_us <= 0:
            return ours_us <= EVEN * xla_us
        promised = sum(c.xla_us - c.ours_us for c in chosen)
        return xla_us - ours_us >= min(promised / 2, (1 - WIN) * xla_us)
