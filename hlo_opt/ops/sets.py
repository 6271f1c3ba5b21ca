"""Questions about operations that several rooms ask, answered in one place."""

from __future__ import annotations

from hlo_opt.ir import Called, Computation, Instruction, Shape
from hlo_opt.ir.attribute import SliceDimension
from hlo_opt.ops.lowering import Elementwise
from hlo_opt.ops.spec import OpKind, find

_BODIES = {"fusion": "calls", "call": "to_apply"}
APPLIED = frozenset(_BODIES)
"""Operations that run one computation once, on all their operands, and give what it gives."""

EXTREMES = frozenset({"maximum", "minimum"})
SIGNS = {"add": 1, "subtract": -1}
"""Sums of two operands, with the sign of the second."""
ODD = frozenset({"asin", "asinh", "atanh", "cbrt", "erf", "sine", "sinh", "tan", "tanh"})
"""Functions that give for the opposite of a number the opposite of what they give for it."""
OPPOSITE = "negate"
LINEAR = frozenset({"divide", "multiply"})
"""Operations whose result takes over the sign of their first operand."""
IDEMPOTENT = EXTREMES | {"and", "or"}
"""Reducers for which it does not count how often a value comes in, and that round nothing."""

COPIES = frozenset({"bitcast", "copy", "reshape"})
"""Operations that give the elements of their operand, each once, in the order that they had: in memory, or row-major."""
RESHAPES = frozenset({"bitcast", "reshape"})
"""Those under other dimensions."""


UPDATES = frozenset({"dynamic-update-slice", "scatter"})
"""Operations that write a part of their first operand, in its own memory where nothing else needs it."""
SLICES = frozenset({"dynamic-slice", "slice"})
"""Those that read a part of it."""
LOOPS = frozenset({"while"})
"""Those that run a computation again and again."""
_SHARED = frozenset({"dot", "reduce"})


def is_free(opcode: str) -> bool:
    """Whether operations of an opcode launch no work of their own."""
    spec = find(opcode)
    return spec is not None and spec.is_free


def is_identity(opcode: str) -> bool:
    """Whether operations of an opcode are their first operand as it is, such as a barrier."""
    spec = find(opcode)
    return spec is not None and spec.is_identity


def keeps_bytes(opcode: str) -> bool:
    """Whether operations of an opcode are the memory of their first operand, under another shape at most: barriers, bitcasts."""
    return is_identity(opcode) or is_view(opcode)


def is_view(opcode: str) -> bool:
    """Whether operations of an opcode are elements of an operand as they lie in memory, under another shape."""
    spec = find(opcode)
    return spec is not None and spec.is_free and spec.moves_data


def rounds_nothing(instruction: Instruction) -> bool:
    """Whether a bf16 or an f16 that a kernel computes is rounded already: its text rounds, or it is one of the operands, but for its sign. Narrower floats may lack that of zero."""
    shape, spec = instruction.shape, find(instruction.opcode)
    if spec is None or not shape.is_array or shape.type.name not in ("bf16", "f16"):
        return False
    if isinstance(spec.cuda, Elementwise) and shape.type.name in spec.cuda.rounds:
        return True
    if not spec.spread.keeps:
        return False
    return all(o.shape.type == shape.type or o.shape.type.kind == "pred" for o in instruction.operands)


def launches(instruction: Instruction) -> bool:
    """Whether the instruction launches work: a kernel or a library call."""
    return not is_free(instruction.opcode) and not instruction.opcode.endswith("-done")


def is_elementwise(instruction: Instruction, operand: int | None = None) -> bool:
    """Whether each output element reads the operand elements at its own index only (HloInstruction::IsElementwise).

    Source: xla/hlo/ir/hlo_instruction.cc. A dynamic-update-slice is elementwise in its first operand, a bitcast-convert when widths match, a
    fusion when all that it holds is.
    """
    spec = find(instruction.opcode)
    if spec is None:
        return False
    if spec.aligned is not None:
        return spec.aligned(instruction, operand)
    if spec.kind is OpKind.ELEMENTWISE:
        return bool(instruction.operands)
    body = fused(instruction)
    return body is not None and all(i.parameter_number is not None or is_elementwise(i) for i in body.instructions)


def reuses_elements(instruction: Instruction, operand: int) -> bool:
    """Whether an element of the operand may be read for more than one output element (OperandElementUse::kReuse)."""
    spec = find(instruction.opcode)
    if spec is not None and spec.reuses is not None:
        return spec.reuses(instruction, operand)
    body = fused(instruction)
    return not is_elementwise(instruction) if body is None else _reuses_parameter(body.parameters[operand])


def _reuses_parameter(parameter: Instruction) -> bool:
    """As `reuses_elements`, for a parameter of a fusion: whether some path from it to the root reuses.

    Source: xla/hlo/ir/hlo_instructions.cc, FusionReusesParamElements.
    """
    todo, seen = [parameter], {parameter}
    while todo:
        instruction = todo.pop()
        for user in instruction.users:
            if any(used is instruction and reuses_elements(user, n) for n, used in enumerate(user.operands)):
                return True
            if user not in seen:
                seen.add(user)
                todo.append(user)
    return False


