"""Where something turns."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.cutting import bisect
from hlo_opt.cutting.alone import alone
from hlo_opt.cutting.questions import Command
from hlo_opt.diag import UsageError
from hlo_opt.ir import edit
from hlo_opt.passes.run import run
from hlo_opt.report.turns import turn_page

DUMPS = Path(__file__).parents[2] / "testdata" / "dumps"
H100 = target("h100_sxm")
NAN = "  n = f32[4]{0} constant({-1, -1, -1, -1})\n  ROOT"
SMALL = "HloModule m\nENTRY e {{\n  p = f32[4]{{0}} parameter(0)\n  ROOT r = f32[4]{{0}} {}(p)\n}}\n"


def series(folder, opcodes):
    """One module for each opcode."""
    files = []
    for number, opcode in enumerate(opcodes):
        files.append(folder / f"{number:03}.hlo")
        files[-1].write_text(SMALL.format(opcode))
    return bisect.Files(tuple(files))


@pytest.mark.parametrize("jobs", [1, 2, 5])
@pytest.mark.parametrize("at", [1, 2, 17, 29])
@pytest.mark.sweep
def test_the_module_at_which_it_turns_is_found(tmp_path, at, jobs):
    files = series(tmp_path, ["sine"] * at + ["cosine"] * (30 - at))
    found = bisect.Bisection(files, bisect.watch_of("check", H100, "numpy"), jobs).find()
    assert found == bisect.FirstChange(at - 1, at, "no", "differs")
    step = bisect.between(files, found)
    assert step.lines == ("-  ROOT r = f32[4]{0} sine(p)", "+  ROOT r = f32[4]{0} cosine(p)")


def test_dumps_with_other_names_differ_only_in_what_is_computed(tmp_path):
    """As two programs are, in which all instructions after a change have other numbers."""

    def chain(first, number):
        lines = ["p = f32[4]{0} parameter(0)", "q = f32[4]{0} parameter(1)"]
        lines += [f"x{number} = f32[4]{{0}} {first}(p)"]
        for n in range(number + 1, number + 20):
            lines.append(
                f'x{n} = f32[4]{{0}} add(x{n - 1}, q), metadata={{source_file="m.py" source_line={n - number}}}'
            )
        return "HloModule m\nENTRY e {\n  " + "\n  ".join([*lines[:-1], f"ROOT {lines[-1]}"]) + "\n}\n"

    for name, text in (("0", chain("sine", 1)), ("1", chain("cosine", 100))):
        (tmp_path / f"{name}.hlo").write_text(text)
    files = bisect.Files((tmp_path / "0.hlo", tmp_path / "1.hlo"))
    step = bisect.between(files, bisect.FirstChange(0, 1, "no", "differs"))
    assert step.lines == ("-  x1 = f32[4]{0} sine(p)", "+  x100 = f32[4]{0} cosine(p)") and step.sources == ()


def test_what_cannot_be_told_is_left_out(tmp_path):
    files = series(tmp_path, ["sine", "sine", "?", "?", "cosine", "cosine"])
    for number in (2, 3):
        files.files[number].write_text(SMALL.format("opaque-thing"))
    found = bisect.Bisection(files, bisect.watch_of("check", H100, "numpy", is_ours=False), 2).find()
    assert found == bisect.FirstChange(1, 4, "no", "differs", (2, 3))


def test_nothing_turns(tmp_path):
    files = series(tmp_path, ["sine"] * 3)
    assert bisect.Bisection(files, bisect.watch_of("nan", H100), 2).find() == bisect.NoChange("no")


def test_figures_nans_and_commands_turn(tmp_path):
    files = series(tmp_path, ["sine", "sine", "log", "log"])
    for number in (2, 3):
        text = files.files[number].read_text().replace("log(p)", "log(n)").replace("  ROOT", NAN)
        files.files[number].write_text(text)
    assert bisect.Bisection(files, bisect.watch_of("nan", H100), 2).find() == bisect.FirstChange(1, 2, "no", "a NaN")
    asks = bisect.by_command(Command(("grep", "-q", "sine", "{}")))
    assert bisect.Bisection(files, asks, 2).find() == bisect.FirstChange(1, 2, "status 0", "another status")
    two = (
        "HloModule m\nENTRY e {\n  p = f32[4]{0} parameter(0)\n  x = f32[4]{0} negate(p)\n  ROOT r = f32[4]{0} "
        "sine(x)\n}\n"
    )
    files.files[3].write_text(two)
    assert bisect.Bisection(files, bisect.watch_of("kernels > 1", H100), 2).find() == bisect.FirstChange(
        2, 3, "no", "kernels > 1"
    )


def rewrites(module, spoil):
    """Our steps, the `spoil`-th of which, of all that fuse, goes wrong: (number of the step, series)."""
    outcome = run(module)

    def runs(number, tell):
        observer = None if tell is None else lambda done, module, changed: tell(done.name, module)
        made = run(module, passes=outcome.pipeline, simplify="never", stop_after_step=number, observer=observer)
        if number is None or number >= spoil:
            victim = next(i for c in made.module.computations for i in c.instructions if i.opcode == "exponential")
            edit.replace_all_uses(victim, victim.operands[0])
        return made

    assert spoil <= outcome.steps
    return bisect.Rewrites(runs, outcome.steps)


@pytest.mark.parametrize("spoil", random.Random(0).sample(range(1, 24), 3))
def test_the_exact_step_of_ours_is_found(spoil):
    module = hlo_opt.parse((DUMPS / "softmax.hlo").read_text())
    found = bisect.Bisection(rewrites(module, spoil), bisect.watch_of("check", H100, "numpy"), 2).find()
    assert found == bisect.FirstChange(spoil - 1, spoil, "no", "differs")


def test_a_step_is_told_with_its_pass_its_edge_and_its_lines():
    module = hlo_opt.parse((DUMPS / "softmax.hlo").read_text())
    outcome = run(module)

    def runs(number, tell):
        observer = None if tell is None else lambda done, module, changed: tell(done.name, module)
        return run(module, passes=outcome.pipeline, simplify="never", stop_after_step=number, observer=observer)

    ours = bisect.Rewrites(runs, outcome.steps)
    told = [bisect.rewrite(ours, number) for number in range(1, outcome.steps + 1)]
    assert all(step.done_by and step.lines for step in told)
    names = {p.name for p in outcome.pipeline.passes()}
    assert {step.done_by for step in told} <= names
    fused = [step for step in told if step.about]
    assert fused and all(len(step.about) == 2 and step.sources for step in fused)
    passes = [step.done_by for step in fused]
    assert all("fus" in name for name in passes), passes


def test_fusing_that_fails_is_found_without_knowing_the_end():
    module = hlo_opt.parse((DUMPS / "softmax.hlo").read_text())
    pipeline = run(module).pipeline

    def runs(number, tell):
        observer = None if tell is None else lambda done, module, changed: tell(done.name, module)
        if number is None or number >= 7:
            raise ZeroDivisionError("seven")
        return run(module, passes=pipeline, simplify="never", stop_after_step=number, observer=observer)

    ours = bisect.Rewrites(runs, None)
    found = bisect.Bisection(ours, bisect.watch_of("check", H100, "numpy"), 2).find()
    assert (found.before, found.after) == (6, 7) and found.became.startswith("fuse: ZeroDivisionError")
    assert bisect.rewrite(ours, 7).error == "seven"


def crash():
    os.kill(os.getpid(), signal.SIGKILL)


def never_end():
    while True:
        time.sleep(1)


@pytest.mark.parametrize("fault", [crash, never_end])
def test_a_step_after_which_nothing_ends_is_found(fault, monkeypatch):
    monkeypatch.setattr(bisect, "LEAST", 2.0)
    monkeypatch.setattr(bisect, "ALLOWED", 4)
    module = hlo_opt.parse((DUMPS / "softmax.hlo").read_text())
    whole = run(module)

    def runs(number, tell):
        if number >= 3:
            fault()
        return run(module, passes=whole.pipeline, simplify="never", stop_after_step=number)

    bisection = bisect.Bisection(bisect.Rewrites(runs, 5), bisect.watch_of("check", H100, "numpy"), 2)
    found = bisection.find()
    assert found == bisect.FirstChange(2, 3, "no", bisect.ENDED)
    assert "a crash, or no end after this" in str(turn_page(bisection, found, bisect.StepDifference("", (), (), ())))


def test_a_slow_way_of_asking_has_its_own_limit(monkeypatch):
    """The first way is quick and sees nothing; the second takes longer than the limit that follows from the first."""
    monkeypatch.setattr(bisect, "LEAST", 0.5)
    monkeypatch.setattr(bisect, "ALLOWED", 2)
    module = hlo_opt.parse((DUMPS / "softmax.hlo").read_text())

    def slow(first, module, text):
        time.sleep(1.5)
        return "no"

    watch = bisect.Watch("anything", (lambda first, module, text: "no", slow))
    bisection = bisect.Bisection(bisect.Rewrites(lambda number, tell: run(module, simplify="never"), 2), watch, 2)
    assert bisection.find() == bisect.NoChange("no")


NAMES = (
    "module_0003.jit_f.0010.fusion.after_dce.before_cse.txt",
    "module_0003.jit_f.0002.simplification.after_algsimp.before_sort.txt",
    "module_0003.jit_f.before_optimizations.txt",
    "module_0003.jit_f.sm_9.0_gpu_after_optimizations.txt",
    "module_0003.jit_f.sm_9.0_gpu_after_optimizations-buffer-assignment.txt",
    "module_0003.jit_f.debug_options",
)


def test_dumps_are_sorted_by_the_number_of_the_pass(tmp_path):
    for name in NAMES:
        (tmp_path / name).write_text(SMALL.format("sine"))
    names = [bisect.dumped(tmp_path).name(n) for n in range(4)]
    assert names == [NAMES[2], NAMES[1], NAMES[0], NAMES[3]]
    assert bisect.pass_of(names[1]) == "algsimp in simplification" and not bisect.pass_of(names[0])
    (tmp_path / "module_0004.jit_g.before_optimizations.txt").write_text(SMALL.format("sine"))
    with pytest.raises(UsageError, match="2 programs"):
        bisect.dumped(tmp_path)
    assert bisect.dumped(tmp_path, "jit_g").last == 0
    with pytest.raises(UsageError, match="there is no one program 'jit_h'"):
        bisect.dumped(tmp_path, "jit_h")


@pytest.mark.parametrize("ending", [".hlo.pb", ".hlo.pb.gz", ".hlo", ".pb", ".txt.gz"])
def test_dumps_in_other_forms(tmp_path, ending):
    """XLA writes protobufs where it is told to, and both where it is told both: then the text is read."""
    for name in NAMES[:4]:
        (tmp_path / name.replace(".txt", ending)).write_text(SMALL.format("sine"))
    series = bisect.dumped(tmp_path)
    names = [series.name(n) for n in range(series.last + 1)]
    assert names == [NAMES[n].replace(".txt", ending) for n in (2, 1, 0, 3)]
    assert bisect.pass_of(names[1]) == "algsimp in simplification"
    (tmp_path / NAMES[1]).write_text(SMALL.format("sine"))
    series = bisect.dumped(tmp_path)
    assert series.last == 3 and series.name(1) == (NAMES[1] if ending != ".hlo" else NAMES[1].replace(".txt", ending))


def test_a_folder_without_dumps_is_told(tmp_path):
    with pytest.raises(UsageError, match="no modules"):
        bisect.dumped(tmp_path)


@pytest.mark.parametrize(("watch", "says"), [("chekc", "did you mean check"), ("kernel > 1", "did you mean kernels")])
def test_what_is_not_understood_is_told(watch, says):
    with pytest.raises(UsageError) as error:
        bisect.watch_of(watch, H100)
    assert says in str(error.value)


def test_a_fusing_that_fails_before_its_first_step_does_not_turn():
    class Fails:
        last, is_ours = None, True

        def module(self, number):
            raise IndexError("in a pass")

        def name(self, number):
            return f"step {number}"

    bisection = bisect.Bisection(Fails(), bisect.Watch("check", (lambda first, module, text: bisect.NO,)), jobs=1)
    found = bisection.find()
    assert isinstance(found, bisect.NoChange) and found.answer.startswith("fuse: IndexError")
    assert alone(bisection) == []
