// What CUDA gives a kernel, for a C++ compiler on the host. A launcher runs the blocks one after another; the threads of a block run as a plain loop, or,
// where they meet (barriers, shuffles), as fibres that take turns.
#pragma once

#define __global__ inline __attribute__((always_inline))
#define __device__
#define __constant__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __shared__ static
#define __restrict__ __restrict
#define warpSize 32
#define __builtin_assume_aligned(pointer, bytes) (pointer)  // arrays of the host may start anywhere

// Only what kernels call is declared: <cmath> alone would take longer to compile than most kernels.
#define HLO_MATH_1(name) double name(double); float name##f(float);
#define HLO_MATH_2(name) double name(double, double); float name##f(float, float);
extern "C" {
HLO_MATH_1(acos) HLO_MATH_1(acosh) HLO_MATH_1(asin) HLO_MATH_1(asinh) HLO_MATH_1(atan) HLO_MATH_1(atanh)
HLO_MATH_1(cbrt) HLO_MATH_1(ceil) HLO_MATH_1(cos) HLO_MATH_1(cosh) HLO_MATH_1(erf) HLO_MATH_1(erfc)
HLO_MATH_1(exp) HLO_MATH_1(exp2) HLO_MATH_1(expm1) HLO_MATH_1(fabs) HLO_MATH_1(floor) HLO_MATH_1(lgamma)
HLO_MATH_1(log) HLO_MATH_1(log10) HLO_MATH_1(log1p) HLO_MATH_1(log2) HLO_MATH_1(nearbyint) HLO_MATH_1(rint)
HLO_MATH_1(round) HLO_MATH_1(sin) HLO_MATH_1(sinh) HLO_MATH_1(sqrt) HLO_MATH_1(tan) HLO_MATH_1(tanh)
HLO_MATH_1(tgamma) HLO_MATH_1(trunc)
HLO_MATH_2(atan2) HLO_MATH_2(copysign) HLO_MATH_2(fmax) HLO_MATH_2(fmin) HLO_MATH_2(fmod) HLO_MATH_2(hypot)
HLO_MATH_2(nextafter) HLO_MATH_2(pow) HLO_MATH_2(remainder)
double fma(double, double, double);
float fmaf(float, float, float);
double ldexp(double, int);
float ldexpf(float, int);
void* memcpy(void*, const void*, __SIZE_TYPE__) noexcept;
void* memset(void*, int, __SIZE_TYPE__) noexcept;
}
#undef HLO_MATH_1
#undef HLO_MATH_2

#define isnan(x) __builtin_isnan(x)
#define isinf(x) __builtin_isinf(x)
#define isfinite(x) __builtin_isfinite(x)
#define signbit(x) __builtin_signbit(x)

namespace hlo {

template <typename To, typename From> __forceinline__ To bits_as(From from) {
  To to;
  static_assert(sizeof(To) == sizeof(From), "");
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}

struct dim3 { unsigned int x, y, z; };

}  // namespace hlo

typedef hlo::dim3 dim3;
static dim3 threadIdx, blockIdx, blockDim, gridDim;

__forceinline__ float __int_as_float(int x) { return hlo::bits_as<float>(x); }
__forceinline__ int __float_as_int(float x) { return hlo::bits_as<int>(x); }
__forceinline__ float __uint_as_float(unsigned int x) { return hlo::bits_as<float>(x); }
__forceinline__ unsigned int __float_as_uint(float x) { return hlo::bits_as<unsigned int>(x); }
__forceinline__ double __longlong_as_double(long long x) { return hlo::bits_as<double>(x); }
__forceinline__ long long __double_as_longlong(double x) { return hlo::bits_as<long long>(x); }
template <typename T> __forceinline__ T __ldg(const T* p) { return *p; }

// ---- fibres: one per thread of a block, for kernels whose threads meet

#ifdef HLO_FIBRES

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
  void (*body)(void**);
  void** arguments;
};

// one per library; the caller holds a lock
static Block* block;

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
  block->body(block->arguments);
  block->fibres[block->current].state = finished;
  leave();
  __builtin_unreachable();
}

