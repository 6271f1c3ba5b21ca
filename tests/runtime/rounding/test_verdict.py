from hlo_opt.runtime.rounding.verdict import unread

from .spreads import parsed


def test_outputs_that_no_input_reaches() -> None:
    body = (
        "  a = f32[4]{0} parameter(0)\n  k = f32[4]{0} constant({1, 2, 3, 4})\n  b = f32[4]{0} negate(k)\n  c = "
        "f32[4]{0} add(a, b)\n"
    )
    body += "  p = (f32[4]{0}, f32[4]{0}) tuple(b, k)\n  ROOT t = ((f32[4]{0}, f32[4]{0}), f32[4]{0}) tuple(p, c)"
    assert unread(parsed(body)) == {0, 1}
    assert unread(parsed(body.replace("parameter(0)", "constant({1, 2, 3, 4})"))) == set()
    assert unread(parsed("  a = f32[4]{0} parameter(0)\n  ROOT b = f32[4]{0} exponential(a)")) == set()
    assert unread(parsed("  a = f32[4]{0} parameter(0)\n  ROOT b = s32[4]{0} iota(), iota_dimension=0")) == {0}
    assert unread(parsed("  a = f32[0]{0} parameter(0)\n  ROOT b = s32[4]{0} iota(), iota_dimension=0")) == set()
    assert unread(parsed("  a = token[] parameter(0)\n  ROOT b = s32[4]{0} iota(), iota_dimension=0")) == set()
