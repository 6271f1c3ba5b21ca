// Atomic updates of elements: sums of complex numbers, and compare-and-swap for every width up to 8 bytes. NVRTC and
// the host's C++ compiler both read this file; device intrinsics are under __CUDA_ARCH__. A line `// @name` starts
// the definition of a helper, which may use the helpers before it.

// @hlo_atomic_add
// the parts of a complex sum do not depend on each other
template <typename T> __device__ __forceinline__ void hlo_atomic_add(hlo_complex<T>* element, hlo_complex<T> value) {
  atomicAdd(&element->re, value.re);
  atomicAdd(&element->im, value.im);
}

// @hlo_word
// what compare-and-swap works on: 8 bytes, or the aligned 4 bytes in which a narrower element lies
template <int bytes> struct hlo_word { typedef unsigned int type; };
template <> struct hlo_word<8> { typedef unsigned long long type; };

// @hlo_seen
// the word of an element, as it is now
template <typename T> __device__ __forceinline__ typename hlo_word<sizeof(T)>::type hlo_seen(T* element) {
  typedef typename hlo_word<sizeof(T)>::type Word;
#ifdef __CUDA_ARCH__
  return *(volatile Word*)((size_t)element & ~(sizeof(Word) - 1));
#else
  Word word = 0;
  memcpy(&word, element, sizeof(T));
  return word;
#endif
}

// @hlo_taken
// the element in its word
template <typename T> __device__ __forceinline__ T hlo_taken(T* element, typename hlo_word<sizeof(T)>::type word) {
#ifdef __CUDA_ARCH__
  word >>= 8 * ((size_t)element & (sizeof(word) - 1));
#endif
  T value;
  memcpy(&value, &word, sizeof(T));
  return value;
}

// @hlo_swapped
// writes the element if its word is as it was seen; else the word is seen anew
template <typename T>
__device__ __forceinline__ bool hlo_swapped(T* element, typename hlo_word<sizeof(T)>::type& seen, T value) {
  typedef typename hlo_word<sizeof(T)>::type Word;
#ifdef __CUDA_ARCH__
  const int shift = 8 * (int)((size_t)element & (sizeof(Word) - 1));
  const Word mask = (~(Word)0 >> (8 * (sizeof(Word) - sizeof(T)))) << shift;
  Word bits = 0;
  memcpy(&bits, &value, sizeof(T));
  const Word found = atomicCAS((Word*)((size_t)element & ~(sizeof(Word) - 1)), seen, (seen & ~mask) | (bits << shift));
  const bool done = found == seen;
  seen = found;
  return done;
#else
  *element = value;
  return true;
#endif
}

// @hlo_now
// neighbours as they are in L2 now, where atomic operations change them
template <typename T, int count> __device__ __forceinline__ void hlo_now(const T* element, T (&now)[count]) {
#ifdef __CUDACC__
  if (sizeof(now) == 16) {
    const uint4 bits = __ldcg((const uint4*)element);
    memcpy(&now, &bits, sizeof(bits));
  } else if (sizeof(now) == 8) {
    const uint2 bits = __ldcg((const uint2*)element);
    memcpy(&now, &bits, sizeof(bits));
  } else if (sizeof(now) == 4) {
    const unsigned int bits = __ldcg((const unsigned int*)element);
    memcpy(&now, &bits, sizeof(bits));
  }
#else
  for (int k = 0; k < count; ++k) now[k] = ((const volatile T*)element)[k];
#endif
}

