// What CUDA gives a kernel, for its form as lanes. A launcher runs blocks one after another; the threads of a block run
// as a loop that the compiler may turn into vector code. Kernels whose threads meet in a way that loops cannot follow
// have their plain form (host_cuda.h).
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

namespace hlo {

// signed, and given to kernels by value: the compiler then sees that neighbouring threads use neighbouring addresses
struct Index { int x, y, z; };

// hlo_near_vector where a thread's elements are no neighbours: the index itself or the nearest one, less the number
template <typename T> __forceinline__ T near_element(T index, int number, int vector, int size) {
  return (index < 0 ? 0 : index > size - 1 ? size - 1 : index) - number;
}

// a number that the compiler does not see: with lanes that it knows, it works out masks beforehand, and GCC 12 then has
// 1 in them instead of all bits, and takes what lies beside an array
__forceinline__ int hidden(int number) {
  asm("" : "+r"(number));
  return number;
}

// the first place from `at` on where a run begins, in rows of which each begins with one
template <int row, int run> __forceinline__ long long at_run(long long at) {
  const long long inside = (at % row + run - 1) / run * run;
  return at - at % row + (inside < row ? inside : row);
}

// compilers make no vectors of a loop with this in it
__forceinline__ void in_turn() { asm(""); }

// for the type of an element that is no constant
template <typename T> T own(T element);

// runs of elements, the last one first: to[r * run + k] = from[k - r * run]
template <int run, typename T> __forceinline__ void turned(T* to, const T* from, long long runs) {
  constexpr int size = run * sizeof(T), together = 16 / size;
  long long at = 0;
#ifndef __clang__
  if (together > 1 && runs) {
    typedef unsigned char Bytes __attribute__((vector_size(16)));
    Bytes order = {};
    for (int k = 0; k < together * size; ++k) order[k] = (together - 1 - k / size) * size + k % size;
    memcpy(to, from, size);
    // behind the runs of a vector lies one before them; behind those that are written, one that is written later
    for (at = 1; at + together < runs; at += together) {
      Bytes bytes;
      memcpy(&bytes, from - (at + together - 1) * run, 16);
      bytes = __builtin_shuffle(bytes, order);
      memcpy(to + at * run, &bytes, 16);
    }
  }
#endif
  for (; at < runs; ++at) memcpy(to + at * run, from - at * run, size);
}

template <int run, typename To, typename From> __forceinline__ void turned(To* to, const From* from, long long runs) {
  for (long long at = 0; at < runs; ++at)
    for (int k = 0; k < run; ++k) to[at * run + k] = from[k - at * run];
}

// eight rows of eight elements, of which `count` from `first` on become columns: to[t * width + r] =
// from[r * step + first + t]; or `count` rows, each in `count` elements of eight columns. By their bits, as elements
// may be structs
#ifndef __clang__
template <int bytes> struct Bits;
template <> struct Bits<1> { typedef signed char Type; };
template <> struct Bits<2> { typedef short Type; };
template <> struct Bits<4> { typedef int Type; };
template <> struct Bits<8> { typedef long long Type; };

template <int first, int count, bool to_rows, typename T>
__forceinline__ void turn_eight(T* to, long long width, const T* from, long long step) {
  typedef typename Bits<sizeof(T)>::Type Row __attribute__((vector_size(8 * sizeof(T))));
  Row a[8], b[8];
  for (int k = 0; k < 8; ++k)
    if (!to_rows || k < count) memcpy(&a[k], from + k * step, sizeof(Row));
    else a[k] = Row{};
  for (int k = 0; k < 8; k += 2) {
    b[k] = __builtin_shuffle(a[k], a[k + 1], Row{0, 8, 2, 10, 4, 12, 6, 14});
    b[k + 1] = __builtin_shuffle(a[k], a[k + 1], Row{1, 9, 3, 11, 5, 13, 7, 15});
  }
  for (int k = 0; k < 4; ++k) {
    const int j = k + k / 2 * 2;  // 0, 1, 4, 5
    a[j] = __builtin_shuffle(b[j], b[j + 2], Row{0, 1, 8, 9, 4, 5, 12, 13});
    a[j + 2] = __builtin_shuffle(b[j], b[j + 2], Row{2, 3, 10, 11, 6, 7, 14, 15});
  }
  for (int k = 0; k < 4; ++k) {
    const Row low = __builtin_shuffle(a[k], a[k + 4], Row{0, 1, 2, 3, 8, 9, 10, 11});
    const Row high = __builtin_shuffle(a[k], a[k + 4], Row{4, 5, 6, 7, 12, 13, 14, 15});
    if (to_rows) {
      memcpy(to + k * width, &low, count * sizeof(T));
      memcpy(to + (k + 4) * width, &high, count * sizeof(T));
      continue;
    }
    if (k >= first && k < first + count) memcpy(to + (k - first) * width, &low, sizeof low);
    if (k + 4 >= first && k + 4 < first + count) memcpy(to + (k + 4 - first) * width, &high, sizeof high);
  }
}
#endif

// `rows` rows of `terms` elements, `step` apart, as columns that are `width` apart
template <int terms, int width, typename T>
static inline void columns(T* to, const T* from, long long step, long long rows) {
  long long at = 0;
#ifndef __clang__
  if constexpr (terms >= 8 && sizeof(T) <= 8)
    for (; at + 8 <= rows; at += 8) {
      for (int t = 0; t + 8 <= terms; t += 8)
        turn_eight<0, 8, false>(to + t * width + at, width, from + at * step + t, step);
      if (terms % 8)
        turn_eight<8 - terms % 8, terms % 8, false>(to + terms / 8 * 8 * width + at, width,
                                                    from + at * step + terms - 8, step);
    }
  else if constexpr (terms > 4 && sizeof(T) <= 8)  // with elements of the next row, while there is one
    for (; at + 8 < rows; at += 8) turn_eight<0, terms, false>(to + at, width, from + at * step, step);
#endif
  for (; at < rows; ++at)
    for (int t = 0; t < terms; ++t) to[t * width + at] = from[at * step + t];
}

// and back: to[r * step + t] = from[t * width + r]
template <int terms, int width, typename T>
static inline void rows(T* to, const T* from, long long step, long long rows) {
  long long at = 0;
#ifndef __clang__
  if constexpr (terms >= 4 && sizeof(T) <= 8)
    for (; at + 8 <= rows; at += 8) {
      for (int t = 0; t + 8 <= terms; t += 8)
        turn_eight<0, 8, true>(to + at * step + t, step, from + t * width + at, width);
      if constexpr (terms > 8 && terms % 8)
        turn_eight<0, 8, true>(to + at * step + terms - 8, step, from + (terms - 8) * width + at, width);
      if constexpr (terms < 8) turn_eight<0, terms, true>(to + at * step, step, from + at, width);
    }
#endif
  for (; at < rows; ++at)
    for (int t = 0; t < terms; ++t) to[at * step + t] = from[t * width + at];
}

// blocks that count themselves: on several processors, where a launch is spread over them
static inline unsigned int arrive(unsigned int* count, unsigned int one) {
  return __atomic_fetch_add(count, one, __ATOMIC_ACQ_REL);
}
static inline void fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

}  // namespace hlo

// ---- atomics: a kernel that has some runs its threads in turns, so plain updates are whole

template <typename T> static inline T atomicAdd(T* p, T value) { const T old = *p; *p = old + value; return old; }
template <typename T> static inline T atomicMax(T* p, T value) {
  const T old = *p;
  *p = old < value ? value : old;
  return old;
}
template <typename T> static inline T atomicMin(T* p, T value) {
  const T old = *p;
  *p = value < old ? value : old;
  return old;
}
template <typename T> static inline T atomicAnd(T* p, T value) { const T old = *p; *p = old & value; return old; }
template <typename T> static inline T atomicOr(T* p, T value) { const T old = *p; *p = old | value; return old; }
template <typename T> static inline T atomicXor(T* p, T value) { const T old = *p; *p = old ^ value; return old; }
template <typename T> static inline T atomicExch(T* p, T value) { const T old = *p; *p = value; return old; }
template <typename T> static inline T atomicCAS(T* p, T expected, T value) {
  const T old = *p;
  if (old == expected) *p = value;
  return old;
}
static inline void __threadfence() {}
