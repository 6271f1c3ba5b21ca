// Communication between the blocks of a cluster, which are resident together (PTX ISA, "st.async", "mbarrier", "mapa").
// Each block counts the bytes that others write to its shared memory, and waits for these alone. A barrier of the
// cluster would do as well, but before it all of a block's writes have to be seen by the whole device (MEMBAR.GPU): an
// H200 takes 1 to 3 us for it. The plain form on a host has macros of its own. A line `// @name` starts the definition
// of a helper.

// @HLO_CLUSTER
#ifndef HLO_CLUSTER_EXPECT
#define HLO_CLUSTER_SHARED(place) ((unsigned int)__cvta_generic_to_shared(place))
#define HLO_CLUSTER_EXPECT(arrived, bytes)                                                              \
  asm volatile(                                                                                         \
      "mbarrier.init.shared::cta.b64 [%0], 1;\n\tmbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n\t" \
      "fence.mbarrier_init.release.cluster;" ::"r"(HLO_CLUSTER_SHARED(arrived)), "r"(bytes) : "memory")
#define HLO_CLUSTER_SHOW() asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory")
#define HLO_CLUSTER_WAIT() asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory")
#define HLO_CLUSTER_SEND(type, kind, place, block, value, arrived)                                                  \
  asm volatile(                                                                                                     \
      "{\n\t.reg .b32 there, count;\n\tmapa.shared::cluster.u32 there, %0, %2;\n\t"                                 \
      "mapa.shared::cluster.u32 count, %1, %2;\n\tst.async.shared::cluster.mbarrier::complete_tx::bytes." type      \
      " [there], %3, [count];\n\t}" ::"r"(HLO_CLUSTER_SHARED(place)), "r"(HLO_CLUSTER_SHARED(arrived)), "r"(block), \
      kind(value) : "memory")
#define HLO_CLUSTER_PUT(place, block, value, arrived)                                                           \
  if constexpr (sizeof(value) == 8)                                                                             \
    HLO_CLUSTER_SEND("b64", "l", place, block, hlo_bit_cast<unsigned long long>(value), arrived);               \
  else                                                                                                          \
    HLO_CLUSTER_SEND("b32", "r", place, block, hlo_bit_cast<unsigned int>(value), arrived)
#define HLO_CLUSTER_TAKE(arrived)                                                                               \
  for (unsigned int done = 0; !done;)                                                                           \
  asm volatile(                                                                                                 \
      "{\n\t.reg .pred all;\n\tmbarrier.try_wait.parity.shared::cta.b64 all, [%1], 0;\n\tselp.u32 %0, 1, 0, all;\n\t}" \
      : "=r"(done) : "r"(HLO_CLUSTER_SHARED(arrived)) : "memory")
#endif

// @hlo_cluster_expect
// `arrived` counts the bytes that other blocks will write to this block. Others write only after hlo_cluster_wait.
// It is used once: the parity is 0.
__device__ __forceinline__ void hlo_cluster_expect(unsigned long long* arrived, unsigned int bytes) {
  if (threadIdx.x == 0) HLO_CLUSTER_EXPECT(arrived, bytes);
}

// @hlo_cluster_show
// come to the barrier of a cluster and go on; behind the wait, others know what this block expects
__device__ __forceinline__ void hlo_cluster_show() { HLO_CLUSTER_SHOW(); }

// @hlo_cluster_wait
// wait until all threads of the cluster have come to the barrier
__device__ __forceinline__ void hlo_cluster_wait() { HLO_CLUSTER_WAIT(); }

// @hlo_cluster_put
// write to the shared memory of a block of the cluster, by its number, where the own block has `place` and `arrived`
template <typename T>
__device__ __forceinline__ void hlo_cluster_put(T* place, int block, T value, unsigned long long* arrived) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "what blocks of a cluster write to each other");
  HLO_CLUSTER_PUT(place, block, value, arrived);
}

// @hlo_cluster_take
// wait until all bytes that the block expects have come, and see them
__device__ __forceinline__ void hlo_cluster_take(unsigned long long* arrived) { HLO_CLUSTER_TAKE(arrived); }
