// Elements of less than a byte, packed in memory (see hlo_opt/ops/packing.py). NVRTC and the host's C++ compiler
// both read this file; device intrinsics are under __CUDA_ARCH__. A line `// @name` starts the definition of a
// helper, which may use the helpers before it.

// @hlo_get
// elements of 2 and of 4 bits lie four and two to a byte, the first in the lowest bits
template <int bits, typename I>
__device__ __forceinline__ unsigned char hlo_get(const unsigned char* array, I position) {
  return (unsigned char)(array[position >> (bits == 2 ? 2 : 1)] >> (int)(position & (8 / bits - 1)) * bits &
                         ((1 << bits) - 1));
}
// one of a thread's neighbouring elements, the first of which begins a byte: NVRTC sees that they lie together
template <int bits, typename I>
__device__ __forceinline__ unsigned char hlo_get(const unsigned char* array, I first, int number) {
  return hlo_get<bits>(array + (first >> (bits == 2 ? 2 : 1)), number);
}

// @hlo_part_seen
// the word in which an element lies, as it is now: 4 bytes, or on the host, where threads take turns, one
template <int bits, typename I>
__device__ __forceinline__ unsigned int hlo_part_seen(unsigned char* array, I position) {
#ifdef __CUDA_ARCH__
  return ((volatile unsigned int*)array)[position >> (bits == 2 ? 4 : 3)];
#else
  return array[position >> (bits == 2 ? 2 : 1)];
#endif
}

// @hlo_part_shift
// where an element's bits begin in its word
template <int bits, typename I> __device__ __forceinline__ int hlo_part_shift(I position) {
#ifdef __CUDA_ARCH__
  return (int)(position & (32 / bits - 1)) * bits;
#else
  return (int)(position & (8 / bits - 1)) * bits;
#endif
}

// @hlo_part_taken
// the element in its word
template <int bits, typename I> __device__ __forceinline__ unsigned char hlo_part_taken(I position, unsigned int word) {
  return (unsigned char)(word >> hlo_part_shift<bits>(position) & ((1 << bits) - 1));
}

// @hlo_part_swapped
// writes the element if its word is as it was seen; else the word is seen anew. The last one of `count` clears what is
// behind it in its byte
template <int bits, typename I>
__device__ __forceinline__ bool hlo_part_swapped(unsigned char* array, I position, unsigned int& seen,
                                                 unsigned char value, long long count = 0) {
  const int shift = hlo_part_shift<bits>(position);
  const unsigned int mask = (position + 1 == count ? 255u >> shift % 8 : (1u << bits) - 1u) << shift;
  const unsigned int made = (seen & ~mask) | ((unsigned int)value << shift);
#ifdef __CUDA_ARCH__
  const unsigned int found = atomicCAS((unsigned int*)array + (position >> (bits == 2 ? 4 : 3)), seen, made);
  const bool done = found == seen;
  seen = found;
  return done;
#else
  array[position >> (bits == 2 ? 2 : 1)] = (unsigned char)made;
  return true;
#endif
}

// @hlo_put
// writes one element and leaves those beside it as they are, which other threads may write at the same time
template <int bits, typename I>
__device__ __forceinline__ void hlo_put(unsigned char* array, I position, unsigned char value, long long count = 0) {
  unsigned int seen = hlo_part_seen<bits>(array, position);
  while (!hlo_part_swapped<bits>(array, position, seen, value, count)) {
  }
}

// @hlo_fill
// writes a thread's neighbouring elements, which fill whole bytes
template <int bits, typename I, int size>
__device__ __forceinline__ void hlo_fill(unsigned char* array, I first, const unsigned char (&values)[size]) {
#pragma unroll
  for (int k = 0; k < size; k += 8 / bits) {
    unsigned int byte = 0;
#pragma unroll
    for (int n = 0; n < 8 / bits; ++n) byte |= (unsigned int)values[k + n] << n * bits;
    (array + first / (8 / bits))[k / (8 / bits)] = (unsigned char)byte;
  }
}