def fused(instruction: Instruction) -> Computation | None:
    """The computation of a fusion: it runs as one kernel; None for any other operation."""
    return None if instruction.opcode != "fusion" else instruction.called_by(_BODIES["fusion"])


def looped(instruction: Instruction) -> Computation | None:
    """The computation that a loop runs in each round; None for any other operation."""
    return None if instruction.opcode != "while" else instruction.called_by("body")


def taken_element(instruction: Instruction) -> int | None:
    """The number of the element that is taken out of a tuple; None for any other operation."""
    return None if instruction.opcode != "get-tuple-element" else instruction.attribute("index", int)


def held(instruction: Instruction) -> list[Instruction] | None:
    """The elements of a tuple that is put together here; None for any other operation."""
    return None if instruction.opcode != "tuple" else instruction.operands


def written_window(instruction: Instruction) -> Instruction | None:
    """What is written into a copy of the first operand, where the other operands say; None for any other operation than `dynamic-update-slice`."""
    return instruction.operands[1] if instruction.opcode == "dynamic-update-slice" else None


def read_window(instruction: Instruction) -> Instruction | None:
    """The array of which a window is read where data say; None for any other operation than `dynamic-slice`."""
    return instruction.operands[0] if instruction.opcode == "dynamic-slice" else None


def shares_terms(instruction: Instruction) -> bool:
    """Whether an element of the result, which is one array, is folded of terms at known places, in any order: several threads may each take some of them."""
    return instruction.opcode in _SHARED and instruction.shape.is_array


def cut_out(instruction: Instruction) -> tuple[SliceDimension, ...] | None:
    """The ranges of its operand that a `slice` gives; None for any other operation."""
    return None if instruction.opcode != "slice" else instruction.attribute("slice", tuple)


def body_of(instruction: Instruction) -> Computation | None:
    """The computation that a fusion or a call runs; None for any other operation."""
    name = _BODIES.get(instruction.opcode)
    return None if name is None else instruction.called_by(name)


def results_of(computation: Computation) -> list[Instruction]:
    """The values that a computation gives: what its root's tuple holds, or its root."""
    found = held(computation.root)
    return [computation.root] if found is None else list(found)


def root_of(instruction: Instruction) -> Instruction:
    """What a fusion computes last; any other operation itself."""
    body = fused(instruction)
    return instruction if body is None else body.root


# ---- short spellings of operations that run asynchronously: `X-start` is an `async-start` of X, `X-update` and `X-done` go on with it


def started(instruction: Instruction) -> Instruction | None:
    """The operation that a short `X-start` starts, as one that is done at once. None for any other instruction: also for `async-start`, `copy-start` and the like, which
    the op table has, and where the shape is no ((operands), results, contexts...)."""
    opcode, _, part = instruction.opcode.rpartition("-")
    elements = instruction.shape.elements
    if part != "start" or find(instruction.opcode) is not None or find(opcode) is None:
        return None
    if elements is None or len(elements) < 2:
        return None
    made = Instruction(instruction.name, opcode, elements[1], instruction.operands, instruction.attributes)
    made.parent, made.offset, made.end = instruction.parent, instruction.offset, instruction.end
    return made


def at_once(instruction: Instruction) -> Instruction | None:
    """As `started`, for all starts whose result somebody computes: an `async-start` is a call, a `copy-start` a copy, and collectives have starts of their own. A start gives what goes
    in, then the result, then contexts; a copy its result first; a collective of an older form the result alone, and then the shape is the start's own."""
    base, _, part = instruction.opcode.rpartition("-")
    spec, elements, attributes = find(instruction.opcode), instruction.shape.elements, instruction.attributes
    if part != "start" or spec is None:
        return started(instruction)
    shape, count = instruction.shape, len(instruction.operands)
    if spec.kind is OpKind.COLLECTIVE:
        if elements is not None and len(elements) > 1 and "to_apply" not in attributes:
            shape = elements[1]
        elif elements is not None and len(elements) == 2 * count:
            shape = elements[1] if count == 1 else Shape.tuple_of(*elements[count:])
    elif elements is None or len(elements) < 2:
        return None
    elif "calls" in attributes:
        base, shape, attributes = "call", elements[1], {"to_apply": Called(next(instruction.called()))}
    elif base == "copy":
        shape, attributes = elements[0], {}
    else:
        return None
    made = Instruction(instruction.name, base, shape, instruction.operands, attributes)
    made.parent = instruction.parent
    return made


def goes_on(instruction: Instruction) -> tuple[int, ...] | None:
    """Where in its operand the value of an `X-update` or `X-done` is: empty for all of it, else the number of an element. None for any other instruction, and for those that end a
    transfer to somewhere else."""
    base, _, part = instruction.opcode.rpartition("-")
    spec = find(instruction.opcode)
    if part not in ("update", "done"):
        return None
    if spec is None or base == "async":
        return () if part == "update" else (1,)
    source = instruction.operands[0].shape.elements
    if spec.kind is OpKind.COLLECTIVE:
        if base == "all-reduce":  # what starts gives the results, in an older form what went in before them
            return () if source is None or instruction.shape.is_tuple else (len(source) - 1,)
        return () if source is None else (1,)
    return (0,) if base == "copy" else None
