"""Scans as cumulative windows: which are, and that the values stay."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.ops.reduction.cumulative import cumulative_scan


def scanned(
    shape: tuple[int, ...],
    axis: int,
    kind: str = "f32",
    opcode: str = "add",
    start: str = "0",
    *,
    reverse: bool = False,
    exclusive: bool = False,
    associative: bool = True,
    root: str = "ROOT r = {whole} get-tuple-element(s), index=0",
) -> str:
    """A module with a scan that folds by one operation, of parameters or from a constant."""
    line = f"{kind}[{','.join(str(size) for d, size in enumerate(shape) if d != axis)}]"
    whole = f"{kind}[{','.join(map(str, shape))}]"
    number = "i = " + (f"{line} parameter(1)" if start == "parameter" else f"{line} broadcast(z), dimensions={{}}")
    return f"""HloModule m

step {{
  x = {line} parameter(0)
  c = {line} parameter(1)
  a = {line} {opcode}(x, c)
  ROOT t = ({line}, {line}) tuple({"c, a" if exclusive else "a, a"})
}}

ENTRY e {{
  p = {whole} parameter(0)
  z = {kind}[] constant({"0" if start == "parameter" else start})
  {number}
  s = ({whole}, {line}) scan(p, i), dimensions={{{axis}}}, num_carries=1, is_reverse={str(reverse).lower()},
      is_associative={str(associative).lower()}, to_apply=step
  {root.format(whole=whole, line=line)}
}}
"""


def rewritten(text: str) -> hlo_opt.Module:
    made, _ = hlo_opt.fuse(hlo_opt.parse(text), passes="scan-to-window,dce")
    hlo_opt.verify(made)
    return made


def opcodes(module: hlo_opt.Module) -> list[str]:
    return [i.opcode for i in module.entry.instructions]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis", "kind", "opcode", "start", "exclusive"),
    [
        ((37,), 0, "s32", "add", "0", False),
        ((3, 20), 1, "s8", "multiply", "3", False),
        ((20, 4), 0, "f32", "maximum", "-inf", True),
        ((2, 9, 3), 1, "f32", "add", "parameter", False),
        ((5, 40), 1, "u32", "xor", "parameter", True),
        ((3, 2), 1, "f16", "add", "0", False),
    ],
)
def test_the_values_stay(
    shape: tuple[int, ...], axis: int, kind: str, opcode: str, start: str, exclusive: bool, reverse: bool
) -> None:
    root = "ROOT u = ({whole}, {line}) copy(s)"
    text = scanned(shape, axis, kind, opcode, start, reverse=reverse, exclusive=exclusive, root=root)
    module, made = hlo_opt.parse(text), rewritten(text)
    assert opcodes(made).count("reduce-window") == 1 and "scan" not in opcodes(made)
    draw = np.random.default_rng(1)
    given = [draw.integers(0, 7, p.shape.dimensions).astype(p.shape.type.dtype) for p in module.entry.parameters]
    want = stepwise(module, given, reverse, exclusive)
    fused, _ = hlo_opt.fuse(module)
    for results in (
        hlo_opt.evaluate(module, given),
        hlo_opt.evaluate(made, given),
        hlo_opt.compile(fused, backend="host")(*given),
    ):
        for value, expected in zip(results, want, strict=True):
            np.testing.assert_array_equal(value, expected)


def stepwise(module: hlo_opt.Module, given: list[np.ndarray], reverse: bool, exclusive: bool) -> list[np.ndarray]:
    """The results of the module's scan, one step after another in NumPy."""
    (scan,) = (i for i in module.entry.instructions if i.opcode == "scan")
    fold = cumulative_scan(scan)
    assert fold is not None
    combine = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum, "xor": np.bitwise_xor}[fold.opcode]
    x, (axis,) = given[0], scan.ints("dimensions")
    starts = scan.operands[1]
    carry = given[1] if len(given) > 1 else np.full(starts.shape.dimensions, starts.operands[0].literal.value, x.dtype)
    result = np.empty_like(x)
    for step in range(x.shape[axis])[:: -1 if reverse else 1]:
        at = (slice(None),) * axis + (step,)
        before, carry = carry, combine(carry, x[at])
        result[at] = before if exclusive else carry
    return [result, carry]


def test_narrow_sums_are_rounded_once() -> None:
    module = hlo_opt.parse(scanned((1000,), 0, "bf16"))
    ones = np.ones(1000, module.entry.root.shape.type.dtype)
    fused, _ = hlo_opt.fuse(module)
    want = np.arange(1, 1001).astype(np.float32).astype(ones.dtype)
    for (value,) in (hlo_opt.evaluate(module, [ones]), hlo_opt.compile(fused, backend="host")(ones)):
        np.testing.assert_array_equal(value, want)


@pytest.mark.parametrize(
    "text",
    [
        scanned((40,), 0, associative=False),  # a sum of floats in this order
        scanned((40,), 0).replace("add(x, c)", "add(x, x)"),
        scanned((40,), 0).replace("tuple(a, a)", "tuple(x, a)"),
        scanned((40,), 0, opcode="subtract"),
        scanned((40,), 0, "c64", start="(0, 0)"),
        scanned((40,), 0, "s4"),
        scanned((0, 4), 0),
    ],
)
def test_what_stays_a_scan(text: str) -> None:
    assert opcodes(rewritten(text)).count("scan") == 1


def test_what_has_no_order_needs_no_declaration() -> None:
    for kind, opcode in (("s32", "add"), ("f32", "maximum"), ("pred", "or")):
        assert "scan" not in opcodes(rewritten(scanned((40,), 0, kind, opcode, "0", associative=False)))


def test_a_cumulative_sum_is_one_kernel_long_or_not() -> None:
    rows, _ = hlo_opt.fuse(hlo_opt.parse(scanned((64, 512), 1)))
    assert opcodes(rows).count("fusion") == 1 and "scan" not in opcodes(rows)
    long, _ = hlo_opt.fuse(hlo_opt.parse(scanned((1 << 20,), 0)))
    assert opcodes(long).count("fusion") == 1
