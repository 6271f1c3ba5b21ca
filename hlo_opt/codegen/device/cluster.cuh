// Communication between the blocks of a cluster, which are resident together (PTX ISA, "barrier.cluster", "mapa"). The
// plain form on a host has macros of its own. A line `// @name` starts the definition of a helper.

// @HLO_CLUSTER
#ifndef HLO_CLUSTER_ARRIVE
#define HLO_CLUSTER_ARRIVE(how) asm volatile("barrier.cluster.arrive." how ".aligned;" ::: "memory")
#define HLO_CLUSTER_WAIT() asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory")
#define HLO_CLUSTER_PLACE(there, place, block) \
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(place), "r"(block))
#endif

// @hlo_cluster_show
// come to the barrier of a cluster and go on; behind the wait, others know that this block runs
__device__ __forceinline__ void hlo_cluster_show() { HLO_CLUSTER_ARRIVE("relaxed"); }

// @hlo_cluster_wait
// wait until all threads of the cluster have come to the barrier
__device__ __forceinline__ void hlo_cluster_wait() { HLO_CLUSTER_WAIT(); }

// @hlo_cluster_meet
// all threads of a cluster wait for each other, and see what others wrote to shared memory before
__device__ __forceinline__ void hlo_cluster_meet() {
  HLO_CLUSTER_ARRIVE("release");
  HLO_CLUSTER_WAIT();
}

// @hlo_cluster_put
// write to the shared memory of a block of the cluster, by its number, where the own block has `place`
template <typename T> __device__ __forceinline__ void hlo_cluster_put(T* place, int block, T value) {
  T* there;
  HLO_CLUSTER_PLACE(there, place, block);
  *there = value;
}
