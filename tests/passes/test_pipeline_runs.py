"""How pipelines are read and run: limits, groups, what settles, times, and the choice between several."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import pytest
from small_modules import H100, module_of, text_of

import hlo_opt
import hlo_opt.passes.run
from hlo_opt.diag import HloOptError, ProofError, Reason, UsageError
from hlo_opt.fusion.context import FuseOptions, PassContext
from hlo_opt.ir import Module, edit
from hlo_opt.passes import parse_pipeline, pipeline, register_pass, run, table
from hlo_opt.passes.base import Pass
from hlo_opt.passes.pipeline import Best, Fixpoint, Pipeline
from hlo_opt.passes.table import SIMPLIFY, pass_class, preset, unregister_pass

runs = sys.modules["hlo_opt.passes.run"]
ROW = "f32[64]{0}"
TEXT = text_of(f"p = {ROW} parameter(0)", f"a = {ROW} negate(p)", f"d = {ROW} abs(p)", f"r = {ROW} tanh(a)")


@dataclass(frozen=True)
class Counts(Pass):
    """Changes the module as often as it is told to."""

    name: ClassVar[str] = "counts"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"

    of: str = "a"
    times: int = 0
    done: list[str] = field(default_factory=list, compare=False, hash=False)

    def run(self, module: Module, context: PassContext) -> bool:
        self.done.append(self.of)
        return len(self.done) <= self.times


class Once(Counts):
    """Finds nothing to do right after itself."""

    name: ClassVar[str] = "once"
    idempotent: ClassVar[bool] = True


class Keeping(Counts):
    """Keeps what fusion passes know."""

    name: ClassVar[str] = "keeping"
    keeps_memory: ClassVar[bool] = True


class Meaning(Counts):
    """Promises less."""

    name: ClassVar[str] = "meaning"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"


def done(*steps: Any, context: PassContext | None = None) -> bool:
    return Pipeline(steps).run(hlo_opt.parse(TEXT), context or PassContext(FuseOptions(H100)))


# ---- groups


def test_a_group_ends_when_each_of_its_passes_found_nothing_more():
    first, second = Counts("a", 2), Counts("b", 0)
    assert done(Fixpoint((first, second)))
    # both change, then each is asked once more: the second was asked between the changes
    assert len(first.done) == 3 and len(second.done) == 2
    idle = Counts("a"), Counts("b")
    assert not done(Fixpoint(idle)) and [len(i.done) for i in idle] == [1, 1]
    told: list[str] = []
    Pipeline((Fixpoint(idle),)).run(
        hlo_opt.parse(TEXT), PassContext(FuseOptions(H100)), observer=lambda p, m, changed: told.append(p.of)
    )  # type: ignore[attr-defined]
    assert told == ["a", "b"]
    inner, outer = Counts("a", 1), Counts("b", 2)
    assert done(Fixpoint((Fixpoint((inner,)), outer)))
    assert len(outer.done) == 3 and len(inner.done) == 4


def test_a_group_ends_with_the_steps():
    limit = PassContext(FuseOptions(H100, stop_after_step=0))
    restless = Counts("a", 1000)
    assert done(Fixpoint((restless,)), context=limit) and len(restless.done) == 1
    assert done(Fixpoint((again := Counts("a", 1000),))) and len(again.done) == pipeline.MOST_ROUNDS == 25


def test_what_found_nothing_is_not_asked_before_something_changes():
    idle, changing, last = Counts("a"), Counts("b", 1), Once("c", 5)
    told: list[tuple[str, bool]] = []
    Pipeline((idle, idle, changing, idle, last, last)).run(
        hlo_opt.parse(TEXT), PassContext(FuseOptions(H100)), observer=lambda p, m, changed: told.append((p.of, changed))
    )
    assert told == [("a", False), ("a", False), ("b", True), ("a", False), ("c", True), ("c", False)]
    assert (len(idle.done), len(changing.done), len(last.done)) == (2, 1, 1)


def test_only_passes_that_keep_up_what_is_known_keep_it():
    for step, kept in ((Counts("a", 1), False), (Keeping("a", 1), True), (Counts("a", 0), True)):
        module = hlo_opt.parse(TEXT)
        context = PassContext(FuseOptions(H100))
        state = context.memory.state(module, H100)
        Pipeline((step,)).run(module, context)
        assert (context.memory.state(module, H100) is state) == kept


def test_times_and_runs_add_up_and_only_changes_are_verified(monkeypatch: pytest.MonkeyPatch):
    clock = iter(range(100))
    monkeypatch.setattr(pipeline.time, "perf_counter", lambda: float(next(clock)))
    seconds: dict[str, float] = {}
    counted: dict[str, int] = {}
    verified: list[Module] = []
    module = hlo_opt.parse(TEXT)
    steps = Pipeline((Counts("a", 1), Counts("b", 0), Counts("c", 1)))
    assert steps.run(module, PassContext(FuseOptions(H100)), seconds=seconds, runs=counted, verify=verified.append)
    assert seconds == {"counts": 3.0} and counted == {"counts": 3} and verified == [module, module]


def test_the_passes_of_a_pipeline_come_in_order():
    a, b, c, d = (Counts(n) for n in "abcd")
    whole = Pipeline((a, Fixpoint((b, Fixpoint((c,)))), Best(((d, a), (Fixpoint((b,)),))), c))
    assert "".join(p.of for p in whole.passes()) == "abcdabc"  # type: ignore[attr-defined]
    ways = whole.alternatives()
    assert ["".join(p.of for p in way.passes()) for way in ways] == ["abcdac", "abcbc"]  # type: ignore[attr-defined]
    assert whole.preserves_graph and not Pipeline((a, Fixpoint((Meaning(),)))).preserves_graph


def test_a_pass_of_ours_that_fails_is_not_blamed_on_a_plugin():
    class Fails(Counts):
        name: ClassVar[str] = "fails"

        def run(self, module: Module, context: PassContext) -> bool:
            raise self.fault()

        fault: ClassVar[Callable[[], Exception]] = ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        done(Fails())
    Fails.fault = staticmethod(lambda: UsageError("no"))
    with pytest.raises(UsageError, match="no"):
        done(Fails())


# ---- texts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fixpoint(" * 20 + "dce" + ")" * 20, ""),
        ("fixpoint(" * 21 + "dce" + ")" * 21, "fixpoint groups nest 21 deep, more than 20"),
        ("fixpoint(dce)," * 30 + "dce", ""),
        ("dce," * 2499 + "dce ", ""),
        ("dce," * 2499 + "dce  ", "the pipeline is longer than 10000 characters"),
        (",".join(["best(dce|cse)"] * 3), ""),
        (",".join(["best(dce|cse)"] * 3 + ["best(dce)"]), "this is not a pipeline"),
        ("best(dce|cse|dce),best(dce|cse|dce)", "the choices stand for 9 pipelines, more than 8"),
        ("fixpoint(best(dce|cse))", "this is not a pipeline"),
    ],
)  # fmt: skip
def test_how_long_and_deep_a_text_may_be(text: str, message: str):
    if not message:
        assert list(parse_pipeline(text).passes())
        return
    with pytest.raises(UsageError) as caught:
        parse_pipeline(text)
    assert caught.value.message == message


@dataclass(frozen=True)
class Options(Pass):
    """One option of each kind."""

    name: ClassVar[str] = "options"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"

    on_or_off: bool = True
    whole: int = 1
    part: float = 0.5
    text: str = ""

    def run(self, module: Module, context: PassContext) -> bool:
        return False


@pytest.fixture
def with_options():
    register_pass("options", f"{__name__}:Options")
    sys.modules.setdefault(__name__, SimpleNamespace(Options=Options))  # type: ignore[arg-type]
    yield
    unregister_pass("options")


BIG = "9" * 18


@pytest.mark.parametrize(
    ("spelt", "options"),
    [
        ("on-or-off=false", {"on_or_off": False}),
        ("on_or_off=true", {"on_or_off": True}),
        ("whole=-7", {"whole": -7}),
        (f"whole={BIG}", {"whole": int(BIG)}),
        ("part=2", {"part": 2.0}),
        ("part=-1.5e3", {"part": -1500.0}),
        ('text="a b"', {"text": "a b"}),
        ("text=word,whole=3", {"text": "word", "whole": 3}),
    ],
)
def test_values_of_options(spelt: str, options: dict[str, object], with_options: None):
    (found,) = parse_pipeline(f"options{{{spelt}}}").passes()
    assert found == Options(**options)  # type: ignore[arg-type]
    assert all(type(getattr(found, name)) is type(value) for name, value in options.items())


@pytest.mark.parametrize(
    ("spelt", "message", "hint"),
    [
        ("on-or-off=1", "on-or-off must be true or false, not 1", None),
        ("whole=true", "whole must be a whole number, not true", None),
        ("whole=1.0", "whole must be a whole number, not 1.0", None),
        (f"whole={BIG}9", f"whole must be a whole number, not {BIG}9", None),
        ("part=half", "part must be a number, not half", None),
        ("text=1", "text must be a word or a quoted text, not 1", None),
        ("whle=1", "options has no option 'whle'", "did you mean whole?"),
        ("x=1", "options has no option 'x'", "options: on-or-off, whole, part, text"),
        ("on_or_of=1", "options has no option 'on_or_of'", "did you mean on-or-off?"),
        ("whole=1,whole=1", "option 'whole' is given twice", None),
    ],
)
def test_values_that_do_not_fit(spelt: str, message: str, hint: str | None, with_options: None):
    with pytest.raises(UsageError) as caught:
        parse_pipeline(f"options{{{spelt}}}")
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_a_wrong_text_is_marked_where_it_is_wrong():
    for text, column in (("dce,,cse", 5), ("dce,", 5), ("fixpoint(dce", 13), ("dce}cse", 4)):
        with pytest.raises(UsageError) as caught:
            parse_pipeline(text)
        assert (caught.value.column, caught.value.message) == (column, "this is not a pipeline")
        assert caught.value.hint is not None and "fixpoint(a,b) repeats" in caught.value.hint


def test_an_unknown_pass_keeps_its_hint_and_gets_its_place():
    with pytest.raises(UsageError) as caught:
        parse_pipeline("cse,instruction-fusoin")
    assert (caught.value.message, caught.value.hint, caught.value.column) == (
        "there is no pass 'instruction-fusoin'",
        "did you mean instruction-fusion?",
        5,
    )
    with pytest.raises(UsageError) as caught:
        pass_class("zzzzzzzzzzzz")
    assert caught.value.hint is not None and caught.value.hint.startswith(
        "known: algebraic-simplifier, attention-fusion, batch-norm-expander, bitcast-hoisting, bitcast-movement, "
    )


# ---- runs


def test_the_parts_of_a_pipeline_that_keep_the_graph_are_proved_each(monkeypatch: pytest.MonkeyPatch):
    proved: list[None] = []
    monkeypatch.setattr(runs, "identical", lambda before, after: False)
    monkeypatch.setattr(runs, "prove_same_graph", lambda before, after: proved.append(None))
    a, m = Counts("a", times=100), Meaning("m", times=100)
    for steps, parts, count in (((a, a), 1, 1), ((a, m, a), 3, 2), ((m, m), 1, 0), ((m, a), 2, 1), ((), 0, 0)):
        assert len(runs._provable_parts(Pipeline(steps))) == parts
        proved.clear()
        outcome = run(hlo_opt.parse(TEXT), passes=Pipeline(steps), simplify="never")
        assert len(proved) == count and ("proof" in outcome.seconds) == (count > 0)


class Liar(Counts):
    """Swaps operands, and says that it did nothing."""

    name: ClassVar[str] = "liar"

    def run(self, module: Module, context: PassContext) -> bool:
        root = module.entry.root
        edit.set_operands(root, reversed(root.operands))
        return False


def test_what_is_as_it_was_needs_no_numbering_and_what_a_pass_says_is_not_believed(monkeypatch: pytest.MonkeyPatch):
    text = "HloModule m\n\nENTRY e {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] divide(a, b)\n}\n"
    with pytest.raises(ProofError, match="output 0 of the result is another value"):
        run(hlo_opt.parse(text), passes=Pipeline((Liar(),)), simplify="never")
    monkeypatch.setattr(runs, "prove_same_graph", lambda before, after: pytest.fail("was numbered"))
    assert "proof" in run(hlo_opt.parse(text), passes=Pipeline((Counts("a"),)), simplify="never").seconds


@dataclass(frozen=True)
class Silent(Meaning):
    """Swaps operands where it is told to, and says that it did nothing."""

    name: ClassVar[str] = "silent"
    swaps: bool = True

    def run(self, module: Module, context: PassContext) -> bool:
        root = module.entry.root
        edit.set_operands(root, [*root.operands][:: -1 if self.swaps else 1])
        return False


@pytest.mark.parametrize(("swaps", "count"), [(False, 1), (True, 2)])
def test_parts_between_which_nothing_changed_are_proved_together(
    monkeypatch: pytest.MonkeyPatch, swaps: bool, count: int
):
    text = text_of(f"p = {ROW} parameter(0)", f"a = {ROW} abs(p)", f"b = {ROW} abs(p)", f"r = {ROW} divide(a, p)")
    proved: list[Module] = []
    prove = runs.prove_same_graph
    monkeypatch.setattr(runs, "prove_same_graph", lambda *modules: proved.append(modules[0]) or prove(*modules))
    steps = (pass_class("dce")(), Silent("s", swaps=swaps), pass_class("priority-fusion")())
    result = run(hlo_opt.parse(text), passes=Pipeline(steps), simplify="never")
    assert len(proved) == count and len(result.module.entry.instructions) == 2


def test_a_pass_that_is_known_to_find_nothing_is_not_run_in_a_later_part_either():
    a = Counts("a")
    for meaning, often in ((Meaning("m"), 1), (Meaning("m", times=1), 2)):
        a.done.clear()
        run(hlo_opt.parse(TEXT), passes=Pipeline((a, meaning, a)), simplify="never")
        assert len(a.done) == often


def _summary(est_us: float, kernels: int) -> SimpleNamespace:
    return SimpleNamespace(est_us=est_us, kernels=kernels, launches=kernels)


def test_of_results_as_good_as_equal_the_one_with_fewest_kernels_is_kept(monkeypatch: pytest.MonkeyPatch):
    summaries = iter([(2.0, 3), (2.0015, 2), (2.0025, 1)])
    monkeypatch.setattr(runs, "module_summary", lambda *_, **__: _summary(*next(summaries)))
    outcome = run(hlo_opt.parse(TEXT), passes="best(dce|cse|instruction-fusion)", simplify="never")
    assert [p.name for p in outcome.pipeline.passes()] == ["cse"]


def test_of_equal_results_the_first_is_kept(monkeypatch: pytest.MonkeyPatch):
    summaries = iter([(3.0, 1), (2.0, 2), (2.001, 2)])
    monkeypatch.setattr(runs, "module_summary", lambda *_, **__: _summary(*next(summaries)))
    outcome = run(hlo_opt.parse(TEXT), passes="best(dce|cse|instruction-fusion)", simplify="never")
    assert [p.name for p in outcome.pipeline.passes()] == ["cse"]
    assert outcome.seconds["alternatives"] > 0


@pytest.mark.parametrize(("est_us", "kernels", "tried"), [(1.9, 1, 1), (2.0, 1, 3), (1.9, 2, 3)])
def test_nothing_is_tried_after_one_kernel_that_takes_less_than_two_launches(
    est_us: float, kernels: int, tried: int, monkeypatch: pytest.MonkeyPatch
):
    priced = []
    monkeypatch.setattr(runs, "module_summary", lambda *_, **__: priced.append(1) or _summary(est_us, kernels))
    run(hlo_opt.parse(TEXT), passes="best(dce|cse|instruction-fusion)", simplify="never")
    assert len(priced) == tried


@pytest.mark.parametrize(
    ("effort", "size", "tried"), [(0, 1, 1), (1, runs.SMALL, 2), (1, runs.SMALL + 1, 1), (2, runs.SMALL + 1, 2)]
)
def test_the_choices_of_a_preset_are_tried_as_effort_says(
    effort: int, size: int, tried: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(runs, "preset", lambda name: "dce,best(cse | instruction-fusion)")
    monkeypatch.setattr(runs, "size_of", lambda module: size)
    priced = []
    monkeypatch.setattr(runs, "module_summary", lambda *_, **__: priced.append(1) or _summary(9.0, 1))
    outcome = run(hlo_opt.parse(TEXT), effort=effort, simplify="never")
    assert len(priced) == (tried if tried > 1 else 0)
    assert [p.name for p in outcome.pipeline.passes()][-1] == ("cse" if tried > 1 else "instruction-fusion")


def test_own_choices_are_all_tried_whatever_the_effort(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(runs, "size_of", lambda module: runs.SMALL + 1)
    outcome = run(hlo_opt.parse(TEXT), passes="best(cse | cse,cse)", simplify="never")
    assert [p.name for p in outcome.pipeline.passes()] == ["cse"]


@pytest.mark.parametrize("effort", [-1, 3])
def test_an_effort_that_does_not_exist_is_an_error(effort: int):
    with pytest.raises(hlo_opt.UsageError, match=f"effort must be 0 to 2, but is {effort}"):
        hlo_opt.fuse(hlo_opt.parse(TEXT), effort=effort)


def test_the_times_of_a_run_add_up_to_the_clock(monkeypatch: pytest.MonkeyPatch):
    clock = itertools.count()
    monkeypatch.setattr(runs.time, "perf_counter", lambda: float(next(clock)))
    for limit in (None, 1):  # with a limit the best is run once more
        begun = next(clock)
        outcome = run(hlo_opt.parse(TEXT), passes="dce,best(cse|instruction-fusion)", stop_after_step=limit)
        assert sum(outcome.seconds.values()) == next(clock) - begun - 2
        assert outcome.seconds["alternatives"] > 0


def test_alternatives_share_what_is_known_and_what_comes_before_them(monkeypatch: pytest.MonkeyPatch):
    given: list[PassContext] = []
    ran: list[str] = []
    real = runs._run

    def watched(module: Module, pipeline: Pipeline, context: PassContext, *rest: Any) -> runs.Outcome:
        assert not context.left and not context.origins and context.steps == 0
        given.append(context)
        return real(module, pipeline, context, *rest)

    monkeypatch.setattr(runs, "_run", watched)
    first, ways = Counts("first", done=ran), Best(((Once("a", done=ran),), (Keeping("b", done=ran),)))
    for limit in (None, 1):
        given.clear()
        ran.clear()
        outcome = run(hlo_opt.parse(TEXT), passes=Pipeline((first, ways)), what_if=["FUS401"], stop_after_step=limit)
        assert ran == ["first", "a", "b", *(["first", "a"] if limit else [])]
        assert outcome.runs["counts"] == outcome.runs["once"] == 1
        assert [p.name for p in outcome.pipeline.passes()][-2:] == ["counts", "once"]
        assert [c.options.stop_after_step for c in given] == [None, None, None, *([1] if limit else [])]
        assert all(c.options.disabled == {"FUS401"} for c in given)
        assert len({c.memory for c in given}) == len(given) and len({id(c.memory.known) for c in given}) == 1


def test_notes_about_a_module_hold_for_its_copy():
    module = hlo_opt.parse(TEXT)
    copy = edit.clone_module(module)
    before, context = PassContext(FuseOptions(H100)), PassContext(FuseOptions(H100))
    context.go_on(before, module, copy)
    assert not context.origins and not context.steps
    reason = Reason.of("FUS502", limit=1)
    before.steps, before.fused_by["a"] = 3, "cse"
    before.origins[module.entry.root] = "older"
    before.left["cse", "a"] = before.forbidden["a", ""] = reason
    context.go_on(before, module, copy)
    assert (context.steps, context.fused_by, context.origins) == (3, {"a": "cse"}, {copy.entry.root: "older"})
    assert context.left == {("cse", "a"): reason} and context.forbidden == {("a", ""): reason}


@pytest.mark.parametrize(("limit", "told"), [(None, True), (1, False), (1, True)])
def test_with_an_observer_or_a_limit_the_choice_is_made_first(limit: int | None, told: bool):
    seen: list[str] = []
    outcome = run(
        hlo_opt.parse(TEXT),
        passes="best(cse|instruction-fusion),cse",
        simplify="never",
        stop_after_step=limit,
        observer=(lambda p, m, c: seen.append(p.name)) if told else None,
    )
    assert [p.name for p in outcome.pipeline.passes()] == ["instruction-fusion", "cse"]
    assert seen == (["instruction-fusion", "cse"] if told else []) and outcome.context.options.stop_after_step == limit
    assert outcome.steps == 1


@pytest.mark.parametrize("simplify", ["auto", "always", "never"])
def test_the_simplify_stage_comes_first(simplify: str):
    outcome = run(hlo_opt.parse(TEXT), passes="instruction-fusion", simplify=simplify)
    names = [p.name for p in outcome.pipeline.passes()]
    assert names == ["instruction-fusion"] if simplify == "never" else [*SIMPLIFY.split(","), "instruction-fusion"]


@pytest.mark.parametrize(
    ("force", "hint"),
    [(("a", "r"), None), (("%a", "%r"), None), (("aa", "r"), "did you mean a?"), (("a", "unheard-of-name"), None)],
)
def test_ends_of_forced_edges_are_names(force: tuple[str, str], hint: str | None):
    def forced() -> Module:
        return run(hlo_opt.parse(TEXT), passes="instruction-fusion", simplify="never", force=[force]).module

    if force[0].strip("%") == "a" and force[1].strip("%") == "r":
        fusion = forced().entry.root
        assert fusion.opcode == "fusion"
        force = force[0], fusion.name  # a pass makes it, and an end may be called so
        assert forced().entry.root.name == fusion.name
        return
    with pytest.raises(UsageError, match="there is no instruction") as caught:
        forced()
    assert caught.value.hint == hint


def test_a_module_knows_the_device_that_it_was_fused_for():
    module = hlo_opt.parse(TEXT)
    outcome = run(module, passes="dce", simplify="never", target="a100_sxm_80")
    assert outcome.module.target is outcome.target is not H100 and outcome.target.name == "a100_sxm_80"
    assert module.target is None


@pytest.mark.parametrize("limit", [0, None])
def test_a_limit_of_no_steps_is_a_limit(limit: int | None):
    outcome = run(hlo_opt.parse(TEXT), passes="instruction-fusion", simplify="never", stop_after_step=limit)
    assert (outcome.module.entry.root.opcode == "tanh") == (limit == 0)


def test_wrong_modes_of_simplification():
    with pytest.raises(UsageError) as caught:
        run(hlo_opt.parse(TEXT), simplify="nver")
    assert (
        caught.value.message == "simplify must be auto, always or never, not 'nver'"
        and caught.value.hint == "did you mean never?"
    )
    with pytest.raises(UsageError) as caught:
        run(hlo_opt.parse(TEXT), simplify="xxxxxxxx")
    assert not caught.value.hint
    with pytest.raises(UsageError, match="stop-after-step must not be negative, but is -1"):
        run(hlo_opt.parse(TEXT), stop_after_step=-1)


# ---- passes by name


def test_presets_by_name():
    assert preset("xla-2026").endswith("multi-output-fusion{xla-prices=true},cse,dce")
    with pytest.raises(UsageError) as caught:
        preset("qqqqqqqq")
    assert caught.value.hint == "known: default, xla-2023, xla-2026"


@pytest.mark.parametrize(
    ("limit", "steps", "asked", "exhausted"), [(None, 5, 3, False), (3, 0, 3, True), (2, 0, 2, True), (0, 0, 0, True)]
)
def test_steps_are_counted_up_to_the_limit(limit: int | None, steps: int, asked: int, exhausted: bool):
    context = PassContext(FuseOptions(None, stop_after_step=limit), steps=steps)
    assert [context.step() for _ in range(3)] == [n < asked for n in range(3)]
    assert context.exhausted == exhausted and context.steps == steps + asked


def test_names_that_are_taken_and_types_of_options():
    assert set(table.PASSES) == set(table._TABLE) and table.PASSES["dce"] == "hlo_opt.passes.dce:DeadCodeElimination"
    assert table.plugin_of(Counts) is None and table.plugin_of(pass_class("dce")) is None
    kinds = {name: kind for name, (kind, _) in table.pass_options("horizontal-loop-fusion").items()}
    assert kinds["max-elements"] == "int" and kinds["mixed-types"] == "bool"
    assert issubclass(UsageError, HloOptError) and module_of(f"p = {ROW} parameter(0)").entry.root.opcode == "parameter"


def test_options_of_a_plugins_pass_are_of_four_kinds(fake_plugins: Callable[..., None]):
    fake_plugins(table.GROUP, options=f"{__name__}:Options")
    assert pass_class("options") is Options and table.plugin_of(Options) is not None
    (found,) = parse_pipeline("options{on-or-off=false,part=2}").passes()
    assert found == Options(on_or_off=False, part=2.0)
