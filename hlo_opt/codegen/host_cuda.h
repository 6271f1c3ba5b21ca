// What CUDA gives a kernel, for its plain form: the emitted text as it stands, a thread after another, and a fibre per
// thread where threads meet (host_fibres.h). As strict as a GPU: functions have the types that CUDA declares, shared
// memory and outputs hold no earlier values, and blocks that meet come in an order of their own.
#pragma once

#define __CUDA_ARCH__ 900  // the text for the device is what is checked
#define HLO_PRECISE  // the host's functions are
#define __global__
#define __device__
#define __constant__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __shared__ static __attribute__((section(HLO_SHARED)))  // a section for each kernel, so that it can be filled
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __restrict__ __restrict
#define warpSize 32
#define __builtin_assume_aligned(pointer, bytes) hlo::promised<bytes>(pointer)

#ifdef HLO_RACES
#define HLO_UNSEEN __attribute__((no_sanitize("thread")))  // what is no part of the kernel is not watched
#else
#define HLO_UNSEEN
#endif
#ifdef __APPLE__
#define HLO_SECTION(name) "__DATA," name
#define HLO_BOUNDS(kind, name, section) extern char name __asm("section$" kind "$__DATA$" section)
#else
#define HLO_SECTION(name) name
#define HLO_BOUNDS(kind, name, section) \
  extern char name __asm("__" kind "_" section) __attribute__((weak, visibility("hidden")))
#endif

extern "C" {
int snprintf(char*, __SIZE_TYPE__, const char*, ...) noexcept;
int sched_yield(void) noexcept;
}

typedef __SIZE_TYPE__ size_t;
struct uint3 { unsigned int x, y, z; };
struct dim3 { unsigned int x, y, z; };
inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

// from the C library only where it has them
inline void hlo_both(double x, double* sine, double* cosine) { *sine = sin(x), *cosine = cos(x); }
inline void hlo_both(float x, float* sine, float* cosine) { *sine = sinf(x), *cosine = cosf(x); }
#define sincos hlo_both
#define sincosf hlo_both

namespace hlo {

inline char finding[200];  // what is wrong with a launch; empty where all is well
inline unsigned long long launches;  // of all kernels so far

// the first finding of a launch stays
#define HLO_FOUND(...) (hlo::finding[0] ? 0 : snprintf(hlo::finding, sizeof hlo::finding, __VA_ARGS__))

// buffers of a GPU start at multiples of 16 bytes, arrays of the host anywhere
template <int bytes, typename T> inline T* promised(T* pointer) {
  static_assert(bytes <= 16, "no buffer promises more");
  return pointer;
}

// numbers 0 ... count - 1 in an order of its own for each seed
struct Order {
  unsigned long long count, step, first;
  HLO_UNSEEN Order(unsigned long long count, unsigned long long seed) : count(count), step(1), first(0) {
    if (count < 2) return;
    first = seed * 0x9E3779B97F4A7C15ull % count;
    for (step = (seed * 2654435761ull >> 3) % count | 1; common(step, count) != 1; step += 2) {}
  }
  HLO_UNSEEN static unsigned long long common(unsigned long long a, unsigned long long b) {
    while (b) { const unsigned long long rest = a % b; a = b; b = rest; }
    return a;
  }
  HLO_UNSEEN unsigned long long operator[](unsigned long long k) const {
    return (first + k % count * (step % count)) % count;
  }
};

// an array of a launch. `bits` of an element in memory, `puts`: its elements share bytes, and each is written by one
// thread
struct Array {
  const char* name;
  long long count, bytes;
  int bits;
  bool is_fresh, is_watched, puts;
  unsigned char fill;
};

struct Launch {
  void (*thread)(void** pointers);
  unsigned int grid, block;
  bool meets, any_order;  // threads of a block wait for each other; blocks may come in any order
  unsigned int together;  // the number of neighbouring blocks that wait for each other
  bool in_turn;  // they wait for those that have started before them only, and run together so that some do
  char *shared, *shared_end;
  const Array* arrays;
  int inputs, outputs;
};

// in shared memory no block finds what another left: NaN and -1, or small numbers. Byte by byte where sanitizers keep
// memory of their own between arrays
__attribute__((no_sanitize("address"))) HLO_UNSEEN inline void fill_shared(const Launch& launch, unsigned char value) {
#ifdef __SANITIZE_ADDRESS__
  for (volatile char* p = launch.shared; p < launch.shared_end; ++p) *p = (char)value;
#else
  __builtin_memset(launch.shared, value, launch.shared_end - launch.shared);
#endif
}

}  // namespace hlo

