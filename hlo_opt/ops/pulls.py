"""Small scatters from the side of their results: each element folds all updates that name it, so that no thread changes
what another one writes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hlo_opt.ir import Called, Instruction, array, edit
from hlo_opt.ir.attribute import Attribute
from hlo_opt.ir.element_type import PRED, S32, S64
from hlo_opt.ops.choices import Choices
from hlo_opt.ops.indexing.gather_dimensions import scatter_dimensions
from hlo_opt.ops.reduction.reducers import monoid, own_identity
from hlo_opt.ops.sets import combines_updates


class Pulls(Choices):
    """Writes a scatter as a comparison of each place with each index, and a fold."""

    def started(self, scatter: Instruction, operands: Sequence[Instruction]) -> Instruction | None:
        """A scatter of one array into a copy that nothing else reads, so that it may change it where it lies; of no
        update, that copy. None for another operation, and for one whose updates no kernel can make in place: of
        elements that share a byte, and of complex numbers."""
        if not combines_updates(scatter) or len(operands) != 3 or not scatter.shape.is_array:
            return None
        kind = scatter.shape.type
        if kind.per_byte > 1 or kind.is_complex or any(scatter.shape.dynamic) or operands[0].shape != scatter.shape:
            return None
        start = self.emit("copy", operands[0].shape, operands[0])
        if not operands[2].shape.element_count:
            return start
        return edit.clone_into(self.computation, scatter, [start, *operands[1:]])

    def pulled(self, scatter: Instruction, operands: Sequence[Instruction], most: int) -> Instruction | None:
        """A scatter of one array by an operation whose order does not matter, with whole windows. None for another
        operation, and for one of more than `most` pairs of an element and an update: each is compared. An index outside
        of the array equals no place."""
        if not combines_updates(scatter) or len(operands) != 3 or scatter.shape.type.bits < 32:
            return None
        into, indices, updates = operands
        by, start = scatter_dimensions(scatter), own_identity(scatter)
        step, sizes = monoid(scatter.called_by("to_apply")), into.shape.dimensions
        whole = by.update_windows(into.shape, updates.shape)
        named = set(by.start_index_map)
        if start is None or step is None or scatter.shape.type.is_complex or by.batching.operand_dims:
            return None
        if set(by.collapsed) != named or any(whole[d] != n for d, n in enumerate(sizes) if d not in named):
            return None
        batch = by.batch_sizes(indices.shape)
        count = math.prod(batch)
        if not 0 < count * into.shape.element_count <= most:
            return None
        rank, wide = len(sizes), (*sizes, count)
        vectors = indices
        if by.index_vector_dim < indices.shape.rank - 1:
            order = [d for d in range(indices.shape.rank) if d != by.index_vector_dim] + [by.index_vector_dim]
            vectors = self.transpose(indices, tuple(order))
        number_type = S64 if indices.shape.type.bits > 32 else S32  # an index of 2**32 and more names no place
        vectors = self.convert(self.reshape(vectors, count, len(by.start_index_map)), number_type)
        is_here: Instruction | None = None
        for number, dimension in enumerate(by.start_index_map):
            index = self._at(vectors, {1: number}, number_type)
            there = self.emit("broadcast", array(number_type, *wide), index, dimensions=(rank,))
            place = self.emit("iota", array(number_type, *wide), iota_dimension=dimension)
            same = self.emit("compare", array(PRED, *wide), place, there, direction="EQ")
            is_here = same if is_here is None else self.binary("and", is_here, same)
        assert is_here is not None
        kept = [d for d in range(updates.shape.rank) if d not in by.offset_dims]
        windows = [d for d in range(rank) if d not in named]
        flat = self.transpose(updates, (*kept, *by.offset_dims))
        flat = self.reshape(flat, count, *(sizes[d] for d in windows))
        update = self.emit("broadcast", array(flat.shape.type, *wide), flat, dimensions=(rank, *windows))
        neutral = self.number(scatter.shape.type, -0.0 if step == "add" and scatter.shape.type.is_float else start)
        picked = self.emit("select", update.shape, is_here, update, self.spread(neutral, wide))
        attributes: dict[str, Attribute | Called] = {
            "dimensions": Attribute.of((rank,)),
            "to_apply": Called(scatter.called_by("to_apply")),
        }
        shape = array(scatter.shape.type, *sizes)
        total = edit.create(self.computation, f"reduce.{count}", "reduce", shape, [picked, neutral], attributes)
        return self.binary(step, into, total)
