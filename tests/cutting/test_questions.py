"""What a module may show."""

import time
from dataclasses import replace
from functools import partial

import pytest
from cutting_modules import TEXT

import hlo_opt
from hlo_opt.cutting import questions
from hlo_opt.cutting.questions import command_of, question_of
from hlo_opt.cutting.trials import Trials, left_as
from hlo_opt.diag import UsageError
from hlo_opt.passes.run import run
from hlo_opt.runtime.host.library import has_compiler
from hlo_opt.runtime.schedule import lowering


def asked(keep, text, fuse=run):
    module = questions.read(text)
    return [ask(module, text) for ask in question_of(keep, fuse, "numpy").ways()]


def wrong(module):
    """Fused, with one operation that is another."""
    outcome = run(module)
    changed = str(outcome.module).replace(" sine(", " cosine(")
    return type(outcome)(outcome.original, hlo_opt.parse(changed), outcome.pipeline, outcome.context, {}, {})


def broken(module):
    raise ZeroDivisionError


def test_a_check_that_fails_says_how():
    assert set(asked("fuse --check fails", TEXT)) == {None}
    assert set(asked("check fails", TEXT, wrong)) == {"differs"}
    (how,) = set(asked("fuse --check fails", TEXT, broken))
    assert how.startswith("fuse: ZeroDivisionError")
    assert asked("fuse fails", TEXT, broken) == [how] and asked("fuse fails", TEXT) == [None]


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize(
    ("fault", "answer"),
    [("sinf(", "differs"), ("*(volatile float*)8 + expf(", "run: HLO532"), ("expf(", None)],
)
def test_what_is_asked_of_is_the_text_of_kernels(fault, answer, monkeypatch):
    emitted = lowering.emit_kernel

    def planted(plan, in_place=()):
        made = emitted(plan, in_place)
        assert "expf(" in made.source
        return replace(made, source=made.source.replace("expf(", fault))

    monkeypatch.setattr(lowering, "emit_kernel", planted)
    module = questions.read("HloModule m\nENTRY e {\n  p = f32[9] parameter(0)\n  ROOT r = f32[9] exponential(p)\n}\n")

    def ask():
        with left_as(str):
            return questions.CheckFails(run, "host").ask(module, "host", is_quick=True)

    assert Trials(1, 60).one(ask) == answer


def test_errors_are_told_by_their_codes():
    def refuses(module):
        raise UsageError("no", code="HLO345")

    assert asked("fuse fails", TEXT, refuses) == ["fuse: HLO345"]


def test_running_it_as_it_is_may_fail():
    text = (
        "HloModule m\nENTRY e {\n p = f32[4]{0} parameter(0)\n ROOT c = f32[4]{0} custom-call(p), "
        'custom_call_target="?"\n}\n'
    )
    assert asked("run fails", text) != [None] and asked("run fails", TEXT) == [None]


def test_a_nan_is_found():
    text = "HloModule m\nENTRY e {\n c = f32[] constant(-1)\n ROOT l = f32[] log(c)\n}\n"
    assert asked("nan", text) == ["a NaN"] and asked("NaN", TEXT) == [None]


def test_codes_and_figures_are_of_the_fused_module():
    fuse = partial(run, passes="instruction-fusion")
    fused = fuse(hlo_opt.parse(TEXT)).decide()
    code = next(reason.code for d in fused if not d.fused for reason in d.reasons)
    assert asked(code, TEXT, fuse) == [code] and asked("FUS204", TEXT) == [None]
    assert asked("kernels > 1", TEXT, fuse) == ["kernels > 1"] and asked("kernels>1000", TEXT) == [None]
    assert asked("bytes >= 1e3", TEXT) == ["bytes >= 1000"] and asked("instructions == 2", TEXT) == [None]


def test_a_command_is_run_without_a_shell(tmp_path):
    assert asked("grep -q sine {}", TEXT) == ["status 0"] and asked("grep -q cosine {}", TEXT) == [None]
    assert asked("test -s {}.no", TEXT) == [None]
    file = tmp_path / "made"
    asked(f"true {{}} ; touch {file}", TEXT)
    assert not file.exists()
    assert asked(f"sh -c 'grep -q sine {{}} && touch {file}'", TEXT) == ["status 0"] and file.exists()


@pytest.mark.parametrize(
    ("keep", "says"),
    [
        ("fuse --chek fails", "did you mean fuse --check fails"),
        ("FUS999", "there is no reason 'FUS999'"),
        ("kernel > 3", "did you mean kernels"),
        ("kernels > many", "'many' is no number"),
        ("grep x", "--keep does not take 'grep x'"),
        ("no-such-program {}", "there is no program 'no-such-program'"),
        ("grep ' {}", "this is not a command"),
    ],
)
def test_what_is_not_understood_is_told(keep, says):
    with pytest.raises(UsageError) as error:
        question_of(keep, run)
    assert says in str(error.value)


def test_what_a_command_leaves_running_is_not_waited_for():
    begun = time.monotonic()
    assert command_of("sh -c 'sleep 20 & test -f {}'").status("") == 0
    assert time.monotonic() - begun < 10


def test_a_command_that_is_killed_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    command, trials = command_of("sh -c 'test -f {} && sleep 20'"), Trials(1, seconds=1)
    assert trials.one(lambda: command.status("")) is None
    command.folder.cleanup()
    assert list(tmp_path.iterdir()) == []
