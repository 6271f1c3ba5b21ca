"""Expressions as pieces."""

from __future__ import annotations

import pytest

from hlo_opt.codegen.cuda import expression_text
from hlo_opt.ir.index_map import Variable, add, constant
from hlo_opt.ops.code import (
    NOTHING,
    Address,
    Cell,
    Code,
    FirstRound,
    Function,
    Name,
    PackedElement,
    Shuffle,
    address,
    atom,
    both,
    call,
    cell,
    code,
    joined,
    of,
)

A, B, X = Name("a"), Name("b"), Name("x")


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (code("{} * 2 + {}", A, B), "a * 2 + b"),
        (code("{0} < {1} ? {0} : {1}", A, B), "a < b ? a : b"),
        (code("({}) / {}", code("{} - {}", A, 3), "7LL"), "(a - 3) / 7LL"),
        (code("{{{}}}", A), "{a}"),
        (code("{} + {}", Variable(0, 9, "i"), constant(4)), "i + 4"),
        (cell(X, code("{} + 1", A)), "x[a + 1]"),
        (address(X, 3), "&x[3]"),
        (call("hlo_get<4>", X, A, 2), "hlo_get<4>(x, a, 2)"),
        (both(NOTHING, code("{} < 3", A), NOTHING, of(B)), "a < 3 && b"),
        (both(NOTHING, NOTHING), ""),
        (joined(", ", [of(A), of(B), atom("1.0f")]), "a, b, 1.0f"),
        (Code((FirstRound(A, 64),)), "a < 64"),
        (Code((FirstRound(A, 64, Name("k")),)), "k == 0"),
        (Code((PackedElement(4, X, of(A)),)), "hlo_get<4>(x, a)"),
        (Code((PackedElement(4, X, of(A), of(B), of(3)),)), "hlo_get<4>(x, b, 3)"),
        (Code((Shuffle("sync", A, of(B), ""),)), "__shfl_sync(0xffffffffu, a, b)"),
        (Code((Shuffle("down", A, of(16), "short"),)), "(short)__shfl_down_sync(0xffffffffu, (int)a, 16)"),
    ],
)
def test_what_is_printed(made: Code, text: str) -> None:
    assert expression_text(made) == text


def test_names_are_what_comes_through_holes() -> None:
    inner = cell(X, code("{} * {}", A, A))
    assert list(code("{} + {}", inner, B).names()) == [X, A, A, B]
    assert list(address(X, A).names()) == [X, A]
    assert set(Code((Shuffle("down", A, of(B), ""),)).names()) == {A, B}
    assert set(Code((PackedElement(2, X, of(A), of(B), of(Name("c"))),)).names()) == {X, A, B, Name("c")}
    assert list(Code((FirstRound(A, 64),)).names()) == [A]
    assert list(code("{} < 3 ? {} : {}", "2", 5, "1.5f").names()) == []


def test_functions_are_seen_in_templates_and_calls() -> None:
    made = code("fmaxf(hlo_round({}), (float)({})) + HLO_MOST", A, call("expf", cell(X, call("min", A, 2))))
    assert list(made.functions()) == ["fmaxf", "hlo_round", "expf", "min", "HLO_MOST"]
    assert list(Code((PackedElement(4, X, of(A)),)).functions()) == ["hlo_get"]
    assert code("sinf({})", A).pieces == (Function("sinf"), "(", A, ")")


def test_equal_pieces_make_equal_expressions() -> None:
    assert code("{} + {}", A, B) == code("{} + {}", A, B) and code("{} + {}", A, B) != code("{} + {}", B, A)
    assert hash(cell(X, A)) == hash(cell(Name("x"), Name("a")))
    assert Code((A,), True) == Code((A,)) and code("{}", A) != code("a()") and code("1") != 1
    assert len({code("f({})", A), call("f", A), code("f({})", B)}) == 2


def test_what_an_atom_is() -> None:
    assert of(A).is_atom and of(3).is_atom and atom("1.0f").is_atom and of(constant(2)).is_atom
    assert not code("{} + 1", A).is_atom and not cell(X, A).is_atom
    assert joined(" && ", [of(A)]).is_atom and not joined(" && ", [of(A), of(B)]).is_atom
    assert of(A).name == A and of(3).name is None and code("{} + 1", A).name is None and cell(X, A).name is None
    assert NOTHING.name is None and not NOTHING and code("0")


def test_no_text_is_made_in_passing() -> None:
    """Neither a name nor an expression gets into a text past the printer."""
    for made in (A, code("{} + 1", A), cell(X, A), NOTHING):
        with pytest.raises(TypeError, match="hole of a template"):
            f"{made}"
        with pytest.raises(TypeError, match="hole of a template"):
            str(made)


def test_what_is_no_hole() -> None:
    with pytest.raises(TypeError):
        of(add(Variable(0, 3, "i"), Variable(0, 3, "j")))
    with pytest.raises(IndexError):
        code("{} + {}", A)


def test_pieces_are_seen_inside_others() -> None:
    inner = Shuffle("sync", A, code("{} % 32", B), "")
    made = cell(X, Code((inner,)))
    assert list(made.parts())[:3] == [Cell(X, Code((inner,))), X, inner]
    assert Address(Cell(X, of(A))) in list(address(X, A).parts()) and Cell(X, of(A)) in list(address(X, A).parts())
