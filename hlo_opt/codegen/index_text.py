"""C++ texts of index expressions: 32-bit arithmetic where ranges allow, else 64-bit."""

from __future__ import annotations

from collections.abc import Callable

from hlo_opt.ir.index_map import Constant, Expression, Product, Quotient, Remainder, Sum, Variable
from hlo_opt.ops.code import Code, atom, code, of

_INT_LOW, _INT_HIGH = -(2**31) + 1, 2**31 - 1  # -2**31 is not an int literal in C++


def fits_int(expression: Expression) -> bool:
    """Whether every value of the expression is a 32-bit int."""
    return expression.low >= _INT_LOW and expression.high <= _INT_HIGH


def index_type(expression: Expression) -> str:
    """The C++ type of a variable for the expression."""
    return "int" if fits_int(expression) else "long long"


def integer_text(value: int) -> str:
    """An integer literal, valid as `int` or as `long long`."""
    if _INT_LOW <= value <= _INT_HIGH:
        return str(value)
    return f"{value}LL" if value > -(2**63) else "(-9223372036854775807LL - 1)"


def render(expression: Expression, digit: Callable[[Expression], Code]) -> Code:
    """An expression as C++. `digit` names the variable of a quotient or remainder."""
    match expression:
        case Constant():
            return atom(integer_text(expression.value))
        case Variable():
            return of(expression)
        case Sum(left=Product(factor=-1) as taken, right=Constant(value=start)) if fits_int(expression):
            return code("{} - {}", integer_text(start), _operand(taken.left, digit))
        case Sum():
            left = render(expression.left, digit)
            if not fits_int(expression) and fits_int(expression.left) and fits_int(expression.right):
                left = code("(long long)({})", left)
            right = expression.right
            if isinstance(right, Constant) and right.value < 0 and right.value > -(2**63):
                return code("{} - {}", left, integer_text(-right.value))
            if isinstance(right, Product) and right.factor == -1:
                return code("{} - {}", left, _operand(right.left, digit))
            return code("{} + {}", left, render(right, digit))
        case Product():
            left = _operand(expression.left, digit)
            wide = not fits_int(expression) and fits_int(expression.left)
            return code("(long long){} * {}" if wide else "{} * {}", left, integer_text(expression.factor))
        case _:
            return digit(expression)


def _operand(expression: Expression, digit: Callable[[Expression], Code]) -> Code:
    """As `render`, with sums in parentheses."""
    text = render(expression, digit)
    return code("({})", text) if isinstance(expression, Sum) else text


def digit_text(expression: Expression, inner: Code) -> Code:
    """A quotient or remainder of a named left side, rounding down as in HLO's index maps, where C++ truncates."""
    assert isinstance(expression, Quotient | Remainder)
    divisor = integer_text(expression.divisor)
    if expression.left.low >= 0:
        return code(f"{{}} {'/' if isinstance(expression, Quotient) else '%'} {divisor}", inner)
    rest = code(f"(({{}} % {divisor}) + {divisor}) % {divisor}", inner)
    return code(f"({{}} - {{}}) / {divisor}", inner, rest) if isinstance(expression, Quotient) else rest
