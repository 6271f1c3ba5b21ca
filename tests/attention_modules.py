"""Modules of attention: a product of queries and keys, its softmax, and the product of that with values."""

from __future__ import annotations

CALLED = """
largest {{
  a = {s}[] parameter(0)
  b = {s}[] parameter(1)
  ROOT c = {s}[] maximum(a, b)
}}

sum {{
  a = {s}[] parameter(0)
  b = {s}[] parameter(1)
  ROOT c = {s}[] add(a, b)
}}
"""
SCALED = ("f = {s}[] constant(0.25)", "g = {w} broadcast(f), dimensions={{}}", "x = {w} multiply(d, g)")
MASKED = (
    "n = s32[2] parameter(3)",
    "i = s32[2,3,{rows},{keys}] iota(), iota_dimension=3",
    "m = s32[2,3,{rows},{keys}] broadcast(n), dimensions={{0}}",
    "p = pred[2,3,{rows},{keys}] compare(i, m), direction=LT",
    "o = {s}[] constant({least})",
    "l = {w} broadcast(o), dimensions={{}}",
    "x = {w} select(p, d, l)",
)
CAUSAL = (
    "i = s32[{rows},{keys}] iota(), iota_dimension=0",
    "j = s32[{rows},{keys}] iota(), iota_dimension=1",
    "c = pred[{rows},{keys}] compare(i, j), direction=GE",
    "p = pred[2,3,{rows},{keys}] broadcast(c), dimensions={{2,3}}",
    "o = {s}[] constant({least})",
    "l = {w} broadcast(o), dimensions={{}}",
    "x = {w} select(p, d, l)",
)
LATE = (
    "n = {t}[2,3,{rows}] convert(total)",
    "m = {t}[2,3,{rows},{columns}] broadcast(n), dimensions={{0,1,2}}",
    "ROOT y = {t}[2,3,{rows},{columns}] divide(r, m)",
)
"""What comes after the product with values where the weights are not divided by their sum before it."""


def attention(
    keys: int,
    depth: int = 16,
    columns: int = 0,
    *,
    rows: int = 1,
    t: str = "f32",
    s: str = "f32",
    scores: tuple[str, ...] = SCALED,
    least: str = "-inf",
    after: tuple[str, ...] = (),
) -> str:
    """Queries of three heads with rows each, keys and values with all heads beside each other. `t` and `s` are the
    types of these and of the scores, `scores` makes x of the product d, and `after` the result of the product r."""
    lines = [
        "q = {t}[2,3,{rows},{depth}] parameter(0)",
        "k = {t}[2,{keys},3,{depth}] parameter(1)",
        "v = {t}[2,{keys},3,{columns}] parameter(2)",
        "d = {w} dot(q, k), lhs_batch_dims={{0,1}}, rhs_batch_dims={{0,2}}, lhs_contracting_dims={{3}}, "
        "rhs_contracting_dims={{3}}",
        *scores,
        "lowest = {s}[] constant(-inf)",
        "zero = {s}[] constant(0)",
        "top = {s}[2,3,{rows}] reduce(x, lowest), dimensions={{3}}, to_apply=largest",
        "tops = {w} broadcast(top), dimensions={{0,1,2}}",
        "less = {w} subtract(x, tops)",
        "e = {w} exponential(less)",
        "total = {s}[2,3,{rows}] reduce(e, zero), dimensions={{3}}, to_apply=sum",
        *(
            ["weight = {w} copy(e)"]
            if after == LATE
            else ["totals = {w} broadcast(total), dimensions={{0,1,2}}", "weight = {w} divide(e, totals)"]
        ),
        *(["u = {t}[2,3,{rows},{keys}] convert(weight)"] if s != t else []),
        f"{'' if after else 'ROOT '}r = {{t}}[2,3,{{rows}},{{columns}}] dot({'u' if s != t else 'weight'}, v), "
        "lhs_batch_dims={{0,1}}, rhs_batch_dims={{0,2}}, lhs_contracting_dims={{3}}, rhs_contracting_dims={{1}}",
        *after,
    ]
    sizes = {"keys": keys, "depth": depth, "columns": columns or depth, "rows": rows, "t": t, "s": s, "least": least}
    sizes["w"] = f"{s}[2,3,{rows},{keys}]"
    body = "\n  ".join(line.format(**sizes) for line in lines)
    return f"HloModule m\n{CALLED.format(s=s)}\nENTRY e {{\n  {body}\n}}\n"
