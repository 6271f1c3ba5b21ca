"""What was decided about an edge of the graph, with everything an explanation needs; and what was found out about
kernels of a structure on the way.

The latter is shared by the passes, and the pipelines, of one run, for layers repeat and pipelines try the same pairs.
It holds for one device and one set of rules that are switched off.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import overload

from hlo_opt.analysis.graph.structure import Structures
from hlo_opt.analysis.xla.tiled_model import TileSizes
from hlo_opt.analysis.xla.timing import KernelEstimate
from hlo_opt.diag import Reason
from hlo_opt.ops.emission import XlaEmitter
from hlo_opt.plans.groups import Group, Placed
from hlo_opt.plans.price import Price
from hlo_opt.plans.sketch import Sketch


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """Microseconds and bytes of a producer and its consumer, launched apart and as one kernel. `kept`: others read the
    producer, too; it is launched for them either way, and the fused numbers include that."""

    us_unfused: float
    us_fused: float
    bytes_unfused: float
    bytes_fused: float
    kept: bool = False

    @property
    def us_saved(self) -> float:
        return self.us_unfused - self.us_fused

    @property
    def bytes_saved(self) -> float:
        return self.bytes_unfused - self.bytes_fused


@dataclass(eq=False)
class Pricing:
    """The cost of an edge, or the reason why both ends cannot be one kernel. Both are computed when they are first
    asked for, so the module must not have changed since this object was created. `find_refusal` computes the reason
    alone, without a price; None: `find` does that, too."""

    find: Callable[[], CostEstimate | Reason | None] = lambda: None
    find_refusal: Callable[[], Reason | None] | None = None

    @cached_property
    def result(self) -> CostEstimate | Reason | None:
        """The cost of joining, or the reason why there is none; None for members of one kernel of which one, by
        itself, launches nothing. A caller that has joined both ends may set it."""
        return self.find()

    @property
    def refusal(self) -> Reason | None:
        """Why no kernel can be both ends; None where one can."""
        if self.find_refusal is not None and "result" not in self.__dict__:
            return self._refusal
        result = self.result
        return result if isinstance(result, Reason) else None

    @cached_property
    def _refusal(self) -> Reason | None:
        assert self.find_refusal is not None
        return self.find_refusal()


@dataclass(frozen=True)
class FusionDecision:
    """One edge producer -> consumer, or one pair of siblings.

    `reasons` is empty exactly when the edge was fused; otherwise it holds every reason that applies, not only the
    first. `rule` names the pass and check that spoke (several where passes of several kinds did), `by_pass` what each
    of them has against the edge. `relation` is `operand` where the consumer reads the producer, `sibling` where neither
    reads the other and both could be one kernel, `across` where what the consumer reads comes through a loop, a branch
    or a call. Names are those of the input; `producer_kernel` and `consumer_kernel` are the instructions of the result
    that launch them. `by_kernels` says that these are needed to mean the edge: others have ends of the same names. The
    source lines are `file:line` of the Python code, empty when the dump does not say.
    """

    producer: str
    consumer: str
    computation: str
    producer_opcode: str
    consumer_opcode: str
    rule: str
    reasons: tuple[Reason, ...] = ()
    pricing: Pricing = field(default_factory=Pricing, repr=False, compare=False)
    producer_source: str = ""
    consumer_source: str = ""
    producer_kernel: str = ""
    consumer_kernel: str = ""
    relation: str = "operand"
    by_pass: tuple[tuple[Reason, ...], ...] = field(default=(), repr=False, compare=False)
    by_kernels: bool = False

    @property
    def fused(self) -> bool:
        return not self.reasons

    @property
    def link(self) -> str:
        """The word or sign between both ends in reports."""
        return "and" if self.relation == "sibling" else "->"

    @property
    def ends(self) -> str:
        """Both ends, as reports name them."""
        ends = f"{self.producer} {self.link} {self.consumer}"
        return f"{ends} ({self.producer_kernel} {self.link} {self.consumer_kernel})" if self.by_kernels else ends

    @property
    def edge(self) -> tuple[str, str]:
        """The names of both ends that mean no other edge."""
        if self.by_kernels:
            return self.producer_kernel, self.consumer_kernel
        return self.producer, self.consumer

    @property
    def force(self) -> str:
        """What `--force` takes to join both ends."""
        return ":".join(self.edge)

    @property
    def cause(self) -> tuple[Reason, ...]:
        """What decides, one reason of each code: all that the pass with least against the edge has against it, for with
        these switched off it fuses both. Where there can be no one kernel, the reason for that comes first."""
        causes = [
            tuple({r.code: r for r in reversed(reasons)}.values())[::-1] for reasons in self.by_pass or (self.reasons,)
        ]
        if not self.reasons or self.unpriced is None:
            return min(causes, key=len)
        first = self.reasons[:1]
        causes = [reasons for reasons in causes if any(r.code == first[0].code for r in reasons)]
        left = {r.code for r in self.reasons[1:]} - {first[0].code}
        return (*first, *(r for r in min(causes, key=len, default=first) if r.code in left))

    @property
    def cost(self) -> CostEstimate | None:
        """What the edge costs; None where there can be no one kernel."""
        result = self.pricing.result
        return None if isinstance(result, Reason) else result

    @property
    def unpriced(self) -> Reason | None:
        """Why there can be no one kernel; None where there can be."""
        return self.pricing.refusal


class Decisions(Sequence[FusionDecision]):
    """The decisions on a run, found out when they are first looked at: who wants the module alone does not wait for
    them. The module must then be as the run left it."""

    def __init__(self, find: Callable[[], list[FusionDecision]]) -> None:
        self._find = find

    @cached_property
    def _decisions(self) -> list[FusionDecision]:
        decisions = self._find()
        del self._find  # and what it knows
        return decisions

    @overload
    def __getitem__(self, index: int) -> FusionDecision: ...
    @overload
    def __getitem__(self, index: slice) -> list[FusionDecision]: ...
    def __getitem__(self, index: int | slice) -> FusionDecision | list[FusionDecision]:
        return self._decisions[index]

    def __len__(self) -> int:
        return len(self._decisions)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (Decisions, list)) and self._decisions == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._decisions)


@dataclass(eq=False)
class ByStructure:
    """Tables by the numbers of `structures`.

    plans      what is asked of those of kernels, by all that one holds
    groups     outputs of kernels that share work, by all that they need; None where they are planned with all others
    grouped    the groups of a kernel, by its structure and by which operands are the same value; None where it is
               planned as a whole
    traits     what the members of a fusion add up to
    sketches   the same by structure
    prices     of kernels, as we launch them
    alone      estimates of kernels, as XLA launches and prices them
    estimates  the same of two kernels as one
    forms      the emitter that XLA would choose for a kernel, and the opcode of its hero
    tilings    the best tiles of two kernels as one where either is tiled, and the estimate
    costs      of edges between kernels, as we launch them
    verdicts   whether a policy allows an edge
    code_sizes      operations that a kernel emits
    copies_emitted  how often a consumer emits a producer that it takes in
    merges     microseconds of a fusion and the users that it may be merged into, apart and merged
    """

    structures: Structures = field(default_factory=Structures)
    plans: dict[bytes, Sketch] = field(default_factory=dict)
    groups: dict[bytes, Group | None] = field(default_factory=dict)
    grouped: dict[tuple[int, tuple[int, ...]], tuple[Placed, ...] | None] = field(default_factory=dict)
    traits: dict[int, object] = field(default_factory=dict)
    sketches: dict[int, Sketch] = field(default_factory=dict)
    prices: dict[int, Price] = field(default_factory=dict)
    alone: dict[int, KernelEstimate] = field(default_factory=dict)
    estimates: dict[int, KernelEstimate] = field(default_factory=dict)
    forms: dict[int, tuple[XlaEmitter, str]] = field(default_factory=dict)
    tilings: dict[int, tuple[TileSizes | None, KernelEstimate]] = field(default_factory=dict)
    costs: dict[Hashable, CostEstimate] = field(default_factory=dict)
    verdicts: dict[Hashable, bool] = field(default_factory=dict)
    code_sizes: dict[int, int] = field(default_factory=dict)
    copies_emitted: dict[int, int] = field(default_factory=dict)
    merges: dict[Hashable, tuple[float, float]] = field(default_factory=dict)
