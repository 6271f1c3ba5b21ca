"""Single mistakes planted in Python source: where each is, what the statement said before and what it says with the
mistake.

Statements are compared as `ast.unparse` writes them, so that formatting, comments and line numbers play no part. Left
alone is what no test can or should see: docstrings, annotations, names for types, decorators, assertions, the text of
messages, names for export, and imports; a `return None` behind which the function ends, and the order of arguments that
may stand in any.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_ORDERED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.LShift, ast.RShift)
_CALLS = {
    "any": "all",
    "all": "any",
    "min": "max",
    "max": "min",
    "reversed": "list",
    "issubset": "issuperset",
    "issuperset": "issubset",
    "startswith": "endswith",
    "endswith": "startswith",
    "union": "intersection",
    "intersection": "union",
}
_SYMMETRIC = frozenset(
    {"min", "max", "np.add", "np.logical_and", "np.logical_or", "np.maximum", "np.minimum", "np.multiply"}
)
_QUIET_KEYWORDS = frozenset({"strict", "maxsize", "encoding"})  # of calls: dropped, they change nothing that holds
_QUIET_FUNCTIONS = frozenset({"__repr__"})


@dataclass(frozen=True)
class Mutant:
    """One mistake in one file. `function` is the qualified name that holds it, "" at the top of the file. `at_import`:
    importing the file runs it (in a class, too, and the defaults of a function), whichever test that happens in."""

    file: str
    line: int
    function: str
    before: str
    after: str
    source: str = field(repr=False, compare=False)
    lines: range = field(repr=False, compare=False)
    at_import: bool = field(default=False, repr=False, compare=False)

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What names this mistake when lines have moved."""
        return self.file, self.function, self.before, self.after


def mutants(file: str, source: str) -> list[Mutant]:
    """All mistakes that can be planted in a file's text, in the order of lines, each once."""
    tree = ast.parse(source)
    ends = {
        id(s) for s in ast.walk(tree) if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef)) for s in _ends(s.body)
    }
    found = []
    seen: set[tuple[object, ...]] = set()
    for function, statement, at_import in _statements(tree.body, "", True):
        before = _header(statement)
        for node, replacement in _changes(statement):
            if id(node) in ends and isinstance(replacement, ast.Pass):
                continue
            text = _planted(source, node, replacement)
            after = _header_with(statement, node, replacement)
            if after == before or (function, statement.lineno, after) in seen or not _compiles(text):
                continue
            seen.add((function, statement.lineno, after))
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            found.append(Mutant(file, node.lineno, function, before, after, text, lines, at_import))
    return sorted(found, key=lambda m: m.line)


