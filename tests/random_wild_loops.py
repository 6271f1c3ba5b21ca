"""Random loops of every form that comes to mind: other types, layouts, counters, tests of rounds, results written in
any order, state that changes places, arrays that are given twice.

Values stay small whole numbers, so that all who compute them agree to the bit.
"""

from __future__ import annotations

import math
from random import Random

FLOATS, NARROW = ("f32", "f64"), ("bf16", "f16")
SIGNED, UNSIGNED = ("s32", "s8", "s16", "s64"), ("u32", "u8", "u16", "u64")
COMPUTATIONS = ("add", "maximum", "minimum")


def random_wild_loop(draw: Random) -> str:
    """A module with one loop and what reads it."""
    return _Writer(draw).module()


class _Writer:
    def __init__(self, draw: Random) -> None:
        self.draw = draw
        self.kind = draw.choice([*FLOATS, *FLOATS, *NARROW, *SIGNED, *UNSIGNED])
        self.lanes = draw.choice([(1,), (3,), (8,), (20,), (33,), (130,), (4, 5), (8, 8), (3, 1), (2, 3, 4), (20, 2)])
        self.few = draw.choice([1, 2, 3, 8])
        self.across = draw.randrange(len(self.lanes) + 1)
        self.rounds = draw.choice([0, 1, 2, 3, 5, 8])
        self.lines: list[str] = []
        self.state: list[tuple[str, str]] = []  # what stands for it, and its shape
        self.arrays: list[str] = []
        self.pairs: list[str] = []
        self.numbers: list[str] = []
        self.one, self.two, self.number = self.shape(self.lanes), self.shape(self.wide(self.few)), f"{self.kind}[]"

    # ---- shapes and lines

    def wide(self, few: int) -> tuple[int, ...]:
        return (*self.lanes[: self.across], few, *self.lanes[self.across :])

    def shape(self, sizes: tuple[int, ...], kind: str = "", *, plain: bool = False) -> str:
        text = f"{kind or self.kind}[{','.join(map(str, sizes))}]"
        if plain or len(sizes) < 2 or self.draw.random() < 0.75:
            return text
        order = list(range(len(sizes)))
        self.draw.shuffle(order)
        return f"{text}{{{','.join(map(str, order))}}}"

    def add(self, shape: str, text: str) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {shape} {text}")
        return name

    def constant(self, value: int, kind: str = "") -> str:
        return self.add(f"{kind or self.kind}[]", f"constant({value})")

    def small(self, shape: str, value: str) -> str:
        """The value, brought back to small numbers."""
        least = self.constant(0 if self.kind in UNSIGNED else -8)
        return self.add(shape, f"clamp({least}, {value}, {self.constant(8)})")

    def binary(self, shape: str, a: str, b: str) -> str:
        name = self.draw.choice(COMPUTATIONS)
        made = self.add(shape, f"{name}({a}, {b})")
        return self.small(shape, made) if name == "add" else made

    def spread(self, number: str, shape: str) -> str:
        return self.add(shape, f"broadcast({number}), dimensions={{}}")

    def cut(self, value: str, sizes: tuple[int, ...], dimension: int, start: int, end: int, step: int = 1) -> str:
        spans = [f"[{start}:{end}:{step}]" if d == dimension else f"[0:{n}]" for d, n in enumerate(sizes)]
        thin = tuple(-(-(end - start) // step) if d == dimension else n for d, n in enumerate(sizes))
        return self.add(self.shape(thin), f"slice({value}), slice={{{', '.join(spans)}}}")

    def column(self, pair: str) -> str:
        at = self.draw.randrange(self.few)
        return self.add(self.one, f"reshape({self.cut(pair, self.wide(self.few), self.across, at, at + 1)})")

    def thin(self, array: str) -> str:
        return self.add(self.shape(self.wide(1)), f"reshape({array})")

    # ---- steps

    def step(self) -> None:
        draw = self.draw
        names = [n for n in dir(self) if n.startswith("near_")] * 3 + ["near_binary"] * 6
        if draw.random() < 0.35:
            names += [n for n in dir(self) if n.startswith("far_")]
        getattr(self, draw.choice(names))()

    def near_binary(self) -> None:
        self.arrays.append(self.binary(self.one, self.draw.choice(self.arrays), self.draw.choice(self.arrays)))

    def near_pairs(self) -> None:
        self.pairs.append(self.binary(self.two, self.draw.choice(self.pairs), self.draw.choice(self.pairs)))

    def near_numbers(self) -> None:
        self.numbers.append(self.binary(self.number, self.draw.choice(self.numbers), self.draw.choice(self.numbers)))

    def near_column(self) -> None:
        self.arrays.append(
            self.binary(self.one, self.draw.choice(self.arrays), self.column(self.draw.choice(self.pairs)))
        )

    def near_spread(self) -> None:
        wide = self.spread(self.draw.choice(self.numbers), self.one)
        self.arrays.append(self.binary(self.one, self.draw.choice(self.arrays), wide))

    def near_counter(self) -> None:
        self.numbers.append(
            self.small(self.number, self.add(self.number, f"convert({self.draw.choice(['i', 'j', 'h'])})"))
        )

    def near_broadcast(self) -> None:
        along = ",".join(str(d) for d in range(len(self.lanes) + 1) if d != self.across)
        wide = self.add(self.two, f"broadcast({self.draw.choice(self.arrays)}), dimensions={{{along}}}")
        self.pairs.append(self.binary(self.two, self.draw.choice(self.pairs), wide))

    def near_select(self) -> None:
        a, b = self.draw.choice(self.arrays), self.draw.choice(self.arrays)
        mask = self.add(
            self.shape(self.lanes, "pred"), f"compare({a}, {b}), direction={self.draw.choice(['LT', 'GE', 'EQ', 'NE'])}"
        )
        self.arrays.append(self.add(self.one, f"select({mask}, {self.draw.choice(self.arrays)}, {b})"))

    def near_convert(self) -> None:
        other = self.draw.choice(["s32", "f32", "s8", "bf16", "f64"])
        if self.kind in UNSIGNED:
            other = "f32"
        made = self.add(self.shape(self.lanes, other), f"convert({self.draw.choice(self.arrays)})")
        self.arrays.append(self.add(self.one, f"convert({made})"))

    def near_iota(self) -> None:
        d = self.draw.randrange(len(self.lanes))
        self.arrays.append(
            self.binary(
                self.one,
                self.small(self.one, self.add(self.one, f"iota(), iota_dimension={d}")),
                self.draw.choice(self.arrays),
            )
        )

    def near_join(self) -> None:
        parts = [
            self.thin(
                self.draw.choice(self.arrays) if self.draw.random() < 0.5 else self.column(self.draw.choice(self.pairs))
            )
            for _ in range(self.few)
        ]
        self.pairs.append(self.add(self.two, f"concatenate({', '.join(parts)}), dimensions={{{self.across}}}"))

    def near_window(self) -> None:
        pair, sizes = self.draw.choice(self.pairs), self.wide(self.few)
        if self.few == 1 or self.draw.random() < 0.5:
            self.pairs.append(self.add(self.two, f"reverse({pair}), dimensions={{{self.across}}}"))
            return
        first, rest = self.cut(pair, sizes, self.across, 0, 1), self.cut(pair, sizes, self.across, 1, self.few)
        self.pairs.append(self.add(self.two, f"concatenate({rest}, {first}), dimensions={{{self.across}}}"))

    def neutral(self, name: str) -> str:
        """The init value of a fold: XLA takes others once, more often or not at all."""
        least, most = (0, 120) if self.kind in UNSIGNED else (-120, 120)
        return self.constant({"most": least, "least": most, "total": 0}[name])

    def near_fold(self) -> None:
        name = self.draw.choice(["most", "least", "total"])
        init = self.neutral(name)
        made = self.add(self.one, f"reduce({self.draw.choice(self.pairs)}, {init}), dimensions={{{self.across}}}, "
                                  f"to_apply={name}")  # fmt: skip
        self.arrays.append(self.small(self.one, made))

    def near_pad(self) -> None:
        pair, low = self.draw.choice(self.pairs), self.draw.choice([0, 1, -1])
        padding = "x".join(f"{low}_{-low}" if d == self.across else "0_0" for d in range(len(self.lanes) + 1))
        if self.few > 1:
            self.pairs.append(self.add(self.two, f"pad({pair}, {self.draw.choice(self.numbers)}), padding={padding}"))

    def near_table(self) -> None:
        start = self.draw.choice(["i", "j", "zero", "k", "three"])
        made = self.add(
            self.shape((1, *self.lanes)),
            f"dynamic-slice(table, {', '.join([start] + ['zero'] * len(self.lanes))}), "
            f"dynamic_slice_sizes={{{','.join(map(str, (1, *self.lanes)))}}}",
        )
        self.arrays.append(self.binary(self.one, self.draw.choice(self.arrays), self.add(self.one, f"reshape({made})")))

    def near_lookup(self) -> None:
        """A table of few numbers, read where each lane's value says."""
        if len(self.lanes) != 1:
            return
        at = self.add(self.shape(self.lanes, "s32"), f"convert({self.draw.choice(self.arrays)})")
        made = self.add(self.one, f"gather(list, {at}), offset_dims={{}}, collapsed_slice_dims={{0}}, "
                                  f"start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1}}")  # fmt: skip
        self.arrays.append(made)

    def near_write(self) -> None:
        """A part of the lane's own is written over where a number says that is the same for all."""
        starts = ["zero"] * (len(self.lanes) + 1)
        starts[self.across] = self.draw.choice(["i", "j", "k"])
        made = self.add(self.two, f"dynamic-update-slice({self.draw.choice(self.pairs)}, "
                                  f"{self.thin(self.draw.choice(self.arrays))}, {', '.join(starts)})")  # fmt: skip
        self.pairs.append(made)

    def near_product(self) -> None:
        if self.kind not in FLOATS:
            return
        made = self.shape((*self.lanes, self.few), plain=True)
        flat = self.add(made, f"dot({self.draw.choice(self.pairs)}, square), lhs_contracting_dims={{{self.across}}}, "
                              f"rhs_contracting_dims={{0}}")  # fmt: skip
        back = [*range(len(self.lanes))]
        back.insert(self.across, len(self.lanes))
        turned = self.add(self.two, f"transpose({flat}), dimensions={{{','.join(map(str, back))}}}")
        self.pairs.append(self.small(self.two, turned))

    def near_tuple(self) -> None:
        a, p = self.draw.choice(self.arrays), self.draw.choice(self.pairs)
        both = f"({self.one}, {self.two})"
        made = self.add(both, f"tuple({a}, {p})")
        self.arrays.append(self.add(self.one, f"get-tuple-element({made}), index=0"))
        self.pairs.append(self.add(self.two, f"get-tuple-element({made}), index=1"))

    def near_call(self) -> None:
        name = self.draw.choice(["call(X), to_apply=changed", "fusion(X), kind=kLoop, calls=changed"])
        self.arrays.append(self.add(self.one, name.replace("X", self.draw.choice(self.arrays))))

    def near_flat(self) -> None:
        count = math.prod(self.lanes)
        flat = self.add(self.shape((count,)), f"reshape({self.draw.choice(self.arrays)})")
        if self.draw.random() < 0.2:
            flat = self.add(self.shape((count,)), f"reverse({flat}), dimensions={{0}}")
        self.arrays.append(self.add(self.one, f"reshape({flat})"))

    def near_doubled(self) -> None:
        d, a, b = self.draw.randrange(len(self.lanes)), self.draw.choice(self.arrays), self.draw.choice(self.arrays)
        size = self.lanes[d]
        wide = tuple(2 * n if k == d else n for k, n in enumerate(self.lanes))
        made = self.add(self.shape(wide), f"concatenate({a}, {b}), dimensions={{{d}}}")
        start, step = self.draw.choice([(0, 1), (size, 1), (0, 2), (1, 2)])
        end = start + size if step == 1 else 2 * size
        self.arrays.append(self.add(self.one, f"copy({self.cut(made, wide, d, start, end, step)})"))

    def far_reverse(self) -> None:
        d = self.draw.randrange(len(self.lanes))
        self.arrays.append(self.add(self.one, f"reverse({self.draw.choice(self.arrays)}), dimensions={{{d}}}"))

    def far_roll(self) -> None:
        d = self.draw.randrange(len(self.lanes))
        if self.lanes[d] > 1:
            array = self.draw.choice(self.arrays)
            first, rest = self.cut(array, self.lanes, d, 0, 1), self.cut(array, self.lanes, d, 1, self.lanes[d])
            self.arrays.append(self.add(self.one, f"concatenate({rest}, {first}), dimensions={{{d}}}"))

    def far_turn(self) -> None:
        if len(self.lanes) == 2 and self.lanes[0] == self.lanes[1]:
            self.arrays.append(self.add(self.one, f"transpose({self.draw.choice(self.arrays)}), dimensions={{1,0}}"))

    def far_fold(self) -> None:
        every = ",".join(str(d) for d in range(len(self.lanes)))
        name = self.draw.choice(["most", "least", "total"])
        made = self.add(self.number, f"reduce({self.draw.choice(self.arrays)}, {self.neutral(name)}), "
                                     f"dimensions={{{every}}}, to_apply={name}")  # fmt: skip
        self.numbers.append(self.small(self.number, made))

    def far_fold_one(self) -> None:
        d = self.draw.randrange(len(self.lanes))
        kept = tuple(n for k, n in enumerate(self.lanes) if k != d)
        along = ",".join(str(k) for k in range(len(self.lanes)) if k != d)
        made = self.add(self.shape(kept), f"reduce({self.draw.choice(self.arrays)}, {self.constant(0)}), "
                                          f"dimensions={{{d}}}, to_apply=total")  # fmt: skip
        self.arrays.append(self.small(self.one, self.add(self.one, f"broadcast({made}), dimensions={{{along}}}")))

    def far_sums(self) -> None:
        d = self.draw.randrange(len(self.lanes))
        window = "x".join("3" if k == d else "1" for k in range(len(self.lanes)))
        padding = "x".join("1_1" if k == d else "0_0" for k in range(len(self.lanes)))
        made = self.add(self.one, f"reduce-window({self.draw.choice(self.arrays)}, {self.constant(0)}), "
                                  f"window={{size={window} pad={padding}}}, to_apply=total")  # fmt: skip
        self.arrays.append(self.small(self.one, made))

    def far_element(self) -> None:
        sizes = (1,) * len(self.lanes)
        starts = ", ".join(self.draw.choice(["i", "j", "k", "zero"]) for _ in sizes)
        made = self.add(self.shape(sizes), f"dynamic-slice({self.draw.choice(self.arrays)}, {starts}), "
                                           f"dynamic_slice_sizes={{{','.join(map(str, sizes))}}}")  # fmt: skip
        self.numbers.append(self.add(self.number, f"reshape({made})"))

    def far_gather(self) -> None:
        if len(self.lanes) != 1:
            return
        at = self.add(self.shape(self.lanes, "s32"), f"convert({self.draw.choice(self.arrays)})")
        made = self.add(self.one, f"gather({self.draw.choice(self.arrays)}, {at}), offset_dims={{}}, "
                                  f"collapsed_slice_dims={{0}}, start_index_map={{0}}, index_vector_dim=1, "
                                  f"slice_sizes={{1}}")  # fmt: skip
        self.arrays.append(made)

    def far_pad(self) -> None:
        d, low = self.draw.randrange(len(self.lanes)), self.draw.choice([1, -1, 2])
        padding = "x".join(f"{low}_{-low}" if k == d else "0_0" for k in range(len(self.lanes)))
        if self.lanes[d] > 2:
            self.arrays.append(self.add(self.one, f"pad({self.draw.choice(self.arrays)}, "
                                                  f"{self.draw.choice(self.numbers)}), padding={padding}"))  # fmt: skip

    def far_write(self) -> None:
        sizes = (1,) * len(self.lanes)
        part = self.add(self.shape(sizes), f"reshape({self.draw.choice(self.numbers)})")
        starts = ", ".join(self.draw.choice(["i", "j", "k", "zero"]) for _ in sizes)
        self.arrays.append(self.add(self.one, f"dynamic-update-slice({self.draw.choice(self.arrays)}, {part}, "
                                              f"{starts})"))  # fmt: skip

    # ---- the whole

    def module(self) -> str:
        draw = self.draw
        counter = draw.choice(["s32", "s32", "s32", "u8", "s8", "u32", "s64", "u64"])
        step = draw.choice([1, 1, 1, 2, 3]) * (1 if counter.startswith("u") else draw.choice([1, 1, 1, -1]))
        first = draw.choice([0, 0, 0, 1, 5] + ([] if counter.startswith("u") else [-3]))
        last = first + step * self.rounds
        if draw.random() < 0.1 and counter in ("u8", "s8"):  # the count ends where the type does
            last = (255 if counter == "u8" else 127) if step > 0 else -128
            first = last - step * self.rounds
        directions = ["NE", "LT" if step > 0 else "GT"]
        rows = max(1, self.rounds + draw.choice([0, 0, 0, 2, -1]))
        place = draw.randrange(len(self.lanes) + 1)
        deep = (*self.lanes[:place], rows, *self.lanes[place:])
        shapes = (
            [self.one] * draw.choice([1, 2, 3])
            + [self.two] * draw.choice([0, 1, 2])
            + [self.number] * draw.choice([0, 1, 2])
        )
        results = draw.choice([0, 1, 1, 2])
        is_part, is_wide = draw.random() < 0.08, draw.random() < 0.12
        part = draw.choice([d for d in range(len(deep)) if d != place])
        if is_wide:
            deep = tuple(n + 2 if d == part else n for d, n in enumerate(deep))
        deeps = [self.shape(deep) for _ in range(results)] if draw.random() < 0.5 else [self.shape(deep)] * results
        table, listed, square = self.shape((4, *self.lanes)), self.shape((5,)), self.shape((self.few, self.few))
        narrow, edge = draw.choice([("u8", 254), ("s8", 126), ("u8", 3), ("s32", 2), ("u4", 14)])
        every = [f"{counter}[]", "s32[]", *shapes, *deeps, f"{narrow}[]", table, listed, square]
        whole = f"({', '.join(every)})"
        names = [
            "count",
            "k",
            *(f"x{n}" for n in range(len(shapes))),
            *(f"rows{n}" for n in range(results)),
            "m",
            "table",
            "list",
            "square",
        ]
        taken = [
            "t = " + whole + " parameter(0)",
            *(
                f"{name} = {shape} get-tuple-element(t), index={n}"
                for n, (name, shape) in enumerate(zip(names, every, strict=True))
            ),
        ]
        self.lines = [
            f"more = {counter}[] constant({step})",
            f"next = {counter}[] add(count, more)",
            "i = s32[] convert(count)",
            "j = s32[] convert(next)",
            "zero = s32[] constant(0)",
            "three = s32[] constant(3)",
            "one = s32[] constant(1)",
            "h = s32[] convert(m)",
            f"few = {narrow}[] constant(1)",
            f"m_next = {narrow}[] add(m, few)",
        ]
        owned = dict(zip(names[2:], shapes, strict=False))
        self.arrays = [n for n, s in owned.items() if s == self.one] or []
        self.numbers = [n for n, s in owned.items() if s == self.number] + [self.constant(2)]
        self.pairs = [n for n, s in owned.items() if s == self.two] or [self.spread(self.numbers[-1], self.two)]
        for _ in range(draw.randint(1, 9)):
            self.step()
        ends = []
        for shape in shapes:
            of = {self.one: self.arrays, self.two: self.pairs, self.number: self.numbers}[shape]
            ends.append(draw.choice(of[-3:] if draw.random() < 0.7 else of))
        if draw.random() < 0.2:
            ends[0] = "x0"
        k_end = draw.choice(
            [
                "k",
                self.add("s32[]", "add(k, one)"),
                self.add("s32[]", "negate(k)"),
                "i",
                self.add("s32[]", "subtract(one, k)"),
            ]
        )
        written = []
        for n in range(results):
            window = (*self.lanes[:place], 1, *self.lanes[place:])
            row = self.add(self.shape(window), f"reshape({draw.choice(self.arrays)})")
            if is_part:  # of the lanes too
                row = self.cut(row, window, part, 0, -(-window[part] // 2))
            last_row = self.add("s32[]", f"constant({rows - 1})")
            at = draw.choice(
                [
                    "i",
                    "i",
                    "i",
                    "j",
                    "k",
                    "h",
                    "zero",
                    "count",
                    self.add("s32[]", f"subtract({last_row}, i)"),
                    self.add("s32[]", "add(i, i)"),
                ]
            )
            starts = ["zero"] * len(deep)
            if at == "count" and counter != "s32":
                starts = [self.constant(0, counter)] * len(deep)
            starts[place] = at
            if (is_part or is_wide) and at != "count":
                starts[part] = draw.choice(["zero", "i", "k"])
            into = f"rows{n}"
            made = self.add(deeps[n], f"dynamic-update-slice({into}, {row}, {', '.join(starts)})")
            if draw.random() < 0.1:
                made = self.add(deeps[n], f"dynamic-update-slice({made}, {row}, {', '.join(['zero'] * len(deep))})")
            written.append(made)
        if results == 2 and deeps[0] == deeps[1] and draw.random() < 0.3:
            written = draw.choice(
                [[written[0], written[0]], [written[1], written[0]], [written[0], "rows0"], ["rows1", written[0]]]
            )
        body = [
            *taken,
            *self.lines,
            f"ROOT r = {whole} tuple({', '.join(['next', k_end, *ends, *written, 'm_next', 'table', 'list', 'square'])})",
        ]
        limit, test = (
            f"limit = {counter}[] constant({last})",
            f"compare(count, limit), direction={draw.choice(directions)}",
        )
        style = draw.random()
        if style < 0.15:
            test = f"compare(limit, count), direction={draw.choice(['NE', 'GT' if step > 0 else 'LT'])}"
        asked = [*taken, limit, f"ROOT c = pred[] {test}"]
        if 0.15 < style < 0.3:
            asked = [
                *taken,
                limit,
                f"c = pred[] {test}",
                "five = s32[] constant(2)",
                "d = pred[] compare(k, five), direction=LT",
                "ROOT e = pred[] and(c, d)",
            ]
        entry = []
        given = ["start", "k0"]
        parameters = 0
        for n, shape in enumerate([*shapes, *deeps, f"{narrow}[]", table, listed, square]):
            name, chance = f"p{n}", draw.random()
            earlier = [g for g, s in zip(given[2:], [*shapes, *deeps], strict=False) if s == shape]
            if n == len(shapes) + results:
                entry.append(f"{name} = {shape} constant({edge - draw.choice([0, 0, 1, 2])})")
            elif chance < (0.3 if shape in deeps else 0.08) and earlier:
                name = draw.choice(earlier)
            elif chance < 0.25 and n < len(shapes) + results:
                entry += [f"o{n} = {self.kind}[] constant(3)", f"{name} = {shape} broadcast(o{n}), dimensions={{}}"]
            else:
                entry.append(f"{name} = {shape} parameter({parameters})")
                parameters += 1
            given.append(name)
        entry += [f"start = {counter}[] constant({first})", f"k0 = s32[] constant({draw.choice([0, 0, 1, 2, -1])})"]
        entry.append(f"s = {whole} tuple({', '.join(given)})")
        entry.append(f"w = {whole} while(s), condition=condition, body=body")
        changed = [
            n
            for n, (name, end) in enumerate(zip(names, ["next", k_end, *ends, *written, "m_next"], strict=False))
            if name != end
        ]
        read = [n for n in changed if draw.random() < 0.8] or changed[:1]
        entry += [f"g{n} = {every[n]} get-tuple-element(w), index={n}" for n in read]
        ends_of = [(f"g{n}", every[n]) for n in read]
        if draw.random() < 0.3:
            n = draw.randrange(2, 2 + len(shapes) + results)
            entry.append(
                f"after = {every[n]} negate({given[n]})"
                if self.kind not in UNSIGNED
                else f"after = {every[n]} not({given[n]})"
            )
            ends_of.append(("after", every[n]))
        entry.append(f"ROOT r = ({', '.join(s for _, s in ends_of)}) tuple({', '.join(n for n, _ in ends_of)})")
        changed_lines = [
            f"a = {self.one} parameter(0)",
            f"b = {self.one} maximum(a, a)",
            f"ROOT c = {self.one} minimum(b, a)",
        ]
        scalars = [
            (
                name,
                [
                    "a = K[] parameter(0)".replace("K", self.kind),
                    "b = K[] parameter(1)".replace("K", self.kind),
                    f"ROOT c = {self.kind}[] {opcode}(a, b)",
                ],
            )
            for name, opcode in (("most", "maximum"), ("least", "minimum"), ("total", "add"))
        ]
        computations = [*scalars, ("changed", changed_lines), ("body", body), ("condition", asked), ("ENTRY e", entry)]
        return "HloModule m\n\n" + "\n".join(
            f"{n} {{\n" + "".join(f"  {line}\n" for line in lines) + "}\n" for n, lines in computations
        )
