// Functions of f32, and some of f64, that a compiler can turn into vector code: no branches (so no && and ||, whose
// results compilers select by one), no tables, no calls. Each is within 3 ULP of the exact value, below what the op
// table allows, and keeps the NaNs, infinities and signed zeros of the C library. Polynomials are Chebyshev fits; most
// work in double, where cancellation is harmless.
#pragma once

namespace hlo {

#if defined(__FMA__) || defined(__FP_FAST_FMAF)
#define HLO_FUSED
__forceinline__ float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
__forceinline__ double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
__forceinline__ float fused(float a, float b, float c) { return a * b + c; }
__forceinline__ double fused(double a, double b, double c) { return a * b + c; }
#endif

template <typename T> __forceinline__ T polynomial(T, T c) { return c; }
// c + x * (next + x * (...))
template <typename T, typename... More> __forceinline__ T polynomial(T x, T c, More... more) {
  return fused(polynomial(x, T(more)...), x, c);
}

// adding and taking away 1.5 * 2^(mantissa bits) leaves the nearest integer, ties to even
__forceinline__ float nearest(float x) { return (x + 12582912.0f) - 12582912.0f; }
__forceinline__ double nearest(double x) { return (x + 6755399441055744.0) - 6755399441055744.0; }

__forceinline__ unsigned int sign_of(float x) { return bits_as<unsigned int>(x) & 0x80000000u; }
__forceinline__ float magnitude_of(float x) { return bits_as<float>(bits_as<unsigned int>(x) & 0x7fffffffu); }
__forceinline__ float signed_as(float magnitude, unsigned int sign) {
  return bits_as<float>(bits_as<unsigned int>(magnitude) | sign);
}
__forceinline__ double magnitude_of(double x) { return x < 0.0 ? -x : x; }
__forceinline__ float two_to(int n) { return bits_as<float>((n + 127) << 23); }
// the exponent is put in as a double's mantissa: vector units without 64-bit integer conversions have this too
__forceinline__ double two_to(double n) {
  return bits_as<double>(bits_as<long long>(n + (6755399441055744.0 + 1023.0)) << 52);
}

// A number as a float whose last bits are the nearest integer, and that integer again. What is added is 1.5 * 2^23.
__forceinline__ float counted(float x, float factor) { return fused(x, factor, 12582912.0f); }
__forceinline__ float whole_of(float counted) { return counted - 12582912.0f; }
// 2 to that integer, the bits before it being shifted out
__forceinline__ float two_to_counted(int bits) { return bits_as<float>((bits << 23) + (127 << 23)); }

// A NaN stays one throughout, whatever scales it.
__forceinline__ float exp_f32(float x) {
  float held = x > 104.0f ? 104.0f : x;
  held = held < -104.0f ? -104.0f : held;
  const float n = counted(held, 1.44269504f), whole = whole_of(n);
  const float r = fused(whole, -1.42860677e-6f, fused(whole, -0.693145752f, held));
  const float p =
      polynomial(r, 0.5f, 1.6666665459e-1f, 4.1665795894e-2f, 8.3334519073e-3f, 1.3981999507e-3f, 1.9875691500e-4f);
  const float y = 1.0f + fused(r * r, p, r);
  // in two steps, so that denormal results are rounded once
  const int bits = bits_as<int>(n), half = bits >> 1;
  return y * two_to_counted(half) * two_to_counted(bits - half);
}

// exp(x) = (1 + rest) * scale, for x between -700 and 700
struct Exponential { double rest, scale; };
__forceinline__ Exponential exponential(double x) {
  const double n = nearest(x * 1.4426950408889634);
  const double r = fused(n, -1.9082149292705877e-10, fused(n, -6.9314718036912382e-1, x));
  const double p =
      polynomial(r, 1.0, 0.5, 0.16666666666614033, 0.04166666666646685, 0.008333333367953806, 0.0013888888962454871,
                 0.00019841189752277172, 2.4801473082376823e-05, 2.763304420620944e-06, 2.7637435047143327e-07);
  return {r * p, two_to(n)};
}
__forceinline__ double exp_wide(double x) {
  const Exponential e = exponential(x);
  return fused(e.rest, e.scale, e.scale);
}
__forceinline__ double expm1_wide(double x) {
  const Exponential e = exponential(x);
  return fused(e.rest, e.scale, e.scale - 1.0);
}

// of a positive normal number
__forceinline__ double log_wide(double x) {
  const long long bits = bits_as<long long>(x), shifted = bits - 0x3fe6a09e667f3bcdll;  // sqrt(1/2)
  const long long exponent = shifted & ~0xfffffffffffffll;
  const double m = bits_as<double>(bits - exponent);
  // the exponent as a double, again by way of a mantissa: 2^52 + 2^51 + n
  const double n =
      bits_as<double>((long long)((unsigned long long)(exponent + (1024ll << 52)) >> 52) | 0x4330000000000000ll) -
      (4503599627370496.0 + 1024.0);
  const double f = m - 1.0, s = f / (f + 2.0), z = s * s;
  const double p = polynomial(z, 2.0, 0.6666666666654041, 0.4000000006688252, 0.2857141519278604, 0.22223495233290358,
                              0.18119900205824582, 0.1686299850738137);
  return fused(n, 0.6931471805599453, s * p);
}
// for x above -1
__forceinline__ double log1p_wide(double x) {
  const double u = 1.0 + x, lost = x - (u - 1.0);
  return log_wide(u) + (x > 1e15 ? 0.0 : lost / u);
}

// Of f64: within 2 ULP. The polynomials are Taylor's, whose rest is below a rounding between -log(2)/2 and log(2)/2;
// the logarithm is that of FreeBSD's msun (e_log.c).
struct Power { double rest, turns; };
// exp(x) = 2^turns (1 + rest), for x between -746 and 746
__forceinline__ Power power_f64(double x) {
  const double n = nearest(x * 1.4426950408889634);
  const double r = fused(n, -1.9082149292705877e-10, fused(n, -6.9314718036912382e-1, x));
  const double p = polynomial(r, 0.5, 0.16666666666666666, 0.041666666666666664, 0.0083333333333333332,
                              0.0013888888888888889, 0.00019841269841269841, 2.4801587301587302e-05,
                              2.7557319223985893e-06, 2.7557319223985888e-07, 2.505210838544172e-08,
                              2.08767569878681e-09, 1.6059043836821613e-10);
  return {fused(r * r, p, r), n};
}
__forceinline__ double exp_f64(double x) {
  double held = x > 746.0 ? 746.0 : x;
  held = held < -746.0 ? -746.0 : held;
  const Power power = power_f64(held);
  // in two steps, so that denormal results are rounded once
  const double half = nearest(power.turns * 0.5);
  return (1.0 + power.rest) * two_to(half) * two_to(power.turns - half);
}
__forceinline__ double expm1_f64(double x) {
  double held = x > 710.0 ? 710.0 : x;
  held = held < -50.0 ? -50.0 : held;
  const Power power = power_f64(held);
  const double half = nearest(power.turns * 0.5), rest = power.turns - half;
  // 2^turns (1 + rest) - 1, scaled in two steps, since 2^1024 is no number
  const double y = fused(power.rest, two_to(half), two_to(half) - two_to(-rest)) * two_to(rest);
  return x == x & x != 0.0 ? y : x;
}
__forceinline__ double log_f64(double x) {
  const bool tiny = x < 2.2250738585072014e-308;
  const double scaled = tiny ? x * 18014398509481984.0 : x;
  const long long bits = bits_as<long long>(scaled), shifted = bits - 0x3fe6a09e667f3bcdll;
  const long long exponent = shifted & ~0xfffffffffffffll;
  const double f = bits_as<double>(bits - exponent) - 1.0, s = f / (2.0 + f), z = s * s, square = 0.5 * f * f;
  const double p = z * polynomial(z, 6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01,
                                  2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01,
                                  1.479819860511658591e-01);
  // the exponent as a double, by way of a mantissa: 2^52 + 2^51 + n
  const long long biased = (long long)((unsigned long long)(exponent + (1024ll << 52)) >> 52);
  double n = bits_as<double>(biased | 0x4330000000000000ll) - (4503599627370496.0 + 1024.0);
  n = tiny ? n - 54.0 : n;
  const double low = n * 1.90821492927058770002e-10;
  const double y = n * 6.93147180369123816490e-01 - ((square - (s * (square + p) + low)) - f);
  const double special = x == 0.0 ? -__builtin_inf() : (x < 0.0 ? __builtin_nan("") : x);
  return x > 0.0 & x < __builtin_inf() ? y : special;
}
__forceinline__ double log1p_f64(double x) {
  const double u = 1.0 + x, y = log_f64(u) + (x - (u - 1.0)) / u;
  return x > -1.0 & x < __builtin_inf() & x != 0.0 ? y : (x == 0.0 ? x : log_f64(u));
}
__forceinline__ double tanh_f64(double x) {
  const double a = magnitude_of(x), e = expm1_f64(2.0 * (a > 22.0 ? 22.0 : a)), y = e / (e + 2.0);
  return x == 0.0 ? x : (x < 0.0 ? -y : y);
}

// n log(2) + log(1 + f), for 1 + f between sqrt(1/2) and sqrt(2)
__forceinline__ float log_near_one(float f, float n) {
  const float z = f * f;
  const float p =
      polynomial(f, 3.3333331174e-1f, -2.4999993993e-1f, 2.0000714765e-1f, -1.6668057665e-1f, 1.4249322787e-1f,
                 -1.2420140846e-1f, 1.1676998740e-1f, -1.1514610310e-1f, 7.0376836292e-2f);
  const float tail = fused(n, -2.12194440e-4f, f * z * p);
  return fused(n, 0.693359375f, f + fused(-0.5f, z, tail));
}
__forceinline__ float log_f32(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const float scaled = tiny ? x * 8388608.0f : x, shift = tiny ? -23.0f : 0.0f;
  const int bits = bits_as<int>(scaled), exponent = (bits - 0x3f3504f3) & ~0x7fffff;
  const float y = log_near_one(bits_as<float>(bits - exponent) - 1.0f, (float)(exponent >> 23) + shift);
  const float special = x == 0.0f ? -__builtin_inff() : (x < 0.0f ? __builtin_nanf("") : x);
  return x > 0.0f & x < __builtin_inff() ? y : special;
}

__forceinline__ float expm1_f32(float x) {
  float held = x > 89.0f ? 89.0f : x;
  held = held < -20.0f ? -20.0f : held;
  const float n = nearest(held * 1.44269504f);
  const float r = fused(n, -1.42860677e-6f, fused(n, -0.693145752f, held));
  const float p =
      polynomial(r, 0.5f, 1.6666665459e-1f, 4.1665795894e-2f, 8.3334519073e-3f, 1.3981999507e-3f, 1.9875691500e-4f);
  // 2^n (1 + exp(r) - 1) - 1, scaled in two steps, since 2^128 is no float
  const int whole = (int)n, half = whole >> 1;
  const float y = fused(fused(r * r, p, r), two_to(half), two_to(half) - two_to(half - whole)) * two_to(whole - half);
  return x == x & x != 0.0f ? y : x;
}
// 1 + x = 2^e (1 + f), and f is found from x, not from the sum, in which bits are lost
__forceinline__ float log1p_f32(float x) {
  const bool inside = x > -1.0f & x < __builtin_inff();
  const float held = inside ? x : 0.0f;
  const int sum = bits_as<int>(1.0f + held), exponent = (sum - 0x3f3504f3) & ~0x7fffff;
  const float scale = bits_as<float>(0x3f800000 - exponent);  // a float where x is small enough to need it
  const float f = held > 1e9f ? bits_as<float>(sum - exponent) - 1.0f : fused(held, scale, scale - 1.0f);
  const float y = log_near_one(f, (float)(exponent >> 23));
  const float special = x == -1.0f ? -__builtin_inff() : (x < -1.0f ? __builtin_nanf("") : x);
  return inside & x != 0.0f ? y : special;
}
// x times a number and a fraction of polynomials in x^2, fitted to the least relative error up to where the function is
// 1 to a float's last digit. The number, a power of two, is about what is left of the function over x there: so the
// fraction, in which most roundings are, counts little where the function's digits are finest. The last rounding may
// pass 1, so it is held.
__forceinline__ float held_between(float x, float most) {
  const float y = x > most ? most : x;
  return y < -most ? -most : y;
}
__forceinline__ float tanh_f32(float x) {
  const float held = held_between(x, 9.0f), z = held * held;
  const float p = polynomial(z, 0.875f, 7.5442837332e-2f, 2.6269587619e-4f, -2.0476534344e-5f, -8.4134902668e-8f);
  const float q = polynomial(z, 1.0f, 4.6717263127e-1f, 2.5890031174e-2f, 3.2909622125e-4f, 7.8042930147e-7f);
  return held_between(fused(held, p / q, 0.125f * held), 1.0f);
}
__forceinline__ float sinh_f32(float x) {
  const float a = magnitude_of(x);
  const double e = expm1_wide(a < 90.0f ? (double)a : 90.0);
  return x == x ? signed_as((float)(0.5 * (e + e / (e + 1.0))), sign_of(x)) : x;
}
__forceinline__ float cosh_f32(float x) {
  const float a = magnitude_of(x);
  const double e = exp_wide(a < 90.0f ? (double)a : 90.0);
  return x == x ? (float)(0.5 * (e + 1.0 / e)) : x;
}
__forceinline__ float asinh_f32(float x) {
  const float a = magnitude_of(x);
  const double w = a < __builtin_inff() ? (double)a : 0.0;
  const float y = (float)log1p_wide(w + w * w / (1.0 + __builtin_sqrt(1.0 + w * w)));
  return a < __builtin_inff() ? signed_as(y, sign_of(x)) : x;
}
__forceinline__ float acosh_f32(float x) {
  const bool inside = x >= 1.0f & x < __builtin_inff();
  const double t = inside ? (double)x - 1.0 : 0.0;
  const float y = (float)log1p_wide(t + __builtin_sqrt(t * (t + 2.0)));
  return inside ? y : (x < 1.0f ? __builtin_nanf("") : x);
}
__forceinline__ float atanh_f32(float x) {
  const float a = magnitude_of(x);
  const double w = a < 1.0f ? (double)a : 0.0;
  const float y = signed_as((float)(0.5 * log1p_wide(2.0 * w / (1.0 - w))), sign_of(x));
  return a < 1.0f ? y : (a == 1.0f ? signed_as(__builtin_inff(), sign_of(x)) : (x == x ? __builtin_nanf("") : x));
}

__forceinline__ float cbrt_f32(float x) {
  const float a = magnitude_of(x);
  const bool inside = a > 0.0f & a < __builtin_inff();
  const float y = (float)exp_wide(log_wide(inside ? (double)a : 1.0) * (1.0 / 3.0));
  return inside ? signed_as(y, sign_of(x)) : x;
}

// between 0 and 1
__forceinline__ double atan_wide(double q) {
  const double z = q * q;
  return q * polynomial(z, 0.9999999999997503, -0.3333333332178936, 0.19999999111055317, -0.14285687114466458,
                        0.11110673031018721, -0.09086614943187307, 0.07664478571689197, -0.06540753735617814,
                        0.05469215352750745, -0.04251230971326825, 0.028635978078612356, -0.01541842821689594,
                        0.00603674840024144, -0.001498589233214204, 0.00017499456787335328);
}
__forceinline__ float atan2_f32(float y, float x) {
  const double a = (double)magnitude_of(y), b = (double)magnitude_of(x);
  const double low = a < b ? a : b, high = a < b ? b : a;
  const double q = low == high ? (high == 0.0 ? 0.0 : 1.0) : (high < __builtin_inf() ? low / high : 0.0);
  const double first = atan_wide(q), turned = a > b ? 1.5707963267948966 - first : first;
  const double angle = sign_of(x) ? 3.141592653589793 - turned : turned;
  return x == x & y == y ? signed_as((float)angle, sign_of(y)) : x + y;
}
__forceinline__ float atan_f32(float x) { return atan2_f32(x, 1.0f); }
// asin of a number between 0 and 1/2
__forceinline__ double asin_wide(double s) {
  const double z = s * s;
  return s * polynomial(z, 1.0, 0.16666666666340896, 0.07500000051380545, 0.044642825614968934, 0.030382932785170326,
                        0.022354182872642073, 0.017554969597646405, 0.01252237278626284, 0.01802056812632752,
                        -0.007492196033458288, 0.03164882455479252);
}
__forceinline__ float asin_f32(float x) {
  const float a = magnitude_of(x);
  const double w = a <= 1.0f ? (double)a : 0.0, half = asin_wide(w > 0.5 ? __builtin_sqrt(0.5 * (1.0 - w)) : w);
  const float y = (float)(w > 0.5 ? 1.5707963267948966 - 2.0 * half : half);
  return a <= 1.0f ? signed_as(y, sign_of(x)) : (x == x ? __builtin_nanf("") : x);
}
__forceinline__ float acos_f32(float x) {
  const float a = magnitude_of(x);
  const double w = a <= 1.0f ? (double)a : 0.0, half = asin_wide(w > 0.5 ? __builtin_sqrt(0.5 * (1.0 - w)) : w);
  const double positive = w > 0.5 ? 2.0 * half : 1.5707963267948966 - half;
  return a <= 1.0f ? (float)(sign_of(x) ? 3.141592653589793 - positive : positive) : (x == x ? __builtin_nanf("") : x);
}

// An angle as whole quarter turns, modulo 4, and the rest in radians, between -pi/4 and pi/4.
struct Angle { double rest; int quarters; };
// Of any float. A large one is a whole multiple of a power of two, so 2/pi may be replaced by that power times 2/pi
// modulo 4. It has three parts; the products with the first two are exact, as a factor has 24 bits and they have 29 (M.
// Payne and R. Hanek, "Radian reduction for trigonometric functions", 1983, with few steps instead of a table, which
// masked vector code could not read).
__forceinline__ Angle angle_of(float x) {
  const double a = (double)magnitude_of(x);
  const bool level_1 = a >= 0x1p54, level_2 = a >= 0x1p85, level_3 = a >= 0x1p116;
  const double y = a * (level_3 ? 0x1p-93 : level_2 ? 0x1p-62 : level_1 ? 0x1p-31 : 1.0);
  const double high = y * (level_3   ? 0x1.1f534ddp+1
                           : level_2 ? 0x1.3f84eafp+1
                           : level_1 ? 0x1.9391054p+1
                                     : 0x1.45f306cp-1);
  const double mid = y * (level_3   ? 0x1.81b6c52p-28
                          : level_2 ? 0x1.47d4d37p-28
                          : level_1 ? 0x1.4fe13abp-28
                                    : 0x1.c9c882ap-29);
  const double low = y * (level_3   ? 0x1.664f10e4107f9p-57
                          : level_2 ? 0x1.c0db6295993c4p-58
                          : level_1 ? 0x1.d1f534ddc0db6p-57
                                    : 0x1.4fe13abe8fa9ap-59);
  const double p = high - 4.0 * __builtin_rint(0.25 * high), q = mid - 4.0 * __builtin_rint(0.25 * mid);
  const double m = nearest(p), n = nearest(q), near = ((p - m) + (q - n)) + low, more = nearest(near);
  return {(near - more) * 1.5707963267948966, (int)(m + n + more)};
}
// The short way, for magnitudes up to `most_near`: pi/2 in three parts (W. Cody and W. Waite, "Software Manual for the
// Elementary Functions", 1980), of which the first two have so few bits that with fused arithmetic their products are
// taken away exactly. `turns` are the quarters, as a float's last bits. Of infinities and NaNs the rest is NaN.
#ifdef HLO_FUSED
const float most_near = 71476.0f;
#else
const float most_near = 0.0f;
#endif
__forceinline__ float near_turns(float x) { return fused(magnitude_of(x), 0.636619747f, 12582912.0f); }
__forceinline__ float near_rest(float x, float turns) {
  const float n = turns - 12582912.0f;
  return fused(n, -5.39030253e-15f, fused(n, -3.13916473e-07f, fused(n, -1.57079601f, magnitude_of(x))));
}
__forceinline__ float sine_near_zero(float r) {
  const float z = r * r;
  return fused(r * z, polynomial(z, -1.6666654611e-1f, 8.3321608736e-3f, -1.9515295891e-4f), r);
}
__forceinline__ float cosine_near_zero(float r) {
  const float z = r * r;
  return fused(z * z, polynomial(z, 4.166664568298827e-2f, -1.388731625493765e-3f, 2.443315711809948e-5f),
               fused(-0.5f, z, 1.0f));
}
// of an angle with the sign of x
__forceinline__ float sine_at(float rest, unsigned int quarters, float x) {
  const float y = quarters & 1 ? cosine_near_zero(rest) : sine_near_zero(rest);
  return bits_as<float>(bits_as<unsigned int>(y) ^ ((quarters & 2) << 30) ^ sign_of(x));
}
__forceinline__ float cosine_at(float rest, unsigned int quarters) {
  const float y = quarters & 1 ? sine_near_zero(rest) : cosine_near_zero(rest);
  return bits_as<float>(bits_as<unsigned int>(y) ^ (((quarters + 1) & 2) << 30));
}
__forceinline__ float tangent_at(float rest, unsigned int quarters, float x) {
  const float s = sine_near_zero(rest), c = cosine_near_zero(rest);
  const float y = quarters & 1 ? -c / s : s / c;
  return bits_as<float>(bits_as<unsigned int>(y) ^ sign_of(x));
}
__forceinline__ float sin_f32(float x) {
  const Angle angle = angle_of(x);
  const float made = sine_at((float)angle.rest, angle.quarters, x);
  return magnitude_of(x) < __builtin_inff() ? made : x - x;
}
__forceinline__ float cos_f32(float x) {
  const Angle angle = angle_of(x);
  const float made = cosine_at((float)angle.rest, angle.quarters);
  return magnitude_of(x) < __builtin_inff() ? made : x - x;
}
__forceinline__ float tan_f32(float x) {
  const Angle angle = angle_of(x);
  const float made = tangent_at((float)angle.rest, angle.quarters, x);
  return magnitude_of(x) < __builtin_inff() ? made : x - x;
}

// Elements of an array that are soon to be read. They may lie behind its end: asking for them touches nothing.
template <typename T> __forceinline__ void ahead(const T* array, long long first, long long count) {
  const unsigned long long at = (unsigned long long)array + (unsigned long long)first * sizeof(T);
  for (long long byte = 0; byte < count * (long long)sizeof(T); byte += 64)
    __builtin_prefetch((const void*)(at + (unsigned long long)byte));
}

// Those of n numbers that are asked for. Where all of a group are near, or not finite, it goes the short way.
template <bool with_sine, bool with_cosine, bool with_tangent>
__attribute__((noinline)) static void turn(const float* __restrict x, float* __restrict sine, float* __restrict cosine,
                                           float* __restrict tangent, long long n) {
  const long long group = 32;
  for (long long first = 0, last; first < n; first = last) {
    // as many groups as go the same way
    bool far = false;
    for (last = first; last < n;) {
      const long long end = n - last < group ? n : last + group;
      unsigned int found = 0;
#pragma omp simd reduction(| : found)
      for (long long i = last; i < end; ++i)
        found |= magnitude_of(x[i]) > most_near & magnitude_of(x[i]) < __builtin_inff();
      if (last == first) far = found;
      if (far != (found != 0)) break;
      last = end;
    }
    if (far) {
#pragma omp simd
      for (long long i = first; i < last; ++i) {
        if (with_sine) sine[i] = sin_f32(x[i]);
        if (with_cosine) cosine[i] = cos_f32(x[i]);
        if (with_tangent) tangent[i] = tan_f32(x[i]);
      }
    } else {
#pragma omp simd
      for (long long i = first; i < last; ++i) {
        const float turns = near_turns(x[i]), rest = near_rest(x[i], turns);
        const unsigned int quarters = bits_as<unsigned int>(turns);
        if (with_sine) sine[i] = sine_at(rest, quarters, x[i]);
        if (with_cosine) cosine[i] = cosine_at(rest, quarters);
        if (with_tangent) tangent[i] = tangent_at(rest, quarters, x[i]);
      }
    }
  }
}

// the power of a known half of a whole number, as a product
__forceinline__ float pow_of_halves(float x, int halves) {
  const bool is_whole = halves % 2 == 0;
  const double w = !is_whole & x == -__builtin_inff() ? -(double)x : (double)x;
  double made = is_whole ? 1.0 : __builtin_sqrt(w) + 0.0;
#pragma GCC unroll 8
  for (int k = 2; k <= (halves < 0 ? -halves : halves); k += 2) made *= w;
  made = is_whole ? made : made + 0.0;  // never -0
  made = halves < 0 ? 1.0 / made : made;
  const float near = (float)made;
  return made == made ? near : near + 0.0f;  // keeps the rounding, as hlo_rounded does
}
// one of two by a mask of all bits or none
__forceinline__ float masked(int mask, float a, float b) {
  return bits_as<float>((bits_as<int>(a) & mask) | (bits_as<int>(b) & ~mask));
}
__forceinline__ float pow_f32(float x, float y) {
  if (__builtin_constant_p(y) && y + y == (float)(int)(y + y) && y >= -4.0f && y <= 4.0f)
    return pow_of_halves(x, (int)(y + y));
  const float a = magnitude_of(x), b = magnitude_of(y);
  const bool inside = a > 0.0f & a < __builtin_inff() & b < __builtin_inff();
  double power = (inside ? (double)y : 0.0) * log_wide(inside ? (double)a : 1.0);
  power = power > 200.0 ? 200.0 : (power < -200.0 ? -200.0 : power);
  // exp_wide rounds to a double first; the float's own rounding then sees 29 bits more
  float made = (float)exp_wide(power);
  // one of x and y may be the same for all lanes: GCC 12 has no vector code for what is selected by a condition that
  // is, so such conditions are masks
  const bool grows = (a > 1.0f) == (y > 0.0f);
  made = inside ? made : masked(-(int)(a == 1.0f), 1.0f, masked(-(int)grows, __builtin_inff(), 0.0f));
  // an even y forgets the sign of x, an odd one keeps it, any other has no real power of a negative number; floats from
  // 2^24 on are even
  const float held = masked(-(int)(b < 16777216.0f), b, 0.0f);
  const int whole = (int)held, integral = -(int)((float)whole == held), odd = integral & -(whole & 1);
  made = bits_as<float>(bits_as<unsigned int>(made) | (sign_of(x) & (unsigned int)odd));
  const int real = integral | -(int)(x >= 0.0f) | -(int)(x == -__builtin_inff());
  made = masked(real, made, __builtin_nanf(""));
  made = __builtin_isunordered(x, y) ? x + y : made;
  return masked(-(int)(x == 1.0f) | -(int)(y == 0.0f), 1.0f, made);
}

// Exact, for any two: multiples of y times 2^252, 2^224, ... are taken away, the nearest each time. A multiple has 29
// bits and y 24, so products and differences are exact in double.
__forceinline__ float fmod_f32(float x, float y) {
  const double b = (double)magnitude_of(y), inverse = 1.0 / b;
  double rest = (double)magnitude_of(x);
#pragma GCC unroll 16
  for (int k = 252; k >= 0; k -= 28) {
    const double scale = two_to((double)k), n = nearest(rest * (inverse * two_to((double)-k)));
    rest = fused(-n, b * scale, rest);
  }
  const float made = signed_as((float)(rest < 0.0 ? rest + b : rest), sign_of(x));
  const bool is_finite = magnitude_of(x) < __builtin_inff();
  const float known = is_finite & y == y & y != 0.0f ? made : __builtin_nanf("");
  return is_finite & magnitude_of(y) == __builtin_inff() ? x : known;
}

// z / w as `hlo_complex_divide` has it, without branches
template <typename C> __forceinline__ C complex_divide(C z, C w) {
  using T = decltype(z.re);
  const T a = z.re, b = z.im, c = w.re, d = w.im, x = c < 0 ? -c : c, y = d < 0 ? -d : d;
  const bool first = x >= y, by_zero = c == 0 & d == 0;
  const T ratio = (first ? d : c) / (first ? c : d), scale = (T)1 / ((first ? c : d) + (first ? d : c) * ratio);
  const T m = first ? a : b, n = first ? b : a, difference = n - m * ratio, other = m * ratio - n;
  T re = by_zero ? a / (T)0 : (m + n * ratio) * scale, im = by_zero ? b / (T)0 : (first ? difference : other) * scale;
  const bool a_finite = a - a == 0, b_finite = b - b == 0, c_finite = c - c == 0, d_finite = d - d == 0;
  const bool known = (re == re | im == im) & (!by_zero | (re - re == 0 & im - im == 0));
  const bool of_zero = by_zero & (a == a | b == b);
  const bool of_infinity = ((a == a & !a_finite) | (b == b & !b_finite)) & c_finite & d_finite;
  const bool by_infinity = ((c == c & !c_finite) | (d == d & !d_finite)) & a_finite & b_finite;
  const T infinity = (T)__builtin_inf(), signed_infinity = __builtin_signbit(c) ? -infinity : infinity;
  const T e = __builtin_copysign((T)(a == a & !a_finite), a), f = __builtin_copysign((T)(b == b & !b_finite), b);
  const T g = __builtin_copysign((T)(c == c & !c_finite), c), h = __builtin_copysign((T)(d == d & !d_finite), d);
  const T zero_re = (T)0 * (a * g + b * h), zero_im = (T)0 * (b * g - a * h);
  const T large_re = infinity * (e * c + f * d), large_im = infinity * (f * c - e * d);
  const T special_re = of_zero ? signed_infinity * a : (of_infinity ? large_re : (by_infinity ? zero_re : re));
  const T special_im = of_zero ? signed_infinity * b : (of_infinity ? large_im : (by_infinity ? zero_im : im));
  return C(known ? re : special_re, known ? im : special_im);
}

// as the hyperbolic tangent
__forceinline__ float erf_f32(float x) {
  const float held = held_between(x, 3.95f), z = held * held;
  const float p = polynomial(z, 8.7837914386e-1f, 6.5771106098e-2f, 2.4235164113e-2f, 4.4181382917e-5f,
                             -7.9815096715e-6f, -7.4317980961e-6f);
  const float q =
      polynomial(z, 1.0f, 5.0308200826e-1f, 1.1455588223e-1f, 1.5054260535e-2f, 1.1706127152e-3f, 3.7830739012e-5f);
  return held_between(fused(held, p / q, 0.25f * held), 1.0f);
}

// NaN wins from either side, and 0 over -0. What a processor gives for two that are equal, or of which one is NaN, is
// the second: of both ways round it has both. A NaN's exponent is all ones, and stays so with other bits beside it.
// Beside a constant one comparison is enough.
template <typename Bits, typename T> __forceinline__ T greatest_of(T a, T b) {
  const T one = a > b ? a : b, two = b > a ? b : a;
  const Bits x = bits_as<Bits>(one), y = bits_as<Bits>(two);
  return bits_as<T>((x | y) & ((x & y) | (Bits)(~(Bits)0 >> 1)));  // the sign only where both have it
}
template <typename Bits, typename T> __forceinline__ T least_of(T a, T b) {
  const T one = a < b ? a : b, two = b < a ? b : a;
  return bits_as<T>((Bits)(bits_as<Bits>(one) | bits_as<Bits>(two)));
}
template <typename T> __forceinline__ T greatest_beside(T a, T known) {
  return known != known || (__builtin_signbit(known) ? a < known : a <= known) ? known : a;
}
template <typename T> __forceinline__ T least_beside(T a, T known) {
  return known != known || (__builtin_signbit(known) ? a >= known : a > known) ? known : a;
}
template <typename T> __forceinline__ T maximum(T a, T b) { return a >= b | a != a ? a : b; }
template <typename T> __forceinline__ T minimum(T a, T b) { return a <= b | a != a ? a : b; }
#define HLO_EXTREMES(T, Bits)                                        \
  template <> __forceinline__ T maximum<T>(T a, T b) {               \
    if (__builtin_constant_p(b)) return greatest_beside(a, b);       \
    if (__builtin_constant_p(a)) return greatest_beside(b, a);       \
    return greatest_of<Bits>(a, b);                                  \
  }                                                                  \
  template <> __forceinline__ T minimum<T>(T a, T b) {               \
    if (__builtin_constant_p(b)) return least_beside(a, b);          \
    if (__builtin_constant_p(a)) return least_beside(b, a);          \
    return least_of<Bits>(a, b);                                     \
  }
HLO_EXTREMES(float, unsigned int)
HLO_EXTREMES(double, unsigned long long)
#undef HLO_EXTREMES

// halves away from zero
__forceinline__ float round_f32(float x) {
  const float a = magnitude_of(x), cut = __builtin_truncf(a);
  return signed_as(a - cut >= 0.5f ? cut + 1.0f : cut, sign_of(x));
}

// Of integers. x / 0 is all ones and x % 0 is x; the least integer by -1 is itself, with the rest 0. By a power of two:
// what rounds towards zero is added before the shift. GCC 12 makes no vector code of its own way, which asks for signs.
template <typename T> __forceinline__ T shifted(T a, T b) {
  const T sign = (T)(a >> (sizeof(T) * 8 - 1)), rest = (T)(sign & (T)(b - 1));
  return (T)((T)((unsigned long long)a + (unsigned long long)rest) >> __builtin_ctzll((unsigned long long)b));
}
template <typename T> __forceinline__ bool is_known_power(T b) {
  return __builtin_constant_p(b) && (T)-1 < (T)0 && b > 0 && (b & (T)(b - 1)) == 0;
}
template <typename T> __forceinline__ T divide(T a, T b) {
  if (is_known_power(b)) return shifted(a, b);
  if (b == 0) return (T)-1;
  if ((T)-1 < (T)0 && b == (T)-1) return (T)(0ull - (unsigned long long)a);
  return (T)(a / b);
}
template <typename T> __forceinline__ T remainder(T a, T b) {
  if (is_known_power(b)) return (T)(a - (T)((unsigned long long)shifted(a, b) * (unsigned long long)b));
  if (b == 0) return a;
  if ((T)-1 < (T)0 && b == (T)-1) return (T)0;
  return (T)(a % b);
}

}  // namespace hlo

