"""A producer that is kept is an output of the joint kernel."""

from kernel_pairs import INPUTS, WIDE
from small_modules import module_of, named, state_of

from hlo_opt.fusion.compatibility import MultiOutputEdge


def test_what_is_kept_is_an_output_of_its_own():
    lines = (f"a = {WIDE} negate(p)", f"b = {WIDE} tanh(a)", f"c = {WIDE} abs(a)", f"r = {WIDE} add(b, c)")
    module = module_of(*INPUTS, *lines)
    pair = MultiOutputEdge(named(module, "a"), named(module, "b"), state_of(module))
    assert sorted(r.instruction.name for r in pair.cluster().roots) == ["a", "b"]
