"""The function of NumPy and of CuPy that computes an elementwise operation, on types that CuPy holds."""

from __future__ import annotations

FUNCTIONS = {
    "abs": "abs",
    "add": "add",
    "and": "bitwise_and",
    "complex": "pair",
    "cosine": "cos",
    "divide": "divide",
    "exponential": "exp",
    "exponential-minus-one": "expm1",
    "imag": "imag",
    "log": "log",
    "logistic": "logistic",
    "maximum": "maximum",
    "minimum": "minimum",
    "multiply": "multiply",
    "negate": "negative",
    "not": "invert",
    "or": "bitwise_or",
    "power": "power",
    "real": "real",
    "select": "where",
    "sine": "sin",
    "sqrt": "sqrt",
    "subtract": "subtract",
    "tanh": "tanh",
    "xor": "bitwise_xor",
}
"""By opcode. `hlo_opt.library` has `logistic` itself, and `pair`, which makes complex numbers."""

NOT_COMPLEX = frozenset({"exponential-minus-one", "logistic", "maximum", "minimum", "select"})
"""Those of them that are no functions of complex numbers there."""

COMPARISONS = {
    "EQ": "equal",
    "GE": "greater_equal",
    "GT": "greater",
    "LE": "less_equal",
    "LT": "less",
    "NE": "not_equal",
}
"""By direction."""
