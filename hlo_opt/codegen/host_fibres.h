// Fibres: one per thread of a block, for kernels whose threads meet. The lanes of a warp come to a shuffle or vote
// together, the threads of a block to a barrier: where one waits that another does not come to, the launch ends with a
// finding.
#pragma once

namespace hlo {

#if defined(__x86_64__) && defined(__linux__) && !defined(HLO_UCONTEXT)
// saves what a callee must keep, stores the stack pointer, goes on where the other stack left off
extern "C" void hlo_switch(void** from, void* to) __attribute__((visibility("hidden")));
asm(".text\n.type hlo_switch,@function\nhlo_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\npopq %rcx\njmp *%rcx\n.size "
    "hlo_switch,.-hlo_switch\n");
#define HLO_OWN_SWITCH 1
HLO_UNSEEN static void* prepare(char* top, void (*entry)()) {
  void** sp = (void**)((__UINTPTR_TYPE__)top & ~(__UINTPTR_TYPE__)15);
  *--sp = 0;  // keeps the stack aligned as after a call
  *--sp = (void*)entry;
  for (int i = 0; i < 6; ++i) *--sp = 0;
  return sp;
}
#elif defined(__aarch64__) && defined(__linux__) && !defined(HLO_UCONTEXT)
extern "C" void hlo_switch(void** from, void* to) __attribute__((visibility("hidden")));
asm(".text\n.type hlo_switch,%function\nhlo_switch:\n"
    "sub sp, sp, #160\n"
    "stp x19, x20, [sp, #0]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\nstp x25, x26, [sp, #48]\n"
    "stp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
    "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
    "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
    "ldp x19, x20, [sp, #0]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\nldp x25, x26, [sp, #48]\n"
    "ldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
    "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\n"
    "add sp, sp, #160\nret\n.size hlo_switch,.-hlo_switch\n");
#define HLO_OWN_SWITCH 1
HLO_UNSEEN static void* prepare(char* top, void (*entry)()) {
  void** sp = (void**)((__UINTPTR_TYPE__)top & ~(__UINTPTR_TYPE__)15) - 20;
  for (int i = 0; i < 20; ++i) sp[i] = 0;
  sp[11] = (void*)entry;  // x30, where `ret` goes
  return sp;
}
#else
}  // namespace hlo
#include <ucontext.h>
namespace hlo {
#endif

// an odd number of cache lines, so that the tops of the stacks do not all fall into the same set of the cache
const int most_threads = 1024, stack_bytes = 128 * 1024 + 5 * 64;
enum State : int {
  running,
  at_barrier,
  at_warp,
  at_rest,
  finished
};                                         // at rest: before it looks again for what other blocks do
enum Kind : int { orders, shows, votes };  // __syncwarp, shuffles, votes

struct Fibre {
  State state;
  Kind kind;
  int line;  // of the text, where it waits
  int source;
  unsigned int mask;
  unsigned long long shown, given;
#ifdef HLO_OWN_SWITCH
  void* context;
#else
  ucontext_t context;
#endif
#ifdef HLO_RACES
  unsigned int barriers, warp_barriers, grids;
#endif
  unsigned int clusters;  // barriers of the cluster that it has passed
};

struct Block {
  Fibre fibres[most_threads];
#ifdef HLO_OWN_SWITCH
  void* scheduler;
#else
  ucontext_t scheduler;
#endif
  char* stacks;
  int current, threads;
  void (*body)(void**);
  void** arguments;
  bool has_ended;
#ifdef HLO_RACES
  Touched* touched;  // who touched its shared memory, while other blocks run
#endif
};

inline Block* block;
inline unsigned long long moves;  // barriers that threads have come to, and threads that have ended

#ifdef __APPLE__
const int map_private_anonymous = 0x1002, map_unreserved = 0x40;
#else
const int map_private_anonymous = 0x22, map_unreserved = 0x4000;
#endif
extern "C" void* mmap(void*, __SIZE_TYPE__, int, int, int, long) noexcept;
extern "C" int munmap(void*, __SIZE_TYPE__) noexcept;

__attribute__((noinline)) HLO_UNSEEN inline void leave() {
#ifdef HLO_OWN_SWITCH
  hlo_switch(&block->fibres[block->current].context, block->scheduler);
#else
  swapcontext(&block->fibres[block->current].context, &block->scheduler);
#endif
}

HLO_UNSEEN inline void fibre_entry() {
  block->body(block->arguments);
  block->fibres[block->current].state = finished;
  ++moves;
  leave();
  __builtin_unreachable();
}

HLO_UNSEEN inline void enter(int number) {
  block->current = number;
  block->fibres[number].state = running;
  threadIdx.x = (unsigned int)number;
#ifdef HLO_RACES
  const Fibre& fibre = block->fibres[number];
  here = {block_now, (unsigned int)number, fibre.barriers, fibre.warp_barriers, fibre.grids};
#endif
}

HLO_UNSEEN inline void resume(int number) {
  enter(number);
#ifdef HLO_OWN_SWITCH
  hlo_switch(&block->scheduler, block->fibres[number].context);
#else
  swapcontext(&block->scheduler, &block->fibres[number].context);
#endif
}

// two lanes wait for each other
HLO_UNSEEN inline bool is_with(const Fibre& one, const Fibre& other) {
  return other.state == at_warp && one.line == other.line && one.mask == other.mask && one.kind == other.kind;
}

// a lane takes what another shows; anything comes from one that has left, or was never there
HLO_UNSEEN inline void give(Fibre& to, int first, unsigned int group) {
  if (to.kind == votes) {
    to.given = 0;
    for (int k = 0; k < 32; ++k)
      if (group >> k & 1u) to.given |= block->fibres[first + k].shown << k;
  } else if (to.kind == shows) {
    to.given = group >> to.source & 1u ? block->fibres[first + to.source].shown : ~0ull;
  }
}

// lets go on the lanes of a warp that have met, when none of them runs; false where they wait for one that rests, or,
// with a finding, for one that does not come
HLO_UNSEEN inline bool meet_warp(int first, int last) {
  unsigned int left = 0, alive = 0, gone = 0;
  for (int i = first; i < last; ++i) {
    const Fibre& fibre = block->fibres[i];
    if (fibre.state == at_warp) left |= 1u << (i - first);
    if (fibre.state != finished) alive |= 1u << (i - first);
  }
  const unsigned int waiting = left;
  while (left) {
    const int leader = __builtin_ctz(left);
    const Fibre& fibre = block->fibres[first + leader];
    unsigned int group = 0;
    for (int k = leader; first + k < last; ++k)
      if (left >> k & 1u && is_with(fibre, block->fibres[first + k])) group |= 1u << k;
    left &= ~group;
    if (group & ~fibre.mask) {
      HLO_FOUND("thread %d is not in the mask that it gives", first + __builtin_ctz(group & ~fibre.mask));
      return false;
    }
    if ((fibre.mask & alive) != group) continue;
    gone |= group;
    for (int k = 0; first + k < last; ++k)
      if (group >> k & 1u) give(block->fibres[first + k], first, group);
    for (int k = 0; first + k < last; ++k)
      if (group >> k & 1u) block->fibres[first + k].state = running;
  }
  if (gone) return true;
  for (int i = first; i < last; ++i)
    if (block->fibres[i].state == at_rest) return false;
  const int one = __builtin_ctz(waiting);
  const unsigned int others = block->fibres[first + one].mask & alive;
  for (int k = 0; k < 32; ++k)
    if (others >> k & 1u && k != one && !is_with(block->fibres[first + one], block->fibres[first + k])) {
      HLO_FOUND("threads %d and %d of a block wait at different places (a warp)", first + one, first + k);
      break;
    }
  return false;
}

// runs the lanes of a warp until each is at a block barrier, at rest or finished
HLO_UNSEEN inline bool run_warp(int first, int last) {
  for (;;) {
    bool waiting = false;
#ifdef HLO_RACES
    const Order lanes(last - first, seed + ++turns);
#endif
    for (int k = first; k < last; ++k) {
#ifdef HLO_RACES
      const int i = first + (int)lanes[k - first];
#else
      const int i = k;
#endif
      if (block->fibres[i].state == running) resume(i);
    }
    for (int i = first; i < last; ++i) waiting |= block->fibres[i].state == at_warp;
    if (finding[0]) return false;
    if (!waiting) return true;
    if (!meet_warp(first, last)) return !finding[0];
  }
}

// lets go on the threads of a block that have met; false when all are finished, or where some wait for others that do
// not come
HLO_UNSEEN inline bool meet_block() {
  int one = -1;
  for (int i = 0; i < block->threads; ++i)
    if (block->fibres[i].state == at_barrier) one = i;
  if (one < 0) return false;
  for (int i = 0; i < block->threads; ++i) {
    if (block->fibres[i].state == finished)
      continue;  // a barrier waits for those that have not left ("Independent Thread Scheduling")
    if (block->fibres[i].line != block->fibres[one].line) {
      HLO_FOUND("threads %d and %d of a block wait at different places (__syncthreads)", i, one);
      return false;
    }
    block->fibres[i].state = running;
  }
#ifdef HLO_RACES
  unsigned int grids = 0;
  for (int i = 0; i < block->threads; ++i)
    if (block->fibres[i].grids > grids) grids = block->fibres[i].grids;
  for (int i = 0; i < block->threads; ++i) block->fibres[i].grids = grids;
#endif
  return true;
}

// makes ready the threads of a block
HLO_UNSEEN inline void prepare_block(void (*body)(void**), void** arguments, int threads) {
  block->body = body;
  block->arguments = arguments;
  block->threads = threads;
  for (int i = 0; i < threads; ++i) {
    Fibre& fibre = block->fibres[i];
    fibre.state = running;
    fibre.clusters = 0;
#ifdef HLO_RACES
    fibre.barriers = fibre.warp_barriers = fibre.grids = 0;
#endif
    char* stack = block->stacks + (long)i * stack_bytes;
#ifdef HLO_OWN_SWITCH
    fibre.context = prepare(stack + stack_bytes, fibre_entry);
#else
    getcontext(&fibre.context);
    fibre.context.uc_stack.ss_sp = stack;
    fibre.context.uc_stack.ss_size = stack_bytes;
    fibre.context.uc_link = 0;
    makecontext(&fibre.context, fibre_entry, 0);
#endif
  }
}

// memory for `blocks` blocks of `threads` threads; 0 if there is none. Anonymous memory is zero and takes no space
// before it is touched
HLO_UNSEEN inline __SIZE_TYPE__ bytes_of(int threads) { return sizeof(Block) + (__SIZE_TYPE__)threads * stack_bytes; }
HLO_UNSEEN inline char* mapped(__SIZE_TYPE__ bytes) {
  void* found = mmap(0, bytes, 3, map_private_anonymous | map_unreserved, -1, 0);
  return found == (void*)-1 ? 0 : (char*)found;
}
HLO_UNSEEN inline Block* block_in(char* memory) {
  Block* made = (Block*)memory;
  made->stacks = memory + sizeof(Block);
  return made;
}

enum Stop : int { ended, failed, resting };

// runs the threads of a block until all have ended, or until the others wait for some that look for what other blocks
// do
HLO_UNSEEN inline Stop run_threads() {
  const int threads = block->threads;
  do {
#ifdef HLO_RACES
    const Order warps((threads + 31) / 32, seed + ++turns);
    for (int k = 0; k < (threads + 31) / 32; ++k) {
      const int first = 32 * (int)warps[k];
#else
    for (int first = 0; first < threads; first += 32) {
#endif
      if (!run_warp(first, first + 32 < threads ? first + 32 : threads)) return failed;
    }
    for (int i = 0; i < threads; ++i)
      if (block->fibres[i].state == at_rest) return resting;
  } while (meet_block());
  return finding[0] ? failed : ended;
}

// the threads of a block, each to its end; false without memory for them. Memory that holds a finding says what went
// wrong
HLO_UNSEEN inline bool run_block(void (*body)(void**), void** arguments, int threads) {
  static Block* only;
  if (!only) {
    char* memory = mapped(bytes_of(most_threads));
    if (!memory) return false;
    only = block_in(memory);
  }
  block = only;
  prepare_block(body, arguments, threads);
  if (run_threads() == resting) HLO_FOUND("a thread waits for other blocks, which need not run at the same time");
  return true;
}

// what lies in shared memory, to and from where a block keeps it while others run
__attribute__((no_sanitize("address"))) HLO_UNSEEN inline void move_shared(const Launch& launch, char* kept,
                                                                           bool back) {
  const long bytes = launch.shared_end - launch.shared;
  for (long k = 0; k < bytes; ++k) {
    volatile char* const here = launch.shared + k;
    if (back) *here = kept[k];
    else kept[k] = *here;
  }
}

// blocks that take turns, from the first one's number on
struct Turns {
  const Launch* launch;
  unsigned int first;
  char* memory;
  __SIZE_TYPE__ each;  // bytes of a block: its fibres, and behind them its shared memory while others run
  unsigned int arrived;  // threads that have come to barriers of the cluster
};
inline Turns turns_now;

// `together` blocks of a launch from `start` on, or all `others`, taking turns; false without memory for them
HLO_UNSEEN inline bool run_together(const Launch& launch, void** pointers, unsigned int start, unsigned int others) {
  const __SIZE_TYPE__ shared = launch.shared_end > launch.shared ? launch.shared_end - launch.shared : 0;
  const __SIZE_TYPE__ each = (bytes_of(launch.block) + shared + 4095) / 4096 * 4096;
  const unsigned int count = others < launch.together ? others : launch.together;
  char* const memory = mapped(each * count);
  if (!memory) return false;
  turns_now = {&launch, start, memory, each, 0};
#ifdef HLO_RACES
  const unsigned int first = blocks_run + 1;
  blocks_run += count;
#endif
  unsigned int left = count;
  for (unsigned long long sweep = 0; left && !finding[0]; ++sweep) {
    const unsigned long long before = moves;
#ifdef HLO_RACES
    const Order blocks(count, seed + sweep);
#else
    const Order blocks(count, launches + sweep);
#endif
    for (unsigned int n = 0; n < count && !finding[0]; ++n) {
      const unsigned int number = (unsigned int)blocks[n];
      char* const own = memory + each * number;
      char* const kept = own + bytes_of(launch.block);
      blockIdx = {start + number, 0, 0};
#ifdef HLO_RACES
      block_now = first + number;
#endif
      if (sweep == 0) {
        block = block_in(own);
        prepare_block(launch.thread, pointers, launch.block);
        if (shared) fill_shared(launch, n % 2 ? 0xA5 : 0xFF);
      } else {
        block = (Block*)own;
        if (block->has_ended) continue;
        if (shared) move_shared(launch, kept, true);
        for (int i = 0; i < block->threads; ++i)
          if (block->fibres[i].state == at_rest) block->fibres[i].state = running;
      }
#ifdef HLO_RACES
      exchange_shared(block->touched);
#endif
      if (run_threads() == ended) {
        block->has_ended = true;
        --left;
      }
      if (shared) move_shared(launch, kept, false);
#ifdef HLO_RACES
      exchange_shared(block->touched);
#endif
    }
    if (left && moves == before) HLO_FOUND("blocks wait for others, which do not come");
  }
#ifdef HLO_RACES
  for (unsigned int n = 0; n < count; ++n) free(((Block*)(memory + each * n))->touched);
#endif
  munmap(memory, each * count);
  turns_now.launch = 0;
  return true;
}

// goes on with the next lane of the warp that can run, with the scheduler after the last one
HLO_UNSEEN inline void wait(State state, int line) {
  const int self = block->current;
  block->fibres[self].state = state;
  block->fibres[self].line = line;
#ifdef HLO_RACES
  block->fibres[self].grids = here.grids;
  return leave();
#else
  int next = self + 1;
  while (next % 32 && next < block->threads && block->fibres[next].state != running) ++next;
  if (next % 32 == 0 || next >= block->threads) return leave();
  enter(next);
#ifdef HLO_OWN_SWITCH
  hlo_switch(&block->fibres[self].context, block->fibres[next].context);
#else
  swapcontext(&block->fibres[self].context, &block->fibres[next].context);
#endif
#endif
}

HLO_UNSEEN inline unsigned long long meet(Kind kind, int line, unsigned int mask, unsigned long long shown,
                                          int source) {
  Fibre& self = block->fibres[block->current];
  self.kind = kind;
  self.mask = mask;
  self.shown = shown;
  self.source = source;
  wait(at_warp, line);
  return self.given;
}

HLO_UNSEEN inline int lane() { return block->current % 32; }

template <typename T> HLO_UNSEEN static inline T taken(int line, unsigned int mask, T value, int source) {
  unsigned long long shown = 0;
  __builtin_memcpy(&shown, &value, sizeof(T));
  shown = meet(shows, line, mask, shown, source);
  __builtin_memcpy(&value, &shown, sizeof(T));
  return value;
}

#define HLO_SHUFFLES(T)                                                                                            \
  HLO_UNSEEN static inline T shuffle(int line, unsigned int mask, T value, int of, int width = 32) {               \
    return taken(line, mask, value, lane_at(lane(), of, width));                                                   \
  }                                                                                                                \
  HLO_UNSEEN static inline T shuffle_down(int line, unsigned int mask, T value, unsigned int by, int width = 32) { \
    return taken(line, mask, value, lane_down(lane(), (int)by, width));                                            \
  }                                                                                                                \
  HLO_UNSEEN static inline T shuffle_up(int line, unsigned int mask, T value, unsigned int by, int width = 32) {   \
    return taken(line, mask, value, lane_up(lane(), (int)by, width));                                              \
  }                                                                                                                \
  HLO_UNSEEN static inline T shuffle_xor(int line, unsigned int mask, T value, int by, int width = 32) {           \
    return taken(line, mask, value, lane_xor(lane(), by, width));                                                  \
  }
HLO_SHUFFLES(int)
HLO_SHUFFLES(unsigned int)
HLO_SHUFFLES(long)
HLO_SHUFFLES(unsigned long)
HLO_SHUFFLES(long long)
HLO_SHUFFLES(unsigned long long)
HLO_SHUFFLES(float)
HLO_SHUFFLES(double)
#undef HLO_SHUFFLES

// complex numbers, part by part: a kernel brings their type
#define HLO_SHUFFLES_PARTS(name, Lane)                                                                             \
  template <template <typename> class Complex, typename T>                                                         \
  HLO_UNSEEN static inline Complex<T> name(int line, unsigned int mask, Complex<T> z, Lane at, int width = 32) {   \
    const T re = name(line, mask, z.re, at, width);                                                                \
    return Complex<T>(re, name(line, mask, z.im, at, width));                                                      \
  }
HLO_SHUFFLES_PARTS(shuffle, int)
HLO_SHUFFLES_PARTS(shuffle_down, unsigned int)
HLO_SHUFFLES_PARTS(shuffle_up, unsigned int)
#undef HLO_SHUFFLES_PARTS

HLO_UNSEEN inline unsigned int ballot(int line, unsigned int mask, int predicate) {
  return (unsigned int)meet(votes, line, mask, predicate != 0, 0);
}

HLO_UNSEEN inline void sync_threads(int line) {
#ifdef HLO_RACES
  ++block->fibres[block->current].barriers;
#endif
  ++moves;
  wait(at_barrier, line);
}
struct At {
  int line;
  HLO_UNSEEN void sync_warp(unsigned int mask = 0xffffffffu) const {
#ifdef HLO_RACES
    ++block->fibres[block->current].warp_barriers;
#endif
    meet(orders, line, mask, 0, 0);
  }
};

}  // namespace hlo

#define __syncthreads() hlo::sync_threads(__LINE__)
#define __nanosleep(ns) hlo::wait(hlo::at_rest, __LINE__)
#define __syncwarp hlo::At{__LINE__}.sync_warp
#define __shfl_sync(...) hlo::shuffle(__LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) hlo::shuffle_down(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) hlo::shuffle_up(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) hlo::shuffle_xor(__LINE__, __VA_ARGS__)
#define __ballot_sync(...) hlo::ballot(__LINE__, __VA_ARGS__)