// @hlo_to_extreme
// The greater or the lesser of an element and a value. Floats are ordered as their bits are as integers, those below
// zero in reverse. A NaN gets the sign that wins. What would change nothing is left out, and a NaN of the other sign
// that has been there from the start.
template <bool greatest> __device__ __forceinline__ void hlo_to_extreme(float* element, float now, float value) {
  if (now != now || (greatest ? now > value : now < value)) return;
  const int bits = value != value ? (greatest ? 0x7fffffff : -1) : hlo_bit_cast<int>(value);
  if (hlo_bit_cast<int>(now) == bits) return;
  if ((bits >= 0) == greatest) {
    if (greatest) atomicMax((int*)element, bits);
    else atomicMax((unsigned int*)element, (unsigned int)bits);
  } else {
    if (greatest) atomicMin((unsigned int*)element, (unsigned int)bits);
    else atomicMin((int*)element, bits);
  }
}
template <bool greatest> __device__ __forceinline__ void hlo_to_extreme(double* element, double now, double value) {
  if (now != now || (greatest ? now > value : now < value)) return;
  const long long bits = value != value ? (greatest ? 0x7fffffffffffffffll : -1) : hlo_bit_cast<long long>(value);
  if (hlo_bit_cast<long long>(now) == bits) return;
  if ((bits >= 0) == greatest) {
    if (greatest) atomicMax((long long*)element, bits);
    else atomicMax((unsigned long long*)element, (unsigned long long)bits);
  } else {
    if (greatest) atomicMin((unsigned long long*)element, (unsigned long long)bits);
    else atomicMin((long long*)element, bits);
  }
}

// @hlo_extreme
// the same of one element, which is read first
template <bool greatest, typename T> __device__ __forceinline__ void hlo_extreme(T* element, T value) {
  hlo_to_extreme<greatest>(element, hlo_taken(element, hlo_seen(element)), value);
}

// @hlo_extremes
// the same of neighbours, which begin at a multiple of their size: all are read before the first is changed
template <bool greatest, typename T, typename... Values>
__device__ __forceinline__ void hlo_extremes(T* element, Values... values) {
  const T given[] = {values...};
  T now[sizeof...(values)];
  hlo_now(element, now);
  for (int k = 0; k < (int)sizeof...(values); ++k) hlo_to_extreme<greatest>(element + k, now[k], given[k]);
}

// @hlo_read_first
// Reads of vectors before it start before a branch behind it. The compiler moves them into the branch that needs them,
// behind the wait for its condition, but not past a barrier of the warp. That costs no instruction.
__device__ __forceinline__ void hlo_read_first() {
#ifdef __CUDACC__
  __syncwarp();
#endif
}

// @HLO_RED
// an atomic operation whose result nobody needs, on neighbours in global memory
#ifdef __CUDACC__
#define HLO_RED_1(name, element, of, a)                                                                               \
  asm volatile("{ .reg .u64 at; cvta.to.global.u64 at, %0; red.global.add." name " [at], %1; }" ::"l"(element), of(a) \
               : "memory")
#define HLO_RED_2(name, element, of, a, b)                                                                            \
  asm volatile("{ .reg .u64 at; cvta.to.global.u64 at, %0; red.global.add." name " [at], {%1, %2}; }" ::"l"(element), \
               of(a), of(b)                                                                                           \
               : "memory")
#define HLO_RED_4(name, element, of, a, b, c, d)                                 \
  asm volatile("{ .reg .u64 at; cvta.to.global.u64 at, %0; red.global.add." name \
               " [at], {%1, %2, %3, %4}; }" ::"l"(element),                      \
               of(a), of(b), of(c), of(d)                                        \
               : "memory")
#endif

// @hlo_atomic_add_f32
// sums of neighbours, which begin at a multiple of their size
__device__ __forceinline__ void hlo_atomic_add_f32(float* element, float a, float b) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
  HLO_RED_2("v2.f32", element, "f", a, b);
#else
  atomicAdd(element, a);
  atomicAdd(element + 1, b);
#endif
}
__device__ __forceinline__ void hlo_atomic_add_f32(float* element, float a, float b, float c, float d) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
  HLO_RED_4("v4.f32", element, "f", a, b, c, d);
#else
  hlo_atomic_add_f32(element, a, b);
  hlo_atomic_add_f32(element + 2, c, d);
#endif
}

// @hlo_pair
__device__ __forceinline__ unsigned int hlo_pair(unsigned short low, unsigned short high) {
  return low | (unsigned int)high << 16;
}

// @hlo_swap_pair
// adds to both halves of a word, each rounded by itself
template <float (*load)(unsigned short), unsigned short (*store)(float)>
__device__ __forceinline__ void hlo_swap_pair(unsigned int* word, float a, float b) {
  unsigned int seen = hlo_seen(word);
  for (;;) {
    const unsigned int now = hlo_taken(word, seen);
    const unsigned int sum =
        hlo_pair(store(load((unsigned short)now) + a), store(load((unsigned short)(now >> 16)) + b));
    if (hlo_swapped(word, seen, sum)) break;
  }
}

