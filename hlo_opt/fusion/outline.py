"""Outlining: moving instructions into the computation of a fusion. The only code that makes and grows fusions.

While fusions grow, instructions are appended to computations wherever they end up; `tidy` puts operands before users again.
Source: HloInstruction::FuseInstruction and CreateFusion in xla/hlo/ir/hlo_instructions.cc.
"""

from __future__ import annotations

from collections.abc import Mapping

from hlo_opt.analysis.graph.cluster import cluster_of
from hlo_opt.analysis.properties import inside
from hlo_opt.analysis.xla.heroes import emitter_of
from hlo_opt.ir import Attribute, Called, Computation, Instruction, Module, edit
from hlo_opt.ops.sets import fused
from hlo_opt.plans.sketch import Sketch

Origins = dict[Instruction, str]
"""Names in the input of instructions that were copied into fusions under other names."""

KEPT_ON_FUSION = ("metadata", "frontend_attributes", "sharding")
"""Attributes of the root that the fusion carries too."""


def original_name(instruction: Instruction, origins: Origins) -> str:
    """What the instruction was called in the input; for a fusion, what its root was. A fusion that stands for a library's kernel came under its own name."""
    while instruction not in origins and (body := inside(instruction)) is not None:
        instruction = body.root
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


Moved = dict[Instruction, Instruction]
"""What instructions became in the computation that they were copied to; those that are not in it moved as they are."""


def absorb(producer: Instruction, fusion: Instruction, origins: Origins) -> tuple[Moved, Computation | None]:
    """Compute the producer inside a fusion that reads it. The producer is removed when nothing else uses it, else it stays and is computed twice.

    A producer that is a fusion itself brings all its instructions. Returns what moved, and the computation of a fusion that is removed, for
    `remove_uncalled_of`.
    """
    body = fusion.called_by("calls")
    module = _module(body)
    body.index_users()
    alone = len(producer.users) == 1 and not producer.is_root
    parameters = body.parameters
    operands = list(fusion.operands)
    places = dict(zip(operands, parameters, strict=True))
    replaced = [p for o, p in zip(operands, parameters, strict=True) if o is producer]

    def inside(operand: Instruction) -> Instruction:
        if operand not in places:
            places[operand] = _parameter(body, module, len(operands), operand)
            operands.append(operand)
            parameters.append(places[operand])
        return places[operand]

    arguments = [inside(o) for o in producer.operands]
    moved: Moved = {}
    made = _copy(producer, arguments, body, origins, keep_names=alone, moved=moved)
    for parameter in replaced:
        edit.redirect_users(parameter, made)
        edit.remove(parameter)
        gone = operands.index(producer)
        del operands[gone], parameters[gone]
    for number, parameter in enumerate(parameters):
        parameter.parameter_number = number
    edit.set_operands(fusion, operands)
    if not alone:
        return moved, None
    called = fused(producer)
    edit.remove(producer)
    return moved, called


def take_in(producer: Instruction, arguments: list[Instruction], body: Computation, origins: Origins) -> Instruction:
    """Compute a producer, which is about to be removed, in a fusion's computation. Returns its value there."""
    return _copy(producer, arguments, body, origins, keep_names=True, moved={})


def _copy(
    producer: Instruction,
    arguments: list[Instruction],
    body: Computation,
    origins: Origins,
    *,
    keep_names: bool,
    moved: Moved,
) -> Instruction:
    """Returns the producer's value in the computation. What is removed anyway (`keep_names`) need not be copied; the producer itself is, for its users
    still have to be told."""
    inner = fused(producer)
    if inner is None:
        made = moved[producer] = _copied(producer, arguments, body, origins, keep_names=keep_names)
        return made
    if keep_names:
        return edit.splice(inner, body, arguments)
    edit.sort(inner)
    places: dict[Instruction, Instruction] = {}
    for member in inner.instructions:
        if member.parameter_number is not None:
            places[member] = arguments[member.parameter_number]
            continue
        operands = [places[o] for o in member.operands]
        if fused(member) is not None:
            made = _nested(member, operands, body)
        else:
            made = _copied(member, operands, body, origins, keep_names=False)
        places[member] = moved[member] = made
    return places[inner.root]


def _copied(
    instruction: Instruction, operands: list[Instruction], body: Computation, origins: Origins, *, keep_names: bool
) -> Instruction:
    name = instruction.name if keep_names else _module(body).unique_name(instruction.name)
    made = _move(instruction, body, operands, name)
    if not keep_names or instruction in origins:
        origins[made] = origins.get(instruction, instruction.name)
    return made


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


def parameter_for(body: Computation, number: int, operand: Instruction) -> Instruction:
    """A new parameter of a fusion's computation."""
    return _parameter(body, _module(body), number, operand)


def _module(computation: Computation) -> Module:
    assert computation.module is not None
    return computation.module


def remove_uncalled_of(module: Module, candidates: list[Computation]) -> None:
    """Remove those of the computations that nothing calls any more."""
    if not candidates:
        return
    called = {body for c in module.computations for body in c.called}
    for body in dict.fromkeys(candidates):
        if body not in called and body.module is module:
            edit.remove_computation(body)


def become_like(fusion: Instruction, triton: Instruction) -> None:
    """A fusion that takes a Triton fusion becomes one itself: kind and backend config are what its kernel goes by."""
    for name in ("kind", "backend_config"):
        edit.set_attribute(fusion, name, triton.attributes[name])


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


def tidy(computation: Computation, fusions: Mapping[Instruction, Sketch]) -> None:
    """Order the computation and give the new fusions their kinds and names, as XLA's RenameFusions does: kInput where a reduction, transpose or
    scatter shapes the kernel, else kLoop (ChooseFusionKind in xla/service/gpu/gpu_fusible.cc)."""
    edit.sort(computation)
    module = _module(computation)
    for fusion, plan in fusions.items():
        if fusion.word("kind") == "kCustom":
            continue
        emitter, hero = emitter_of(cluster_of(fusion))
        is_input = emitter in ("reduction", "transpose", "scatter") or "reduction" in plan.kind
        edit.set_attribute(fusion, "kind", Attribute.of("kInput" if is_input else "kLoop"))
        stem = hero.opcode.replace("-", "_")
        fusion.name = module.unique_name(f"{'input' if is_input else 'loop'}_{stem}_fusion")
