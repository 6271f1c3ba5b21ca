"""Random well-typed modules over the whole op table, for property tests: `@given(modules())`.

Each opcode has a recipe that makes one instruction of it, with operands that exist already or new parameters and
constants. A module is a few instructions, each by a recipe that Hypothesis draws. What comes out verifies, prints, and
is read by XLA's parser.
"""

from __future__ import annotations

from hypothesis import strategies as st

from hlo_opt.ir import Module, edit
from random_modules import control, devices, elementwise, movement, products
from random_modules.builder import RECIPES, Builder, Draw

__all__ = ["RECIPES", "build", "control", "devices", "elementwise", "modules", "movement", "products"]


def build(draw: Draw, opcodes: list[str]) -> Module:
    """A module with an instruction of each of these opcodes."""
    builder = Builder(draw)
    for opcode in opcodes:
        made = RECIPES[opcode](builder)
        builder.decorate(made)
        edit.set_root(builder.entry, made)
    before = list(builder.entry.instructions)
    if len(before) > 2 and builder.flag():
        before[-1].control_predecessors = [before[0]] if before[0] not in before[-1].operands else []
    edit.add_computation(builder.module, builder.entry, entry=True)
    return builder.module


@st.composite
def modules(draw: Draw, opcodes: tuple[str, ...] = (), most: int = 8) -> Module:
    """Well-typed modules with one instruction of each given opcode and up to `most` of drawn ones."""
    several = draw(st.lists(st.sampled_from(sorted(RECIPES)), min_size=0 if opcodes else 1, max_size=most))
    return build(draw, [*opcodes, *several])