// ---- PTX (Parallel Thread Execution ISA): the instructions that kernels name, with the operands' constraints as a
// GPU's compiler takes them

#define HLO_PTX_1(name, result, of_result, a, of_a) (result) = hlo::ptx(hlo::Ptx<hlo::hash(name of_result of_a)>(), a)
#define HLO_PTX_2(name, result, of_result, a, b, of_both) \
  (result) = hlo::ptx(hlo::Ptx<hlo::hash(name of_result of_both)>(), a, b)
#define HLO_PTX_3(name, result, of_result, a, b, c, of_all) \
  (result) = hlo::ptx(hlo::Ptx<hlo::hash(name of_result of_all)>(), a, b, c)

#define HLO_PTX_JOIN(result, low, high) (result) = (unsigned int)(high) << 16 | (low)
#define HLO_PTX_SPLIT(low, high, given) (low) = (unsigned short)(given), (high) = (unsigned short)((given) >> 16)

namespace hlo {

constexpr unsigned long long hash(const char* text) {
  unsigned long long made = 14695981039346656037ull;
  for (; *text; ++text) made = (made ^ (unsigned char)*text) * 1099511628211ull;
  return made;
}
template <unsigned long long text> struct Ptx {};

// NaN from either side is the canonical one; -0 is below 0
static inline float extreme(float a, float b, bool greater) {
  if (a != a || b != b) return bits_as<float>(0x7fffffffu);
  if (a == b) return (bits_as<int>(a) < 0) == greater ? b : a;
  return (a > b) == greater ? a : b;
}
static inline float ptx(Ptx<hash("max.NaN.f32" "f" "f")>, float a, float b) { return extreme(a, b, true); }
static inline float ptx(Ptx<hash("min.NaN.f32" "f" "f")>, float a, float b) { return extreme(a, b, false); }
static inline unsigned int ptx(Ptx<hash("mov.b32" "r" "r")>, unsigned int a) { return a; }
// the host's products take all bits of a float, as its library's do
static inline unsigned int ptx(Ptx<hash("cvt.rna.tf32.f32" "r" "f")>, float x) { return bits_as<unsigned int>(x); }
static inline unsigned int bf16(float x) {
  const unsigned int bits = bits_as<unsigned int>(x);
  return x != x ? 0x7fff : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}
static inline unsigned int ptx(Ptx<hash("cvt.rn.bf16x2.f32"
                                        "r"
                                        "f")>,
                               float high, float low) {
  return bf16(high) << 16 | bf16(low);
}
// a double as a float whose last digit tells that others followed, so that the next rounding is the only one
static inline float cut(double x) {
  const float near = (float)x;
  if (near == x || x != x) return near;
  const unsigned int bits = bits_as<unsigned int>(near);
  return bits_as<float>((bits - (__builtin_fabs((double)near) > __builtin_fabs(x))) | 1u);
}
// of bf16 pairs; their products are exact in a double, and a sum is cut where bf16 has long ended
static inline unsigned int fused_half(unsigned int a, unsigned int b, unsigned int c) {
  return bf16(cut((double)bits_as<float>(a << 16) * bits_as<float>(b << 16) + bits_as<float>(c << 16)));
}
static inline unsigned int ptx(Ptx<hash("fma.rn.bf16x2" "r" "r")>, unsigned int a, unsigned int b, unsigned int c) {
  return fused_half(a >> 16, b >> 16, c >> 16) << 16 | fused_half(a, b, c);
}
// by way of a double, in which a float and half a unit of any f16 are exact: 2^52 and more shifts the digits behind the
// last one out
static inline unsigned short ptx(Ptx<hash("cvt.rn.f16.f32" "h" "f")>, float x) {
  const unsigned short sign = bits_as<unsigned int>(x) >> 16 & 0x8000u;
  if (x != x) return 0x7fff;
  const double a = __builtin_fabs((double)x);
  if (a >= 65520.0) return sign | 0x7c00;
  int exponent = (int)(bits_as<unsigned long long>(a) >> 52) - 1023;
  if (exponent < -14) exponent = -14;
  const double unit = bits_as<double>((unsigned long long)(exponent - 10 + 1023) << 52);
  const unsigned int digits =
      (unsigned int)(a / unit + 4503599627370496.0 - 4503599627370496.0);  // 1024 and more for normal numbers
  return (unsigned short)(sign | (((unsigned int)(exponent + 14) << 10) + digits));
}
static inline float ptx(Ptx<hash("cvt.f32.f16" "f" "h")>, unsigned short bits) {
  const int exponent = bits >> 10 & 31, digits = bits & 1023;
  const unsigned int sign = (unsigned int)(bits & 0x8000u) << 16;
  if (exponent == 31) return bits_as<float>(digits ? 0x7fffffffu : sign | 0x7f800000u);
  const double a =
      exponent ? (digits + 1024) * bits_as<double>((unsigned long long)(exponent - 25 + 1023) << 52) : digits * 0x1p-24;
  return bits_as<float>(sign | bits_as<unsigned int>((float)a));
}

}  // namespace hlo

