"""Values with bounds, and modules run on them."""

import ml_dtypes
import numpy as np

import hlo_opt
from hlo_opt.evaluate import Interpreter
from hlo_opt.ops.spread import leaves
from hlo_opt.ops.values import HIGH, LANES, LOW, Spread
from hlo_opt.runtime.rounding.analysis import SpreadInterpreter

REDUCERS = "".join(
    f"{name} {{\n  x = {t}[] parameter(0)\n  y = {t}[] parameter(1)\n  ROOT z = {t}[] {op}(x, y)\n}}\n\n"
    for op, name, t in [
        *((op, f"{op}_{t}", t) for op in ("add", "maximum", "minimum", "multiply") for t in ("f32", "bf16", "s32")),
        ("multiply", "multiply_c64", "c64"),
        ("and", "and_pred", "pred"),
        ("or", "or_pred", "pred"),
    ]
)
DTYPES = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "s32": np.int32}


def parsed(body: str, *computations: str) -> hlo_opt.ir.Module:  # type: ignore[name-defined]
    return hlo_opt.parse(f"HloModule m\n\n{REDUCERS}{''.join(computations)}ENTRY e {{\n{body}\n}}\n")


def spread(rng: np.random.Generator, value: np.ndarray, radius: float) -> Spread:  # type: ignore[type-arg]
    """Bounds around a value, as wide as a part of each element; a fifth of the elements is certain."""
    wide = value.astype(np.float64)
    far = np.abs(wide) * radius * (rng.random(value.shape) > 0.2)
    if value.dtype.kind in "iu":
        far = np.ceil(far)
    low, high = (wide - far * rng.random(value.shape)), (wide + far * rng.random(value.shape))
    if value.dtype.kind in "iu":
        low, high = np.floor(low), np.ceil(high)
    rows = [wide, low, high, *(low + (high - low) * rng.random((LANES, *value.shape)))]
    rows = [np.rint(r) for r in rows] if value.dtype.kind in "iu" else rows
    made = np.stack(rows).astype(value.dtype)
    made[LOW], made[HIGH] = np.minimum(made[LOW], made[0]), np.maximum(made[HIGH], made[0])
    return Spread(made)


def inside(rng: np.random.Generator, value: Spread) -> np.ndarray:  # type: ignore[type-arg]
    """An array within the bounds, often at one of them."""
    low, high = value.rows[LOW].astype(np.float64), value.rows[HIGH].astype(np.float64)
    part = np.clip(rng.uniform(-0.5, 1.5, low.shape), 0, 1)
    made = low + (high - low) * part
    if value.rows.dtype.kind in "iu":
        made = np.rint(made)
    return np.clip(made.astype(value.rows.dtype), value.rows[LOW], value.rows[HIGH])


def run(module: hlo_opt.ir.Module, values: list[object], **options: bool) -> list[object]:  # type: ignore[name-defined]
    return list(leaves(SpreadInterpreter(np.random.default_rng(0), **options).call(module.entry, values)))


def within(value: object, array: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """Where an array keeps the bounds of a value."""
    if not isinstance(value, Spread):
        return np.asarray((value == array) | ((value != value) & (array != array)))
    low, high = value.rows[LOW], value.rows[HIGH]
    open_ = (low != high) & np.isinf(low.astype(np.float64)) | np.isinf(high.astype(np.float64))
    return np.asarray((low <= array) & (array <= high) | open_ | ((low != low) & (array != array)))


def holds(
    body: str, *inputs: np.ndarray, radius: float = 1e-3, computations: str = "", tries: int = 20
) -> list[object]:  # type: ignore[type-arg]
    """Run a module on bounds around the inputs, and on arrays within these: the results must be within the result's
    bounds. Gives the result."""
    rng = np.random.default_rng(0)
    module = parsed(body, computations)
    given = [spread(rng, i, radius) for i in inputs]
    made = run(module, list(given))
    for _ in range(tries):
        arrays = [inside(rng, g) for g in given]
        plain = leaves(Interpreter().call(module.entry, arrays))
        for value, array in zip(made, plain, strict=True):
            ok = within(value, np.asarray(array))
            assert ok.all(), f"{int((~ok).sum())} elements are outside"
    return made
