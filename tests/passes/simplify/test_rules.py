"""Each rule alone: it fires on its examples and not on its near misses, and every bit of the values stays, for all
types of the example, on odd and on random numbers."""

from __future__ import annotations

import zlib

import ml_dtypes
import numpy as np
import pytest
from simplifier_examples import TYPES
from simplifier_modules import applied, module_of
from simplifier_wide_examples import EXAMPLES

import hlo_opt
from hlo_opt.ir import ELEMENT_TYPES, Module
from hlo_opt.passes.simplify.rule import ANY, Rule, rules, rules_by_opcode
from hlo_opt.passes.simplify.site import Site
from hlo_opt.passes.simplify.worklist import Worklist

DRAWS = 4
ODD = (0.0, -0.0, 1.0, -1.0, 1.5, float("inf"), float("-inf"), float("nan"), 1e-30, -1e30, 3e38, -7.0)


def drawn(module: Module, generator: np.random.Generator, tame: bool) -> list[np.ndarray]:
    """Values for all parameters, tuples flattened; odd ones where every bit is to stay."""
    found = []
    for parameter in module.entry.parameters:
        for leaf in parameter.shape.leaves():
            kind, sizes = leaf.type, leaf.dimensions
            if kind.kind == "pred":
                found.append(generator.integers(0, 2, sizes).astype(bool))
            elif kind.is_integer:
                low, high = kind.limits
                wide = generator.integers(max(low, -(2**62)), min(high, 2**62), sizes)
                small = generator.integers(max(low, -9), 9, sizes)
                found.append(np.where(generator.random(sizes) < 0.5, wide, small).astype(kind.dtype))
            else:
                plain = generator.normal(size=sizes)
                odd = plain if tame else np.where(generator.random(sizes) < 0.6, generator.choice(ODD, sizes), plain)
                if kind.is_complex:
                    odd = odd + 1j * generator.normal(size=sizes)
                with np.errstate(all="ignore"):
                    found.append(np.asarray(odd).astype(kind.dtype))
    return found


def outputs(module: Module, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """What all devices give. What is not said to be the same on all of them differs between them."""
    count = int(module.attributes["replica_count"].text)
    if count == 1:
        return [np.asarray(v) for v in hlo_opt.evaluate(module, inputs)]
    same = [p.attributes.get("parameter_replication") is not None for p in module.entry.parameters]
    own = [[x if s else np.roll(x, d) for x, s in zip(inputs, same, strict=True)] for d in range(count)]
    return [np.asarray(v) for device in hlo_opt.evaluate_devices(module, own) for v in device]


def assert_same(got: np.ndarray, want: np.ndarray, rounds: bool | str) -> None:
    """Equal bits, but for NaN; or, where values are rounded in another order, nearly equal ones."""
    assert got.dtype == want.dtype and got.shape == want.shape
    if got.dtype.name.startswith(("int", "uint")):
        got, want = got.astype(np.int64), want.astype(np.int64)
    if got.dtype.kind in "biu" or not rounds:
        numbers = np.ones(got.shape, bool) if got.dtype.kind in "biu" else ~(np.isnan(got) & np.isnan(want))
        assert got[numbers].tobytes() == want[numbers].tobytes()
        return
    kind = ELEMENT_TYPES[rounds].dtype if isinstance(rounds, str) else want.dtype
    tolerance = 8 * float(ml_dtypes.finfo(kind).eps)
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=tolerance, atol=8 * tolerance)


def cases() -> list[tuple[str, str]]:
    return [(name, kind) for name, e in EXAMPLES.items() for group in e.kinds for kind in TYPES[group]]


def test_every_rule_has_examples() -> None:
    assert set(EXAMPLES) == set(rules())


