"""The op table: one OpSpec per opcode, which declares all its faces (what each part of the compiler asks of an
opcode)."""

from hlo_opt.ops.collective import table as collective
from hlo_opt.ops.contraction import table as contraction
from hlo_opt.ops.control import table as control
from hlo_opt.ops.coverage import evaluates
from hlo_opt.ops.custom_calls import convolutions
from hlo_opt.ops.custom_calls import table as custom_calls
from hlo_opt.ops.elementwise import arithmetic, convert, math
from hlo_opt.ops.indexing import table as indexing
from hlo_opt.ops.linalg import table as linalg
from hlo_opt.ops.movement import table as movement
from hlo_opt.ops.ordering import table as ordering
from hlo_opt.ops.random import table as random
from hlo_opt.ops.reduction import table as reduction
from hlo_opt.ops.spec import Arity, OpKind, OpSpec, ShapeError, find, register, spec_of, table, unregister

FAMILIES = (
    *(arithmetic, collective, contraction, control, convert, convolutions, custom_calls),
    *(indexing, linalg, math, movement, ordering, random, reduction),
)
"""The modules that fill the table when imported."""

__all__ = ["Arity", "OpKind", "OpSpec", "ShapeError", "evaluates", "find", "register", "spec_of", "table", "unregister"]
