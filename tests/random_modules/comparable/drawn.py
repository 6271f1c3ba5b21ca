"""Programs by number: the same seed and number give the same one, and no other has to be drawn before.

A third has effects or runs on several devices, a third has control flow, the rest is mostly what kernels compute. Some
outputs may overwrite inputs, and some instructions wait for others that they do not read.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hlo_opt.ir import Attribute, Instruction, Raw
from random_modules.comparable import EFFECTS, FAMILIES, FUSIBLE, NEVER_WAIT, RECIPES, UNKNOWN_TO_XLA_CPU, grown
from random_modules.comparable.writer import Program, Writer

DEVICES = ((2, 1), (4, 1), (1, 2), (2, 2), (1, 4))
"""Replicas and partitions."""

CONTROL = ("while", "while", "conditional", "conditional", "call", "map", "reduce", "sort", "scatter", "scan")
CALLING = (
    "control flow",
    "call and fusion",
    "map",
    "reduce",
    "sort",
    "scatter",
    "scan",
    "reduce-window",
    "select-and-scatter",
)
EFFECTIVE = ("random draws", "transfers", "unknown custom calls")


class Drawn(Writer):
    """Draws from Python's generator rather than from Hypothesis."""

    def __init__(self, generator: random.Random, **options) -> None:
        self.generator = generator
        super().__init__(None, **options)

    def pick(self, items):
        items = items if isinstance(items, Sequence) else tuple(items)
        return items[self.generator.randrange(len(items))]

    def number(self, least: int, most: int) -> int:
        return self.generator.randint(least, most)

    def flag(self) -> bool:
        return self.generator.random() < 0.5

    def shuffled(self, items: Sequence) -> tuple:
        return tuple(self.generator.sample(list(items), len(items)))

    def grow(self, most: int = 3) -> None:
        """Of a program with effects, often with one in the computation that is written, too."""
        super().grow(most)
        effects = [o for o in FAMILIES if o in EFFECTS and o not in self.left_out]
        if effects and self.flag():
            opcode = self.pick(effects)
            RECIPES[opcode](self, opcode)


@dataclass(frozen=True)
class Kind:
    """What a program has more of than others."""

    name: str
    favoured: Collection[str] = ()
    left_out: Collection[str] = EFFECTS
    devices: tuple[tuple[int, int], ...] = ((1, 1),)
    first: tuple[str, ...] = ()
    """One of these opcodes is in it."""
    tiles: int = 8
    """One in so many has sizes around those of tiles."""


_NOT_FUSIBLE = frozenset(o for o, name in FAMILIES.items() if name not in FUSIBLE)
_OF_DEVICES = tuple(o for o, name in FAMILIES.items() if name == "devices")
KINDS = (
    Kind(
        "effects", (*EFFECTIVE, "control flow", "call and fusion"), (), ((1, 1), (1, 1), (1, 1), (2, 1)), tuple(EFFECTS)
    ),
    Kind("control flow", CALLING, first=CONTROL),
    Kind("kernels", left_out={*EFFECTS, *_NOT_FUSIBLE}, tiles=2),
    Kind("devices", ("devices",), devices=DEVICES, first=_OF_DEVICES),
    Kind("control flow", CALLING, first=CONTROL),
    Kind("anything", tiles=3),
)


def program(seed: int, number: int) -> tuple[Program, str]:
    """The program, and its kind."""
    generator = random.Random(f"{seed} {number}")
    kind = KINDS[number % len(KINDS)]
    unknown = () if kind.name == "effects" or generator.randrange(8) == 0 else UNKNOWN_TO_XLA_CPU
    w = Drawn(
        generator, left_out={*kind.left_out, *unknown}, tile_edges=generator.randrange(kind.tiles) == 0,
        sizes=generator.randint(1, 3),
        devices=generator.choice(kind.devices), favoured=kind.favoured,
    )  # fmt: skip
    first = [o for o in kind.first if o not in unknown]
    opcodes = [w.pick(first)] if first else []
    opcodes += [w.opcode() for _ in range(w.number(2, 14))]
    made = grown(w, opcodes)
    _devices(w)
    _waits(w)
    _aliases(w, made)
    return made, kind.name


def _devices(w: Drawn) -> None:
    for name, count in (("replica_count", w.replicas), ("num_partitions", w.partitions)):
        if count > 1:
            w.module.attributes[name] = Attribute.of(count)


def _waits(w: Drawn) -> None:
    """Some instructions of the entry wait for others."""
    instructions = [i for i in w.module.entry.instructions if i.opcode not in NEVER_WAIT]
    for _ in range(max(0, w.number(-4, 2)) if len(instructions) > 1 else 0):
        later = w.number(1, len(instructions) - 1)
        first = instructions[w.number(0, later - 1)]
        if first not in instructions[later].control_predecessors:
            instructions[later].control_predecessors.append(first)


def _aliases(w: Drawn, made: Program) -> None:
    """Some outputs may take the memory of inputs."""
    root = w.module.entry.root
    if w.number(0, 3):
        return
    leaves = [((), root)] if root.opcode != "tuple" else [((k,), o) for k, o in enumerate(root.operands)]
    free: list[Instruction] = list(w.module.entry.parameters)
    found = []
    for index, leaf in leaves:
        given = next((p for p in free if p.shape == leaf.shape and p.shape.rank), None)
        if given is not None:
            free.remove(given)
            found.append(f"{{{','.join(map(str, index))}}}: ({given.parameter_number}, {{}}, may-alias)")
    if found:
        w.module.attributes["input_output_alias"] = Attribute.of(Raw("{ " + ", ".join(found) + " }"))
