from __future__ import annotations

import pytest

from hlo_opt.diag import Reason, reason_spec
from hlo_opt.plans import Plan, Region, choose, lowering_reason, plan, region_of
from hlo_opt.plans.limits import DEEPEST, LARGEST, nesting, values_computed
from hlo_opt.text import parse
from tests.small_modules import H100


def made(body: str, extra: str = "") -> Plan | Reason:
    """The plan of the entry's root."""
    module = parse(f"HloModule m\n{extra}\nENTRY e {{\n{body}}}\n")
    return plan(region_of(module, module.entry.root), H100)


def code(found: Plan | Reason) -> str:
    assert isinstance(found, Reason), found
    assert found.message and found.hint  # the numbers are there
    return found.code


def test_elementwise_is_a_loop() -> None:
    found = made("  p = f32[8,4]{0,1} parameter(0)\n  ROOT r = f32[8,4]{0,1} negate(p)\n")
    assert isinstance(found, Plan)
    assert (found.kind, found.launch.grid, found.launch.block) == ("loop", 1, 32)


def test_who_asks_whether_there_is_a_plan_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason comes at once, the arrangement when the plan is asked for."""
    module = parse("HloModule m\nENTRY e {\n  p = f32[8]{0} parameter(0)\n  ROOT r = f32[8]{0} negate(p)\n}\n")
    refused = parse("HloModule m\nENTRY e {\n  p = s1[8]{0} parameter(0)\n  ROOT r = s1[8]{0} negate(p)\n}\n")
    arranged: list[Region] = []
    arrange = choose._arrange
    monkeypatch.setattr(choose, "_arrange", lambda region, *rest: arranged.append(region) or arrange(region, *rest))
    assert isinstance(choose.planning_of(region_of(refused, refused.entry.root), H100), Reason)
    planning = choose.planning_of(region_of(module, module.entry.root), H100)
    assert not isinstance(planning, Reason) and not arranged
    assert planning().kind == "loop" and len(arranged) == 1


def test_type_without_lowering() -> None:
    found = made("  p = s1[8]{0} parameter(0)\n  ROOT r = s1[8]{0} negate(p)\n")
    assert code(found) == "FUS301"
    assert isinstance(found, Reason) and "s1 `parameter`" in found.message


def test_library_call() -> None:
    module = parse(
        "HloModule m\nENTRY e {\n  p = c64[8]{0} parameter(0)\n  ROOT r = c64[8]{0} fft(p), fft_type=FFT, "
        "fft_length={8}\n}\n"
    )
    found = lowering_reason(module.entry.root)
    assert found is not None and found.code == "FUS302"


@pytest.mark.parametrize(
    ("target", "why"), [("mine", "compiled code that the dump does not show"), ("TopK", "what it computes is known")]
)
def test_a_custom_call_says_whether_its_meaning_is_known(target: str, why: str) -> None:
    module = parse(
        f"HloModule m\nENTRY e {{\n  p = f32[8]{{0}} parameter(0)\n"
        f'  ROOT r = (f32[2]{{0}}, s32[2]{{0}}) custom-call(p), custom_call_target="{target}"\n}}\n'
    )
    found = lowering_reason(module.entry.root)
    assert found is not None and found.code == "FUS308" and why in found.message


def test_unknown_opcode() -> None:
    module = parse("HloModule m\nENTRY e {\n  p = f32[8]{0} parameter(0)\n  ROOT r = f32[8]{0} negate(p)\n}\n")
    module.entry.root.opcode = "mystery"
    found = lowering_reason(module.entry.root)
    assert found is not None and found.code == "FUS301" and "`mystery`" in found.message


def test_reducer_is_looked_into() -> None:
    module = parse(
        """HloModule m
