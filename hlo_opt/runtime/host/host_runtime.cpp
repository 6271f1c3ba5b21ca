// Runs a schedule: stretches of kernels, loops and conditionals over buffers whose places are known. Built once for all
// modules.
//
// A routine is a list of 64-bit words (hlo_opt/runtime/host/words.py writes them). A frame is a table of pointers, one
// per buffer, and a base address at which the routine's own buffers lie. Control flow is an explicit stack, so that no
// input decides how deep the processor's stack grows.
#undef _FORTIFY_SOURCE  // its longjmp refuses to leave a stack that lies elsewhere, as those of fibres do
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef long long Word;
typedef int (*Launcher)(void**, Word, Word);
// as in host_routine.h: a routine of the host's own
typedef bool (*OwnRoutine)(void** slots, const Word* w, int (*)(Launcher, void**, Word, int), int processors);

enum Operation : Word {
  op_kernel, op_view, op_copy, op_library, op_while, op_branch, op_return, op_own
};
enum Mode : Word { mode_swap, mode_same, mode_in_place };
// after `call` and `pause` the caller goes on by calling again; after a crash it is `status_crashed` and the signal
enum Status : int { status_fine, status_call, status_fibres, status_steps, status_memory, status_pause };

static Word now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (Word)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// how a thread treats denormals, and rounds: a kernel's blocks must all do as the thread that launches them
static inline Word float_mode() {
#if defined(__SSE__)
  return __builtin_ia32_stmxcsr();
#elif defined(__aarch64__)
  Word mode;
  __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
#else
  return 0;
#endif
}

static inline void set_float_mode(Word mode) {
#if defined(__SSE__)
  __builtin_ia32_ldmxcsr((unsigned)mode);
#elif defined(__aarch64__)
  __asm__ volatile("msr fpcr, %0" : : "r"(mode));
#endif
}

HLO_CRASHES

// ---- blocks of one kernel, spread over the processors

namespace {

const int most_workers = 64;
const Word spin_ns = 30000;  // how long a worker looks for the next kernel before it sleeps: longer than the gap
                             // between two kernels of a loop

struct Pool {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, sleep_lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
  int workers = 0;
  Launcher launcher;
  void** pointers;
  Word grid, chunk;
  Word mode;      // of floats, in the thread that launches
  int shares;     // one for each processor
  int active;     // workers inside the job
  int failed;
  int crashed;    // the signal of a worker's launch
  Word job;       // counts up; even: nothing to do, odd: a job is open
  int sleeping = 0;
} pool;

// A share's blocks that nobody has taken, a cache line each. Kernels of one loop go over the same arrays again: who
// begins with the share that he had before finds in his own cache what he has written there.
struct alignas(64) Share {
  Word next, end;
} shares[most_workers + 1];

void take_blocks(int own) {
  for (int turn = 0; turn < pool.shares; ++turn) {
    Share& share = shares[(own + turn) % pool.shares];
    while (__atomic_load_n(&share.next, __ATOMIC_RELAXED) < share.end) {
      const Word first = __atomic_fetch_add(&share.next, pool.chunk, __ATOMIC_RELAXED);
      if (first >= share.end) break;
      const Word last = first + pool.chunk < share.end ? first + pool.chunk : share.end;
      if (run_blocks(pool.launcher, pool.pointers, first, last)) __atomic_store_n(&pool.failed, 1, __ATOMIC_RELAXED);
    }
  }
}

void* work(void* number) {
  const int own = (int)(Word)number;
  Word seen = 0;
  for (;;) {
    Word begun = 0;
    for (int turn = 0;; ++turn) {
      const Word job = __atomic_load_n(&pool.job, __ATOMIC_ACQUIRE);
      if ((job & 1) && job != seen) {
        // entering is announced first; the job may have been closed meanwhile
        __atomic_fetch_add(&pool.active, 1, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&pool.job, __ATOMIC_SEQ_CST) == job) {
          seen = job;
          set_float_mode(pool.mode);
          if (is_guarded()) static thread_local const SignalStack of_worker;
          crash_signal = 0;
          take_blocks(own);
          if (crash_signal) __atomic_store_n(&pool.crashed, crash_signal, __ATOMIC_RELAXED);
        }
        __atomic_fetch_sub(&pool.active, 1, __ATOMIC_RELEASE);
        break;
      }
      relax();
      if ((turn & 63) == 63) {
        const Word at = now();
        if (!begun) begun = at;
        if (at - begun > spin_ns) {
          pthread_mutex_lock(&pool.sleep_lock);
          __atomic_fetch_add(&pool.sleeping, 1, __ATOMIC_SEQ_CST);
          const Word now_job = __atomic_load_n(&pool.job, __ATOMIC_SEQ_CST);
          if (!((now_job & 1) && now_job != seen)) pthread_cond_wait(&pool.wake, &pool.sleep_lock);
          __atomic_fetch_sub(&pool.sleeping, 1, __ATOMIC_SEQ_CST);
          pthread_mutex_unlock(&pool.sleep_lock);
          begun = 0;
        }
      }
    }
  }
  return 0;
}

