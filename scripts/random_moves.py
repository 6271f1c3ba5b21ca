"""Random modules that only move narrow floats of any bits, against the same module of integers.

    python -m scripts.random_moves [--count 100] [--seed 1] [--form lanes | --form plain] [--keep FOLDER]

What is moved keeps its bits, those of a NaN too: every result of the evaluator, and of the kernels that the host's
compiler builds of the fused module, must have the bits that the evaluator gives where the module has unsigned integers
of the same width instead. Some values are computed beside that; these must be equal as numbers. Prints what differs;
exit code 1 where anything does.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, TypeAlias

import numpy as np

import hlo_opt
from hlo_opt.ir import ELEMENT_TYPES, ElementType
from hlo_opt.ops.stored_bits import bits_type

NARROW = tuple(name for name, kind in ELEMENT_TYPES.items() if bits_type(kind) is not None)
SIZES = (1, 2, 3, 4, 5, 8, 16, 17, 31, 32, 33, 64, 130)
LARGEST = 30_000  # elements of a value

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

COMPUTATIONS = """later {
  old = $t[] parameter(0)
  ROOT new = $t[] parameter(1)
}

first {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = $t[] parameter(2)
  d = $t[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT
}
"""
LOOP = """
more_$n {
  s = (s32[], $$t[$d], $$t[$d]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT
}

step_$n {
  s = (s32[], $$t[$d], $$t[$d]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  a = $$t[$d] get-tuple-element(s), index=1
  b = $$t[$d] get-tuple-element(s), index=2
  x = $$t[$d] $what
  ROOT r = (s32[], $$t[$d], $$t[$d]) tuple(j, x, a)
}
"""


@dataclass(frozen=True)
class Value:
    """A value of the entry. `kind`: "t" for the narrow float, "u" for the integer of its width. `computed`: only its
    number is known."""

    name: str
    sizes: tuple[int, ...]
    kind: str = "t"
    computed: bool = False


@dataclass(frozen=True)
class Given:
    """A parameter: of the narrow float (`t`), predicates, whole numbers below `most`, or each of these once
    (`order`)."""

    kind: str
    sizes: tuple[int, ...]
    most: int = 0


def listed(numbers: Any) -> str:
    return ",".join(map(str, numbers))


class Module:
    """A module in the making; `$t` stands for its narrow float."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lines: list[str] = []
        self.computations = COMPUTATIONS
        self.given: list[Given] = []
        self.values: list[Value] = []
        self.results: list[Value] = []
        rank = self.rng.randint(1, 3)
        sizes = tuple(self.rng.choice(SIZES[: 13 - 3 * rank]) for _ in range(rank))
        for _ in range(2):
            self.values.append(Value(self.parameter(Given("t", sizes)), sizes))
        for _ in range(self.rng.randint(3, 12)):
            value = self.rng.choice([v for v in self.values[-6:] if math.prod(v.sizes) < LARGEST] or self.values[:1])
            self.rng.choice(MOVES)(self, value)
        self.results += [*self.rng.sample(self.values, min(3, len(self.values))), self.values[-1]]
        self.results = list(dict.fromkeys(self.results))

    def line(self, shape: str, what: str) -> str:
        self.lines.append(f"v{len(self.lines)} = {shape} {what}")
        return f"v{len(self.lines) - 1}"

    def parameter(self, given: Given) -> str:
        kind = {"t": "$t", "pred": "pred"}.get(given.kind, "s32")
        self.given.append(given)
        return self.line(f"{kind}[{listed(given.sizes)}]", f"parameter({len(self.given) - 1})")

    def add(self, sizes: tuple[int, ...], what: str, *sources: Value, computed: bool = False) -> None:
        """A value that is moved from others."""
        name = self.line(f"$t[{listed(sizes)}]", what)
        self.values.append(Value(name, sizes, computed=computed or any(s.computed for s in sources)))

    def alike(self, value: Value) -> Value:
        """A value of the same shape."""
        return self.rng.choice([v for v in self.values if v.sizes == value.sizes])

    def starts(self, value: Value) -> str:
        return ", ".join(self.parameter(Given("below", (), size)) for size in value.sizes)

    def copy(self, v: Value) -> None:
        layout = list(range(len(v.sizes)))
        self.rng.shuffle(layout)
        other = self.line(f"$t[{listed(v.sizes)}]{{{listed(layout)}}}", f"copy({v.name})")
        self.add(v.sizes, f"copy({other})", v)

    def transpose(self, v: Value) -> None:
        order = list(range(len(v.sizes)))
        self.rng.shuffle(order)
        self.add(tuple(v.sizes[d] for d in order), f"transpose({v.name}), dimensions={{{listed(order)}}}", v)

    def slice(self, v: Value) -> None:
        cuts = [(self.rng.randint(0, size - 1), self.rng.choice([1, 1, 2, 3])) for size in v.sizes]
        parts = [f"[{first}:{size}:{step}]" for (first, step), size in zip(cuts, v.sizes, strict=True)]
        sizes = tuple(-(-(size - first) // step) for (first, step), size in zip(cuts, v.sizes, strict=True))
        self.add(sizes, f"slice({v.name}), slice={{{listed(parts)}}}", v)

    def select(self, v: Value) -> None:
        other, choice = self.alike(v), self.parameter(Given("pred", v.sizes))
        self.add(v.sizes, f"select({choice}, {v.name}, {other.name})", v, other)

    def concatenate(self, v: Value) -> None:
        other, d = self.alike(v), self.rng.randrange(len(v.sizes))
        sizes = tuple(size * (2 if k == d else 1) for k, size in enumerate(v.sizes))
        self.add(sizes, f"concatenate({v.name}, {other.name}), dimensions={{{d}}}", v, other)

    def pad(self, v: Value) -> None:
        zero = self.line("$t[]", "constant($zero)")
        edges = [(self.rng.randint(0, 3), self.rng.randint(0, 2), self.rng.choice([0, 0, 1])) for _ in v.sizes]
        sizes = tuple(
            low + size + high + (size - 1) * inner for (low, high, inner), size in zip(edges, v.sizes, strict=True)
        )
        padding = "x".join(f"{low}_{high}_{inner}" for low, high, inner in edges)
        self.add(sizes, f"pad({v.name}, {zero}), padding={padding}", v)

    def gather(self, v: Value) -> None:
        rows, rest = self.rng.choice(SIZES), v.sizes[1:]
        places = self.parameter(Given("below", (rows, 1), v.sizes[0]))
        how = f"offset_dims={{{listed(range(1, len(v.sizes)))}}}, collapsed_slice_dims={{0}}, start_index_map={{0}}, "
        how += f"index_vector_dim=1, slice_sizes={{{listed((1, *rest))}}}"
        self.add((rows, *rest), f"gather({v.name}, {places}), {how}", v)

    def scatter(self, v: Value) -> None:
        other, places = self.alike(v), self.parameter(Given("order", (v.sizes[0], 1), v.sizes[0]))
        how = f"update_window_dims={{{listed(range(1, len(v.sizes)))}}}, inserted_window_dims={{0}}, "
        how += "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=later"
        self.add(v.sizes, f"scatter({v.name}, {places}, {other.name}), {how}", v, other)

    def dynamic_slice(self, v: Value) -> None:
        sizes = tuple(self.rng.randint(1, size) for size in v.sizes)
        what = f"dynamic-slice({v.name}, {self.starts(v)}), dynamic_slice_sizes={{{listed(sizes)}}}"
        self.add(sizes, what, v)

    def dynamic_update_slice(self, v: Value) -> None:
        rank = len(v.sizes)
        fit = [
            o
            for o in self.values
            if len(o.sizes) == rank and all(a <= b for a, b in zip(o.sizes, v.sizes, strict=True))
        ]
        part = self.rng.choice(fit)
        self.add(v.sizes, f"dynamic-update-slice({v.name}, {part.name}, {self.starts(v)})", v, part)

    def reverse(self, v: Value) -> None:
        self.add(v.sizes, f"reverse({v.name}), dimensions={{{self.rng.randrange(len(v.sizes))}}}", v)

    def broadcast(self, v: Value) -> None:
        sizes = (self.rng.choice([1, 2, 3, 8]), *v.sizes)
        self.add(sizes, f"broadcast({v.name}), dimensions={{{listed(range(1, len(sizes)))}}}", v)

    def reshape(self, v: Value) -> None:
        self.add((math.prod(v.sizes),), f"reshape({v.name})", v)

    def bits(self, v: Value) -> None:
        shape = f"$u[{listed(v.sizes)}]"
        taken = self.line(shape, f"bitcast-convert({v.name})")
        turned = self.line(shape, f"not({taken})")
        if not v.computed:
            self.results += [Value(taken, v.sizes, "u"), Value(turned, v.sizes, "u")]
            self.add(v.sizes, f"bitcast-convert({turned})")

    def sort(self, v: Value) -> None:
        shape, keys = listed(v.sizes), self.parameter(Given("order", v.sizes, math.prod(v.sizes)))
        what = f"sort({keys}, {v.name}), dimensions={{{len(v.sizes) - 1}}}, to_apply=first"
        self.add(v.sizes, f"get-tuple-element({self.line(f'(s32[{shape}], $t[{shape}])', what)}), index=1", v)

    def loop(self, v: Value) -> None:
        other, d = self.alike(v), listed(v.sizes)
        number, carried = self.computations.count("step_"), f"(s32[], $t[{d}], $t[{d}])"
        what = self.rng.choice(["copy(b)", "reverse(b), dimensions={0}"])
        self.computations += Template(LOOP).substitute(n=number, d=d, what=what)
        zero = self.line("s32[]", "constant(0)")
        state = self.line(carried, f"tuple({zero}, {v.name}, {other.name})")
        end = self.line(carried, f"while({state}), condition=more_{number}, body=step_{number}")
        for index in (1, 2):
            self.add(v.sizes, f"get-tuple-element({end}), index={index}", v, other)

    def square(self, v: Value) -> None:
        self.add(v.sizes, f"multiply({v.name}, {v.name})", v, computed=True)

    def text(self, element_type: str) -> str:
        """The module of a type. For integers the squares are other numbers; nothing that is compared hangs on them."""
        kind = ELEMENT_TYPES[element_type]
        shapes = ", ".join(f"${r.kind}[{listed(r.sizes)}]" for r in self.results)
        names = ", ".join(r.name for r in self.results)
        body = "\n  ".join([*self.lines, f"ROOT r = ({shapes}) tuple({names})"])
        zero = "5.877471754111438e-39" if element_type == "f8e8m0fnu" else "0"  # the number whose bits are 0
        names_of = {"t": element_type, "u": str(bits_type(kind) or kind), "zero": zero}
        text = f"HloModule m\n\n{self.computations}\nENTRY e {{\n  {body}\n}}\n"
        return Template(text).substitute(names_of)

    def inputs(self, kind: ElementType) -> list[Array]:
        """Inputs; half of the floats are infinite or NaN."""
        rng = np.random.default_rng(self.rng.randrange(1 << 32))
        return [_drawn(given, kind, rng) for given in self.given]


MOVES: tuple[Callable[[Module, Value], None], ...] = (
    Module.copy, Module.transpose, Module.slice, Module.select, Module.concatenate, Module.pad, Module.gather,
    Module.scatter, Module.dynamic_slice, Module.dynamic_update_slice, Module.reverse, Module.broadcast,
    Module.reshape, Module.bits, Module.sort, Module.loop, Module.square,
)  # fmt: skip


def _drawn(given: Given, kind: ElementType, rng: np.random.Generator) -> Array:
    if given.kind == "t":
        drawn = rng.integers(0, 1 << kind.bits, given.sizes)
        if kind.bits == 16:
            infinity = 0x7F80 if kind.name == "bf16" else 0x7C00
            drawn = np.where(rng.random(given.sizes) < 0.5, drawn | infinity, drawn)
        return drawn.astype(np.uint16 if kind.bits == 16 else np.uint8)
    if given.kind == "pred":
        return rng.integers(0, 2, given.sizes).astype(bool)
    if given.kind == "order":
        return rng.permutation(given.most).astype(np.int32).reshape(given.sizes)
    return np.asarray(rng.integers(0, given.most, given.sizes), np.int32)


def of_type(arrays: list[Array], given: list[Given], kind: ElementType) -> list[Array]:
    """The inputs, with what has the bits of a narrow float as that, or as an integer."""
    dtype = kind.dtype

    def typed(array: Array) -> Array:
        return array.astype(dtype) if kind.is_integer else array.view(dtype)

    return [typed(a) if g.kind == "t" else a for a, g in zip(arrays, given, strict=True)]


def differing(got: list[Any], want: list[Any], numbers: list[Any], results: list[Value]) -> list[str]:
    """The results that have other bits than `want`, or, where they are computed, other numbers than `numbers`."""
    found = []
    for one, bits, number, value in zip(got, want, numbers, results, strict=True):
        if value.computed:
            same = np.array_equal(one.astype(np.float32), number.astype(np.float32), equal_nan=True)
        else:
            same = np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(bits).tobytes()
        found += [] if same else [value.name]
    return found


def check(seed: int, form: Any) -> tuple[str, str] | None:
    """What differs in the module of a seed, and its text; None where nothing does. `form`: of the host's kernels;
    None: the evaluator alone."""
    module = Module(seed)
    kind = ELEMENT_TYPES[module.rng.choice(NARROW)]
    unsigned = bits_type(kind)
    assert unsigned is not None
    drawn, text = module.inputs(kind), module.text(kind.name)
    inputs = of_type(drawn, module.given, kind)
    want = list(hlo_opt.evaluate(hlo_opt.parse(module.text(unsigned.name)), of_type(drawn, module.given, unsigned)))
    numbers = list(hlo_opt.evaluate(hlo_opt.parse(text), inputs))
    found = differing(numbers, want, numbers, module.results)
    where = "the evaluator"
    if not found and form is not None:
        where = f"kernels as {form}"
        got = hlo_opt.compile(hlo_opt.fuse(text)[0], "host", form=form)(*inputs)
        found = differing(list(got), want, numbers, module.results)
    return (f"seed {seed}: {where} differ in {', '.join(found)}", text) if found else None


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1, help="of the first module")
    parser.add_argument("--form", choices=["lanes", "plain"], default="lanes")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="save the modules that differ there")
    options = parser.parse_args()
    wrong = 0
    for seed in range(options.seed, options.seed + options.count):
        found = check(seed, options.form)
        if found is not None:
            wrong += 1
            print(found[0], flush=True)
            if options.keep is not None:
                options.keep.mkdir(parents=True, exist_ok=True)
                (options.keep / f"{seed}.hlo").write_text(found[1], encoding="utf-8")
    print(f"{options.count} modules, {wrong} differ")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
