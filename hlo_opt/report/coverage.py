"""The coverage table: which faces each opcode has, and for which element types, straight from the specs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hlo_opt.diag import UsageError, did_you_mean
from hlo_opt.ops import OpSpec, table
from hlo_opt.ops.coverage import VALUES, Faces, faces
from hlo_opt.report.page import Page, Word

FACES = ("infer", "evaluate", "index", "cuda", "expand", "flops", "tolerance", "samples")
TYPED = ("infer", "evaluate", "cuda", "expand")
"""The faces that differ from type to type."""


@dataclass(frozen=True)
class Row:
    """One opcode: what it is, the kinds (or names) of element types that it takes and which faces are declared. `library` and `free` operations need no
    kernel of ours. `types` has what there is for each element type that has values."""

    opcode: str
    kind: str
    operands: str
    accepts: tuple[str, ...]
    faces: dict[str, bool]
    library: bool
    free: bool
    types: dict[str, Faces]


def rows(opcodes: Sequence[str] = ()) -> list[Row]:
    """The rows of the given opcodes, or of all. Raises UsageError, naming the nearest, for an unknown one."""
    specs = {spec.opcode: spec for spec in table()}
    for opcode in opcodes:
        if opcode not in specs:
            raise UsageError(f"the op table has no {opcode!r}", code="HLO301", hint=did_you_mean(opcode, specs))
    return [_row(specs[name]) for name in (opcodes or specs)]


def _row(spec: OpSpec) -> Row:
    found = {face: getattr(spec, face) is not None for face in FACES}
    found["evaluate"] = found["evaluate"] and not spec.hides_state
    types = {t.name: faces(spec, t) for t in VALUES}
    return Row(
        spec.opcode,
        spec.kind.value,
        str(spec.arity),
        tuple(spec.accepts),
        found,
        spec.is_library,
        spec.is_free,
        types,
    )


def as_page(found: Sequence[Row]) -> Page:
    """The table for people, a line for each opcode."""
    page = Page()
    lines: list[list[str | Word]] = [[Word(w, "bold") for w in ("opcode", "kind", "operands", *FACES, "types", "")]]
    for row in found:
        marks = [_mark(row.faces[face]) for face in FACES]
        note = "library" if row.library else ("free" if row.free else "")
        kinds = "all" if len(row.accepts) == len(_ALL) else " ".join(row.accepts)
        lines.append([Word(row.opcode, "bold"), row.kind, row.operands, *marks, kinds or "-", note])
    page.table(lines)
    totals = ", ".join(f"{face} {sum(r.faces[face] for r in found)}" for face in FACES)
    page.add(f"{len(found)} opcodes: {totals}")
    return page


_ALL = ("pred", "signed", "unsigned", "float", "complex")


def _mark(there: bool) -> Word:
    return Word("yes", "green") if there else Word("-", "dim")


def types_page(found: Sequence[Row]) -> Page:
    """The faces by element type for people. Types for which an opcode has the same are on one line; those that it does not take are left out."""
    page = Page()
    lines: list[list[str | Word]] = [[Word(w, "bold") for w in ("opcode", *TYPED, "ulp", "types")]]
    pairs = dict.fromkeys(TYPED, 0)
    for row in found:
        alike: dict[Faces, list[str]] = {}
        for name, own in row.types.items():
            if own.infer or own.evaluate or own.cuda:
                alike.setdefault(own, []).append(name)
                for face in TYPED:
                    pairs[face] += getattr(own, face)
        for number, (own, names) in enumerate(alike.items()):
            ulp = "-" if own.ulp is None else f"{own.ulp:g}"
            marks = [_mark(getattr(own, face)) for face in TYPED]
            lines.append([Word("" if number else row.opcode, "bold"), *marks, ulp, " ".join(names)])
        if not alike:
            lines.append([Word(row.opcode, "bold"), *[_mark(False)] * len(TYPED), "-", "no arrays"])
    page.table(lines)
    page.add("opcodes x element types: " + ", ".join(f"{face} {number}" for face, number in pairs.items()))
    return page


def as_json(found: Sequence[Row], *, types: bool = False) -> dict[str, Any]:
    """The table for programs; with `types`, also the faces for every element type, of those that an opcode does not take as well."""
    return {
        "schema": 1,
        "ops": [
            {
                "opcode": row.opcode,
                "kind": row.kind,
                "operands": row.operands,
                "accepts": list(row.accepts),
                **row.faces,
                "library": row.library,
                "free": row.free,
                **({"types": {name: asdict(own) for name, own in row.types.items()}} if types else {}),
            }
            for row in found
        ],
    }
