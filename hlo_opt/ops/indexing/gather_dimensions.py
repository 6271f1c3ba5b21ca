"""The dimension numbers of gather and scatter, named and checked.

Source: xla/xla_data.proto (GatherDimensionNumbers, ScatterDimensionNumbers), xla/service/shape_inference.cc.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlo_opt.ir import Instruction, Shape
from hlo_opt.ops.shapes import distinct, integer, need


@dataclass(frozen=True)
class Batching:
    """Paired batching dimensions of operand and indices."""

    operand_dims: tuple[int, ...]
    indices_dims: tuple[int, ...]


@dataclass(frozen=True)
class IndexedWindows:
    """Dimension numbers shared by gather and scatter.

    offset_dims       dimensions of the output (or updates) within a window
    collapsed         operand dimensions of window size 1 that the output lacks
    start_index_map   the operand dimension of each index vector component
    index_vector_dim  the dimension of the indices that holds the components; equal to their rank for scalar indices
    slice_sizes       the window, by operand dimension; empty for a scatter, whose updates define it
    """

    offset_dims: tuple[int, ...]
    collapsed: tuple[int, ...]
    start_index_map: tuple[int, ...]
    index_vector_dim: int
    slice_sizes: tuple[int, ...]
    batching: Batching

    @property
    def removed(self) -> frozenset[int]:
        return frozenset(self.collapsed) | frozenset(self.batching.operand_dims)

    def batch_sizes(self, indices: Shape) -> tuple[int, ...]:
        """The sizes of the index space: the dimensions of the indices without the index vector."""
        return tuple(s for d, s in enumerate(indices.dimensions) if d != self.index_vector_dim)

    def _check(self, source: Shape, indices: Shape) -> None:
        need(0 <= self.index_vector_dim <= indices.rank, f"index_vector_dim={self.index_vector_dim} for {indices}")
        length = 1 if self.index_vector_dim == indices.rank else indices.dimensions[self.index_vector_dim]
        need(
            len(self.start_index_map) == length,
            f"index vectors have {length} components, {len(self.start_index_map)} operand dimensions are named",
        )
        distinct(self.start_index_map, source.rank, "dimensions of the index vector")
        distinct(self.collapsed + self.batching.operand_dims, source.rank, "collapsed and batching dimensions")
        distinct(self.batching.indices_dims, indices.rank, "batching dimensions of the indices")
        need(
            len(self.batching.operand_dims) == len(self.batching.indices_dims),
            "operand and indices need the same number of batching dimensions",
        )
        for a, b in zip(self.batching.operand_dims, self.batching.indices_dims, strict=True):
            need(b != self.index_vector_dim, "the index vector dimension cannot be a batching dimension")
            need(source.dimensions[a] == indices.dimensions[b], f"batching dimensions {a} and {b} differ in size")
        need(
            len(self.offset_dims) + len(self.removed) == source.rank,
            f"{len(self.offset_dims)} window and {len(self.removed)} removed dimensions for {source}",
        )

    def check_gather(self, source: Shape, indices: Shape) -> tuple[int, ...]:
        """Check a gather. Returns the dimensions of the result; raises ShapeError."""
        self._check(source, indices)
        need(len(self.slice_sizes) == source.rank, f"slice_sizes has {len(self.slice_sizes)} sizes for {source}")
        for d, (size, room) in enumerate(zip(self.slice_sizes, source.dimensions, strict=True)):
            need(size >= 0 and (size <= room or room < 0), f"a window of {size} does not fit dimension {d} of {source}")
            need(size <= 1 or d not in self.removed, f"dimension {d} is collapsed but its window has size {size}")
        batch = iter(self.batch_sizes(indices))
        window = iter([s for d, s in enumerate(self.slice_sizes) if d not in self.removed])
        rank = len(self.offset_dims) + len(self.batch_sizes(indices))
        distinct(self.offset_dims, rank, "offset_dims")
        return tuple(next(window) if d in self.offset_dims else next(batch) for d in range(rank))

    def check_scatter(self, source: Shape, indices: Shape, update: Shape) -> None:
        """Check that the updates fit operand and indices. Raises ShapeError."""
        self._check(source, indices)
        batch = self.batch_sizes(indices)
        need(update.rank == len(batch) + len(self.offset_dims), f"updates {update} do not fit indices {indices}")
        distinct(self.offset_dims, update.rank, "update_window_dims")
        sizes = tuple(s for d, s in enumerate(update.dimensions) if d not in self.offset_dims)
        need(sizes == batch, f"updates {update} have index dimensions {list(sizes)}, expected {list(batch)}")
        for d, size in self.update_windows(source, update).items():
            room = source.dimensions[d]
            fits = d in self.removed or size <= room or room < 0
            need(fits, f"a window of {size} does not fit dimension {d} of {source}")

    def update_windows(self, source: Shape, update: Shape) -> dict[int, int]:
        """The window size of a scatter by operand dimension; 1 for dimensions that the updates lack."""
        window = iter([update.dimensions[d] for d in self.offset_dims])
        return {d: 1 if d in self.removed else next(window) for d in range(source.rank)}


def gather_dimensions(instruction: Instruction) -> IndexedWindows:
    """The dimension numbers of a gather. Raises ShapeError when index_vector_dim is missing."""
    return IndexedWindows(
        instruction.ints("offset_dims"),
        instruction.ints("collapsed_slice_dims"),
        instruction.ints("start_index_map"),
        integer(instruction, "index_vector_dim"),
        instruction.ints("slice_sizes"),
        Batching(instruction.ints("operand_batching_dims"), instruction.ints("start_indices_batching_dims")),
    )


def scatter_dimensions(instruction: Instruction) -> IndexedWindows:
    """The dimension numbers of a scatter. Raises ShapeError when index_vector_dim is missing."""
    return IndexedWindows(
        instruction.ints("update_window_dims"),
        instruction.ints("inserted_window_dims"),
        instruction.ints("scatter_dims_to_operand_dims"),
        integer(instruction, "index_vector_dim"),
        (),
        Batching(instruction.ints("input_batching_dims"), instruction.ints("scatter_indices_batching_dims")),
    )