// a child process has none of its parent's threads
void forget_workers() { pool = Pool(); }

int ready_workers(int wanted) {
  static bool has_warned = false;
  if (!has_warned) {
    has_warned = true;
    pthread_atfork(0, 0, forget_workers);
  }
  while (pool.workers < wanted && pool.workers < most_workers) {
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    const int failed = pthread_create(&thread, &attributes, work, (void*)(Word)(pool.workers + 1));
    pthread_attr_destroy(&attributes);
    if (failed) break;
    ++pool.workers;
  }
  return pool.workers;
}

int launch(Launcher launcher, void** pointers, Word grid, int processors) {
  if (processors < 2 || grid < 2 || pthread_mutex_trylock(&pool.lock)) return run_blocks(launcher, pointers, 0, grid);
  int failed;
  const int workers = ready_workers(processors - 1);
  if (!workers) {
    failed = run_blocks(launcher, pointers, 0, grid);
  } else {
    pool.launcher = launcher;
    pool.pointers = pointers;
    pool.grid = grid;
    const Word parts = 4 * (workers + 1);
    pool.chunk = grid / parts ? grid / parts : 1;
    pool.failed = pool.crashed = 0;
    pool.mode = float_mode();
    pool.shares = workers + 1;
    for (Word k = 0; k <= workers; ++k) {
      shares[k].end = grid * (k + 1) / (workers + 1);
      __atomic_store_n(&shares[k].next, grid * k / (workers + 1), __ATOMIC_RELAXED);
    }
    __atomic_fetch_add(&pool.job, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&pool.sleeping, __ATOMIC_SEQ_CST)) {
      pthread_mutex_lock(&pool.sleep_lock);
      pthread_cond_broadcast(&pool.wake);
      pthread_mutex_unlock(&pool.sleep_lock);
    }
    take_blocks(0);
    __atomic_fetch_add(&pool.job, 1, __ATOMIC_SEQ_CST);
    for (int turn = 0; __atomic_load_n(&pool.active, __ATOMIC_SEQ_CST); ++turn)
      if (turn < 1000) relax();
      else sched_yield();  // a worker may wait for this very processor
    failed = pool.failed;
    if (pool.crashed) crash_signal = pool.crashed;
  }
  pthread_mutex_unlock(&pool.lock);
  return failed;
}

// ---- the schedule

struct Routine {
  const Word* words;  // initial values, then operations
  Word buffers;       // pointers of buffers; behind them lie those of the results' destinations
  Word slots;         // all pointers of a frame
};

// of a launcher on one processor: the quickest of its first runs, in nanoseconds (others may have been interrupted)
struct Timing {
  Word runs, least;
};

struct Frame {
  const Routine* routine;
  const Word* at;
  void** slots;
  char* base;
  Word iterations;
  bool in_condition;
};

}  // namespace

struct Program {
  const Routine* routines;
  const Launcher* functions;  // launchers of kernels, then routines of the host's own
  Timing* timings;
  void* const* constants;
  Word most_steps;  // of all loops together; negative: any number
  int processors;
  // what a run tells
  Word launches, steps, at_instruction, at_iterations;
  void** at_slots;
  Word depth;  // of the frame that runs, where the run has not ended
};

static const Word enough_runs = 4;
static const Word parallel_ns = 25000;       // from here on spreading a kernel is worth waking others
static const Word parallel_in_loop_ns = 12000;  // and in a loop, where others still look for the next kernel
static const Word parallel_bytes = 1 << 22;  // what a kernel touches that is spread without being timed

static void enter(Frame* frame, const Routine* routine, void** slots, char* base) {
  frame->routine = routine;
  frame->slots = slots;
  frame->base = base;
}

