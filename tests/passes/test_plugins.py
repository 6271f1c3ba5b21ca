"""Passes and choices of plugins: used and listed like the program's own, and blamed by name when they are broken."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Literal

import pytest

import hlo_opt
from hlo_opt.cli.group import run
from hlo_opt.diag import Reason, UsageError
from hlo_opt.diag.reason import forget_reasons
from hlo_opt.fusion.legality import Edge
from hlo_opt.ir import Module
from hlo_opt.passes import pass_names
from hlo_opt.passes.base import Pass, PassContext

TEXT = """HloModule m

ENTRY e {
  p = f32[64]{0} parameter(0)
  s = f32[64]{0} sine(p)
  n = f32[64]{0} negate(s)
  ROOT t = f32[64]{0} tanh(n)
}
"""


@dataclass(frozen=True)
class Greet(Pass):
    """Leave a word in the module's name. It does no harm."""

    name: ClassVar[str] = "acme-greet"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"

    word: str = "hello"

    def run(self, module: Module, context: PassContext) -> bool:
        if module.name.endswith(self.word):
            return False
        module.name += f"_{self.word}"
        return True


@dataclass(frozen=True)
class Stumble(Pass):
    """Fail."""

    name: ClassVar[str] = "acme-stumble"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"

    def run(self, module: Module, context: PassContext) -> bool:
        raise ZeroDivisionError("one divided\nby nothing")


@dataclass(frozen=True)
class Odd(Pass):
    """Have an option of a type that no pipeline can spell."""

    name: ClassVar[str] = "acme-odd"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"

    names: tuple[str, ...] = ()


def no_sines(edge: Edge) -> Reason | None:
    """Keep sines apart. They are nobody's business."""
    if edge.producer.opcode != "sine":
        return None
    return Reason.of("FUS503", producer=edge.producer_name, consumer=edge.consumer_name)


def never_decides(edge: Edge) -> bool:
    return True


def fails(edge: Edge) -> Reason | None:
    raise KeyError("nothing")


def test_a_pass_of_a_plugin_runs_and_takes_options(fake_plugins) -> None:
    fake_plugins("hlo_opt.passes", **{"acme-greet": f"{__name__}:Greet"})
    fused, _ = hlo_opt.fuse(hlo_opt.parse(TEXT), passes="fixpoint(acme-greet{word=again},dce)")
    assert fused.name == "m_again"
    assert "acme-greet" in pass_names()
    with pytest.raises(UsageError, match="did you mean acme-greet"):
        hlo_opt.fuse(hlo_opt.parse(TEXT), passes="acme-greeet")


def test_it_is_listed_with_its_package(fake_plugins, capfd: pytest.CaptureFixture[str]) -> None:
    fake_plugins("hlo_opt.passes", **{"acme-greet": f"{__name__}:Greet"})
    fake_plugins("hlo_opt.choices", **{"no-sines": f"{__name__}:no_sines"})
    assert run(["passes"]) == 0
    out = capfd.readouterr().out
    assert "acme-greet (keeps the graph, from fake 1.0): Leave a word in the module's name\n" in out
    assert "no-sines (from fake 1.0): Keep sines apart\n" in out


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("no_such_module_here:X", "ModuleNotFoundError"),
        (f"{__name__}:no_sines", "is not a class derived from"),
        (f"{__name__}:Greet", "whose `name` is 'acme-x'"),
    ],
)
def test_a_broken_pass_is_named_where_it_is_asked_for(value: str, why: str, fake_plugins) -> None:
    fake_plugins("hlo_opt.passes", **{"acme-x": value})
    hlo_opt.fuse(hlo_opt.parse(TEXT), passes="dce")  # nobody asks for it
    with pytest.raises(UsageError, match="plugin 'acme-x'") as caught:
        hlo_opt.fuse(hlo_opt.parse(TEXT), passes="dce,acme-x")
    assert caught.value.code == "HLO310" and why in caught.value.message and caught.value.column == 5


def test_options_that_no_pipeline_can_spell_are_refused(fake_plugins) -> None:
    fake_plugins("hlo_opt.passes", **{"acme-odd": f"{__name__}:Odd"})
    with pytest.raises(UsageError, match="has an option names that is no bool, int, float or str with a default"):
        hlo_opt.fuse(hlo_opt.parse(TEXT), passes="acme-odd")


