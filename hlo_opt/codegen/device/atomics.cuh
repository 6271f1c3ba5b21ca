// Elements that several threads update: sums of complex numbers, and compare-and-swap on elements of every width up to 8 bytes.
// Both NVRTC and the host's C++ compiler read this; device intrinsics stand under __CUDA_ARCH__. A line `// @name` begins the definition of a helper, which may use those before it.

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
template <typename T> __device__ __forceinline__ bool hlo_swapped(T* element, typename hlo_word<sizeof(T)>::type& seen, T value) {
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