// @hlo_narrow_extremes
// as `hlo_extremes`, of 16-bit floats: the two in a word are swapped together, unless both are what they will be
template <bool greatest, float (*load)(unsigned short), unsigned short (*store)(float), typename... Values>
__device__ __forceinline__ void hlo_narrow_extremes(unsigned short* element, Values... values) {
  const unsigned short given[] = {values...};
  unsigned int now[sizeof...(values) / 2];
  hlo_now((const unsigned int*)element, now);
  for (int k = 0; k < (int)sizeof...(values) / 2; ++k) {
    for (unsigned int seen = now[k];;) {
      unsigned short half[2] = {(unsigned short)seen, (unsigned short)(seen >> 16)};
      for (int n = 0; n < 2; ++n) {
        const float old = load(half[n]), other = load(given[2 * k + n]);
        half[n] = store(greatest ? hlo_maximum<float>(old, other) : hlo_minimum<float>(old, other));
      }
      const unsigned int made = hlo_pair(half[0], half[1]);
      if (made == seen) break;
      const unsigned int found = atomicCAS((unsigned int*)element + k, seen, made);
      if (found == seen) break;
      seen = found;
    }
  }
}

// @hlo_atomic_add_bf16
// as of f32; a device without an operation for a pair swaps its word
__device__ __forceinline__ void hlo_atomic_add_bf16(unsigned short* element, unsigned short a, unsigned short b) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
  HLO_RED_1("noftz.bf16x2", element, "r", hlo_pair(a, b));
#else
  hlo_swap_pair<hlo_load_bf16, hlo_store_bf16>((unsigned int*)element, hlo_load_bf16(a), hlo_load_bf16(b));
#endif
}
__device__ __forceinline__ void hlo_atomic_add_bf16(
    unsigned short* element, unsigned short a, unsigned short b, unsigned short c, unsigned short d) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
  HLO_RED_2("noftz.v2.bf16x2", element, "r", hlo_pair(a, b), hlo_pair(c, d));
#else
  hlo_atomic_add_bf16(element, a, b);
  hlo_atomic_add_bf16(element + 2, c, d);
#endif
}
__device__ __forceinline__ void hlo_atomic_add_bf16(
    unsigned short* element, unsigned short a, unsigned short b, unsigned short c, unsigned short d, unsigned short e,
    unsigned short f, unsigned short g, unsigned short h) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
  HLO_RED_4("noftz.v4.bf16x2", element, "r", hlo_pair(a, b), hlo_pair(c, d), hlo_pair(e, f), hlo_pair(g, h));
#else
  hlo_atomic_add_bf16(element, a, b, c, d);
  hlo_atomic_add_bf16(element + 4, e, f, g, h);
#endif
}

// @hlo_atomic_add_f16
// as of f32; a device without an operation for a pair swaps its word
__device__ __forceinline__ void hlo_atomic_add_f16(unsigned short* element, unsigned short a, unsigned short b) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 600
  HLO_RED_1("noftz.f16x2", element, "r", hlo_pair(a, b));
#else
  hlo_swap_pair<hlo_load_f16, hlo_store_f16>((unsigned int*)element, hlo_load_f16(a), hlo_load_f16(b));
#endif
}
__device__ __forceinline__ void hlo_atomic_add_f16(
    unsigned short* element, unsigned short a, unsigned short b, unsigned short c, unsigned short d) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
  HLO_RED_2("noftz.v2.f16x2", element, "r", hlo_pair(a, b), hlo_pair(c, d));
#else
  hlo_atomic_add_f16(element, a, b);
  hlo_atomic_add_f16(element + 2, c, d);
#endif
}
__device__ __forceinline__ void hlo_atomic_add_f16(
    unsigned short* element, unsigned short a, unsigned short b, unsigned short c, unsigned short d, unsigned short e,
    unsigned short f, unsigned short g, unsigned short h) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
  HLO_RED_4("noftz.v4.f16x2", element, "r", hlo_pair(a, b), hlo_pair(c, d), hlo_pair(e, f), hlo_pair(g, h));
#else
  hlo_atomic_add_f16(element, a, b, c, d);
  hlo_atomic_add_f16(element + 4, e, f, g, h);
#endif
}
