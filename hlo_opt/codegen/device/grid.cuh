// Communication between the blocks of a launch. Only the device's compiler, and the plain form on a host, use the
// body: the other forms synchronise blocks by other means. A line `// @name` starts the definition of a helper,
// which may use the helpers before it.

// @hlo_meet_grid
// All blocks of a launch wait for each other, and see what the others wrote before. The first block adds what the
// others leave over to 2^31: whoever comes last turns the highest bit, and the count is ready for the next time. All
// blocks must run at the same time: the launch is a cooperative one.
// The fences order what is before them against what is after, through the atomic operation and the read that sees it
// (PTX ISA, "Release and Acquire Patterns"); those of __threadfence() are sequentially consistent, which takes longer.
#ifndef HLO_FENCE
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
#define HLO_FENCE() asm volatile("fence.acq_rel.gpu;" ::: "memory")
#else
#define HLO_FENCE() __threadfence()
#endif
#endif
__device__ __forceinline__ void hlo_meet_grid(unsigned int* arrived) {
#ifdef __CUDA_ARCH__
  __syncthreads();
  if (threadIdx.x == 0) {
    HLO_FENCE();
    const unsigned int own = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1u) : 1u;
    const unsigned int before = atomicAdd(arrived, own);
    while (((before ^ *(volatile unsigned int*)arrived) & 0x80000000u) == 0) {
#if __CUDA_ARCH__ >= 700
      __nanosleep(20);
#endif
    }
    HLO_FENCE();
  }
  __syncthreads();
#endif
}

// @hlo_first_turn
// The first turn of a block in this launch, and the number of the launch, which begins with 1. Whoever comes first has
// the first turn; a launch has `count` of them. The result is what `turns` was before the launch.
__device__ __forceinline__ unsigned long long hlo_first_turn(
    unsigned long long* turns, unsigned int count, unsigned int* turn) {
  const unsigned long long before = atomicAdd(turns, 1ull);
  turn[0] = (unsigned int)(before % count);
  turn[1] = (unsigned int)(before / count) + 1u;
  return before - turn[0];
}

// @hlo_word_shown
// A word in which blocks show each other something with a mark, and so need no fence. On a host the blocks before are
// done: that a mark is there is checked when it is read.
#if defined(__CUDA_ARCH__) && !defined(HLO_FOUND)
__device__ __forceinline__ unsigned long long hlo_word_shown(const volatile unsigned long long* word) { return *word; }
__device__ __forceinline__ void hlo_word_shown(volatile unsigned long long* word, unsigned long long value) {
  *word = value;
}
#else
__device__ __forceinline__ unsigned long long hlo_word_shown(const volatile unsigned long long* word) {
  return *(const unsigned long long*)word;
}
__device__ __forceinline__ void hlo_word_shown(volatile unsigned long long* word, unsigned long long value) {
  *(unsigned long long*)word = value;
}
#endif

// @hlo_show
// A result of up to 4 bytes for other blocks, in one word with the number of the launch: they see both or none.
template <typename T>
__device__ __forceinline__ void hlo_show(volatile unsigned long long* word, unsigned int launch, T value) {
  unsigned int bits = 0;
  memcpy(&bits, &value, sizeof(T));
  hlo_word_shown(word, (unsigned long long)launch << 32 | bits);
}

// @hlo_shown
// The result that another block shows in this launch. Its turn came before: it runs, or is done.
template <typename T>
__device__ __forceinline__ T hlo_shown(volatile unsigned long long* word, unsigned int launch) {
  unsigned long long both;
  while ((unsigned int)((both = hlo_word_shown(word)) >> 32) != launch) {
#ifdef HLO_FOUND
    HLO_FOUND("a block waits for a result that no block before it shows");
    break;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
    __nanosleep(20);
#endif
  }
  const unsigned int bits = (unsigned int)both;
  T value;
  memcpy(&value, &bits, sizeof(T));
  return value;
}
