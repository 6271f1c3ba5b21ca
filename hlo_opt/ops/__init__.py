"""The op table: one OpSpec per opcode, declared once, with all its faces."""

from hlo_opt.ops import (
    collective,
    contraction,
    control,
    convolution_calls,
    elementwise_arithmetic,
    elementwise_convert,
    elementwise_math,
    factorizations,
    indexing,
    library_calls,
    linalg,
    math_calls,
    movement,
    opaque,
    ordering,
    random,
    reduction,
    sorting_calls,
    transfer,
)
from hlo_opt.ops.coverage import evaluates
from hlo_opt.ops.spec import Arity, OpKind, OpSpec, ShapeError, find, register, spec_of, table, unregister

FAMILIES = (
    collective,
    contraction,
    control,
    convolution_calls,
    elementwise_arithmetic,
    elementwise_convert,
    elementwise_math,
    factorizations,
    library_calls,
    indexing,
    linalg,
    math_calls,
    movement,
    opaque,
    ordering,
    random,
    reduction,
    sorting_calls,
    transfer,
)
"""The files that fill the table."""

__all__ = ["Arity", "OpKind", "OpSpec", "ShapeError", "evaluates", "find", "register", "spec_of", "table", "unregister"]
