"""Roots, powers, exponentials, circular functions and rounding.

`ulp` is the larger of CUDA's documented error for f32 (CUDA C++ Programming Guide, "Mathematical Functions") and
glibc's error, plus 1 for the reference's rounding. Texts do not rely on `-use_fast_math`. With `-prec-div=false` and
`-prec-sqrt=false`, square roots and reciprocals are within 1 ULP by the same table, and narrow floats use cheaper
functions with errors below half an ULP of their type; `on_gpu` gives these in ULP of f32.
"""

from __future__ import annotations

from collections.abc import Mapping

from hlo_opt.ops import faces, numeric
from hlo_opt.ops.elementwise.arithmetic import every
from hlo_opt.ops.elementwise.declare import INTEGERS, REALS, CostClass, Meaning, elementwise


def in_double(function: str, operands: int = 1) -> str:
    """The template of a complex function that computes in double."""
    values = ", ".join(f"hlo_complex<double>({{{k}}})" for k in range(operands))
    return f"({{T}}){function}({values})"


def _function(
    opcode: str,
    meaning: str | Meaning,
    text: str,
    ulp: float,
    *,
    accepts: tuple[str, ...] = REALS,
    cost: CostClass = "always",
    complex_name: str = "",
    spread: faces.Spreading = faces.RISING,
    slow: bool = True,
    one_step: bool = True,
    narrow: Mapping[str, str] | None = None,
    on_gpu: Mapping[str, float] | None = None,
) -> None:
    """Declare a function of one real or complex number.

    meaning       the NumPy function, or its name
    text          C's name of it, or a C++ template
    complex_name  the kernel helper for complex numbers, if any
    narrow        C++ templates for narrow types, such as helpers of `codegen/device/approximate.cuh`
    """
    elementwise(
        opcode,
        1,
        (lambda call, x: getattr(call.np, meaning)(x)) if isinstance(meaning, str) else meaning,
        spread=spread,
        slow=slow,
        one_step=one_step,
        accepts=accepts,
        cuda={
            "float": text if "(" in text else f"{text}{{F}}({{0}})",
            **({"complex": in_double(complex_name)} if complex_name else {}),
            **(narrow or {}),
        },
        ulp=ulp,
        on_gpu=on_gpu,
        expensive=cost,
        precision="f64",
        attributes={"result_accuracy": False},
    )


_function("acos", "arccos", "acos", 3, spread=faces.FALLING, one_step=False)
_function("acosh", "arccosh", "acosh", 5, slow=False, one_step=False)
_function("asin", "arcsin", "asin", 3, one_step=False)
_function("asinh", "arcsinh", "asinh", 4, slow=False, one_step=False)
_function("atanh", "arctanh", "atanh", 4, slow=False, one_step=False)
_function("cbrt", "cbrt", "cbrt", 3, accepts=("float",), one_step=False)
_function("cosine", "cos", "cos", 3, cost="complex", complex_name="hlo_cosine", spread=faces.one("cosine"))
_function("cosh", "cosh", "cosh", 3, complex_name="hlo_hyperbolic_cosine", spread=faces.one("cosh"), slow=False)
_function("erf", numeric.error_function, "erf", 4, accepts=("float",), one_step=False)
_function(
    "exponential",
    "exp",
    "exp",
    3,
    complex_name="hlo_exponential",
    narrow=every("hlo_exp_narrow({0})", "bf16", "f16"),
    # the square of ex2.approx: 5 ULP; the rounding error of its argument grows with the argument, up to 128 in bf16, 25
    # in f16
    on_gpu={"bf16": 256, "f16": 64},
)
_function("exponential-minus-one", "expm1", "expm1", 3, complex_name="hlo_exponential_minus_one")
_function(
    "log",
    "log",
    "log",
    3,
    complex_name="hlo_logarithm",
    narrow={"bf16": "hlo_log_bf16({0})"},
    on_gpu={"bf16": 2.0**10},  # lg2.approx: 2^-22, for the smallest logarithm of 2^-8
)
_function("log-plus-one", numeric.log_plus_one, "log1p", 3, complex_name="hlo_logarithm_plus_one")
_function("sine", "sin", "sin", 3, cost="complex", complex_name="hlo_sine", spread=faces.one("sine"))
_function("sinh", "sinh", "sinh", 4, cost="complex", complex_name="hlo_hyperbolic_sine", slow=False)
_function(
    "sqrt",
    numeric.square_root,
    "sqrt",
    1,
    complex_name="hlo_positive_square_root",
    slow=False,
    one_step=False,
    on_gpu={"f32": 1},
)
_function("tan", "tan", "tan", 5, cost="complex", complex_name="hlo_tangent", spread=faces.one("tangent"))
_function(
    "tanh",
    "tanh",
    "tanh",
    4,
    complex_name="hlo_hyperbolic_tangent",
    narrow={"bf16": "hlo_tanh_bf16({0})"},
    on_gpu={"bf16": 2.0**13},  # tanh.approx: 2^-11 relative, at most a quarter of half an ULP of bf16
)
_function(
    "logistic",
    lambda call, x: numeric.reciprocal(call, 1 + call.np.exp(-x)),
    "({T})1 / (({T})1 + exp{F}(-({0})))",
    5,
    complex_name="hlo_logistic",
    one_step=False,
    narrow=every("hlo_logistic_narrow({0})", "bf16", "f16"),
    on_gpu={"f32": 1, "bf16": 264, "f16": 72},
)
_function(
    "rsqrt",
    lambda call, x: numeric.reciprocal(call, call.np.sqrt(x)),
    "hlo_rsqrt({0})",
    3,
    complex_name="hlo_reciprocal_square_root",
    spread=faces.FALLING,
    one_step=False,
    narrow={"f64": "1.0 / sqrt({0})"},
)
elementwise(
    "atan2",
    2,
    numeric.atan2,
    spread=faces.one("atan2", complex=faces.interval("complex_atan2")),
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
    ways="POWER",
    spread=faces.one("power", complex=faces.interval("complex_power")),
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

for _opcode, _meaning, _c in (
    ("ceil", lambda call, x: call.np.ceil(x), "ceil"),
    ("floor", lambda call, x: call.np.floor(x), "floor"),
    ("round-nearest-even", lambda call, x: call.np.rint(x), "rint"),
    ("round-nearest-afz", numeric.round_away, "round"),
):
    elementwise(
        _opcode,
        1,
        _meaning,
        spread=faces.STEPS,
        ways="ROUNDING",
        one_step=_opcode != "round-nearest-afz",
        accepts=("float",),
        cuda={"float": f"{_c}{{F}}({{0}})"},
    )
elementwise(
    "is-finite",
    1,
    lambda call, x: call.np.isfinite(x),
    one_step=True,
    ways="TRUTH",
    spread=faces.one("is_finite", decides=faces.always),
    accepts=("float",),
    result="pred",
    by=0,
    # infinity - infinity and NaN - NaN are NaN
    cuda={"float": "{0} - {0} == 0"},
)
