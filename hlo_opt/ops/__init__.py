"""The op table: one OpSpec per opcode, declared once, with all its faces."""

from hlo_opt.ops.spec import Arity, OpKind, OpSpec, ShapeError, find, register, spec_of, table, unregister

__all__ = ["Arity", "OpKind", "OpSpec", "ShapeError", "find", "register", "spec_of", "table", "unregister"]
