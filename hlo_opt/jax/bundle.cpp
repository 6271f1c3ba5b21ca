// A module's kernels behind one function of C, and behind a handler of XLA's typed FFI. What stands before this text
// says what the module is: see bundle.py.
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- as in host_runtime.cpp

struct Program {
  const Routine* routines;
  const Launcher* functions;
  void* timings;
  const void* const* constants;
  Word most_steps;
  int processors;
  Word launches, steps, at_instruction, at_iterations;
  void** at_slots;
  Word depth;
};
extern "C" int hlo_run(Program*, Word, void**, char*, void*, void**);
enum { status_fine = 0, status_memory = 4, status_pause = 5 };

// $HLO_OPT_THREADS, else as many as this process may use
static int processors() {
  const char* const wish = getenv("HLO_OPT_THREADS");
  const long chosen = wish ? strtol(wish, nullptr, 10) : 0;
  if (chosen > 0 && chosen <= 1024) return (int)chosen;
#if defined(__linux__)
  cpu_set_t allowed;
  if (!sched_getaffinity(0, sizeof allowed, &allowed)) return CPU_COUNT(&allowed);
#endif
  const long found = sysconf(_SC_NPROCESSORS_ONLN);
  return found > 0 ? (int)found : 1;
}

extern "C" __attribute__((visibility("default"))) int hlo_opt_entry(const void* const*,
                                                                    void* const*) __asm__(HLO_ENTRY);

extern "C" int hlo_opt_entry(const void* const* inputs, void* const* outputs) {
  size_t copies = 0;
  for (Word k = 0; k < input_count; ++k) copies += copy_bytes(inputs[k], input_arrays[k].bytes);
  for (Word k = 0; k < output_count; ++k) copies += copy_bytes(outputs[k], output_arrays[k].bytes);
  const size_t tables = rounded(slot_count * 8) + rounded(frame_words * 8) + rounded(pointer_count * 8);
  static thread_local Memory memory;
  char* at = memory.of(tables + copies + rounded(memory_bytes) + 64);
  if (!at) return 1;
  void** const slots = (void**)at;
  memset(slots, 0, (size_t)slot_count * 8);
  at += rounded(slot_count * 8);
  void* const frames = at;
  at += rounded(frame_words * 8);
  void** const pointers = (void**)at;
  at += rounded(pointer_count * 8);
  for (Word k = 0; k < output_count; ++k) {
    const Word bytes = output_arrays[k].bytes;
    void* data = outputs[k];
    if (const size_t copy = copy_bytes(data, bytes)) {
      data = at;
      at += copy;
    }
    slots[output_arrays[k].slot] = data;
  }
  for (Word k = 0; k < input_count; ++k) {
    const Word bytes = input_arrays[k].bytes;
    const void* data = inputs[k];
    if (held_in[k] >= 0) {  // the output is made there
      void* const made = slots[output_arrays[held_in[k]].slot];
      if (made != data && bytes) memcpy(made, data, (size_t)bytes);
      data = made;
    } else if (const size_t copy = copy_bytes(data, bytes)) {
      memcpy(at, data, (size_t)bytes);
      data = at;
      at += copy;
    }
    slots[input_arrays[k].slot] = (void*)data;
  }
  static const int threads = processors();
  Program program = {routines, functions, timings, constants, -1, threads};
  int status = hlo_run(&program, 0, slots, at, frames, pointers);
  while (status == status_pause) status = hlo_run(&program, -1, slots, at, frames, pointers);
  if (status == status_fine)
    for (Word k = 0; k < output_count; ++k) {
      void* const made = slots[output_arrays[k].slot];
      if (made != outputs[k] && output_arrays[k].bytes) memcpy(outputs[k], made, (size_t)output_arrays[k].bytes);
    }
  memory.trim();
  return status == status_fine ? 0 : status == status_memory ? 1 : 2;
}

#if defined(HLO_HANDLER)
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

static ffi::Error handle(ffi::RemainingArgs args, ffi::RemainingRets rets) {
  const ffi::Error wrong(ffi::ErrorCode::kInvalidArgument, "hlo_opt: other arrays than the bundle was built for");
  if ((Word)args.size() != input_count || (Word)rets.size() != output_count) return wrong;
  const void* inputs[input_count + 1];
  void* outputs[output_count + 1];
  for (Word k = 0; k < input_count; ++k) {
    const auto given = args.get<ffi::AnyBuffer>((size_t)k);
    if (!given.has_value() || (Word)given->size_bytes() != input_arrays[k].bytes) return wrong;
    inputs[k] = given->untyped_data();
  }
  for (Word k = 0; k < output_count; ++k) {
    auto given = rets.get<ffi::AnyBuffer>((size_t)k);
    if (!given.has_value() || (Word)(*given)->size_bytes() != output_arrays[k].bytes) return wrong;
    outputs[k] = (*given)->untyped_data();
  }
  if (hlo_opt_entry(inputs, outputs))
    return ffi::Error(ffi::ErrorCode::kResourceExhausted, "hlo_opt: a kernel found no memory");
  return ffi::Error::Success();
}

// the macro says nothing of who sees the symbol
extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* hlo_opt_handler(XLA_FFI_CallFrame*) __asm__(
    HLO_HANDLER);
XLA_FFI_DEFINE_HANDLER_SYMBOL(hlo_opt_handler, handle, ffi::Ffi::Bind().RemainingArgs().RemainingRets());
#endif
