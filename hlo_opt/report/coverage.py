"""The coverage table: which faces each opcode has, straight from the specs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hlo_opt.diag import UsageError, nearest
from hlo_opt.ops import OpSpec, table
from hlo_opt.report.page import Page, Word

FACES = ("infer", "evaluate", "index", "cuda", "expand", "flops", "tolerance", "samples")


@dataclass(frozen=True)
class Row:
    """One opcode: what it is and which faces are declared. `library` and `free` operations need no kernel of ours."""

    opcode: str
    kind: str
    operands: str
    faces: dict[str, bool]
    library: bool
    free: bool


def rows(opcodes: Sequence[str] = ()) -> list[Row]:
    """The rows of the given opcodes, or of all. Raises UsageError, naming the nearest, for an unknown one."""
    specs = {spec.opcode: spec for spec in table()}
    for opcode in opcodes:
        if opcode not in specs:
            close = nearest(opcode, specs)
            raise UsageError(
                f"the op table has no {opcode!r}", code="HLO301", hint=f"did you mean {close}?" if close else None
            )
    return [_row(specs[name]) for name in (opcodes or specs)]


def _row(spec: OpSpec) -> Row:
    faces = {face: getattr(spec, face) is not None for face in FACES}
    return Row(spec.opcode, spec.kind.value, str(spec.arity), faces, spec.is_library, spec.is_free)


def as_page(found: Sequence[Row]) -> Page:
    """The table for people."""
    page = Page()
    lines: list[list[str | Word]] = [[Word(w, "bold") for w in ("opcode", "kind", "operands", *FACES, "")]]
    for row in found:
        marks = [Word("yes", "green") if row.faces[face] else Word("-", "dim") for face in FACES]
        note = "library" if row.library else ("free" if row.free else "")
        lines.append([Word(row.opcode, "bold"), row.kind, row.operands, *marks, note])
    page.table(lines)
    totals = ", ".join(f"{face} {sum(r.faces[face] for r in found)}" for face in FACES)
    page.add(f"{len(found)} opcodes: {totals}")
    return page


def as_json(found: Sequence[Row]) -> dict[str, Any]:
    """The table for programs."""
    return {
        "schema": 1,
        "ops": [
            {
                "opcode": row.opcode,
                "kind": row.kind,
                "operands": row.operands,
                **row.faces,
                "library": row.library,
                "free": row.free,
            }
            for row in found
        ],
    }
