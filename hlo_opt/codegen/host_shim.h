// What CUDA gives a kernel, for a C++ compiler on the host. A launcher runs blocks one after another; the threads of a block run as a loop that the compiler may
// turn into vector code, or, where they meet (barriers, shuffles) in a way that loops cannot follow, as fibres that take turns.
#pragma once

#define __global__ inline __attribute__((always_inline))
#define __device__
#define __constant__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __shared__ static __thread
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __restrict__ __restrict
#define warpSize 32
#define __builtin_assume_aligned(pointer, bytes) (pointer)  // arrays of the host may start anywhere

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

template <typename To, typename From> __forceinline__ To bits_as(From from) {
  To to;
  static_assert(sizeof(To) == sizeof(From), "");
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}

#ifdef HLO_RACES
struct Index { unsigned int x, y, z; };  // as CUDA's
#else
// signed, and given to kernels by value: the compiler then sees that neighbouring threads use neighbouring addresses
struct Index { int x, y, z; };
#endif

// the lane whose value a shuffle gives, and votes over the lanes of a warp
__forceinline__ int lane_at(int self, int lane, int width) { return self / width * width + lane % width; }
__forceinline__ int lane_down(int self, int distance, int width) { return self % width + distance < width ? self + distance : self; }
__forceinline__ int lane_up(int self, int distance, int width) { return self % width >= distance ? self - distance : self; }
__forceinline__ int lane_xor(int self, int mask, int width) { return (self ^ mask) / width <= self / width ? self ^ mask : self; }
static inline unsigned int ballot(const unsigned char* of, unsigned int mask) {
  unsigned int found = 0;
  for (int i = 0; i < 32; ++i) found |= (unsigned int)(of[i] & (mask >> i & 1u)) << i;
  return found;
}
static inline int any(const unsigned char* of, unsigned int mask) { return ballot(of, mask) != 0; }
static inline int all(const unsigned char* of, unsigned int mask) { return (ballot(of, mask) | ~mask) == ~0u; }

// hlo_near_vector where a thread's elements are no neighbours: the index itself or the nearest one, less the number
template <typename T> __forceinline__ T near_element(T index, int number, int vector, int size) {
  return (index < 0 ? 0 : index > size - 1 ? size - 1 : index) - number;
}

// blocks that count themselves: on several processors, where a launch is spread over them
static inline unsigned int arrive(unsigned int* count, unsigned int one) { return __atomic_fetch_add(count, one, __ATOMIC_ACQ_REL); }
static inline void fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

}  // namespace hlo

__forceinline__ float __int_as_float(int x) { return hlo::bits_as<float>(x); }
__forceinline__ int __float_as_int(float x) { return hlo::bits_as<int>(x); }
__forceinline__ float __uint_as_float(unsigned int x) { return hlo::bits_as<float>(x); }
__forceinline__ unsigned int __float_as_uint(float x) { return hlo::bits_as<unsigned int>(x); }
__forceinline__ double __longlong_as_double(long long x) { return hlo::bits_as<double>(x); }
__forceinline__ long long __double_as_longlong(double x) { return hlo::bits_as<long long>(x); }
template <typename T> __forceinline__ T __ldg(const T* p) { return *p; }

// ---- atomics: a kernel that has some runs its threads in turns, so plain updates are whole

template <typename T> static inline T atomicAdd(T* p, T value) { const T old = *p; *p = old + value; return old; }
template <typename T> static inline T atomicMax(T* p, T value) { const T old = *p; *p = old < value ? value : old; return old; }
template <typename T> static inline T atomicMin(T* p, T value) { const T old = *p; *p = value < old ? value : old; return old; }
template <typename T> static inline T atomicAnd(T* p, T value) { const T old = *p; *p = old & value; return old; }
template <typename T> static inline T atomicOr(T* p, T value) { const T old = *p; *p = old | value; return old; }
template <typename T> static inline T atomicXor(T* p, T value) { const T old = *p; *p = old ^ value; return old; }
template <typename T> static inline T atomicExch(T* p, T value) { const T old = *p; *p = value; return old; }
template <typename T> static inline T atomicCAS(T* p, T expected, T value) { const T old = *p; if (old == expected) *p = value; return old; }
static inline void __threadfence() {}
