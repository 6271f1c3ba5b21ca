// The regions of a handler by their keys, and the state of a call of one. Stands before handler.cpp and cuda.cpp, which
// say what a `Region` is: see native.py. The program's side is hlo_opt/jax/region_handler.py.
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

typedef long long Word;
typedef int (*Loader)(const char* key);

struct Region;

#define HLO_SEEN extern "C" __attribute__((visibility("default")))

static std::mutex lock;
static std::unordered_map<std::string, const Region*>& regions() {
  static auto* const found =
      new std::unordered_map<std::string, const Region*>;  // calls may outlive what a process cleans up at its end
  return *found;
}
static Loader loader = nullptr;
static Word calls = 0;

HLO_SEEN void hlo_opt_load_by(Loader load) { loader = load; }

// The region stays where it is as long as the process.
HLO_SEEN void hlo_opt_add(const char* key, const Region* region) {
  std::lock_guard<std::mutex> guard(lock);
  regions().emplace(key, region);
}

HLO_SEEN Word hlo_opt_calls() { return __atomic_load_n(&calls, __ATOMIC_RELAXED); }

static const Region* find(const std::string& key) {
  std::lock_guard<std::mutex> guard(lock);
  const auto at = regions().find(key);
  return at == regions().end() ? nullptr : at->second;
}

namespace {
struct State {
  static ffi::TypeId id;
  static ffi::TypeInfo info;
  std::string key;
  const Region* region;
};
ffi::TypeId State::id = {};
ffi::TypeInfo State::info = ffi::MakeTypeInfo<State>();
}  // namespace

HLO_SEEN void* hlo_opt_type_id() { return &State::id; }
HLO_SEEN void* hlo_opt_type_info() { return &State::info; }

static ffi::ErrorOr<std::unique_ptr<State>> instantiate(std::string_view given) {
  const std::string key(given);
  const Region* region = find(key);
  if (!region && loader && loader(key.c_str())) region = find(key);
  if (!region) return ffi::Unexpected(ffi::Error(ffi::ErrorCode::kNotFound, "hlo_opt: there are no kernels " + key));
  return std::make_unique<State>(State{key, region});
}

// An error unless the arrays of a call have these bytes: functions of their numbers.
template <typename Inputs, typename Outputs>
static ffi::Error misfit(ffi::RemainingArgs& args, Word input_count, Inputs input_bytes, ffi::RemainingRets& rets,
                         Word output_count, Outputs output_bytes) {
  const auto other = [](const char* what) {
    return ffi::Error(ffi::ErrorCode::kInvalidArgument,
                      std::string("hlo_opt: ") + what + " than the kernels were made for");
  };
  if ((Word)args.size() != input_count || (Word)rets.size() != output_count) return other("other arrays");
  for (Word k = 0; k < input_count; ++k) {
    const auto given = args.get<ffi::AnyBuffer>((size_t)k);
    if (!given.has_value() || (Word)given->size_bytes() != input_bytes(k)) return other("an array of another size");
  }
  for (Word k = 0; k < output_count; ++k) {
    auto given = rets.get<ffi::AnyBuffer>((size_t)k);
    if (!given.has_value() || (Word)(*given)->size_bytes() != output_bytes(k)) return other("a result of another size");
  }
  return ffi::Error::Success();
}

// the macro says nothing of who sees the symbol
HLO_SEEN XLA_FFI_Error* HloOptInstantiate(XLA_FFI_CallFrame*);
HLO_SEEN XLA_FFI_Error* HloOptExecute(XLA_FFI_CallFrame*);
XLA_FFI_DEFINE_HANDLER_SYMBOL(HloOptInstantiate, instantiate,
                              ffi::Ffi::BindInstantiate().Attr<std::string_view>("key"));
