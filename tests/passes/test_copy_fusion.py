import hlo_opt
from hlo_opt.ir import Module

FUSED = """fused {
  p = f32[8,8]{1,0} parameter(0)
  m = f32[8,8]{1,0} multiply(p, p)
  ROOT n = f32[8,8]{1,0} negate(m)
}

"""
PAIR = """fused {
  p = f32[8,8]{1,0} parameter(0)
  m = f32[8,8]{1,0} multiply(p, p)
  n = f32[8,8]{1,0} negate(m)
  ROOT t = (f32[8,8]{1,0}, f32[8,8]{1,0}) tuple(m, n)
}

"""
SUM = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n\n"


def fuse(body: str, head: str = FUSED) -> Module:
    text = f"HloModule m\n\n{head}ENTRY e {{\n{body}\n}}\n"
    fused = hlo_opt.fuse(hlo_opt.parse(text), passes="copy-fusion", simplify="never")[0]
    hlo_opt.verify(hlo_opt.parse(str(fused)))
    return fused


def opcodes(module: Module) -> list[str]:
    skipped = ("parameter", "get-tuple-element", "tuple")
    return [i.opcode for i in module.entry.instructions if i.opcode not in skipped]


CALL = "  p = f32[8,8]{1,0} parameter(0)\n  f = f32[8,8]{1,0} fusion(p), kind=kLoop, calls=fused\n"


def test_a_copy_becomes_an_output():
    fused = fuse(CALL + "  c = f32[8,8]{1,0} copy(f)\n  ROOT t = (f32[8,8]{1,0}, f32[8,8]{1,0}) tuple(f, c)")
    assert opcodes(fused) == ["fusion"]
    fusion = next(i for i in fused.entry.instructions if i.opcode == "fusion")
    assert [i.opcode for i in fusion.called_by("calls").root.operands] == ["negate", "copy"]


def test_so_does_one_that_is_the_result():
    assert opcodes(fuse(CALL + "  ROOT c = f32[8,8]{1,0} copy(f)")) == ["fusion"]


def test_through_a_bitcast_and_an_element():
    fused = fuse(CALL + "  b = f32[64]{0} bitcast(f)\n  ROOT c = f32[64]{0} copy(b)")
    assert opcodes(fused) == ["fusion"]
    call = CALL.replace("f = f32[8,8]{1,0}", "f = (f32[8,8]{1,0}, f32[8,8]{1,0})")
    fused = fuse(
        call + "  g = f32[8,8]{1,0} get-tuple-element(f), index=1\n  c = f32[8,8]{1,0} copy(g)\n"
        "  h = f32[8,8]{1,0} get-tuple-element(f), index=0\n  ROOT t = (f32[8,8]{1,0}, f32[8,8]{1,0}) tuple(h, c)",
        PAIR,
    )
    assert opcodes(fused) == ["fusion"]


def test_a_copy_to_another_layout_stays():
    assert opcodes(fuse(CALL + "  ROOT c = f32[8,8]{0,1} copy(f)")) == ["fusion", "copy"]


def test_a_copy_that_must_wait_stays():
    body = CALL + "  a = f32[8,8]{1,0} abs(p)\n  ROOT c = f32[8,8]{1,0} copy(f), control-predecessors={a}"
    assert opcodes(fuse(body)) == ["fusion", "abs", "copy"]


def test_a_reduction_is_left_alone():
    head = (
        SUM
        + "fused {\n  p = f32[64,64]{1,0} parameter(0)\n  z = f32[] constant(0)\n  ROOT r = f32[64]{0} reduce(p, z), "
        "dimensions={1}, to_apply=sum\n}\n\n"
    )
    body = (
        "  p = f32[64,64]{1,0} parameter(0)\n  f = f32[64]{0} fusion(p), kind=kInput, calls=fused\n  ROOT c = "
        "f32[64]{0} copy(f)"
    )
    assert opcodes(fuse(body, head)) == ["fusion", "copy"]


def test_an_update_in_place_is_left_alone():
    head = (
        "fused {\n  p = f32[64]{0} parameter(0)\n  u = f32[8]{0} parameter(1)\n  i = s32[] parameter(2)\n  ROOT d = "
        "f32[64]{0} dynamic-update-slice(p, u, i)\n}\n\n"
    )
    body = (
        "  p = f32[64]{0} parameter(0)\n  u = f32[8]{0} parameter(1)\n  i = s32[] parameter(2)\n  f = f32[64]{0} "
        "fusion(p, u, i), kind=kLoop, calls=fused\n  ROOT c = f32[64]{0} copy(f)"
    )
    assert opcodes(fuse(body, head)) == ["fusion", "copy"]
