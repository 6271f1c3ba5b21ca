"""Fusing moves instructions; where they stood in the text stays known."""

from __future__ import annotations

import pytest
from small_modules import H100, module_of, named

import hlo_opt
from hlo_opt.fusion.context import FuseOptions, PassContext
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.outline import join, original_name, start_fusion
from hlo_opt.ir import Computation

TEXT = """HloModule m

half {
  a = f32[4096]{0} parameter(0)
  c = f32[] constant(0.5)
  b = f32[4096]{0} broadcast(c), dimensions={}
  ROOT h = f32[4096]{0} multiply(a, b)
}

ENTRY e {
  p = f32[4096]{0} parameter(0)
  n = f32[4096]{0} negate(p)
  f = f32[4096]{0} fusion(n), kind=kLoop, calls=half
  g = f32[4096]{0} exponential(f)
  ROOT r = f32[4096]{0} add(g, n)
}
"""


@pytest.mark.parametrize("passes", ["instruction-fusion", "priority-fusion", None])
def test_what_moves_into_a_fusion_keeps_its_line(passes: str | None) -> None:
    fused, _ = hlo_opt.fuse(hlo_opt.parse(TEXT, filename="m.hlo"), passes=passes, simplify="never")
    fusions = [i for i in fused.entry.instructions if i.opcode == "fusion"]
    lines = {"negate": 12, "exponential": 14, "add": 15, "multiply": 7, "broadcast": 6}
    moved = [m for fusion in fusions for m in fusion.called_by("calls").instructions if m.opcode in lines]
    assert len(moved) > 2
    for member in moved:
        span = fused.span(member)
        assert span is not None and span.line == lines[member.opcode], member


def test_a_fusion_says_what_its_first_member_said() -> None:
    said = {"metadata": '{op_name="n"}', "frontend_attributes": '{a="b"}', "sharding": "{replicated}"}
    line = ", ".join(["r = f32[64]{0} reverse(p), dimensions={0}", *(f"{name}={text}" for name, text in said.items())])
    module = module_of("p = f32[64]{0} parameter(0)", line)
    before = {name: attribute.text for name, attribute in module.entry.root.attributes.items()}
    fusion = start_fusion(module.entry.root)
    assert module.entry.root is fusion
    kept = {name: attribute.text for name, attribute in fusion.attributes.items() if name not in ("kind", "calls")}
    assert kept == {name: before[name] for name in said}


V = "f32[4096]{0}"


def joined(first: str, second: str, user: str) -> Computation:
    """The body of the one fusion that two siblings become."""
    module = hlo_opt.parse(f"""HloModule m

one {{
  p = {V} parameter(0)
  {first}
}}

two {{
  p = {V} parameter(0)
  {second}
}}

ENTRY e {{
  p = {V} parameter(0)
  {user}
}}
""")
    fused, _ = hlo_opt.fuse(module, passes="multi-output-fusion", simplify="never")
    (fusion,) = (i for i in fused.entry.instructions if i.opcode == "fusion")
    return fusion.called_by("calls")


@pytest.mark.parametrize(
    ("first", "second", "user", "outputs"),
    [
        (
            f"a = {V} negate(p) b = {V} exponential(p) ROOT t = ({V}, {V}) tuple(a, b)",
            f"ROOT c = {V} cosine(p)",
            f"x = ({V}, {V}) fusion(p), kind=kLoop, calls=one x0 = {V} get-tuple-element(x), index=0 x1 = {V} "
            f"get-tuple-element(x), index=1\n"
            f"  y = {V} fusion(p), kind=kLoop, calls=two ROOT r = ({V}, {V}, {V}) tuple(x0, x1, y)",
            ["negate", "exponential", "cosine"],
        ),
        (
            f"a = {V} negate(p) b = {V} exponential(p) ROOT t = ({V}, {V}) tuple(a, b)",
            f"c = {V} cosine(p) d = {V} sine(p) ROOT t = ({V}, {V}) tuple(c, d)",
            f"x = ({V}, {V}) fusion(p), kind=kLoop, calls=one x0 = {V} get-tuple-element(x), index=0 x1 = {V} "
            f"get-tuple-element(x), index=1\n"
            f"  y = ({V}, {V}) fusion(p), kind=kLoop, calls=two y0 = {V} get-tuple-element(y), index=0 y1 = {V} "
            f"get-tuple-element(y), index=1\n"
            f"  ROOT r = ({V}, {V}, {V}, {V}) tuple(x0, x1, y0, y1)",
            ["negate", "exponential", "cosine", "sine"],
        ),
    ],
    ids=["a tuple and an array", "two tuples"],
)
def test_one_tuple_holds_all_outputs(first: str, second: str, user: str, outputs: list[str]) -> None:
    body = joined(first, second, user)
    assert [i.opcode for i in body.instructions].count("tuple") == 1
    assert sorted(o.opcode for o in body.root.operands) == sorted(outputs)


def test_a_kernel_of_several_outputs_has_the_name_of_the_first() -> None:
    lines = [f"{name} = {V} {opcode}(p)" for name, opcode in (("a", "negate"), ("b", "tanh"), ("c", "cosine"))]
    module = module_of(f"p = {V} parameter(0)", *lines, f"r = ({V}, {V}, {V}) tuple(a, b, c)")
    engine = Engine(module, PassContext(FuseOptions(H100)))
    fusion = named(module, "a")
    for number, name in enumerate("bc", start=2):
        fusion = join(engine, named(module, name), fusion)
        assert original_name(fusion, engine.origins) == "a"
        root = fusion.called_by("calls").root
        assert [o.opcode for o in root.operands] == ["negate", "tanh", "cosine"][:number]
        assert [i.opcode for i in root.computation.instructions].count("tuple") == 1
