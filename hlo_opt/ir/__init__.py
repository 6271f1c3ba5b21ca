"""The intermediate representation: values (shapes, layouts, literals, attributes, index maps) and the graph."""

from hlo_opt.ir.attribute import (
    Attribute,
    AttributeValue,
    Called,
    Metadata,
    PaddingDimension,
    Quoted,
    Raw,
    SliceDimension,
    Window,
    WindowDimension,
)
from hlo_opt.ir.element_type import ELEMENT_TYPES, ElementType
from hlo_opt.ir.index_map import IndexMap
from hlo_opt.ir.literal import Literal
from hlo_opt.ir.module import Computation, Instruction, Module
from hlo_opt.ir.shape import Layout, Shape, array

__all__ = [
    "ELEMENT_TYPES",
    "Attribute",
    "AttributeValue",
    "Called",
    "Computation",
    "ElementType",
    "IndexMap",
    "Instruction",
    "Layout",
    "Literal",
    "Metadata",
    "Module",
    "PaddingDimension",
    "Quoted",
    "Raw",
    "Shape",
    "SliceDimension",
    "Window",
    "WindowDimension",
    "array",
]
