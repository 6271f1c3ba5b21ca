"""Chains of copies as loops: which are, in what the copies may differ, what stays, and that the values stay."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.graph.chains import MOST_KEPT, chain_of
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.fusion.context import FuseOptions, PassContext
from hlo_opt.fusion.summary import module_summary
from hlo_opt.ir import Instruction, edit
from hlo_opt.passes import parse_pipeline
from hlo_opt.passes.loops.while_reroll import WhileReroll
from hlo_opt.passes.table import SIMPLIFY_RAW
from tests.small_modules import H100

PASSES = "while-reroll{one-launch=false,min-operations=4},dce"
DUMPS = Path(__file__).resolve().parents[3] / "testdata" / "dumps"


def chain(copies: int, step: str, *, before: str = "", results: str = "{last}", shape: str = "f32[8]") -> str:
    """A module in which a state of one array goes through copies of a step: `{x}` is what a copy takes, `{y}` what it
    gives, `{k}` its number."""
    lines = [line for line in before.splitlines() if line.strip()]
    x = "p"
    for k in range(copies):
        lines += step.format(x=x, y=f"y{k}", k=k, k1=k + 1).splitlines()
        x = f"y{k}"
    every = ", ".join(f"y{k}" for k in range(copies))
    ends = results.format(last=x, first="y0", every=every)
    body = "\n".join(f"  {line.strip()}" for line in lines if line.strip())
    return f"""HloModule m

sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY e {{
  p = {shape} parameter(0)
{body}
  {ends}
}}
"""


ROOT = "ROOT r = (f32[8]) tuple({last})"
SINES = "sin{k} = f32[8] sine({x})\n{y} = f32[8] add(sin{k}, p)"


def rolled(text: str, passes: str = PASSES) -> hlo_opt.Module:
    """The module after the passes, with the same values as before."""
    module = hlo_opt.parse(text)
    made, _ = hlo_opt.fuse(module, passes=passes)
    hlo_opt.verify(made)
    given = module_inputs(module, seed=3)
    for got, want in zip(hlo_opt.evaluate(made, given), hlo_opt.evaluate(module, given), strict=True):
        np.testing.assert_array_equal(got, want)
    return made


def loops(module: hlo_opt.Module) -> list[hlo_opt.ir.Instruction]:
    return [i for c in module.computations for i in c.instructions if i.opcode == "while"]


def opcodes(module: hlo_opt.Module) -> list[str]:
    return [i.opcode for i in module.entry.instructions]


@pytest.mark.parametrize("copies", [4, 5, 9])
def test_copies_are_a_loop(copies: int) -> None:
    made = rolled(chain(copies, SINES, results=ROOT))
    (loop,) = loops(made)
    assert hlo_opt.analysis.graph.loops.derived_trip_count(loop) == copies
    assert "sine" not in opcodes(made)
    assert [i.opcode for i in loop.called_by("body").instructions].count("sine") == 1


def test_constants_that_others_read_stay() -> None:
    """A broadcast constant of each copy has readers beside the chain: a loop would store all of them in a stack."""
    step = (
        "n{k} = f32[] constant(0.{k1})\nb{k} = f32[8] broadcast(n{k}), dimensions={{}}\nt{k} = f32[8] tanh({x})\n"
        "{y} = f32[8] multiply(t{k}, b{k})"
    )
    text = chain(6, step, results="s = f32[8] add({last}, b2)\n  ROOT r = (f32[8], f32[8]) tuple(s, b4)")
    made = rolled(text)
    (loop,) = loops(made)
    assert [str(leaf) for leaf in loop.shape.leaves() if leaf.rank > 1] == []
    assert not loops(rolled(text, PASSES.replace("min-operations=4", "min-operations=1024")))  # one kernel holds all


CASES = {
    "numbers in equal distances": (
        "n{k} = s32[] constant({k1})\nm{k} = f32[] convert(n{k})\nb{k} = f32[8] broadcast(m{k}), dimensions={{}}\n{y} "
        "= f32[8] add({x}, b{k})",
        "",
        ROOT,
    ),
    "other numbers": (
        "n{k} = f32[] constant(0.{k1})\nb{k} = f32[8] broadcast(n{k}), dimensions={{}}\nt{k} = f32[8] tanh({x})\n{y} = "
        "f32[8] multiply(t{k}, b{k})",
        "",
        ROOT,
    ),
    "vectors of numbers": (
        "n{k} = f32[8] constant({{1, 2, 3, {k}, 5, 6, 7, 8}})\nt{k} = f32[8] tanh({x})\n{y} = f32[8] multiply(t{k}, "
        "n{k})",
        "",
        ROOT,
    ),
    "slices of an array": (
        "c{k} = f32[1,8] slice(q), slice={{[{k}:{k1}], [0:8]}}\nd{k} = f32[8] reshape(c{k})\nt{k} = f32[8] "
        "tanh({x})\n{y} = f32[8] add(t{k}, d{k})",
        "q = f32[9,8] parameter(1)",
        ROOT,
    ),
    "folds": (
        "z{k} = f32[] reduce({x}, o), dimensions={{0}}, to_apply=sum\nb{k} = f32[8] broadcast(z{k}), "
        "dimensions={{}}\n{y} = f32[8] subtract({x}, b{k})",
        "o = f32[] constant(0)",
        ROOT,
    ),
    "results put together": (
        "t{k} = f32[8] tanh({x})\n{y} = f32[8] add(t{k}, p)\nw{k} = f32[1,8] reshape({y})",
        "",
        "j = f32[6,8] concatenate(w0, w1, w2, w3, w4, w5), dimensions={{0}}\n  ROOT r = (f32[6,8], f32[8]) tuple(j, "
        "{last})",
    ),
    "results put together beside each other": (
        "t{k} = f32[8] tanh({x})\n{y} = f32[8] add(t{k}, p)\nw{k} = f32[8,1] reshape({y})",
        "",
        "ROOT j = f32[8,6] concatenate(w0, w1, w2, w3, w4, w5), dimensions={{1}}",
    ),
    "results one by one": (
        "t{k} = f32[8] tanh({x})\n{y} = f32[8] add(t{k}, p)",
        "",
        "a = f32[8] add(y1, y4)\n  ROOT r = (f32[8], f32[8]) tuple(a, {last})",
    ),
    "a value of the last copy": (
        "t{k} = f32[8] tanh({x})\n{y} = f32[8] add(t{k}, p)",
        "",
        "ROOT r = (f32[8], f32[8]) tuple(t5, {last})",
    ),
    "a sum over the copies": (
        "t{k} = f32[8] tanh({x})\n{y} = f32[8] add(t{k}, p)\nsq{k} = f32[8] multiply(t{k}, t{k})",
        "",
        "sum0 = f32[8] add(p, sq0)\n  "
        + "\n  ".join(f"sum{k} = f32[8] add(sum{k - 1}, sq{k})" for k in range(1, 6))
        + "\n  ROOT r = (f32[8], f32[8]) tuple(sum5, {last})",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_copies_may_differ_in(name: str) -> None:
    step, before, results = CASES[name]
    made = rolled(chain(6, step, before=before, results=results))
    assert len(loops(made)) == 1
    assert not {"tanh", "convert", "reduce"} & set(opcodes(made))


def test_operations_of_unequal_numbers_of_operands_do_not_correspond() -> None:
    """Concatenations of equal shapes and dimensions differ in how many arrays they take."""
    before = "q = f32[4] parameter(1)\nr = f32[2] parameter(2)\n"
    for k in range(6):
        parts = "q, q" if k % 2 else "q, r, r"
        before += f"c{k} = f32[8] concatenate({parts}), dimensions={{0}}\n"
        before += f"t{k} = f32[8] add({f'y{k - 1}' if k else 'p'}, c{k})\ny{k} = f32[8] sine(t{k})\n"
    rolled(chain(0, "", before=before, results="ROOT o = (f32[8]) tuple(y5)"))


def test_two_values_change_places() -> None:
    lines = "\n".join(
        f"  t{k + 2} = f32[8] tanh(t{k})\n  y{k + 2} = f32[8] add(t{k + 2}, t{k + 1})".replace(
            "tanh(t", "tanh(y"
        ).replace(", t", ", y")
        for k in range(6)
    )
    text = f"HloModule m\n\nENTRY e {{\n  y0 = f32[8] parameter(0)\n  y1 = f32[8] parameter(1)\n{lines}\n  ROOT r = (f32[8], f32[8]) tuple(y6, y7)\n}}\n"
    assert len(loops(rolled(text))) == 1


def test_what_the_last_copy_lacks_is_computed_all_the_same() -> None:
    step = "t{k} = f32[8] tanh({x})\n{y} = f32[8] add(t{k}, p)\nv{k} = f32[8] sine(t{k})\nw{k} = f32[1,8] reshape(v{k})"
    text = chain(6, step, results="ROOT j = f32[6,8] concatenate(w0, w1, w2, w3, w4, w5), dimensions={{0}}")
    made = rolled(text)
    assert len(loops(made)) == 1 and "tanh" not in opcodes(made)


LEFT = {
    "too few": chain(3, SINES, results=ROOT),
    "slices at other distances": chain(
        6,
        "t{k} = f32[8] tanh({x})\n{y} = f32[8] add(t{k}, d{k})",
        before="q = f32[40,8] parameter(1)\n"
        + "\n".join(
            f"c{k} = f32[1,8] slice(q), slice={{[{k * k}:{k * k + 1}], [0:8]}}\nd{k} = f32[8] reshape(c{k})"
            for k in range(6)
        ),
        results=ROOT,
    ),
    "arrays of each copy's own": chain(
        6,
        "q{k} = f32[8] parameter({k1})\nt{k} = f32[8] tanh({x})\n{y} = f32[8] add(t{k}, q{k})",
        results=ROOT,
    ),
    "side effects": chain(
        6,
        't{k} = f32[8] custom-call({x}), custom_call_target="f", custom_call_has_side_effect=true\n{y} = f32[8] '
        "add(t{k}, p)",
        results=ROOT,
    ),
}


@pytest.mark.parametrize("name", [n for n in LEFT if n != "side effects"])
def test_what_stays(name: str) -> None:
    assert loops(rolled(LEFT[name])) == []


def test_side_effects_stay() -> None:
    made, _ = hlo_opt.fuse(hlo_opt.parse(LEFT["side effects"]), passes=PASSES)
    assert loops(made) == []


def test_what_waits_stays() -> None:
    text = chain(6, SINES, results=ROOT).replace("sine(y2)", "sine(y2), control-predecessors={sin1}")
    assert loops(rolled(text)) == []


def test_what_is_computed_from_one_copy_for_all_stays() -> None:
    """A value that the copies share, and that the first of them makes."""
    step = "t{k} = f32[8] tanh({x})\n{y} = f32[8] add(t{k}, g)"
    text = chain(6, step, results=ROOT).replace(
        "  t0 = f32[8] tanh(p)\n", "  t0 = f32[8] tanh(p)\n  g = f32[8] negate(t0)\n"
    )
    for loop in loops(rolled(text)):  # the first copy is outside
        assert hlo_opt.analysis.graph.loops.derived_trip_count(loop) < 6


def test_options() -> None:
    text = chain(5, SINES, results=ROOT)
    assert loops(rolled(text, "while-reroll{one-launch=false,min-operations=11},dce")) == []
    assert loops(rolled(text, "while-reroll{one-launch=false,min-operations=10,min-copies=6},dce")) == []
    assert len(loops(rolled(text, "while-reroll{one-launch=false,min-operations=10},dce"))) == 1
    assert WhileReroll().preserves == "meaning"


def test_a_chain_that_one_kernel_holds_stays() -> None:
    made, _ = hlo_opt.fuse(hlo_opt.parse(chain(6, SINES, results=ROOT)), passes="while-reroll{min-operations=4},dce")
    assert loops(made) == []


def test_a_chain_of_folds_is_one_launch() -> None:
    step, before, results = CASES["folds"]
    module = hlo_opt.parse(chain(6, step, before=before, results=results))
    made, _ = hlo_opt.fuse(module)
    assert module_summary(made, H100).launches == 1


def within_a_loop(copies: int) -> str:
    """Twenty rounds of a chain, and of one that goes back over what the first computed, as a derivative does."""
    lines: list[str] = []
    for k in range(copies):
        lines += [f"a{k} = f32[4096] multiply(y{k}, c)", f"v{k} = f32[4096] subtract(ones, y{k})"]
        lines += [f"y{k + 1} = f32[4096] multiply(a{k}, v{k})"]
    for k in reversed(range(copies)):
        lines += [f"h{k} = f32[4096] multiply(a{k}, g{k + 1})", f"k{k} = f32[4096] multiply(g{k + 1}, v{k})"]
        lines += [f"m{k} = f32[4096] multiply(k{k}, c)", f"g{k} = f32[4096] subtract(m{k}, h{k})"]
    steps = "\n".join(f"  {line}" for line in lines)
    return f"""HloModule m