@pytest.mark.parametrize(("name", "kind"), cases())
def test_a_rule_keeps_values(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    example, rule = EXAMPLES[name], rules()[name]
    generator = np.random.default_rng(zlib.crc32(f"{name} {kind}".encode()))
    for line in example.fires:
        module = module_of(line, kind, example.devices)
        made, count = applied(module, rule, monkeypatch)
        assert count >= 1, f"{name} does not fire on\n{module}"
        for _ in range(DRAWS):
            inputs = drawn(module, generator, tame=bool(example.rounds))
            for got, want in zip(outputs(made, inputs), outputs(module, inputs), strict=True):
                assert_same(np.asarray(got), np.asarray(want), example.rounds)
    for line in example.misses:
        _, count = applied(module_of(line, kind, example.devices), rule, monkeypatch)
        assert count == 0, f"{name} fires on {line}"


@pytest.mark.parametrize(
    "kind", ["f8e5m2", "f8e4m3fn", "f8e8m0fnu", "s4", "u4", "s2", "u2", "s16", "u64", "c64", "pred"]
)
def test_rules_keep_values_of_other_types(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An example need not say anything of a type, and a rule need not fire; where it does, it has to hold."""
    fired = 0
    for name, example in EXAMPLES.items():
        for line in example.fires if rules()[name].is_exact else ():
            try:
                module = module_of(line, kind, example.devices)
            except (hlo_opt.HloOptError, ValueError):  # no module of that type
                continue
            made, count = applied(module, rules()[name], monkeypatch)
            fired += count > 0
            inputs = drawn(module, np.random.default_rng(fired), tame=bool(example.rounds))
            for got, want in zip(outputs(made, inputs), outputs(module, inputs), strict=True) if count else ():
                assert_same(np.asarray(got), np.asarray(want), example.rounds)
    assert fired > 50


@pytest.mark.parametrize("kind", ["f32", "s32", "u8", "pred"])
def test_a_rule_fits_nothing_without_the_operands_that_it_names(kind: str) -> None:
    """Such instructions are not shown to it."""
    by_opcode = rules_by_opcode(True)
    left_out = 0
    for example in EXAMPLES.values():
        if not any(kind in TYPES[group] for group in example.kinds):
            continue
        for line in (*example.fires, *example.misses):
            module = module_of(line, kind, example.devices)
            work = Worklist(module.entry, set())
            for i in [i for i in module.entry.instructions if i.parameter_number is None and work.may_go(i)]:
                operands = {o.opcode for o in i.operands}
                for rule in by_opcode.get(i.opcode, by_opcode[ANY]):
                    if rule.of and operands.isdisjoint(rule.of):
                        left_out += 1
                        assert rule.rewrite(i, Site(i)) is None, f"{rule.name} fits {i} of {line}"
    assert left_out > 100


def test_what_differs_is_said() -> None:
    for rule in rules().values():
        assert rule.what and rule.why and rule.opcodes
    wrong = [r.name for r in rules().values() if not r.is_exact]
    assert wrong == [
        "add-positive-zero",
        "divide-by-constant",
        "square-of-root",
        "power-three",
        "power-half",
        "convert-rounded-back",
    ]


def test_a_rule_that_differs_differs() -> None:
    """-0 + 0 is 0: what fast-math alone may do is seen to change a bit."""
    module = module_of("x: T[1]; k = T[] constant(0); n = T[1] broadcast(k), dimensions={}; T[1] add(x, n)", "f32")
    for fast, sign in (("false", False), ("true", True)):
        made, _ = hlo_opt.fuse(module, passes=f"algebraic-simplifier{{fast-math={fast}}}")
        (got,) = hlo_opt.evaluate(made, [np.array([-0.0], np.float32)])
        assert bool(np.signbit(got)[0]) == sign


def test_a_wrong_rule_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Rule("wrong", "identities", ("add",), "x + 0 = x", "it is not", "", rules()["add-positive-zero"].rewrite)
    module = module_of(EXAMPLES["add-positive-zero"].fires[0], "f32")
    made, count = applied(module, wrong, monkeypatch)
    inputs = [np.full(12, -0.0, np.float32)]
    pair = hlo_opt.evaluate(made, inputs)[0], hlo_opt.evaluate(module, inputs)[0]
    assert count == 1
    with pytest.raises(AssertionError):
        assert_same(*pair, rounds=False)