def test_a_pass_that_fails_is_named(fake_plugins, tmp_path, capfd: pytest.CaptureFixture[str]) -> None:
    fake_plugins("hlo_opt.passes", **{"acme-stumble": f"{__name__}:Stumble"})
    (tmp_path / "m.hlo").write_text(TEXT)
    assert run(["fuse", str(tmp_path / "m.hlo"), "--passes", "acme-stumble"]) == 2
    err = capfd.readouterr().err
    assert err.startswith("HLO310 plugin 'acme-stumble'")
    assert "failed: ZeroDivisionError: one divided by nothing (test_plugins.py:" in err


def test_a_pass_that_takes_a_name_of_ours_is_refused(fake_plugins) -> None:
    fake_plugins("hlo_opt.passes", dce=f"{__name__}:Greet")
    with pytest.raises(UsageError) as caught:
        hlo_opt.fuse(hlo_opt.parse(TEXT), passes="cse")
    assert caught.value.code == "HLO311"


def test_a_choice_refuses_edges_where_it_is_asked_for(fake_plugins) -> None:
    fake_plugins("hlo_opt.choices", **{"no-sines": f"{__name__}:no_sines"})

    def refused(**options: object) -> dict[tuple[str, str], list[str]]:
        _, decisions = hlo_opt.fuse(hlo_opt.parse(TEXT), passes="instruction-fusion", **options)
        return {(d.producer, d.consumer): [r.code for r in d.reasons] for d in decisions if not d.fused}

    assert refused() == {}
    assert refused(choices=["no-sines"]) == {("s", "n"): ["FUS503"]}
    assert refused(choices=["no-sines"], force=[("s", "n")]) == {}
    assert refused(choices=["no-sines"], what_if=["FUS503"]) == {}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (f"{__name__}:never_decides", "answered with bool, not with a Reason or None"),
        (f"{__name__}:fails", "failed: KeyError: 'nothing' \\(test_plugins.py:"),
        (f"{__name__}:TEXT", "cannot be called"),
        ("no_such_module_here:X", "ModuleNotFoundError"),
    ],
)
def test_a_broken_choice_is_named(value: str, why: str, fake_plugins) -> None:
    fake_plugins("hlo_opt.choices", mine=value)
    with pytest.raises(UsageError, match=why) as caught:
        hlo_opt.fuse(hlo_opt.parse(TEXT), passes="instruction-fusion", choices=["mine"])
    assert caught.value.code == "HLO310" and "plugin 'mine'" in caught.value.message


def test_an_unknown_choice_names_the_nearest(fake_plugins) -> None:
    fake_plugins("hlo_opt.choices", **{"no-sines": f"{__name__}:no_sines"})
    with pytest.raises(UsageError, match="there is no choice 'no-sine'") as caught:
        hlo_opt.fuse(hlo_opt.parse(TEXT), choices=["no-sine"])
    assert caught.value.hint == "did you mean no-sines?"


REDUCTIONS = """HloModule m

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY e {
  p = f32[64,128,128]{2,1,0} parameter(0)
  zero = f32[] constant(0)
  r = f32[64,128]{1,0} reduce(p, zero), dimensions={2}, to_apply=sum
  n = f32[64,128]{1,0} negate(r)
  ROOT s = f32[64]{0} reduce(n, zero), dimensions={1}, to_apply=sum
}
"""


def test_the_plugin_that_the_readme_shows_works(root, tmp_path, monkeypatch, fake_plugins) -> None:
    readme = (root / "README.md").read_text()
    (source,) = re.findall(r"```python\n(from hlo_opt.diag import Reason, ReasonSpec\n.*?)```", readme, re.DOTALL)
    (tmp_path / "acme_fusion.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    fake_plugins("hlo_opt.choices", **{"one-reduction": "acme_fusion:one_reduction"})
    fake_plugins("hlo_opt.reasons", acme="acme_fusion:TWO_REDUCTIONS")
    module = hlo_opt.parse(REDUCTIONS)
    _, decisions = hlo_opt.fuse(module, passes="instruction-fusion", choices=["one-reduction"])
    reasons = {str(r) for d in decisions for r in d.reasons}
    assert "ACM101 two-reductions: the kernel would hold 2 reductions" in reasons
    forget_reasons()