body {{
  s = (s32[], f32[4096]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  y0 = f32[4096] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  three = f32[] constant(3.7)
  c = f32[4096] broadcast(three), dimensions={{}}
  unit = f32[] constant(1)
  ones = f32[4096] broadcast(unit), dimensions={{}}
  g{copies} = f32[4096] negate(c)
{steps}
  ROOT t = (s32[], f32[4096]) tuple(j, g0)
}}

condition {{
  s = (s32[], f32[4096]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(20)
  ROOT l = pred[] compare(i, n), direction=LT
}}

ENTRY e {{
  p = f32[4096] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[4096]) tuple(z, p)
  w = (s32[], f32[4096]) while(t), condition=condition, body=body
  ROOT r = f32[4096] get-tuple-element(w), index=1
}}
"""


def test_the_body_of_a_loop_that_is_one_launch_gets_no_loop() -> None:
    made, _ = hlo_opt.fuse(hlo_opt.parse(within_a_loop(10)), passes="while-reroll,while-fusion,dce")
    assert len(loops(made)) == 1
    assert module_summary(made, H100).launches == 1


UNROLLED = [
    "cartpole_scan_unrolled",
    "cartpole_scan_separate_unrolled",
    "cartpole_scan_random_unrolled",
    "cartpole_scan_custom_call_unrolled",
]


@pytest.mark.parametrize("name", UNROLLED)
def test_a_scan_that_was_unrolled_is_the_scan_again(name: str) -> None:
    module = hlo_opt.parse((DUMPS / f"{name}.hlo").read_text())
    made, _ = hlo_opt.fuse(module, passes="while-reroll,dce")
    (loop,) = [loop for loop in loops(made) if loop.parent is made.entry]
    assert hlo_opt.analysis.graph.loops.derived_trip_count(loop) == 30
    fused, _ = hlo_opt.fuse(made, passes="while-fusion,dce")
    assert module_summary(fused, H100).launches == 1
    given = module_inputs(module, seed=1)
    for got, want in zip(hlo_opt.evaluate(made, given), hlo_opt.evaluate(module, given), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("seed", range(30))
def test_random_chains_keep_their_values(seed: int) -> None:
    draw = Random(seed)
    made = rolled(random_chain(draw))
    assert len(loops(made)) <= 2


def random_chain(draw: Random) -> str:
    """Two arrays through copies of random steps, which may read a table by rows, numbers and each other; some copies
    are read afterwards."""
    copies, a, b = draw.randint(3, 7), "p", "q"
    steps = [
        (
            draw.choice(["add", "multiply", "maximum"]),
            draw.choice(["a", "b"]),
            draw.choice(["a", "b", "row", "p", "number"]),
        )
        for _ in range(draw.randint(1, 4))
    ]
    swaps, odd = draw.random() < 0.3, draw.random() < 0.2
    lines = ["p = f32[8] parameter(0)", "q = f32[8] parameter(1)", "w = f32[7,8] parameter(2)"]
    made: list[str] = []
    for k in range(copies):
        lines.append(f"c{k} = f32[1,8] slice(w), slice={{[{k}:{k + 1}], [0:8]}}")
        lines.append(f"row{k} = f32[8] reshape(c{k})")
        lines.append(f"n{k} = f32[] constant(0.{draw.randint(1, 9)})")
        lines.append(f"number{k} = f32[8] broadcast(n{k}), dimensions={{}}")
        for n, (opcode, left, right) in enumerate(steps):
            value = {"a": a, "b": b, "row": f"row{k}", "number": f"number{k}", "p": "p"}
            opcode = "subtract" if odd and k == 2 else opcode
            lines.append(f"v{k}.{n} = f32[8] {opcode}({value[left]}, {value[right]})")
            lines.append(f"u{k}.{n} = f32[8] tanh(v{k}.{n})")
            if left == "a":
                a = f"u{k}.{n}"
            else:
                b = f"u{k}.{n}"
            made.append(f"u{k}.{n}")
        if swaps:
            a, b = b, a
    read = [a, b, *draw.sample(made, k=draw.choice([0, 0, 1, 3]) % (len(made) + 1))]
    shapes = ", ".join(["f32[8]"] * len(read))
    lines.append(f"ROOT r = ({shapes}) tuple({', '.join(read)})")
    return "HloModule m\n\nENTRY e {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def test_a_good_part_of_random_chains_are_loops() -> None:
    found = [hlo_opt.fuse(hlo_opt.parse(random_chain(Random(seed))), passes=PASSES)[0] for seed in range(30)]
    assert sum(bool(loops(made)) for made in found) >= 10


def test_a_chain_that_does_not_pay_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch):
    """What its last copy lacks is put there to look at it."""
    added: list[Instruction] = []
    real = edit.clone_into
    monkeypatch.setattr(edit, "clone_into", lambda *given: added.append(real(*given)) or added[-1])
    monkeypatch.setattr(WhileReroll, "_pays", lambda self, rolled, context: False)
    text = (DUMPS / "activations_f64.hlo").read_text(encoding="utf-8")
    module, context = hlo_opt.parse(text), PassContext(FuseOptions(H100))
    parse_pipeline(SIMPLIFY_RAW).run(module, context)
    before = str(module)
    assert not WhileReroll().run(module, context)
    assert added and str(module) == before


@pytest.mark.parametrize(("before", "is_found"), [(10, True), (MOST_KEPT + 8, False)])
def test_copies_hand_on_the_state_of_a_few_rounds(before: int, is_found: bool) -> None:
    """Each copy reads the value of so many rounds ago: of the state all but one value moves along. Layers with weights
    of their own look like this, with a value for each weight: such a guess is not followed."""
    values = [f"x{n}" for n in range(before)]
    lines = [f"x{n} = f32[8] parameter({n})" for n in range(before)]
    for k in range(60):
        lines.append(f"z{k} = f32[8] sine({values[-1]})")
        lines.append(f"y{k} = f32[8] multiply(z{k}, {values[-before]})")
        values.append(f"y{k}")
    lines.append(f"ROOT r = f32[8] negate({values[-1]})")
    entry = hlo_opt.parse("HloModule m\n\nENTRY e {\n" + "\n".join(f"  {line}" for line in lines) + "\n}\n").entry
    assert (chain_of(entry, 4) is not None) == is_found
