"""Random loops whose rounds write windows into what they carry: one after another, with elements in common, at places
that other carried values say, of what another window has been written into.

All values are integers, so that every order of a sum gives the same.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeAlias

from tests.loops import loop

Sizes: TypeAlias = tuple[int, ...]

SUM = "whole {\n  a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  ROOT c = s32[] add(a, b)\n}\n"


def random_window_loop(draw: Random) -> str:
    """A module with one such loop."""
    return _Writer(draw).module()


class _Writer:
    def __init__(self, draw: Random) -> None:
        self.draw = draw
        few: Sizes = draw.choice([(1,), (2,), (3,), (8,), (40,)])
        many: Sizes = (draw.choice([8, 40, 100, 1300]),)
        if draw.random() < 0.3:
            few, many = (draw.choice([1, 3]), draw.choice([1, 5])), (draw.choice([3, 8]), draw.choice([5, 33]))
        self.sizes = [draw.choice([few, many]) for _ in range(draw.randint(1, 4))]
        self.lines: list[str] = []
        self.known: dict[str, Sizes] = {f"x{n}": size for n, size in enumerate(self.sizes, 1)}  # what others may read
        self.sizes_of = dict(self.known)
        self.numbers = ["x0", "x0", *(f"x{len(self.sizes) + n}" for n in range(1, draw.randint(1, 3)))]

    def add(self, sizes: Sizes, text: str) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = s32[{','.join(map(str, sizes))}] {text}")
        self.sizes_of[name] = sizes
        return name

    def value(self, wanted: Callable[[Sizes], bool] = bool) -> str:
        return self.draw.choice([name for name, sizes in self.known.items() if wanted(sizes)])

    def like(self, sizes: Sizes) -> str:
        return self.value(lambda other: other == sizes)

    def starts(self, sizes: Sizes) -> str:
        return ", ".join(self.draw.choice(self.numbers) for _ in sizes)

    # ---- steps

    def near(self) -> None:
        one = self.value()
        other = self.like(self.known[one])
        name = self.draw.choice(["add", "subtract", "maximum", "xor"])
        self.known[self.add(self.known[one], f"{name}({one}, {other})")] = self.known[one]

    def reverse(self) -> None:
        one = self.value()
        self.known[self.add(self.known[one], f"reverse({one}), dimensions={{0}}")] = self.known[one]

    def filled(self) -> None:
        sizes = self.draw.choice(list(self.known.values()))
        number = self.draw.choice(self.numbers)
        self.known[self.add(sizes, f"broadcast({number}), dimensions={{}}")] = sizes

    def number(self) -> None:
        if self.draw.random() < 0.5:
            known = self.add((), f"constant({self.draw.choice([-3, 1, 2, 7])})")
            made = self.add((), f"{self.draw.choice(['add', 'subtract'])}({self.draw.choice(self.numbers)}, {known})")
        elif self.draw.random() < 0.5:
            one = self.value()
            ones = tuple(1 for _ in self.known[one])
            sizes = ",".join(map(str, ones))
            part = self.add(
                ones, f"dynamic-slice({one}, {self.starts(ones)}), dynamic_slice_sizes={{{sizes}}}"
            )  # fmt: skip
            made = self.add((), f"reshape({part})")
        else:
            one = self.value()
            zero, along = self.add((), "constant(0)"), ",".join(map(str, range(len(self.known[one]))))
            made = self.add((), f"reduce({one}, {zero}), dimensions={{{along}}}, to_apply=whole")
        self.numbers.append(made)

    def part(self) -> None:
        one = self.value()
        here = self.known[one]
        sizes = tuple(self.draw.choice([1, n, max(1, n // 2), min(n, 3)]) for n in here)
        text = ",".join(map(str, sizes))
        made = self.add(sizes, f"dynamic-slice({one}, {self.starts(here)}), dynamic_slice_sizes={{{text}}}")
        self.known[made] = sizes

    def window(self) -> None:
        one = self.value()
        self.written(one)

    def written(self, one: str) -> str:
        here = self.sizes_of[one]
        other = self.value(
            lambda sizes: len(sizes) == len(here) and all(n <= m for n, m in zip(sizes, here, strict=True))
        )
        made = self.add(here, f"dynamic-update-slice({one}, {other}, {self.starts(here)})")
        self.known[made] = here
        return made

    # ---- the module

    def module(self) -> str:
        draw = self.draw
        steps = [self.near, self.reverse, self.filled, self.number, self.part, self.part, self.window]
        for _ in range(draw.randint(1, 8)):
            draw.choice(steps)()
        results = []
        for n, sizes in enumerate(self.sizes, 1):
            end = f"x{n}"
            for _ in range(draw.choice([0, 1, 1, 2, 3])):
                known = dict(self.known)
                end = self.written(end)
                if draw.random() < 0.85:  # else others may read it
                    self.known = known
                elif draw.random() < 0.5:
                    draw.choice(steps)()
            if end == f"x{n}" or draw.random() < 0.1:
                end = self.like(sizes)
            results.append(end)
        own = [n for n in self.numbers[2:] if n.startswith("x")]
        results += [draw.choice(self.numbers) for _ in own]
        state = [f"s32[{','.join(map(str, sizes))}]" for sizes in self.sizes] + ["s32[]"] * len(own)
        rounds, test = draw.choice([0, 1, 2, 3, 5]), list[str]()
        if draw.random() < 0.4:
            ones = ",".join("1" for _ in self.sizes[0])
            test = [
                f"li = s32[] constant({rounds})",
                "c0 = pred[] compare(x0, li), direction=LT",
                f"e0 = s32[{ones}] slice(x1), slice={{{', '.join('[0:1]' for _ in self.sizes[0])}}}",
                "e1 = s32[] reshape(e0)",
                f"k9 = s32[] constant({draw.choice([2, 20])})",
                "c1 = pred[] compare(e1, k9), direction=LT",
                "c = pred[] and(c0, c1)",
            ]
        text = loop(state, self.lines, results, rounds=rounds, test=test)
        return text.replace("\n\n", f"\n\n{SUM}", 1)
