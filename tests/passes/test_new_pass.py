"""A new fusion pass is a class and a name: running, explaining, options and the listing follow from it."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import pytest

import hlo_opt
from hlo_opt.cli.group import run
from hlo_opt.diag import Reason, UsageError
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.legality import Edge
from hlo_opt.ir import Computation
from hlo_opt.passes import parse_pipeline, pass_options, register_pass
from hlo_opt.passes.base import FusionPass
from hlo_opt.passes.table import unregister_pass

TEXT = """HloModule m

ENTRY e {
  p = f32[64]{0} parameter(0)
  a = f32[64]{0} negate(p)
  b = f32[64]{0} tanh(a)
  ROOT c = f32[64]{0} abs(b)
}
"""


@dataclass(frozen=True)
class NotOpcode:
    """Everything is worth fusing but producers of one opcode."""

    opcode: str
    any_form: ClassVar[bool] = False

    def against(self, edge: Edge, disabled: frozenset[str] = frozenset()) -> Iterator[Reason]:
        if edge.producer.opcode == self.opcode and "FUS122" not in disabled:
            yield Reason.of("FUS122", instruction=edge.producer_name, opcode=self.opcode)

    def rules_out(self, edge: Edge, disabled: frozenset[str] = frozenset()) -> bool:
        return False

    def likeness(self, edge: Edge) -> Hashable:
        return self


@dataclass(frozen=True)
class ChainFusion(FusionPass):
    """Fuse each instruction into its first user."""

    name: ClassVar[str] = "chain-fusion"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"

    but_opcode: str = "negate"

    def policy(self, engine: Engine, computation: Computation) -> NotOpcode:
        return NotOpcode(self.but_opcode)

    def looks_at(self, edge: Edge) -> bool:
        return edge.producer.opcode != "parameter"

    def fuse_in(self, computation: Computation, engine: Engine) -> bool:
        changed = False
        for producer in reversed(list(computation.instructions)):
            for user in list(producer.users)[:1]:
                wanted = self.looks_at(engine.edge(producer, user)) and self.takes(engine, producer, user)
                if wanted and engine.context.step():
                    engine.fuse(producer, user)
                    changed = True
        return changed


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    register_pass("chain-fusion", f"{__name__}:ChainFusion")
    yield
    unregister_pass("chain-fusion")


def decided(passes: str, **options: object) -> dict[tuple[str, str], tuple[str, str]]:
    """The codes and the rule of each edge."""
    _, decisions = hlo_opt.fuse(TEXT, passes=passes, simplify="never", **options)  # type: ignore[arg-type]
    return {(d.producer, d.consumer): (" ".join(r.code for r in d.reasons), d.rule) for d in decisions}


@pytest.mark.parametrize(
    ("passes", "options", "first", "second"),
    [
        ("chain-fusion", {}, "FUS122", ""),
        ("chain-fusion", {"what_if": ["FUS122"]}, "", ""),
        ("chain-fusion", {"force": [("a", "b")], "decide_again": True}, "", ""),
        ("chain-fusion{but-opcode=tanh}", {"stop_after_step": 0}, "FUS502", "FUS122"),
    ],
)
def test_what_a_run_refuses_is_explained_by_the_same_rule(
    passes: str, options: dict[str, object], first: str, second: str
):
    found = decided(passes, **options)
    assert {edge: codes for edge, (codes, _) in found.items() if "p" not in edge} == {
        ("a", "b"): first,
        ("b", "c"): second,
    }
    assert {rule for codes, rule in found.values() if codes != "FUS502"} <= {"chain-fusion"}


def test_options_are_parsed_and_checked():
    (made,) = parse_pipeline("chain-fusion{but-opcode=abs}").passes()
    assert made == ChainFusion("abs") and pass_options("chain-fusion") == {"but-opcode": ("str", "negate")}
    with pytest.raises(UsageError, match="but-opcode must be"):
        parse_pipeline("chain-fusion{but-opcode=1}")


def test_it_is_listed(capfd: pytest.CaptureFixture[str]):
    assert run(["passes"]) == 0
    listed = capfd.readouterr().out
    assert "chain-fusion" in listed and "but-opcode" in listed
