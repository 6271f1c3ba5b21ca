"""A fusion that writes another one's outputs, too."""

from __future__ import annotations

import pytest
from small_modules import H100, module_of, named

import hlo_opt
from hlo_opt.fusion.context import FuseOptions, PassContext
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.join import join
from hlo_opt.fusion.outline import original_name
from hlo_opt.ir import Computation

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
            f"x = ({V}, {V}) fusion(p), kind=kLoop, calls=one x0 = {V} get-tuple-element(x), index=0 x1 = {V} get-tuple-element(x), index=1\n"
            f"  y = {V} fusion(p), kind=kLoop, calls=two ROOT r = ({V}, {V}, {V}) tuple(x0, x1, y)",
            ["negate", "exponential", "cosine"],
        ),
        (
            f"a = {V} negate(p) b = {V} exponential(p) ROOT t = ({V}, {V}) tuple(a, b)",
            f"c = {V} cosine(p) d = {V} sine(p) ROOT t = ({V}, {V}) tuple(c, d)",
            f"x = ({V}, {V}) fusion(p), kind=kLoop, calls=one x0 = {V} get-tuple-element(x), index=0 x1 = {V} get-tuple-element(x), index=1\n"
            f"  y = ({V}, {V}) fusion(p), kind=kLoop, calls=two y0 = {V} get-tuple-element(y), index=0 y1 = {V} get-tuple-element(y), index=1\n"
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
