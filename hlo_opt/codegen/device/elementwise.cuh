// Operations on integers and floats that HLO defines and C++ does not, and rounding to f16, bf16 and integers below
// 8 bits. NVRTC and the host's C++ compiler both read this file; device intrinsics are under __CUDA_ARCH__. A line
// `// @name` starts the definition of a helper, which may use the helpers before it.

// @HLO_PTX
// one instruction of PTX, with the operands' constraints; the host has macros of its own
#ifndef HLO_PTX_1
#define HLO_PTX_1(name, result, of_result, a, of_a) asm(name " %0, %1;" : "=" of_result(result) : of_a(a))
#define HLO_PTX_2(name, result, of_result, a, b, of_both) \
  asm(name " %0, %1, %2;" : "=" of_result(result) : of_both(a), of_both(b))
#define HLO_PTX_3(name, result, of_result, a, b, c, of_all) \
  asm(name " %0, %1, %2, %3;" : "=" of_result(result) : of_all(a), of_all(b), of_all(c))
#define HLO_PTX_JOIN(result, low, high) asm("mov.b32 %0, {%1, %2};" : "=r"(result) : "h"(low), "h"(high))
#define HLO_PTX_SPLIT(low, high, given) asm("mov.b32 {%0, %1}, %2;" : "=h"(low), "=h"(high) : "r"(given))
#endif

// @hlo_unsigned
// the unsigned integer type of a type's width
template <typename T> struct hlo_unsigned { typedef T type; };
template <> struct hlo_unsigned<signed char> { typedef unsigned char type; };
template <> struct hlo_unsigned<short> { typedef unsigned short type; };
template <> struct hlo_unsigned<int> { typedef unsigned int type; };
template <> struct hlo_unsigned<long long> { typedef unsigned long long type; };

// @hlo_bit_cast
template <typename To, typename From> __device__ __forceinline__ To hlo_bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the width");
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

// @hlo_rounded
// a float as another type. GCC 12 takes a vector of doubles that become floats and then doubles again for the doubles
// they were, and leaves out the rounding. It does not see through a choice, of which it makes vectors too; what is
// chosen for a NaN is the same.
template <typename T, typename F> __device__ __forceinline__ T hlo_rounded(F x) {
  const T near = (T)x;
#ifdef __CUDA_ARCH__
  return near;
#else
  return sizeof(T) >= sizeof(F) || x == x ? near : near + (T)0;
#endif
}

// @hlo_divide
// x / 0 is all ones; the least integer divided by -1 is itself
template <typename T> __device__ __forceinline__ T hlo_divide(T a, T b) {
  if (b == 0) return (T)-1;
  if ((T)-1 < (T)0 && b == (T)-1) return (T)(0ull - (unsigned long long)a);
  return (T)(a / b);
}

// @hlo_remainder
// x % 0 is x; x % -1 is 0
template <typename T> __device__ __forceinline__ T hlo_remainder(T a, T b) {
  if (b == 0) return a;
  if ((T)-1 < (T)0 && b == (T)-1) return (T)0;
  return (T)(a % b);
}

// @hlo_maximum
// NaN wins from either side, and 0 over -0
template <typename T> __device__ __forceinline__ T hlo_maximum(T a, T b) { return a >= b || a != a ? a : b; }
template <> __device__ __forceinline__ float hlo_maximum<float>(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float r;
  HLO_PTX_2("max.NaN.f32", r, "f", a, b, "f");
  return r;
#else
  if (__builtin_constant_p(a)) { const float other = a; a = b; b = other; }
  // beside a constant one comparison is enough
  if (__builtin_constant_p(b)) return (__builtin_signbit(b) ? a >= b : a > b) || a != a ? a : b;
  const float same = hlo_bit_cast<float>(hlo_bit_cast<int>(a) & hlo_bit_cast<int>(b));
  return a == b ? same : (a > b || a != a ? a : b);
#endif
}
template <> __device__ __forceinline__ double hlo_maximum<double>(double a, double b) {
  const double same = hlo_bit_cast<double>(hlo_bit_cast<long long>(a) & hlo_bit_cast<long long>(b));
  return a == b ? same : (a > b || a != a ? a : b);
}

