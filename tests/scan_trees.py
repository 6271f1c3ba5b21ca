"""Modules with the tree that `jax.lax.associative_scan` writes for all prefixes along a dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

Combine: TypeAlias = Callable[["Tree", Sequence[str], Sequence[str], int], list[str]]
"""Writes the combination of two elements, given by component, and returns the names of its components."""
PAIR = ("f32", "f32")
"""The types of elements of two numbers."""


class Tree:
    """The lines of an entry whose parameters are the elements, one array per component."""

    def __init__(self, sizes: tuple[int, ...], axis: int, kinds: Sequence[str]) -> None:
        self.sizes, self.axis, self.kinds = sizes, axis, kinds
        self.lines = [f"  zero{k} = {kind}[] constant({self.zero(kind)})" for k, kind in enumerate(kinds)]

    @staticmethod
    def zero(kind: str) -> str:
        return "false" if kind == "pred" else "(0, 0)" if kind[0] == "c" else "0"

    def put(self, kind: str, length: int, operation: str) -> str:
        """Write an operation on arrays of so many elements along the dimension; return its name."""
        sizes = [length if d == self.axis else n for d, n in enumerate(self.sizes)]
        name = f"v{len(self.lines)}"
        self.lines.append(f"  {name} = {kind}[{','.join(map(str, sizes))}] {operation}")
        return name

    def along(self, part: str, others: list[str]) -> list[str]:
        return [part if d == self.axis else other for d, other in enumerate(others)]

    def cut(self, k: int, x: str, start: int, limit: int, stride: int = 1) -> str:
        parts = ", ".join(self.along(f"[{start}:{limit}:{stride}]", [f"[0:{n}]" for n in self.sizes]))
        return self.put(self.kinds[k], -(-(limit - start) // stride), f"slice({x}), slice={{{parts}}}")

    def pad(self, k: int, x: str, length: int, low: int, high: int) -> str:
        ends = "x".join(self.along(f"{low}_{high}_1", ["0_0"] * len(self.sizes)))
        return self.put(self.kinds[k], length, f"pad({x}, zero{k}), padding={ends}")

    def reversed(self, k: int, x: str) -> str:
        return self.put(self.kinds[k], self.sizes[self.axis], f"reverse({x}), dimensions={{{self.axis}}}")

    def scan(self, xs: list[str], n: int, combine: Combine) -> list[str]:
        """The prefixes of elements that are arrays of length n."""
        if n < 2:
            return xs
        parts = range(len(xs))
        pairs = combine(
            self,
            [self.cut(k, xs[k], 0, n - 1, 2) for k in parts],
            [self.cut(k, xs[k], 1, n, 2) for k in parts],
            n // 2,
        )
        odd = self.scan(pairs, n // 2, combine)
        even, count = [self.cut(k, xs[k], 0, 1) for k in parts], n - n // 2 - 1
        if count:
            left = odd if n % 2 else [self.cut(k, odd[k], 0, count) for k in parts]
            rest = combine(self, left, [self.cut(k, xs[k], 2, n, 2) for k in parts], count)
            how = f"dimensions={{{self.axis}}}"
            even = [self.put(self.kinds[k], count + 1, f"concatenate({even[k]}, {rest[k]}), {how}") for k in parts]
        results = []
        for k in parts:
            low, high = self.pad(k, even[k], n, 0, 1 - n % 2), self.pad(k, odd[k], n, 1, n % 2)
            opcode = "or" if self.kinds[k] == "pred" else "add"
            results.append(self.put(self.kinds[k], n, f"{opcode}({low}, {high})"))
        return results


def scan_module(
    sizes: tuple[int, ...],
    axis: int,
    combine: Combine,
    kinds: Sequence[str] = ("f32",),
    *,
    reverse: bool = False,
    results: Sequence[int] | None = None,
    also: str = "",
) -> str:
    """A module that returns the components `results` (all by default) of all prefixes, and the value named `also`."""
    tree, n = Tree(sizes, axis, kinds), sizes[axis]
    xs = [tree.put(kind, n, f"parameter({k})") for k, kind in enumerate(kinds)]
    elements = [tree.reversed(k, x) for k, x in enumerate(xs)] if reverse else xs
    made = tree.scan(elements, n, combine)
    if reverse:
        made = [tree.reversed(k, x) for k, x in enumerate(made)]
    taken = range(len(made)) if results is None else results
    root = ", ".join([*(made[k] for k in taken), *([also] if also else [])])
    shapes = [f"{kinds[k]}[{','.join(map(str, sizes))}]" for k in taken]
    if also:
        shapes.append(next(line for line in tree.lines if f" {also} = " in line).split(" = ")[1].split(" ")[0])
    lines = "\n".join(tree.lines)
    return f"HloModule m\n\nENTRY e {{\n{lines}\n  ROOT r = ({', '.join(shapes)}) tuple({root})\n}}\n"


def operation(opcode: str) -> Combine:
    """One operation on elements of one component."""

    def combine(tree: Tree, a: Sequence[str], b: Sequence[str], n: int) -> list[str]:
        return [tree.put(tree.kinds[0], n, f"{opcode}({a[0]}, {b[0]})")]

    return combine


def affine(tree: Tree, a: Sequence[str], b: Sequence[str], n: int) -> list[str]:
    """(a1 * a2, b1 * a2 + b2): maps x -> a * x + b one after another."""
    kind = tree.kinds[0]
    turned = tree.put(kind, n, f"multiply({a[1]}, {b[0]})")
    factor = tree.put(kind, n, f"multiply({a[0]}, {b[0]})")
    return [factor, tree.put(kind, n, f"add({turned}, {b[1]})")]


def complex_product(tree: Tree, a: Sequence[str], b: Sequence[str], n: int) -> list[str]:
    """The product of two complex numbers, real parts and imaginary parts by themselves."""
    kind = tree.kinds[0]
    products = [tree.put(kind, n, f"multiply({x}, {y})") for x in a for y in b]
    real = tree.put(kind, n, f"subtract({products[0]}, {products[3]})")
    return [real, tree.put(kind, n, f"add({products[1]}, {products[2]})")]


def highest_sum(tree: Tree, a: Sequence[str], b: Sequence[str], n: int) -> list[str]:
    """(a1 + a2, max(b1 + a2, b2))."""
    kind = tree.kinds[0]
    total = tree.put(kind, n, f"add({a[0]}, {b[0]})")
    moved = tree.put(kind, n, f"add({a[1]}, {b[0]})")
    return [total, tree.put(kind, n, f"maximum({moved}, {b[1]})")]


def by_segments(tree: Tree, a: Sequence[str], b: Sequence[str], n: int) -> list[str]:
    """Sums that start again where a predicate is true."""
    total = tree.put(tree.kinds[0], n, f"add({a[0]}, {b[0]})")
    chosen = tree.put(tree.kinds[0], n, f"select({b[1]}, {b[0]}, {total})")
    return [chosen, tree.put("pred", n, f"or({a[1]}, {b[1]})")]


def difference(tree: Tree, a: Sequence[str], b: Sequence[str], n: int) -> list[str]:
    """a - b, which is not associative."""
    return [tree.put(tree.kinds[0], n, f"subtract({a[0]}, {b[0]})")]
