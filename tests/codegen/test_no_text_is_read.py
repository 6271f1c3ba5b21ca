"""Nobody reads the text of a kernel to learn something of it, or to make another: its tree says what it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import hlo_opt

ROOT = Path(hlo_opt.__file__).parent
FILES = sorted(p for room in ("codegen", "runtime") for p in (ROOT / room).rglob("*.py"))
CODEGEN = [p for p in FILES if p.parent.name == "codegen"]

SEARCHING = {
    *("split", "rsplit", "splitlines", "find", "rfind", "index", "rindex", "count", "partition", "rpartition"),
    *("replace", "startswith", "endswith", "removeprefix", "removesuffix", "strip", "lstrip", "rstrip"),
    *("match", "fullmatch", "search", "finditer", "findall", "sub", "subn", "translate", "expandtabs"),
}
"""What looks into a text, or makes another of it."""
PRINTERS = {
    *("kernel_text", "statement_lines", "expression_text", "table_text", "helpers", "printed"),
    *("lanes_unit", "plain_unit", "watched_unit", "as_loops", "block_function", "units_of"),
}
"""What returns text of kernels."""
USES_OF_SOURCE = {
    ("codegen/host_plain.py", "an f-string"),  # the unit that a compiler gets
    ("runtime/cupy/device.py", "entry_name"),  # hashes it
    ("runtime/cupy/device.py", "createProgram"),  # NVRTC
    ("runtime/cupy/device.py", "a tuple"),  # the key of what is compiled
    ("runtime/driver/emission.py", "BinOp"),
    ("runtime/family/emission.py", "write_text"),
    ("runtime/host/library.py", "len"),  # which units get which kernels
    ("runtime/schedule/lowering.py", "replace"),  # of a dataclass: the same text for a kernel of other dimensions
}
"""All that is done with `kernel.source`. A use that reads it does not belong here."""
OTHER_TEXTS = {
    ("device_code.py", "definitions", "partition"),  # headers of ours, which hold the helpers
    ("device_code.py", "definitions", "split"),
    ("device_code.py", "definitions", "strip"),
    ("device_code.py", "_needed", "findall"),
    ("emit.py", "emitter", "replace"),  # the kind of a plan, as the name of a module
    ("host_plain.py", "_is_watched", "startswith"),  # a parameter's name
    ("lanes.py", "shim", "replace"),  # a header of ours
    ("lanes_text.py", "clean", "replace"),  # a name
    ("lanes_text.py", "first_lanes", "startswith"),  # what an expression compares an index with
    ("lanes_text.py", "first_lanes", "strip"),
    ("names.py", "identifier", "strip"),  # escapes names of HLO
    ("names.py", "identifier", "sub"),
    ("names.py", "comment", "rstrip"),
    ("names.py", "comment", "sub"),
    ("scalars.py", "*", "startswith"),  # a literal
    ("threads.py", "_has_atomics", "startswith"),  # names of functions
}
"""Where code generation looks into any text."""


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def parents_in(tree: ast.AST) -> dict[ast.AST, ast.AST]:
    return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}


def called(node: ast.AST | None) -> str:
    """The name of what a call calls."""
    match node:
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
            return name
    return ""


def use(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> str:
    """What is done with the value of an expression."""
    parent = parents[node]
    match parent:
        case ast.keyword():
            return called(parents[parent])
        case ast.Call() if parent.func is not node:
            return called(parent)
        case ast.FormattedValue():
            return "an f-string"
        case ast.Tuple():
            return "a tuple"
        case ast.Attribute(attr=attribute):
            return f".{attribute}"
    return type(parent).__name__


def is_kernels(node: ast.Attribute) -> bool:
    """Whether `.source` is that of a kernel: where it is another's (a span's, an event's), the name says so."""
    other = {"module", "span", "half", "r", "self", "wish"}
    match node.value:
        case ast.Name(id=name):
            return name not in other
        case ast.Attribute(attr=name):
            return name not in other
    return not (isinstance(node.value, ast.Subscript) and getattr(node.value.value, "id", "") == "events")