// ---- integers

static inline long long __mul64hi(long long a, long long b) { return (long long)(((__int128)a * b) >> 64); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
static inline unsigned int __byte_perm(unsigned int a, unsigned int b, unsigned int chosen) {
  const unsigned long long both = (unsigned long long)b << 32 | a;
  unsigned int made = 0;
  for (int k = 0; k < 4; ++k) made |= (unsigned int)(both >> 8 * (chosen >> 4 * k & 7) & 255) << 8 * k;
  return made;
}
static inline int __popc(unsigned int x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }

// ---- atomics, for the types that CUDA has them for (CUDA C++ Programming Guide, "Atomic Functions"). Threads take
// turns, so plain updates are whole.

namespace hlo {
#ifdef HLO_RACES
template <typename T> static inline void updated(T* p, T old, T made, bool is_swap);
#else
template <typename T> static inline void updated(T*, T, T, bool) {}
#endif
template <typename T> HLO_UNSEEN static inline T swapped(T* p, T old, T made, bool is_swap = false) {
  if ((__UINTPTR_TYPE__)p % sizeof(T))
    HLO_FOUND("an atomic operation on %d bytes at an address that is no multiple of them", (int)sizeof(T));
  updated(p, old, made, is_swap);
  __builtin_memcpy(p, &made, sizeof(T));
  return old;
}
template <typename T> HLO_UNSEEN static inline T now(const T* p) {
  T found;
  __builtin_memcpy(&found, p, sizeof(T));
  return found;
}
}  // namespace hlo

#define HLO_ATOMIC(name, T, made) \
  HLO_UNSEEN static inline T name(T* p, T value) { const T old = hlo::now(p); return hlo::swapped<T>(p, old, made); }
#define HLO_ATOMICS_32(name, made) HLO_ATOMIC(name, int, made) HLO_ATOMIC(name, unsigned int, made)
#define HLO_ATOMICS(name, made) HLO_ATOMICS_32(name, made) HLO_ATOMIC(name, unsigned long long, made)
HLO_ATOMICS(atomicAdd, old + value)
HLO_ATOMIC(atomicAdd, float, old + value)
HLO_ATOMIC(atomicAdd, double, old + value)
HLO_ATOMICS(atomicMax, old < value ? value : old)
HLO_ATOMIC(atomicMax, long long, old < value ? value : old)
HLO_ATOMICS(atomicMin, value < old ? value : old)
HLO_ATOMIC(atomicMin, long long, value < old ? value : old)
HLO_ATOMICS(atomicAnd, old & value)
HLO_ATOMICS(atomicOr, old | value)
HLO_ATOMICS(atomicXor, old ^ value)
HLO_ATOMICS(atomicExch, value)
HLO_ATOMIC(atomicExch, float, value)
#undef HLO_ATOMIC
#define HLO_ATOMIC(T) \
  HLO_UNSEEN static inline T atomicCAS(T* p, T expected, T value) { \
    const T old = hlo::now(p); \
    return hlo::swapped<T>(p, old, old == expected ? value : old, true); \
  }
HLO_ATOMIC(int) HLO_ATOMIC(unsigned int) HLO_ATOMIC(unsigned long long) HLO_ATOMIC(unsigned short)
#undef HLO_ATOMIC
#undef HLO_ATOMICS
#undef HLO_ATOMICS_32
#ifndef HLO_RACES
static inline void __threadfence() {}
#endif
#define HLO_FENCE __threadfence
