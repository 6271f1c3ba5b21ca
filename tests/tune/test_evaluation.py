"""What a setting gives, and the edges around it."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import hlo_opt
from hlo_opt.fusion.summary import module_summary
from hlo_opt.passes import parse_pipeline
from hlo_opt.runtime.executable import has_compiler
from hlo_opt.tune import evaluation
from hlo_opt.tune.evaluation import Evaluated, Task, around, evaluate
from hlo_opt.tune.setting import Setting
from tests.small_modules import H100

TEXT = """HloModule m

ENTRY e {
  p = f32[64]{0} parameter(0)
  a = f32[64]{0} negate(p)
  b = f32[64]{0} tanh(a)
  c = f32[64]{0} abs(a)
  ROOT t = (f32[64]{0}, f32[64]{0}) tuple(b, c)
}
"""
TASK = Task(TEXT, H100, "never")
FUSED = Setting(parse_pipeline("instruction-fusion"))
APART = Setting(parse_pipeline("dce"))


def test_the_price_is_that_of_the_fused_module() -> None:
    found = evaluate(TASK, FUSED)
    assert isinstance(found, Evaluated)
    fused, _ = hlo_opt.fuse(TEXT, passes="instruction-fusion", simplify="never", target=H100)  # type: ignore[arg-type]
    assert found.us == found.summary.est_us == module_summary(fused, H100).est_us
    assert found.summary.kernels == 2 and found.summary.launched == ()
    assert pickle.loads(pickle.dumps((TASK, FUSED, found))) == (TASK, FUSED, found)


def test_edges_are_forbidden_and_forced() -> None:
    def kernels(setting: Setting) -> int:
        found = evaluate(TASK, setting)
        assert isinstance(found, Evaluated)
        return found.summary.kernels

    assert kernels(APART) == 3
    assert kernels(Setting(FUSED.pipeline, forbid=(("a", "b"), ("a", "c")))) == 3
    assert kernels(Setting(APART.pipeline, force=(("a", "b"),))) == 2


def test_a_setting_that_gives_nothing_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = Setting(APART.pipeline, forbid=(("x", "b"),))
    assert evaluate(TASK, unknown) == "HLO300 there is no instruction 'x'"
    assert evaluate(TASK, Setting(APART.pipeline, force=(("a", "b"), ("p", "t")))) == "no refused edge is called p:t"

    def fails(*arguments: object) -> None:
        raise KeyError("some table")

    monkeypatch.setattr(evaluation, "module_summary", fails)
    assert evaluate(TASK, APART) == "KeyError: 'some table'"


def test_edges_around_a_setting() -> None:
    near = around(TASK, APART)
    assert near.inside == () and ("a", "b") in near.promising
    forbidden = around(TASK, Setting(APART.pipeline, forbid=(("a", "b"),)))
    assert ("a", "b") not in forbidden.promising
    inside = dict(around(TASK, FUSED).inside)
    assert set(inside) == {("a", "b"), ("a", "c")} and all(weight > 0 for weight in inside.values())


@pytest.mark.skipif(not has_compiler(), reason="there is no C++ compiler")
def test_a_setting_is_timed_on_a_backend() -> None:
    found = evaluate(Task(TEXT, H100, "never", backend="host"), FUSED)
    assert isinstance(found, Evaluated)
    assert found.us > 0 and found.us != found.summary.est_us


def test_real_modules_have_edges_to_try() -> None:
    path = Path(__file__).resolve().parent.parent.parent / "testdata" / "dumps" / "cross_entropy.hlo"
    setting = Setting(parse_pipeline("priority-fusion,cse,dce"))
    near = around(Task(path.read_text(encoding="utf-8"), "h100_sxm", "always"), setting)
    assert len(near.promising) > 0 and len(near.inside) > 5
