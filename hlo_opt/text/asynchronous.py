"""Asynchronous chains: which operation an async instruction runs, and whether its links belong together.

A chain is a start, any number of updates and a done. `add-start(a, b)` is short for an `async-start` of a computation that adds; the links of such a chain
name the operation as well, and may repeat the start's thread and computation, but not contradict them.
Source: xla/hlo/parser/hlo_parser.cc, ParseOpcode and the cases of kAsyncStart, kAsyncUpdate and kAsyncDone in CreateInstruction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hlo_opt.ir import Called, Computation, Instruction
from hlo_opt.ops import find

_SUGAR = re.compile(r"(.+)-(start|update|done)")
_THREAD, _ALIASING = "async_execution_thread", "output_to_operand_aliasing"
"""What the links of a chain in its short form (`add-start`) may carry besides the shared attributes: each a thread; a start aliases, and what its operation takes, too."""
_MAIN = "main"
"""The thread of instructions that name none (HloInstruction::kMainExecutionThread)."""


class ChainError(Exception):
    """A link that does not fit. `attribute` names what is wrong about it, where that is an attribute."""

    def __init__(self, message: str, attribute: str = "") -> None:
        super().__init__(message)
        self.attribute = attribute


def base_opcode(opcode: str) -> str | None:
    """The operation that a spelling such as `add-start` runs; None for an opcode that is none."""
    found = _SUGAR.fullmatch(opcode)
    if found is None or found[1] == "async" or find(found[1]) is None:
        return None
    # where the chain has opcodes of its own, such as `all-gather-done`, other spellings mean nothing
    return None if find(f"{found[1]}-done") is not None else found[1]


def link(opcode: str) -> str | None:
    """`start`, `update` or `done` for an opcode of an asynchronous chain, spelled out or not; None for others."""
    found = _SUGAR.fullmatch(opcode)
    return found[2] if found is not None and (found[1] == "async" or base_opcode(opcode) is not None) else None


def attributes_of(opcode: str) -> Mapping[str, bool]:
    """The attributes that an opcode takes, besides the shared ones, in XLA's order: True when required. Empty for an unknown one."""
    base = base_opcode(opcode)
    spec = find(opcode if base is None else base)
    taken: Mapping[str, bool] = {} if spec is None else spec.attributes
    if base is None:
        return taken
    return {_THREAD: False, **taken, _ALIASING: False} if link(opcode) == "start" else {_THREAD: False}


def check_link(instruction: Instruction) -> None:
    """Raises ChainError where an update or a done does not belong to the chain that it continues, or a start gives no chain."""
    kind = link(instruction.opcode)
    if kind == "start":
        elements = instruction.shape.elements
        if elements is None or len(elements) < 2 or elements[0].elements is None:
            raise ChainError("an async start gives ((operands), outputs, contexts..)")
        return
    if kind is None:
        return
    before = instruction.operands[0] if len(instruction.operands) == 1 else None
    if before is None or link(before.opcode) not in ("start", "update"):
        raise ChainError(f"{instruction.opcode} takes what an async start or update gives, and nothing else")
    if kind == "update" and not before.shape.same_values(instruction.shape):
        raise ChainError(f"an async update gives the shape of its operand, {before.shape}")
    start = _start(before)
    base, runs, called = base_opcode(instruction.opcode), base_opcode(start.opcode), _calls(start)
    if runs is None and called is not None:
        runs = called.root.opcode
    if base is not None and runs is not None and base != runs:
        raise ChainError(f"{start.name} runs {runs}, {instruction.name} goes on with {base}")
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
