"""Kernels whose threads meet: as loops they give what fibres give, and what loops cannot follow is left to fibres."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hlo_opt.codegen.kernel import Kernel
from hlo_opt.codegen.lanes import as_loops, has_lanes, lanes_unit
from hlo_opt.codegen.statements import BLOCK, THREAD
from hlo_opt.codegen.tree import (
    Assign,
    Barrier,
    Block,
    BlockRange,
    Break,
    DeclaredArray,
    Fence,
    For,
    Leave,
    Let,
    Neighbours,
    Statement,
    StrideLoop,
)
from hlo_opt.ir import ELEMENT_TYPES, array
from hlo_opt.ir.index_map import Condition, Expression, Variable, add, constant, divide, modulo, multiply
from hlo_opt.ops.code import NOTHING, Code, FirstRound, Name, Shuffle, cell, code, of
from hlo_opt.plans.plan import Launch
from hlo_opt.runtime.host.library import HostLibrary, KernelForm, has_compiler
from tests.codegen.test_sort import CHAIN, TOTAL, sort, top
from tests.written_kernels import OnlySteps, of_tree

F32 = ELEMENT_TYPES["f32"]
AT, IN, OUT, BOX, TOTAL_OF = Name("i"), Name("in0"), Name("out0"), Name("box"), Name("total")
THREADS, BLOCKS = Variable(0, 63, THREAD.text), Variable(0, 3, BLOCK.text)


def index(name: str, template: str, *holes: Any, of: Expression | None = None, kind: str = "int") -> Let:
    """The declaration of an index."""
    return Let(kind, Name(name), code(template, *holes), is_index=True, expression=of)


def here(block: int = 64) -> Let:
    at = add(multiply(Variable(0, 15, BLOCK.text), block), Variable(0, block - 1, THREAD.text))
    return index("i", f"{{}} * {block} + {{}}", BLOCK, THREAD, of=at)


def put(value: Code, at: Name | Code = AT) -> Assign:
    return Assign(cell(OUT, at), value)


def shuffled(kind: str, register: Name, lane: Any) -> Code:
    return Code((Shuffle(kind, register, of(lane), ""),))


def kernel(symbol: str, body: Sequence[Statement], block: int = 64, size: int = 256) -> Kernel:
    shape = array(F32, size)
    return of_tree(symbol, body, Launch(size // block, block), [shape], [shape])


def mine(size: int = 64) -> DeclaredArray:
    return DeclaredArray("float", BOX, size, shared=True)


def folding() -> For:
    """The first thread of a warp gets the sum of all."""
    distance, other = Name("distance"), Name("other")
    loop = For("int", distance, code("16"), code("{} > 0", distance), code("{} /= 2", distance))
    loop.body += [
        Let("float", other, shuffled("down", TOTAL_OF, distance)),
        Assign(of(TOTAL_OF), code("{} + {}", TOTAL_OF, other)),
    ]
    return loop


def tree(size: int, last: int) -> list[Statement]:
    """Of each `size` threads the first `last` get sums of all, and show them to the others."""
    distance, other, lead, shown = Name("distance"), Name("other"), Name("lead"), Name("shown")
    test, step = code(f"{{}} >= {last}", distance), code("{} /= 2", distance)
    loop = For("int", distance, code(str(size // 2)), test, step, tree=(size, size // 2, last))
    loop.body += [
        Let("float", other, shuffled("down", TOTAL_OF, distance)),
        Assign(of(TOTAL_OF), code("{} + {}", TOTAL_OF, other)),
    ]
    within, lane = modulo(THREADS, 32), modulo(THREADS, size)
    leader = add(add(within, multiply(lane, -1)), modulo(lane, last))
    return [
        here(),
        Let("float", TOTAL_OF, cell(IN, AT), constant=False),
        loop,
        index("lane", f"{{}} % {size}", THREAD, of=lane),
        index("lead", f"{{0}} % 32 - lane + lane % {last}", THREAD, of=leader),
        Let("float", shown, shuffled("sync", TOTAL_OF, lead)),
        put(of(shown)),
    ]


def along() -> list[Statement]:
    """All threads walk the same rows, each its own column."""
    row, x = Name("row"), Name("x")
    walk = StrideLoop("int", row, constant(1), 4, 2)
    first = Code((FirstRound(row, 2),))
    walk.body += [
        Let("float", x, cell(IN, code("{} * 64 + {}", row, THREAD))),
        Assign(of(TOTAL_OF), code("{} ? {} : {} * 2 + {}", first, x, TOTAL_OF, x)),
    ]
    return [
        here(),
        mine(),
        Let("float", TOTAL_OF, code("0.0f"), constant=False),
        walk,
        Assign(cell(BOX, THREAD), of(TOTAL_OF)),
        Barrier(),
        put(cell(BOX, code("63 - {}", THREAD))),
    ]


def fold() -> list[Statement]:
    partial = Name("partial")
    store = Assign(cell(partial, code("{} / 32", THREAD)), of(TOTAL_OF))
    return [
        here(),
        Let("float", TOTAL_OF, cell(IN, AT), constant=False),
        folding(),
        DeclaredArray("float", partial, 2, shared=True),
        Block(code("{} % 32 == 0", THREAD), [store]),
        Barrier(),
        put(code("{} - {}", cell(partial, 0), cell(partial, 1))),
    ]


def walked(start: Expression, stride: int, end: int, counter: Name | None = None) -> list[Statement]:
    """Each thread sums every `stride`th element of its block's first ones, and shows the sum of another."""
    column, x, shown, lane = Name("column"), Name("x"), Name("shown"), Name("lane")
    walk = StrideLoop("int", column, Variable(start.low, start.high, "lane"), end, stride, counter)
    walk.body += [
        Let("float", x, cell(IN, code("{} * 64 + {}", BLOCK, column))),
        Assign(of(TOTAL_OF), code("{} + {} * (float)({} + 1)", TOTAL_OF, x, column)),
    ]
    return [
        here(),
        index("lane", "{} % 32" if start.high < 32 else "{}", THREAD, of=start),
        Let("float", TOTAL_OF, code("0.0f"), constant=False),
        walk,
        Let("float", shown, shuffled("sync", TOTAL_OF, code("({} + 5) % 32", lane))),
        put(of(shown)),
    ]


