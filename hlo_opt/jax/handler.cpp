// Runs kernels of ours inside XLA's programs, by the typed FFI. Built once for all regions, with the headers that
// jaxlib ships; no Python runs in a call.
#include <stdlib.h>
#include <string.h>

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

typedef long long Word;

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
enum { status_fine = 0, status_pause = 5 };

// ---- regions, by their keys; hlo_opt/jax/handler.py has the same

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

typedef int (*Loader)(const char* key);

static std::mutex lock;
static std::unordered_map<std::string, Region>& regions() {
  static auto* const found =
      new std::unordered_map<std::string, Region>;  // calls may outlive what a process cleans up at its end
  return *found;
}
static Runner runner = nullptr;
static Loader loader = nullptr;
static Word calls = 0;

#define HLO_SEEN extern "C" __attribute__((visibility("default")))

HLO_SEEN void hlo_opt_start(Runner run, Loader load) {
  runner = run;
  loader = load;
}

HLO_SEEN void hlo_opt_add(const char* key, const Region* region) {
  std::lock_guard<std::mutex> guard(lock);
  regions().emplace(key, *region);
}

HLO_SEEN Word hlo_opt_calls() { return __atomic_load_n(&calls, __ATOMIC_RELAXED); }

static bool find(const std::string& key, Region* found) {
  std::lock_guard<std::mutex> guard(lock);
  const auto at = regions().find(key);
  if (at != regions().end()) *found = at->second;
  return at != regions().end();
}

// ---- the handler

struct State {
  static ffi::TypeId id;
  static ffi::TypeInfo info;
  Region region;
};
ffi::TypeId State::id = {};
ffi::TypeInfo State::info = ffi::MakeTypeInfo<State>();

HLO_SEEN void* hlo_opt_type_id() { return &State::id; }
HLO_SEEN void* hlo_opt_type_info() { return &State::info; }

static ffi::ErrorOr<std::unique_ptr<State>> instantiate(std::string_view given) {
  const std::string key(given);
  auto made = std::make_unique<State>();
  if (!find(key, &made->region) && !(loader && loader(key.c_str()) && find(key, &made->region)))
    return ffi::Unexpected(ffi::Error(ffi::ErrorCode::kNotFound, "hlo_opt: there are no kernels " + key));
  return made;
}

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
  const Region& r = state->region;
  if ((Word)args.size() != r.input_count || (Word)rets.size() != r.output_count)
    return ffi::Error(ffi::ErrorCode::kInvalidArgument, "hlo_opt: other arrays than the kernels were made for");
  size_t copies = 0;
  for (Word k = 0; k < r.input_count; ++k) {
    const auto given = args.get<ffi::AnyBuffer>((size_t)k);
    if (!given.has_value() || (Word)given->size_bytes() != r.inputs[k].bytes)
      return ffi::Error(ffi::ErrorCode::kInvalidArgument,
                        "hlo_opt: an array of another size than the kernels were made for");
    copies += copy_bytes(given->untyped_data(), r.inputs[k].bytes);
  }
  for (Word k = 0; k < r.output_count; ++k) {
    auto given = rets.get<ffi::AnyBuffer>((size_t)k);
    if (!given.has_value() || (Word)(*given)->size_bytes() != r.outputs[k].bytes)
      return ffi::Error(ffi::ErrorCode::kInvalidArgument,
                        "hlo_opt: a result of another size than the kernels were made for");
    copies += result_bytes((*given)->untyped_data(), k, args, r);
  }
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

// the macro says nothing of who sees the symbol
HLO_SEEN XLA_FFI_Error* HloOptInstantiate(XLA_FFI_CallFrame*);
HLO_SEEN XLA_FFI_Error* HloOptExecute(XLA_FFI_CallFrame*);
XLA_FFI_DEFINE_HANDLER_SYMBOL(HloOptInstantiate, instantiate,
                              ffi::Ffi::BindInstantiate().Attr<std::string_view>("key"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(HloOptExecute, execute,
                              ffi::Ffi::Bind().Ctx<ffi::State<State>>().RemainingArgs().RemainingRets());
