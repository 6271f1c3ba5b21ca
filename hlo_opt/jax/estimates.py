"""Estimates of the time that XLA's kernels take on a GPU, and that a call takes beside its kernels."""

from __future__ import annotations

import math

from hlo_opt.analysis.properties import GENERIC_TRITON, fusion_backend_kind
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.fusion.state import FusionState
from hlo_opt.fusion.summary import module_summary
from hlo_opt.ir import Attribute, Instruction, Module
from hlo_opt.jax.device import DeviceStep, Steps
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.sets import fused
from hlo_opt.plans.price import Price, together
from hlo_opt.plans.walks import AHEAD

XLA_BY_KIND = {"kLoop": 1.15, "kInput": 1.07, GENERIC_TRITON: 1.10}
"""The time of a kernel that XLA emits over that of ours for the same fusion, by the kind of the fusion. Medians of the
programs of `scripts.bench.kernel_times` on an H200 with jaxlib 0.11.2 in which one kernel does 90 % of XLA's work: each
has its measured time over its price, XLA's by ours. Quartiles: kLoop 1.05 to 1.31 (18 programs), kInput 1.00 to 1.49
(23), Triton 1.02 to 1.29 (10). XLA's times are those of a call less 15 us, which a call of `jax.jit` took beside its
kernels there: two softmaxes timed both ways say 13 and 16."""

CALL_US = 1.4
"""What a call takes beside its kernels: 1.3 us by itself, 1.4 in a chain of three, and 0.4 in one of 16, which XLA
captures (H200, `scripts.gpu_hook`)."""


XLA_AHEAD = 24
"""Elements that a thread of a loop of XLA's loads before it folds the first. For loops over 48 elements its compiler
makes 24 and 48 loads (PTX of a decoder's step, jaxlib 0.10.2, compute capability 9.0): two such kernels took 1.1 and
1.2 us on an H200, and as kernels of ours are priced at 5.7 and 5.9."""


def xla_us(module: Module, target: DeviceTarget) -> float:
    """Estimated microseconds of XLA's kernels for a module that XLA has fused. Their launches take what ours take."""
    return sum(
        rounds * (price.launch + _by_kind(i) * (_as_xla_does(i, price) - price.launch))
        for i, price, rounds in _launched(module, target)
    )


def least_us(module: Module, target: DeviceTarget) -> float:
    """Microseconds that a call of ours for a module that XLA has fused takes at least: a launch, or the kernel that is
    there, if it takes little more than that."""
    kernels = _launched(module, target)
    is_small = len(kernels) == 1 and kernels[0][1].is_small and kernels[0][2] == 1
    return CALL_US + (kernels[0][1].us if is_small else target.kernel_launch_us)


def _launched(module: Module, target: DeviceTarget) -> list[tuple[Instruction, Price, int]]:
    """The kernels of a module, their prices by our plans, and how often each is launched."""
    state = FusionState(module, target)
    launched = module_summary(module, target, state=state).launched
    instructions = {(c.name, i.name): i for c in module.computations for i in c.instructions}
    members = [(instructions[k.computation, k.instruction], k.rounds) for k in launched]
    return [(i, state.prices.of(i), rounds) for i, rounds in members]


def _as_xla_does(i: Instruction, price: Price) -> float:
    """The price of a kernel without what its accesses take between L2 and multiprocessors, and without most of the
    waiting for the elements that a thread folds. XLA reads neighbouring elements in one access where our plan for the
    same fusion may not: the last of every 16 cumulative sums took it 10.7 us on an H200, and ours is priced at 35."""
    parts = (price.memory, price.instructions, price.slow, price.way)
    unrolled = (price.memory, price.instructions, price.slow, price.way * _waits(i))
    return price.us - together((*parts, price.cache)) + together(unrolled)


def _waits(i: Instruction) -> float:
    """How often a thread of a loop of XLA's waits for elements that it folds, for each wait of ours."""
    body = fused(i)
    if body is None or _kind(i) != "kLoop":
        return 1.0
    longest = max(_folded(o) for o in body.instructions)
    return math.ceil(longest / XLA_AHEAD) / math.ceil(longest / AHEAD)


def _folded(i: Instruction) -> int:
    """Elements that are folded for an element of the result; 1 for other operations."""
    spec = find(i.opcode)
    if spec is None or spec.kind is not OpKind.REDUCTION:
        return 1
    results = next(i.shape.leaves()).element_count
    return max(1, i.operands[0].shape.element_count // max(1, results))


def call_us(steps: Steps, target: DeviceTarget) -> float:
    """Estimated microseconds of a call beside its kernels: its start, copies, and memory that is cleared."""
    total = CALL_US
    words, at = steps.words, 0
    while at < len(words):
        match words[at]:
            case DeviceStep.LAUNCH:
                at += 3 + 2 * int(words[at + 2])
            case DeviceStep.COPY:
                total += target.kernel_launch_us + 2e6 * float(words[at + 5]) / target.copied_per_second
                at += 6
            case _:
                total += target.kernel_launch_us
                at += 4
    return total


def _by_kind(i: Instruction) -> float:
    return XLA_BY_KIND.get(_kind(i), 1.0)


def _kind(i: Instruction) -> str:
    kind = i.attributes.get("kind")
    return fusion_backend_kind(i) or (kind.text if isinstance(kind, Attribute) else "")
