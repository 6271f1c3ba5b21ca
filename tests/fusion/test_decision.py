"""What depends on the structure of kernels only is found out once, however often a structure stands in a module, and
changes no answer."""

from pathlib import Path

import pytest

import hlo_opt
import hlo_opt.fusion.state as state
from hlo_opt.analysis.targets import target
from hlo_opt.fusion.context import FuseOptions, PassContext, PassMemory
from hlo_opt.fusion.decision import ByStructure, FusionDecision
from hlo_opt.passes.cse import CommonSubexpressionElimination
from hlo_opt.passes.run import Outcome, run

DUMPS = Path(__file__).resolve().parents[2] / "testdata" / "dumps"
H100 = target("h100_sxm")
ROWS, COLUMNS = 64, 128


def softmax_layers(count: int, sizes: tuple[int, ...] = (COLUMNS,)) -> str:
    """A softmax and a matrix product, again and again; the reducers of each layer are its own."""
    reducers, lines = [], []
    first = sizes[0]
    lines += [f"v0 = f32[{ROWS},{first}]{{1,0}} parameter(0)", "z = f32[] constant(0)"]
    for n in range(1, count + 1):
        size, then = sizes[(n - 1) % len(sizes)], sizes[n % len(sizes)]
        array, row = f"f32[{ROWS},{size}]{{1,0}}", f"f32[{ROWS}]{{0}}"
        reducers.append(
            f"sum{n} {{\n  a{n} = f32[] parameter(0)\n  b{n} = f32[] parameter(1)\n  ROOT c{n} = f32[] add(a{n}, b{n})\n}}\n"
        )
        lines += [
            f"w{n} = f32[{size},{then}]{{1,0}} constant({{...}})",
            f"e{n} = {array} exponential(v{n - 1})",
            f"t{n} = {row} reduce(e{n}, z), dimensions={{1}}, to_apply=sum{n}",
            f"spread{n} = {array} broadcast(t{n}), dimensions={{0}}",
            f"q{n} = {array} divide(e{n}, spread{n})",
            f"v{n} = f32[{ROWS},{then}]{{1,0}} dot(q{n}, w{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
        ]
    lines[-1] = "ROOT " + lines[-1]
    return "HloModule m\n\n" + "\n".join(reducers) + "\nENTRY e {\n  " + "\n  ".join(lines) + "\n}\n"


