"""How many bytes a run will hold at once, told before anything is allocated."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from hlo_opt.evaluate.footprint import bytes_of, footprints
from hlo_opt.evaluate.program import Program, compile_computation, error
from hlo_opt.ir import Computation, Instruction, Module

SHARE = 0.8
"""The part of the machine's memory that a run may take by default."""

_DRAWN = 16
"""Bytes per element while random inputs are drawn: in f64, and once more on the way to their type."""


@dataclass(frozen=True, slots=True)
class Peak:
    """The most bytes that are alive at once, and at which instruction; None where nothing is made."""

    bytes: int
    at: Instruction | None


def default_limit() -> int | None:
    """80 % of the machine's memory in bytes; None where the system does not tell."""
    try:
        return int(SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return None


def sized(number: int) -> str:
    """Bytes for people: `3.5 GiB (3758096384 bytes)`."""
    value, unit = float(number), 0
    names = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
    while value >= 1024 and unit < len(names) - 1:
        value, unit = value / 1024, unit + 1
    return f"{number} bytes" if not unit else f"{value:.3g} {names[unit]} ({number} bytes)"


def inputs_bytes(module: Module) -> int:
    """Bytes of the entry's parameters."""
    return sum(bytes_of(p.shape) for p in module.entry.parameters)


def drawing_bytes(module: Module) -> int:
    """The most bytes alive while random inputs are drawn one after another."""
    done, most = 0, 0
    for parameter in module.entry.parameters:
        for leaf in parameter.shape.leaves():
            if leaf.is_array:
                most = max(most, done + _DRAWN * max(0, leaf.element_count) + bytes_of(leaf))
                done += bytes_of(leaf)
    return most


def peak_of(computation: Computation, program_of: Callable[[Computation], Program]) -> Peak:
    """What a run of the computation holds on top of its arguments; its results count twice at the end, where the caller gets copies."""
    found = footprints(computation, program_of)[computation]
    copied = sum(found.sizes.values()) + bytes_of(computation.root.shape)
    if copied > found.peak:
        return Peak(copied, computation.root)
    return Peak(found.peak, found.at)


def check_memory(
    module: Module,
    limit: int | None,
    *,
    devices: int = 1,
    inputs: int | None = None,
    beside: int = 0,
    drawn: bool = False,
    program_of: Callable[[Computation], Program] = compile_computation,
) -> None:
    """Raises EvaluationError (HLO402) where a run of the module would hold more bytes than the limit (None: any number). Nothing is allocated here.

    devices  how many devices run it at the same time, each with values of its own
    inputs   bytes of all inputs, of all devices; None: those of the parameters, for each device
    beside   bytes that the caller holds meanwhile
    program_of  the compiled form of a computation, for those who have it
    drawn    whether the inputs will be drawn at random, which takes more than they do
    """
    if limit is None:
        return
    given = devices * inputs_bytes(module) if inputs is None else inputs
    peak = peak_of(module.entry, program_of)
    total, at = given + beside + devices * peak.bytes, peak.at or module.entry.root
    refuse_more(Peak(total, at), limit, devices=devices, inputs=given)
    if drawn:
        check_drawing(module, limit, devices=devices)


def refuse_more(peak: Peak, limit: int, *, devices: int = 1, inputs: int | None = None) -> None:
    """Raises EvaluationError (HLO402) for a run, on so many devices, whose peak is above the limit. `inputs` says how many of the bytes are inputs."""
    if peak.bytes <= limit:
        return
    times = f" on {devices} devices" if devices > 1 else ""
    given = "" if inputs is None else f", {sized(inputs)} of them inputs"
    assert peak.at is not None
    raise error(
        peak.at,
        f"the run would hold {sized(peak.bytes)}{times} here{given}; the limit is {sized(limit)}",
        code="HLO402",
        hint="--memory-limit SIZE (in Python memory_limit) sets another limit",
    )


def check_drawing(module: Module, limit: int | None, *, devices: int = 1) -> None:
    """Raises EvaluationError (HLO402) where drawing random inputs for all devices would take more bytes than the limit (None: any number)."""
    most = (devices - 1) * inputs_bytes(module) + drawing_bytes(module)
    if limit is not None and most > limit:
        times = f" for {devices} devices" if devices > 1 else ""
        raise error(
            module.entry.parameters[0],
            f"drawing the inputs{times} would take {sized(most)}; the limit is {sized(limit)}",
            code="HLO402",
            hint="--memory-limit SIZE (in Python memory_limit) sets another limit",
        )
