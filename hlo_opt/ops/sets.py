"""Classifications of operations that several rooms use."""

from __future__ import annotations

from collections.abc import Collection

from hlo_opt.ir import Called, Computation, ElementType, Instruction, Shape
from hlo_opt.ir.attribute import SliceDimension
from hlo_opt.ops.lowering import Elementwise
from hlo_opt.ops.spec import OpKind, find

_BODIES = {"fusion": "calls", "call": "to_apply"}
APPLIED = frozenset(_BODIES)
"""Operations that run one computation once, on all operands, and return its result."""

EXTREMES = frozenset({"maximum", "minimum"})
CHOSEN_BY_ORDER = EXTREMES | {"clamp"}
"""Operations whose result is the operand that comes first or last in order, or NaN where one is."""
SIGNS = {"add": 1, "subtract": -1}
"""Sums of two operands, with the sign of the second."""
ODD = frozenset({"asin", "asinh", "atanh", "cbrt", "erf", "sine", "sinh", "tan", "tanh"})
"""Odd functions: f(-x) = -f(x)."""
OPPOSITE = "negate"
LINEAR = frozenset({"divide", "multiply"})
"""Operations that are linear in their first operand, up to rounding."""
IDEMPOTENT = EXTREMES | {"and", "or"}
"""Exact reducers for which repeated values do not matter."""

CALLS_OR_VIEWS = frozenset({"bitcast", "fusion"})
"""Operations that compilers write, and no framework: a kernel's computation, and memory read under another shape."""

COPIES = frozenset({"bitcast", "copy", "reshape"})
"""Operations that return the operand's elements, each once, in the same order: in memory, or row-major."""
RESHAPES = frozenset({"bitcast", "reshape"})
"""`COPIES` that change dimensions."""


def keeps_values(instruction: Instruction, movers: Collection[str]) -> bool:
    """Whether an instruction is one of the movers, and its elements are elements of its first operand: a bitcast may
    read the same bits as another type."""
    return instruction.opcode in movers and instruction.shape.type == instruction.operands[0].shape.type


REINTERPRETS = frozenset({"bitcast", "bitcast-convert"})
"""Operations that read bits as another type: the result is of that type, also where it is a NaN of any bits."""
UPDATES = frozenset({"dynamic-update-slice", "scatter"})
"""Operations that write a part of their first operand, in place where nothing else needs it."""
SLICES = frozenset({"dynamic-slice", "slice"})
"""Operations that read a part of their first operand."""
LOOPS = frozenset({"while"})
"""Operations that run a computation repeatedly."""
_SHARED = frozenset({"dot", "reduce"})


def is_free(opcode: str) -> bool:
    """Whether operations of this opcode launch no work themselves."""
    spec = find(opcode)
    return spec is not None and spec.is_free


def is_identity(opcode: str) -> bool:
    """Whether operations of this opcode return their first operand unchanged, such as a barrier."""
    spec = find(opcode)
    return spec is not None and spec.is_identity


def passes_on(opcode: str) -> bool:
    """Whether operations of this opcode return their first operand, at most with fewer bits: barriers, and what
    `jax.checkpoint` puts behind a value that its policy keeps."""
    return is_identity(opcode) or opcode == "reduce-precision"


def keeps_bytes(opcode: str) -> bool:
    """Whether operations of this opcode share memory with their first operand, perhaps with another shape: barriers,
    bitcasts."""
    return is_identity(opcode) or is_view(opcode)


def is_view(opcode: str) -> bool:
    """Whether operations of this opcode reinterpret their operand's memory in another shape."""
    spec = find(opcode)
    return spec is not None and spec.is_free and spec.moves_data


def rounds_nothing(instruction: Instruction) -> bool:
    """Whether a computed bf16 or f16 needs no rounding: its text rounds, or it is an operand up to sign, or an integer
    of at most 8 bits.

    Narrower floats are excluded, as some have no negative zero.
    """
    shape, spec = instruction.shape, find(instruction.opcode)
    if spec is None or not shape.is_array or shape.type.name not in ("bf16", "f16"):
        return False
    if isinstance(spec.cuda, Elementwise) and shape.type.name in spec.cuda.rounds:
        return True
    if instruction.opcode in REINTERPRETS:
        return True
    if instruction.opcode == "convert" and _is_short(instruction.operands[0].shape.type):
        return True
    if not spec.spread.keeps:
        return False
    return all(o.shape.type == shape.type or o.shape.type.kind == "pred" for o in instruction.operands)


