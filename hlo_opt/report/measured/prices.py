"""What refusals cost by measured times: the estimated price of an edge, times the measured over the estimated time of
the kernels that hold its ends."""

from __future__ import annotations

from hlo_opt.diag import UsageError
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.passes import ExplainReport
from hlo_opt.passes.run import first_by_kernels
from hlo_opt.report.holding import members_of_kernels
from hlo_opt.report.measured.join import Joined, join
from hlo_opt.report.measured.read import read_profile
from hlo_opt.report.page import Page, Word, count, counted, microseconds
from hlo_opt.report.sentences import EdgePrices, fit

NOT_JOINED = "HLO731"
NAMES_TOLD = 6
"""The most names that are shown of kernels without a counterpart."""

FIRST = 3
"""Refusals whose cost is shown as one sum."""

WHICH = (
    "feed the module that ran: `compiled.as_text()` of jax, or the `*after_optimizations.txt` that "
    "XLA_FLAGS=--xla_dump_to=DIR writes"
)


class MeasuredPrices(EdgePrices):
    """Prices of the edges of a report by a profile of the module that it was given."""

    def __init__(self, report: ExplainReport, joined: Joined) -> None:
        super().__init__(report)
        self.joined = joined
        self.total = joined.total
        self.estimated = {one.instruction: one.est_us * one.rounds for one in report.before.launched}
        self.factors = self._factors()
        self.after = sum(
            one.est_us * one.rounds * self.factors[one.instruction]
            for one in report.after.launched
            if one.instruction in self.factors
        )

    @classmethod
    def read(cls, report: ExplainReport, name: str) -> MeasuredPrices:
        """By the profile in a file. Raises UsageError where it cannot be read, or holds none of the module's
        kernels."""
        joined = join(report.outcome.original, report.before, read_profile(name))
        if not joined.microseconds:
            modules = f"; the profile is of {', '.join(joined.modules[:NAMES_TOLD])}" if joined.modules else ""
            message = (
                f"names none of the {counted(joined.kernels, 'kernel')} of {report.outcome.original.name}{modules}"
            )
            raise UsageError(message, code=NOT_JOINED, filename=name, hint=WHICH)
        return cls(report, joined)

    def _factors(self) -> dict[str, float]:
        """For each kernel of the result: the measured over the estimated time of the kernels that its instructions were
        in."""
        origins = self.report.outcome.context.origins
        holders = {m.name: k.name for k, m in members_of_kernels(self.report.outcome.original)}
        ends: dict[str, set[str]] = {}
        for kernel, member in members_of_kernels(self.report.outcome.module):
            holder = holders.get(origins.get(member, member.name))
            if holder is not None and holder in self.joined.microseconds:
                ends.setdefault(kernel.name, set()).add(holder)
        spent = self.joined.microseconds
        return {
            name: sum(spent[k] for k in kernels) / (sum(self.estimated[k] for k in kernels) or 1.0)
            for name, kernels in ends.items()
        }

    def saved(self, decision: FusionDecision) -> float | None:
        estimated = super().saved(decision)
        ends = [k for k in (decision.producer_kernel, decision.consumer_kernel) if k in self.factors]
        if estimated is None or not ends:
            return None
        weights = {k: self.weights.get(k, 0.0) for k in ends}
        whole = sum(weights.values())
        factor = sum(self.factors[k] * w for k, w in weights.items()) / whole if whole else self.factors[ends[0]]
        return estimated * factor

    def dearest(self) -> list[FusionDecision]:
        """The refused edges that cost most by measured times, one for each pair of kernels."""
        priced = [(d, saved) for d in self.report.refused if (saved := self.saved(d)) is not None]
        return first_by_kernels(d for d, _ in sorted(priced, key=lambda p: -p[1]))

    def page(self) -> Page:
        """How much of the module was measured, what did not join, and what the first refusals cost together."""
        joined, page = self.joined, Page()
        named = f"{len(joined.microseconds)} of {counted(joined.kernels, 'kernel')} joined by name"
        share = f"{named} ({100 * joined.share:.0f} %)"
        runs = f"{counted(joined.executions, 'execution')} of {microseconds(joined.total)}"
        page.add(Word("measured", "bold"), f": {share}, {runs}; as fused here about {microseconds(self.after)}")
        for title, names in (
            ("not in the profile", joined.missing),
            ("not in the module", [f"{n} ({microseconds(us)})" for n, us in joined.strange.items()]),
        ):
            if names:
                more = f" and {count(len(names) - NAMES_TOLD)} more" if len(names) > NAMES_TOLD else ""
                page.add(fit(f"  {count(len(names))} {title}: {', '.join(names[:NAMES_TOLD])}{more}"))
        dearest = [d for d in self.dearest()[:FIRST] if (self.saved(d) or 0.0) > 0]
        first = [self.saved(d) or 0.0 for d in dearest]
        if first:
            these = ("this refusal costs", "these two refusals cost", "these three refusals cost")[len(first) - 1]
            edges = ", ".join(d.ends for d in dearest)
            page.add(fit(f"  {these} {100 * sum(first) / self.total:.1f} % of the step: {edges}"))
        return page

    def json(self) -> dict[str, object]:
        """The same for programs."""
        return {
            "kernels": self.joined.kernels,
            "joined": len(self.joined.microseconds),
            "executions": self.joined.executions,
            "us": round(self.total, 3),
            "us_as_fused": round(self.after, 3),
            "not_in_profile": self.joined.missing,
            "not_in_module": {name: round(us, 3) for name, us in self.joined.strange.items()},
            "dearest": [
                {
                    "producer": d.producer,
                    "consumer": d.consumer,
                    "us_saved": round(self.saved(d) or 0.0, 3),
                    "cause": [r.code for r in d.cause],
                }
                for d in self.dearest()
            ],
        }
