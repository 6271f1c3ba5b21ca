"""Rows of a graph: operands above readers, everything once, few crossings, quickly."""

from __future__ import annotations

import random
import time

import pytest

from hlo_opt.report.view.layers import WIDEST, rows_of


@pytest.mark.parametrize("seed", range(60))
def test_every_node_once_and_below_its_operands(seed: int) -> None:
    draw = random.Random(seed)
    operands = [sorted(draw.sample(range(n), min(n, draw.randrange(4)))) for n in range(seed)]
    rows = rows_of(operands)
    row_of = {node: n for n, row in enumerate(rows) for node in row}
    assert sorted(node for row in rows for node in row) == list(range(len(operands)))
    assert all(row_of[o] < row_of[n] for n, above in enumerate(operands) for o in above)
    assert all(0 < len(row) <= WIDEST for row in rows)


def test_what_reads_nothing_stands_just_above_its_reader() -> None:
    # a chain 0 -> 1 -> 2 -> 4, and 3 that only 4 reads
    rows = rows_of([[], [0], [1], [], [2, 3]])
    assert rows == [[0], [1], [2, 3], [4]]


def test_crossings_are_taken_out() -> None:
    # two chains side by side, given crosswise: 0 -> 3, 1 -> 2
    rows = rows_of([[], [], [1], [0], [2], [3]])
    places = [row.index for row in rows]
    assert places[0](0) == places[1](3) == places[2](5)


def test_time_is_linear() -> None:
    def seconds(size: int) -> float:
        draw = random.Random(1)
        operands = [[draw.randrange(max(0, n - 40), n) for _ in range(2)] if n else [] for n in range(size)]
        started = time.process_time()
        rows_of(operands)
        return time.process_time() - started

    assert seconds(20_000) < 10 * max(seconds(5_000), 0.01)