static void enter(int number) {
  block->current = number;
  threadIdx.x = (unsigned int)number;
  block->fibres[number].state = running;
}

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
    for (int i = first; i < last; ++i) {
      Fibre& fibre = block->fibres[i];
      if (fibre.state == running) resume(i);
      waiting |= fibre.state == at_warp;
      alive |= fibre.state == at_barrier;
    }
    if (!waiting) return alive;
    for (int i = first; i < last; ++i)
      if (block->fibres[i].state == at_warp) block->fibres[i].state = running;
  }
}

static bool run_block(void (*body)(void**), void** arguments, int threads) {
  if (!block) {
    // anonymous memory is zero and takes no space before it is touched
    void* found = mmap(0, sizeof(Block) + (__SIZE_TYPE__)most_threads * stack_bytes, 3, map_private_anonymous, -1, 0);
    if (found == (void*)-1) return false;
    block = (Block*)found;
    block->stacks = (char*)found + sizeof(Block);
  }
  block->body = body;
  block->arguments = arguments;
  block->threads = threads;
  for (int i = 0; i < threads; ++i) {
    Fibre& fibre = block->fibres[i];
    fibre.state = running;
    block->turn[i] = 0;
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
    for (int first = 0; first < threads; first += 32)
      alive |= run_warp(first, first + 32 < threads ? first + 32 : threads);
    for (int i = 0; i < threads; ++i)
      if (block->fibres[i].state == at_barrier) block->fibres[i].state = running;
  }
  return true;
}

// goes on with the next lane of the warp that can run, with the scheduler after the last one
static void wait(State state) {
  const int self = block->current;
  block->fibres[self].state = state;
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
  wait(at_warp);
  T result = value;
  if (source >= 0) __builtin_memcpy(&result, &block->slots[turn][self / 32 * 32 + source], sizeof(T));
  return result;
}

}  // namespace hlo

static inline void __syncthreads() { hlo::wait(hlo::at_barrier); }
static inline void __syncwarp(unsigned int = 0xffffffffu) { hlo::wait(hlo::at_warp); }
template <typename T> static T __shfl_sync(unsigned int, T value, int lane, int width = 32) {
  return hlo::exchange(value, ((int)threadIdx.x % 32) / width * width + lane % width);
}
template <typename T> static T __shfl_down_sync(unsigned int, T value, unsigned int distance, int width = 32) {
  const int self = (int)threadIdx.x % 32, source = self % width + (int)distance;
  return hlo::exchange(value, source < width ? self + (int)distance : self);
}
template <typename T> static T __shfl_up_sync(unsigned int, T value, unsigned int distance, int width = 32) {
  const int self = (int)threadIdx.x % 32;
  return hlo::exchange(value, self % width >= (int)distance ? self - (int)distance : self);
}
template <typename T> static T __shfl_xor_sync(unsigned int, T value, int mask, int width = 32) {
  const int self = (int)threadIdx.x % 32, source = self ^ mask;
  return hlo::exchange(value, source / width <= self / width ? source : self);
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

#endif  // HLO_FIBRES

// ---- atomics: threads take turns, so plain updates are whole

template <typename T> static inline T atomicAdd(T* p, T value) { const T old = *p; *p = old + value; return old; }
template <typename T> static inline T atomicMax(T* p, T value) { const T old = *p; *p = old < value ? value : old; return old; }
template <typename T> static inline T atomicMin(T* p, T value) { const T old = *p; *p = value < old ? value : old; return old; }
template <typename T> static inline T atomicAnd(T* p, T value) { const T old = *p; *p = old & value; return old; }
template <typename T> static inline T atomicOr(T* p, T value) { const T old = *p; *p = old | value; return old; }
template <typename T> static inline T atomicXor(T* p, T value) { const T old = *p; *p = old ^ value; return old; }
template <typename T> static inline T atomicExch(T* p, T value) { const T old = *p; *p = value; return old; }
template <typename T> static inline T atomicCAS(T* p, T expected, T value) { const T old = *p; if (old == expected) *p = value; return old; }
