"""What a module is grown with: shapes, operands and attributes, drawn by Hypothesis, and the registry of recipes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from hlo_opt.ir import (
    ELEMENT_TYPES,
    Attribute,
    Called,
    Computation,
    ElementType,
    Instruction,
    Layout,
    Literal,
    Metadata,
    Module,
    Raw,
    Shape,
    edit,
)

FLOATS = ("f16", "bf16", "f32", "f64")
INTEGERS = ("s8", "u8", "s16", "s32", "u32", "s64", "u64")
COMPLEX = ("c64", "c128")
NUMBERS = (*INTEGERS, *FLOATS, *COMPLEX)
EVERYTHING = ("pred", *NUMBERS)
TOKEN, U32, S32, PRED = (Shape(ELEMENT_TYPES[n]) for n in ("token", "u32", "s32", "pred"))

Draw = Callable[..., object]
Recipe = Callable[["Builder"], Instruction]
RECIPES: dict[str, Recipe] = {}


def arr(name: str | ElementType, *dimensions: int) -> Shape:
    """An array with the default layout."""
    element_type = ELEMENT_TYPES[name] if isinstance(name, str) else name
    return Shape(element_type, dimensions, Layout(tuple(reversed(range(len(dimensions))))) if dimensions else None)


def tup(*elements: Shape) -> Shape:
    return Shape.tuple_of(*elements)


class Builder:
    """A module that grows."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.module = Module("random")
        self.entry = Computation("entry")
        self.numbers = 0
        self.groups = [1]

    # ---- drawing

    def pick(self, items):
        return self.draw(st.sampled_from(tuple(items)))

    def number(self, least: int, most: int) -> int:
        return self.draw(st.integers(least, most))

    def flag(self) -> bool:
        return self.draw(st.booleans())

    def dimensions(self, least: int = 0, most: int = 3) -> tuple[int, ...]:
        return tuple(self.draw(st.lists(st.integers(1, 4), min_size=least, max_size=most)))

    def array(self, names, least: int = 0, most: int = 3) -> Shape:
        shape = arr(self.pick(names), *self.dimensions(least, most))
        if shape.rank > 1 and self.number(0, 3) == 0:
            order = tuple(self.draw(st.permutations(range(shape.rank))))
            return Shape(shape.element_type, shape.dimensions, Layout(order))
        return shape

    # ---- making

    def value(self, shape: Shape) -> Instruction:
        """Something of a shape: what is there already, a constant, or a new parameter."""
        found = [i for i in self.entry.instructions if i.shape == shape]
        if found and self.number(0, 2):
            return self.pick(found)
        if shape.is_array and shape.element_count <= 8 and self.number(0, 2) == 0:
            return self.constant(shape)
        number = self.numbers
        self.numbers += 1
        return edit.create(self.entry, self.module.unique_name("p"), "parameter", shape, parameter_number=number)

    def constant(self, shape: Shape) -> Instruction:
        values = [self.number(0, 9) for _ in range(shape.element_count)]
        value = np.array(values).astype(shape.type.dtype).reshape(shape.dimensions)
        return self.emit("constant", shape, [], literal=Literal(shape, value=value))

    def emit(self, opcode: str, shape: Shape, operands, *, literal: Literal | None = None, **attributes) -> Instruction:
        given = {
            name: value if isinstance(value, Called) else Attribute.of(value)
            for name, value in attributes.items()
            if value is not None
        }
        name = self.module.unique_name(opcode)
        return edit.create(self.entry, name, opcode, shape, operands, given, literal=literal)

    def computation(self, shapes, body: Callable[[Computation, list[Instruction]], Instruction]) -> Computation:
        """A computation with parameters of these shapes and a body that gives its root."""
        made = Computation(self.module.unique_name("called"))
        parameters = [
            edit.create(made, self.module.unique_name(f"a{n}"), "parameter", shape, parameter_number=n)
            for n, shape in enumerate(shapes)
        ]
        edit.set_root(made, body(made, parameters))
        return edit.add_computation(self.module, made)

    def reducer(self, element_type: ElementType) -> Called:
        scalar = Shape(element_type)
        opcode = "or" if element_type.name == "pred" else self.pick(["add", "multiply"])
        return Called(
            self.computation(
                [scalar, scalar], lambda c, p: edit.create(c, self.module.unique_name("sum"), opcode, scalar, p)
            )
        )

    def comparator(self, *types: ElementType) -> Called:
        scalars = [Shape(t) for t in types for _ in range(2)]
        less = {"direction": Attribute.of("LT")}
        return Called(
            self.computation(
                scalars, lambda c, p: edit.create(c, self.module.unique_name("less"), "compare", PRED, p[:2], less)
            )
        )

    def unary(self, shape: Shape, opcode: str = "copy") -> Computation:
        return self.computation([shape], lambda c, p: edit.create(c, self.module.unique_name("one"), opcode, shape, p))

    def channel(self) -> dict[str, object]:
        return {"channel_id": self.number(1, 9)} if self.flag() else {}

    def decorate(self, made: Instruction) -> None:
        """Attributes that every instruction may carry. XLA prints the statistics of an async one twice, and cannot read
        that."""
        shared = {
            "metadata": Metadata(op_name=self.draw(st.text(max_size=8)), source_line=self.number(0, 9)),
            "sharding": Raw("{replicated}"),
            "frontend_attributes": Raw('{a="b",c={"d": [1]}}'),
            "backend_config": Raw('{"a": {"b": "}"}}'),
            "statistics": Raw("{visualizing_index=0,x=1.5}"),
            "origin": Raw('{{"before" {0}}}'),
        }
        for name in self.draw(st.lists(st.sampled_from(sorted(shared)), unique=True, max_size=2)):
            if name not in made.attributes and not (name == "statistics" and made.opcode.startswith("async")):
                edit.set_attribute(made, name, Attribute.of(shared[name]))


def recipe(*opcodes: str) -> Callable[[Callable[[Builder, str], Instruction]], None]:
    """Register a function as the recipe of opcodes; it is told which."""

    def register(function: Callable[[Builder, str], Instruction]) -> None:
        for opcode in opcodes:
            RECIPES[opcode] = lambda builder, opcode=opcode: function(builder, opcode)

    return register