#define acosf(x) hlo::acos_f32(x)
#define acoshf(x) hlo::acosh_f32(x)
#define asinf(x) hlo::asin_f32(x)
#define asinhf(x) hlo::asinh_f32(x)
#define atanf(x) hlo::atan_f32(x)
#define atan2f(...) hlo::atan2_f32(__VA_ARGS__)  // arguments may be a pack (HLO_EACH)
#define atanhf(x) hlo::atanh_f32(x)
#define cbrtf(x) hlo::cbrt_f32(x)
#define cosf(x) hlo::cos_f32(x)
#define coshf(x) hlo::cosh_f32(x)
#define erff(x) hlo::erf_f32(x)
#define exp(x) hlo::exp_f64(x)
#define expf(x) hlo::exp_f32(x)
#define expm1(x) hlo::expm1_f64(x)
#define expm1f(x) hlo::expm1_f32(x)
#define fmodf(...) hlo::fmod_f32(__VA_ARGS__)
#define log(x) hlo::log_f64(x)
#define logf(x) hlo::log_f32(x)
#define log1p(x) hlo::log1p_f64(x)
#define log1pf(x) hlo::log1p_f32(x)
#define powf(...) hlo::pow_f32(__VA_ARGS__)
#define roundf(x) hlo::round_f32(x)
#define sinf(x) hlo::sin_f32(x)
#define sinhf(x) hlo::sinh_f32(x)
#define tanf(x) hlo::tan_f32(x)
#define tanh(x) hlo::tanh_f64(x)
#define tanhf(x) hlo::tanh_f32(x)
