"""Which routine of the host computes a library call or a fallback, in words."""

from __future__ import annotations

from functools import cache
from typing import Any

from hlo_opt.ops import find
from hlo_opt.ops.contraction.table import MATMUL
from hlo_opt.runtime.host.words import product_of
from hlo_opt.runtime.schedule import Schedule
from hlo_opt.runtime.schedule.ops import Call


def host_routines(schedule: Schedule) -> dict[str, list[str]]:
    """The routines that compute what a schedule leaves to libraries and to the interpreter, by what is called, each once."""
    found: dict[str, set[str]] = {}
    for routine, op in schedule.ops():
        if isinstance(op, Call) and op.kind != "empty":
            found.setdefault(op.call, set()).add(_routine(op, routine.shapes))
    return {call: sorted(routines) for call, routines in sorted(found.items())}


def _routine(op: Call, shapes: Any) -> str:
    if product_of(op, shapes) is not None:
        return "a product of the host's own (host_product.h)"
    spec = find(op.call)
    routine = "" if spec is None else spec.routine
    result = shapes[op.outputs[0]].type if op.outputs else None
    if routine == MATMUL and result is not None and (result.is_float or result.is_complex):
        return f"{routine} ({blas()})"
    return routine or "NumPy"


@cache
def blas() -> str:
    """The library that NumPy multiplies matrices with, as it is loaded here."""
    import numpy as np
    from threadpoolctl import threadpool_info

    np.matmul(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32))
    names = {"openblas": "OpenBLAS", "mkl": "MKL", "blis": "BLIS"}
    found = [i for i in threadpool_info() if i.get("user_api") == "blas"]
    if not found:
        return "NumPy's own"
    return f"{names.get(found[0]['internal_api'], found[0]['internal_api'])} {found[0].get('version') or ''}".strip()
