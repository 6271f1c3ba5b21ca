"""A module with one type in place of another, for `explain --as f32=bf16`: what it would cost, and not what it would
compute."""

from __future__ import annotations

from hlo_opt.cutting.plainer import retyped
from hlo_opt.diag import HloOptError, UsageError, did_you_mean
from hlo_opt.ir import ELEMENT_TYPES, Instruction, Module, edit
from hlo_opt.ops.sets import REINTERPRETS
from hlo_opt.ops.writer import Writer
from hlo_opt.text import parse, verify


def with_type(module: Module, text: str) -> Module:
    """A copy with the second type of `f32=bf16` in place of the first one, in every array. Raises UsageError for types
    that there are not, and where an operation asks for the first one. What reads the bits of an array, or makes it of
    bits, as random numbers are, has the first type, and is converted."""
    old, equals, new = text.partition("=")
    wrong = next((name for name in (old, new) if name not in ELEMENT_TYPES), "")
    if wrong or not equals or not new:
        hint = did_you_mean(wrong, ELEMENT_TYPES) if wrong else None
        raise UsageError(f"--as takes two types, and not {text!r}", hint=hint or "--as f32=bf16")
    leaves = {leaf.type.name for c in module.computations for i in c.instructions for leaf in i.shape.leaves()}
    if old not in leaves:
        raise _refused(module, f"no array of {module.name} is {old}", f"it has {', '.join(sorted(leaves))}")
    try:
        copy = edit.clone_module(module)
        changed = parse(str(retyped(copy, old, new, _of_bits(copy, old, new))))
        verify(changed)
    except (HloOptError, KeyError, TypeError, ValueError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise _refused(module, f"{module.name} cannot be written with {new} for {old}", why) from None
    return changed


def _of_bits(module: Module, old: str, new: str) -> set[Instruction]:
    """The instructions that must have the old type, for the bits that they have. Converts to and from the new type are
    put around them."""
    kept: set[Instruction] = set()
    for computation in module.computations:
        writer = Writer("bits", computation)
        for i in [i for i in computation.instructions if i.opcode in REINTERPRETS and i.shape.is_array]:
            (operand,) = i.operands
            if operand.shape.element_type == i.shape.element_type:
                continue
            if i.shape.type.name == old:
                kept.add(i)
                users = list(i.users)
                converted = writer.convert(i, ELEMENT_TYPES[new])
                for user in users:
                    edit.set_operands(user, [converted if o is i else o for o in user.operands])
                if i.is_root:
                    edit.set_root(computation, converted)
            elif operand.shape.type.name == old:
                converted = writer.convert(operand, ELEMENT_TYPES[new])
                edit.set_shape(converted, operand.shape)
                edit.set_operands(i, [converted])
                kept.add(converted)
        edit.sort(computation)
    return kept


def _refused(module: Module, message: str, hint: str) -> UsageError:
    return UsageError(message, hint=hint, filename=None if module.source is None else module.source.filename)
