// Fibres: one per thread of a block, for kernels whose threads meet where loops cannot follow.
#pragma once

namespace hlo {

#if defined(__x86_64__) && defined(__linux__) && !defined(HLO_UCONTEXT)
// saves what a callee must keep, stores the stack pointer, goes on where the other stack left off
extern "C" void hlo_switch(void** from, void* to) __attribute__((visibility("hidden")));
asm(".text\n.type hlo_switch,@function\nhlo_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\npopq %rcx\njmp *%rcx\n.size hlo_switch,.-hlo_switch\n");
#define HLO_OWN_SWITCH 1
static void* prepare(char* top, void (*entry)()) {
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
static void* prepare(char* top, void (*entry)()) {
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
enum State { running, at_barrier, at_warp, finished };

struct Fibre {
  State state;
#ifdef HLO_OWN_SWITCH
  void* context;
#else
  ucontext_t context;
#endif
#ifdef HLO_RACES
  unsigned int barriers, warp_barriers, exchanges;
  int place;  // in the text, of the meeting that it waits at
#endif
};

struct Block {
  Fibre fibres[most_threads];
  unsigned long long slots[2][most_threads];  // what lanes show each other; two, so that a quick lane overwrites nothing that is still read
  unsigned char turn[most_threads];           // which of the two a lane uses next
#ifdef HLO_OWN_SWITCH
  void* scheduler;
#else
  ucontext_t scheduler;
#endif
  char* stacks;
  int current, threads;
  void (*body)(void**, int thread, int number);
  void** arguments;
  int number;
};

// of the processor's own thread
static __thread Block* block;

#ifdef __APPLE__
const int map_private_anonymous = 0x1002;
#else
const int map_private_anonymous = 0x22;
#endif
extern "C" void* mmap(void*, __SIZE_TYPE__, int, int, int, long) noexcept;

__attribute__((noinline)) static void leave() {
#ifdef HLO_OWN_SWITCH
  hlo_switch(&block->fibres[block->current].context, block->scheduler);
#else
  swapcontext(&block->fibres[block->current].context, &block->scheduler);
#endif
}

static void fibre_entry() {
  block->body(block->arguments, block->current, block->number);
  block->fibres[block->current].state = finished;
  leave();
  __builtin_unreachable();
}

static void enter(int number) {
  block->current = number;
  block->fibres[number].state = running;
#ifdef HLO_RACES
  here = {blocks_run, (unsigned int)number, block->fibres[number].barriers, block->fibres[number].warp_barriers};
#endif
}

#ifdef HLO_RACES
static unsigned long long turns = 0;

static void wait_place(int line) { block->fibres[block->current].place = line; }

// a thread of each warp, and of the block, waits where the others do
static void compare_places(int first, int last, const char* what) {
  int found = -1;
  for (int i = first; i < last; ++i) {
    const Fibre& fibre = block->fibres[i];
    if (fibre.state == finished) continue;
    if (found >= 0 && (fibre.place != block->fibres[found].place || fibre.state != block->fibres[found].state)) report_barrier(what, found, i);
    found = i;
  }
}
#endif

static void resume(int number) {
  enter(number);
#ifdef HLO_OWN_SWITCH
  hlo_switch(&block->scheduler, block->fibres[number].context);
#else
  swapcontext(&block->scheduler, &block->fibres[number].context);
#endif
}

// runs the lanes of a warp until each is at a block barrier or finished; false when all are finished
static bool run_warp(int first, int last) {
  for (;;) {
    bool waiting = false, alive = false;
#ifdef HLO_RACES
    const Order lanes(last - first, seed + ++turns);
#endif
    for (int k = first; k < last; ++k) {
#ifdef HLO_RACES
      const int i = first + (int)lanes[k - first];
#else
      const int i = k;
#endif
      Fibre& fibre = block->fibres[i];
      if (fibre.state == running) resume(i);
      waiting |= fibre.state == at_warp;
      alive |= fibre.state == at_barrier;
    }
    if (!waiting) return alive;
#ifdef HLO_RACES
    compare_places(first, last, "a warp");
#endif
    for (int i = first; i < last; ++i)
      if (block->fibres[i].state == at_warp) block->fibres[i].state = running;
  }
}

static bool run_block(void (*body)(void**, int, int), void** arguments, int threads, int number) {
  if (!block) {
    // anonymous memory is zero and takes no space before it is touched
    void* found = mmap(0, sizeof(Block) + (__SIZE_TYPE__)most_threads * stack_bytes, 3, map_private_anonymous, -1, 0);
    if (found == (void*)-1) return false;
    block = (Block*)found;
    block->stacks = (char*)found + sizeof(Block);
  }
  block->body = body;
  block->arguments = arguments;
  block->number = number;
  block->threads = threads;
  for (int i = 0; i < threads; ++i) {
    Fibre& fibre = block->fibres[i];
    fibre.state = running;
    block->turn[i] = 0;
#ifdef HLO_RACES
    fibre.barriers = fibre.warp_barriers = fibre.exchanges = 0;
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
  for (bool alive = true; alive;) {
    alive = false;
#ifdef HLO_RACES
    const Order warps((threads + 31) / 32, seed + ++turns);
    for (int k = 0; k < (threads + 31) / 32; ++k) {
      const int first = 32 * (int)warps[k];
#else
    for (int first = 0; first < threads; first += 32) {
#endif
      alive |= run_warp(first, first + 32 < threads ? first + 32 : threads);
    }
#ifdef HLO_RACES
    compare_places(0, threads, "__syncthreads");
#endif
    for (int i = 0; i < threads; ++i)
      if (block->fibres[i].state == at_barrier) block->fibres[i].state = running;
  }
  return true;
}

// goes on with the next lane of the warp that can run, with the scheduler after the last one
static void wait(State state) {
  const int self = block->current;
  block->fibres[self].state = state;
#ifdef HLO_RACES
  return leave();
#endif
  int next = self + 1;
  while (next % 32 && next < block->threads && block->fibres[next].state != running) ++next;
  if (next % 32 == 0 || next >= block->threads) return leave();
  enter(next);
#ifdef HLO_OWN_SWITCH
  hlo_switch(&block->fibres[self].context, block->fibres[next].context);
#else
  swapcontext(&block->fibres[self].context, &block->fibres[next].context);
#endif
}

template <typename T> static T exchange(T value, int source) {
  const int self = block->current, turn = block->turn[self];
  block->turn[self] = (unsigned char)(turn ^ 1);
  __builtin_memcpy(&block->slots[turn][self], &value, sizeof(T));
#ifdef HLO_RACES
  const unsigned int number = ++block->fibres[self].exchanges;
  wait(at_warp);
  const int of = self / 32 * 32 + source;
  if (source >= 0 && (of >= block->threads || block->fibres[of].exchanges < number)) {  // it has left, or was never there: anything comes
    T any;
    for (__SIZE_TYPE__ k = 0; k < sizeof(T); ++k) ((unsigned char*)&any)[k] = 0xA5;
    return any;
  }
#else
  wait(at_warp);
#endif
  T result = value;
  if (source >= 0) __builtin_memcpy(&result, &block->slots[turn][self / 32 * 32 + source], sizeof(T));
  return result;
}

}  // namespace hlo

static inline void __syncthreads() {
#ifdef HLO_RACES
  ++hlo::block->fibres[hlo::block->current].barriers;
#endif
  hlo::wait(hlo::at_barrier);
}
static inline void __syncwarp(unsigned int = 0xffffffffu) {
#ifdef HLO_RACES
  ++hlo::block->fibres[hlo::block->current].warp_barriers;
#endif
  hlo::wait(hlo::at_warp);
}
template <typename T> static T __shfl_sync(unsigned int, T value, int lane, int width = 32) {
  return hlo::exchange(value, hlo::lane_at(hlo::block->current % 32, lane, width));
}
template <typename T> static T __shfl_down_sync(unsigned int, T value, unsigned int distance, int width = 32) {
  return hlo::exchange(value, hlo::lane_down(hlo::block->current % 32, (int)distance, width));
}
template <typename T> static T __shfl_up_sync(unsigned int, T value, unsigned int distance, int width = 32) {
  return hlo::exchange(value, hlo::lane_up(hlo::block->current % 32, (int)distance, width));
}
template <typename T> static T __shfl_xor_sync(unsigned int, T value, int mask, int width = 32) {
  return hlo::exchange(value, hlo::lane_xor(hlo::block->current % 32, mask, width));
}
static inline unsigned int __ballot_sync(unsigned int mask, int predicate) {
  const int self = hlo::block->current, turn = hlo::block->turn[self], first = self / 32 * 32;
  hlo::exchange((unsigned long long)(predicate != 0), -1);
  unsigned int found = 0;
  for (int i = 0; i < 32; ++i)
    if (mask >> i & 1u && hlo::block->slots[turn][first + i] & 1u) found |= 1u << i;
  return found;
}
static inline int __any_sync(unsigned int mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
static inline int __all_sync(unsigned int mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }

