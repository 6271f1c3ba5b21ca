// Eight floats at a time, for statements that round to f16 again and again: the processor's conversions round vectors,
// but GCC 12 puts them into no vector code of its own.
#pragma once

namespace hlo {

typedef float Eight __attribute__((vector_size(32)));
typedef int Truths __attribute__((vector_size(32)));  // -1 and 0

__forceinline__ Eight eight(const float* from) {
  Eight x;
  __builtin_memcpy(&x, from, 32);
  return x;
}
__forceinline__ void put(float* to, Eight x) { __builtin_memcpy(to, &x, 32); }
__forceinline__ Eight all(Eight x) { return x; }
__forceinline__ Eight all(float x) { return Eight{x, x, x, x, x, x, x, x}; }
__forceinline__ Eight selected(Truths first, Eight a, Eight b) {
  return (Eight)((first & (Truths)a) | (~first & (Truths)b));
}

// A function of each of them; of an argument that is one float, all have that one.
struct Several {
  float at[8];
  __forceinline__ float operator[](int k) const { return at[k]; }
};
struct Same {
  float value;
  __forceinline__ float operator[](int) const { return value; }
};
__forceinline__ Several several(Eight x) {
  Several y;
  put(y.at, x);
  return y;
}
__forceinline__ Same several(float x) { return {x}; }
template <typename F, typename... X> __forceinline__ Eight of_each(F function, X... x) {
  float y[8];
#pragma omp simd
  for (int k = 0; k < 8; ++k) y[k] = function(x[k]...);
  return eight(y);
}
template <typename F> struct Each {
  F function;
  template <typename... X> __forceinline__ Eight operator()(X... x) const { return of_each(function, several(x)...); }
};
template <typename F> __forceinline__ Each<F> each(F function) { return {function}; }
#define HLO_EACH(function) hlo::each([](auto... x) __attribute__((always_inline)) { return function(x...); })

// what `round_f16` gives, but for the digits of a NaN that an f16 has none of
__forceinline__ Eight round_f16(Eight x) {
#ifdef __F16C__
  return __builtin_ia32_vcvtph2ps256(__builtin_ia32_vcvtps2ph256(x, 0));  // to the nearest, ties to even
#else
  return HLO_EACH(round_f16)(x);
#endif
}

// those of f16 in memory, of which `left` are there
__forceinline__ Eight whole_f16(const unsigned short* from) {
  float made[8];
  widen_f16(from, made, 8);
  return eight(made);
}
__attribute__((noinline)) static Eight some_f16(const unsigned short* from, long long left) {
  unsigned short halves[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  for (long long k = 0; k < left; ++k) halves[k] = from[k];
  return whole_f16(halves);
}
__forceinline__ Eight read_f16(const unsigned short* from, long long left) {
  return __builtin_expect(left >= 8, 1) ? whole_f16(from) : some_f16(from, left);
}
__forceinline__ void write_whole_f16(unsigned short* to, Eight x) {
  float given[8];
  put(given, x);
  narrow_f16(given, to, 8);
}
__attribute__((noinline)) static void write_some_f16(unsigned short* to, long long left, Eight x) {
  unsigned short halves[8];
  write_whole_f16(halves, x);
  for (long long k = 0; k < left; ++k) to[k] = halves[k];
}
__forceinline__ void write_f16(unsigned short* to, long long left, Eight x) {
  if (__builtin_expect(left >= 8, 1))
    write_whole_f16(to, x);
  else
    write_some_f16(to, left, x);
}

}  // namespace hlo