def work(text: str, preset: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many plans were made and fused kernels priced."""
    calls = [0]

    with monkeypatch.context() as patch:
        for name in ("sketch_of", "plan", "fused_estimate"):
            original = getattr(state, name)

            def wrapper(*given: object, original: object = original, **named: object) -> object:
                calls[0] += 1
                assert callable(original)
                return original(*given, **named)

            patch.setattr(state, name, wrapper)
        run(hlo_opt.parse(text), preset, simplify="never").decide()
    return calls[0]


@pytest.mark.parametrize("preset", ["default", "xla-2023", "xla-2026"])
def test_more_layers_make_no_more_work(preset: str, monkeypatch: pytest.MonkeyPatch):
    few, many = (work(softmax_layers(n), preset, monkeypatch) for n in (4, 12))
    assert few == many > 0


def test_layers_of_other_sizes_are_other_structures(monkeypatch: pytest.MonkeyPatch):
    alike = work(softmax_layers(4), "xla-2026", monkeypatch)
    assert work(softmax_layers(4, (128, 256)), "xla-2026", monkeypatch) > alike


class Forgetful(dict[object, object]):
    """A table that finds nothing again but what was put in last."""

    def get(self, key: object, default: object = None) -> object:
        return default

    def __contains__(self, key: object) -> bool:
        return False


@pytest.mark.parametrize("preset", ["default", "xla-2023", "xla-2026"])
@pytest.mark.parametrize("text", [softmax_layers(3), softmax_layers(4, (128, 32, 7))])
def test_what_is_known_changes_no_answer(text: str, preset: str, monkeypatch: pytest.MonkeyPatch):
    def answers() -> tuple[str, list[str]]:
        outcome = run(hlo_opt.parse(text), preset, simplify="never")
        return str(outcome.module), [str(d) for d in outcome.decide()]

    with_it = answers()

    begin = PassMemory.__init__

    def nothing_kept(memory: PassMemory, known: ByStructure | None = None) -> None:
        begin(memory)
        for name in ("plans", "made", "traits", "sketches", "alone", "estimates", "costs", "verdicts"):
            setattr(memory.known, name, Forgetful())

    monkeypatch.setattr(PassMemory, "__init__", nothing_kept)
    assert answers() == with_it


def test_decisions_are_found_when_they_are_looked_at(monkeypatch: pytest.MonkeyPatch):
    asked: list[Outcome] = []
    decide = Outcome.decide

    def counted(outcome: Outcome) -> list[FusionDecision]:
        asked.append(outcome)
        return decide(outcome)

    monkeypatch.setattr(Outcome, "decide", counted)
    module = hlo_opt.parse(softmax_layers(2))
    _, decisions = hlo_opt.fuse(module)
    assert not asked
    found = run(module).decide()
    asked.clear()
    assert (
        decisions == found and decisions[0] == found[0] and decisions[1:] == found[1:] and len(decisions) == len(found)
    )
    assert decisions != found[1:] and found[-1] in decisions and repr(decisions) == repr(found)
    assert len(asked) == 1


DUPLICATES = """\
HloModule m

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

inner {
  p = f32[64,128]{1,0} parameter(0)
  x = f32[64,128]{1,0} exponential(p)
  y = f32[64,128]{1,0} exponential(p)
  ROOT r = f32[64,128]{1,0} add(x, y)
}

other {
  p = f32[64,128]{1,0} parameter(0)
  ROOT r = f32[64,128]{1,0} negate(p)
}

ENTRY e {
  p = f32[64,128]{1,0} parameter(0)
  z = f32[] constant(0)
  f = f32[64,128]{1,0} fusion(p), kind=kLoop, calls=inner
  g = f32[64,128]{1,0} fusion(f), kind=kLoop, calls=other
  ROOT s = f32[64]{0} reduce(g, z), dimensions={1}, to_apply=sum
}
"""


def test_kernels_that_hold_no_equal_values_stay_known():
    module = hlo_opt.parse(DUPLICATES)
    context = PassContext(FuseOptions(H100))
    found = context.memory.state(module, H100)
    f, g = (next(i for i in module.entry.instructions if i.name == name) for name in ("f", "g"))
    known = {i: (found.cluster(i), found.structure(i)) for i in (f, g)}
    assert CommonSubexpressionElimination().run(module, context)
    assert context.memory.state(module, H100) is found
    assert (found.cluster(g), found.structure(g)) == known[g]
    assert found.cluster(f).size == 2 < known[f][0].size
    assert found.structure(f) != known[f][1]


def test_nothing_stays_known_where_a_reducer_changed():
    computes = "d = f32[] add(a, b)\n  e = f32[] add(b, a)\n  ROOT c = f32[] maximum(d, e)"
    module = hlo_opt.parse(DUPLICATES.replace("ROOT c = f32[] add(a, b)", computes))
    context = PassContext(FuseOptions(H100))
    found = context.memory.state(module, H100)
    assert CommonSubexpressionElimination().run(module, context)
    assert context.memory.state(module, H100) is not found


@pytest.mark.sweep
@pytest.mark.parametrize("preset", ["default", "xla-2023", "xla-2026"])
@pytest.mark.parametrize("name", ["adam", "attention", "cartpole_random", "transformer_block"])
def test_what_is_kept_between_passes_changes_no_answer(name: str, preset: str, monkeypatch: pytest.MonkeyPatch):
    """A joined kernel's readers, and kernels that cse left alone, are known as they would be if all were forgotten."""
    text = (DUMPS / f"{name}.hlo").read_text(encoding="utf-8")
    kept = run(hlo_opt.parse(text), preset)
    with monkeypatch.context() as patch:
        patch.setattr(PassMemory, "changed_inside", lambda memory, computations, module: memory.clear())
        patch.setattr(state.FusionState, "replaced", lambda known, old, new, user: known.forget(user))
        fresh = run(hlo_opt.parse(text), preset)
        wanted = fresh.decide()
    assert str(kept.module) == str(fresh.module)
    assert kept.decide() == wanted
