"""From an instruction of a module to the region that one kernel covers."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_opt.diag import BackendError
from hlo_opt.ir import Called, Computation, Instruction, Module, edit
from hlo_opt.ir.walk import operands_first
from hlo_opt.ops import spec as op_table
from hlo_opt.ops.sets import LOOPS, looped
from hlo_opt.ops.stored_bits import as_stored
from hlo_opt.plans.plan import Region

_RUNS = {"fusion": "calls", "call": "to_apply"}
"""The opcodes that run a computation, each with the attribute that names it."""
_MOST_EXPANSIONS = 100_000  # instructions that one region may become; far above any real fusion


def region_of(module: Module, instruction: Instruction) -> Region:
    """The region of a fusion, of a single operation, or of an operation that is expanded into simpler ones.

    The region's computation has no calls: nested fusions and calls are inlined, and operations that have only an
    expansion are expanded, also in the computations of loops. Narrow floats that are only moved are integers
    (`hlo_opt.ops.stored_bits`). The module does not change. Raises BackendError when expansions do not end.
    """
    if instruction.opcode in _RUNS:
        computation = instruction.called_by(_RUNS[instruction.opcode])
    else:
        computation = _expansion(module, instruction) or _wrap(instruction)
    computation, declared = as_stored(opened_up(module, computation))
    roots = tuple(array_roots(computation.root))
    return Region(instruction, computation, tuple(computation.parameters), roots, declared)


def array_roots(root: Instruction) -> Iterator[Instruction]:
    """The values that a root writes, depth first through `tuple`. A tuple-shaped operation such as a variadic reduce
    stays whole."""
    stack = [root]
    while stack:
        instruction = stack.pop()
        if instruction.opcode == "tuple":
            stack.extend(reversed(instruction.operands))
        else:
            yield instruction


def inlined(module: Module, computation: Computation) -> Computation:
    """The computation with nested fusions, calls and expansions inlined; itself, if it has none of them."""
    rounds = 0
    while _holds_callees(module, computation):
        computation = _inlined_once(module, computation)
        rounds += 1
        if rounds > 1000 or len(computation.instructions) > _MOST_EXPANSIONS:
            raise BackendError(f"{computation.name} does not stop expanding after {rounds} rounds")
    return computation


def _holds_callees(module: Module, computation: Computation) -> bool:
    """Whether something is left to inline. Asked of few instructions: most opcodes never stand for a computation."""
    opcodes = {opcode for opcode in {i.opcode for i in computation.instructions} if _may_be_opened(opcode)}
    return bool(opcodes) and any(
        i.opcode in opcodes and _callee(module, i) is not None for i in computation.instructions
    )


def _may_be_opened(opcode: str) -> bool:
    """Whether a computation may stand for operations of an opcode (`_callee`)."""
    spec = op_table.find(opcode)
    return opcode in _RUNS or (spec is not None and spec.expand is not None and spec.cuda is None)


def opened_up(module: Module, computation: Computation) -> Computation:
    """The computation with nested fusions, calls and expansions inlined, also in those of its loops."""
    return _with_loops_inlined(module, inlined(module, computation))


def _with_loops_inlined(module: Module, computation: Computation) -> Computation:
    """The computation with calls inlined in the computations of its loops, and the elements of a loop's tuple as its
    results where it has a loop as root; itself if there are none."""
    loops = [i for i in computation.instructions if i.opcode in LOOPS]
    runs = {c: opened_up(module, c) for i in loops for c in i.called()}
    is_root = looped(computation.root) is not None
    if all(old is new for old, new in runs.items()) and not is_root:
        return computation
    copy = Computation(computation.name)
    copies: dict[Instruction, Instruction] = {}
    for instruction in computation.instructions:
        copies[instruction] = edit.clone_into(copy, instruction, [copies[o] for o in instruction.operands])
        for name, value in instruction.attributes.items():
            if isinstance(value, Called) and not runs.keys().isdisjoint(value.computations):
                edit.set_attribute(copies[instruction], name, Called(*(runs.get(c, c) for c in value.computations)))
    root = copies[computation.root]
    if is_root:
        count = len(root.shape.elements or ())
        root = edit.create_tuple(copy, [edit.create_element(root, number) for number in range(count)])
    edit.set_root(copy, root)
    return copy


def _wrap(instruction: Instruction) -> Computation:
    copy = Computation(f"wrapped_{instruction.opcode}")
    parameters = [
        edit.create_parameter(copy, f"p{number}", operand.shape, number)
        for number, operand in enumerate(instruction.operands)
    ]
    edit.set_root(copy, edit.clone_into(copy, instruction, parameters))
    return copy


def _expansion(module: Module, instruction: Instruction) -> Computation | None:
    spec = op_table.find(instruction.opcode)
    if spec is None or spec.expand is None or not spec.has_expansion(instruction) or spec.cuda is not None:
        return None
    return spec.expand(module, instruction)


def _callee(module: Module, instruction: Instruction) -> Computation | None:
    """The computation that stands for an instruction: the one that a fusion or a call runs, or the operations that a
    custom call expands to; None for any other."""
    if instruction.opcode in _RUNS:
        return instruction.called_by(_RUNS[instruction.opcode])
    return _expansion(module, instruction)


def _inlined_once(module: Module, computation: Computation) -> Computation:
    copy = Computation(computation.name)
    copies: dict[Instruction, Instruction] = {}
    for instruction in computation.instructions:
        operands = [copies[o] for o in instruction.operands]
        callee = _callee(module, instruction)
        if callee is not None:
            copies[instruction] = _copy_body(copy, callee, operands)
        elif instruction.opcode == "get-tuple-element" and operands[0].opcode == "tuple":
            copies[instruction] = operands[0].operands[instruction.attribute("index", int)]
        else:
            copies[instruction] = edit.clone_into(copy, instruction, operands)
    edit.set_root(copy, copies[computation.root])
    return copy


def _copy_body(to: Computation, callee: Computation, arguments: list[Instruction]) -> Instruction:
    copies: dict[Instruction, Instruction] = {}
    for instruction in operands_first([callee.root]):  # a pass may not have sorted the callee yet
        if instruction.parameter_number is not None:
            copies[instruction] = arguments[instruction.parameter_number]
        else:
            copies[instruction] = edit.clone_into(to, instruction, [copies[o] for o in instruction.operands])
    return copies[callee.root]
