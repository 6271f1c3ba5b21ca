"""What all elements of a run have in common. A variable that is the same for all lanes may still be another number for
each element of a run: a column that an index of that element says. Such a variable has one name, and a writer for each
element that declares it anew, so that equal texts need not be equal values."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hlo_opt.codegen.lanes_chunk_text import CHUNK, LANES, ROW, ChunkWriter
from hlo_opt.codegen.statements import BLOCK
from hlo_opt.ir.index_map import variables_of
from hlo_opt.ops.code import Cell, Name


class Common:
    """Tells what the elements of a run have in common, for each of which there is a writer. `around` are variables that
    are declared around all lanes."""

    def __init__(self, writers: Sequence[ChunkWriter], around: Collection[str] = ()) -> None:
        self.writers = writers
        self.known: dict[str, bool] = dict.fromkeys((BLOCK.text, CHUNK, ROW, *LANES, *around), True)

    def has(self, name: str) -> bool:
        """Whether a variable is the same for all elements. The lane is: each element has it in its turn."""
        if name not in self.known:
            self.known[name] = self._has(name)
        return self.known[name]

    def has_all(self, names: Collection[str]) -> bool:
        """Whether all these variables are."""
        return all(map(self.has, names))

    def _has(self, name: str) -> bool:
        first, *others = self.writers
        place = first.full.get(name)
        if any(writer.full.get(name) != place for writer in others):
            return False
        if place is not None:
            return self.has_all(variables_of(place) - {name})
        if name in first.alike or name not in first.declared_once:
            return name in first.constants
        for piece in first.declared_once[name].pieces:
            names = [piece] if isinstance(piece, Name) else []
            if isinstance(piece, Cell):
                names = [piece.array, *(() if piece.array in first.scalars else piece.index.names())]
            if not self.has_all([inner.text for inner in names]):
                return False
        return True
