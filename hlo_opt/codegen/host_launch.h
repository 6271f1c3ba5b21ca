// Runs the blocks of a launch.
#pragma once

namespace hlo {

inline int busy = 0;

// no output holds what an earlier launch left there, but for those that hold an input's elements
HLO_UNSEEN inline void fill(const Launch& launch, void** pointers) {
  const int count = launch.inputs + launch.outputs;
  for (int k = launch.inputs; k < count; ++k) {
    char* const start = (char*)pointers[k];
    bool is_fresh = launch.arrays[k].is_fresh;
    for (int other = 0; other < count; ++other)
      if (other != k && (char*)pointers[other] < start + launch.arrays[k].bytes &&
          (char*)pointers[other] + launch.arrays[other].bytes > start)
        is_fresh = false;
    if (is_fresh) __builtin_memset(start, launch.arrays[k].fill, launch.arrays[k].bytes);
  }
}

// 0 when all blocks ran, 1 without memory for fibres, 2 with a finding
// of each unit its own: only units with kernels whose threads meet have fibres
HLO_UNSEEN static int run(const Launch& launch, void** pointers) {
  while (__atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE)) sched_yield();  // memory that blocks share is there once
  finding[0] = 0;
  ++launches;
  fill(launch, pointers);
  bool is_fine = true;
#ifdef HLO_RACES
  begin(launch, pointers);
  const Order blocks(launch.grid, seed);
#else
  const Order blocks(launch.grid, launch.any_order ? launches : 0);
#endif
  blockDim = {(unsigned int)launch.block, 1, 1};
  gridDim = {launch.grid, 1, 1};
#ifdef HLO_FIBRES
  for (unsigned int n = 0; launch.together && n < launch.grid && is_fine && !finding[0]; n += launch.together)
    is_fine = run_together(launch, pointers, n, launch.grid - n);
#endif
  for (unsigned int n = 0; n < launch.grid && !launch.together && is_fine && !finding[0]; ++n) {
    blockIdx = {(unsigned int)blocks[n], 0, 0};
    threadIdx = {0, 0, 0};
    if (launch.shared_end > launch.shared) fill_shared(launch, n % 2 ? 0xA5 : 0xFF);
#ifdef HLO_RACES
    block_now = ++blocks_run;
#endif
    if (launch.meets) {
#ifdef HLO_FIBRES
      is_fine = run_block(launch.thread, pointers, launch.block);
#endif
      continue;
    }
#ifdef HLO_RACES
    const Order threads(launch.block, blocks_run + seed);
    for (int k = 0; k < launch.block; ++k) {
      threadIdx.x = (unsigned int)threads[k];
      here = {block_now, threadIdx.x, 0, 0, 0};
      launch.thread(pointers);
    }
#else
    for (int t = 0; t < launch.block; ++t) {
      threadIdx.x = (unsigned int)t;
      launch.thread(pointers);
    }
#endif
  }
#ifdef HLO_RACES
  end();
#endif
  const int status = finding[0] ? 2 : is_fine ? 0 : 1;
  __atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
  return status;
}

}  // namespace hlo

extern "C" __attribute__((weak, visibility("default"))) const char* hlo_finding() { return hlo::finding; }
