"""Keys of comparators that compare a function of their elements, as JAX's put all NaNs last, and -0 with 0: it is
computed once for each element, not in each comparison."""

from __future__ import annotations

from dataclasses import dataclass

from hlo_opt.analysis.graph.numbering import attribute_key, literal_key
from hlo_opt.ir import Computation, Instruction
from hlo_opt.ops.spec import OpKind, find
from hlo_opt.plans.instructions import NOTHING, Work, of_value
from hlo_opt.plans.plan import above


@dataclass(frozen=True)
class ComparatorKey:
    """An element of operand `operand` comes before another where its key is less (or greater, if `descends`).

    parameter  the comparator's parameter for the element
    value      the function of it that is compared; floats by IEEE 754's totalOrder
    """

    operand: int
    parameter: Instruction
    value: Instruction
    descends: bool

    @property
    def bytes(self) -> int:
        """Bytes of a key: it is an integer of 32 or 64 bits."""
        return 8 if self.value.shape.type.bits > 32 else 4

    @property
    def work(self) -> Work:
        """The work of computing it."""
        return sum((of_value(i) for i in above([self.value]) if i.operands), NOTHING)


def key_of(comparator: Computation) -> ComparatorKey | None:
    """The key by which a comparator orders; None where it compares elements as they are, or in another way."""
    root = comparator.root
    direction = root.word("direction")
    if direction not in ("LT", "GT") or any(True for i in comparator.instructions for _ in i.called()):
        return None
    left, right = root.operands
    kind = left.shape.type
    is_ordered = kind.is_integer or (kind.is_float and kind.bits >= 16 and root.word("type") == "TOTALORDER")
    first, second = _only_parameter(left), _only_parameter(right)
    if not is_ordered or first is None or second is None or left is first or not _alike(left, right, first, second):
        return None
    one, other = first.parameter_number, second.parameter_number
    if one is None or other is None or one // 2 != other // 2 or one == other:
        return None
    return ComparatorKey(one // 2, first, left, (direction == "GT") != (one > other))


def _only_parameter(value: Instruction) -> Instruction | None:
    """The only parameter that a value depends on, if all else is elementwise."""
    needed = above([value])
    parameters = [i for i in needed if i.parameter_number is not None]
    if not all(i in parameters or i.literal is not None or _is_elementwise(i) for i in needed):
        return None
    return parameters[0] if len(parameters) == 1 else None


def _is_elementwise(instruction: Instruction) -> bool:
    spec = find(instruction.opcode)
    return spec is not None and spec.kind is OpKind.ELEMENTWISE


def _alike(left: Instruction, right: Instruction, first: Instruction, second: Instruction) -> bool:
    """Whether two values are the same function of two parameters."""
    if left is first or right is second:
        return left is first and right is second and left.shape == right.shape
    if left.literal is not None or right.literal is not None:
        both = left.literal, right.literal
        return None not in both and left.shape == right.shape and len({literal_key(b) for b in both if b}) == 1
    alike = left.opcode == right.opcode and left.shape == right.shape and attribute_key(left) == attribute_key(right)
    pairs = zip(left.operands, right.operands, strict=True) if len(left.operands) == len(right.operands) else None
    return alike and pairs is not None and all(_alike(a, b, first, second) for a, b in pairs)
