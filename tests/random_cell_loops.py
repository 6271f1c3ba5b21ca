"""Random loops whose elements read those of other threads: rolls, reversals, folds, products, lookups, windows at
places that a round computes. Their plans are those of blocks and grids, in phases with barriers between them.

All that is added up are integers, so that every order gives the same.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.loops import loop

WHOLE, FLOATS = ("s32", "s64", "s8", "u32"), ("f32", "f64", "bf16")
FOLDS = {"total": "add", "most": "maximum", "least": "minimum"}
BITS = {"s8": 7, "s32": 31, "s64": 63, "u32": 32}


def random_cell_loop(draw: Random) -> str:
    """A module with one such loop."""
    return _Writer(draw).module()


class _Writer:
    def __init__(self, draw: Random) -> None:
        self.draw = draw
        sizes = [(1,), (2,), (3,), (33,), (65,), (300,), (600,), (900,), (1000,), (1537,), (2300,), (4000,)]
        if draw.random() < 0.4:
            sizes = [(draw.choice([1, 2, 3, 5, 17]), draw.choice([1, 7, 33, 130]))]
        self.sizes = draw.choice(sizes)
        self.types = [
            draw.choice(["s32", "s32", "f32", "f32", *WHOLE, *FLOATS, "pred"]) for _ in range(draw.randint(1, 4))
        ]
        self.lines: list[str] = []
        self.values = {kind: [f"x{n + 1}" for n, k in enumerate(self.types) if k == kind] for kind in self.types}
        self.numbers = ["x0"]
        self.state = [self.shape(kind) for kind in self.types]
        self.folds: dict[str, str] = {}
        self.table = 0

    # ---- shapes and lines

    def shape(self, kind: str, sizes: tuple[int, ...] | None = None) -> str:
        return f"{kind}[{','.join(map(str, self.sizes if sizes is None else sizes))}]"

    def add(self, shape: str, text: str) -> str:
        self.lines.append(f"v{len(self.lines)} = {shape} {text}")
        return self.lines[-1].split(" ")[0]

    def value(self, kind: str) -> str:
        found = self.values[kind]
        return self.draw.choice(found[-3:] if self.draw.random() < 0.5 else found)

    def keep(self, kind: str, text: str) -> None:
        self.values[kind].append(self.add(self.shape(kind), text))

    def spread(self, kind: str, number: str) -> str:
        return self.add(self.shape(kind), f"broadcast({number}), dimensions={{}}")

    def cut(self, kind: str, value: str, dimension: int, start: int, end: int) -> str:
        spans = ", ".join(f"[{start}:{end}]" if d == dimension else f"[0:{n}]" for d, n in enumerate(self.sizes))
        sizes = tuple(end - start if d == dimension else n for d, n in enumerate(self.sizes))
        return self.add(self.shape(kind, sizes), f"slice({value}), slice={{{spans}}}")

    def zero(self, kind: str) -> str:
        return self.add(f"{kind}[]", "constant(false)" if kind == "pred" else "constant(0)")

    def fold(self, kind: str, name: str, value: str, dimensions: str, kept: tuple[int, ...]) -> str:
        if kind == "pred":
            name, opcode = "either_of", "or"
        else:
            opcode = FOLDS[name]
        called = f"{name}_{kind}"
        self.folds[called] = (
            f"{called} {{\n  a = {kind}[] parameter(0)\n  b = {kind}[] parameter(1)\n"
            f"  ROOT c = {kind}[] {opcode}(a, b)\n}}\n"
        )
        start = self.add(f"{kind}[]", f"constant({_neutral(kind, opcode)})")
        return self.add(
            self.shape(kind, kept), f"reduce({value}, {start}), dimensions={{{dimensions}}}, to_apply={called}"
        )

    # ---- steps

    def near(self, kind: str) -> None:
        opcodes = ["xor", "and", "or"] if kind == "pred" else ["add", "subtract", "maximum", "minimum"]
        if kind in WHOLE:
            opcodes += ["xor", "multiply"]
        self.keep(kind, f"{self.draw.choice(opcodes)}({self.value(kind)}, {self.value(kind)})")

    def reverse(self, kind: str) -> None:
        self.keep(kind, f"reverse({self.value(kind)}), dimensions={{{self.draw.randrange(len(self.sizes))}}}")

    def roll(self, kind: str) -> None:
        """Around a ring, or the end of one array beside the beginning of another."""
        dimension = self.draw.randrange(len(self.sizes))
        size, value = self.sizes[dimension], self.value(kind)
        by = self.draw.choice([1, 2, size - 1, size // 2])
        if not 0 < by < size:
            return
        other = value if self.draw.random() < 0.6 else self.value(kind)
        first, last = self.cut(kind, value, dimension, by, size), self.cut(kind, other, dimension, 0, by)
        parts = [first, last] if self.draw.random() < 0.7 else [last, first]
        self.keep(kind, f"concatenate({', '.join(parts)}), dimensions={{{dimension}}}")

    def shift(self, kind: str) -> None:
        low, edge = self.draw.choice([1, -1]), self.zero(kind)
        d = self.draw.randrange(len(self.sizes))
        padding = "x".join(f"{low}_{-low}" if d == n else "0_0" for n in range(len(self.sizes)))
        self.keep(kind, f"pad({self.value(kind)}, {edge}), padding={padding}")

    def converted(self, kind: str) -> None:
        other = self.draw.choice(self.types)
        if other == kind or (kind in WHOLE and other in FLOATS):  # what does not fit is open
            return
        if kind == "pred":
            self.keep(kind, f"compare({self.value(other)}, {self.value(other)}), direction=GT")
        else:
            self.keep(kind, f"convert({self.value(other)})")

    def selected(self, kind: str) -> None:
        other = self.draw.choice(self.types)
        by = self.value("pred") if "pred" in self.values and self.draw.random() < 0.3 else None
        if by is None:
            direction = self.draw.choice(["LT", "GE", "EQ", "NE"])
            by = self.add(
                self.shape("pred"), f"compare({self.value(other)}, {self.value(other)}), direction={direction}"
            )
        self.keep(kind, f"select({by}, {self.value(kind)}, {self.value(kind)})")

    def masked(self, kind: str) -> None:
        """Some places only, by their number."""
        d = self.draw.randrange(len(self.sizes))
        place = self.add(self.shape("s32"), f"iota(), iota_dimension={d}")
        edge = self.draw.choice(self.numbers)
        if self.draw.random() < 0.6:
            edge = self.add("s32[]", f"constant({self.draw.choice([0, self.sizes[d] - 1, self.sizes[d] // 2])})")
        direction = self.draw.choice(["LT", "GE", "EQ"])
        by = self.add(self.shape("pred"), f"compare({place}, {self.spread('s32', edge)}), direction={direction}")
        self.keep(kind, f"select({by}, {self.value(kind)}, {self.value(kind)})")

    def all_folded(self, kind: str) -> None:
        name = self.draw.choice(["total", "most", "least"] if kind in WHOLE else ["most", "least"])
        made = self.fold(kind, name, self.value(kind), ",".join(map(str, range(len(self.sizes)))), ())
        if kind == "s32" and self.draw.random() < 0.4:
            self.numbers.append(made)
        opcode = "xor" if kind == "pred" else "subtract"
        self.keep(kind, f"{opcode}({self.spread(kind, made)}, {self.value(kind)})")

    def rows_folded(self, kind: str) -> None:
        if len(self.sizes) < 2:
            return
        d = self.draw.randrange(2)
        name = self.draw.choice(["total", "most", "least"] if kind in WHOLE else ["most", "least"])
        made = self.fold(kind, name, self.value(kind), str(d), (self.sizes[1 - d],))
        wide = self.add(self.shape(kind), f"broadcast({made}), dimensions={{{1 - d}}}")
        self.keep(kind, f"{'xor' if kind == 'pred' else 'maximum'}({wide}, {self.value(kind)})")

    def element(self, kind: str) -> None:
        """An element at a place that may lie outside, for all."""
        starts = ", ".join(self.draw.choice(self.numbers) for _ in self.sizes)
        ones = tuple(1 for _ in self.sizes)
        one = self.add(
            self.shape(kind, ones), f"dynamic-slice({self.value(kind)}, {starts}), "
                                    f"dynamic_slice_sizes={{{','.join(map(str, ones))}}}"
        )  # fmt: skip
        number = self.add(f"{kind}[]", f"reshape({one})")
        if kind == "s32":
            self.numbers.append(number)
        self.keep(kind, f"{'or' if kind == 'pred' else 'maximum'}({self.spread(kind, number)}, {self.value(kind)})")

    def window(self, kind: str) -> None:
        sizes = tuple(max(1, n // 2) for n in self.sizes)
        starts = [", ".join(self.draw.choice(self.numbers) for _ in self.sizes) for _ in range(2)]
        part = self.add(
            self.shape(kind, sizes), f"dynamic-slice({self.value(kind)}, {starts[0]}), "
                                     f"dynamic_slice_sizes={{{','.join(map(str, sizes))}}}"
        )  # fmt: skip
        self.keep(kind, f"dynamic-update-slice({self.value(kind)}, {part}, {starts[1]})")

    def looked_up(self, kind: str) -> None:
        """Each element from the place that an integer says, which may lie outside."""
        if len(self.sizes) != 1 or "s32" not in self.values:
            return
        self.keep(
            kind,
            f"gather({self.value(kind)}, {self.value('s32')}), offset_dims={{}}, collapsed_slice_dims={{0}}, "
            "start_index_map={0}, index_vector_dim=1, slice_sizes={1}",
        )

    def product(self, kind: str) -> None:
        """With a matrix that no round changes."""
        if kind != "s32" or len(self.sizes) != 1 or self.sizes[0] > 100:
            return
        if not self.table:
            self.state.append(self.shape("s32", (*self.sizes, *self.sizes)))
            self.table = len(self.state)
        d = self.draw.randrange(2)
        self.keep(
            kind, f"dot(x{self.table}, {self.value(kind)}), lhs_contracting_dims={{{d}}}, rhs_contracting_dims={{0}}"
        )

    # ---- the module

    def module(self) -> str:
        draw, kinds = self.draw, self.types
        steps: list[Callable[[str], None]] = [self.near] * 4
        steps += [self.reverse, self.roll, self.roll, self.shift, self.converted, self.selected, self.masked]
        steps += [self.all_folded, self.rows_folded, self.element, self.window, self.looked_up, self.product]
        for _ in range(draw.randint(3, 12)):
            draw.choice(steps)(draw.choice(kinds))
        rounds = draw.choice([0, 1, 1, 2, 3, 4, 5])
        results = [self.value(kind) for kind in kinds]
        if self.table:
            results.append(f"x{self.table}")
        if draw.random() < 0.3:  # a number of its own
            self.state.append("s32[]")
            own = f"x{len(self.state)}"
            results.append(self.add("s32[]", f"subtract({draw.choice(self.numbers)}, {own})"))
        for _ in range(draw.choice([0, 0, 1, 1, 2])):  # results of rounds in rows
            kind, rows = draw.choice(kinds), max(1, rounds + draw.choice([0, 0, 1, -1]))
            self.state.append(self.shape(kind, (rows, *self.sizes)))
            row = self.add(self.shape(kind, (1, *self.sizes)), f"reshape({self.value(kind)})")
            at, zero = draw.choice(["x0", "x0", *self.numbers]), self.add("s32[]", "constant(0)")
            if draw.random() < 0.3:
                last = self.add("s32[]", f"constant({rounds - 1})")
                at = self.add("s32[]", f"subtract({last}, x0)")
            starts = ", ".join([at, *(zero for _ in self.sizes)])
            shape = self.state[-1]
            results.append(self.add(shape, f"dynamic-update-slice(x{len(self.state)}, {row}, {starts})"))
        test: list[str] = []
        if "s32" in kinds and draw.random() < 0.3:
            number, ones = kinds.index("s32") + 1, ",".join("1" for _ in self.sizes)
            test = [
                f"li = s32[] constant({rounds})",
                "c0 = pred[] compare(x0, li), direction=LT",
                f"e0 = s32[{ones}] slice(x{number}), slice={{{', '.join('[0:1]' for _ in self.sizes)}}}",
                "e1 = s32[] reshape(e0)",
                f"k9 = s32[] constant({draw.choice([2, 20])})",
                "c1 = pred[] compare(e1, k9), direction=LT",
                "c = pred[] and(c0, c1)",
            ]
        text = loop(self.state, self.lines, results, rounds=rounds, test=test)
        return text.replace("\n\n", "\n\n" + "".join(self.folds.values()), 1)


def _neutral(kind: str, opcode: str) -> str:
    """What a fold begins with: XLA takes other values once, more often or not at all."""
    if kind == "pred":
        return "false"
    if opcode == "add" or (kind == "u32" and opcode == "maximum"):
        return "0"
    if kind in FLOATS:
        return "-inf" if opcode == "maximum" else "inf"
    return str(-(2 ** BITS[kind]) if opcode == "maximum" else 2 ** BITS[kind] - 1)