def _ends(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The returns of None behind which a function ends anyway."""
    last = body[-1] if body else None
    if isinstance(last, ast.Return) and (
        last.value is None or (isinstance(last.value, ast.Constant) and last.value.value is None)
    ):
        yield last
    elif isinstance(last, ast.If):
        yield from _ends(last.body)
        yield from _ends(last.orelse)


def _statements(body: list[ast.stmt], function: str, at_import: bool) -> Iterator[tuple[str, ast.stmt, bool]]:
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inside = f"{function}.{statement.name}".lstrip(".")
            if statement.name not in _QUIET_FUNCTIONS:
                is_class = isinstance(statement, ast.ClassDef)
                if not is_class:
                    yield inside, statement, at_import
                yield from _statements(statement.body, inside, at_import and is_class)
        elif isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            continue
        elif not isinstance(statement, (ast.Import, ast.ImportFrom, ast.Assert, ast.Global, ast.Nonlocal)):
            yield function, statement, at_import
            for name in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(statement, name, []), function, at_import)
            for part in [*getattr(statement, "handlers", []), *getattr(statement, "cases", [])]:
                yield from _statements(part.body, function, at_import)


def _header(statement: ast.stmt) -> str:
    """A statement as one text, without the statements inside it."""
    bare = copy.copy(statement)
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        if isinstance(getattr(bare, name, None), list):
            setattr(bare, name, [ast.Pass()] if name == "body" else [])
    if isinstance(bare, (ast.Try, ast.TryStar)):
        return "try"
    text = ast.unparse(bare)
    return text.removesuffix("\n    pass").strip() if hasattr(statement, "body") else text


def _header_with(statement: ast.stmt, node: ast.AST, replacement: ast.AST) -> str:
    if node is statement:
        return ast.unparse(replacement)
    changed = _Replace(node, replacement).visit(statement)
    assert isinstance(changed, ast.stmt)
    return _header(changed)


class _Replace(ast.NodeTransformer):
    """A copy with one node replaced; all the others are shared."""

    def __init__(self, node: ast.AST, replacement: ast.AST) -> None:
        self.node, self.replacement = node, replacement

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self.node:
            return self.replacement
        bare = copy.copy(node)
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.AST):
                setattr(bare, name, self.visit(value))
            elif isinstance(value, list):
                setattr(bare, name, [self.visit(v) if isinstance(v, ast.AST) else v for v in value])
        return bare


def _planted(source: str, node: ast.stmt | ast.expr, replacement: ast.AST) -> str:
    lines = source.encode().split(b"\n")
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    text = ast.unparse(replacement)
    if isinstance(replacement, (ast.Compare, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Tuple, ast.Yield)):
        text = f"({text.removeprefix('(').removesuffix(')')})" if isinstance(replacement, ast.Tuple) else f"({text})"
    head, tail = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
    lines[first : last + 1] = [head + text.encode() + tail]
    return b"\n".join(lines).decode()


def _compiles(text: str) -> bool:
    try:
        compile(text, "mutant", "exec")
    except SyntaxError:
        return False
    return True


# ---- what is changed


def _changes(statement: ast.stmt) -> Iterator[tuple[ast.stmt | ast.expr, ast.AST]]:
    yield from _dropped(statement)
    for node in _own_expressions(statement):
        for replacement in _replacements(node):
            yield node, ast.copy_location(replacement, node)
    if isinstance(statement, (ast.If, ast.While)):
        yield from ((statement.test, r) for r in _denied(statement.test))


def _dropped(statement: ast.stmt) -> Iterator[tuple[ast.stmt, ast.AST]]:
    if isinstance(statement, ast.Return) and statement.value is not None:
        if not (isinstance(statement.value, ast.Constant) and statement.value.value in (None, False)):
            yield statement, ast.Return(ast.Constant(None))
        yield statement, ast.Pass()
    elif isinstance(statement, ast.Assign):
        if all(isinstance(t, (ast.Subscript, ast.Attribute)) for t in statement.targets):
            yield statement, ast.Pass()
    elif isinstance(statement, ast.Expr):
        if not isinstance(statement.value, ast.Constant):
            yield statement, ast.Pass()
    elif isinstance(statement, (ast.Return, ast.Continue, ast.Break, ast.Raise, ast.AugAssign, ast.Delete)):
        yield statement, ast.Pass()


def _own_expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """The expressions of a statement itself, outermost first: not those of statements inside, of annotations,
    decorators and messages."""
    pending: list[ast.AST] = []
    whole: list[ast.AST] = []  # a tuple that is unpacked must keep its members
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Tuple):
        whole = [statement.value]
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
        pending = [d for d in [*statement.args.defaults, *statement.args.kw_defaults] if d is not None]
    elif isinstance(statement, ast.Raise):
        pending = []
    elif isinstance(statement, ast.AnnAssign):
        pending = [statement.value] if statement.value is not None else []
    elif isinstance(statement, ast.Assign) and any(
        isinstance(t, ast.Name) and (t.id == "__all__" or _is_type(t.id, statement.value)) for t in statement.targets
    ):
        pending = []
    else:
        for child in ast.iter_child_nodes(statement):
            if not isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
                pending.append(child)
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.JoinedStr):
            continue
        if isinstance(node, ast.expr) and node not in whole:
            yield node
        pending.extend(c for c in ast.iter_child_nodes(node) if not _is_quiet(c))


def _is_type(name: str, value: ast.expr) -> bool:
    """Whether an assignment names a type (`Check = Callable[[Edge], Reason | None]`), which nothing asks at run
    time."""
    return re.fullmatch("_?[A-Z][a-z][A-Za-z]*", name) is not None and isinstance(value, (ast.Subscript, ast.BinOp))


def _is_quiet(node: ast.AST) -> bool:
    return isinstance(node, ast.keyword) and node.arg in _QUIET_KEYWORDS


def _denied(test: ast.expr) -> Iterator[ast.expr]:
    if not isinstance(test, ast.Compare) and not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
        yield ast.UnaryOp(ast.Not(), test)


def _without(items: list[ast.expr], empty: bool = False) -> Iterator[list[ast.expr]]:
    if len(items) > 1 or (items and empty):
        for k in range(len(items)):
            yield items[:k] + items[k + 1 :]


def _replacements(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare):
        for k, operator in enumerate(node.ops):
            for other in _COMPARISONS[type(operator)]:
                yield ast.Compare(node.left, [*node.ops[:k], other(), *node.ops[k + 1 :]], node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        for rest in _without(node.values):
            yield ast.BoolOp(node.op, rest) if len(rest) > 1 else rest[0]
    elif isinstance(node, ast.UnaryOp):
        if isinstance(node.op, (ast.Not, ast.USub)):
            yield node.operand
    elif isinstance(node, ast.BinOp):
        if type(node.op) in _ARITHMETIC:
            yield ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
        if isinstance(node.op, _ORDERED):
            yield ast.BinOp(node.right, node.op, node.left)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield ast.Constant(not node.value)
        elif isinstance(node.value, int):
            yield ast.Constant(node.value + 1)
            yield ast.Constant(node.value - 1) if node.value > 0 else ast.UnaryOp(ast.USub(), ast.Constant(1))
        elif isinstance(node.value, float):
            yield ast.Constant(node.value * 2)
    elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        if not (isinstance(node, (ast.Tuple, ast.List)) and isinstance(node.ctx, ast.Store)):
            for rest in _without(node.elts, empty=isinstance(node, ast.List)):
                yield ast.Tuple(rest, ast.Load()) if isinstance(node, ast.Tuple) else type(node)(elts=rest)
    elif isinstance(node, ast.Dict):
        for k in range(len(node.keys)):
            yield ast.Dict(node.keys[:k] + node.keys[k + 1 :], node.values[:k] + node.values[k + 1 :])
    elif isinstance(node, ast.IfExp):
        yield node.body
        yield node.orelse
    elif isinstance(node, ast.Slice):
        return
    elif isinstance(node, ast.Subscript):
        if isinstance(node.slice, ast.Slice) and (node.slice.lower or node.slice.upper or node.slice.step):
            lower, upper, step = node.slice.lower, node.slice.upper, node.slice.step
            for bare in (ast.Slice(None, upper, step), ast.Slice(lower, None, step), ast.Slice(lower, upper, None)):
                yield ast.Subscript(node.value, bare, node.ctx)
    elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
        yield from _of_comprehension(node)
    elif isinstance(node, ast.Call):
        yield from _of_call(node)


def _of_comprehension(node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Iterator[ast.expr]:
    for k, generator in enumerate(node.generators):
        for j, condition in enumerate(generator.ifs):
            for other in [None, *_denied(condition)]:
                changed = copy.copy(generator)
                changed.ifs = generator.ifs[:j] + ([other] if other else []) + generator.ifs[j + 1 :]
                bare = copy.copy(node)
                bare.generators = [*node.generators[:k], changed, *node.generators[k + 1 :]]
                yield bare


def _of_call(node: ast.Call) -> Iterator[ast.expr]:
    function = node.func
    if isinstance(function, ast.Name) and function.id in _CALLS:
        yield ast.Call(ast.Name(_CALLS[function.id], ast.Load()), node.args, node.keywords)
    if isinstance(function, ast.Attribute) and function.attr in _CALLS:
        yield ast.Call(ast.Attribute(function.value, _CALLS[function.attr], ast.Load()), node.args, node.keywords)
    symmetric = len(node.args) == 2 and ast.unparse(function) in _SYMMETRIC
    if len(node.args) >= 2 and not symmetric and not any(isinstance(a, ast.Starred) for a in node.args[:2]):
        yield ast.Call(function, [node.args[1], node.args[0], *node.args[2:]], node.keywords)
    for k, keyword in enumerate(node.keywords):
        if keyword.arg not in _QUIET_KEYWORDS:
            yield ast.Call(function, node.args, node.keywords[:k] + node.keywords[k + 1 :])
