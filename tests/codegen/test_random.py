"""Random small modules: the kernel of the whole entry against the NumPy meaning, bit for bit.

Values are small whole numbers and operations keep them exact, so that no order of additions matters.
"""

from __future__ import annotations

import math
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

TYPES = ("f32", "bf16", "f16", "f64", "s8", "u8", "s16", "s32", "u32", "s64", "u64", "pred")


class Writer:
    """Writes a module, one instruction at a time."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.type = draw(st.sampled_from(TYPES))
        self.lines: list[str] = []
        self.values: list[tuple[str, tuple[int, ...]]] = []
        self.constants = 0

    def shape(self, dims: tuple[int, ...], element_type: str = "") -> str:
        order = self.draw(st.permutations(range(len(dims))))
        layout = f"{{{','.join(map(str, order))}}}" if dims else ""
        return f"{element_type or self.type}[{','.join(map(str, dims))}]{layout}"

    def add(self, dims: tuple[int, ...], text: str, element_type: str = "") -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {self.shape(dims, element_type)} {text}")
        if not element_type:
            self.values.append((name, dims))
        return name

    def scalar(self, value: int) -> str:
        return self.add((), f"constant({('false', 'true')[value % 2] if self.type == 'pred' else value})")

    def pick(self) -> tuple[str, tuple[int, ...]]:
        return self.draw(st.sampled_from(self.values))

    def step(self) -> None:
        name, dims = self.pick()
        rank = len(dims)
        choice = self.draw(
            st.sampled_from(
                [
                    "binary",
                    "binary",
                    "select",
                    "broadcast",
                    "transpose",
                    "reshape",
                    "slice",
                    "reverse",
                    "pad",
                    "concatenate",
                    "reduce",
                    "dynamic-slice",
                    "iota",
                ]
            )
        )
        listed = ",".join(str(d) for d in range(rank))
        if choice == "binary":
            other = self.draw(st.sampled_from([n for n, d in self.values if d == dims]))
            ops = ("and", "or", "xor") if self.type == "pred" else ("add", "subtract", "maximum", "minimum")
            self.add(dims, f"{self.draw(st.sampled_from(ops))}({name}, {other})")
        elif choice == "select":
            other = self.draw(st.sampled_from([n for n, d in self.values if d == dims]))
            flag = self.add(dims, f"compare({name}, {other}), direction=LT", "pred")
            self.add(dims, f"select({flag}, {name}, {other})")
        elif choice == "broadcast":
            size = self.draw(st.integers(1, 4))
            at = self.draw(st.integers(0, rank))
            kept = ",".join(str(d + (d >= at)) for d in range(rank))
            self.add((*dims[:at], size, *dims[at:]), f"broadcast({name}), dimensions={{{kept}}}")
        elif choice == "transpose" and rank:
            order = self.draw(st.permutations(range(rank)))
            moved = ",".join(map(str, order))
            self.add(tuple(dims[d] for d in order), f"transpose({name}), dimensions={{{moved}}}")
        elif choice == "reshape":
            count = math.prod(dims)
            first = self.draw(st.sampled_from([d for d in range(1, count + 1) if count % d == 0])) if count else 0
            self.add((first, count // first) if count else dims, f"reshape({name})")
        elif choice == "slice" and rank:
            parts, sizes = [], []
            for size in dims:
                start = self.draw(st.integers(0, size))
                limit = self.draw(st.integers(start, size))
                stride = self.draw(st.integers(1, 3))
                parts.append(f"[{start}:{limit}:{stride}]")
                sizes.append(-(-(limit - start) // stride))
            self.add(tuple(sizes), f"slice({name}), slice={{{', '.join(parts)}}}")
        elif choice == "reverse" and rank:
            self.add(dims, f"reverse({name}), dimensions={{{listed}}}")
        elif choice == "pad" and rank:
            parts, sizes = [], []
            for size in dims:
                low, high, inner = self.draw(st.tuples(st.integers(-1, 2), st.integers(-1, 2), st.integers(0, 1)))
                parts.append(f"{low}_{high}_{inner}")
                sizes.append(size + low + high + inner * max(size - 1, 0))
            if min(sizes) >= 0:
                self.add(tuple(sizes), f"pad({name}, {self.scalar(3)}), padding={'x'.join(parts)}")
        elif choice == "concatenate" and rank:
            along = self.draw(st.integers(0, rank - 1))
            others = [(n, d) for n, d in self.values if len(d) == rank and d[:along] == dims[:along]]
            others = [(n, d) for n, d in others if d[along + 1 :] == dims[along + 1 :]]
            other, other_dims = self.draw(st.sampled_from(others))
            size = dims[along] + other_dims[along]
            self.add((*dims[:along], size, *dims[along + 1 :]), f"concatenate({name}, {other}), dimensions={{{along}}}")
        elif choice == "reduce" and rank:
            gone = self.draw(st.sets(st.integers(0, rank - 1), min_size=1))
            kept = tuple(size for d, size in enumerate(dims) if d not in gone)
            reducer = self.draw(st.sampled_from(("fold_or",) if self.type == "pred" else ("fold_add", "fold_max")))
            start = self.scalar(self.draw(st.integers(0, 2)))
            where = ",".join(map(str, sorted(gone)))
            self.add(kept, f"reduce({name}, {start}), dimensions={{{where}}}, to_apply={reducer}")
        elif choice == "dynamic-slice" and rank:
            sizes = [self.draw(st.integers(min(1, size), size)) for size in dims]
            starts = [self.add((), f"constant({self.draw(st.integers(-1, 4))})", "s32") for _ in dims]
            listed_sizes = ",".join(map(str, sizes))
            self.add(
                tuple(sizes), f"dynamic-slice({', '.join([name, *starts])}), dynamic_slice_sizes={{{listed_sizes}}}"
            )
        elif choice == "iota" and rank and self.type != "pred":
            self.add(dims, f"iota(), iota_dimension={self.draw(st.integers(0, rank - 1))}")


def reducers(element_type: str) -> str:
    pairs = [("fold_or", "or")] if element_type == "pred" else [("fold_add", "add"), ("fold_max", "maximum")]
    return "".join(
        f"{name} {{\n  a = {element_type}[] parameter(0)\n  b = {element_type}[] parameter(1)\n"
        f"  ROOT c = {element_type}[] {opcode}(a, b)\n}}\n\n"
        for name, opcode in pairs
    )


@st.composite
def modules(draw: st.DrawFn) -> str:
    writer = Writer(draw)
    sizes = st.sampled_from((1, 2, 3, 5, 33, 70))
    for number in range(draw(st.integers(1, 2))):
        dims = tuple(draw(st.lists(sizes, max_size=3)))
        writer.add(dims if math.prod(dims) <= 3000 else dims[:1], f"parameter({number})")
    for _ in range(draw(st.integers(1, 7))):
        writer.step()
    name, dims = writer.values[-1]
    others = [n for n, d in writer.values if d == dims]
    second = draw(st.sampled_from(others))
    first_shape = next(line.split(" ")[2] for line in writer.lines if line.startswith(f"{name} = "))
    second_shape = next(line.split(" ")[2] for line in writer.lines if line.startswith(f"{second} = "))
    lines = [*writer.lines, f"ROOT r = ({first_shape}, {second_shape}) tuple({name}, {second})"]
    body = "".join(f"  {line}\n" for line in lines)
    return f"HloModule m\n\n{reducers(writer.type)}ENTRY e {{\n{body}}}\n"


@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(text=modules())
def test_kernels_mean_what_the_table_says(tool: Any, text: str) -> None:
    tool.agrees(text, whole=True)