f {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY e {
  p = f32[8]{0} parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[] reduce(p, z), dimensions={0}, to_apply=f
}
"""
    )
    root = module.entry.root
    assert lowering_reason(root) is None
    root.called_by("to_apply").root.opcode = "mystery"
    found = lowering_reason(root)
    assert found is not None and found.code == "FUS301"


def fused(body: str, root: str, shape: str) -> str:
    return f"""HloModule m
inner {{
{body}}}
ENTRY e {{
  q = f32[8]{{0}} parameter(0)
  ROOT f = {shape} fusion(q), kind=kLoop, calls=inner
}}
"""


def of_fusion(body: str, shape: str = "f32[8]{0}") -> Plan | Reason:
    module = parse(fused(body, "r", shape))
    return plan(region_of(module, module.entry.root), H100)


def test_large_constant() -> None:
    values = ", ".join(str(n) for n in range(1025))
    body = (
        f"  p = f32[8]{{0}} parameter(0)\n  c = f32[1025]{{0}} constant({{{values}}})\n  ROOT r = f32[1025]{{0}} "
        f"negate(c)\n"
    )
    assert code(of_fusion(body, "f32[1025]{0}")) == "FUS303"


def test_outputs_of_other_sizes_have_blocks_of_their_own() -> None:
    body = """  p = f32[8]{0} parameter(0)
  a = f32[8]{0} negate(p)
  b = f32[4]{0} slice(p), slice={[0:4]}
  ROOT r = (f32[8]{0}, f32[4]{0}) tuple(a, b)
"""
    found = of_fusion(body, "(f32[8]{0}, f32[4]{0})")
    assert isinstance(found, Plan)
    assert (found.launch.grid, found.launch.block, [s.roots for s in found.segments]) == (2, 8, [(0,), (1,)])


def test_nesting() -> None:
    lines, last = ["  p = f32[8]{0} parameter(0)\n  z = f32[] constant(0)\n"], "p"
    for number in range(DEEPEST + 1):
        lines.append(f"  v{number} = f32[8]{{0}} pad({last}, z), padding=1_-1\n")
        last = f"v{number}"
    lines.append(f"  ROOT r = f32[8]{{0}} negate({last})\n")
    assert code(of_fusion("".join(lines))) == "FUS305"
    assert isinstance(of_fusion("".join(lines).replace(f"negate({last})", f"negate(v{DEEPEST - 1})")), Plan)


def test_exponential_code() -> None:
    lines, last = ["  p = f32[8]{0} parameter(0)\n"], "p"
    for number in range(40):
        lines.append(f"  a{number} = f32[8]{{0}} reverse({last}), dimensions={{0}}\n")
        lines.append(f"  v{number} = f32[8]{{0}} add({last}, a{number})\n")
        last = f"v{number}"
    lines.append(f"  ROOT r = f32[8]{{0}} negate({last})\n")
    found = of_fusion("".join(lines))
    assert code(found) == "FUS306"
    assert isinstance(found, Reason) and found.numbers["limit"] == LARGEST


def test_dynamic_dimension() -> None:
    assert code(made("  p = f32[<=8]{0} parameter(0)\n  ROOT r = f32[<=8]{0} negate(p)\n")) == "FUS307"


def test_elided_constant_has_no_kernel() -> None:
    body = "  p = f32[8]{0} parameter(0)\n  c = f32[8]{0} constant({...})\n  ROOT r = f32[8]{0} add(p, c)\n"
    assert code(of_fusion(body)) == "FUS301"


def test_counts() -> None:
    module = parse(
        """HloModule m
ENTRY e {
  p = f32[8]{0} parameter(0)
  n = f32[8]{0} negate(p)
  v = f32[8]{0} reverse(n), dimensions={0}
  ROOT r = f32[8]{0} add(n, v)
}
"""
    )
    region = region_of(module, module.entry.root)
    assert values_computed(region) == 3
    from hlo_opt.plans import Region

    whole = Region(module.entry.root, module.entry, tuple(module.entry.parameters), (module.entry.root,))
    assert values_computed(whole) == 6  # the negation and the parameter at two indices each
    assert nesting(module.entry) == 0


@pytest.mark.parametrize("number", [301, 302, 303, 305, 306, 307])
def test_pages(number: int) -> None:
    spec = reason_spec(f"FUS{number}")
    assert spec.page and spec.hint and spec.fields


def test_an_elided_tuple_is_refused_by_its_kind() -> None:
    text = "HloModule m\nENTRY e {\n  ROOT c = (f32[2], f32[2]) constant({...})\n}\n"
    module = parse(text)
    found = plan(region_of(module, module.entry.root), H100)
    assert isinstance(found, Reason) and found.code == "FUS301" and "tuple" in found.message


def test_long_sorts_have_a_plan_where_they_are_asked_for() -> None:
    text = """HloModule m
less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = pred[] compare(a, b), direction=LT }
ENTRY e { p = f32[1000000]{0} parameter(0) ROOT s = f32[1000000]{0} sort(p), dimensions={0}, to_apply=less }
"""
    module = parse(text)
    region = region_of(module, module.entry.root)
    assert isinstance(plan(region, H100), Reason)
    assert isinstance(plan(region, H100, long_sorts=True), Plan)
