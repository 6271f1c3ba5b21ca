// Floats of 16 bits: numbers rounded to them, and those in memory, as code that a compiler can turn into vector code.
#pragma once

namespace hlo {

// To the nearest bf16, ties to even, and still a float. In 32 bits throughout: numbers of 16 bits between two
// operations would be packed and unpacked each time.
__forceinline__ unsigned int rounded_bf16(unsigned int bits) {
  return (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u;
}
__forceinline__ float round_bf16(float x) {
  const unsigned int bits = bits_as<unsigned int>(x), quiet = (bits & 0xffff0000u) | 0x400000u;
  return bits_as<float>(x == x ? rounded_bf16(bits) : quiet);
}
__forceinline__ unsigned short store_bf16(float x) {
  return (unsigned short)(bits_as<unsigned int>(round_bf16(x)) >> 16);
}
// of bf16: a NaN that an operation makes or hands on has no digits that rounding would carry
__forceinline__ float add_bf16(float a, float b) { return bits_as<float>(rounded_bf16(bits_as<unsigned int>(a + b))); }
__forceinline__ float subtract_bf16(float a, float b) {
  return bits_as<float>(rounded_bf16(bits_as<unsigned int>(a - b)));
}
__forceinline__ float multiply_bf16(float a, float b) {
  return bits_as<float>(rounded_bf16(bits_as<unsigned int>(a * b)));
}

// To the nearest f16, ties to even, and still a float: what is added has its last digit where the f16 has it. From
// 65520 on all is infinite, whatever became of the sum; so the comparison, and the sign, which a zero loses, wait for
// nothing.
__forceinline__ float round_f16(float x) {
  int power = bits_as<int>(x) & 0x7f800000;
  power = power < 0x38800000 ? 0x38800000 : power;  // 2^-14: below it digits stay where they are
  const float shift = bits_as<float>(power + 0x06c00000);  // 1.5 * 2^13 times as much
  const float y = (x + shift) - shift;
  return signed_as(magnitude_of(x) >= 65520.0f ? __builtin_inff() : y, sign_of(x));
}

// `hlo_float_to_integer` without branches: what is out of range or NaN takes part in a conversion of the least number
template <bool is_narrow, typename T> struct Whole { typedef T type; };
template <typename T> struct Whole<true, T> { typedef int type; };
template <typename T, int width = 8 * (int)sizeof(T), typename F> __forceinline__ T float_to_integer(F x) {
  typedef typename Whole<sizeof(T) < 4, T>::type Wide;
  const bool is_signed = (T)-1 < (T)0;
  const int digits = width - (is_signed ? 1 : 0);
  const F limit = (F)(1ull << (digits - 1)) * (F)2, least = is_signed ? -limit : (F)0;
  F held = x > least ? x : least;
  held = held < limit ? held : least;
  Wide made = (Wide)held;
  made = x >= limit ? (Wide)(T)(~0ull >> (64 - digits)) : made;
  return (T)(x == x ? made : (Wide)0);
}

// f16 as memory has it, without branches
__forceinline__ float load_f16(unsigned short half) {
  const int magnitude = half & 0x7fff;
  const float scaled = bits_as<float>(magnitude << 13) *
                       5.192296858534828e+33f;  // 2^112: from the bias 15 to 127, also of denormal numbers
  const int beyond = magnitude << 13 | 0x7f800000, made = magnitude >= 0x7c00 ? beyond : bits_as<int>(scaled);
  return signed_as(bits_as<float>(made), (unsigned int)(half & 0x8000) << 16);
}
__forceinline__ unsigned short store_f16(float x) {
  const int a = bits_as<int>(magnitude_of(x));
  const int tiny = bits_as<int>(magnitude_of(x) + 0.5f) - 0x3f000000;  // the sum's last digit is the least f16
  const int near = (a + 0xfff + (a >> 13 & 1) - 0x38000000) >> 13, quiet = 0x7e00 | (a >> 13 & 0x3ff);
  int made = a < 0x38800000 ? tiny : near;
  made = a >= 0x477ff000 ? 0x7c00 : made;
  made = a > 0x7f800000 ? quiet : made;
  return (unsigned short)(made | (int)(sign_of(x) >> 16));
}
// f16 of memory as f32, and back. A vector of them is one instruction where the processor has it: of a NaN it keeps the
// digits and makes it quiet
#ifdef __F16C__
typedef short Halves __attribute__((vector_size(16)));
typedef float Floats __attribute__((vector_size(32)));
#endif
__forceinline__ void widen_f16(const unsigned short* __restrict from, float* __restrict to, long long n) {
  long long i = 0;
#ifdef __F16C__
  for (; i + 8 <= n; i += 8) {
    Halves halves;
    __builtin_memcpy(&halves, from + i, 16);
    const Floats floats = __builtin_ia32_vcvtph2ps256(halves);
    __builtin_memcpy(to + i, &floats, 32);
  }
#endif
#pragma omp simd
  for (long long k = i; k < n; ++k) to[k] = load_f16(from[k]);
}
__forceinline__ void narrow_f16(const float* __restrict from, unsigned short* __restrict to, long long n) {
  long long i = 0;
#ifdef __F16C__
  for (; i + 8 <= n; i += 8) {
    Floats floats;
    __builtin_memcpy(&floats, from + i, 32);
    const Halves halves = __builtin_ia32_vcvtps2ph256(floats, 0);  // to the nearest, ties to even
    __builtin_memcpy(to + i, &halves, 16);
  }
#endif
#pragma omp simd
  for (long long k = i; k < n; ++k) to[k] = store_f16(from[k]);
}

}  // namespace hlo