// @hlo_minimum
// NaN wins from either side, and -0 over 0
template <typename T> __device__ __forceinline__ T hlo_minimum(T a, T b) { return a <= b || a != a ? a : b; }
template <> __device__ __forceinline__ float hlo_minimum<float>(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float r;
  HLO_PTX_2("min.NaN.f32", r, "f", a, b, "f");
  return r;
#else
  if (__builtin_constant_p(a)) { const float other = a; a = b; b = other; }
  // beside a constant one comparison is enough
  if (__builtin_constant_p(b)) return (__builtin_signbit(b) ? a < b : a <= b) || a != a ? a : b;
  const float same = hlo_bit_cast<float>(hlo_bit_cast<int>(a) | hlo_bit_cast<int>(b));
  return a == b ? same : (a < b || a != a ? a : b);
#endif
}
template <> __device__ __forceinline__ double hlo_minimum<double>(double a, double b) {
  const double same = hlo_bit_cast<double>(hlo_bit_cast<long long>(a) | hlo_bit_cast<long long>(b));
  return a == b ? same : (a < b || a != a ? a : b);
}

// @hlo_multiply_high
// the upper half of the double-width product
template <typename T, int width = 8 * (int)sizeof(T)> __device__ __forceinline__ T hlo_multiply_high(T a, T b) {
  return (T)(((long long)a * (long long)b) >> width);
}
template <> __device__ __forceinline__ unsigned int hlo_multiply_high<unsigned int>(unsigned int a, unsigned int b) {
  return (unsigned int)(((unsigned long long)a * b) >> 32);
}
#ifdef __CUDA_ARCH__
template <> __device__ __forceinline__ long long hlo_multiply_high<long long>(long long a, long long b) {
  return __mul64hi(a, b);
}
template <>
__device__ __forceinline__ unsigned long long hlo_multiply_high<unsigned long long>(unsigned long long a,
                                                                                    unsigned long long b) {
  return __umul64hi(a, b);
}
#else
template <> __device__ __forceinline__ long long hlo_multiply_high<long long>(long long a, long long b) {
  return (long long)(((__int128)a * b) >> 64);
}
template <>
__device__ __forceinline__ unsigned long long hlo_multiply_high<unsigned long long>(unsigned long long a,
                                                                                    unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
#endif

// @hlo_population_count
template <typename T, int width = 8 * (int)sizeof(T)> __device__ __forceinline__ T hlo_population_count(T a) {
  const unsigned long long bits = (unsigned long long)a & ~0ull >> (64 - width);
#ifdef __CUDA_ARCH__
  return (T)(sizeof(T) > 4 ? __popcll(bits) : __popc((unsigned int)bits));
#else
  return (T)__builtin_popcountll(bits);
#endif
}

// @hlo_count_leading_zeros
template <typename T, int width = 8 * (int)sizeof(T)> __device__ __forceinline__ T hlo_count_leading_zeros(T a) {
  const unsigned long long bits = (unsigned long long)a & ~0ull >> (64 - width);
  if (bits == 0) return (T)width;
#ifdef __CUDA_ARCH__
  return (T)(__clzll(bits) - (64 - width));
#else
  return (T)(__builtin_clzll(bits) - (64 - width));
#endif
}

// @hlo_shift_left
// amounts are unsigned; from the width on, nothing is left
template <typename T, int width = 8 * (int)sizeof(T)> __device__ __forceinline__ T hlo_shift_left(T a, T amount) {
  typedef typename hlo_unsigned<T>::type U;
  return (U)amount < (U)width ? (T)(((U)a + 0u) << (U)amount) : (T)0;
}

// @hlo_shift_right_logical
// zeros come in from the left
template <typename T, int width = 8 * (int)sizeof(T)>
__device__ __forceinline__ T hlo_shift_right_logical(T a, T amount) {
  typedef typename hlo_unsigned<T>::type U;
  const U all = (U)(~0ull >> (64 - width));
  return (U)amount < (U)width ? (T)((U)((U)a & all) >> (U)amount) : (T)0;
}

// @hlo_shift_right_arithmetic
// copies of the top bit come in from the left
template <typename T, int width = 8 * (int)sizeof(T)>
__device__ __forceinline__ T hlo_shift_right_arithmetic(T a, T amount) {
  typedef typename hlo_unsigned<T>::type U;
  const int count = (U)amount < (U)width ? (int)amount : width - 1;
  const U all = (U)(~0ull >> (64 - width)), bits = (U)((U)a & all);
  const U shifted = (U)(bits >> count), fill = (U)~(all >> count);
  return (T)(bits >> (width - 1) ? (U)(shifted | fill) : shifted);
}

// @hlo_power
// by squaring over the low six bits of the exponent; of exponents with the top bit set only powers of 1 and -1 are not
// 0
template <typename T> __device__ __forceinline__ T hlo_power(T a, T exponent) {
  typedef typename hlo_unsigned<T>::type U;
  if ((U)exponent >> (8 * sizeof(T) - 1)) {
    if (a == (T)-1) return exponent & 1 ? (T)-1 : (T)1;
    return (T)(a == (T)1);
  }
  unsigned long long result = 1, square = (U)a;
  for (unsigned int rest = (unsigned int)exponent & 63u; rest != 0; rest >>= 1) {
    if (rest & 1u) result *= square;
    square *= square;
  }
  return (T)result;
}

// @hlo_float_to_integer
// cut towards zero, held at the limits, 0 for NaN
template <typename T, int width = 8 * (int)sizeof(T), typename F>
__device__ __forceinline__ T hlo_float_to_integer(F x) {
  const bool is_signed = (T)-1 < (T)0;
  const int digits = width - (is_signed ? 1 : 0);
  // two to the power of digits: the first value above the range
  const F limit = (F)(1ull << (digits - 1)) * (F)2;
  const T high = (T)(~0ull >> (64 - digits)), low = is_signed ? (T)(-high - 1) : (T)0;
  if (x >= limit) return high;
  if (is_signed ? x <= -limit : x <= (F)0) return low;
  return x == x ? (T)x : (T)0;
}

// @hlo_total_order
// integers in the order of IEEE 754's totalOrder
__device__ __forceinline__ int hlo_total_order(float x) {
  const int bits = hlo_bit_cast<int>(x);
  return bits < 0 ? bits ^ 0x7fffffff : bits;
}
__device__ __forceinline__ long long hlo_total_order(double x) {
  const long long bits = hlo_bit_cast<long long>(x);
  return bits < 0 ? bits ^ 0x7fffffffffffffffll : bits;
}

// @hlo_reduce_precision
// mantissa to nearest even, exponents above the range to infinity, at or below its least to zero; NaN stays
template <typename U, int own_exponent, int own_mantissa, int exponent, int mantissa>
__device__ __forceinline__ U hlo_reduce_precision(U bits) {
  const U one = 1, sign = one << (8 * sizeof(U) - 1), infinity = ((one << own_exponent) - 1) << own_mantissa;
  if ((U)(bits & ~sign) > infinity) return bits;
  if (mantissa < own_mantissa) {
    const int dropped = mantissa < own_mantissa ? own_mantissa - mantissa : 1;
    bits += ((bits >> dropped) & one) + ((one << (dropped - 1)) - one);
    bits &= ~((one << dropped) - one);
  }
  if (exponent < own_exponent) {
    const U bias = (one << (own_exponent - 1)) - one, reduced = (one << (exponent - 1)) - one;
    const U found = bits & infinity, zero = bits & sign;
    if (found > (U)((U)(bias + reduced) << own_mantissa)) bits = zero | infinity;
    if (found <= (U)((U)(bias - reduced) << own_mantissa)) bits = zero;
  }
  return bits;
}

// @hlo_stochastic_convert
// the magnitude cut, and one more where the random number is below the fraction
template <typename T, int width, int random_width, typename F, typename U>
__device__ __forceinline__ T hlo_stochastic_convert(F x, U random) {
  const T high = (T)(~0ull >> (65 - width));
  if (!(x < (F)high && x > (F)(-high - 1))) return hlo_float_to_integer<T, width>(x);
  const double magnitude = x < 0 ? -(double)x : (double)x;
  unsigned long long count = (unsigned long long)magnitude;
  const double scale = (double)(1ull << (random_width - 1)) * 2.0;
  if ((unsigned long long)random < (unsigned long long)((magnitude - (double)count) * scale)) count += 1;
  return (T)(x < 0 ? 0ull - count : count);
}

// @hlo_load_bf16
__device__ __forceinline__ float hlo_load_bf16(unsigned short bits) {
  return hlo_bit_cast<float>((unsigned int)bits << 16);
}

// @hlo_store_bf16
// to nearest even; NaN stays
__device__ __forceinline__ unsigned short hlo_store_bf16(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  unsigned int pair;  // one number alone goes through the slow pipe of conversions, a pair does not
  HLO_PTX_2("cvt.rn.bf16x2.f32", pair, "r", 0.0f, x, "f");
  return (unsigned short)pair;
#else
  const unsigned int bits = hlo_bit_cast<unsigned int>(x);
  if (x != x) return (unsigned short)((bits >> 16) | 0x40u);
  return (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
}

// @hlo_upper_bf16
// of a number that is a bf16
__device__ __forceinline__ unsigned short hlo_upper_bf16(float x) {
#ifdef __CUDA_ARCH__
  unsigned short lower, upper;
  HLO_PTX_SPLIT(lower, upper, hlo_bit_cast<unsigned int>(x));
  return upper;
#else
  return (unsigned short)(hlo_bit_cast<unsigned int>(x) >> 16);
#endif
}

// @hlo_pair_bf16
// a register of two with a number that is a bf16 in it; the slot, which a compiler knows, says in which half. The lower
// one comes first, and has its place at once: the last of a thread may have no other
__device__ __forceinline__ unsigned int hlo_pair_bf16(unsigned int pair, int slot, float x) {
  const unsigned int bits = hlo_bit_cast<unsigned int>(x);
#ifdef __CUDA_ARCH__
  return slot % 2 ? __byte_perm(pair, bits, 0x7610) : __byte_perm(bits, bits, 0x3232);
#else
  return slot % 2 ? (pair & 0xffffu) | (bits & 0xffff0000u) : bits >> 16;
#endif
}

// @hlo_join_bf16
// a register of two with the bits of a bf16 in it, as hlo_pair_bf16
__device__ __forceinline__ unsigned int hlo_join_bf16(unsigned int pair, int slot, unsigned short bits) {
  return slot % 2 ? (pair & 0xffffu) | (unsigned int)bits << 16 : bits;
}

// @hlo_unseen_zero
// 0, which the assembler does not know: what a thread computes of it, it computes again, instead of keeping what it
// computed before. All threads of a warp have to come here
__device__ __forceinline__ unsigned int hlo_unseen_zero() {
#ifdef __CUDA_ARCH__
  return __ballot_sync(0xffffffffu, false);
#else
  return 0u;
#endif
}

// @hlo_half_bf16
// a number of a register of two; `zero`: 0, which the assembler may not know
__device__ __forceinline__ float hlo_half_bf16(unsigned int pair, int slot, unsigned int zero = 0u) {
#ifdef __CUDA_ARCH__
  HLO_PTX_1("mov.b32", pair, "r", pair, "r");  // else NVRTC looks through the pair and keeps both numbers
  if (slot % 2 == 0) return hlo_bit_cast<float>(__byte_perm(pair, zero, 0x1044));
#endif
  return hlo_bit_cast<float>(slot % 2 ? (pair & 0xffff0000u) | zero : pair << 16);
}

// @hlo_round_bf16
__device__ __forceinline__ float hlo_round_bf16(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  unsigned int pair;  // in its upper half a bf16 has its place in an f32
  HLO_PTX_2("cvt.rn.bf16x2.f32", pair, "r", x, 0.0f, "f");
  return hlo_bit_cast<float>(pair);
#else
  return hlo_load_bf16(hlo_store_bf16(x));
#endif
}

// @hlo_fused_bf16
// a * b + c of bf16 in f32 registers, rounded once: such a register is a pair whose lower half is 0, and stays one
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
__device__ __forceinline__ float hlo_fused_bf16(float a, float b, float c) {
  unsigned int pair;
  HLO_PTX_3("fma.rn.bf16x2", pair, "r", hlo_bit_cast<unsigned int>(a), hlo_bit_cast<unsigned int>(b),
            hlo_bit_cast<unsigned int>(c), "r");
  return hlo_bit_cast<float>(pair);
}
#endif

// @hlo_add_bf16
__device__ __forceinline__ float hlo_add_bf16(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return hlo_fused_bf16(a, 1.0f, b);
#else
  return hlo_round_bf16(a + b);
#endif
}

// @hlo_subtract_bf16
__device__ __forceinline__ float hlo_subtract_bf16(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return hlo_fused_bf16(b, -1.0f, a);
#else
  return hlo_round_bf16(a - b);
#endif
}

// @hlo_multiply_bf16
// adding -0 changes no product, and in both halves costs no instruction; below the least normal number a GPU rounds
// once, f32 and bf16 twice
__device__ __forceinline__ float hlo_multiply_bf16(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return hlo_fused_bf16(a, b, hlo_bit_cast<float>(0x80008000u));
#else
  return hlo_round_bf16(a * b);
#endif
}

// @hlo_load_f16
__device__ __forceinline__ float hlo_load_f16(unsigned short bits) {
#ifdef __CUDA_ARCH__
  float x;
  HLO_PTX_1("cvt.f32.f16", x, "f", bits, "h");
  return x;
#else
  const unsigned int sign = (unsigned int)(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return hlo_bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  // 2^112 moves the exponent's bias from 15 to 127, exactly, also for denormal numbers
  const float scaled = hlo_bit_cast<float>(magnitude << 13) * 5.192296858534828e+33f;
  return hlo_bit_cast<float>(sign | hlo_bit_cast<unsigned int>(scaled));
#endif
}

// @hlo_store_f16
// to nearest even; NaN stays
__device__ __forceinline__ unsigned short hlo_store_f16(float x) {
#ifdef __CUDA_ARCH__
  unsigned short bits;
  HLO_PTX_1("cvt.rn.f16.f32", bits, "h", x, "f");
  return bits;
#else
  const unsigned int bits = hlo_bit_cast<unsigned int>(x), magnitude = bits & 0x7fffffffu;
  const unsigned int sign = (bits >> 16) & 0x8000u;
  if (magnitude > 0x7f800000u) return (unsigned short)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    // adding 1/2 leaves a multiple of 2^-24, the least f16, in the low bits of the sum, rounded to nearest even
    const float sum = hlo_bit_cast<float>(magnitude) + 0.5f;
    return (unsigned short)(sign | (hlo_bit_cast<unsigned int>(sum) - 0x3f000000u));
  }
  const unsigned int rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u;
  return (unsigned short)(sign | (rounded >> 13));
#endif
}

// @hlo_pair_f16
// as hlo_pair_bf16, of a number that is an f16
__device__ __forceinline__ unsigned int hlo_pair_f16(unsigned int pair, int slot, float x) {
  const unsigned int bits = hlo_store_f16(x);
#ifdef __CUDA_ARCH__
  return slot % 2 ? __byte_perm(pair, bits, 0x5410) : bits;
#else
  return slot % 2 ? (pair & 0xffffu) | bits << 16 : bits;
#endif
}

// @hlo_half_f16
__device__ __forceinline__ float hlo_half_f16(unsigned int pair, int slot, unsigned int zero = 0u) {
#ifdef __CUDA_ARCH__
  HLO_PTX_1("mov.b32", pair, "r", pair, "r");  // as in hlo_half_bf16
#endif
  pair |= zero;
  return hlo_load_f16((unsigned short)(slot % 2 ? pair >> 16 : pair & 0xffffu));
}

// @hlo_round_f16
__device__ __forceinline__ float hlo_round_f16(float x) { return hlo_load_f16(hlo_store_f16(x)); }

// @hlo_near_vector
// where the vector begins whose element `number` has this index, or the nearest vector of an array of that size
template <typename T> __device__ __forceinline__ T hlo_near_vector(T index, int number, int vector, int size) {
  const T first = index - number;
  return (first < 0 ? 0 : first > size - vector ? size - vector : first) & -vector;  // says that it is aligned
}

// @hlo_round_s2
// the low 2 bits of an integer or of the byte that holds it
__device__ __forceinline__ signed char hlo_round_s2(int x) {
  return (signed char)((signed char)((unsigned int)x << 6) >> 6);
}

// @hlo_round_u2
// the low 2 bits of an integer or of the byte that holds it
__device__ __forceinline__ unsigned char hlo_round_u2(int x) { return (unsigned char)(x & 3); }

// @hlo_round_s4
// the low 4 bits of an integer or of the byte that holds it
__device__ __forceinline__ signed char hlo_round_s4(int x) {
  return (signed char)((signed char)((unsigned int)x << 4) >> 4);
}

// @hlo_round_u4
// the low 4 bits of an integer or of the byte that holds it
__device__ __forceinline__ unsigned char hlo_round_u4(int x) { return (unsigned char)(x & 15); }

// @hlo_prefetch
// ask for an element to be brought to L2
template <typename T> __device__ __forceinline__ void hlo_prefetch(const T* array, long long place) {
#ifdef __CUDACC__
  asm volatile("prefetch.global.L2 [%0];" : : "l"(array + place));
#else
  (void)array, (void)place;
#endif
}