def vectors(size: int = 4, end: int = 11, counter: Name | None = None) -> list[Statement]:
    """A warp goes through rows of `size * end` elements, each thread taking `size` neighbours at a time."""
    vector, number, read, x = Name("vector"), Name("s0"), Name("read0"), Name("x")
    start = Variable(0, 31, "lane")
    at = add(multiply(Variable(0, end - 1, "vector"), size), Variable(0, size - 1, "s0"))
    place = [index(name, f"{{}} * {size} + {{}}", vector, number, of=at) for name in ("place", "place_2")]
    group = Neighbours(size, number, [DeclaredArray("float", read, size)])
    group.reading += [place[0], Assign(cell(read, number), cell(IN, place[0].name))]
    group.making += [
        place[1],
        Let("float", x, code("{} * {}", cell(read, number), place[1].name)),
        Assign(of(TOTAL_OF), code("{} + {}", TOTAL_OF, x)),
    ]
    # which thread takes which elements is left to the printer: only what the warp has together counts
    return [
        here(),
        index("lane", "{} % 32", THREAD, of=modulo(THREADS, 32)),
        Let("float", TOTAL_OF, code("0.0f"), constant=False),
        StrideLoop("int", vector, start, end, 32, counter, [group]),
        folding(),
        Block(code("{} % 32 == 0", THREAD), [put(of(TOTAL_OF))]),
    ]


def first_rounds() -> list[Statement]:
    """The first round assigns, the others add."""
    column, x = Name("column"), Name("x")
    walk = StrideLoop("int", column, THREADS, 150, 64)
    first = Code((FirstRound(column, 64),))
    walk.body += [
        Let("float", x, cell(IN, column)),
        Assign(of(TOTAL_OF), code("{} ? {} : {} + {}", first, x, TOTAL_OF, x)),
    ]
    return [
        here(),
        Let("float", TOTAL_OF, code("-7.0f"), constant=False),
        walk,
        mine(),
        Assign(cell(BOX, THREAD), of(TOTAL_OF)),
        Barrier(),
        put(cell(BOX, code("63 - {}", THREAD))),
    ]


def leaving(*says: Condition) -> list[Statement]:
    return [
        here(),
        mine(),
        Leave(Code(code("{} >= 40", THREAD).pieces, says=says)),
        Assign(cell(BOX, THREAD), cell(IN, AT)),
        Barrier(),
        put(cell(BOX, code("39 - {}", THREAD))),
    ]


def segments() -> list[Statement]:
    """Threads leave in one of two segments, and meet in both."""

    def part(name: str, first: int, last: int, leave: list[Statement]) -> BlockRange:
        box = Name(f"box_{name}")
        at = index(name, "{} * 64 + {}", BLOCK, THREAD, of=add(multiply(BLOCKS, 64), THREADS))
        meeting = [
            DeclaredArray("float", box, 64, shared=True),
            Assign(cell(box, THREAD), cell(IN, at.name)),
            Barrier(),
        ]
        return BlockRange(first, last, [at, *meeting, *leave, put(cell(box, code("63 - {}", THREAD)), at.name)])

    return [part("j", 0, 2, [Leave(code("{} % 3 == 1", THREAD))]), part("k", 2, 4, [])]


