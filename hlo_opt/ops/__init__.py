"""The op table: one OpSpec per opcode, declared once, with all its faces."""

from hlo_opt.ops.collective import table as collective
from hlo_opt.ops.contraction import table as contraction
from hlo_opt.ops.control import table as control
from hlo_opt.ops.control import transfer
from hlo_opt.ops.coverage import evaluates
from hlo_opt.ops.custom_calls import convolutions as convolution_calls
from hlo_opt.ops.custom_calls import factorizations, opaque
from hlo_opt.ops.custom_calls import math as math_calls
from hlo_opt.ops.custom_calls import products as library_calls
from hlo_opt.ops.custom_calls import sorting as sorting_calls
from hlo_opt.ops.elementwise import arithmetic as elementwise_arithmetic
from hlo_opt.ops.elementwise import convert as elementwise_convert
from hlo_opt.ops.elementwise import math as elementwise_math
from hlo_opt.ops.indexing import table as indexing
from hlo_opt.ops.linalg import table as linalg
from hlo_opt.ops.movement import table as movement
from hlo_opt.ops.ordering import table as ordering
from hlo_opt.ops.random import table as random
from hlo_opt.ops.reduction import table as reduction
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
