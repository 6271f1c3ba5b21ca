"""Estimates that people and passes ask for: a kernel, a producer with its consumers fused and unfused."""

from __future__ import annotations

from hlo_opt.analysis.targets import DEFAULT_TARGET, DeviceTarget
from hlo_opt.analysis.targets import target as find_target
from hlo_opt.analysis.xla.performance import Priced, fused_estimate
from hlo_opt.analysis.xla.timing import KernelEstimate
from hlo_opt.diag import UsageError, nearest
from hlo_opt.ir import Instruction, Module

MODELS = ("xla",)

__all__ = ["MODELS", "KernelEstimate", "estimate", "estimate_fusion", "estimate_instruction"]


def estimate_instruction(instruction: Instruction, target: DeviceTarget) -> KernelEstimate:
    """What one execution of an instruction (a plain one or a fusion) costs as a kernel of its own, without the launch."""
    return Priced(instruction, target).estimate


def estimate_fusion(producer: Priced, consumers: list[Priced]) -> tuple[float, float, float, float]:
    """Microseconds unfused and fused, bytes unfused and fused, of a producer and all its consumers; launches included."""
    launch = producer.target.kernel_launch_us
    fused = [fused_estimate(producer, c) for c in consumers]
    us_unfused = launch * (len(consumers) + 1) + producer.estimate.us + sum(c.estimate.us for c in consumers)
    us_fused = launch * len(consumers) + sum(f.us for f in fused)
    bytes_unfused = producer.estimate.bytes + sum(c.estimate.bytes for c in consumers)
    return us_unfused, us_fused, bytes_unfused, sum(f.bytes for f in fused)


def estimate(
    module: Module, producer: str, consumers: list[str], target: str = DEFAULT_TARGET, model: str = "xla"
) -> dict[str, float]:
    """Microseconds of a producer and its consumers, as `us_fused` and `us_unfused`, and `bytes_saved` by fusing it into all of them.

    Names are instruction names, with or without `%`; the consumers must use the producer. Raises UsageError for an unknown name, target or model.
    """
    if model not in MODELS:
        close = nearest(model, MODELS)
        raise UsageError(f"there is no cost model {model!r}", hint=f"did you mean {close}?" if close else "known: xla")
    device = find_target(target)
    by_name = {i.name: i for c in module.computations for i in c.instructions}

    def find(name: str) -> Instruction:
        plain = name.lstrip("%")
        if plain not in by_name:
            close = nearest(plain, by_name)
            raise UsageError(f"there is no instruction {plain!r}", hint=f"did you mean {close}?" if close else None)
        return by_name[plain]

    above = find(producer)
    below = [find(c) for c in consumers]
    for consumer in below:
        if above not in consumer.operands:
            raise UsageError(f"{consumer.name} does not use {above.name}")
    priced = Priced(above, device)
    us_unfused, us_fused, bytes_unfused, bytes_fused = estimate_fusion(priced, [Priced(c, device) for c in below])
    return {"us_fused": us_fused, "us_unfused": us_unfused, "bytes_saved": bytes_unfused - bytes_fused}
