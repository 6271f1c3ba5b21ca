"""Writes a program: a module and the intervals of its inputs, instruction by instruction, every value of which is
comparable."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from hlo_opt.ir import (
    Attribute,
    Called,
    Computation,
    ElementType,
    Instruction,
    Layout,
    Literal,
    Module,
    Shape,
    SliceDimension,
    edit,
)
from random_modules.builder import PRED, S32, Draw, arr, tup
from random_modules.comparable.known import Known, Number, limits

__all__ = ["PRED", "RECIPES", "S32", "Program", "Writer", "arr", "family", "tup"]

FLOATS = ("f32", "f64", "f16", "bf16")
INTEGERS = ("s32", "s8", "u8", "s16", "u16", "u32", "s64", "u64")
COMPLEX = ("c64", "c128")
NUMBERS = (*FLOATS, *INTEGERS, *COMPLEX)
MOVED = ("f32", "pred", *NUMBERS[1:], "s4", "u4", "f8e4m3fn", "f8e5m2")
"""Types of data movement. Arithmetic leaves the shortest out: one rounding more or less is beyond any tolerance that
would find an error."""

SIZES = (1, 2, 3, 4, 5, 7, 8, 13, 17, 33, 64, 0)
TILE_EDGES = (0, 1, 2, 3, 5, 16, 17, 31, 32, 33, 63, 64, 65, 97, 127, 128, 129, 255, 256, 257, 509, 1023, 1025, 2049)
"""Sizes around those of vectors, warps, tiles and blocks of kernels."""
MOST_ELEMENTS = 5000
MOST_OF_EDGES = 70_000
"""Elements of an array, for sizes and for tile edges: two of these make an array."""
DEEPEST = 2
NESTED = ("control flow", "call and fusion")

Recipe = Callable[["Writer", str], None]
RECIPES: dict[str, Recipe] = {}
FAMILIES: dict[str, str] = {}


@dataclass(frozen=True)
class Program:
    """A module with what its inputs may be: an interval for each parameter of the entry."""

    module: Module
    parameters: tuple[tuple[Shape, Known], ...]
    forms: tuple[str, ...] = ()
    """Of control flow, as often as they were written."""

    def inputs(self, seed: int = 0) -> list[np.ndarray]:
        """Arrays for the parameters; the same seed gives the same."""
        return [sample(shape, known, seed * 1000 + number) for number, (shape, known) in enumerate(self.parameters)]


def sample(shape: Shape, known: Known, seed: int) -> np.ndarray:
    """An array of a shape with values in an interval."""
    generator, dtype, sizes = np.random.default_rng(seed), shape.type.dtype, shape.dimensions
    if shape.type.kind == "pred":
        return generator.integers(0, 2, sizes).astype(dtype)
    if shape.type.is_integer:
        whole = generator.integers(
            int(known.low), int(known.high), sizes, np.uint64 if known.low >= 0 else np.int64, endpoint=True
        )
        near = (
            generator.integers(max(int(known.low), -3), min(int(known.high), 9), sizes, endpoint=True)
            if known.low < 9 and known.high > -3
            else whole
        )
        return np.where(generator.integers(0, 4, sizes) == 0, whole.astype(dtype), near.astype(dtype)).astype(dtype)
    if shape.type.is_complex:
        parts = generator.uniform(known.low, known.high, (2, *sizes))
        return np.asarray(parts[0] + 1j * parts[1]).astype(dtype)
    made = np.asarray(generator.uniform(known.low, known.high, sizes)).astype(dtype)
    # rounding may leave the interval
    low, high = (_inward(bound, dtype, up) for bound, up in ((known.low, True), (known.high, False)))
    return np.clip(made.astype(np.float64), low, high).astype(dtype)


def _inward(bound: Number, dtype: np.dtype, up: bool) -> float:
    """The bound, or where the type lacks it the next value inside."""
    value = np.asarray(bound).astype(dtype)
    if (float(value) < bound) if up else (float(value) > bound):
        value = np.asarray(bound + (1 if up else -1) * abs(bound) * float(ml_dtypes.finfo(dtype).eps)).astype(dtype)
    return float(value)


@dataclass
class Frame:
    """A computation that is being written: the arrays in it that may be used, its tokens, and what has an effect.
    `meets`: all devices run it equally often, so that they may meet in it."""

    computation: Computation
    values: list[Instruction] = field(default_factory=list)
    tokens: list[Instruction] = field(default_factory=list)
    acted: list[Instruction] = field(default_factory=list)
    meets: bool = True


class Writer:
    """A program that grows."""

    def __init__(
        self,
        draw: Draw | None,
        left_out: Collection[str] = (),
        tile_edges: bool = False,
        sizes: int = 3,
        devices: tuple[int, int] = (1, 1),
        favoured: Collection[str] = (),
    ) -> None:
        """`devices`: replicas and partitions; `favoured`: families that are drawn more often than others."""
        self.draw = draw
        self.replicas, self.partitions = devices
        self.favoured = favoured
        self.forms: list[str] = []
        self.channels = 0
        self.tile_edges = tile_edges
        self.most_elements = MOST_OF_EDGES if tile_edges else MOST_ELEMENTS
        self.left_out = left_out
        self.module = Module("random")
        self.frames = [Frame(Computation("entry"))]
        self.known: dict[Instruction, Known] = {}
        self.parameters: list[tuple[Shape, Known]] = []
        self.sizes = [self.pick(TILE_EDGES if tile_edges else SIZES) for _ in range(sizes)]

    # ---- drawing

    def pick(self, items):
        return self.draw(st.sampled_from(tuple(items)))

    def number(self, least: int, most: int) -> int:
        return self.draw(st.integers(least, most))

    def flag(self) -> bool:
        return self.draw(st.booleans())

    def some(self, items: Sequence) -> tuple:
        """A subset, in order."""
        return tuple(item for item in items if self.flag())

    def shuffled(self, items: Sequence) -> tuple:
        return tuple(self.draw(st.permutations(list(items)))) if len(items) > 1 else tuple(items)

    def size(self, least: int = 0) -> int:
        size = self.pick(self.sizes)
        return size if size >= least else self.number(least, max(4, least))

    def dimensions(self, least: int = 0, most: int = 3, smallest: int = 0) -> tuple[int, ...]:
        made: list[int] = []
        for _ in range(self.number(least, most)):
            size = self.size(smallest)
            made.append(size if math.prod(made) * size <= self.most_elements else max(1, smallest))
        return tuple(made)

    def array(self, names: Sequence[str], least: int = 0, most: int = 3, smallest: int = 0) -> Shape:
        """A shape: mostly that of something there is."""
        found = [
            i.shape for i in self.frame.values
            if i.shape.type.name in names and least <= i.shape.rank <= most
            and all(s >= smallest for s in i.shape.dimensions)
        ]  # fmt: skip
        if found and self.number(0, 3):
            return self.pick(found)
        shape = arr(self.pick(names), *self.dimensions(least, most, smallest))
        if shape.rank > 1 and self.number(0, 5) == 0:
            return Shape(shape.element_type, shape.dimensions, Layout(self.shuffled(range(shape.rank))))
        return shape

    # ---- making

    def channel(self) -> int:
        self.channels += 1
        return self.channels

    def again(self, named: dict[str, object]) -> dict[str, object]:
        """What an instruction with these attributes may not have in common with one that is like it."""
        return {"channel_id": self.channel()} if "channel_id" in named else {}

    @property
    def meets(self) -> bool:
        """Whether all devices come by here equally often."""
        return all(frame.meets for frame in self.frames)

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    @property
    def nested(self) -> bool:
        return len(self.frames) > 1

    def emit(
        self,
        opcode: str,
        shape: Shape,
        operands: Sequence[Instruction],
        *,
        literal: Literal | None = None,
        **attributes,
    ) -> Instruction:
        """An instruction whose value is not offered to others."""
        given = {
            name: value if isinstance(value, Called) else Attribute.of(value)
            for name, value in attributes.items()
            if value is not None
        }
        name = self.module.unique_name(opcode)
        return edit.create(self.frame.computation, name, opcode, shape, operands, given, literal=literal)

    def keep(self, made: Instruction, known: Known) -> Instruction:
        """Offer an array's value to others."""
        self.known[made] = known
        self.frame.values.append(made)
        return made

    def moved(self, made: Instruction, *sources: Instruction) -> Instruction:
        """Offer the value of an instruction that moves data."""
        known = self.known[sources[0]]
        for source in sources[1:]:
            known = known.union(self.known[source])
        return self.keep(made, known)

    def element(self, whole: Instruction, index: int, known: Known) -> Instruction:
        assert whole.shape.elements is not None
        return self.keep(self.emit("get-tuple-element", whole.shape.elements[index], [whole], index=index), known)

    # ---- operands

    def take(
        self, shape: Shape, low: Number | None = None, high: Number | None = None, *, exact: bool = False
    ) -> Instruction:
        """A value of a shape within an interval (that of the type where none is given): one that is there, if need be
        clamped or made of another one by moving its elements, or a fresh one."""
        least, most = limits(shape.type)
        low, high = least if low is None else low, most if high is None else high
        usable = [
            i for i in self.frame.values
            if i.shape.type is shape.type and (self.known[i].exact or not exact)
            and (self.known[i].within(low, high) or not shape.type.is_complex)
        ]  # fmt: skip
        same = [i for i in usable if i.shape == shape]
        if same and self.number(0, 3):
            return self.within(self.pick(same), low, high)
        related = [i for i in usable if i.shape.element_count]
        if related and self.number(0, 3):
            return self.within(self.refit(self.pick(related), shape), low, high)
        return self.fresh(shape, low, high)

    def index(self, most: int, dimensions: tuple[int, ...] = (), size: int = 0) -> Instruction:
        """Integers around [0, most], some outside, of a type that holds the size."""
        element_type = self.pick(("s32", "s32", "s64", "u32", "s8" if size < 128 else "s16", "u64"))
        low = 0 if element_type.startswith("u") else -2
        return self.take(arr(element_type, *dimensions), low, min(most + 2, 100), exact=True)

    def within(self, value: Instruction, low: Number, high: Number) -> Instruction:
        """The value, clamped where it may lie outside of the interval."""
        known = self.known[value]
        if known.within(low, high):
            return value
        scalar = arr(value.shape.type)
        bounds = [self.constant(scalar, np.asarray(b)) for b in (low, high)]
        made = self.emit("clamp", value.shape, [bounds[0], value, bounds[1]])
        return self.keep(made, Known(max(low, min(known.low, high)), min(high, max(known.high, low)), known.exact))

    def refit(self, value: Instruction, shape: Shape) -> Instruction:
        """Elements of a value that is not empty in another shape of the same type."""
        if value.shape == shape:
            return value
        known, have, want = self.known[value], value.shape.element_count, shape.element_count
        if value.shape.rank != 1:
            value = self.emit("reshape", arr(shape.type, have), [value])
        if want > have:
            times = -(-want // have)
            value = self.emit("broadcast", arr(shape.type, times, have), [value], dimensions=(1,))
            value, have = self.emit("reshape", arr(shape.type, times * have), [value]), times * have
        if want < have:
            value = self.emit("slice", arr(shape.type, want), [value], slice=(SliceDimension(0, want, 1),))
        if value.shape != shape:
            value = self.emit("reshape", shape, [value])
        return self.keep(value, known)

    def fresh(self, shape: Shape, low: Number, high: Number) -> Instruction:
        """A new parameter, in the entry, or a constant."""
        known = Known(low, high, True)
        if not self.nested and self.number(0, 3):
            number = len(self.parameters)
            self.parameters.append((shape, known))
            name = self.module.unique_name("p")
            return self.keep(
                edit.create(self.frame.computation, name, "parameter", shape, parameter_number=number), known
            )
        if shape.element_count <= 32:
            return self.constant(shape, sample(shape, known, self.number(0, 99)), known)
        one = arr(shape.type)
        scalar = self.constant(one, sample(one, known, self.number(0, 99)), known)
        return self.keep(self.emit("broadcast", shape, [scalar], dimensions=()), known)

    def constant(self, shape: Shape, value: np.ndarray, known: Known | None = None) -> Instruction:
        """A constant; its value is offered to others where an interval is given."""
        value = np.asarray(value).astype(shape.type.dtype).reshape(shape.dimensions)
        made = self.emit("constant", shape, [], literal=Literal(shape, value=value))
        return made if known is None else self.keep(made, known)

    # ---- computations

    @contextmanager
    def computation(
        self, shapes: Sequence[Shape], knowns: Sequence[Known], *, meets: bool = False
    ) -> Iterator[list[Instruction]]:
        """Write another computation, with parameters of these shapes, until the block ends; it must call `finish`."""
        frame = Frame(Computation(self.module.unique_name("called")), meets=meets)
        self.frames.append(frame)
        parameters = []
        for number, (shape, known) in enumerate(zip(shapes, knowns, strict=True)):
            made = edit.create(
                frame.computation, self.module.unique_name("a"), "parameter", shape, parameter_number=number
            )
            parameters.append(self.keep(made, known) if shape.is_array else made)
        yield parameters
        assert self.frames.pop() is frame

    def finish(self, root: Instruction) -> Called:
        """End the computation that is being written with this root."""
        computation = self.frame.computation
        edit.set_root(computation, root)
        edit.add_computation(self.module, computation)
        return Called(computation)

    def grow(self, most: int = 3) -> None:
        """A few drawn instructions in the computation that is being written."""
        for _ in range(self.number(0, most)):
            RECIPES[self.opcode()](self, "")

    def opcode(self) -> str:
        """A drawn opcode, of a drawn family; computations are not nested without end."""
        deep = len(self.frames) > DEEPEST
        usable = [o for o, name in FAMILIES.items() if o not in self.left_out and not (deep and name in NESTED)]
        families = dict.fromkeys(FAMILIES[o] for o in usable)
        favoured = [name for name in families if name in self.favoured]
        family = self.pick(favoured if favoured and self.number(0, 2) == 0 else families)
        return self.pick([o for o in usable if FAMILIES[o] == family])

    def scalar_function(self, opcode: str, element_type: ElementType, count: int = 2, **attributes) -> Called:
        """A computation of one operation on scalars."""
        scalar = Shape(element_type)
        with self.computation([scalar] * count, [Known(0, 0, False)] * count) as parameters:
            shape = PRED if opcode == "compare" else scalar
            return self.finish(
                self.emit(opcode, shape, parameters[:2] if opcode == "compare" else parameters, **attributes)
            )


def family(name: str, *opcodes: str) -> Callable[[Recipe], None]:
    """Register a function as the recipe of opcodes; it is told which."""

    def register(function: Recipe) -> None:
        for opcode in opcodes:
            FAMILIES[opcode] = name
            RECIPES[opcode] = lambda writer, _, opcode=opcode: function(writer, opcode)

    return register
