"""C++ texts of index expressions: 32-bit arithmetic where the known ranges allow it, 64-bit where they do not."""

from __future__ import annotations

from collections.abc import Callable

from hlo_opt.ir.index_map import Constant, Expression, Product, Quotient, Remainder, Sum, Variable

_INT_LOW, _INT_HIGH = -(2**31) + 1, 2**31 - 1  # -2**31 itself is no int literal in C++


def fits_int(expression: Expression) -> bool:
    """Whether every value of the expression is a 32-bit int."""
    return expression.low >= _INT_LOW and expression.high <= _INT_HIGH


def index_type(expression: Expression) -> str:
    """The C++ type of a variable that holds the expression's value."""
    return "int" if fits_int(expression) else "long long"


def integer_text(value: int) -> str:
    """An integer literal that is right as an `int` or as a `long long`."""
    if _INT_LOW <= value <= _INT_HIGH:
        return str(value)
    return f"{value}LL" if value > -(2**63) else "(-9223372036854775807LL - 1)"


def render(expression: Expression, digit: Callable[[Expression], str]) -> str:
    """The text of an expression. `digit` gives the name of a variable that holds a quotient or a remainder."""
    match expression:
        case Constant():
            return integer_text(expression.value)
        case Variable():
            return expression.name
        case Sum(left=Product(factor=-1) as taken, right=Constant(value=start)) if fits_int(expression):
            inner = render(taken.left, digit)
            return f"{integer_text(start)} - {f'({inner})' if isinstance(taken.left, Sum) else inner}"
        case Sum():
            left = render(expression.left, digit)
            if not fits_int(expression) and fits_int(expression.left) and fits_int(expression.right):
                left = f"(long long)({left})"
            right = expression.right
            if isinstance(right, Constant) and right.value < 0 and right.value > -(2**63):
                return f"{left} - {integer_text(-right.value)}"
            if isinstance(right, Product) and right.factor == -1:
                inner = render(right.left, digit)
                return f"{left} - ({inner})" if isinstance(right.left, Sum) else f"{left} - {inner}"
            return f"{left} + {render(right, digit)}"
        case Product():
            left = render(expression.left, digit)
            if isinstance(expression.left, Sum):
                left = f"({left})"
            if not fits_int(expression) and fits_int(expression.left):
                left = f"(long long){left}"
            return f"{left} * {integer_text(expression.factor)}"
        case _:
            return digit(expression)


def digit_text(expression: Expression, inner: str) -> str:
    """The text of a quotient or remainder whose left side has the given name; rounds down as HLO's index maps do, where C++ truncates."""
    assert isinstance(expression, Quotient | Remainder)
    divisor = integer_text(expression.divisor)
    if expression.left.low >= 0:
        return f"{inner} {'/' if isinstance(expression, Quotient) else '%'} {divisor}"
    rest = f"(({inner} % {divisor}) + {divisor}) % {divisor}"
    return f"({inner} - {rest}) / {divisor}" if isinstance(expression, Quotient) else rest
