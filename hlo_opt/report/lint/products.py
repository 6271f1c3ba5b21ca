"""The rule about products in f32 of values that were narrow."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_opt.ir import ELEMENT_TYPES, ElementType, Instruction, edit
from hlo_opt.ir.walk import needed_first
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.sets import is_elementwise, is_product
from hlo_opt.passes.simplify.site import Site
from hlo_opt.report.lint.base import Finding, FusedProgram

F32 = ELEMENT_TYPES["f32"]
FRAMEWORK_NAMES = {"bf16": "bfloat16", "f16": "float16"}
"""The types that a product reads instead, and what JAX and NumPy call them."""
COMPUTED = frozenset({OpKind.ELEMENTWISE, OpKind.MOVEMENT, OpKind.REDUCTION, OpKind.CONTRACTION, OpKind.INDEXING})
"""The kinds of operations whose results have no more digits than what they are computed from."""


def wide_products(program: FusedProgram) -> Iterator[Finding]:
    """Products in f32 of arrays that are computed from bf16 or f16 alone: narrow operands are half the bytes, and are
    multiplied at a higher rate. What it costs is the difference to the same program with narrow operands and an f32
    result."""
    own = {i.name: i for c in program.prepared.computations for i in c.instructions}
    places = []
    for kernel in program.kernels:
        for hero in filter(is_product, kernel.members):
            before = own.get(hero.name)
            narrow = None if before is None or before.opcode != hero.opcode else _narrow(before)
            if narrow is not None:
                places.append((kernel.price.us * kernel.rounds, (kernel, hero, narrow)))
    for kernel, hero, narrow in program.worth_trying("LNT114", places):
        us = _saved(hero, narrow, program)
        if us <= 0:
            continue
        numbers = {
            "name": hero.name,
            "type": narrow.name,
            "framework_type": FRAMEWORK_NAMES[narrow.name],
            "shapes": " and ".join(str(o.shape.without_layout()) for o in hero.operands[:2]),
        }
        yield Finding("LNT114", numbers, program.source(kernel, hero), hero.name, us, saves=True)


def _narrow(product: Instruction) -> ElementType | None:
    """The narrow type of all arrays that an f32 product is computed from; None where one of them is wide."""
    if any(not o.shape.is_array or o.shape.type != F32 for o in (product, *product.operands)):
        return None
    found: set[str] = set()
    for i in needed_first(product.operands, _sources):
        if not i.shape.is_array:
            return None
        if i.shape.type.name in FRAMEWORK_NAMES:
            found.add(i.shape.type.name)
        elif i.shape.type.is_float and not _computes(i):
            return None
    return ELEMENT_TYPES[found.pop()] if len(found) == 1 else None


def _sources(i: Instruction) -> list[Instruction]:
    """What an f32 value is computed from. Of others nothing more is asked: narrow ones have few digits, and integers
    are indices and masks."""
    wide = i.shape.is_array and i.shape.type.is_float and i.shape.type.name not in FRAMEWORK_NAMES
    return list(i.operands) if wide and _computes(i) else []


def _computes(i: Instruction) -> bool:
    """Whether a value has no digits of its own: a constant, or what is computed from operands."""
    if i.literal is not None:
        return not i.shape.rank
    spec = find(i.opcode)
    return spec is not None and spec.kind in COMPUTED


def _saved(product: Instruction, narrow: ElementType, program: FusedProgram) -> float:
    """Microseconds that the program takes less where a product reads narrow operands and its result stays as it is."""
    copy = program.copy_with(product)
    if copy is None:
        return 0.0
    module, own = copy
    site = Site(own)
    edit.set_operands(own, [_narrowed(o, narrow, site) for o in own.operands])
    return program.saved(module) or 0.0


def _narrowed(operand: Instruction, narrow: ElementType, site: Site) -> Instruction:
    """An operand in a narrow type: what was widened, or a convert."""
    if len(operand.operands) == 1 and is_elementwise(operand):
        (source,) = operand.operands
        if source.shape.is_array and source.shape.type == narrow:
            return source
    return site.convert(operand, narrow)
