"""Modules made of modules: dimensions, element types, layouts, opcodes and results changed, everywhere or in one place,
and shapes inferred anew."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace

import hlo_opt
from hlo_opt.diag import HloOptError
from hlo_opt.ir import Computation, Instruction, Module, Shape, edit
from hlo_opt.ops import ShapeError, find
from hlo_opt.text import print_module

SIZES = (0, 1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 32, 33, 64, 65, 97, 127, 128, 129, 255, 257, 1024, 1031)
TYPES = tuple(
    "pred s4 s8 s16 s32 s64 u4 u8 u16 u32 u64 f16 bf16 f32 f64 f8e4m3fn f8e5m2 f8e4m3b11fnuz c64 c128".split()
)
SHAPE = re.compile(r"\b([a-z]\w*)\[([\d,]*)\](\{[\d,]+)?")
UNARY = re.findall(
    r"[\w-]+", "abs negate exponential tanh sqrt rsqrt sine floor ceil sign log cosine not is-finite copy cbrt logistic"
)
BINARY = re.findall(
    r"[\w-]+", "add multiply subtract divide maximum minimum power remainder and or xor atan2 shift-left"
)
TRIES = 12
"""Of changes to a text, until one verifies."""
WORDS = (UNARY, BINARY, ["EQ", "NE", "LT", "LE", "GT", "GE"], ["kLoop", "kInput", "kOutput", "kCustom"])
Mutator = Callable[[random.Random, str], str]
"""What it makes of a text need not be well formed."""


def _anywhere(generator: random.Random, text: str, pattern: str, new: Callable[[re.Match[str]], str]) -> str:
    """All matches replaced, or one of them."""
    found = list(re.finditer(pattern, text))
    if not found:
        return text
    if generator.random() < 0.7:
        return re.sub(pattern, new, text)
    match = generator.choice(found)
    return text[: match.start()] + new(match) + text[match.end() :]


def dimension(generator: random.Random, text: str) -> str:
    """One size becomes another, in shapes and in attributes that tell sizes."""
    sizes = [n for m in SHAPE.finditer(text) for n in m[2].split(",") if n]
    if not sizes:
        return text
    old = generator.choice(sizes)
    new = str(generator.choice([*SIZES, int(old) * 2, int(old) + 1, max(0, int(old) - 1)]))

    def swapped(match: re.Match[str]) -> str:
        return re.sub(rf"(?<!\d){old}(?!\d)", new, match[0])

    text = _anywhere(generator, text, r"\b[a-z]\w*\[[\d,]*\]", swapped)
    text = re.sub(r"\b(slice|dynamic_slice_sizes|slice_sizes)=\{[^}]*\}", swapped, text)
    return re.sub(rf"(constant\(){old}\)", rf"\g<1>{new})", text) if generator.random() < 0.5 else text


def element_type(generator: random.Random, text: str) -> str:
    """One element type becomes another."""
    types = sorted({m[1] for m in SHAPE.finditer(text)} & set(TYPES))
    if not types:
        return text
    old, new = generator.choice(types), generator.choice(TYPES)
    return _anywhere(generator, text, rf"\b{old}(?=\[)", lambda _: new)


def layout(generator: random.Random, text: str) -> str:
    """Arrays of some rank lie in another order."""
    ranks = sorted({m[2].count(",") + 1 for m in SHAPE.finditer(text) if "," in m[2]})
    if not ranks:
        return text
    rank = generator.choice(ranks)
    order = ",".join(map(str, generator.sample(range(rank), rank)))
    pattern = rf"(\b[a-z]\w*\[\d+(?:,\d+){{{rank - 1}}}\])(?:\{{[\d,]+(?=[:}}])|(?!\{{))"

    def laid(match: re.Match[str]) -> str:
        return f"{match[1]}{{{order}" + ("" if match[0].endswith(tuple("0123456789")) else "}")

    return _anywhere(generator, text, pattern, laid)


def word(generator: random.Random, text: str) -> str:
    """An opcode, a direction or a kind becomes another of its sort."""
    for words in generator.sample(WORDS, len(WORDS)):
        pattern = rf"(?<=[ =])(?:{'|'.join(words)})(?=[(,\s])"
        if re.search(pattern, text):
            new = generator.choice(words)
            return _anywhere(generator, text, pattern, lambda _: new)  # noqa: B023
    return text


def root(generator: random.Random, text: str) -> str:
    """The entry returns another instruction, or several."""
    module = hlo_opt.parse(text)
    entry = module.entry
    made = [i for i in entry.instructions if i.shape.is_array]
    if not made or any(name in module.attributes for name in ("entry_computation_layout", "input_output_alias")):
        return text
    chosen = generator.sample(made, min(len(made), generator.choice([1, 1, 2, 3])))
    if len(chosen) == 1:
        edit.set_root(entry, chosen[0])
    else:
        shape = Shape.tuple_of(*(i.shape for i in chosen))
        edit.set_root(entry, edit.create(entry, "outputs", "tuple", shape, chosen))
    return print_module(module)


def before(generator: random.Random, text: str) -> str:
    """An elementwise instruction comes between one and its users."""
    module = hlo_opt.parse(text)
    made = [i for c in module.computations for i in c.instructions if i.shape.is_array and i.shape.rank]
    if not made:
        return text
    after = generator.choice(made)
    computation = after.computation
    users = list(after.users)
    is_root = after.is_root
    new = edit.create(computation, "between", generator.choice(UNARY), after.shape, [after])
    for user in users:
        for place, operand in enumerate(user.operands):
            if operand is after:
                edit.replace_operand(user, place, new)
    if is_root:
        edit.set_root(computation, new)
    edit.sort(computation)
    return print_module(module)


MUTATORS: tuple[Mutator, ...] = (dimension, dimension, element_type, element_type, layout, layout, word, root, before)


def plain_constants(text: str) -> str:
    """Array literals, which fit one shape and type only, as iotas."""
    return re.sub(
        r"(= (?!pred)[a-z]\w*\[\d[\d,]*\](?:\{[^}]*\})?) constant\(\{.*?\}\)(?=,| *\n)",
        r"\1 iota(), iota_dimension=0",
        text,
    )


def infer_anew(module: Module) -> None:
    """Give instructions the shapes that their operands ask for, where they follow from them."""
    todo: list[Computation] = [module.entry]
    seen: set[Computation] = set()
    order: list[Computation] = []
    while todo:
        computation = todo.pop()
        if computation in seen:
            continue
        seen.add(computation)
        order.append(computation)
        todo += [c for i in computation.instructions for c in i.called()]
    for _ in range(4):
        for computation in order:
            for instruction in computation.instructions:
                _infer(instruction)


def _infer(instruction: Instruction) -> None:
    if instruction.opcode in ("fusion", "call", "while", "async-start"):
        for called in instruction.called():
            for parameter in called.parameters:
                number = parameter.parameter_number
                if number is not None and number < len(instruction.operands):
                    parameter.shape = instruction.operands[number].shape
        if instruction.opcode in ("fusion", "call"):
            (called,) = instruction.called()
            instruction.shape = called.root.shape
            return
    spec = find(instruction.opcode)
    if (
        spec is None
        or spec.infer is None
        or instruction.opcode in ("parameter", "constant", "iota", "bitcast", "custom-call")
    ):
        return
    try:
        shape = spec.infer(instruction)
    except ShapeError:
        return
    if shape.without_layout() != instruction.shape.without_layout():
        instruction.shape = _laid_as(shape, instruction.shape)


def _laid_as(shape: Shape, old: Shape) -> Shape:
    if shape.is_array and old.is_array and shape.rank == old.rank:
        return replace(shape, layout=old.layout)
    return shape


def mutant(generator: random.Random, text: str) -> str | None:
    """A mutant that verifies, or ends in an error that no text may end in; None where there is none."""
    for _ in range(TRIES):
        changed = text
        try:
            changed = plain_constants(text) if generator.random() < 0.5 else text
            for mutator in generator.choices(MUTATORS, k=generator.choice([1, 1, 2, 2, 3, 4])):
                changed = mutator(generator, changed)
            module = hlo_opt.parse(changed)
            try:
                hlo_opt.verify(module)
            except HloOptError:
                infer_anew(module)
                changed = print_module(module)
                hlo_opt.verify(hlo_opt.parse(changed))
            if changed != text:
                return changed
        except HloOptError:
            continue
        except Exception:
            return changed
    return None
