"""Shardings as tilings."""

from __future__ import annotations

import pytest

from hlo_opt.evaluate.devices import Tiling, tiling


@pytest.mark.parametrize(
    ("text", "counts", "tiles"),
    [
        ("{replicated}", (1, 1), (0, 0, 0, 0)),
        ("{maximal device=2}", (1, 1), (0, 0, 0, 0)),
        ("{devices=[2,2]<=[4]}", (2, 2), (0, 1, 2, 3)),
        ("{devices=[2,2]<=[2,2]T(1,0)}", (2, 2), (0, 2, 1, 3)),
        ("{devices=[1,4]3,2,1,0}", (1, 4), (3, 2, 1, 0)),
        ("{devices=[2,1,2]<=[4] last_tile_dim_replicate}", (2, 1), (0, 0, 1, 1)),
        ("{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}", (1, 2), (0, 1, 0, 1)),
        ("{devices=[2,1,1,2]<=[4] last_tile_dims={manual, replicated}}", (2, 1), (0, 0, 1, 1)),
        ("{mesh['x'=2,'y'=2] [{'x'}, {'y'}]}", (2, 2), (0, 1, 2, 3)),
        ("{mesh['x'=2,'y'=2], [{'y'}, {'x'}]}", (2, 2), (0, 2, 1, 3)),
        ("{mesh['x'=2,'y'=2] [{}, {'y'}], replicated={'x'}}", (1, 2), (0, 1, 0, 1)),
        ("{mesh['x'=2,'y'=2] [{'y', 'x'}, {}]}", (4, 1), (0, 2, 1, 3)),
    ],
)
def test_forms(text: str, counts: tuple[int, ...], tiles: tuple[int, ...]) -> None:
    found = tiling(text, 2, 4)
    assert found == Tiling(counts, tiles)
    assert found.place(0) == (found.tiles[0] // counts[1], found.tiles[0] % counts[1])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{manual}",
        "{unknown shard_as 1}",
        "{devices=[4]<=[4]}",
        "{devices=[2,4]<=[8]}",
        "{devices=[2,2]0,1,2,2}",
        "{devices=[2,2]<=[2,2]T(0,0)}",
        "{mesh['x'=4] [{'x':(1)2}, {'x':(2)2}]}",
        "{mesh['x'=4] [{'y'}, {}]}",
        "{mesh['x'=4] [{'x'}, {'x'}]}",
        "{mesh['x'=8] [{'x'}, {}]}",
    ],
)
def test_what_does_not_cut_the_array_or_does_not_fit(text: str) -> None:
    assert tiling(text, 2, 4) is None
