"""C++ helpers for floats of 8, 6 and 4 bits: their values in a register are f32, and in memory their bits are in a byte.

One template widens and one rounds (to nearest even); a row of `SMALL_FLOATS` says what sets a type apart. What is above the range becomes infinity, NaN or the
largest value, and NaN becomes what XLA and ml_dtypes make of it in a type that has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class SmallFloat:
    """A float with a sign: bits of exponent and mantissa, the exponent's bias, and what its largest codes mean.

    ieee    infinities and NaN have the largest exponent
    nan     NaN is the largest code, and there is no infinity
    fnuz    NaN is the code that would be -0, and there is no infinity
    finite  all codes are numbers
    """

    exponent: int
    mantissa: int
    bias: int
    codes: Literal["ieee", "nan", "fnuz", "finite"]

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa


SMALL_FLOATS: Mapping[str, SmallFloat] = {
    "f4e2m1fn": SmallFloat(2, 1, 1, "finite"),
    "f6e2m3fn": SmallFloat(2, 3, 1, "finite"),
    "f6e3m2fn": SmallFloat(3, 2, 3, "finite"),
    "f8e5m2": SmallFloat(5, 2, 15, "ieee"),
    "f8e4m3": SmallFloat(4, 3, 7, "ieee"),
    "f8e4m3fn": SmallFloat(4, 3, 7, "nan"),
    "f8e4m3b11fnuz": SmallFloat(4, 3, 11, "fnuz"),
    "f8e4m3fnuz": SmallFloat(4, 3, 8, "fnuz"),
    "f8e5m2fnuz": SmallFloat(5, 2, 16, "fnuz"),
    "f8e3m4": SmallFloat(3, 4, 3, "ieee"),
}

NAMES = (*SMALL_FLOATS, "f8e8m0fnu")
"""Every float below 16 bits; f8e8m0fnu, which is an exponent alone, has helpers of its own."""

_LOAD = """
// 2^(127 - bias) moves the exponent's bias, exactly, also for denormal numbers
template <int exponent, int mantissa, int bias> INLINE float hlo_load_small(unsigned int bits) {
  const unsigned int magnitude = bits & ((1u << (exponent + mantissa)) - 1u), sign = (bits >> (exponent + mantissa) & 1u) << 31;
  const float scale = hlo_bit_cast<float>((unsigned int)(254 - bias) << 23);
  const float found = hlo_bit_cast<float>(magnitude << (23 - mantissa)) * scale;
  return hlo_bit_cast<float>(sign | hlo_bit_cast<unsigned int>(found));
}
"""

_STORE = """
// the magnitude's code, to nearest even, as if there were codes enough; x is no NaN
template <int exponent, int mantissa, int bias> INLINE unsigned int hlo_store_small(float x) {
  const unsigned int magnitude = hlo_bit_cast<unsigned int>(x) & 0x7fffffffu, least = (unsigned int)(128 - bias) << 23;
  // below the least normal number: a sum whose last bit is the least denormal number rounds
  const float shift = hlo_bit_cast<float>((unsigned int)(151 - bias - mantissa) << 23);
  const float sum = hlo_bit_cast<float>(magnitude) + shift;
  const unsigned int denormal = hlo_bit_cast<unsigned int>(sum) - hlo_bit_cast<unsigned int>(shift);
  const unsigned int half = (1u << (22 - mantissa)) - 1u, odd = magnitude >> (23 - mantissa) & 1u;
  const unsigned int normal = (magnitude - ((unsigned int)(127 - bias) << 23) + half + odd) >> (23 - mantissa);
  return magnitude < least ? denormal : normal;
}
"""


def _load_text(name: str, of: SmallFloat) -> str:
    digits, plain = of.exponent + of.mantissa, f"hlo_load_small<{of.exponent}, {of.mantissa}, {of.bias}>(bits)"
    lines = []
    if of.codes == "ieee":
        infinity = ((1 << of.exponent) - 1) << of.mantissa
        lines = [
            f"  const unsigned int magnitude = bits & {(1 << digits) - 1}u, sign = (bits & {1 << digits}u) << {31 - digits};",
            f"  if (magnitude >= {infinity}u) return hlo_bit_cast<float>(sign | 0x7f800000u | (magnitude - {infinity}u) << {23 - of.mantissa});",
        ]
    elif of.codes == "nan":
        lines = [
            f"  if ((bits & {(1 << digits) - 1}u) == {(1 << digits) - 1}u) return hlo_bit_cast<float>((bits & {1 << digits}u) << {31 - digits} | 0x7fc00000u);"
        ]
    elif of.codes == "fnuz":
        lines = [f"  if (bits == {1 << digits}u) return hlo_bit_cast<float>(0xffc00000u);"]
    return "\n".join([f"INLINE float hlo_load_{name}(unsigned char bits) {{", *lines, f"  return {plain};", "}"])


def _store_text(name: str, of: SmallFloat) -> str:
    digits = of.exponent + of.mantissa
    largest = (1 << digits) - 1
    negative = 1 << digits
    quiet, most, above = f"sign | {largest}u", largest, f"{largest}u"
    if of.codes == "ieee":
        infinity = ((1 << of.exponent) - 1) << of.mantissa
        quiet, most, above = f"sign | {infinity | 1 << (of.mantissa - 1)}u", infinity, f"{infinity}u"
    elif of.codes == "fnuz":
        quiet = f"{negative}u"
    elif of.codes == "finite":
        quiet = f"{negative}u" if of.bits == 4 else f"sign ^ {negative}u"  # a zero
    lines = [
        f"INLINE unsigned char hlo_store_{name}(float x) {{",
        f"  const unsigned int sign = (hlo_bit_cast<unsigned int>(x) >> 31) << {digits};",
        f"  const unsigned int code = hlo_store_small<{of.exponent}, {of.mantissa}, {of.bias}>(x);",
        f"  if (x != x) return (unsigned char)({quiet});",
    ]
    if of.codes == "fnuz":
        lines += [
            f"  if (code > {most}u) return (unsigned char){negative}u;",
            "  return (unsigned char)(code == 0 ? 0u : sign | code);",
        ]
    else:
        lines += [f"  return (unsigned char)(sign | (code > {most}u ? {above} : code));"]
    return "\n".join([*lines, "}"])


_EXPONENT_ONLY = {
    "hlo_load_f8e8m0fnu": """