// fills in the places that are known from the start; inputs and destinations are there already
static void begin(const Program* program, Frame* frame) {
  const Word* w = frame->routine->words;
  void** const slots = frame->slots;
  for (Word n = *w++; n > 0; --n, w += 2) slots[w[0]] = frame->base + w[1];
  for (Word n = *w++; n > 0; --n, w += 2) slots[w[0]] = program->constants[w[1]];
  for (Word n = *w++; n > 0; --n, w += 2) slots[w[0]] = slots[frame->routine->buffers + w[1]];
  frame->at = w;
}

static inline void move(void* to, const void* from, Word bytes) {
  if (to != from && bytes) memcpy(to, from, (size_t)bytes);
}

// while: words after the operation are
// condition, body, predicate slot, offset of the callee's base, instruction, count, then for each leaf: input, output,
// spare and current slots, mode, bytes
enum { w_condition, w_body, w_predicate, w_base, w_instruction, w_count, w_leaves };
enum { l_input, l_output, l_spare, l_current, l_mode, l_bytes, l_words };

static void call_condition(const Program* program, Frame* top, const Word* w) {
  Frame* callee = top + 1;
  enter(callee, &program->routines[w[w_condition]], top->slots + top->routine->slots, top->base + w[w_base]);
  top->in_condition = true;
  const Word* leaf = w + w_leaves;
  for (Word k = 0; k < w[w_count]; ++k, leaf += l_words) callee->slots[k] = top->slots[leaf[l_current]];
  callee->slots[callee->routine->buffers] = top->slots[w[w_predicate]];
  begin(program, callee);
}

static void call_body(const Program* program, Frame* top, const Word* w) {
  Frame* callee = top + 1;
  enter(callee, &program->routines[w[w_body]], top->slots + top->routine->slots, top->base + w[w_base]);
  top->in_condition = false;
  void** const slots = top->slots;
  const Word* leaf = w + w_leaves;
  for (Word k = 0; k < w[w_count]; ++k, leaf += l_words) {
    void* const current = slots[leaf[l_current]];
    void* const output = slots[leaf[l_output]];
    callee->slots[k] = current;
    void* to = 0;
    if (leaf[l_mode] == mode_in_place) to = current;
    if (leaf[l_mode] == mode_swap) to = current == output ? slots[leaf[l_spare]] : output;
    callee->slots[callee->routine->buffers + k] = to;
  }
  begin(program, callee);
}

static Word selected(const void* from, Word width, bool is_signed) {
  unsigned long long bits = 0;
  memcpy(&bits, from, (size_t)width);
  if (!is_signed || width == 8) return (Word)bits;
  const int unused = 64 - 8 * (int)width;
  return (Word)(bits << unused) >> unused;
}

