"""How the statements of a thread are printed for the host."""

from __future__ import annotations

import pytest

from hlo_opt.codegen.cuda import statement_lines
from hlo_opt.codegen.lanes_text import ThreadText, digits_in, index_names, inlined, places_of, variables_in
from hlo_opt.codegen.tree import Assign, Block, DeclaredArray, Do, Let, Neighbours, StrideLoop
from hlo_opt.ir.index_map import Expression, Variable, add, divide, modulo, multiply
from hlo_opt.ops.code import Code, FirstRound, Name, PackedElement, Shuffle, address, call, cell, code, of

IN, OUT, READ, MADE, ROW = Name("in0"), Name("out0"), Name("read0"), Name("made0"), Name("row")
THREAD, NUMBER, X = Name("thread"), Name("s0"), Name("x0")
NUMBER_OF, THREAD_OF = Variable(0, 3, "s0"), Variable(0, 99, "thread")
PLACE = add(multiply(THREAD_OF, 4), NUMBER_OF)


def place(name: str = "linear", expression: Expression | None = PLACE) -> Let:
    return Let("int", Name(name), code("{} * 4 + {}", THREAD, NUMBER), is_index=True, expression=expression)


def group() -> Neighbours:
    made = Neighbours(
        4, NUMBER, [DeclaredArray("float", READ, 4), DeclaredArray("float", MADE, 4)], guard=code("{} < 3", ROW)
    )
    made.reading += [place(), Assign(cell(READ, NUMBER), cell(IN, Name("linear")))]
    made.making += [
        place("linear_2"),
        Let("float", X, cell(READ, NUMBER)),
        Assign(cell(MADE, NUMBER), code("sinf({}) + {}", X, Name("linear_2"))),
    ]
    made.writing += [place("linear_3"), Assign(cell(OUT, Name("linear_3")), cell(MADE, NUMBER))]
    return made


def test_a_gpu_reads_all_neighbours_before_it_computes() -> None:
    assert (
        "\n".join(statement_lines([group()], ""))
        == """float read0[4];
float made0[4];
#pragma unroll
for (int s0 = 0; s0 < 4; ++s0) {
  const int linear = thread * 4 + s0;
  read0[s0] = in0[linear];
}
#pragma unroll
for (int s0 = 0; s0 < 4; ++s0) {
  const int linear_2 = thread * 4 + s0;
  const float x0 = read0[s0];
  made0[s0] = sinf(x0) + linear_2;
}
if (row < 3) {
  #pragma unroll
  for (int s0 = 0; s0 < 4; ++s0) {
    const int linear_3 = thread * 4 + s0;
    out0[linear_3] = made0[s0];
  }
}"""
    )


def test_the_host_takes_one_neighbour_after_the_other() -> None:
    assert (
        "\n".join(ThreadText().lines([group()]))
        == """for (int s0 = 0; s0 < 4; ++s0) {
const int linear = thread * 4 + s0;
const float read0 = in0[linear];
const int linear_2 = thread * 4 + s0;
const float x0 = read0;
const float made0 = sinf(x0) + linear_2;
if (row < 3) {
const int linear_3 = thread * 4 + s0;
out0[linear_3] = made0;
}
}"""
    )


def test_bytes_are_filled_behind_the_elements() -> None:
    """What shares bytes is gathered for all neighbours and stored once, under the condition of what is written."""
    made = group()
    made.bits.append(DeclaredArray("unsigned int", Name("bits"), 1))
    made.filling.append(Do(call("hlo_fill<4>", OUT, Name("bits"))))
    lines = list(ThreadText().lines([made]))
    assert lines[0] == "unsigned int bits[1];"
    assert lines[-4:] == ["}", "if (row < 3) {", "hlo_fill<4>(out0, bits);", "}"]
    made.guard = code("")
    assert list(ThreadText().lines([made]))[-2:] == ["}", "hlo_fill<4>(out0, bits);"]
    gpu = list(statement_lines([made], ""))
    assert gpu[0] == "unsigned int bits[1];" and gpu[-2:] == ["}", "hlo_fill<4>(out0, bits);"]


