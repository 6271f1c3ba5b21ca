import sys
from dataclasses import dataclass
from typing import ClassVar, Literal

import pytest

import hlo_opt
from hlo_opt.diag import UsageError
from hlo_opt.fusion.context import FuseOptions, PassContext
from hlo_opt.ir import Module
from hlo_opt.passes import parse_pipeline, pass_names, pass_options, preset, preset_names, register_pass, run
from hlo_opt.passes.base import Pass
from hlo_opt.passes.instruction_fusion import InstructionFusion
from hlo_opt.passes.pipeline import MOST_ROUNDS, Fixpoint
from hlo_opt.passes.table import unregister_pass

TEXT = """\
HloModule m

ENTRY e {
  p = f32[64]{0} parameter(0)
  s = f32[64]{0} sine(p)
  n = f32[64]{0} negate(s)
  dead = f32[64]{0} abs(s)
  ROOT t = f32[64]{0} tanh(n)
}
"""


def test_options_are_typed_by_the_fields():
    found = parse_pipeline("instruction-fusion{may-duplicate=false,max_emissions=3}, dce")
    assert [p.name for p in found.passes()] == ["instruction-fusion", "dce"]
    assert found.steps[0] == InstructionFusion(may_duplicate=False, max_emissions=3)


def test_groups():
    found = parse_pipeline("cse,fixpoint(dce,fixpoint(cse,dce)),inline{fusions=true}")
    assert [p.name for p in found.passes()] == ["cse", "dce", "cse", "dce", "inline"]
    assert isinstance(found.steps[1], Fixpoint)
    assert list(parse_pipeline("").passes()) == []


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("instruction-fusoin", "did you mean instruction-fusion", 1),
        ("dce,instruction-fusion{may-duplicat=true}", "did you mean may-duplicate", 24),
        ("instruction-fusion{max-emissions=true}", "max-emissions must be a whole number, not true", 34),
        ("instruction-fusion{max-emissions=1.5}", "must be a whole number", 34),
        ("instruction-fusion{may-duplicate=1}", "must be true or false, not 1", 34),
        ("instruction-fusion{max-emissions=1,max_emissions=2}", "given twice", 36),
        ("dce{x=1}", "options: none", 5),
        ("dce,,cse", "not a pipeline", 5),
        ("fixpoint(dce", "not a pipeline", 13),
        ("fixpoint()", "not a pipeline", 10),
        ("dce}", "not a pipeline", 4),
        ("__import__('os')", "not a pipeline", 11),
    ],
)
def test_wrong_pipelines_name_the_place(text: str, message: str, column: int):
    with pytest.raises(UsageError, match=message) as caught:
        parse_pipeline(text)
    assert caught.value.column == column


def test_deep_and_long_pipelines_are_refused():
    with pytest.raises(UsageError, match="nest"):
        parse_pipeline("fixpoint(" * 500 + "dce" + ")" * 500)
    with pytest.raises(UsageError, match="longer"):
        parse_pipeline("dce," * 5000 + "dce")


def test_presets():
    assert "default" in preset_names()
    for name in preset_names():
        assert list(parse_pipeline(preset(name)).passes())
    with pytest.raises(UsageError, match="did you mean default"):
        preset("defualt")
    with pytest.raises(UsageError):
        hlo_opt.fuse(hlo_opt.parse(TEXT), preset="no-such-preset")


def test_wrong_arguments_of_a_run():
    module = hlo_opt.parse(TEXT)
    for arguments, message in (
        ({"simplify": "allways"}, "did you mean always"),
        ({"target": "x100"}, "no target"),
        ({"what_if": ["FUS999"]}, "no reason"),
        ({"force": [("s", "nn")]}, "did you mean n"),
        ({"stop_after_step": -1}, "negative"),
    ):
        with pytest.raises(UsageError, match=message):
            hlo_opt.fuse(module, **arguments)


def test_the_table():
    assert {"cse", "dce", "inline", "instruction-fusion", "fusion-merger"} <= set(pass_names())
    options = {"may-duplicate": ("bool", True), "max-emissions": ("int", 15)}
    assert pass_options("instruction-fusion").items() >= options.items()
    with pytest.raises(ValueError, match="twice"):
        register_pass("dce", "x:y")


@dataclass(frozen=True)
class Restless(Pass):
    """Says that it changed something, for ever."""

    name: ClassVar[str] = "restless"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"

    def run(self, module: Module, context: PassContext) -> bool:
        return True


def test_a_fixpoint_ends():
    register_pass("restless", f"{__name__}:Restless")
    try:
        seen: list[str] = []
        found = parse_pipeline("fixpoint(dce)")
        pipeline = type(found)((Fixpoint((Restless(),)),))
        assert not pipeline.preserves_graph
        pipeline.run(hlo_opt.parse(TEXT), PassContext(FuseOptions(None)), observer=lambda p, m, c: seen.append(p.name))
        assert len(seen) == MOST_ROUNDS
    finally:
        unregister_pass("restless")


def test_observer_verifier_and_times():
    seen: list[tuple[str, bool]] = []
    verified: list[Module] = []
    module = hlo_opt.parse(TEXT)
    outcome = run(
        module,
        passes="dce,cse,instruction-fusion",
        simplify="never",
        observer=lambda p, m, changed: seen.append((p.name, changed)),
        verify=verified.append,
    )
    assert seen == [("dce", True), ("cse", False), ("instruction-fusion", True)]
    assert len(verified) == 2
    assert {"dce", "cse", "instruction-fusion", "proof"} <= outcome.seconds.keys()
    assert str(module) == str(hlo_opt.parse(TEXT))


