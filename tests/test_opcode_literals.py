"""Opcodes are classified beside the op table, not by lists of names elsewhere: what is still said by name is counted,
and the number only falls.

Counted is every string in the code of the package that is spelled as an opcode, outside `hlo_opt/ops/` and
`hlo_opt/library/`, and every use there of an alias of one opcode: a name at the top of a file of `ops/` that stands for
an opcode, or for a set of a single one. Rewrite rules are left out, for they say by name what they recognise and write:
the passes that are a `RewritingPass`, the writer that they share, and the rules of the simplifier. What an operation
is, does or allows is a face of its entry (`OpSpec`), a property of the instruction, or a set beside the table that
several entries are in.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from hlo_opt.ops import table

PACKAGE = Path(__file__).resolve().parent.parent / "hlo_opt"
WITHOUT = ("ops", "library")
"""The rooms that declare operations and compute them."""
RULES = ("RewritingPass", "Expansion", "KernelsApart")
"""The bases of rewrite rules."""
RULES_FOLDER = ("passes", "simplify")
"""Where those of the simplifier are, and what they share."""

LIMIT = 413
"""How many there are, names of verbs and functions (`convert`, `call`) among them. Lower it when the number falls; a
change that would raise it asks its question of the op table instead."""
MARGIN = 15
"""By so much the number may lie below the limit before the limit has to follow."""

OPCODES = frozenset(spec.opcode for spec in table())


def literals(tree: ast.AST) -> list[str]:
    """The strings of a file that are spelled as an opcode. No docstring is: it is a sentence."""
    found = (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return [value for value in found if value in OPCODES]


def aliases(tree: ast.Module) -> set[str]:
    """The names at the top of a file that stand for one opcode, or for a collection of one."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and is_single(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {t.id for t in targets if isinstance(t, ast.Name)}
    return found


def is_single(value: ast.expr) -> bool:
    """Whether an expression is one opcode, or a set, tuple or list of one."""
    if isinstance(value, ast.Call) and ast.unparse(value.func) in ("frozenset", "set", "tuple") and value.args:
        value = value.args[0]
    if isinstance(value, ast.Set | ast.Tuple | ast.List) and len(value.elts) == 1:
        value = value.elts[0]
    return isinstance(value, ast.Constant) and value.value in OPCODES


def uses(tree: ast.AST, names: set[str]) -> int:
    """How often a file reads one of the names, by itself or of a module."""
    return sum(
        (isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id in names)
        or (isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load) and n.attr in names)
        for n in ast.walk(tree)
    )


def has_rules(tree: ast.Module) -> bool:
    """Whether a file has a rewrite rule, or is where all of them come from."""
    classes = [n for n in tree.body if isinstance(n, ast.ClassDef)]
    return any(c.name in RULES[1:] or any(ast.unparse(b) in RULES for b in c.bases) for c in classes)


def count() -> Counter[str]:
    """Literals and uses of aliases by file."""
    trees = {p.relative_to(PACKAGE): ast.parse(p.read_text()) for p in sorted(PACKAGE.rglob("*.py"))}
    names = {name for path, tree in trees.items() if path.parts[0] in WITHOUT for name in aliases(tree)}
    return Counter(
        {
            str(path): number
            for path, tree in trees.items()
            if path.parts[0] not in WITHOUT
            and not (has_rules(tree) or path.parts[:2] == RULES_FOLDER)
            and (number := len(literals(tree)) + uses(tree, names))
        }
    )


def test_the_number_of_opcode_literals_only_falls() -> None:
    found = count()
    total = found.total()
    most = ", ".join(f"{path} {number}" for path, number in found.most_common(8))
    assert total <= LIMIT, f"{total} opcode literals outside ops/ and library/, {LIMIT} allowed; most in {most}"
    assert total >= LIMIT - MARGIN, f"{total} opcode literals are left: set LIMIT to that"


def test_what_is_counted() -> None:
    tree = ast.parse('"""Adds."""\nif opcode in ("add", "sum"):\n    f("add", kind="dot")\n')
    assert literals(tree) == ["add", "add", "dot"]


def test_an_alias_counts_as_a_literal() -> None:
    declared = ast.parse(
        'ADD = "add"\nONE: str = "dot"\nSET = frozenset({"sort"})\nSEVERAL = frozenset({"sort", "dot"})\nNAME = "sum"\n'
    )
    assert aliases(declared) == {"ADD", "ONE", "SET"}
    assert uses(ast.parse("x == ADD or x in sets.SET or x in SEVERAL"), aliases(declared)) == 2
