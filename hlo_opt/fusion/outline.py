"""Outlining: moving instructions into the computation of a fusion. The only code that makes and grows fusions.

While fusions grow, instructions are appended to computations wherever they end up; `tidy` puts operands before users again.
Source: HloInstruction::FuseInstruction and CreateFusion in xla/hlo/ir/hlo_instructions.cc.
"""

from __future__ import annotations

from collections.abc import Mapping

from hlo_opt.analysis.cluster import cluster_of
from hlo_opt.analysis.heroes import emitter_of
from hlo_opt.ir import Attribute, Called, Computation, Instruction, Module, edit
from hlo_opt.plans import Plan

Origins = dict[Instruction, str]
"""Names in the input of instructions that were copied into fusions under other names."""

KEPT_ON_FUSION = ("metadata", "frontend_attributes", "sharding")
"""Attributes of the root that the fusion carries too."""


def original_name(instruction: Instruction, origins: Origins) -> str:
    """What the instruction was called in the input; for a fusion, what its root was."""
    while instruction.opcode == "fusion" and instruction not in origins:
        instruction = instruction.called_by("calls").root
    return origins.get(instruction, instruction.name)


def start_fusion(consumer: Instruction) -> Instruction:
    """Replace an instruction by a fusion that holds it alone. It keeps its name inside; the fusion is named by `tidy`."""
    computation = consumer.computation
    module = _module(computation)
    body = edit.new_computation(module, "fused_computation")
    operands = list(dict.fromkeys(consumer.operands))
    parameters = {operand: _parameter(body, module, n, operand) for n, operand in enumerate(operands)}
    _move(consumer, body, [parameters[o] for o in consumer.operands], consumer.name, root=True)
    fusion = edit.create(
        computation,
        "fusion",
        "fusion",
        consumer.shape,
        operands,
        {
            "kind": Attribute.of("kLoop"),
            "calls": Called(body),
            **{n: consumer.attributes[n] for n in KEPT_ON_FUSION if n in consumer.attributes},
        },
    )
    edit.redirect_users(consumer, fusion)
    edit.remove(consumer)
    return fusion


def absorb(producer: Instruction, fusion: Instruction, origins: Origins) -> None:
    """Compute the producer inside a fusion that reads it. The producer is removed when nothing else uses it, else it stays and is computed twice.

    A producer that is a fusion itself brings all its instructions.
    """
    body = fusion.called_by("calls")
    module = _module(body)
    body.index_users()
    alone = len(producer.users) == 1 and not producer.is_root
    parameters = body.parameters
    operands = list(fusion.operands)
    places = dict(zip(operands, parameters, strict=True))
    replaced = places[producer]

    def inside(operand: Instruction) -> Instruction:
        if operand not in places:
            places[operand] = _parameter(body, module, len(operands), operand)
            operands.append(operand)
            parameters.append(places[operand])
        return places[operand]

    arguments = [inside(o) for o in producer.operands]
    made = _copy(producer, arguments, body, origins, keep_names=alone)
    edit.redirect_users(replaced, made)
    edit.remove(replaced)
    gone = operands.index(producer)
    del operands[gone], parameters[gone]
    for number, parameter in enumerate(parameters):
        parameter.parameter_number = number
    edit.set_operands(fusion, operands)
    if alone:
        called = producer.called_by("calls") if producer.opcode == "fusion" else None
        edit.remove(producer)
        if called is not None and not _is_called(module, called):
            edit.remove_computation(called)


def _copy(
    producer: Instruction, arguments: list[Instruction], body: Computation, origins: Origins, *, keep_names: bool
) -> Instruction:
    module = _module(body)
    if producer.opcode != "fusion":
        name = producer.name if keep_names else module.unique_name(producer.name)
        made = _move(producer, body, arguments, name)
        if not keep_names or producer in origins:
            origins[made] = origins.get(producer, producer.name)
        return made
    inner = producer.called_by("calls")
    copies: dict[Instruction, Instruction] = {}
    edit.sort(inner)
    for member in inner.instructions:
        if member.parameter_number is not None:
            copies[member] = arguments[member.parameter_number]
        else:
            operands = [copies[o] for o in member.operands]
            copies[member] = (
                _copy(member, operands, body, origins, keep_names=keep_names)
                if member.opcode != "fusion"
                else _nested(member, operands, body)
            )
    return copies[inner.root]


def _nested(member: Instruction, operands: list[Instruction], body: Computation) -> Instruction:
    """A fusion inside a fusion stays one; XLA's own dumps have them."""
    return edit.clone_into(body, member, operands)


def _move(
    instruction: Instruction, body: Computation, operands: list[Instruction], name: str, *, root: bool = False
) -> Instruction:
    made = Instruction(
        name,
        instruction.opcode,
        instruction.shape,
        operands,
        dict(instruction.attributes),
        literal=instruction.literal,
        offset=instruction.offset,
        end=instruction.end,
    )
    return edit.append(body, made, root=root)


def _parameter(body: Computation, module: Module, number: int, operand: Instruction) -> Instruction:
    return edit.create(body, f"param_{number}", "parameter", operand.shape, parameter_number=number)


def _module(computation: Computation) -> Module:
    assert computation.module is not None
    return computation.module


def _is_called(module: Module, body: Computation) -> bool:
    return any(body in i.called() for c in module.computations for i in c.instructions if i.opcode == "fusion")


def undo(fusion: Instruction) -> list[Instruction]:
    """Put what a fusion holds back into its computation. Returns the instructions that are there again."""
    computation = fusion.computation
    body = fusion.called_by("calls")
    edit.sort(body)
    copies: dict[Instruction, Instruction] = {}
    made: list[Instruction] = []
    for member in body.instructions:
        if member.parameter_number is not None:
            copies[member] = fusion.operands[member.parameter_number]
        else:
            copies[member] = _move(member, computation, [copies[o] for o in member.operands], member.name)
            made.append(copies[member])
    edit.redirect_users(fusion, copies[body.root])
    edit.remove(fusion)
    edit.remove_computation(body)
    return made


def tidy(computation: Computation, fusions: Mapping[Instruction, Plan]) -> None:
    """Order the computation and give the new fusions their kinds and names, as XLA's RenameFusions does: kInput where a reduction, transpose or
    scatter shapes the kernel, else kLoop (ChooseFusionKind in xla/service/gpu/gpu_fusible.cc)."""
    edit.sort(computation)
    module = _module(computation)
    for fusion, plan in fusions.items():
        emitter, hero = emitter_of(cluster_of(fusion))
        is_input = emitter in ("reduction", "transpose", "scatter") or "reduction" in plan.kind
        edit.set_attribute(fusion, "kind", Attribute.of("kInput" if is_input else "kLoop"))
        stem = hero.opcode.replace("-", "_")
        fusion.name = module.unique_name(f"{'input' if is_input else 'loop'}_{stem}_fusion")
