"""Where the nodes of a graph stand: in rows by their depth, operands above their readers, with few edges that cross.

This is the method of Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of Hierarchical System Structures"
(1981): longest paths give the layers, barycentres the order in each. Both are linear in the number of edges, so that
ten thousand nodes take a fraction of a second. The page turns rows into coordinates, because boxes grow when they are
opened.
"""

from __future__ import annotations

from collections.abc import Sequence

WIDEST = 20
"""The most nodes of a row. A larger layer takes several rows: its nodes do not read each other."""

SWEEPS = 4
"""How often the order of the rows is improved, in turn from above and from below. More sweeps change little."""


def rows_of(operands: Sequence[Sequence[int]]) -> list[list[int]]:
    """The rows, the first on top, of nodes by number. `operands` has the operands of each node; a node comes
    after its operands.

    A node without operands stands just above its first reader, not at the top.
    """
    readers: list[list[int]] = [[] for _ in operands]
    depth = [0] * len(operands)
    for node, above in enumerate(operands):
        for operand in above:
            readers[operand].append(node)
            depth[node] = max(depth[node], depth[operand] + 1)
    for node, above in enumerate(operands):
        if not above and readers[node]:
            depth[node] = max(0, min(depth[reader] for reader in readers[node]) - 1)
    layers: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for node, at in enumerate(depth):
        layers[at].append(node)
    _order(layers, operands, readers)
    return [layer[n : n + WIDEST] for layer in layers for n in range(0, len(layer), WIDEST)]


def _order(layers: list[list[int]], operands: Sequence[Sequence[int]], readers: Sequence[Sequence[int]]) -> None:
    """Sort the nodes of each layer, in place, by the mean place of their operands, or of their readers."""
    place = [0.0] * len(operands)
    for layer in layers:
        _place(layer, place)
    for sweep in range(SWEEPS):
        near = readers if sweep % 2 else operands
        for layer in reversed(layers) if sweep % 2 else layers:
            wanted = {n: sum(place[m] for m in near[n]) / len(near[n]) if near[n] else place[n] for n in layer}
            layer.sort(key=lambda n: wanted[n])
            _place(layer, place)


def _place(layer: Sequence[int], place: list[float]) -> None:
    """Set the place of each node in its layer, from -1 to 1: layers are centred above each other."""
    for number, node in enumerate(layer):
        place[node] = (2 * number + 1) / len(layer) - 1
