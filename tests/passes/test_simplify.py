"""inline, cse and dce."""

import hlo_opt
from hlo_opt.ir import Module


def after(passes: str, text: str) -> Module:
    fused, _ = hlo_opt.fuse(hlo_opt.parse("HloModule m\n\n" + text), passes=passes, simplify="never")
    hlo_opt.verify(fused)
    return fused


def names(module: Module) -> list[str]:
    return [i.name for i in module.entry.instructions]


def test_cse_merges_equal_values_only():
    found = after(
        "cse",
        """ENTRY e {
  p = f32[8]{0} parameter(0)
  q = f32[8]{0} parameter(1)
  a = f32[8]{0} add(p, q)
  b = f32[8]{0} add(q, p)
  c = f32[8]{0} subtract(p, q)
  d = f32[8]{0} subtract(q, p)
  one = f32[] constant(1)
  uno = f32[] constant(1.0)
  ROOT t = (f32[8]{0}, f32[8]{0}, f32[8]{0}, f32[8]{0}, f32[], f32[]) tuple(a, b, c, d, one, uno)
}
""",
    )
    assert names(found) == ["p", "q", "a", "c", "d", "one", "t"]
    assert [o.name for o in found.entry.root.operands] == ["a", "a", "c", "d", "one", "one"]


def test_cse_leaves_elided_constants_effects_and_layouts():
    text = """ENTRY e {
  a = f32[2000]{0} constant({...})
  b = f32[2000]{0} constant({...})
  z = f32[] constant(0)
  r = f32[8]{0} rng(z, z), distribution=rng_uniform
  s = f32[8]{0} rng(z, z), distribution=rng_uniform
  p = f32[8,4]{1,0} parameter(0)
  x = f32[8,4]{1,0} negate(p)
  y = f32[8,4]{0,1} negate(p)
  ROOT t = (f32[2000]{0}, f32[2000]{0}, f32[8]{0}, f32[8]{0}, f32[8,4]{1,0}, f32[8,4]{0,1}) tuple(a, b, r, s, x, y)
}
"""
    assert names(after("cse", text)) == ["a", "b", "z", "r", "s", "p", "x", "y", "t"]


def test_cse_looks_into_bodies_and_reducers():
    text = """f {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  x = f32[] add(a, b)
  y = f32[] add(b, a)
  ROOT m = f32[] maximum(x, y)
}

ENTRY e {
  p = f32[8,4]{1,0} parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[8]{0} reduce(p, z), dimensions={1}, to_apply=f
}
"""
    found = after("cse", text)
    reducer = found.entry.root.called_by("to_apply")
    assert [i.name for i in reducer.instructions] == ["a", "b", "x", "m"]


def test_dce_keeps_parameters_effects_and_control():
    text = """unused {
  ROOT x = f32[] parameter(0)
}

ENTRY e {
  p = f32[8]{0} parameter(0)
  q = f32[8]{0} parameter(1)
  gone = f32[8]{0} add(p, q)
  gone2 = f32[8]{0} negate(gone)
  z = f32[] constant(0)
  r = f32[8]{0} rng(z, z), distribution=rng_uniform
  first = f32[8]{0} abs(p)
  ROOT n = f32[8]{0} negate(p), control-predecessors={first}
}
"""
    found = after("dce", text)
    assert names(found) == ["p", "q", "z", "r", "first", "n"]
    assert [c.name for c in found.computations] == ["e"]


def test_inline_takes_calls_apart_and_keeps_names_that_die():
    text = """inner {
  p = f32[8]{0} parameter(0)
  ROOT n = f32[8]{0} negate(p)
}

outer {
  q = f32[8]{0} parameter(0)
  a = f32[8]{0} call(q), to_apply=inner
  ROOT b = f32[8]{0} call(a), to_apply=inner
}

ENTRY e {
  x = f32[8]{0} parameter(0)
  ROOT c = f32[8]{0} call(x), to_apply=outer
}
"""
    found = after("inline", text)
    assert [i.opcode for i in found.entry.instructions] == ["parameter", "negate", "negate"]
    assert len(found.computations) == 1


def test_inline_of_fusions_leaves_library_kernels():
    body = """body {
  p = f32[8]{0} parameter(0)
  ROOT n = f32[8]{0} negate(p)
}

ENTRY e {
  x = f32[8]{0} parameter(0)
  ROOT f = f32[8]{0} fusion(x), kind=KIND, calls=body
}
"""
    for kind, stays in (
        ("kLoop", False),
        ("kInput", False),
        ('kCustom, backend_config={"fusion_backend_config":{"kind":"__triton"}}', False),
        ('kCustom, backend_config={"fusion_backend_config":{"kind":"__triton_gemm"}}', True),
        ("kCustom", True),
    ):
        text = body.replace(
            "kind=KIND, calls=body", f"kind={kind.split(',')[0]}, calls=body" + "".join(kind.partition(",")[1:])
        )
        found = after("inline{fusions=true}", text)
        assert (found.entry.root.opcode == "fusion") == stays, kind
