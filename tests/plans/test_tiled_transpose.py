"""Which arrays go through tiles."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import Expression
from hlo_opt.ops.lowering import Index
from hlo_opt.plans import tiled_transpose
from hlo_opt.plans.tiled_transpose import Tiles, TransposeFrame, index_in
from tests.small_modules import module_of, planned

TURNED, STRAIGHT = "f32[64,96]{0,1}", "f32[64,96]{1,0}"


def test_arrays_go_through_tiles_in_the_order_of_parameters() -> None:
    for _ in range(20):  # each time objects lie elsewhere in memory, and so would their order in a set
        made = planned(
            module_of(
                *(f"p{number} = {TURNED} parameter({number})" for number in range(4)),
                f"a = {STRAIGHT} add(p1, p0)",
                f"b = {STRAIGHT} multiply(p3, p2)",
                f"r = {STRAIGHT} subtract(b, a)",
            )
        )
        (part,) = (segment.part for segment in made.segments)
        assert isinstance(part, Tiles)
        assert [i.parameter_number for i in part.tiled] == [0, 1, 2, 3]


def test_a_transpose_that_simplification_left_as_a_view_goes_through_tiles() -> None:
    made = planned(
        module_of(
            "p = f32[8192,8192]{1,0} parameter(0)",
            "turned = f32[8192,8192]{0,1} bitcast(p)",
            "r = f32[8192,8192]{1,0} negate(turned)",
        )
    )
    assert [segment.part.kind for segment in made.segments] == ["tiled-transpose"]


def test_the_places_in_tiles_are_found_once_for_all_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Instruction] = []

    def counted(frame: TransposeFrame, tiled: Instruction, at: Sequence[Expression]) -> Index:
        asked.append(tiled)
        return index_in(frame, tiled, at)

    monkeypatch.setattr(tiled_transpose, "index_in", counted)
    made = planned(
        module_of(
            f"p = {STRAIGHT} parameter(0)",
            *(
                line
                for n in range(6)
                for line in (
                    f"m{n} = {STRAIGHT} {('negate', 'abs', 'tanh', 'cosine', 'sine', 'floor')[n]}(p)",
                    f"t{n} = f32[96,64]{{1,0}} transpose(m{n}), dimensions={{1,0}}",
                )
            ),
            f"r = ({', '.join(['f32[96,64]{1,0}'] * 6)}) tuple({', '.join(f't{n}' for n in range(6))})",
        )
    )
    (part,) = (segment.part for segment in made.segments)
    assert isinstance(part, Tiles) and len(part.roots) == 6
    assert len(asked) == len(set(asked)) == 6