def banks() -> list[Statement]:
    """An array of each thread, filled before a meeting and read after it."""
    kept, k = Name("kept"), Name("k")

    def times(body: list[Statement]) -> For:
        return For("int", k, code("0"), code("{} < 3", k), code("++{}", k), "unroll", body)

    held = cell(kept, k)
    return [
        here(),
        DeclaredArray("float", kept, 3),
        mine(),
        times([Assign(held, code("{} * {}", cell(IN, AT), k))]),
        Assign(cell(BOX, THREAD), cell(kept, 2)),
        Barrier(),
        Let("float", TOTAL_OF, cell(BOX, code("{} ^ 1", THREAD)), constant=False),
        times([Assign(of(TOTAL_OF), code("{} + {}", TOTAL_OF, held))]),
        put(of(TOTAL_OF)),
    ]


BODIES: dict[str, list[Statement]] = {
    "fold": fold(),
    "bounded": walked(THREADS, 64, 77),
    "below_the_first": walked(THREADS, 64, 50),
    "of_a_warp": walked(modulo(THREADS, 32), 32, 77),
    "whole": walked(modulo(THREADS, 32), 32, 96),
    "counted": walked(THREADS, 64, 190, Name("round")),
    "vector": vectors(),
    "vector_whole": vectors(4, 64),
    "vector_short": vectors(2, 45),
    "vector_counted": vectors(4, 50, Name("round")),
    "first_rounds": first_rounds(),
    "leaves": leaving(),
    "the_first_stay": leaving(Condition(THREADS, 40, 63)),
    "tree": tree(32, 1),
    "trees_of_teams": tree(8, 1),
    "trees_side_by_side": tree(32, 8),
    "along": along(),
    "segments": segments(),
    "banks": banks(),
    "partial_warp": [
        here(50),
        mine(50),
        Assign(cell(BOX, THREAD), cell(IN, AT)),
        Barrier(),
        put(cell(BOX, code("({} + 7) % 50", THREAD))),
    ],
}
KERNELS = {name: kernel(name, body, *((50, 250) if name == "partial_warp" else ())) for name, body in BODIES.items()}


def run(library: HostLibrary, made: Kernel) -> np.ndarray[Any, Any]:
    size = made.inputs[0].element_count
    data = np.arange(size + 192, dtype=np.float32) % 17  # walks go on behind the last block's own elements
    out = np.full(size, -1, np.float32)
    library.launch(made, [data], [out])
    return np.nan_to_num(out, nan=-1.0)  # the plain form marks what nobody writes


@pytest.fixture(scope="module")
def libraries() -> dict[KernelForm, HostLibrary]:
    made = list(KERNELS.values())
    return {"lanes": HostLibrary(made), "plain": HostLibrary(made, form="plain")}


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("name", list(BODIES))
def test_loops_give_what_fibres_give(name: str, libraries: dict[KernelForm, HostLibrary]) -> None:
    made = KERNELS[name]
    assert as_loops(made) is not None
    np.testing.assert_array_equal(run(libraries["lanes"], made), run(libraries["plain"], made))


def forever(body: list[Statement]) -> For:
    return For("int", None, NOTHING, NOTHING, NOTHING, body=body)


def uniform(test: Code, step: str = "{} += 1", *, body: Sequence[Statement] = (Barrier(),)) -> For:
    k = Name("k")
    return For("int", k, code("0"), test, code(step, k), body=list(body))


K, X = Name("k"), Name("x")
READ = Let("float", X, cell(IN, 0), constant=False)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param([uniform(code("{} < {}", K, THREAD))], id="a loop that is another for each thread"),
        pytest.param([READ, Block(code("{} > 0.5f", X), [Barrier()])], id="a meeting under a thread's own condition"),
        pytest.param([READ, Block(code("{} > 0.5f", cell(IN, 0)), [Barrier()])], id="one under a condition of memory"),
        pytest.param([uniform(code("{} < 3", K), body=[Barrier(), Leave(code("{} > 2", THREAD))])],
            id="leaves in a loop"),
        pytest.param([Barrier(), Block(code("{} > 9", THREAD), [Leave(code("{} > 10", THREAD))])],
            id="leaves in a block"),
        pytest.param([READ, Let("float", Name("y"), code("{} + {}", shuffled("sync", X, 0), shuffled("sync", X, 1)))],
            id="two shuffles"),
        pytest.param([READ, put(shuffled("sync", X, 0), of(0))], id="a shuffle that is no declaration"),
        pytest.param([Let("float", Name("y"), shuffled("sync", X, 0))], id="a register that nobody declares"),
        pytest.param([StrideLoop("int", K, THREADS, 99, 64, body=[Barrier()])], id="a meeting in a walk"),
        pytest.param([forever([Barrier(), Break(code("{} == 0", THREAD))])], id="a loop without a counter"),
    ],
)  # fmt: skip
def test_what_loops_cannot_follow_is_left_to_fibres(body: list[Statement]) -> None:
    made = kernel("left", body)
    assert as_loops(made) is None and not has_lanes(made)


