"""The rooms of the package: a room imports only rooms before it; files stay short; every kind of plan has its matcher
and its emitter."""

from __future__ import annotations

import ast
import gc
import importlib
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

import hlo_opt

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "hlo_opt"
ROOMS = (
    "diag",
    "ir",
    "library",
    "ops",
    "text",
    "forms",
    "evaluate",
    "analysis",
    "plans",
    "fusion",
    "passes",
    "codegen",
    "runtime",
    "jax",
    "cutting",
    "tune",
    "report",
    "cli",
)
SUB_ROOMS = {
    "ops": (
        "faces",
        "values",
        "code",
        "call_config",
        "omitted",
        "strides",
        "wishes",
        "bounds",
        "lowering",
        "emission",
        "ways",
        "spec",
        "sets",
        "masks",
        "coverage",
        "dynamic",
        "numeric",
        "shapes",
        "accesses",
        "spread",
        "intervals",
        "writer",
        "random",
        "elementwise",
        "movement",
        "reduction",
        "stored_bits",
        "contraction",
        "logic",
        "terms",
        "scratch",
        "indexing",
        "counts",
        "choices",
        "pulls",
        "relations",
        "extremes",
        "ordering",
        "control",
        "linalg",
        "collective",
        "custom_calls",
        "calls",
        "updates",
        "tied",
        "tied_parts",
    ),
    "analysis": ("targets", "properties", "graph", "memory", "xla", "sizes"),
    "runtime": (
        "numpy",
        "differences",
        "rounding",
        "schedule",
        "host",
        "cupy",
        "driver",
        "executable",
        "family",
        "check",
        "measure",
    ),
}
"""The files and folders of a room, in order, where it has folders that know each other."""

FILES = sorted(PACKAGE.rglob("*.py"))
IN_ROOMS = [f for f in FILES if len(f.relative_to(PACKAGE).parts) > 1]


def imported(tree: ast.AST, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that a file imports, wherever in the file: in functions and under TYPE_CHECKING
    too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = ".".join((*base, *((node.module,) if node.module else ())))
            yield from ((node.lineno, f"{stem}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield node.lineno, first.value


def upward(text: str, room: str) -> list[str]:
    """The imports of a file in a room that reach a later room."""
    found = []
    for line, name in imported(ast.parse(text), ("hlo_opt", room)):
        parts = name.split(".")
        if parts[0] != "hlo_opt" or len(parts) == 1:
            continue
        if parts[1] in ROOMS and ROOMS.index(parts[1]) > ROOMS.index(room):
            found.append(f"line {line}: {name}")
        elif parts[1] not in ROOMS and parts[1] != "__version__" and room not in ("report", "cli"):
            found.append(f"line {line}: {name} (the public interface lies below every room)")
    return found


def test_the_pages_list_the_rooms_in_their_order() -> None:
    table = re.findall(r"^\| `(\w+)` \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    rooms = [room for room in ROOMS if (PACKAGE / room).is_dir()]
    assert table[table.index(rooms[0]) :] == rooms
    design = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    assert ", ".join(f"`{room}`" for room in rooms) in design


def test_every_folder_is_a_room() -> None:
    folders = {p.name for p in PACKAGE.iterdir() if p.is_dir() and (p / "__init__.py").exists()}
    assert folders <= set(ROOMS)


@pytest.mark.parametrize("path", IN_ROOMS, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_room_imports_only_rooms_before_it(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0]
    assert upward(path.read_text(encoding="utf-8"), room) == []


def sideways(text: str, room: str, own: str) -> list[str]:
    """The imports of a file of a room, in its part `own`, that reach a later part of that room, or one that is not
    listed."""
    parts = SUB_ROOMS[room]
    found = []
    for line, name in imported(ast.parse(text), ("hlo_opt", room, own)):
        path = name.split(".")
        if path[:2] == ["hlo_opt", room] and (len(path) < 3 or path[2] not in parts[: parts.index(own) + 1]):
            found.append(f"line {line}: {name}")
    return found


@pytest.mark.parametrize("room", SUB_ROOMS)
def test_a_sub_room_imports_only_sub_rooms_before_it(room: str) -> None:
    files = {f: f.relative_to(PACKAGE / room).parts[0].removesuffix(".py") for f in (PACKAGE / room).rglob("*.py")}
    assert set(files.values()) - {"__init__"} == set(SUB_ROOMS[room])
    found = {
        str(f.relative_to(PACKAGE)): sideways(f.read_text(encoding="utf-8"), room, own)
        for f, own in files.items()
        if own != "__init__"
    }
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "text", ["from hlo_opt.runtime.cupy.device import CupyDevice", "from hlo_opt.runtime import measure"]
)
def test_a_sideways_import_is_seen(text: str) -> None:
    assert sideways(text, "runtime", "host") and not sideways(text, "runtime", "measure")


@pytest.mark.parametrize(
    "text",
    [
        "import hlo_opt.cli",
        "from hlo_opt.cli import main",
        "from hlo_opt import cli",
        "from ..cli import main",
        "def f():\n    from hlo_opt.runtime import compile",
        "if TYPE_CHECKING:\n    from hlo_opt.report import page",
        "import importlib\nimportlib.import_module('hlo_opt.tune.search')",
        "from hlo_opt import fuse",
    ],
)
def test_an_upward_import_is_seen(text: str) -> None:
    assert upward(text, "fusion")


def test_files_are_short() -> None:
    lines = {str(f.relative_to(ROOT)): len(f.read_text(encoding="utf-8").splitlines()) for f in FILES}
    assert {name: n for name, n in lines.items() if n > 600} == {}
    assert statistics.median(lines.values()) <= 200


def test_nothing_heavy_is_imported_for_help() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from hlo_opt.cli.group import run; run(['--help']);"
        "heavy = {'numpy', 'lark', 'rich', 'ml_dtypes', 'cupy', 'hlo_opt.ir', 'hlo_opt.ops'} & set(sys.modules);"
        "sys.exit(f'imported: {sorted(heavy)}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Commands" in done.stdout


def test_public_names_resolve() -> None:
    package = importlib.import_module("hlo_opt")
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError):
        _ = package.no_such_name


@pytest.mark.parametrize("is_on", [True, False])
def test_an_import_leaves_the_collector_as_it_was(is_on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    during: list[bool] = []

    def failing(home: str) -> None:
        during.append(gc.isenabled())
        raise ModuleNotFoundError(home)

    was_on = gc.isenabled()
    (gc.enable if is_on else gc.disable)()
    try:
        with monkeypatch.context() as patched, pytest.raises(ModuleNotFoundError):
            patched.setattr(importlib, "import_module", failing)
            hlo_opt.imported("hlo_opt.no_such_module")
        assert (during, gc.isenabled()) == ([False], is_on)
    finally:
        (gc.enable if was_on else gc.disable)()


def test_every_kind_of_plan_has_a_file_and_an_emitter() -> None:
    from hlo_opt.codegen.emit import emitter
    from hlo_opt.plans.kinds import KINDS

    parts = {
        statement.value.value: path.stem
        for path in (PACKAGE / "plans").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and statement.target.id == "kind"
        if isinstance(statement.value, ast.Constant)
    }
    assert parts == {kind.name: kind.name.replace("-", "_") for kind in KINDS}
    for kind in KINDS:
        assert emitter(kind.name).__module__ == f"hlo_opt.codegen.{kind.name.replace('-', '_')}"
