"""Roots, powers, exponentials, circular functions and rounding.

`ulp` is what CUDA's libdevice documents for f32 or what glibc needs, whichever is larger, plus one for the rounding of the reference
(CUDA C++ Programming Guide, "Mathematical Functions"). Texts without `-use_fast_math`; `/` and `sqrt` are IEEE.
"""

from __future__ import annotations

from hlo_opt.ops import numeric
from hlo_opt.ops.elementwise.arithmetic import every
from hlo_opt.ops.elementwise.declare import INTEGERS, REALS, elementwise
from hlo_opt.ops.spreading import FALLING, RISING, STEPS, Spreading, always, interval, one


def in_double(function: str, operands: int = 1) -> str:
    """The template of a function of complex numbers that is computed in double."""
    values = ", ".join(f"hlo_complex<double>({{{k}}})" for k in range(operands))
    return f"({{T}}){function}({values})"


_ACCURACY = {"result_accuracy": False}


def _function(
    opcode: str,
    numpy_name: str,
    c_name: str,
    ulp: float,
    *,
    cost: str = "",
    complex_name: str = "",
    spread: Spreading = RISING,
    slow: bool = True,
    one_step: bool = True,
) -> None:
    """A function of one real or complex number that NumPy and C both have; `complex_name` is the kernels' helper for complex numbers, where there is one."""
    elementwise(
        opcode,
        1,
        lambda call, x: getattr(call.np, numpy_name)(x),
        spread=spread,
        slow=slow,
        one_step=one_step,
        accepts=REALS,
        cuda={"float": f"{c_name}{{F}}({{0}})", **({"complex": in_double(complex_name)} if complex_name else {})},
        ulp=ulp,
        expensive="complex" if cost == "cheap" else "always",
        precision="f64",
        attributes=_ACCURACY,
    )


_function("acos", "arccos", "acos", 3, spread=FALLING, one_step=False)
_function("acosh", "arccosh", "acosh", 5, slow=False, one_step=False)
_function("asin", "arcsin", "asin", 3, one_step=False)
_function("asinh", "arcsinh", "asinh", 4, slow=False, one_step=False)
_function("atanh", "arctanh", "atanh", 4, slow=False, one_step=False)
_function("cosine", "cos", "cos", 3, cost="cheap", complex_name="hlo_cosine", spread=one("cosine"))
_function("cosh", "cosh", "cosh", 3, complex_name="hlo_hyperbolic_cosine", spread=one("cosh"), slow=False)
_function("exponential", "exp", "exp", 3, complex_name="hlo_exponential")
_function("exponential-minus-one", "expm1", "expm1", 3, complex_name="hlo_exponential_minus_one")
_function("log", "log", "log", 3, complex_name="hlo_logarithm")
_function("sine", "sin", "sin", 3, cost="cheap", complex_name="hlo_sine", spread=one("sine"))
_function("sinh", "sinh", "sinh", 4, cost="cheap", complex_name="hlo_hyperbolic_sine", slow=False)
_function("tan", "tan", "tan", 5, cost="cheap", complex_name="hlo_tangent", spread=one("tangent"))
_function("tanh", "tanh", "tanh", 4, complex_name="hlo_hyperbolic_tangent")

elementwise(
    "log-plus-one",
    1,
    numeric.log_plus_one,
    one_step=True,
    spread=RISING,
    slow=True,
    accepts=REALS,
    cuda={"float": "log1p{F}({0})", "complex": in_double("hlo_logarithm_plus_one")},
    ulp=3,
    expensive="always",
    precision="f64",
    attributes=_ACCURACY,
)
elementwise(
    "cbrt",
    1,
    lambda call, x: call.np.cbrt(x),
    spread=RISING,
    slow=True,
    accepts=("float",),
    cuda={"float": "cbrt{F}({0})"},
    ulp=3,
    expensive="always",
    precision="f64",
    attributes=_ACCURACY,
)
elementwise(
    "erf",
    1,
    numeric.error_function,
    spread=RISING,
    slow=True,
    accepts=("float",),
    cuda={"float": "erf{F}({0})"},
    ulp=4,
    expensive="always",
    precision="f64",
    attributes=_ACCURACY,
)
elementwise(
    "logistic",
    1,
    numeric.logistic,
    spread=RISING,
    slow=True,
    accepts=REALS,
    cuda={"float": "({T})1 / (({T})1 + exp{F}(-({0})))", "complex": in_double("hlo_logistic")},
    ulp=5,
    expensive="always",
    precision="f64",
    attributes=_ACCURACY,
)
elementwise(
    "sqrt",
    1,
    numeric.square_root,
    spread=RISING,
    accepts=REALS,
    cuda={"float": "sqrt{F}({0})", "complex": in_double("hlo_positive_square_root")},
    ulp=1,
    expensive="always",
    precision="f64",
    attributes=_ACCURACY,
)
elementwise(
    "rsqrt",
    1,
    numeric.reciprocal_square_root,
    spread=FALLING,
    slow=True,
    accepts=REALS,
    cuda={"float": "({T})1 / sqrt{F}({0})", "complex": in_double("hlo_reciprocal_square_root")},
    ulp=3,
    expensive="always",
    precision="f64",
    attributes=_ACCURACY,
)
elementwise(
    "atan2",
    2,
    numeric.atan2,
    spread=one("atan2", complex=interval("complex_atan2")),
    slow=True,
    accepts=REALS,
    cuda={"float": "atan2{F}({0}, {1})", "complex": in_double("hlo_complex_atan2", 2)},
    ulp=4,
    expensive="always",
    precision="f64",
)
elementwise(
    "power",
    2,
    numeric.power,
    spread=one("power", complex=interval("complex_power")),
    slow=True,
    accepts=(*INTEGERS, *REALS),
    cuda={
        "float": "pow{F}({0}, {1})",
        "complex": in_double("hlo_complex_power", 2),
        **every("hlo_power<{T}>({0}, {1})", *INTEGERS),
    },
    ulp=9,
    expensive="always",
    precision="f64",
)

for _opcode, _name, _c in (
    ("ceil", "ceil", "ceil"),
    ("floor", "floor", "floor"),
    ("round-nearest-even", "rint", "rint"),
):
    elementwise(
        _opcode,
        1,
        lambda call, x, name=_name: getattr(call.np, name)(x),
        spread=STEPS,
        ways="ROUNDING",
        one_step=True,
        accepts=("float",),
        cuda={"float": f"{_c}{{F}}({{0}})"},
    )
elementwise(
    "round-nearest-afz",
    1,
    numeric.round_away,
    ways="ROUNDING",
    spread=STEPS,
    accepts=("float",),
    cuda={"float": "round{F}({0})"},
)
elementwise(
    "is-finite",
    1,
    lambda call, x: call.np.isfinite(x),
    one_step=True,
    ways="TRUTH",
    spread=one("is_finite", decides=always),
    accepts=("float",),
    result="pred",
    by=0,
    # infinity minus itself and NaN minus itself are NaN
    cuda={"float": "{0} - {0} == 0"},
)