def text_of(name: str) -> str:
    found = as_loops(KERNELS[name])
    assert found is not None
    return found


def test_neighbours_stay_neighbours() -> None:
    """A walk runs around the threads, so that vectors load from one place; whole rounds are by themselves."""
    text = text_of("of_a_warp")
    assert "for (long long hlo_base0 = 0; hlo_base0 < 64; hlo_base0 += 32) {" in text
    assert "for (long long hlo_base0 = 64; hlo_base0 < 77; hlo_base0 += 32) {" in text
    assert "const long long column = lane + hlo_base0;" in text and "continue" not in text
    assert "77 - hlo_base0 - hlo_beside >= 32 ? 32 : 77 - hlo_base0 - hlo_beside" in text  # lanes of the last round
    whole = text_of("whole")
    assert "hlo_base0 < 96;" in whole and "hlo_whole = false" not in whole


def test_only_threads_that_have_an_element_walk() -> None:
    bounded = text_of("bounded")
    assert (
        "const long long hlo_live = 64;" in bounded and "hlo_first < hlo_live" in bounded and "continue" not in bounded
    )
    assert "hlo_live" not in text_of("of_a_warp")  # several threads of a block have the same element


def test_a_walk_with_a_counter_counts_its_rounds() -> None:
    text = text_of("counted")
    assert text.count("const int round = hlo_base0 / 64;") == 2


def test_a_vector_is_taken_element_by_element() -> None:
    text = text_of("vector_short")
    assert "for (int s0 = 0; s0 < 2; ++s0) {" in text and "read0[" not in text and "const float read0 = " in text
    assert "place = (hlo_base0 + hlo_piece) * 2 + s0 * (hlo_whole ||" in text  # what 64 threads take lies together


def test_what_the_threads_of_a_row_fold_is_theirs_to_its_end() -> None:
    """A row's threads have arrays of their own around the loop over its rounds."""
    text = text_of("of_a_warp")
    taken = text.index("total_here[hlo_lane] = total_of[hlo_team + hlo_lane];")
    assert text.index("float total_here[32];") < taken < text.index("hlo_base0 < 64;")
    assert text.index("hlo_base0 < 77;") < text.index("total_of[hlo_team + hlo_lane] = total_here[hlo_lane];")


def test_the_first_round_is_the_same_for_all_threads() -> None:
    text = text_of("first_rounds")
    assert "hlo_base0 == 0 ?" in text and "column < 64" not in text
    walk = StrideLoop(
        "int", Name("column"), Variable(0, 99, "lane"), 150, 64, body=[put(Code((FirstRound(Name("column"), 64),)))]
    )
    far = add(THREADS, divide(THREADS, 2))  # some start beyond the first thread's second element
    text = as_loops(kernel("far", [here(), index("lane", "{0} + {0} / 2", THREAD, of=far), walk, Barrier()])) or ""
    assert "column < 64" in text and "hlo_base0 == 0" not in text


def test_threads_that_left_stay_away() -> None:
    text = text_of("leaves")
    assert "{ hlo_left[hlo_thread] = 1; continue; }" in text and text.count("if (hlo_left[hlo_thread]) continue;") == 2
    first = text_of("the_first_stay")
    assert "hlo_left" not in first and "hlo_first < 40;" in first
    same = [
        here(),
        mine(),
        Leave(code("{} >= 3", BLOCK)),
        Assign(cell(BOX, THREAD), cell(IN, AT)),
        Barrier(),
        put(cell(BOX, 0)),
    ]
    text = as_loops(kernel("all_leave", same)) or ""
    assert "if (blockIdx.x >= 3) return;" in text and "hlo_left" not in text


def test_what_a_thread_keeps_lies_next_to_the_others() -> None:
    text = text_of("banks")
    assert "float kept_of[3][64];" in text and "kept_of[k][hlo_thread]" in text
    assert "float total_of[64];" in text_of("fold") and "distance_of" not in text_of("fold")


