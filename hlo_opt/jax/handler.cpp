// Runs kernels of ours inside XLA's programs, by the typed FFI. Built once for all regions, with the headers that
// jaxlib ships; no Python runs in a call.
#include <stdlib.h>
#include <string.h>

// ---- as in host_runtime.cpp

struct Program {
  const void* routines;
  const void* functions;
  void* timings;
  void* const* constants;
  Word most_steps;
  int processors;
  Word launches, steps, at_instruction, at_iterations;
  void** at_slots;
  Word depth;
};
typedef int (*Runner)(Program*, Word, void**, char*, void*, void**);
enum { status_fine = 0, status_pause = 5, status_crashed = 64 };

// ---- a region; hlo_opt/jax/handler.py has the same

struct Array {
  Word slot, bytes;
};

struct Region {
  const void* routines;
  const void* functions;
  void* timings;
  void* const* constants;
  Word processors, memory, slots, frame_words, pointers;
  Word input_count;
  const Array* inputs;
  Word output_count;
  const Array* outputs;
  const Word* held_in;  // for each input, the output that is made in its memory, or -1
};

static Runner runner = nullptr;

HLO_SEEN void hlo_opt_start(Runner run) { runner = run; }

// ---- the handler

// Whether a result lies where an operand does, as a round's state in a loop: kernels would write what they still read,
// unless they are made to write there.
static bool meets(const void* result, Word number, ffi::RemainingArgs& args, const Region& r) {
  for (Word k = 0; k < r.input_count; ++k) {
    const char* const data = (const char*)args.get<ffi::AnyBuffer>((size_t)k)->untyped_data();
    if (data == result && r.held_in[k] == number) continue;
    if (data < (const char*)result + r.outputs[number].bytes && (const char*)result < data + r.inputs[k].bytes)
      return true;
  }
  return false;
}

// The bytes of memory of its own that a result needs until the kernels are done.
static size_t result_bytes(const void* result, Word number, ffi::RemainingArgs& args, const Region& r) {
  const size_t copy = copy_bytes(result, r.outputs[number].bytes);
  return !copy && meets(result, number, args, r) ? rounded((size_t)r.outputs[number].bytes) : copy;
}

static ffi::Error execute(State* state, ffi::RemainingArgs args, ffi::RemainingRets rets) {
  const Region& r = *state->region;
  const auto input_bytes = [&](Word k) { return r.inputs[k].bytes; };
  const auto output_bytes = [&](Word k) { return r.outputs[k].bytes; };
  if (ffi::Error fault = misfit(args, r.input_count, input_bytes, rets, r.output_count, output_bytes); fault.failure())
    return fault;
  size_t copies = 0;
  for (Word k = 0; k < r.input_count; ++k)
    copies += copy_bytes(args.get<ffi::AnyBuffer>((size_t)k)->untyped_data(), r.inputs[k].bytes);
  for (Word k = 0; k < r.output_count; ++k)
    copies += result_bytes((*rets.get<ffi::AnyBuffer>((size_t)k))->untyped_data(), k, args, r);
  const size_t tables = rounded(r.slots * 8) + rounded(r.frame_words * 8) + rounded(r.pointers * 8);
  static thread_local Memory memory;
  char* at = memory.of(tables + copies + rounded(r.memory) + 64);
  if (!at) return ffi::Error(ffi::ErrorCode::kResourceExhausted, "hlo_opt: no memory for a region's values");
  void** const slots = (void**)at;
  memset(slots, 0, (size_t)r.slots * 8);
  at += rounded(r.slots * 8);
  void* const frames = at;
  at += rounded(r.frame_words * 8);
  void** const pointers = (void**)at;
  at += rounded(r.pointers * 8);
  for (Word k = 0; k < r.output_count; ++k) {
    void* data = (*rets.get<ffi::AnyBuffer>((size_t)k))->untyped_data();
    if (const size_t copy = result_bytes(data, k, args, r)) {
      data = at;
      at += copy;
    }
    slots[r.outputs[k].slot] = data;
  }
  for (Word k = 0; k < r.input_count; ++k) {
    const Word bytes = r.inputs[k].bytes;
    void* data = args.get<ffi::AnyBuffer>((size_t)k)->untyped_data();
    if (r.held_in[k] >= 0) {  // the output is made there
      void* const made = slots[r.outputs[r.held_in[k]].slot];
      if (made != data && bytes) memcpy(made, data, (size_t)bytes);
      data = made;
    } else if (const size_t copy = copy_bytes(data, bytes)) {
      memcpy(at, data, (size_t)bytes);
      data = at;
      at += copy;
    }
    slots[r.inputs[k].slot] = data;
  }
  Program program = {r.routines, r.functions, r.timings, r.constants, -1, (int)r.processors};
  int status = runner(&program, 0, slots, at, frames, pointers);
  while (status == status_pause) status = runner(&program, -1, slots, at, frames, pointers);
  __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
  if (status != status_fine) {
    memory.trim();
    if (status > status_crashed)  // only while that is asked for
      return ffi::Error(ffi::ErrorCode::kInternal,
                        "hlo_opt: a kernel crashed, " + std::to_string(status - status_crashed));
    return ffi::Error(ffi::ErrorCode::kResourceExhausted, "hlo_opt: a kernel found no memory");
  }
  for (Word k = 0; k < r.output_count; ++k) {
    void* const wanted = (*rets.get<ffi::AnyBuffer>((size_t)k))->untyped_data();
    void* const made = slots[r.outputs[k].slot];
    if (made != wanted && r.outputs[k].bytes) memcpy(wanted, made, (size_t)r.outputs[k].bytes);
  }
  memory.trim();
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(HloOptExecute, execute,
                              ffi::Ffi::Bind().Ctx<ffi::State<State>>().RemainingArgs().RemainingRets());
