"""What was decided about an edge of the graph, with everything an explanation needs."""

from __future__ import annotations

from dataclasses import dataclass

from hlo_opt.diag import Reason


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """Microseconds and bytes of a producer and its consumer, launched apart and as one kernel. `kept`: others read the producer, too; it is launched for them
    either way, and the fused numbers include that."""

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


@dataclass(frozen=True, slots=True)
class FusionDecision:
    """One edge producer -> consumer, or one pair of siblings.

    `reasons` is empty exactly when the edge was fused; otherwise it holds every reason that applies, not only the first. `rule` names the pass and check that
    spoke (several where passes of several kinds did). `relation` is `operand` where the consumer reads the producer, `sibling` where neither reads the other and both could be one kernel, `across` where what the consumer reads comes through a loop, a branch or a call. Names are those of the input; `producer_kernel` and `consumer_kernel` are the instructions of the result that launch them. The source lines are `file:line` of the Python code, empty when the dump does not say.
    """

    producer: str
    consumer: str
    computation: str
    producer_opcode: str
    consumer_opcode: str
    rule: str
    reasons: tuple[Reason, ...] = ()
    cost: CostEstimate | None = None
    producer_source: str = ""
    consumer_source: str = ""
    producer_kernel: str = ""
    consumer_kernel: str = ""
    relation: str = "operand"

    @property
    def fused(self) -> bool:
        return not self.reasons
