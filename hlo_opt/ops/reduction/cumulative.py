"""Scans that fold by one operation: the cumulative sum, product, maximum, ... of each line."""

from __future__ import annotations

from dataclasses import dataclass

from hlo_opt.ir import Instruction
from hlo_opt.ops.reduction.reducers import MONOIDS
from hlo_opt.ops.shapes import flag, integer


@dataclass(frozen=True)
class CumulativeScan:
    """What a scan folds by, and whether its results are the folds before each element, without the element."""

    opcode: str
    is_exclusive: bool


def cumulative_scan(scan: Instruction) -> CumulativeScan | None:
    """A scan of one array with one carry, `(x, c) -> (r, r)` or `(c, r)` with `r = x op c`, op in `MONOIDS`; None for
    others, and for sums and products of floats in the order that the scan declares."""
    body = scan.called_by("to_apply")
    if len(scan.operands) != 2 or integer(scan, "num_carries") != 1 or body.root.opcode != "tuple":
        return None
    result, carry = body.root.operands
    if carry.opcode not in MONOIDS or {o.parameter_number for o in carry.operands} != {0, 1}:
        return None
    if result is not carry and result.parameter_number != 1:
        return None
    shapes = {i.shape.type: i.shape.dimensions for i in (*carry.operands, carry)}
    if len(shapes) != 1 or carry.shape.dimensions != scan.operands[1].shape.dimensions:
        return None
    rounds = carry.opcode in ("add", "multiply") and not (
        carry.shape.type.is_integer or carry.shape.type.kind == "pred"
    )
    if rounds and not flag(scan, "is_associative"):
        return None
    return CumulativeScan(carry.opcode, result is not carry)
