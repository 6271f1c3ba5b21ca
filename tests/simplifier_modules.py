"""The modules that the examples of the simplifier's rules describe, and what one rule alone makes of them."""

from __future__ import annotations

import re

import pytest

import hlo_opt
from hlo_opt.analysis.properties import effectful_computations
from hlo_opt.ir import ELEMENT_TYPES, Module, edit
from hlo_opt.passes.simplify import worklist
from hlo_opt.passes.simplify.rule import Rule

REDUCERS = {"add": "add", "max": "maximum", "min": "minimum"}

HELP = {
    "less": "less { a = T[] parameter(0) b = T[] parameter(1) ROOT r = pred[] compare(a, b), direction=LT }",
    "keys": "keys { a = T[] parameter(0) b = T[] parameter(1) c = s32[] parameter(2) d = s32[] parameter(3) ROOT r = "
    "pred[] compare(a, b), direction=LT }",
    "both": "both { a = T[] parameter(0) b = s32[] parameter(1) c = T[] parameter(2) d = s32[] parameter(3) e = T[] "
    "add(a, c) f = s32[] add(b, d) ROOT r = (T[], s32[]) tuple(e, f) }",
    "first": "first { a = T[] parameter(0) b = s32[] parameter(1) c = T[] parameter(2) d = s32[] parameter(3) p = "
    "pred[] compare(a, c), direction=GE e = T[] maximum(a, c) f = s32[] select(p, b, d) ROOT r = (T[], s32[]) tuple(e, "
    "f) }",
    "up": "up { a = T[12] parameter(0) ROOT r = T[12] add(a, a) }",
    "down": "down { a = T[12] parameter(0) ROOT r = T[12] negate(a) }",
    "double": "double { a = T[] parameter(0) ROOT r = T[] add(a, a) }",
    "last": "last { a = T[] parameter(0) ROOT b = T[] parameter(1) }",
    "fourth": "fourth { a = T[] parameter(0) k = T[] constant(0.25) ROOT r = T[] multiply(a, k) }",
    "twice": "twice { a = T[] parameter(0) b = T[] parameter(1) c = T[] constant(2) d = T[] multiply(a, c) ROOT r = "
    "T[] add(d, b) }",
    "summed": "summed { a = T[] parameter(0) b = T[1] reshape(a) z = T[] constant(0) ROOT r = T[] reduce(b, z), "
    "dimensions={0}, to_apply=add }",
}


def module_of(line: str, kind: str, devices: int = 1) -> Module:
    """The module that an example's line describes, for `devices` replicas."""
    element = ELEMENT_TYPES[kind]
    least, most = (
        ("-inf", "inf") if element.is_float else tuple(map(str, element.limits)) if element.is_integer else ("", "")
    )
    ones = "-1" if element.kind == "signed" else most
    line = line.replace("LEAST", least).replace("MOST", most).replace("ONES", ones)
    line = re.sub(r"\bC\[", "c128[" if kind == "f64" else "c64[", re.sub(r"\bT\[", f"{kind}[", line))
    body, number = [], 0
    *parts, root = line.split("; ")
    for part in parts:
        if ": " in part and " = " not in part:
            name, shape = part.split(": ")
            body.append(f"  {name} = {shape} parameter({number})")
            number += 1
        else:
            body.append(f"  {part}")
    body.append(f"  ROOT root = {root}")
    used = [n for n in HELP if re.search(rf"\b{n}\b", line)]
    named = [n for n in REDUCERS if re.search(rf"to_apply={n}\b", line) or "summed" in used]
    helpers = [
        f"{n} {{ a = {kind}[] parameter(0) b = {kind}[] parameter(1) ROOT r = {kind}[] {REDUCERS[n]}(a, b) }}"
        for n in named
    ]
    helpers += [re.sub(r"\bT\[", f"{kind}[", HELP[n]) for n in used]
    text = (
        f"HloModule m, replica_count={devices}\n\n"
        + "\n\n".join([*helpers, "ENTRY e {\n" + "\n".join(body) + "\n}"])
        + "\n"
    )
    module = hlo_opt.parse(text)
    hlo_opt.verify(module)
    return module


def applied(module: Module, rule: Rule, monkeypatch: pytest.MonkeyPatch) -> tuple[Module, int]:
    """A copy rewritten by one rule alone, and how often."""
    made = edit.clone_module(module)
    monkeypatch.setattr(worklist, "rules_by_opcode", lambda fast_math: dict.fromkeys(rule.opcodes, (rule,)))
    effects = effectful_computations(list(made.computations))
    work = worklist.Worklist(made.entry, effects)
    count = work.run()
    edit.sort(made.entry)
    edit.sort_computations(made)
    hlo_opt.verify(made)
    return made, count
