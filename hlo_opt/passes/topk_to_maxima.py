"""The few largest elements of short rows as maxima, one after the other, where that takes less time than sorting.

Each element and its position are one integer, which orders as `topk` does: by total order, and of equal elements the
first. The largest of all that are less than one is the next, so a kernel that folds rows finds each in a level of its
own, in one reading of the row, and can compute what is sorted besides (the softmax of a gate). XLA:GPU has kernels of
its own for few elements of long rows (xla/service/gpu/transforms/topk_specializer.cc).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Called, Computation, Instruction, Module, Shape, edit
from hlo_opt.ir.attribute import Attribute
from hlo_opt.ir.element_type import ELEMENT_TYPES, S32, S64, ElementType
from hlo_opt.ops.shapes import flag, integer
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.expansion import BroadcastingWriter, scalar_reducer
from hlo_opt.plans import Plan, Region, plan, region_of
from hlo_opt.plans.calls import price_of_call
from hlo_opt.plans.price import price

_TYPES = frozenset({"f32", "bf16", "f16", "s32", "s16", "s8"})


@dataclass(frozen=True)
class TopkToMaxima(RewritingPass):
    """Replace a `topk` of few elements by repeated maxima of the rest of each row, where such a kernel takes less time
    than one that sorts.

    most  the most elements that `topk` selects from a row
    """

    name: ClassVar[str] = "topk-to-maxima"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"
    simplifies: ClassVar[bool] = True
    idempotent: ClassVar[bool] = True

    most: int = 8

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        for i in list(computation.instructions):
            if i.opcode == "topk" and self._is_for_maxima(i) and _pays(i, context.options.target):
                yield partial(_put, i)

    def _is_for_maxima(self, topk: Instruction) -> bool:
        x = topk.operands[0].shape
        if any(x.dynamic) or topk.control_predecessors or x.type.name not in _TYPES or not x.element_count:
            return False
        is_row_major = x.minor_to_major == tuple(reversed(range(x.rank)))
        return 0 < integer(topk, "k") <= self.most and is_row_major and x.dimensions[-1] < 1 << 31


def _pays(topk: Instruction, target: DeviceTarget) -> bool:
    """Whether a kernel of maxima, and one that puts them side by side, take less time than one that sorts, or a
    library."""
    if target.in_lanes:
        return False  # a processor sorts short rows in its registers
    module = topk.computation.module
    assert module is not None
    sort = plan(region_of(module, topk), target)
    limit = price(sort, target).us if isinstance(sort, Plan) else price_of_call(topk, target).us
    aside = Module(module.name)
    computation = edit.new_computation(aside, "maxima")
    x = edit.create_parameter(computation, "x", topk.operands[0].shape, 0)
    maxima = _maxima(BroadcastingWriter(computation), topk, x)
    edit.create_tuple(computation, maxima, root=True)
    kernel = plan(Region(topk, computation, (x,), tuple(maxima)), target)
    if not isinstance(kernel, Plan):
        return False
    moved = 2 * sum(leaf.byte_size for leaf in topk.shape.leaves())
    return price(kernel, target).us + target.kernel_launch_us + moved * 1e6 / target.memory_bandwidth < limit


def _packed_type(topk: Instruction) -> ElementType:
    """The integers that hold an element and its position."""
    shape = topk.operands[0].shape
    return S32 if shape.type.bits <= 16 and shape.dimensions[-1] <= 1 << 16 else S64


def _maxima(writer: BroadcastingWriter, topk: Instruction, x: Instruction) -> list[Instruction]:
    """The largest elements of each row with their positions, as integers."""
    sizes, kind = x.shape.dimensions, _packed_type(topk)
    half, last = kind.bits // 2, x.shape.rank - 1
    key = x
    if x.shape.type.is_float:
        bits = writer.emit("bitcast-convert", Shape(ELEMENT_TYPES[f"s{x.shape.type.bits}"], sizes), x)
        wide = writer.convert(bits, S32)
        mask = writer.number((1 << (x.shape.type.bits - 1)) - 1)
        flipped = writer.binary("xor", wide, mask)
        key = writer.select(writer.compare("LT", wide, writer.number(0)), flipped, wide)
    if not flag(topk, "largest", True):
        key = writer.emit("not", key.shape, key)
    upper = writer.binary("shift-left", writer.convert(key, kind), writer.scalar(kind, half))
    lower = writer.binary("subtract", writer.number(sizes[-1] - 1), writer.iota(sizes, last))
    packed = writer.binary("or", upper, writer.convert(lower, kind))
    least = writer.scalar(kind, -(1 << (kind.bits - 1)))
    attributes: dict[str, Attribute | Called] = {
        "dimensions": Attribute.of((last,)),
        "to_apply": Called(scalar_reducer(writer.computation, "maximum", Shape(kind))),
    }
    maxima: list[Instruction] = []
    left = packed
    for _ in range(integer(topk, "k")):
        shape = Shape(kind, sizes[:-1])
        maxima.append(edit.create(writer.computation, "largest", "reduce", shape, (left, least), attributes))
        before = writer.emit("broadcast", packed.shape, maxima[-1], dimensions=tuple(range(last)))
        left = writer.select(writer.compare("LT", packed, before), packed, least)
    return maxima


def _put(topk: Instruction) -> None:
    """Replace a `topk` by maxima, and what reads these as values and positions."""
    writer, x = BroadcastingWriter(topk.computation), topk.operands[0]
    kind, count = _packed_type(topk), integer(topk, "k")
    half, rank = kind.bits // 2, x.shape.rank
    kept = Shape(kind, (*x.shape.dimensions[:-1], 1))
    columns = [writer.reshape(m, kept) for m in _maxima(writer, topk, x)]
    whole = Shape(kind, (*x.shape.dimensions[:-1], count))
    both = columns[0] if count == 1 else writer.emit("concatenate", whole, *columns, dimensions=(rank - 1,))
    key = writer.binary("shift-right-arithmetic", both, writer.scalar(kind, half))
    lower = writer.binary("and", both, writer.scalar(kind, (1 << half) - 1))
    place = writer.binary("subtract", writer.number(x.shape.dimensions[-1] - 1), writer.convert(lower, S32))
    if not flag(topk, "largest", True):
        key = writer.emit("not", key.shape, key)
    bits = writer.convert(key, S32)
    if x.shape.type.is_float:
        mask = writer.number((1 << (x.shape.type.bits - 1)) - 1)
        bits = writer.select(writer.compare("LT", bits, writer.number(0)), writer.binary("xor", bits, mask), bits)
        narrow = writer.convert(bits, ELEMENT_TYPES[f"s{x.shape.type.bits}"])
        value = writer.emit("bitcast-convert", Shape(x.shape.type, whole.dimensions), narrow)
    else:
        value = writer.convert(bits, x.shape.type)
    for user in list(topk.users):
        if user.opcode == "get-tuple-element" and not user.is_root:
            edit.replace_all_uses(user, (value, place)[integer(user, "index")])
            edit.remove(user)
    if topk.users or topk.is_root:
        edit.redirect_users(topk, edit.create_tuple(topk.computation, [value, place]))
    edit.remove(topk)
