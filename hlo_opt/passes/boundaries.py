"""Edges whose two kernels are on different sides of a loop, a branch or a call, where no pass can reach both."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_opt.analysis.graph.crossings import Crossing, Crossings
from hlo_opt.analysis.graph.loops import trip_count
from hlo_opt.analysis.properties import inside
from hlo_opt.diag import Reason
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.fusion.engine import Engine, reader_names
from hlo_opt.fusion.outline import Origins, original_name
from hlo_opt.ir import Instruction
from hlo_opt.ops.sets import held, looped
from hlo_opt.text.frames import source_location


def edges_across(consumer: Instruction, crossings: Crossings, engine: Engine) -> Iterator[FusionDecision]:
    """The decisions on the edges of a kernel whose producer is on another side of control flow."""
    module = engine.module
    seen: set[tuple[Instruction, Instruction, str, str]] = set()
    for operand in dict.fromkeys(consumer.operands):
        found = crossings.of(operand)
        if not found:
            continue
        through = engine.edge(operand, consumer)
        reader = next(iter(reader_names(through)), through.consumer_name)
        member = member_named(consumer, reader, engine.origins)
        for crossing in found:
            key = (crossing.producer, crossing.control, crossing.way, reader)
            if key in seen:
                continue
            seen.add(key)
            written = _written(crossing)
            name = original_name(written, engine.origins)
            yield FusionDecision(
                producer=name,
                consumer=reader,
                computation=consumer.computation.name,
                producer_opcode=written.opcode,
                consumer_opcode=member.opcode,
                rule="legality",
                reasons=tuple(engine.legal([_reason(crossing, name, reader)])),
                producer_source=source_location(module, written) or source_location(module, crossing.producer),
                consumer_source=source_location(module, member) or source_location(module, consumer),
                producer_kernel=crossing.producer.name,
                consumer_kernel=consumer.name,
                relation="across",
            )


def _reason(crossing: Crossing, producer: str, consumer: str) -> Reason:
    control, size = crossing.control, crossing.shape.byte_size
    ends = {"producer": producer, "consumer": consumer}
    if looped(control) is None:
        return Reason.of("FUS112", **ends, control=control.name, opcode=control.opcode, bytes=size)
    count = trip_count(control)
    rounds = "a number of rounds known at run time only" if count is None else f"{count} rounds"
    return Reason.of("FUS111", **ends, loop=control.name, way=crossing.way, rounds=rounds, bytes=size)


def _written(crossing: Crossing) -> Instruction:
    """What computes the value that goes across: of a kernel with several outputs, the member behind one of them."""
    found, path = crossing.producer, crossing.path
    while (body := inside(found)) is not None:
        found = body.root
        while elements := held(found):
            index, path = (path[0], path[1:]) if path else (0, ())
            found = elements[index]
    return found


def member_named(consumer: Instruction, reader: str, origins: Origins) -> Instruction:
    """The instruction of a name inside the consumer; the consumer itself when it has none of that name."""
    body = inside(consumer)
    members = () if body is None else body.instructions
    return next((m for m in members if origins.get(m, m.name) == reader), consumer)