def _is_short(element_type: ElementType) -> bool:
    """Whether bf16 holds every number of the type: an integer of at most 8 bits, which is as many as bf16 has."""
    return element_type.is_integer and element_type.bits <= 8


def launches(instruction: Instruction) -> bool:
    """Whether the instruction launches a kernel or a library call."""
    spec = find(instruction.opcode)  # asked of every instruction again and again: no call of `is_free`
    return not (spec is not None and spec.is_free) and not instruction.opcode.endswith("-done")


def is_elementwise(instruction: Instruction, operand: int | None = None) -> bool:
    """Whether each output element reads operand elements only at its own index (HloInstruction::IsElementwise).

    Source: xla/hlo/ir/hlo_instruction.cc. A dynamic-update-slice is elementwise in its first operand, a bitcast-convert
    when widths match, a fusion when all its instructions are.
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
    """Whether an operand element may be read for several output elements (OperandElementUse::kReuse)."""
    spec = find(instruction.opcode)
    if spec is not None and spec.reuses is not None:
        return spec.reuses(instruction, operand)
    body = fused(instruction)
    return not is_elementwise(instruction) if body is None else _reuses_parameter(body.parameters[operand])


def _reuses_parameter(parameter: Instruction) -> bool:
    """`reuses_elements` for a parameter of a fusion: whether some path from it to the root reuses elements.

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
    """The computation of a fusion; None for other operations."""
    return None if instruction.opcode != "fusion" else instruction.called_by(_BODIES["fusion"])


def looped(instruction: Instruction) -> Computation | None:
    """The body of a while; None for other operations."""
    return None if instruction.opcode != "while" else instruction.called_by("body")


def joins_arrays(instruction: Instruction) -> bool:
    """Whether an operation puts arrays one behind another into a new one."""
    return instruction.opcode == "concatenate"


def is_product(instruction: Instruction) -> bool:
    """Whether an operation adds up products of the elements of two arrays: a matrix product or a convolution."""
    spec = find(instruction.opcode)
    return spec is not None and spec.kind is OpKind.CONTRACTION


def multiplies_matrices(instruction: Instruction) -> bool:
    """Whether an operation is a product of matrices, perhaps of several pairs."""
    return instruction.opcode == "dot"


def reorders(instruction: Instruction) -> bool:
    """Whether an operation copies its operand, possibly to another layout."""
    return instruction.opcode in ("copy", "transpose")


def combines_updates(instruction: Instruction) -> bool:
    """Whether an operation brings updates to places that indices name, and combines them with what is there."""
    return instruction.opcode == "scatter"


def mixes_bits(instruction: Instruction) -> bool:
    """Whether an operation shifts or combines bits of unsigned integers."""
    is_mixing = instruction.opcode in ("xor", "or", "shift-left", "shift-right-logical")
    return is_mixing and instruction.shape.is_array and instruction.shape.type.kind == "unsigned"


def calls_outside(instruction: Instruction) -> bool:
    """Whether an operation waits for the host: a callback of the program, a feed, a transfer."""
    if instruction.opcode in ("infeed", "outfeed", "send", "recv"):
        return True
    return instruction.opcode == "custom-call" and "callback" in instruction.word("custom_call_target")


def is_barrier(instruction: Instruction) -> bool:
    """Whether nothing may be moved or merged across it: `optimization_barrier`, which `jax.checkpoint` writes, too."""
    return instruction.opcode == "opt-barrier"


def tuple_index(instruction: Instruction) -> int | None:
    """The index of a get-tuple-element; None for other operations."""
    return None if instruction.opcode != "get-tuple-element" else instruction.attribute("index", int)


def tuple_elements(instruction: Instruction) -> list[Instruction] | None:
    """The elements of a tuple instruction; None for other operations."""
    return None if instruction.opcode != "tuple" else instruction.operands


