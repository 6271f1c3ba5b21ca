"""A rule: the instructions that it is tried on, the value that replaces them, and why the values stay the same. The
family files of this folder fill the table of rules."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hlo_opt.ir import Instruction
from hlo_opt.passes.simplify.site import Site

Rewrite = Callable[[Instruction, Site], Instruction | None]
"""The value that replaces an instruction; None, with nothing created, where the rule does not fit."""

FAMILIES = (
    "identities",
    "integers",
    "converts",
    "selects",
    "movement",
    "movers",
    "broadcasts",
    "slices",
    "pads",
    "indexing",
    "sorts",
    "reductions",
    "windows",
    "dots",
    "convolutions",
    "tuples",
    "control",
    "collectives",
    "constants",
)
"""The family files, in the order in which their rules are tried on an instruction."""

ANY = "*"
"""Stands for every opcode."""


@dataclass(frozen=True)
class Rule:
    """One rewrite.

    name      unique, as certificates and counts call it
    family    the file that it stands in
    opcodes   of the instructions that it is tried on
    what      pattern and result, in a line
    why       why every bit of the value stays, or what HLO leaves open and the rule makes use of
    differs   how values differ where they do: such a rule is applied only with `fast-math`; empty for all others
    rewrite   does it
    of        opcodes of which one of the operands has one; empty: it is tried whatever they are
    """

    name: str
    family: str
    opcodes: tuple[str, ...]
    what: str
    why: str
    differs: str
    rewrite: Rewrite
    of: tuple[str, ...] = ()

    @property
    def is_exact(self) -> bool:
        return not self.differs


_RULES: dict[str, Rule] = {}


def rule(name: str, opcodes: str, what: str, why: str, differs: str = "", of: str = "") -> Callable[[Rewrite], Rewrite]:
    """Declare the function below as a rule of the family whose file it stands in. `opcodes` and `of` are names with
    spaces between them. Raises ValueError for a name that is taken."""

    def declare(rewrite: Rewrite) -> Rewrite:
        if name in _RULES:
            raise ValueError(f"rule {name} is declared twice")
        family = rewrite.__module__.rpartition(".")[2]
        _RULES[name] = Rule(name, family, tuple(opcodes.split()), what, why, differs, rewrite, tuple(of.split()))
        return rewrite

    return declare


@functools.cache
def rules() -> Mapping[str, Rule]:
    """All rules by name, in the order in which they are tried."""
    for family in FAMILIES:
        importlib.import_module(f"hlo_opt.passes.simplify.{family}")
    return dict(sorted(_RULES.items(), key=lambda item: FAMILIES.index(item[1].family)))


@functools.cache
def rules_by_opcode(fast_math: bool) -> Mapping[str, tuple[Rule, ...]]:
    """The rules to try on an instruction, by its opcode; those of `ANY` are under every one that has rules, and under
    `ANY` for all others."""
    wanted = [r for r in rules().values() if r.is_exact or fast_math]
    opcodes = {opcode: None for r in wanted for opcode in r.opcodes}
    return {o: tuple(r for r in wanted if o in r.opcodes or ANY in r.opcodes) for o in opcodes}
