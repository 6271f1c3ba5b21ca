"""Rules proved by Z3 (extra `test`, package z3-solver): for all values of their types, and for all sizes.

Values: what a rule's examples are before and after the rule is written as terms, one for each element, from the modules
themselves (`symbolic_arrays`). Bits are compared, but for rules that make use of an order of rounding that HLO leaves
open: of these, floats are real numbers. Sizes: what a rule makes of a family of modules is read as one module with
unknown sizes (`symbolic_sizes`). Each proof has to refute a module with a fault, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from simplifier_examples import TYPES
from simplifier_modules import applied, module_of
from simplifier_wide_examples import EXAMPLES

from hlo_opt.ir import Module
from hlo_opt.passes.simplify.rule import FAMILIES, Rule, rules

z3 = pytest.importorskip("z3", reason="z3-solver is not installed: nothing is proved over symbolic sizes")

from symbolic_arrays import MOST  # noqa: E402
from symbolic_faults import faults  # noqa: E402
from symbolic_sizes import Template, equal_for_all_sizes  # noqa: E402
from symbolic_templates import TEMPLATES  # noqa: E402
from symbolic_terms import UnknownError  # noqa: E402
from symbolic_values import equal_for_all_values, proved  # noqa: E402

KINDS = ("pred", "s8", "u8", "s32", "u32", "f16", "f32", "c64")
PROVED_SIZES = 60
"""Fewer proved rules are a failure."""
OPEN = {
    "even-of-sign": "nothing but the rule says that a cosine is even",
    "power-one": "nothing but the rule says what a power is",
    "power-zero": "nothing but the rule says what a power is",
    "power-two": "nothing but the rule says what a power is",
    "power-minus-one": "nothing but the rule says what a power is",
    "power-half-of-size": "nothing but the rule says what a power is",
    "remainder-of-remainder": "Z3 does not end where there are 32 bits",
    "value-of-nothing": "there is no element",
    "gather-in-order-of-sort": "what a gather looks up is no term",
    **{r.name: "values are others" for r in rules().values() if not r.is_exact},
}
"""Rules that are not proved, and why."""
PARTLY = {"compare-ranges": "what a sort or a gather gives is no term"}
"""Rules of which some examples are not proved, and why."""


# ---- values


def pairs(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Module, Module, bool]]:
    """The modules of a rule's examples, before and after it, and whether bits are compared; f32 stands in where
    there is no f16. Examples of more elements than are written out are left out."""
    example = EXAMPLES[rule.name]
    kinds = [k for group in example.kinds for k in TYPES[group] if k in KINDS]
    found = []
    for kind in [k for k in kinds if k != "f32" or "f16" not in kinds]:
        for line in example.fires:
            before = module_of(line, kind, example.devices)
            if any(i.shape.is_array and i.shape.element_count > MOST for i in before.entry.instructions):
                continue
            after, count = applied(before, rule, monkeypatch)
            assert count
            found.append((before, after, not example.rounds or kind[0] != "f"))
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_rules_hold_for_all_values(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for rule in (r for r in rules().values() if r.family == family and r.name not in OPEN):
        modules = pairs(rule, monkeypatch)
        assert modules, f"{rule.name} has no example of {KINDS}"
        proofs = [equal_for_all_values(*module) for module in modules]
        if rule.name in PARTLY:
            assert True in proofs and None in proofs
            modules = [module for module, proof in zip(modules, proofs, strict=True) if proof is not None]
            proofs = [proof for proof in proofs if proof is not None]
        for (before, _, _), proof in zip(modules, proofs, strict=True):
            assert proof is True, f"{rule.name} is not proved on\n{before}"
        refuted = any(
            equal_for_all_values(before, wrong, exact) is False
            for before, after, exact in modules
            for wrong in faults(after).values()
        )
        assert refuted, f"nothing would refute {rule.name}"


def test_most_rules_are_proved_for_all_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(OPEN) <= set(rules())
    number = len(rules()) - len(OPEN)
    with capsys.disabled():
        print(f"\n{number} of {len(rules())} rules proved for all values of {', '.join(KINDS)}")
    assert number > 160


@pytest.mark.parametrize(
    ("line", "kind", "wrong"),
    [
        ("x: T[4]; k = T[] constant(0); n = T[4] broadcast(k), dimensions={}; T[4] add(x, n)", "f16", "x: T[4]; T[4] copy(x)"),
        ("x: T[4]; T[4] subtract(x, x)", "f16", "x: T[4]; k = T[] constant(0); T[4] broadcast(k), dimensions={}"),
        ("x: T[6]; T[2] slice(x), slice={[1:5:2]}", "u8", "x: T[6]; T[2] slice(x), slice={[1:6:3]}"),
        ("x: T[6]; i: s8[]; T[2] dynamic-slice(x, i), dynamic_slice_sizes={2}", "u8", "x: T[6]; i: s8[]; T[2] slice(x), slice={[0:2]}"),
        ("x: T[3]; y: T[3]; T[] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}", "s8",
         "x: T[3]; y: T[3]; T[] dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
        ("x: T[4]; y: s32[4]; s = (T[4], s32[4]) sort(x, y), dimensions={0}, is_stable=true, to_apply=keys; "
         "T[4] get-tuple-element(s), index=0", "s8", "x: T[4]; y: s32[4]; T[4] copy(x)"),
    ],
)  # fmt: skip
def test_a_rule_that_is_wrong_is_refuted(line: str, kind: str, wrong: str) -> None:
    assert equal_for_all_values(module_of(line, kind), module_of(wrong, kind)) is False


# ---- sizes


def rewriting(
    name: str, monkeypatch: pytest.MonkeyPatch, fault: tuple[str, int] | None = None
) -> Callable[[str, str], tuple[Module, Module]]:
    """What a rule makes of a line, or that with a fault."""

    def rewrite(line: str, kind: str) -> tuple[Module, Module]:
        before = module_of(line, kind)
        after, count = applied(before, rules()[name], monkeypatch)
        assert count, f"{name} does not fire on {line}"
        return before, after if fault is None else faults(after)[fault]

    return rewrite


@pytest.mark.parametrize("template", TEMPLATES, ids=[t.rule for t in TEMPLATES])
def test_a_rule_holds_for_all_sizes(template: Template, monkeypatch: pytest.MonkeyPatch) -> None:
    assert equal_for_all_sizes(template, rewriting(template.rule, monkeypatch)) is True
    first = rewriting(template.rule, monkeypatch)(next(template.instances())[1], template.kind)[1]
    assert any(is_refuted(template, rewriting(template.rule, monkeypatch, fault)) for fault in faults(first))


def is_refuted(template: Template, rewrite: Callable[[str, str], tuple[Module, Module]]) -> bool:
    try:
        return equal_for_all_sizes(template, rewrite) is False
    except (UnknownError, KeyError):  # not all instances have that fault
        return False


def cases() -> dict[str, tuple[Any, list[Any]]]:
    """For rules whose places are computed: that both sides read the same element (`x` of its index), and the
    premises."""
    i, j, n, m, k, s, c = z3.Ints("i j n m k s c")
    x = z3.Function("x", z3.IntSort(), z3.IntSort())
    g = z3.Function("g", z3.IntSort(), z3.IntSort(), z3.IntSort())
    inside = lambda i, n: z3.And(i >= 0, i < n)  # noqa: E731
    return {
        "gather-rows-in-order": (g(z3.If(i < 0, 0, z3.If(i > n - 1, n - 1, i)), j) == g(i, j),
            [inside(i, n), inside(j, m)]),
        "gather-at-known-places": (x(s + (i / 2) * 3 - i % 2) == x(s + j * 3 - c),
            [i == j * 2 + c, inside(j, n), inside(c, 2)]),
        "compare-ranges": (z3.And(i >= 0, z3.Implies(n <= k, i < k), z3.Implies(k <= 0, i >= k)), [inside(i, n)]),
        "remainder-within": (i % k == i, [inside(i, n), n <= k]),
        "remainder-of-more": ((i + k) % k == i % k, [inside(i, n), k > 0]),
    }  # fmt: skip


def test_index_maps_agree_for_all_sizes() -> None:
    assert [name for name, (claim, given) in cases().items() if not proved(claim, *given)] == []


def test_many_rules_are_proved_for_all_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    found = {t.rule for t in TEMPLATES} | set(cases())
    assert found <= set(rules())
    with capsys.disabled():
        print(f"\n{len(found)} of {len(rules())} rules proved for all sizes")
    assert len(found) >= PROVED_SIZES


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("x: T[<n>]; a = T[<n>] reverse(x), dimensions={0}; T[<k>] slice(a), slice={[0:<k>]}",
         "x: T[<n>]; a = T[<k>] slice(x), slice={[0:<k>]}; T[<k>] reverse(a), dimensions={0}"),
        ("x: T[<n>]; y: T[<k>]; T[<n+k>] concatenate(x, y), dimensions={0}",
         "x: T[<n>]; y: T[<k>]; z = T[] constant(0); T[<n+k>] pad(x, z), padding=0_<k>"),
        ("x: T[<n>]; i: s32[]; T[<k>] dynamic-slice(x, i), dynamic_slice_sizes={<k>}",
         "x: T[<n>]; i: s32[]; T[<k>] slice(x), slice={[0:<k>]}"),
        ("x: T[<n>,<k>]; T[<k>,<n>] transpose(x), dimensions={1,0}", "x: T[<n>,<k>]; T[<k>,<n>] reshape(x)"),
    ],
)  # fmt: skip
def test_a_rule_that_is_wrong_for_some_sizes_is_refuted(line: str, wrong: str) -> None:
    both = Template("wrong", f"{line} | {wrong}", ("k < n",), least=1)

    def pair(text: str, kind: str) -> tuple[Module, Module]:
        before, after = (module_of(t, kind) for t in text.split(" | "))
        return before, after

    assert is_refuted(both, pair)


def test_a_size_that_no_polynomial_gives_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds in the instances only is no proof."""
    template = Template("wrong", "x: T[<n>]; T[<(n+1)//2>] slice(x), slice={[0:<n>:2]}")
    with pytest.raises(UnknownError):
        equal_for_all_sizes(template, lambda line, kind: (module_of(line, kind), module_of(line, kind)))