// a power of two; the largest code is NaN
INLINE float hlo_load_f8e8m0fnu(unsigned char bits) {
  if (bits == 255u) return hlo_bit_cast<float>(0x7fc00000u);
  return hlo_bit_cast<float>(bits == 0 ? 0x00400000u : (unsigned int)bits << 23);
}
""",
    "hlo_store_f8e8m0fnu": """
// to the nearest power of two, the greater of two; there is neither a zero nor a sign
INLINE unsigned char hlo_store_f8e8m0fnu(float x) {
  const unsigned int bits = hlo_bit_cast<unsigned int>(x);
  if (!(x > 0) || bits >= 0x7f800000u) return 255;
  // as ml_dtypes has it, 2^-126 is the nearest to all that is above 2^-127 and below it
  if (bits < 0x00800000u) return bits > 0x00400000u ? 1 : 0;
  return (unsigned char)((bits + 0x400000u) >> 23);
}
""",
}


def _rows() -> dict[str, str]:
    rows = {"hlo_load_small": _LOAD, "hlo_store_small": _STORE}
    for name, of in SMALL_FLOATS.items():
        rows[f"hlo_load_{name}"] = _load_text(name, of)
        rows[f"hlo_store_{name}"] = _store_text(name, of)
    rows.update(_EXPONENT_ONLY)
    for name in NAMES:
        rows[f"hlo_round_{name}"] = (
            f"INLINE float hlo_round_{name}(float x) {{ return hlo_load_{name}(hlo_store_{name}(x)); }}"
        )
    return rows


SMALL_FLOAT_PRELUDE: Mapping[str, str] = _rows()
"""Definitions by the helper's name, as `hlo_opt.ops.elementwise_cuda` takes them."""
