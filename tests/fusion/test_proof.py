"""The proof lets right rewrites through and catches wrong ones."""

from collections.abc import Callable

import pytest

import hlo_opt
import hlo_opt.ir
from hlo_opt.diag import ProofError
from hlo_opt.fusion.proof import prove_same_graph
from hlo_opt.ir import Attribute, Instruction, Module, edit

TEXT = """\
HloModule m, entry_computation_layout={(f32[8]{0}, f32[8]{0})->(f32[8]{0}, f32[8]{0})}

ENTRY e {
  p = f32[8]{0} parameter(0)
  q = f32[8]{0} parameter(1)
  n = f32[8]{0} negate(p)
  s = f32[8]{0} subtract(n, q)
  x = f32[8]{0} exponential(s)
  c = pred[8]{0} compare(x, q), direction=LT
  d = f32[8]{0} select(c, x, q)
  low = f32[] constant(0)
  r = f32[8]{0} rng(low, low), distribution=rng_uniform
  y = f32[8]{0} add(d, r)
  ROOT t = (f32[8]{0}, f32[8]{0}) tuple(x, y)
}
"""


def by_name(module: Module) -> dict[str, Instruction]:
    return {i.name: i for i in module.entry.instructions}


def swap_operands(i: dict[str, Instruction]) -> None:
    edit.set_operands(i["s"], [i["q"], i["n"]])


def other_value(i: dict[str, Instruction]) -> None:
    edit.replace_operand(i["d"], 1, i["s"])


def other_attribute(i: dict[str, Instruction]) -> None:
    edit.set_attribute(i["c"], "direction", Attribute.of("LE"))


def swapped_outputs(i: dict[str, Instruction]) -> None:
    edit.set_operands(i["t"], [i["y"], i["x"]])


def effect_twice(i: dict[str, Instruction]) -> None:
    edit.clone_into(i["r"].computation, i["r"], i["r"].operands)


def effect_lost(i: dict[str, Instruction]) -> None:
    edit.replace_all_uses(i["y"], i["d"])
    edit.remove(i["y"])
    edit.remove(i["r"])


def waits(i: dict[str, Instruction]) -> None:
    i["r"].control_predecessors = [i["x"]]


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (swap_operands, "output 0 .* s = "),
        (other_value, "output 1 .*: d = "),
        (other_attribute, "output 1 .* c = "),
        (swapped_outputs, "output 0"),
        (effect_twice, "side effects differ: added r"),
        (effect_lost, "output 1"),
        (waits, "r = .* waits for other values"),
    ],
)
def test_a_wrong_rewrite_is_caught(break_it: Callable[[dict[str, Instruction]], None], message: str):
    before = hlo_opt.parse(TEXT)
    after = edit.clone_module(before)
    prove_same_graph(before, after)
    break_it(by_name(after))
    with pytest.raises(ProofError, match=message):
        prove_same_graph(before, after)


def test_the_smallest_difference_is_named():
    before = hlo_opt.parse(TEXT)
    after = edit.clone_module(before)
    swap_operands(by_name(after))
    with pytest.raises(ProofError) as caught:
        prove_same_graph(before, after)
    assert "s = f32[8]{0} subtract(n, q) became s = f32[8]{0} subtract(q, n)" in str(caught.value)


def test_the_header_counts():
    before = hlo_opt.parse(TEXT)
    after = edit.clone_module(before)
    del after.attributes["entry_computation_layout"]
    with pytest.raises(ProofError, match="entry_computation_layout"):
        prove_same_graph(before, after)


def test_a_fusion_with_a_wrong_parameter_shape_is_caught():
    fused, _ = hlo_opt.fuse(hlo_opt.parse(TEXT))
    before = hlo_opt.parse(TEXT)
    fusion = next(i for i in fused.entry.instructions if i.opcode == "fusion")
    parameter = fusion.called_by("calls").parameters[0]
    parameter.shape = hlo_opt.ir.array(hlo_opt.ir.ELEMENT_TYPES["f32"], 2, 4)
    with pytest.raises(ProofError):
        prove_same_graph(before, fused)


def test_a_pass_that_lies_is_caught(monkeypatch: pytest.MonkeyPatch):
    from hlo_opt.passes.dce import DeadCodeElimination

    def lie(self: object, module: Module, context: object) -> bool:
        i = by_name(module)
        edit.set_operands(i["s"], list(reversed(i["s"].operands)))
        return True

    monkeypatch.setattr(DeadCodeElimination, "run", lie)
    with pytest.raises(ProofError):
        hlo_opt.fuse(hlo_opt.parse(TEXT), passes="dce", simplify="never")


DRAWS = """\
HloModule m

ENTRY e {
  low = f32[] constant(0)
  high = f32[] constant(1)
  a = f32[4]{0} rng(low, high), distribution=rng_uniform
  b = f32[4]{0} rng(low, high), distribution=rng_uniform
  x = f32[4]{0} negate(a)
  y = f32[4]{0} negate(b)
  ROOT r = f32[4]{0} subtract(x, y)
}
"""


def test_two_draws_are_two_values():
    """With one number for both, their difference is zero, and that was proved."""
    fused, _ = hlo_opt.fuse(hlo_opt.parse(DRAWS))
    left, right = next(i for c in fused.computations for i in c.instructions if i.opcode == "subtract").operands
    assert left is not right
    with pytest.raises(ProofError, match="equal side effects"):
        prove_same_graph(hlo_opt.parse(DRAWS), hlo_opt.parse(DRAWS.replace("negate(b)", "negate(a)")))
    prove_same_graph(hlo_opt.parse(DRAWS), hlo_opt.parse(DRAWS.replace("(x, y)", "(y, x)")))
