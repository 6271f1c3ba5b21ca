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
