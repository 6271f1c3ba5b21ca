"""Listings of the tables: passes, presets, choices of plugins; and which faces each opcode has, for which element
types."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hlo_opt.diag import UsageError, did_you_mean
from hlo_opt.fusion.context import choice_names, find_choices
from hlo_opt.ops import OpSpec, table
from hlo_opt.ops.coverage import VALUES, Faces, faces
from hlo_opt.ops.custom_calls.targets import CustomCallSpec, custom_calls, find_custom_call
from hlo_opt.ops.spec import EVERYTHING
from hlo_opt.passes import pass_class, pass_names, pass_options, preset, preset_names
from hlo_opt.passes.table import option_meanings, plugin_of
from hlo_opt.report.page import Page, Word


def _default(value: object) -> str:
    """A default value as a pipeline spells it."""
    return str(value).lower() if isinstance(value, bool) else str(value) or '""'


def description(name: str) -> str:
    """What a pass does: its docstring up to the lines on its options."""
    return " ".join(inspect.cleandoc(pass_class(name).__doc__ or "").partition("\n\n")[0].split())


def purpose(name: str) -> str:
    """The first sentence of a pass's description."""
    return description(name).partition(". ")[0].rstrip(".")


def passes_page() -> Page:
    """The list for people."""
    page = Page()
    page.add(Word("passes", "bold"))
    for name in pass_names():
        _add_pass(page, name, purpose(name))
    page.add()
    page.add(Word("presets", "bold"))
    for name in preset_names():
        page.add("  ", Word(name, "bold"), f": {preset(name)}")
    installed = find_choices(choice_names())
    if installed:
        page.add()
        page.add(Word("choices", "bold"))
    for choice in installed:
        page.add("  ", Word(choice.name, "bold"), f" (from {choice.plugin.package}): {choice.purpose}")
    return page


def some_passes_page(names: Sequence[str]) -> Page:
    """Some passes for people, each with its whole description. Raises UsageError, naming the nearest, for an unknown
    one."""
    page = Page()
    for name in names:
        _add_pass(page, name, description(name))
    return page


def _add_pass(page: Page, name: str, text: str) -> None:
    cls, meanings = pass_class(name), option_meanings(name)
    plugin = plugin_of(cls)
    origin = f", from {plugin.package}" if plugin is not None else ""
    page.add("  ", Word(name, "bold"), f" (keeps the {cls.preserves}{origin}): {text}")
    rows = [[o, kind, _default(default), meanings.get(o, "")] for o, (kind, default) in pass_options(name).items()]
    page.table(rows, indent=6)


def passes_json(names: Sequence[str] = ()) -> dict[str, Any]:
    """The list for programs, of all passes or of some."""
    return {
        "schema": 1,
        "passes": [_pass_json(name) for name in names or pass_names()],
        "presets": {name: preset(name) for name in preset_names()},
        "choices": [{"name": c.name, "purpose": c.purpose} for c in find_choices(choice_names())],
    }


def _pass_json(name: str) -> dict[str, object]:
    meanings = option_meanings(name)
    return {
        "name": name,
        "preserves": pass_class(name).preserves,
        "purpose": purpose(name),
        "options": {
            option: {"type": kind, "default": default, "meaning": meanings.get(option, "")}
            for option, (kind, default) in pass_options(name).items()
        },
    }


FACES = ("infer", "evaluate", "index", "cuda", "expand", "flops", "tolerance", "samples")
TYPED = ("infer", "evaluate", "cuda", "expand")
"""The faces that differ from type to type."""


def chosen(opcodes: Sequence[str] = ()) -> list[OpSpec]:
    """The entries of the given opcodes, or all. Raises UsageError, naming the nearest, for an unknown one."""
    specs = {spec.opcode: spec for spec in table()}
    for opcode in opcodes:
        if opcode not in specs:
            known = [*specs, *(spec.target for spec in custom_calls())]
            hint = did_you_mean(opcode, known) or "hlo-opt ops --calls lists the custom calls that are known"
            raise UsageError(f"the op table has no {opcode!r}", code="HLO301", hint=hint)
    return [specs[name] for name in (opcodes or specs)]


def chosen_calls(names: Sequence[str]) -> list[CustomCallSpec]:
    """The custom calls among some names, by their targets."""
    opcodes = {spec.opcode for spec in table()}
    specs = [find_custom_call(name) for name in names if name not in opcodes]
    return [spec for spec in specs if spec is not None]


CALL_FACES = ("infer", "evaluate", "expand", "flops")