def test_steps_can_be_bisected():
    kernels = []
    for limit in range(4):
        outcome = run(hlo_opt.parse(TEXT), passes="instruction-fusion", stop_after_step=limit)
        launched = [i for i in outcome.module.entry.instructions if i.opcode != "parameter"]
        kernels.append(len(launched))
        assert outcome.steps <= limit
        refused = [d for d in outcome.decide() if not d.fused]
        assert bool(refused) == (limit < 2)
        assert all(r.code == "FUS502" for d in refused for r in d.reasons)
    assert kernels == [3, 2, 1, 1]


CALLS = """\
HloModule m

helper {
  x = f32[8]{0} parameter(0)
  ROOT s = f32[8]{0} sine(x)
}

ENTRY e {
  p = f32[8]{0} parameter(0)
  a = f32[8]{0} call(p), to_apply=helper
  b = f32[8]{0} call(a), to_apply=helper
  ROOT n = f32[8]{0} negate(b)
}
"""


def test_each_inlined_call_is_a_step():
    left = []
    for limit in range(4):
        outcome = run(hlo_opt.parse(CALLS), passes="inline", simplify="never", stop_after_step=limit)
        left.append(sum(i.opcode == "call" for i in outcome.module.entry.instructions))
        assert outcome.steps == min(limit, 2)
    assert left == [2, 1, 0, 0]


def test_a_limit_inside_a_fixpoint_group_is_kept():
    spec = "fixpoint(inline,fixpoint(instruction-fusion,cse,dce))"
    whole = run(hlo_opt.parse(CALLS), passes=spec, simplify="never")
    texts = []
    for limit in range(whole.steps + 1):
        outcome = run(hlo_opt.parse(CALLS), passes=spec, simplify="never", stop_after_step=limit)
        assert outcome.steps == limit
        texts.append(str(outcome.module))
    assert len(set(texts)) == whole.steps + 1  # every step changes something
    assert texts[-1] == str(whole.module)


def test_runs_are_counted_by_pass():
    outcome = run(hlo_opt.parse(TEXT), passes="fixpoint(instruction-fusion,dce),dce", simplify="never")
    assert outcome.runs == {"instruction-fusion": 2, "dce": 1}
    assert outcome.runs.keys() | {"proof"} == outcome.seconds.keys()


def test_a_pass_that_has_nothing_to_do_is_not_run_again_before_the_module_changes():
    told: list[tuple[str, bool]] = []
    spec = "cse,cse,dce,instruction-fusion,cse,dce,dce,instruction-fusion,cse,dce"
    outcome = run(
        hlo_opt.parse(TEXT),
        passes=spec,
        simplify="never",
        observer=lambda p, m, changed: told.append((p.name, changed)),
    )
    # the second fusion finds nothing more, so nothing is left for those that clean up behind it
    assert outcome.runs == {"cse": 2, "dce": 2, "instruction-fusion": 2}
    assert [name for name, _ in told] == spec.split(",")
    assert [changed for name, changed in told if name == "instruction-fusion"] == [True, False]


def test_options_fill_what_a_text_leaves_open_or_replace_it():
    options = {"instruction-fusion": {"max_emissions": 3, "may_duplicate": False}}
    text = "fixpoint(instruction-fusion{max-emissions=5},dce)"
    (filled, _) = parse_pipeline(text, options).passes()
    assert filled == InstructionFusion(may_duplicate=False, max_emissions=5)
    (replaced, _) = parse_pipeline(text, options, override=True).passes()
    assert replaced == InstructionFusion(may_duplicate=False, max_emissions=3)


def test_of_several_pipelines_only_the_one_that_is_kept_is_proved(monkeypatch: pytest.MonkeyPatch):
    proved: list[tuple[Module, Module]] = []
    runner = sys.modules["hlo_opt.passes.run"]  # the package has a function of that name
    monkeypatch.setattr(runner, "prove_same_graph", lambda before, after: proved.append((before, after)))
    outcome = run(hlo_opt.parse(TEXT), passes="best(cse | instruction-fusion),dce", simplify="never")
    assert [after for _, after in proved] == [outcome.module]
    assert "proof" in outcome.seconds
    run(hlo_opt.parse(TEXT), passes="best(cse | instruction-fusion)", simplify="never", observer=lambda p, m, c: None)
    assert len(proved) == 2


def test_what_presets_run() -> None:
    assert preset_names() == ["default", "xla-2023", "xla-2026"]
    ran = {name: [p.name for p in parse_pipeline(preset(name)).passes()] for name in preset_names()}
    assert ran["xla-2023"] == [
        "instruction-fusion", "instruction-fusion", "fusion-merger", "multi-output-fusion", "cse", "dce",
        "horizontal-loop-fusion", "horizontal-input-fusion", "cse", "dce",
    ]  # fmt: skip
    assert ran["xla-2026"] == [
        "variadic-op-splitter", "sort-iota-fusion", "priority-fusion", "cse", "dce", "multi-output-fusion", "cse",
        "dce",
    ]  # fmt: skip
    before = [
        "while-loop-simplifier",
        "while-select",
        "while-loop-unroller",
        "cse",
        "dce",
        "while-reroll",
        "while-flatten",
        "while-loop-unroller",
        "cse",
        "dce",
        "reduction-simplifier",
        "sum-factoring",
        "scatter-to-select",
        "scatter-accumulation",
        "dot-strength-reduction",
        "dot-merger",
        "convolution-epilogues",
        "topk-to-maxima",
        "cse",
        "moment-folding",
        "online-softmax",
        "dce",
        "scan-to-window",
        "tree-to-window",
        "dce",
        "cumulative-joiner",
        "cumulative-splitter",
        "reduction-splitter",
        "while-loop-invariant-code-motion",
        "dce",
    ]
    assert ran["default"][: len(before) + 5] == [*before, *ran["xla-2026"][:5]]
