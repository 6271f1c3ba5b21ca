"""Asynchronous chains: which operation an async instruction runs, and whether its links fit together.

A chain is a start, any number of updates and a done. `add-start(a, b)` is sugar for an `async-start` of a computation
that adds. The links of such a chain name the operation too; they may repeat the start's thread and computation but not
contradict them.
Source: xla/hlo/parser/hlo_parser.cc, ParseOpcode and the cases of kAsyncStart, kAsyncUpdate and kAsyncDone in
CreateInstruction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hlo_opt.ir import Called, Computation, Instruction
from hlo_opt.ops import find

_SUGAR = re.compile(r"(.+)-(start|update|done)")
_THREAD, _ALIASING = "async_execution_thread", "output_to_operand_aliasing"
"""Attributes of sugared links (`add-start`) besides the shared ones: a thread on each; aliasing and the operation's own
on a start."""
_MAIN = "main"
"""The thread of instructions that name none (HloInstruction::kMainExecutionThread)."""


class ChainError(Exception):
    """A link does not fit its chain. `attribute` names the faulty attribute, if any."""

    def __init__(self, message: str, attribute: str = "") -> None:
        super().__init__(message)
        self.attribute = attribute


def base_opcode(opcode: str) -> str | None:
    """The operation that a sugared opcode such as `add-start` runs; None for other opcodes."""
    match = _SUGAR.fullmatch(opcode)
    if match is None or match[1] == "async" or find(match[1]) is None:
        return None
    # an operation with async opcodes of its own, such as `all-gather-done`, has no sugared form
    return None if find(f"{match[1]}-done") is not None else match[1]


def link(opcode: str) -> str | None:
    """`start`, `update` or `done` for an opcode of an asynchronous chain, sugared or not; None for others."""
    match = _SUGAR.fullmatch(opcode)
    return match[2] if match is not None and (match[1] == "async" or base_opcode(opcode) is not None) else None


def attributes_of(opcode: str) -> Mapping[str, bool]:
    """The attributes of an opcode besides the shared ones, in XLA's order; True when required. Empty for an unknown
    opcode."""
    base = base_opcode(opcode)
    spec = find(opcode if base is None else base)
    known: Mapping[str, bool] = {} if spec is None else spec.attributes
    if base is None:
        return known
    return {_THREAD: False, **known, _ALIASING: False} if link(opcode) == "start" else {_THREAD: False}


def check_link(instruction: Instruction) -> None:
    """Raises ChainError where an update or done does not fit the chain it continues, or a start has a malformed
    shape."""
    kind = link(instruction.opcode)
    if kind == "start":
        elements = instruction.shape.elements
        if elements is None or len(elements) < 2 or elements[0].elements is None:
            raise ChainError("an async start has the shape ((operands), outputs, contexts..)")
        return
    if kind is None:
        return
    before = instruction.operands[0] if len(instruction.operands) == 1 else None
    if before is None or link(before.opcode) not in ("start", "update"):
        raise ChainError(f"{instruction.opcode} takes one operand, an async start or update")
    if kind == "update" and not before.shape.same_values(instruction.shape):
        raise ChainError(f"an async update has the shape of its operand, {before.shape}")
    start = _start(before)
    base, runs, called = base_opcode(instruction.opcode), base_opcode(start.opcode), _calls(start)
    if runs is None and called is not None:
        runs = called.root.opcode
    if base is not None and runs is not None and base != runs:
        raise ChainError(f"{start.name} runs {runs}, but {instruction.name} continues it as {base}")
    if _THREAD in instruction.attributes:
        ours, theirs = (i.word(_THREAD, _MAIN) for i in (instruction, start))
        if ours != theirs:
            raise ChainError(f"{start.name} runs on thread {theirs}, not {ours}", _THREAD)
    named = instruction.attributes.get("calls")
    if isinstance(named, Called) and called is not None and named.computations[0] is not called:
        raise ChainError(f"{start.name} calls {called.name}, not {named.computations[0].name}", "calls")


def _start(instruction: Instruction) -> Instruction:
    while link(instruction.opcode) == "update" and instruction.operands:
        instruction = instruction.operands[0]
    return instruction


def _calls(start: Instruction) -> Computation | None:
    called = start.attributes.get("calls") if base_opcode(start.opcode) is None else None
    return called.computations[0] if isinstance(called, Called) else None