def calls_page(specs: Sequence[CustomCallSpec]) -> Page:
    """Custom calls for people, a line for each target."""
    page = Page()
    titles = ("custom call", "operands", *CALL_FACES, "library call", "library")
    rows: list[list[str | Word]] = [[Word(title, "bold") for title in titles]]
    for spec in specs:
        marks = [_mark(there) for there in _call_faces(spec).values()]
        operands = "-" if spec.operands is None else str(spec.operands)
        rows.append([Word(spec.target, "bold"), operands, *marks, spec.library or "-"])
    page.table(rows)
    return page


def calls_json(specs: Sequence[CustomCallSpec]) -> list[dict[str, object]]:
    """Custom calls for programs."""
    return [
        {"target": spec.target, "operands": spec.operands, **_call_faces(spec), "library": spec.library}
        for spec in specs
    ]


def _call_faces(spec: CustomCallSpec) -> dict[str, bool]:
    """What is declared of a target; what an expansion gives counts as evaluated."""
    there = {face: getattr(spec, face) is not None for face in CALL_FACES}
    there["evaluate"] |= there["expand"]
    return {**there, "library_call": spec.call is not None}


def has_face(spec: OpSpec, face: str) -> bool:
    """Whether a face is declared; a NumPy meaning that only refuses does not count."""
    return getattr(spec, face) is not None and not (face == "evaluate" and spec.hides_state)


def ops_page(specs: Sequence[OpSpec]) -> Page:
    """The table for people, a line for each opcode."""
    page = Page()
    lines: list[list[str | Word]] = [[Word(w, "bold") for w in ("opcode", "kind", "operands", *FACES, "types", "")]]
    for spec in specs:
        marks = [_mark(has_face(spec, face)) for face in FACES]
        note = "library" if spec.is_library else ("free" if spec.is_free else "")
        types = "all" if len(spec.accepts) == len(EVERYTHING) else " ".join(spec.accepts)
        lines.append([Word(spec.opcode, "bold"), spec.kind.value, str(spec.arity), *marks, types or "-", note])
    page.table(lines)
    totals = ", ".join(f"{face} {sum(has_face(spec, face) for spec in specs)}" for face in FACES)
    page.add(f"{len(specs)} opcodes: {totals}")
    return page


def _mark(there: bool) -> Word:
    return Word("yes", "green") if there else Word("-", "dim")


def types_page(specs: Sequence[OpSpec]) -> Page:
    """The faces by element type for people. Types for which an opcode has the same are on one line; those that it does
    not take are left out."""
    page = Page()
    lines: list[list[str | Word]] = [[Word(w, "bold") for w in ("opcode", *TYPED, "ulp", "types")]]
    pairs = dict.fromkeys(TYPED, 0)
    for spec in specs:
        alike: dict[Faces, list[str]] = {}
        for name, own in _by_type(spec).items():
            if own.infer or own.evaluate or own.cuda:
                alike.setdefault(own, []).append(name)
                for face in TYPED:
                    pairs[face] += getattr(own, face)
        for number, (own, names) in enumerate(alike.items()):
            ulp = "-" if own.ulp is None else f"{own.ulp:g}"
            marks = [_mark(getattr(own, face)) for face in TYPED]
            lines.append([Word("" if number else spec.opcode, "bold"), *marks, ulp, " ".join(names)])
        if not alike:
            lines.append([Word(spec.opcode, "bold"), *[_mark(False)] * len(TYPED), "-", "no arrays"])
    page.table(lines)
    page.add("opcodes x element types: " + ", ".join(f"{face} {number}" for face, number in pairs.items()))
    return page


def _by_type(spec: OpSpec) -> dict[str, Faces]:
    """The faces of an opcode for each element type that has values."""
    return {t.name: faces(spec, t) for t in VALUES}


def ops_json(specs: Sequence[OpSpec], calls: Sequence[CustomCallSpec] = (), *, types: bool = False) -> dict[str, Any]:
    """The table for programs, and custom calls, if any; with `types`, also the faces for every element type, of those
    that an opcode does not take as well."""
    return {
        "schema": 1,
        "ops": [
            {
                "opcode": spec.opcode,
                "kind": spec.kind.value,
                "operands": str(spec.arity),
                "accepts": list(spec.accepts),
                **{face: has_face(spec, face) for face in FACES},
                "library": spec.is_library,
                "free": spec.is_free,
                **({"types": {name: asdict(own) for name, own in _by_type(spec).items()}} if types else {}),
            }
            for spec in specs
        ],
        **({"calls": calls_json(calls)} if calls else {}),
    }