def uses_of_source(tree: ast.Module) -> Iterator[str]:
    parents = parents_in(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "source" and is_kernels(node):
            yield use(node, parents)


def readings(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Functions, and what they do that looks into a text."""

    def go(node: ast.AST, inside: str) -> Iterator[tuple[str, str]]:
        if isinstance(node, ast.FunctionDef):
            inside = node.name
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SEARCHING:
            yield inside, node.func.attr
        for child in ast.iter_child_nodes(node):
            yield from go(child, inside)

    return go(tree, "")


def read_results(tree: ast.Module) -> Iterator[str]:
    """What printers return, where something looks into it: at once, or under the name that it gets in the same
    function."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        parents = parents_in(function)
        texts = {
            name.id
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and called(node.value) in PRINTERS
            for target in node.targets
            for name in ast.walk(target)
            if isinstance(name, ast.Name)
        }
        for node in ast.walk(function):
            is_text = called(node) in PRINTERS or (isinstance(node, ast.Name) and node.id in texts)
            parent = parents.get(node)
            if is_text and isinstance(parent, ast.Attribute) and parent.attr in SEARCHING:
                yield f"{function.name}: .{parent.attr}"
            if is_text and isinstance(parent, ast.Subscript) and parent.value is node:
                yield f"{function.name}: a part"
            if is_text and isinstance(parent, ast.Compare) and not _is_with_none(parent):
                yield f"{function.name}: a comparison"


def _is_with_none(node: ast.Compare) -> bool:
    return all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops)


def test_the_text_of_a_kernel_is_hashed_written_and_compiled() -> None:
    found = {(p.relative_to(ROOT).as_posix(), what) for p in FILES for what in uses_of_source(parsed(p))}
    assert found == USES_OF_SOURCE


def test_nothing_looks_into_what_printers_return() -> None:
    assert [f"{p.name}: {what}" for p in FILES for what in read_results(parsed(p))] == []


def test_code_generation_looks_into_few_texts() -> None:
    def known(name: str, function: str, method: str) -> tuple[str, str, str]:
        return (name, "*", method) if (name, "*", method) in OTHER_TEXTS else (name, function, method)

    found = {known(p.name, *where) for p in CODEGEN for where in readings(parsed(p))}
    found -= {where for where in found if where[2] == "index" and where not in OTHER_TEXTS and is_of_spaces(where[0])}
    assert found == OTHER_TEXTS


def is_of_spaces(name: str) -> bool:
    """Whether a file's `.index` is the position of an element in a space, which is no text."""
    return name in {
        "attention.py",
        "builder.py",
        "cumulative.py",
        "matmul.py",
        "matrix_vector.py",
        "sliding_window.py",
        "tensor_attention.py",
        "tensor_matmul.py",
    }


def test_only_names_and_headers_of_ours_have_regular_expressions() -> None:
    def imported(path: Path) -> set[str]:
        found = set()
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module or "")
        return found

    assert [p.name for p in CODEGEN if imported(p) & {"re", "regex", "tokenize", "lark"}] == [
        "device_code.py",
        "names.py",
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def f(k):\n    return k.source.split('{')", [".split"]),
        ("def f(k):\n    return '__sync' in k.source", ["Compare"]),
        ("def f(k):\n    return re.findall('x', k.source)", ["findall"]),
        ("def f(k):\n    a = k.source", ["Assign"]),
        ("def f(k):\n    return k.source[3:]", ["Subscript"]),
    ],
)
def test_a_reader_would_be_seen(text: str, found: list[str]) -> None:
    assert list(uses_of_source(ast.parse(text))) == found and not {("codegen/x.py", w) for w in found} & USES_OF_SOURCE


@pytest.mark.parametrize(
    "text",
    [
        "def f(k):\n    a, b = kernel_text(k)\n    return b.replace('x', 'y')",
        "def f(k):\n    return plain_unit(k).find('x')",
        "def f(k):\n    a = as_loops(k)\n    return '__sync' in a",
        "def f(k):\n    a = lanes_unit(k)\n    return a[1:]",
    ],
)
def test_a_reader_of_what_is_printed_would_be_seen(text: str) -> None:
    assert list(read_results(ast.parse(text)))
