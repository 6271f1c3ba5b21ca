"""Transfers to and from the host and other devices: infeed, outfeed, send, recv. They are read, checked and scheduled, not computed.

Shapes: xla/hlo/ir/hlo_instructions.cc (HloInfeedInstruction, HloSendInstruction, HloRecvInstruction); attributes: xla/hlo/parser/hlo_parser.cc.
"""

from __future__ import annotations

from collections.abc import Callable

from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.element_type import TOKEN, U32
from hlo_opt.ops import omitted
from hlo_opt.ops.shapes import need, no_flops
from hlo_opt.ops.spec import EVERYTHING, Arity, OpKind, OpSpec, ShapeError, register

_TOKEN, _CONTEXT = Shape(TOKEN), Shape(U32)


def _token(instruction: Instruction, number: int) -> None:
    shape = instruction.operands[number].shape
    need(shape.element_type == TOKEN, f"operand {number} is no token but {shape}")


def infer_infeed(instruction: Instruction) -> Shape:
    """(data, token); what the data are is for the declaration to say."""
    _token(instruction, 0)
    elements = instruction.shape.elements
    if not elements:
        raise ShapeError("an infeed gives a tuple of data and a token")
    return Shape.tuple_of(elements[0].without_layout(), _TOKEN)


def infer_outfeed(instruction: Instruction) -> Shape:
    _token(instruction, 1)
    return _TOKEN


def infer_send(instruction: Instruction) -> Shape:
    """(data, context, token)"""
    _token(instruction, 1)
    return Shape.tuple_of(instruction.operands[0].shape.without_layout(), _CONTEXT, _TOKEN)


def infer_recv(instruction: Instruction) -> Shape:
    """(data, context, token); what the data are is for the declaration to say."""
    _token(instruction, 0)
    elements = instruction.shape.elements
    if not elements:
        raise ShapeError("a recv gives a tuple of data, a context and a token")
    return Shape.tuple_of(elements[0].without_layout(), _CONTEXT, _TOKEN)


def infer_send_done(instruction: Instruction) -> Shape:
    return _TOKEN


def infer_recv_done(instruction: Instruction) -> Shape:
    """(data, token)"""
    elements = instruction.operands[0].shape.elements
    if not elements:
        raise ShapeError("recv-done takes what recv gives")
    return Shape.tuple_of(elements[0].without_layout(), _TOKEN)


_CHANNEL = {"channel_id": False, "is_host_transfer": False}
_ROWS: dict[str, tuple[Arity, dict[str, bool], Callable[[Instruction], Shape]]] = {
    "infeed": (Arity(1, 1), {"infeed_config": False}, infer_infeed),
    "outfeed": (Arity(2, 2), {"outfeed_shape": False, "outfeed_config": False}, infer_outfeed),
    "recv": (Arity(1, 1), _CHANNEL, infer_recv),
    "recv-done": (Arity(1, 1), _CHANNEL, infer_recv_done),
    "send": (Arity(2, 2), _CHANNEL, infer_send),
    "send-done": (Arity(1, 1), _CHANNEL, infer_send_done),
}
_GIVEN = {
    "outfeed": omitted.token_given,
    "recv-done": omitted.recv_done_given,
    "send": omitted.send_given,
    "send-done": omitted.token_given,
}
for _opcode, (_arity, _attributes, _infer) in _ROWS.items():
    register(
        OpSpec(
            _opcode,
            OpKind.COLLECTIVE,
            _arity,
            _attributes,
            () if _opcode == "send-done" else EVERYTHING,
            infer=_infer,
            index=lambda instruction, number: None,
            given=_GIVEN.get(_opcode),
            flops=no_flops,
            side_effects=True,
            is_library=True,
        )
    )
