"""Which function of an emitter, of a lowering or of device code writes each line of a kernel."""

from __future__ import annotations

import ast
import collections
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hlo_opt.codegen import emit
from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.cuda import statement_lines
from hlo_opt.codegen.device_code import definitions
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.codegen.tree import Block, BlockRange, For, Neighbours, Network, Statement, StrideLoop, walk
from hlo_opt.plans.plan import Plan
from hlo_opt.runtime.schedule import lowering

ROOT = Path(__file__).resolve().parents[1]
_CODEGEN = ROOT / "hlo_opt" / "codegen"
_BUILDERS = frozenset(str(_CODEGEN / name) for name in ("builder.py", "indices.py", "statements.py"))
_LOW = frozenset(
    [
        "_index",
        "add",
        "advise",
        "array",
        "assign",
        "bind",
        "bind_exact",
        "block",
        "branch",
        "clamped",
        "declare",
        "declare_index",
        "do",
        "for_ever",
        "index_let",
        "let",
        "loop",
        "loop_while",
        "narrowed",
        "otherwise",
        "own_blocks",
        "put",
        "store",
        "text",
        "variable",
        "walk",
    ]
)
"""Functions of the builder that write what others say."""
_WRITERS = frozenset(
    [
        "add",
        "array",
        "assign",
        "bind",
        "bind_exact",
        "block",
        "branch",
        "do",
        "index_let",
        "let",
        "put",
        "store",
        "walk",
    ]
)


class Tracer:
    """Notes which function writes each statement of the kernels that are emitted meanwhile."""

    def __init__(self) -> None:
        self.written: dict[int, str] = {}
        self.maps: dict[str, dict[str, list[int]]] = {}
        self._add, self._emit = Builder.add, emit.emit_kernel

    def __enter__(self) -> Tracer:
        def add(builder: Builder, statement: Statement) -> None:
            self.written[id(statement)] = _writer()
            self._add(builder, statement)

        def emitted(plan: Plan, in_place: Sequence[tuple[int, int]] = ()) -> Kernel:
            self.written = {}
            made = self._emit(plan, in_place)
            self.maps.setdefault(made.symbol, self._map(made))
            return made

        Builder.add = add  # type: ignore[method-assign,assignment]
        lowering.emit_kernel = emitted  # type: ignore[attr-defined]
        return self

    def __exit__(self, *_: object) -> None:
        Builder.add = self._add  # type: ignore[method-assign]
        lowering.emit_kernel = self._emit  # type: ignore[attr-defined]

    def _map(self, kernel: Kernel) -> dict[str, list[int]]:
        lines = kernel.source.split("\n")
        found: dict[str, list[int]] = collections.defaultdict(list)
        for name, definition in definitions().items():
            at = kernel.source.find(definition)
            if at >= 0:
                first = kernel.source.count("\n", 0, at)
                found[name] += range(first, first + definition.count("\n"))
        start = next(n for n, text in enumerate(lines) if text.startswith('extern "C"'))
        start = next(n for n in range(start, len(lines)) if lines[n].endswith(") {"))
        taken = {n for numbers in found.values() for n in numbers}
        written = self._lines(kernel)
        for n, text in enumerate(lines):
            if n > start and text.strip():
                by = written.get(text.strip(), ["codegen/vectors.py:store_all"])
                found[by.pop(0) if len(by) > 1 else by[0]].append(
                    n
                )  # equal lines come in the order in which they were written
            elif n < start and n not in taken and text.startswith("static __device__"):
                found["codegen/parts.py:meeting"].append(n)
        return dict(found)

    def _lines(self, kernel: Kernel) -> dict[str, list[str]]:
        """Who wrote each line of the body, by its text, in the order of the statements; what stands around statements
        is not known where these have the same line."""
        alone: dict[str, list[str]] = collections.defaultdict(list)
        around: dict[str, list[str]] = collections.defaultdict(list)
        for statement in walk(kernel.tree.body):
            writer = self.written.get(id(statement))
            if writer is not None:
                has_inside = isinstance(statement, Block | For | Neighbours | Network | BlockRange | StrideLoop)
                for text in statement_lines([statement]):
                    (around if has_inside else alone)[text.strip()].append(writer)
        return {**around, **alone}


def _writer() -> str:
    """The innermost function that says what is written."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        name, file = frame.f_code.co_name, frame.f_code.co_filename
        if (
            file.startswith(str(ROOT / "hlo_opt"))
            and not (file in _BUILDERS and name in _LOW)
            and not name.startswith("<")
        ):
            return f"{Path(file).relative_to(ROOT / 'hlo_opt')}:{name}"
        frame = frame.f_back
    return "?"


def writers() -> set[str]:
    """Every function of an emitter or a lowering that writes lines of kernels, and every device function."""
    found = set(definitions()) - {"HLO_PTX"}
    for file in (*sorted(_CODEGEN.glob("*.py")), *sorted((ROOT / "hlo_opt/ops").rglob("*.py"))):
        if file.name.startswith(("host_", "lanes")):
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.FunctionDef)
                and not (str(file) in _BUILDERS and node.name in _LOW)
                and _writes(node)
            ):
                found.add(f"{file.relative_to(ROOT / 'hlo_opt')}:{node.name}")
    return found


def _writes(function: ast.FunctionDef) -> bool:
    inner = {
        child
        for node in ast.walk(function)
        if isinstance(node, ast.FunctionDef) and node is not function
        for child in ast.walk(node)
    }
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _WRITERS
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in ("builder", "self", "b")
        for node in ast.walk(function)
        if node not in inner
    )
