"""Threads that do nothing: the loop over threads ends behind the last that does anything, and results stay the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlo_opt.codegen.kernel import Kernel
from hlo_opt.codegen.lanes import as_loops
from hlo_opt.codegen.lanes_alive import threads_in
from hlo_opt.codegen.statements import BLOCK, THREAD
from hlo_opt.codegen.tree import Assign, Barrier, Block, For, Let, Statement
from hlo_opt.ir.index_map import Condition, Expression, Variable, divide, modulo
from hlo_opt.ops.code import NOTHING, Code, Name, cell, code, of
from hlo_opt.runtime.host.library import HostLibrary, KernelForm, has_compiler
from tests.codegen.test_lanes_blocks import THREADS, TOTAL_OF, index, kernel, mine, run, shuffled

OUT, IN, ELEMENT, WAY, OTHER = Name("out0"), Name("in0"), Name("element"), Name("way"), Name("other")


def says(text: Code, *conditions: Condition) -> Code:
    return Code(text.pieces, says=conditions)


def team(ways: int, elements: int, reader: int | None = None) -> list[Statement]:
    """The 64 threads of a block in teams of `ways`, the first `elements` of which sum what each thread doubles. Thread
    `reader` shows what it doubled, too."""
    element, way = Variable(0, 64 // ways - 1, "element"), Variable(0, ways - 1, "way")
    inside = Condition(element, 0, elements - 1)
    distance = Name("distance")
    fold = For("int", distance, code(str(ways // 2)), code("{} >= 1", distance), code("{} /= 2", distance))
    fold.tree = (ways, ways // 2, 1)
    fold.body += [
        Let("float", OTHER, shuffled("down", TOTAL_OF, distance)),
        Assign(of(TOTAL_OF), code("{} + {}", TOTAL_OF, OTHER)),
    ]
    first = says(code("{} == 0 && {} < {}", WAY, ELEMENT, elements), Condition(way, 0, 0), inside)
    body: list[Statement] = [
        index("element", f"{{}} / {ways}", THREAD, of=divide(THREADS, ways)),
        index("way", f"{{}} % {ways}", THREAD, of=modulo(THREADS, ways)),
        Let("float", TOTAL_OF, code("0.0f"), constant=False),
        Block(
            says(code("{} < {}", ELEMENT, elements), inside),
            [Assign(of(TOTAL_OF), code("{} * 2", cell(IN, code("{} * 64 + {}", BLOCK, THREAD))))],
        ),
        fold,
        Block(first, [Assign(cell(OUT, code("{} * 64 + {}", BLOCK, ELEMENT)), of(TOTAL_OF))]),
    ]
    if reader is not None:
        body += [
            mine(),
            Assign(cell(Name("box"), THREAD), of(TOTAL_OF)),
            Barrier(),
            Block(
                code("{} == 0", THREAD),
                [Assign(cell(OUT, code("{} * 64 + 63", BLOCK)), cell(Name("box"), code(str(reader))))],
            ),
        ]
    return body


FORMS = [(2, 5, None), (4, 1, None), (4, 16, None), (8, 3, None), (16, 2, None), (32, 1, None), (4, 3, 60), (16, 1, 48)]


@pytest.fixture(scope="module")
def libraries() -> dict[KernelForm, HostLibrary]:
    made = [kernel(f"few_{w}_{n}_{r or 0}", team(w, n, r)) for w, n, r in FORMS]
    return {"lanes": HostLibrary(made), "plain": HostLibrary(made, form="plain")}


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize(("ways", "elements", "reader"), FORMS)
def test_results_are_those_of_all_threads(
    ways: int, elements: int, reader: int | None, libraries: dict[KernelForm, HostLibrary]
) -> None:
    made = kernel(f"few_{ways}_{elements}_{reader or 0}", team(ways, elements, reader))
    np.testing.assert_array_equal(run(libraries["lanes"], made), run(libraries["plain"], made))


def text_of(made: Kernel) -> str:
    text = as_loops(made)
    assert text is not None
    return text


def test_loops_end_behind_the_last_thread_that_counts() -> None:
    text = text_of(kernel("few", team(4, 3)))
    assert text.count("hlo_first < 32;") == 2 and "hlo_first < 64" not in text
    assert "hlo_lane < 10;" in text and "hlo_lane < 11;" in text  # twelve threads fold, two and one behind them


def test_what_any_thread_shows_keeps_all_alive() -> None:
    text = text_of(kernel("shown", team(4, 3, reader=60)))
    assert "hlo_first < 64;" in text and "hlo_lane < 62;" in text


def test_large_teams_fold_one_after_the_other() -> None:
    text = text_of(kernel("large", team(16, 2)))
    assert "for (long long hlo_team = 0; hlo_team < 32; hlo_team += 16) {" in text


@pytest.mark.parametrize(
    ("expression", "low", "high", "threads"),
    [
        (divide(THREADS, 4), 0, 2, 12),
        (modulo(THREADS, 16), 0, 3, 52),
        (divide(THREADS, 4), 99, 100, 0),
        (Variable(0, 7, "round"), 0, 3, 64),
    ],
)
def test_the_last_thread_of_a_condition(expression: Expression, low: int, high: int, threads: int) -> None:
    condition: Any = says(code("x"), Condition(expression, low, high))
    assert threads_in(condition, {}, 64) == threads
    assert threads_in(code("x"), {}, 64) == 64 and threads_in(NOTHING, {}, 64) == 64
