// Clusters of blocks, for kernels whose blocks write to each other's shared memory: the blocks of a cluster take turns
// (host_fibres.h). So do blocks that take a number and wait for those before them.
#pragma once

namespace hlo {

// a thread has taken its block's number: others may start before it goes on, and come to where they wait for it
HLO_UNSEEN inline void turn_taken(int line) {
  if (turns_now.launch && turns_now.launch->in_turn) wait(at_rest, line);
}
#define HLO_TURN_TAKEN() hlo::turn_taken(__LINE__)

// the barrier of a cluster that says that its blocks run, what others write to a block's shared memory, and how a block
// waits for all of it. One thread of a block looks for what other blocks do, and the others wait for it
HLO_UNSEEN inline void arrive_in_cluster() {
  ++turns_now.arrived;
  ++moves;
}
HLO_UNSEEN inline void wait_in_cluster(int line) {
  const unsigned int passed = ++block->fibres[block->current].clusters;
  sync_threads(line);
  if (threadIdx.x == 0)
    while (turns_now.arrived < passed * turns_now.launch->together * turns_now.launch->block) wait(at_rest, line);
  sync_threads(line);
}
HLO_UNSEEN inline void expect_in_cluster(unsigned long long* left, unsigned int bytes) { *left = bytes; }
HLO_UNSEEN inline void take_in_cluster(int line, volatile unsigned long long* left) {
  sync_threads(line);
  if (threadIdx.x == 0)
    while (*left) wait(at_rest, line);
  sync_threads(line);
}
template <typename T> HLO_UNSEEN static inline T* place_in_cluster(T* place, int number) {
  const unsigned int self = blockIdx.x - turns_now.first;
  if ((unsigned int)number == self) return place;
  if ((unsigned int)number >= turns_now.launch->together) HLO_FOUND("block %d is not in the cluster", number);
  char* const there = turns_now.memory + turns_now.each * number;
  const long offset = (char*)place - turns_now.launch->shared;
#ifdef HLO_RACES  // as a write by a thread that the other block does not have, before the barrier that it comes to next
  Block* const other = (Block*)there;
  const Place writer = {block_now - self + number, ~0u, other->fibres[0].barriers, 0, 0};
  for (long k = 0; other->touched && k < (long)sizeof(T); ++k) other->touched[offset + k].writer = writer;
#endif
  return (T*)(there + bytes_of(turns_now.launch->block) + offset);
}

HLO_UNSEEN inline void count_in_cluster(unsigned long long* left, int number, unsigned long bytes) {
  *place_in_cluster(left, number) -= bytes;
  ++moves;
}

}  // namespace hlo

#define HLO_CLUSTER_EXPECT(arrived, bytes) hlo::expect_in_cluster(arrived, bytes)
#define HLO_CLUSTER_SHOW() hlo::arrive_in_cluster()
#define HLO_CLUSTER_WAIT() hlo::wait_in_cluster(__LINE__)
#define HLO_CLUSTER_PUT(place, block, value, arrived) \
  *hlo::place_in_cluster(place, block) = value;       \
  hlo::count_in_cluster(arrived, block, sizeof(value))
#define HLO_CLUSTER_TAKE(arrived) hlo::take_in_cluster(__LINE__, arrived)
