// Communication between the blocks of a launch. Only the device's compiler, and the plain form on a host, use the
// body: the other forms synchronise blocks by other means. A line `// @name` starts the definition of a helper,
// which may use the helpers before it.

// @hlo_fence
// What a thread wrote or saw before comes before what it does after, for all that it meets by an atomic operation (PTX
// ISA, "Release and Acquire Patterns"). The fence of __threadfence() is sequentially consistent, which takes longer.
#ifndef HLO_FENCE
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
#define HLO_FENCE() asm volatile("fence.acq_rel.gpu;" ::: "memory")
#else
#define HLO_FENCE() __threadfence()
#endif
#endif
__device__ __forceinline__ void hlo_fence() { HLO_FENCE(); }

// @hlo_meet_grid
// All blocks of a launch wait for each other, and see what the others wrote before. The first block adds what the
// others leave over to 2^31: whoever comes last turns the highest bit, and the count is ready for the next time. All
// blocks must run at the same time: the launch is a cooperative one.
__device__ __forceinline__ void hlo_meet_grid(unsigned int* arrived) {
#ifdef __CUDA_ARCH__
  __syncthreads();
  if (threadIdx.x == 0) {
    hlo_fence();
    const unsigned int own = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1u) : 1u;
    const unsigned int before = atomicAdd(arrived, own);
    while (((before ^ *(volatile unsigned int*)arrived) & 0x80000000u) == 0) {
#if __CUDA_ARCH__ >= 700
      __nanosleep(20);
#endif
    }
    hlo_fence();
  }
  __syncthreads();
#endif
}

// @hlo_take_turn
// The number of a block, in the order in which blocks start: those with smaller numbers run, or have ended.
#ifndef HLO_TURN_TAKEN
#define HLO_TURN_TAKEN()
#endif
__device__ __forceinline__ unsigned int hlo_take_turn(unsigned int* started) {
  const unsigned int own = atomicAdd(started, 1u);
  HLO_TURN_TAKEN();
  return own;
}

// @hlo_publish
// Other blocks that see the flag, and pass a fence after that, see what the thread wrote before.
#ifndef HLO_SET_FLAG
#define HLO_SET_FLAG(flag) (*(volatile unsigned int*)(flag) = 1u)
#endif
__device__ __forceinline__ void hlo_publish(unsigned int* flag) {
  hlo_fence();
  HLO_SET_FLAG(flag);
}

// @hlo_wait_for
// Waits for the flag of a block that runs already.
#ifndef HLO_FLAG
#define HLO_FLAG(flag) (*(const volatile unsigned int*)(flag))
#endif
__device__ __forceinline__ void hlo_wait_for(const unsigned int* flag) {
#ifdef __CUDA_ARCH__
  while (HLO_FLAG(flag) == 0u) {
#if __CUDA_ARCH__ >= 700
    __nanosleep(20);
#endif
  }
#endif
}
