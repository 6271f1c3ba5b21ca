"""Programs to compare: large modules drawn by seed, the same module told in another way, and one change at a drawn
place of it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

import hlo_opt
from hlo_opt.ir import Attribute, Called, Computation, Instruction, Literal, Module, Shape, edit
from hlo_opt.ir.attribute import Metadata, SliceDimension
from hlo_opt.ir.element_type import BF16, F32
from hlo_opt.text import print_module

ROWS, COLUMNS = 64, 128
ARRAY = f"f32[{ROWS},{COLUMNS}]{{1,0}}"
ROW = f"f32[{ROWS}]{{0}}"
UNARY = ("tanh", "exponential", "negate", "abs", "sine", "cosine", "logistic", "sqrt", "floor")
BINARY = ("add", "multiply", "subtract", "maximum", "minimum", "divide")

FOLDS = """fold.add {
  fold_add_x = f32[] parameter(0)
  fold_add_y = f32[] parameter(1)
  ROOT fold_add_s = f32[] add(fold_add_x, fold_add_y)
}

fold.max {
  fold_max_x = f32[] parameter(0)
  fold_max_y = f32[] parameter(1)
  ROOT fold_max_s = f32[] maximum(fold_max_x, fold_max_y)
}

part {
  part_x = f32[64,128]{1,0} parameter(0)
  part_y = f32[64,128]{1,0} parameter(1)
  part_t = f32[64,128]{1,0} tanh(part_x)
  ROOT part_s = f32[64,128]{1,0} multiply(part_t, part_y)
}

body {
  body_state = (s32[], f32[64,128]{1,0}, f32[64,128]{1,0}) parameter(0)
  body_i = s32[] get-tuple-element(body_state), index=0
  body_one = s32[] constant(1)
  body_next = s32[] add(body_i, body_one)
  body_v = f32[64,128]{1,0} get-tuple-element(body_state), index=1
  body_w = f32[64,128]{1,0} get-tuple-element(body_state), index=2
  body_grown = f32[64,128]{1,0} add(body_v, body_w)
  body_bent = f32[64,128]{1,0} sine(body_grown)
  ROOT body_all = (s32[], f32[64,128]{1,0}, f32[64,128]{1,0}) tuple(body_next, body_bent, body_w)
}

