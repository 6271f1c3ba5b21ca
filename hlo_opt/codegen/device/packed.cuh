// Elements of less than a byte as they lie in memory, several to a byte (see hlo_opt/ops/packing.py).
// Both NVRTC and the host's C++ compiler read this; device intrinsics stand under __CUDA_ARCH__. A line `// @name` begins the definition of a helper, which may use those before it.

// @hlo_get_2
// elements of 2 bits lie four to a byte, the first in the lowest bits
template <typename I> __device__ __forceinline__ unsigned char hlo_get_2(const unsigned char* array, I position) {
  return (unsigned char)(array[position >> 2] >> (int)(position & 3) * 2 & 3);
}
// one of a thread's neighbouring elements, the first of which begins a byte: NVRTC sees that they lie together
template <typename I> __device__ __forceinline__ unsigned char hlo_get_2(const unsigned char* array, I first, int number) {
  return hlo_get_2(array + first / 4, number);
}

// @hlo_seen_2
// the word in which an element lies, as it is now: 4 bytes, or on the host, where threads take turns, one
template <typename I> __device__ __forceinline__ unsigned int hlo_seen_2(unsigned char* array, I position) {
#ifdef __CUDA_ARCH__
  return ((volatile unsigned int*)array)[position >> 4];
#else
  return array[position >> 2];
#endif
}

// @hlo_taken_2
// the element in its word
template <typename I> __device__ __forceinline__ unsigned char hlo_taken_2(I position, unsigned int word) {
#ifdef __CUDA_ARCH__
  const int number = (int)(position & 15);
#else
  const int number = (int)(position & 3);
#endif
  return (unsigned char)(word >> number * 2 & 3);
}

// @hlo_swapped_2
// writes the element if its word is as it was seen; else the word is seen anew. The last one of `count` clears what is behind it in its byte
template <typename I>
__device__ __forceinline__ bool hlo_swapped_2(unsigned char* array, I position, unsigned int& seen, unsigned char value, long long count = 0) {
#ifdef __CUDA_ARCH__
  const int shift = (int)(position & 15) * 2;
#else
  const int shift = (int)(position & 3) * 2;
#endif
  const unsigned int mask = (position + 1 == count ? 255u >> shift % 8 : 3u) << shift;
  const unsigned int made = (seen & ~mask) | ((unsigned int)value << shift);
#ifdef __CUDA_ARCH__
  const unsigned int found = atomicCAS((unsigned int*)array + (position >> 4), seen, made);
  const bool done = found == seen;
  seen = found;
  return done;
#else
  array[position >> 2] = (unsigned char)made;
  return true;
#endif
}

// @hlo_put_2
// writes one element and leaves those beside it as they are, which other threads may write at the same time
template <typename I>
__device__ __forceinline__ void hlo_put_2(unsigned char* array, I position, unsigned char value, long long count = 0) {
  unsigned int seen = hlo_seen_2(array, position);
  while (!hlo_swapped_2(array, position, seen, value, count)) {
  }
}

// @hlo_fill_2
// writes a thread's neighbouring elements, which fill whole bytes
template <typename I, int size>
__device__ __forceinline__ void hlo_fill_2(unsigned char* array, I first, const unsigned char (&values)[size]) {
#pragma unroll
  for (int k = 0; k < size; k += 4) (array + first / 4)[k / 4] = (unsigned char)(values[k] | values[k + 1] << 2 | values[k + 2] << 4 | values[k + 3] << 6);
}

// @hlo_get_4
// elements of 4 bits lie two to a byte, the first in the lowest bits
template <typename I> __device__ __forceinline__ unsigned char hlo_get_4(const unsigned char* array, I position) {
  return (unsigned char)(array[position >> 1] >> (int)(position & 1) * 4 & 15);
}
// one of a thread's neighbouring elements, the first of which begins a byte: NVRTC sees that they lie together
template <typename I> __device__ __forceinline__ unsigned char hlo_get_4(const unsigned char* array, I first, int number) {
  return hlo_get_4(array + first / 2, number);
}

// @hlo_seen_4
// the word in which an element lies, as it is now: 4 bytes, or on the host, where threads take turns, one
template <typename I> __device__ __forceinline__ unsigned int hlo_seen_4(unsigned char* array, I position) {
#ifdef __CUDA_ARCH__
  return ((volatile unsigned int*)array)[position >> 3];
#else
  return array[position >> 1];
#endif
}

// @hlo_taken_4
// the element in its word
template <typename I> __device__ __forceinline__ unsigned char hlo_taken_4(I position, unsigned int word) {
#ifdef __CUDA_ARCH__
  const int number = (int)(position & 7);
#else
  const int number = (int)(position & 1);
#endif
  return (unsigned char)(word >> number * 4 & 15);
}

// @hlo_swapped_4
// writes the element if its word is as it was seen; else the word is seen anew. The last one of `count` clears what is behind it in its byte
template <typename I>
__device__ __forceinline__ bool hlo_swapped_4(unsigned char* array, I position, unsigned int& seen, unsigned char value, long long count = 0) {
#ifdef __CUDA_ARCH__
  const int shift = (int)(position & 7) * 4;
#else
  const int shift = (int)(position & 1) * 4;
#endif
  const unsigned int mask = (position + 1 == count ? 255u >> shift % 8 : 15u) << shift;
  const unsigned int made = (seen & ~mask) | ((unsigned int)value << shift);
#ifdef __CUDA_ARCH__
  const unsigned int found = atomicCAS((unsigned int*)array + (position >> 3), seen, made);
  const bool done = found == seen;
  seen = found;
  return done;
#else
  array[position >> 1] = (unsigned char)made;
  return true;
#endif
}

// @hlo_put_4
// writes one element and leaves those beside it as they are, which other threads may write at the same time
template <typename I>
__device__ __forceinline__ void hlo_put_4(unsigned char* array, I position, unsigned char value, long long count = 0) {
  unsigned int seen = hlo_seen_4(array, position);
  while (!hlo_swapped_4(array, position, seen, value, count)) {
  }
}

// @hlo_fill_4
// writes a thread's neighbouring elements, which fill whole bytes
template <typename I, int size>
__device__ __forceinline__ void hlo_fill_4(unsigned char* array, I first, const unsigned char (&values)[size]) {
#pragma unroll
  for (int k = 0; k < size; k += 2) (array + first / 2)[k / 2] = (unsigned char)(values[k] | values[k + 1] << 4);
}
