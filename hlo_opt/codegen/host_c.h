// What the C library gives a kernel, for all forms of kernels on the host.
#pragma once

#define HLO_INLINE inline __attribute__((always_inline))

// Only what kernels call is declared: <cmath> alone would take longer to compile than most kernels.
#define HLO_MATH_1(name) double name(double); float name##f(float);
#define HLO_MATH_2(name) double name(double, double); float name##f(float, float);
extern "C" {
HLO_MATH_1(acos) HLO_MATH_1(acosh) HLO_MATH_1(asin) HLO_MATH_1(asinh) HLO_MATH_1(atan) HLO_MATH_1(atanh)
HLO_MATH_1(cbrt) HLO_MATH_1(ceil) HLO_MATH_1(cos) HLO_MATH_1(cosh) HLO_MATH_1(erf) HLO_MATH_1(erfc)
HLO_MATH_1(exp) HLO_MATH_1(exp2) HLO_MATH_1(expm1) HLO_MATH_1(fabs) HLO_MATH_1(floor) HLO_MATH_1(lgamma)
HLO_MATH_1(log) HLO_MATH_1(log10) HLO_MATH_1(log1p) HLO_MATH_1(log2) HLO_MATH_1(nearbyint) HLO_MATH_1(rint)
HLO_MATH_1(round) HLO_MATH_1(sin) HLO_MATH_1(sinh) HLO_MATH_1(sqrt) HLO_MATH_1(tan) HLO_MATH_1(tanh)
HLO_MATH_1(tgamma) HLO_MATH_1(trunc)
HLO_MATH_2(atan2) HLO_MATH_2(copysign) HLO_MATH_2(fmax) HLO_MATH_2(fmin) HLO_MATH_2(fmod) HLO_MATH_2(hypot)
HLO_MATH_2(nextafter) HLO_MATH_2(pow) HLO_MATH_2(remainder)
double fma(double, double, double);
float fmaf(float, float, float);
double ldexp(double, int);
float ldexpf(float, int);
void* memcpy(void*, const void*, __SIZE_TYPE__) noexcept;
void* memset(void*, int, __SIZE_TYPE__) noexcept;
}
#undef HLO_MATH_1
#undef HLO_MATH_2

#define isnan(x) __builtin_isnan(x)
#define isinf(x) __builtin_isinf(x)
#define isfinite(x) __builtin_isfinite(x)
#define signbit(x) __builtin_signbit(x)

namespace hlo {

template <typename To, typename From> HLO_INLINE To bits_as(From from) {
  To to;
  static_assert(sizeof(To) == sizeof(From), "");
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}

}  // namespace hlo

HLO_INLINE float __int_as_float(int x) { return hlo::bits_as<float>(x); }
HLO_INLINE float __uint_as_float(unsigned int x) { return hlo::bits_as<float>(x); }
HLO_INLINE unsigned int __float_as_uint(float x) { return hlo::bits_as<unsigned int>(x); }
HLO_INLINE double __longlong_as_double(long long x) { return hlo::bits_as<double>(x); }

namespace hlo {

// the lane whose value a shuffle gives
HLO_INLINE int lane_at(int self, int lane, int width) { return self / width * width + lane % width; }
HLO_INLINE int lane_down(int self, int distance, int width) {
  return self % width + distance < width ? self + distance : self;
}
HLO_INLINE int lane_up(int self, int distance, int width) { return self % width >= distance ? self - distance : self; }
HLO_INLINE int lane_xor(int self, int mask, int width) {
  return (self ^ mask) / width <= self / width ? self ^ mask : self;
}

}  // namespace hlo
