"""Modules that comparisons are tested with."""

LOOP = """HloModule m

round {
  s = (s32[], f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[8]{0} get-tuple-element(s), index=1
  y = f32[8]{0} tanh(x)
  ROOT t = (s32[], f32[8]{0}) tuple(j, y)
}

going {
  s = (s32[], f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(9)
  ROOT l = pred[] compare(i, n), direction=LT
}

ENTRY e {
  p = f32[8]{0} parameter(0)
  z = s32[] constant(0)
  v = f32[8]{0} exponential(p)
  s = (s32[], f32[8]{0}) tuple(z, v)
  w = (s32[], f32[8]{0}) while(s), condition=going, body=round
  ROOT r = f32[8]{0} get-tuple-element(w), index=1
}
"""
