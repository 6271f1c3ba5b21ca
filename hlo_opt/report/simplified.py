"""What the simplifier did, for people and for programs; and the rules that there are."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from hlo_opt.ir import Module
from hlo_opt.passes.run import Outcome
from hlo_opt.passes.simplify.rule import FAMILIES, rules
from hlo_opt.report.page import Page, Word, counted


def counts(outcome: Outcome) -> dict[str, int]:
    """How often each rule was applied, the most frequent first."""
    by_rule = Counter(step.rule for steps in outcome.context.simplified for step in steps)
    return dict(sorted(by_rule.items(), key=lambda item: (-item[1], item[0])))


def _size(module: Module) -> int:
    return sum(len(c.instructions) for c in module.computations)


def simplified_page(outcome: Outcome) -> Page:
    """The instructions before and after, and each rule's rewrites."""
    page = Page()
    before, after = _size(outcome.original), _size(outcome.module)
    page.add(f"{outcome.original.name}: {counted(before, 'instruction')} -> {after:,}")
    known = rules()
    page.table(
        [[f"{number:,}", name, known[name].what] for name, number in counts(outcome).items()],
        right=frozenset({0}),
        indent=2,
    )
    return page


def certificate_text(outcomes: Sequence[Outcome]) -> str:
    """The certificates as JSON: for each module its runs of the simplifier, each a list of rewrites in order."""
    modules = [
        {
            "module": outcome.original.name,
            "runs": [
                [
                    {"rule": s.rule, "computation": s.computation, "instruction": s.instruction, "made": list(s.made)}
                    for s in steps
                ]
                for steps in outcome.context.simplified
            ],
        }
        for outcome in outcomes
    ]
    return json.dumps({"schema": 1, "modules": modules}, indent=1) + "\n"


def rules_page() -> Page:
    """All rules by family."""
    page = Page()
    for family in FAMILIES:
        page.add(Word(family, "bold"))
        for rule in rules().values():
            if rule.family == family:
                page.add("  ", Word(rule.name, "bold"), f": {rule.what}")
                page.add(f"      {rule.why}" + (f"; with fast-math only: {rule.differs}" if rule.differs else ""))
    return page


def rules_json() -> dict[str, int | list[dict[str, str | list[str]]]]:
    """The same for programs."""
    return {
        "schema": 1,
        "rules": [
            {
                "name": r.name,
                "family": r.family,
                "opcodes": list(r.opcodes),
                "what": r.what,
                "why": r.why,
                "differs": r.differs,
            }
            for r in rules().values()
        ],
    }