@pytest.mark.parametrize(
    ("divisor", "held", "lanes"),
    [(8, "float", 8), (16, "float", 16), (64, "float", 32), (4, "float", 32), (4, "double", 4), (2, "double", 32)],
)
def test_threads_that_go_through_a_row_together_go_side_by_side(divisor: int, held: str, lanes: int) -> None:
    way = index("way", f"{{}} / {divisor}", THREAD, of=divide(THREADS, divisor))
    read = Let(held, Name("x"), cell(IN, way.name))
    body = [here(), way, mine(), read, Assign(cell(BOX, THREAD), code("{}", read.name)), Barrier(), put(cell(BOX, 3))]
    text = as_loops(kernel(f"ways_{divisor}", body)) or ""
    assert f"hlo_first += {lanes})" in text.split("hlo_lane = 0")[0]
    if divisor == 8:  # the digits are those of a group of threads
        assert "const long long way = hlo_group;" in text


def test_a_fence_stays_between_what_it_is_between() -> None:
    text = as_loops(kernel("fenced", [here(), put(cell(IN, AT)), Fence(), Barrier(), put(of(2))])) or ""
    before, after = text.split("hlo::fence();")
    assert "in0[i]" in before and "= 2;" in after


# ---- networks as merges

TEXTS = {
    "one": sort("7,4096", along=1),
    "two": sort("7,100", ("f32", "s32"), along=1, compare=TOTAL),
    "short": sort("99,3", along=1),
    "warps": sort("99,64", along=1),
    "across": sort("100,70", ("s8", "s32")),
    "across_alone": sort("256,64", compare=TOTAL[:-17]),
    "narrow": sort("3,50", ("bf16", "f8e5m2", "u4"), along=1, compare=TOTAL),
    "chain": sort("5,70", ("s8", "f32", "s16"), along=1, compare=CHAIN),
    "top": top("9,130", 5, "bf16"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_every_network_becomes_merges(name: str, planner: Any) -> None:
    kernel = planner.kernel(TEXTS[name])
    text = as_loops(kernel)
    assert "kept_" in kernel.source or " ^ mask" in kernel.source  # steps of a network, in registers or memory
    assert (
        text is not None and len(re.findall(r"hlo::(?:merge_sort|sort_first)\(", text)) == 1 and " ^ mask" not in text
    )
    assert "position_low <" not in text and "position_high <" not in text  # merges keep equal elements in order


def test_the_header_comes_where_it_is_needed(planner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "void merge_runs(" in lanes_unit([planner.kernel(TEXTS["one"])])
    monkeypatch.setattr("hlo_opt.codegen.sort.Network", OnlySteps)
    unit = lanes_unit([planner.kernel(TEXTS["one"])])
    assert "merge" not in unit and " ^ mask" in unit


@pytest.mark.parametrize("length", [3, 4, 5, 7, 8, 9, 13, 17, 1023])
def test_merges_of_all_lengths_are_stable(length: int, tool: Any) -> None:
    generator = np.random.default_rng(length)
    for spread in (1, 4, 1 << 20):
        keys = generator.integers(0, spread, (5, length)).astype(np.int32)
        values = np.tile(np.arange(length, dtype=np.int32), (5, 1))
        got = tool.run(sort(f"5,{length}", ("s32", "s32"), along=1), [keys, values])
        order = np.argsort(keys, axis=1, kind="stable")
        np.testing.assert_array_equal(got[0], np.take_along_axis(keys, order, 1))
        np.testing.assert_array_equal(got[1], order)


def test_an_order_that_has_circles_loses_no_element(tool: Any) -> None:
    """Equal elements that are told apart all the same, and an order without an end: merges from both ends meet
    somewhere else."""
    circle = (
        "d = s32[] subtract(a0, b0)\nt = s32[] constant(3)\nz = s32[] constant(0)\nm = s32[] remainder(d, "
        "t)\ncompare(m, z), direction=GT"
    )
    values = np.random.default_rng(1).integers(0, 1000, (20, 501)).astype(np.int32)
    (found,) = tool.run(sort("20,501", along=1, compare=circle), [values])
    np.testing.assert_array_equal(np.sort(found, axis=1), np.sort(values, axis=1))
    nan = values.astype(np.float32)
    nan[:, ::3] = np.nan
    (found,) = tool.run(sort("20,501", ("f32",), along=1, compare="compare(a0, b0), direction=LT"), [nan])
    np.testing.assert_array_equal(np.sort(found, axis=1), np.sort(nan, axis=1))
