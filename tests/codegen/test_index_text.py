from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_opt.codegen.cuda import expression_text
from hlo_opt.codegen.index_text import digit_text, index_type, integer_text, render
from hlo_opt.ir.index_map import Expression, Quotient, Remainder, add, constant, divide, modulo, multiply, variable
from hlo_opt.ops.code import Code, Name, of

SIZES = {"i": 7, "j": 40, "k": 12}


@st.composite
def expressions(draw: st.DrawFn) -> tuple[Expression, str]:
    """An expression and the Python text with its meaning."""
    made: tuple[Expression, str] = (constant(0), "0")
    for _ in range(draw(st.integers(1, 6))):
        name = draw(st.sampled_from(sorted(SIZES)))
        factor = draw(st.integers(-5, 9))
        e = add(made[0], multiply(variable(name, SIZES[name]), factor))
        text = f"({made[1]} + {name} * {factor})"
        number = draw(st.integers(1, 9))
        choice = draw(st.sampled_from("+/%"))
        if choice == "+":
            made = add(e, constant(-number)), f"({text} - {number})"
        elif choice == "/":
            made = divide(e, number), f"({text} // {number})"
        else:
            made = modulo(e, number), f"({text} % {number})"
    return made


@settings(max_examples=200)
@given(made=expressions(), point=st.tuples(*(st.integers(0, s - 1) for s in SIZES.values())))
def test_text_has_the_expressions_value(made: tuple[Expression, str], point: tuple[int, ...]) -> None:
    names: dict[str, int] = dict(zip(SIZES, point, strict=True))

    def value(expression: Code) -> int:
        scope = {n: Number(v) for n, v in names.items()}
        return int(eval(expression_text(expression), {"__builtins__": {}}, scope))

    def digit(e: Expression) -> Code:
        assert isinstance(e, Quotient | Remainder)
        name = f"q{len(names)}"
        inner = value(render(e.left, digit))
        names["inner"] = inner
        names[name] = value(digit_text(e, of(Name("inner"))))
        return of(Name(name))

    assert value(render(made[0], digit)) == eval(made[1], {"__builtins__": {}}, dict(zip(SIZES, point, strict=True)))


class Number(int):
    """An int that divides as C's does."""

    def __add__(self, other: int) -> Number:
        return Number(int(self) + int(other))

    __radd__ = __add__

    def __sub__(self, other: int) -> Number:
        return Number(int(self) - int(other))

    def __rsub__(self, other: int) -> Number:
        return Number(int(other) - int(self))

    def __mul__(self, other: int) -> Number:
        return Number(int(self) * int(other))

    __rmul__ = __mul__

    def __truediv__(self, other: int) -> Number:
        size = abs(int(self)) // int(other)
        return Number(size if self >= 0 else -size)

    def __mod__(self, other: int) -> Number:
        return Number(int(self) - int(self / Number(other)) * int(other))


def no_digit(expression: Expression) -> Code:
    raise AssertionError(f"{expression} is a digit")


def test_types_follow_ranges() -> None:
    assert index_type(variable("i", 2**31)) == "int"
    assert index_type(variable("i", 2**31 + 1)) == "long long"
    wide = multiply(variable("i", 2**20), 2**20)
    assert expression_text(render(wide, no_digit)) == "(long long)i * 1048576"
    assert integer_text(-(2**63)) == "(-9223372036854775807LL - 1)"
