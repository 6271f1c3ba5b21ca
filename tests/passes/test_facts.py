"""What passes note of a computation holds until it is edited, whatever passes run in between: what cse and dce leave
out for it, they would find nothing in."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlo_opt
from hlo_opt.analysis.graph.identity import identical
from hlo_opt.analysis.targets import DEFAULT_TARGET, target
from hlo_opt.fusion.context import FuseOptions, PassContext
from hlo_opt.ir import Called, Module, edit
from hlo_opt.passes import run
from hlo_opt.passes.base import Pass
from hlo_opt.passes.cse import CommonSubexpressionElimination
from hlo_opt.passes.dce import DeadCodeElimination

DUMPS = sorted(
    (Path(__file__).resolve().parents[2] / "testdata" / "dumps").glob("*.hlo"), key=lambda p: p.stat().st_size
)


def looks_anew(step: Pass, module: Module, changed: bool) -> None:
    """After each pass, what is noted is true, and a snapshot is a copy; after cse and dce, they find nothing in a copy."""
    for computation in module.computations:
        values = [v for i in computation.instructions for v in i.attributes.values() if isinstance(v, Called)]
        assert list(computation.called) == [c for v in values for c in v.computations], (step.name, computation.name)
    if isinstance(step, CommonSubexpressionElimination | DeadCodeElimination):
        copy = edit.clone_module(module)
        again = type(step)().run(copy, PassContext(FuseOptions(target(DEFAULT_TARGET))))
        assert not again, step.name
    assert identical(edit.snapshot(module), edit.clone_module(module)), step.name  # of which nothing is noted


@pytest.mark.sweep
@pytest.mark.parametrize("path", DUMPS[:90:3], ids=lambda p: p.stem)
def test_nothing_is_left_out_that_is_to_do(path: Path) -> None:
    module = hlo_opt.parse(path.read_text(encoding="utf-8"), filename=path.name)
    run(module, observer=looks_anew)


def test_a_pass_that_leaves_something_is_seen() -> None:
    text = "HloModule m\n\nENTRY e {\n  a = f32[] parameter(0)\n  b = f32[] negate(a)\n  ROOT r = f32[] tanh(a)\n}\n"
    with pytest.raises(AssertionError):
        looks_anew(DeadCodeElimination(), hlo_opt.parse(text), changed=False)