condition {
  condition_state = (s32[], f32[64,128]{1,0}, f32[64,128]{1,0}) parameter(0)
  condition_i = s32[] get-tuple-element(condition_state), index=0
  condition_rounds = s32[] constant(10)
  ROOT condition_more = pred[] compare(condition_i, condition_rounds), direction=LT
}
"""


def program(size: int, seed: int) -> str:
    """A module of about `size` instructions: elementwise operations in any order over what came before, and now and
    then what networks are made of."""
    draw = random.Random(seed)
    lines: list[str] = []
    recent: list[str] = []

    def put(shape: str, text: str) -> str:
        name = f"v{len(lines)}"
        line = draw.randrange(20, 400)
        operation = text.partition("(")[0]
        lines.append(
            f"  {name} = {shape} {text}, "
            f'metadata={{op_name="jit(step)/{operation}" source_file="model.py" source_line={line}}}'
        )
        return name

    def array(name: str) -> str:
        recent.append(name)
        return name

    inputs = [array(put(ARRAY, f"parameter({n})")) for n in range(6)]
    weights = put(f"f32[{COLUMNS},{COLUMNS}]{{1,0}}", "parameter(6)")
    zero, low = put("f32[]", "constant(0)"), put("f32[]", "constant(-inf)")

    def value() -> str:
        return draw.choice(recent[-40:]) if draw.random() < 0.95 else draw.choice(inputs)

    while len(lines) < size:
        kind = draw.random()
        if kind < 0.4:
            array(put(ARRAY, f"{draw.choice(BINARY)}({value()}, {value()})"))
        elif kind < 0.75:
            array(put(ARRAY, f"{draw.choice(UNARY)}({value()})"))
        elif kind < 0.82:
            number = put("f32[]", f"constant({draw.randrange(1, 1000) / 64})")
            spread = put(ARRAY, f"broadcast({number}), dimensions={{}}")
            array(put(ARRAY, f"{draw.choice(BINARY)}({value()}, {spread})"))
        elif kind < 0.86:
            start, fold = draw.choice(((zero, "fold.add"), (low, "fold.max")))
            row = put(ROW, f"reduce({value()}, {start}), dimensions={{1}}, to_apply={fold}")
            spread = put(ARRAY, f"broadcast({row}), dimensions={{0}}")
            array(put(ARRAY, f"subtract({value()}, {spread})"))
        elif kind < 0.89:
            array(put(ARRAY, f"dot({value()}, {weights}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"))
        elif kind < 0.92:
            turned = put(f"f32[{COLUMNS},{ROWS}]{{1,0}}", f"transpose({value()}), dimensions={{1,0}}")
            bent = put(f"f32[{COLUMNS},{ROWS}]{{1,0}}", f"exponential({turned})")
            array(put(ARRAY, f"transpose({bent}), dimensions={{1,0}}"))
        elif kind < 0.95:
            where = put(
                f"pred[{ROWS},{COLUMNS}]{{1,0}}",
                f"compare({value()}, {value()}), direction={draw.choice(('LT', 'GE', 'EQ'))}",
            )
            array(put(ARRAY, f"select({where}, {value()}, {value()})"))
        elif kind < 0.97:
            half = f"f32[{ROWS},{COLUMNS // 2}]{{1,0}}"
            one = put(half, f"slice({value()}), slice={{[0:{ROWS}], [0:{COLUMNS // 2}]}}")
            other = put(half, f"slice({value()}), slice={{[0:{ROWS}], [{COLUMNS // 2}:{COLUMNS}]}}")
            array(put(ARRAY, f"concatenate({one}, {other}), dimensions={{1}}"))
        elif kind < 0.99:
            array(put(ARRAY, f"call({value()}, {value()}), to_apply=part"))
        elif kind < 0.995:
            state = f"(s32[], {ARRAY}, {ARRAY})"
            first = put("s32[]", "constant(0)")
            begun = put(state, f"tuple({first}, {value()}, {value()})")
            done = put(state, f"while({begun}), condition=condition, body=body")
            array(put(ARRAY, f"get-tuple-element({done}), index=1"))
        else:
            array(put(ARRAY, f"copy({value()})"))
    used = {
        name for line in lines for name in re.findall(r"\bv\d+\b", line.partition(" = ")[2].partition("metadata")[0])
    }
    ends = [f"v{n}" for n in range(len(lines)) if f"v{n}" not in used]
    total = [n for n in ends if lines[int(n[1:])].split(" = ")[1].startswith(ARRAY)] or [recent[-1]]
    while len(total) > 1:
        total = [
            put(ARRAY, f"add({total[n]}, {total[n + 1]})") if n + 1 < len(total) else total[n]
            for n in range(0, len(total), 2)
        ]
    root = f"  ROOT result = {ARRAY} negate({total[0]})"
    return f"HloModule step\n\n{FOLDS}\nENTRY main {{\n" + "\n".join([*lines, root]) + "\n}\n"


def retold(module: Module, seed: int, renamed: dict[str, str] | None = None) -> str:
    """The same module as another version of a compiler might write it: other names, another order, other lines and ids,
    attributes the other way around, in another style. `renamed` is told the new names by the old ones."""
    draw = random.Random(seed)
    module = edit.clone_module(module)
    renamed = {} if renamed is None else renamed
    number = iter(draw.sample(range(10_000_000), sum(len(c.instructions) + 1 for c in module.computations)))
    for computation in module.computations:
        computation.name = f"region_{next(number)}"
        edit.arrange(computation, _shuffled(computation, draw))
        for instruction in computation.instructions:
            old = instruction.name
            instruction.name = renamed[old] = (
                f"{draw.choice(('op', 'x', instruction.opcode.replace('-', '_')))}.{next(number)}"
            )
            kept = [(name, value) for name, value in instruction.attributes.items() if name != "metadata"]
            instruction.attributes = dict(reversed(kept))
            if draw.random() < 0.8:
                place = Metadata(
                    op_name=f"jit(main)/{draw.randrange(99)}", source_file="new.py", source_line=draw.randrange(1, 999)
                )
                instruction.attributes["metadata"] = Attribute.of(place)
    return print_module(module, draw.choice(("canonical", "short")))  # the short one leaves configs out


def _shuffled(computation: Computation, draw: random.Random) -> list[Instruction]:
    """The instructions in another order, operands first."""
    left = {i: len({*i.operands, *i.control_predecessors}) for i in computation.instructions}
    followers: dict[Instruction, list[Instruction]] = {i: [] for i in computation.instructions}
    for instruction in computation.instructions:
        for needed in {*instruction.operands, *instruction.control_predecessors}:
            followers[needed].append(instruction)
    ready = [i for i, count in left.items() if count == 0]
    found = []
    while ready:
        place = draw.randrange(len(ready))
        ready[place], ready[-1] = ready[-1], ready[place]
        instruction = ready.pop()
        found.append(instruction)
        for follower in followers[instruction]:
            left[follower] -= 1
            if left[follower] == 0:
                ready.append(follower)
    return found


@dataclass(frozen=True)
class Planted:
    """A module with one change. `names` are the instructions that are it, in the old module or the new."""

    kind: str
    module: Module
    names: frozenset[str]


Plant = Callable[[Computation, Instruction, random.Random], list[Instruction] | None]
"""Changes an instruction; returns what is changed or new, None where it does not apply."""


def _opcode(computation: Computation, chosen: Instruction, draw: random.Random) -> list[Instruction] | None:
    for family in (UNARY, BINARY):
        if chosen.opcode in family:
            chosen.opcode = draw.choice([o for o in family if o != chosen.opcode])
            return [chosen]
    return None


def _constant(computation: Computation, chosen: Instruction, draw: random.Random) -> list[Instruction] | None:
    if chosen.literal is None or chosen.shape.rank:
        return None
    value = chosen.literal.value
    assert not isinstance(value, tuple)
    changed = value + 1 if abs(float(value)) < 1e30 else value * 0
    chosen.literal = Literal(chosen.shape, value=changed.astype(value.dtype))
    return [chosen]


def _direction(computation: Computation, chosen: Instruction, draw: random.Random) -> list[Instruction] | None:
    if chosen.opcode != "compare":
        return None
    others = [d for d in ("LT", "LE", "GT", "GE", "EQ", "NE") if d != chosen.word("direction")]
    edit.set_attribute(chosen, "direction", Attribute.of(draw.choice(others)))
    return [chosen]


def _window(computation: Computation, chosen: Instruction, draw: random.Random) -> list[Instruction] | None:
    if chosen.opcode != "slice":
        return None
    size = COLUMNS // 2
    start = draw.randrange(1, size)
    edit.set_attribute(chosen, "slice", Attribute.of((SliceDimension(0, ROWS), SliceDimension(start, start + size))))
    return [chosen]


def _swapped(computation: Computation, chosen: Instruction, draw: random.Random) -> list[Instruction] | None:
    if chosen.opcode not in ("subtract", "divide") or chosen.operands[0] is chosen.operands[1]:
        return None
    edit.set_operands(chosen, chosen.operands[::-1])
    return [chosen]


def _operand(computation: Computation, chosen: Instruction, draw: random.Random) -> list[Instruction] | None:
    """Another value of its shape is read."""
    if chosen.opcode not in BINARY:
        return None
    before: list[Instruction] = []
    for instruction in computation.instructions:
        if instruction is chosen:
            break
        before.append(instruction)
    others = [i for i in before if i.shape == chosen.operands[1].shape and i not in chosen.operands]
    if not others:
        return None
    edit.replace_operand(chosen, 1, draw.choice(others))
    return [chosen]


def _dropped(computation: Computation, chosen: Instruction, draw: random.Random) -> list[Instruction] | None:
    """A term of a sum is lost: the sum is its other operand."""
    if chosen.opcode not in BINARY or chosen.is_root or chosen.operands[0].shape != chosen.shape:
        return None
    edit.redirect_users(chosen, chosen.operands[0])
    edit.remove(chosen)
    return [chosen]


def _narrow(computation: Computation, chosen: Instruction, draw: random.Random) -> list[Instruction] | None:
    """It is computed in bf16."""
    if (
        chosen.opcode not in (*UNARY, *BINARY)
        or chosen.is_root
        or not chosen.shape.rank
        or chosen.shape.type is not F32
    ):
        return None
    narrow = chosen.shape.with_type(BF16)
    given = [_before(chosen, o, "convert", narrow) for o in chosen.operands]
    wide = chosen.shape
    users = list(chosen.users)
    chosen.shape = narrow
    edit.set_operands(chosen, given)
    back = edit.create(computation, "back", "convert", wide, [chosen])
    for user in users:
        edit.set_operands(user, [back if o is chosen else o for o in user.operands])
    edit.sort(computation)
    return [chosen, back, *given]


def _before(user: Instruction, operand: Instruction, opcode: str, shape: Shape) -> Instruction:
    return edit.create(user.computation, opcode, opcode, shape, [operand])


def _converted(computation: Computation, chosen: Instruction, draw: random.Random) -> list[Instruction] | None:
    """A value goes through a narrower type on its way to one of its users."""
    if chosen.opcode not in (*UNARY, *BINARY) or not chosen.shape.rank or not chosen.users:
        return None
    user = draw.choice(list(chosen.users))
    narrow = edit.create(computation, "narrow", "convert", chosen.shape.with_type(BF16), [chosen])
    wide = edit.create(computation, "wide", "convert", chosen.shape, [narrow])
    edit.set_operands(user, [wide if o is chosen else o for o in user.operands])
    edit.sort(computation)
    return [narrow, wide]


def _copied(computation: Computation, chosen: Instruction, draw: random.Random) -> list[Instruction] | None:
    """A value is copied on its way to one of its users."""
    if chosen.opcode not in (*UNARY, *BINARY) or not chosen.shape.rank or not chosen.users:
        return None
    user = draw.choice(list(chosen.users))
    copy = edit.create(computation, "copied", "copy", chosen.shape, [chosen])
    edit.set_operands(user, [copy if o is chosen else o for o in user.operands])
    edit.sort(computation)
    return [copy]


def _folded(computation: Computation, chosen: Instruction, draw: random.Random) -> list[Instruction] | None:
    """A reduction folds with another operation."""
    if chosen.opcode != "reduce":
        return None
    module = computation.module
    assert module is not None
    mine = chosen.called_by("to_apply")
    others = [c for c in module.computations if c.root.opcode in BINARY and len(c.instructions) == 3]
    others = [c for c in others if c.root.opcode != mine.root.opcode and c.root.shape == mine.root.shape]
    if not others:
        return None
    edit.set_attribute(chosen, "to_apply", Called(others[0]))
    return [chosen]


def _layout(computation: Computation, chosen: Instruction, draw: random.Random) -> list[Instruction] | None:
    """A value lies in memory in another way."""
    if chosen.opcode not in (*UNARY, *BINARY) or chosen.is_root or chosen.shape.rank != 2:
        return None
    text = str(chosen.shape).replace("{1,0}", "{0,1}")
    if text == str(chosen.shape):
        return None
    chosen.shape = hlo_opt.parse(f"HloModule m\nENTRY e {{\n  ROOT p = {text} parameter(0)\n}}\n").entry.root.shape
    return [chosen]


PLANTS: dict[str, Plant] = {
    "opcode": _opcode,
    "constant": _constant,
    "direction": _direction,
    "slice": _window,
    "operands swapped": _swapped,
    "another operand": _operand,
    "lost operand": _dropped,
    "computed in bf16": _narrow,
    "extra converts": _converted,
    "extra copy": _copied,
    "another fold": _folded,
    "layout": _layout,
}


def planted(text: str, kind: str, seed: int) -> Planted:
    """One change of a kind at a drawn place. Raises ValueError where no place takes it."""
    module = hlo_opt.parse(text)
    draw = random.Random(seed)
    computations = [c for c in module.computations if len(c.instructions) > 3]
    places = [i for c in computations for i in c.instructions]
    draw.shuffle(places)
    for place in places:
        computation = place.computation
        changed = PLANTS[kind](computation, place, draw)
        if changed:
            hlo_opt.verify(module)
            return Planted(kind, module, frozenset(i.name for i in changed))
    raise ValueError(f"no instruction takes {kind}")
