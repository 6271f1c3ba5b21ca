// Crashes of kernels: while somebody asks for it, a launch that a signal would end (an access to memory that is not
// there, a division by zero, an instruction that the processor does not have, a stack that is full) returns, and the
// process goes on. Stands in host_runtime.cpp.
//
// The thread that crashes jumps back to its launch, on whatever stack it is. Memory that the kernel changed stays
// changed, so that no result of the run counts, nor does the library's own memory. Signals that come from elsewhere, or
// in threads that run no kernel, go where they went before.
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

static const int crash_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
static const int crash_kinds = sizeof crash_signals / sizeof *crash_signals;
static const int status_crashed = 64;  // and the signal
static const size_t signal_stack_bytes = 1 << 16;

// No signal handler may allocate, so these lie where a thread finds them at once.
#define HLO_OF_THREAD static __thread __attribute__((tls_model("initial-exec")))
HLO_OF_THREAD sigjmp_buf* crash_place;  // where this thread's launch goes on
HLO_OF_THREAD int crash_signal;         // the signal that ended this thread's launch; 0: none did

static struct sigaction crash_previous[crash_kinds];
static pthread_mutex_t crash_lock = PTHREAD_MUTEX_INITIALIZER;
static int crash_guards;     // how many ask for it
static void* crash_address;  // what the last crash was about

static void on_crash(int signal, siginfo_t* info, void*) {
  const bool is_fault = info->si_code > 0;  // no other process sent it
  if (crash_place && is_fault) {
    __atomic_store_n(&crash_address, info->si_addr, __ATOMIC_RELAXED);
    siglongjmp(*crash_place, signal);
  }
  for (int k = 0; k < crash_kinds; ++k)
    if (crash_signals[k] == signal) sigaction(signal, &crash_previous[k], 0);
  if (!is_fault) raise(signal);  // a fault comes again by itself
}

// One more who asks for it (1), or one less (-1).
extern "C" __attribute__((visibility("default"))) void hlo_guard(int more) {
  pthread_mutex_lock(&crash_lock);
  const int before = __atomic_fetch_add(&crash_guards, more, __ATOMIC_SEQ_CST);
  for (int k = 0; k < crash_kinds; ++k) {
    struct sigaction now;
    if (before == 0) {
      now = {};
      now.sa_sigaction = on_crash;
      now.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
      sigemptyset(&now.sa_mask);
      sigaction(crash_signals[k], &now, &crash_previous[k]);
    } else if (before + more == 0) {
      sigaction(crash_signals[k], 0, &now);
      const bool is_ours = (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_crash;
      if (is_ours) sigaction(crash_signals[k], &crash_previous[k], 0);
    }
  }
  pthread_mutex_unlock(&crash_lock);
}

extern "C" __attribute__((visibility("default"))) void* hlo_crash_address() {
  return __atomic_load_n(&crash_address, __ATOMIC_RELAXED);
}

static inline bool is_guarded() { return __atomic_load_n(&crash_guards, __ATOMIC_RELAXED) > 0; }

// A stack for signals in this thread, which has none: a full stack has no room for them.
struct SignalStack {
  void* memory = MAP_FAILED;

  SignalStack() {
    stack_t now;
    if (sigaltstack(0, &now) || !(now.ss_flags & SS_DISABLE)) return;
    memory = mmap(0, signal_stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    stack_t own = {};
    own.ss_sp = memory;
    own.ss_size = signal_stack_bytes;
    sigaltstack(&own, 0);
  }
  ~SignalStack() {
    if (memory == MAP_FAILED) return;
    stack_t none = {};
    none.ss_flags = SS_DISABLE;
    none.ss_size = signal_stack_bytes;
    sigaltstack(&none, 0);
    munmap(memory, signal_stack_bytes);
  }
};

// What `run` returns, or 1 where it crashes: then `crash_signal` says by which signal.
template <typename Run> __attribute__((noinline)) static int guarded(const Run& run) {
  sigjmp_buf place;
  sigjmp_buf* const outer = crash_place;
  const Word mode = float_mode();
  if (const int signal = sigsetjmp(place, 0)) {
    crash_place = outer;
    set_float_mode(mode);
    crash_signal = signal;
    return 1;
  }
  crash_place = &place;
  const int failed = run();
  crash_place = outer;
  return failed;
}

static inline int run_blocks(Launcher launcher, void** pointers, Word first, Word last) {
  if (!is_guarded()) return launcher(pointers, first, last);
  return guarded([=] { return launcher(pointers, first, last); });
}

// What a launcher returns, or `status_crashed` and the signal.
extern "C" __attribute__((visibility("default"))) int hlo_launch(Launcher launcher, void** pointers, Word first,
                                                                 Word last) {
  const SignalStack stack;
  crash_signal = 0;
  const int failed = run_blocks(launcher, pointers, first, last);
  return crash_signal ? status_crashed + crash_signal : failed;
}
