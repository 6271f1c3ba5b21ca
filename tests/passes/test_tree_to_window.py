"""Trees of associative scans: which become cumulative windows, and that the values stay."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import hlo_opt
from hlo_opt.runtime.host.library import has_compiler
from tests.scan_trees import (
    PAIR,
    Combine,
    affine,
    by_segments,
    complex_product,
    difference,
    highest_sum,
    operation,
    scan_module,
)


def opcodes(text: str) -> Counter[str]:
    """The operations of the fused module."""
    fused, _ = hlo_opt.fuse(hlo_opt.parse(text))
    return Counter(i.opcode for c in fused.computations for i in c.instructions)


def agrees(text: str, given: list[np.ndarray] | None = None, within: float = 1e-5) -> None:
    """Interpreter and kernels give for the fused module what the tree gives."""
    module = hlo_opt.parse(text)
    draw = np.random.default_rng(len(text))
    if given is None:
        given = [
            (draw.random(p.shape.dimensions) * 1.5 + (p.shape.type.kind != "pred") * 0.3).astype(p.shape.type.dtype)
            for p in module.entry.parameters
        ]
    want = hlo_opt.evaluate(module, given)
    fused, _ = hlo_opt.fuse(module)
    assert any(i.opcode == "reduce-window" for c in fused.computations for i in c.instructions)
    results = [hlo_opt.evaluate(fused, given)]
    if has_compiler():
        results.append(hlo_opt.compile(fused, backend="host")(*given))
    for result in results:
        for value, expected in zip(result, want, strict=True):
            if expected.dtype.kind in "biu":
                np.testing.assert_array_equal(value, expected)
            else:
                wide = np.complex128 if expected.dtype.kind == "c" else np.float64
                np.testing.assert_allclose(value.astype(wide), expected.astype(wide), within, within)


@pytest.mark.parametrize("length", [4, 5, 6, 7, 8, 17, 33, 100])
def test_lengths(length: int) -> None:
    agrees(scan_module((length,), 0, affine, PAIR))
    agrees(scan_module((3, length), 1, operation("add"), reverse=True))


@pytest.mark.parametrize("length", [1, 2, 3])
def test_short_lines_stay(length: int) -> None:
    assert not opcodes(scan_module((length, 5), 0, affine, PAIR))["reduce-window"]


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("reverse", [False, True])
def test_dimensions(axis: int, reverse: bool) -> None:
    text = scan_module((5, 13, 7), axis, affine, PAIR, reverse=reverse, results=(1,))
    agrees(text)
    found = opcodes(text)
    assert found["reduce-window"] == found["fusion"] == 1
    assert not found["reverse"], "the window goes from the end"


@pytest.mark.parametrize("kind", ["f64", "bf16", "f16", "s32", "u8", "c64"])
def test_types(kind: str) -> None:
    agrees(scan_module((3, 37), 1, affine, (kind, kind)), within=0.1 if kind in ("bf16", "f16") else 1e-4)


@pytest.mark.parametrize(
    ("combine", "kinds"),
    [
        *((operation(opcode), ("f32",)) for opcode in ("multiply", "maximum", "minimum")),
        *((operation(opcode), ("s32",)) for opcode in ("and", "xor")),
        (operation("or"), ("pred",)),
        (complex_product, PAIR),
        (highest_sum, PAIR),
        (by_segments, ("f32", "pred")),
    ],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_combinations(combine: Combine, kinds: tuple[str, ...], reverse: bool) -> None:
    agrees(scan_module((4, 21), 1, combine, kinds, reverse=reverse), within=1e-3)


@pytest.mark.parametrize(
    ("text"),
    [
        scan_module((4, 21), 1, difference),
        scan_module((4, 21), 1, operation("divide")),
        scan_module((4, 21), 1, highest_sum, ("s32", "s32")),  # sums wrap: the larger may become the smaller
        scan_module((4, 21), 1, affine, PAIR).replace("[2:21:2]", "[1:20:2]"),
        scan_module((4, 21), 1, affine, PAIR).replace("constant(0)", "constant(1)"),
        scan_module((4, 21), 1, affine, PAIR).replace("multiply", "add", 3),  # one level in another way
    ],
)
def test_what_stays_a_tree(text: str) -> None:
    """Levels below one that is another may be a tree by themselves."""
    fused, _ = hlo_opt.fuse(hlo_opt.parse(text))
    windows = [i for c in fused.computations for i in c.instructions if i.opcode == "reduce-window"]
    assert not any("size=1x21 " in f"{w.attributes['window']}" for w in windows)


def test_a_tree_whose_levels_are_read_stays() -> None:
    """As in a gradient: the window would be computed besides."""
    text = scan_module((4, 21), 1, affine, PAIR)
    inner = [line.split()[0] for line in text.splitlines() if "f32[4,10] add(" in line][-1]
    assert not opcodes(scan_module((4, 21), 1, affine, PAIR, also=inner))["reduce-window"]


@pytest.mark.parametrize("results", [(0, 1), (1,)])
@pytest.mark.parametrize("reverse", [False, True])
def test_first_elements_that_are_not_finite(results: tuple[int, ...], reverse: bool) -> None:
    """0 * x is no number for an infinite x: the window begins with 0 * a + b, the tree with b."""
    factor, rest = np.ones((3, 9), np.float32), np.full((3, 9), 2, np.float32)
    factor[:2, -1 if reverse else 0] = np.inf, np.nan
    agrees(scan_module((3, 9), 1, affine, PAIR, reverse=reverse, results=results), [factor, rest])


def test_a_predicate_stands_for_the_start_where_zeros_would_be_multiplied() -> None:
    """Both parts of a complex number need both: none can be replaced."""
    real, imaginary = np.full((2, 6), 0.5, np.float32), np.zeros((2, 6), np.float32)
    imaginary[0, 0] = np.inf
    text = scan_module((2, 6), 1, complex_product, PAIR)
    (value, other), (first, _) = (hlo_opt.evaluate(m, [real, imaginary]) for m in _both(text))
    np.testing.assert_array_equal(value[:, 0], real[:, 0])
    np.testing.assert_array_equal(other[:, 0], imaginary[:, 0])
    np.testing.assert_array_equal(first[:, 0], real[:, 0])


def _both(text: str) -> tuple[hlo_opt.Module, hlo_opt.Module]:
    """The fused module, and the tree."""
    module = hlo_opt.parse(text)
    fused, _ = hlo_opt.fuse(module)
    return fused, module


def test_scans_of_a_scan() -> None:
    text = scan_module((4, 16), 1, operation("add"))
    body = text[text.index("ENTRY") :].splitlines()[1:-2]
    last = body[-1].split()[0]
    again = [
        line.replace("  v", "  w").replace("(v", "(w").replace(", v", ", w") for line in body if "zero0 =" not in line
    ]
    again = [f"  w1 = f32[4,16] copy({last})" if "parameter" in line else line for line in again]
    root = f"  ROOT r = f32[4,16] copy({again[-1].split()[0]})"
    agrees("HloModule m\n\nENTRY e {\n" + "\n".join([*body, *again, root]) + "\n}\n")


def test_one_long_line_is_one_kernel_of_pairs_too() -> None:
    pairs = opcodes(scan_module((1 << 18,), 0, affine, PAIR, results=(1,)))
    sums = opcodes(scan_module((1 << 20,), 0, operation("add")))
    assert pairs["fusion"] == sums["fusion"] == 1