def test_elements_that_share_bytes_are_read_by_their_position() -> None:
    near = Code((PackedElement(4, IN, of(Name("linear")), code("{} * 4", THREAD), of(NUMBER)),))
    assert ThreadText().text(near) == "hlo_get<4>(in0, linear)"


def test_places_are_where_a_step_takes_neighbours() -> None:
    made = group()
    assert [p.name.text for p in places_of(made, THREAD)] == ["linear", "linear_2", "linear_3"]
    made.reading.clear()
    assert [p.name.text for p in places_of(made, THREAD)] == ["linear_2", "linear_3"]
    assert places_of(made, Name("other")) == []


@pytest.mark.parametrize(
    "expression",
    [
        None,
        add(multiply(THREAD_OF, 8), NUMBER_OF),
        add(add(multiply(THREAD_OF, 4), NUMBER_OF), Variable(0, 3, "row")),
        add(multiply(modulo(THREAD_OF, 8), 4), NUMBER_OF),
        multiply(THREAD_OF, 4),
        Variable(0, 3, "row"),
    ],
)
def test_what_is_no_place(expression: Expression | None) -> None:
    made = group()
    made.writing[0] = place("linear_3", expression)
    assert places_of(made, THREAD) == []


def test_a_variable_stands_for_another_place() -> None:
    """A digit of a thread's number is computed from what the number is here."""
    row = Let("int", ROW, code("{} / 8", THREAD), is_index=True, expression=divide(THREAD_OF, 8))
    here = add(multiply(Variable(0, 3, "group"), 32), Variable(0, 31, "lane"))
    assert ThreadText().let(row) == "const int row = thread / 8;"
    assert ThreadText({"thread": here}).let(row) == "const int row = group * 4 + ((lane) / 8);"
    assert ThreadText({"other": here}).let(row) == "const int row = thread / 8;"
    even = add(multiply(Variable(0, 12, "group"), 8), Variable(0, 7, "lane"))
    assert ThreadText({"thread": even}).let(row) == "const int row = group;"
    assert index_names(row) == {"thread"} and index_names(row, ["thread"]) == {"thread"}


def test_digits_without_variables() -> None:
    two = modulo(add(divide(THREAD_OF, 8), Variable(0, 9, "row")), 5)
    assert ThreadText().text(inlined(two)) == "(long long)((unsigned int)(((thread) / 8) + row) % 5)"
    assert {type(d).__name__ for d in digits_in(two)} == {"Remainder", "Quotient"} and digits_in(PLACE) == []
    assert sorted(v.name for v in variables_in(two)) == ["row", "thread"]


def test_functions_may_have_other_names() -> None:
    made = call("hlo_near_vector", call("atomicAdd", address(OUT, 0), of(1)))
    assert ThreadText().text(made) == "hlo::near_element(atomicAdd(&out0[0], 1))"
    assert ThreadText(functions={"atomicAdd": "mine"}).text(made) == "hlo::near_element(mine(&out0[0], 1))"


def test_threads_that_do_not_meet_read_no_registers_of_each_other() -> None:
    with pytest.raises(AssertionError):
        ThreadText().text(Code((Shuffle("sync", X, of(0), ""),)))


@pytest.mark.parametrize("end", [64, 70])
def test_a_walk_of_one_thread(end: int) -> None:
    walk = StrideLoop(
        "int", ROW, Variable(0, 31, "lane"), end, 32, None, [Do(code("f({})", Code((FirstRound(ROW, 32),))))]
    )
    lines = [f"for (int row = lane; row < {end}; row += 32) {{", "f(row < 32);", "}"]
    assert list(ThreadText().lines([walk])) == lines
    walk.counter = Name("round")
    found = list(ThreadText().lines([walk]))
    assert found[:2] == [
        f"for (int round = 0; round < {-(-end // 32)}; ++round) {{",
        "const int row = lane + round * 32;",
    ]
    assert (f"if (row < {end}) {{" in found) == (end == 70)  # the last round is not whole


def test_blocks_have_what_else_they_do() -> None:
    made = Block(of(X), [Do(call("f"))], [Do(call("g"))])
    assert list(ThreadText().lines([made])) == ["if (x0) {", "f();", "}", "else {", "g();", "}"]
    assert list(statement_lines([made], "")) == ["if (x0) {", "  f();", "}", "else {", "  g();", "}"]