static int run(Program* program, Word entry, void** slots, char* base, Frame* frames, void** scratch) {
  Frame* top = frames;
  if (entry < 0) {
    top += program->depth;
  } else {
    enter(top, &program->routines[entry], slots, base);
    begin(program, top);
    program->launches = program->steps = 0;
  }
  const Word begun = now();
  bool pause = false;
  for (;;) {
    if (pause) return program->depth = top - frames, status_pause;
    const Word* w = top->at;
    switch (*w++) {
      case op_kernel: {
        // launcher, grid, bytes, may be spread, count, slots
        const Word number = w[0], grid = w[1], count = w[4];
        for (Word k = 0; k < count; ++k) scratch[k] = top->slots[w[5 + k]];
        const Launcher launcher = program->functions[number];
        int failed = 0;
        ++program->launches;
        if (!w[3] || grid < 2) {
          failed = run_blocks(launcher, scratch, 0, grid);
        } else {
          Timing* const timing = &program->timings[number];
          const bool known = timing->runs >= enough_runs;
          const Word least = top == frames ? parallel_ns : parallel_in_loop_ns;
          if (program->processors > 1 && (known ? timing->least > least : w[2] > parallel_bytes)) {
            failed = launch(launcher, scratch, grid, program->processors);
          } else if (known) {
            failed = run_blocks(launcher, scratch, 0, grid);
          } else {
            const Word start = now();
            failed = run_blocks(launcher, scratch, 0, grid);
            const Word spent = now() - start;
            if (!timing->runs++ || spent < timing->least) timing->least = spent;
          }
        }
        if (failed) {
          program->at_instruction = number;
          return crash_signal ? status_crashed + crash_signal : status_fibres;
        }
        top->at = w + 5 + count;
        break;
      }
      case op_view:
        top->slots[w[0]] = top->slots[w[1]];
        top->at = w + 2;
        break;
      case op_copy:
        move(top->slots[w[0]], top->slots[w[1]], w[2]);
        top->at = w + 3;
        break;
      case op_library:
        program->at_instruction = w[0];
        program->at_slots = top->slots;
        program->depth = top - frames;
        top->at = w + 1;
        return status_call;
      case op_own: {
        // place among the program's functions, count of words, and these
        const OwnRoutine routine = (OwnRoutine)program->functions[w[0]];
        const auto run = [=] { return (int)!routine(top->slots, w + 2, launch, program->processors); };
        const int failed = is_guarded() ? guarded(run) : run();
        if (crash_signal) return program->at_instruction = w[0], status_crashed + crash_signal;
        if (failed) return status_memory;
        top->at = w + 2 + w[1];
        break;
      }
      case op_while: {
        const Word* leaf = w + w_leaves;
        void** const own = top->slots;
        for (Word k = 0; k < w[w_count]; ++k, leaf += l_words) {
          if (leaf[l_mode] == mode_in_place) move(own[leaf[l_output]], own[leaf[l_input]], leaf[l_bytes]);
          own[leaf[l_current]] = leaf[l_mode] == mode_in_place ? own[leaf[l_output]] : own[leaf[l_input]];
        }
        top->iterations = 0;
        call_condition(program, top, w);
        ++top;
        break;
      }
      case op_branch: {
        // selector slot (negative: none), its width (0: pred), is signed, offset of the callee's base, length, outputs,
        // slots of outputs, branches, then for each: routine, arguments, their slots
        const Word* b = w + 6 + w[5];
        const Word branches = *b++;
        Word chosen = 0;
        if (w[0] >= 0 && !w[1]) chosen = *(const unsigned char*)top->slots[w[0]] ? 0 : 1;
        if (w[0] >= 0 && w[1]) chosen = selected(top->slots[w[0]], w[1], w[2]);
        if (chosen < 0 || chosen >= branches) chosen = branches - 1;
        for (Word k = 0; k < chosen; ++k) b += 2 + b[1];
        Frame* callee = top + 1;
        enter(callee, &program->routines[b[0]], top->slots + top->routine->slots, top->base + w[3]);
        for (Word k = 0; k < b[1]; ++k) callee->slots[k] = top->slots[b[2 + k]];
        for (Word k = 0; k < w[5]; ++k) callee->slots[callee->routine->buffers + k] = top->slots[w[6 + k]];
        begin(program, callee);
        ++top;
        break;
      }
      case op_return: {
        // count, then result, slot, bytes: results that are not in their places yet
        void** const targets = top->slots + top->routine->buffers;
        const Word* r = w + 1;
        for (Word n = w[0]; n > 0; --n, r += 3)
          if (targets[r[0]]) move(targets[r[0]], top->slots[r[1]], r[2]);
        if (top == frames) return status_fine;
        Frame* callee = top--;
        w = top->at;
        if (*w++ == op_branch) {
          top->at = w + w[4];
          break;
        }
        const Word* leaf = w + w_leaves;
        void** const own = top->slots;
        if (!top->in_condition) {
          for (Word k = 0; k < w[w_count]; ++k, leaf += l_words)
            if (leaf[l_mode] == mode_swap) own[leaf[l_current]] = callee->slots[callee->routine->buffers + k];
          call_condition(program, top, w);
          ++top;
          break;
        }
        if (*(const unsigned char*)own[w[w_predicate]]) {
          if (program->most_steps >= 0 && program->steps >= program->most_steps) {
            program->at_instruction = w[w_instruction];
            program->at_iterations = top->iterations;
            return status_steps;
          }
          ++program->steps;
          ++top->iterations;
          pause = (program->steps & 15) == 0 && now() - begun > 50000000;  // lets Python see signals
          call_body(program, top, w);
          ++top;
          break;
        }
        for (Word k = 0; k < w[w_count]; ++k, leaf += l_words) {
          if (leaf[l_mode] == mode_same) own[leaf[l_output]] = own[leaf[l_current]];
          else move(own[leaf[l_output]], own[leaf[l_current]], leaf[l_bytes]);
        }
        top->at = leaf;
        break;
      }
      default:
        return status_memory;
    }
  }
}

extern "C" __attribute__((visibility("default"))) int hlo_run(
    Program* program, Word entry, void** slots, char* base, Frame* frames, void** scratch) {
  crash_signal = 0;
  if (!is_guarded()) return run(program, entry, slots, base, frames, scratch);
  const SignalStack stack;
  return run(program, entry, slots, base, frames, scratch);
}