def written_window(instruction: Instruction) -> Instruction | None:
    """The update of a dynamic-update-slice; None for other operations."""
    return instruction.operands[1] if instruction.opcode == "dynamic-update-slice" else None


def read_window(instruction: Instruction) -> Instruction | None:
    """The array that a dynamic-slice reads; None for other operations."""
    return instruction.operands[0] if instruction.opcode == "dynamic-slice" else None


def shares_terms(instruction: Instruction) -> bool:
    """Whether each element of the array result is a fold of terms at known indices in any order, which threads can
    share."""
    return instruction.opcode in _SHARED and instruction.shape.is_array


def cut_out(instruction: Instruction) -> tuple[SliceDimension, ...] | None:
    """The ranges of a slice; None for other operations."""
    return None if instruction.opcode != "slice" else instruction.attribute("slice", tuple)


def body_of(instruction: Instruction) -> Computation | None:
    """The computation that a fusion or call runs; None for other operations."""
    name = _BODIES.get(instruction.opcode)
    return None if name is None else instruction.called_by(name)


def results_of(computation: Computation) -> list[Instruction]:
    """The results of a computation: the elements of its root tuple, or its root."""
    elements = tuple_elements(computation.root)
    return [computation.root] if elements is None else list(elements)


def root_of(instruction: Instruction) -> Instruction:
    """The root of a fusion's computation; other operations themselves."""
    body = fused(instruction)
    return instruction if body is None else body.root


# ---- sugared asynchronous operations: `X-start` is an `async-start` of X; `X-update` and `X-done` continue it


def started(instruction: Instruction) -> Instruction | None:
    """The synchronous form of a sugared `X-start`.

    None for other instructions (also `async-start`, `copy-start` etc., which the op table has), and for a shape other
    than ((operands), results, contexts...).
    """
    opcode, _, part = instruction.opcode.rpartition("-")
    elements = instruction.shape.elements
    if part != "start" or find(instruction.opcode) is not None or find(opcode) is None:
        return None
    if elements is None or len(elements) < 2:
        return None
    operation = Instruction(instruction.name, opcode, elements[1], instruction.operands, instruction.attributes)
    operation.parent, operation.offset, operation.end = instruction.parent, instruction.offset, instruction.end
    return operation


def at_once(instruction: Instruction) -> Instruction | None:
    """The synchronous form of any start: as `started`, and `async-start` is a call, `copy-start` a copy, collectives
    themselves.

    A start's shape is (operands, result, contexts); a copy's has its result first; an older collective's is the result.
    """
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
    operation = Instruction(instruction.name, base, shape, instruction.operands, attributes)
    operation.parent = instruction.parent
    return operation


def goes_on(instruction: Instruction) -> tuple[int, ...] | None:
    """Where the value of an `X-update` or `X-done` is in its operand: () for all of it, or (element number,).

    None for other instructions, and for the ends of transfers to another device or the host.
    """
    base, _, part = instruction.opcode.rpartition("-")
    spec = find(instruction.opcode)
    if part not in ("update", "done"):
        return None
    if spec is None or base == "async":
        return () if part == "update" else (1,)
    source = instruction.operands[0].shape.elements
    if spec.kind is OpKind.COLLECTIVE:
        if base == "all-reduce":  # the start returns the results; in an older form the operands come first
            return () if source is None or instruction.shape.is_tuple else (len(source) - 1,)
        return () if source is None else (1,)
    return (0,) if base == "copy" else None


def takes_first(instruction: Instruction) -> bool:
    """Whether it gives the first elements of rows by rank, and where they are."""
    return instruction.opcode == "topk"


def solves_triangles(instruction: Instruction) -> bool:
    """Whether it solves triangular systems."""
    return instruction.opcode == "triangular-solve"


def takes_root(instruction: Instruction) -> bool:
    """Whether it factors matrices A as L L^H by their own opcode."""
    return instruction.opcode == "cholesky"


def transforms_lines(instruction: Instruction) -> bool:
    """Whether it computes discrete Fourier transforms."""
    return instruction.opcode == "fft"
