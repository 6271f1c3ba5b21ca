// Launches kernels of ours inside XLA's programs on an NVIDIA GPU, by the typed FFI. Built once for all regions with
// the headers that jaxlib ships; the driver is loaded when it is first needed, so that no CUDA toolkit is. Everything
// goes onto XLA's stream, and nothing waits: a call can be captured into a command buffer.
#include <dlfcn.h>
#include <stdlib.h>

#include <map>
#include <utility>
#include <vector>

// ---- the driver, as cuda.h declares it

typedef int CUresult;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st* CUcontext;
typedef struct CUmod_st* CUmodule;
typedef struct CUfunc_st* CUfunction;
typedef struct CUstream_st* CUstream;

struct Driver {
  CUresult (*get_error)(CUresult, const char**);
  CUresult (*context_of)(CUstream, CUcontext*);
  CUresult (*push)(CUcontext);
  CUresult (*pop)(CUcontext*);
  CUresult (*load)(CUmodule*, const void*);
  CUresult (*function_of)(CUfunction*, CUmodule, const char*);
  CUresult (*allocate)(CUdeviceptr*, size_t);
  CUresult (*upload)(CUdeviceptr, const void*, size_t);
  CUresult (*copy)(CUdeviceptr, CUdeviceptr, size_t, CUstream);
  CUresult (*clear)(CUdeviceptr, unsigned char, size_t, CUstream);
  CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**,
                     void**);
  CUresult (*launch_at_once)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                             void**);
};

static std::string driver_fault;

template <typename F>
static void take(void* library, const char* name, F* function) {
  *function = (F)dlsym(library, name);
  if (!*function && driver_fault.empty()) driver_fault = std::string("the CUDA driver has no ") + name;
}

static const Driver& driver() {
  static const Driver found = [] {
    Driver d = {};
    const char* wish = getenv("HLO_OPT_CUDA_DRIVER");
    void* library = dlopen(wish && *wish ? wish : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      driver_fault = dlerror();
      return d;
    }
    take(library, "cuGetErrorString", &d.get_error);
    take(library, "cuStreamGetCtx", &d.context_of);
    take(library, "cuCtxPushCurrent_v2", &d.push);
    take(library, "cuCtxPopCurrent_v2", &d.pop);
    take(library, "cuModuleLoadData", &d.load);
    take(library, "cuModuleGetFunction", &d.function_of);
    take(library, "cuMemAlloc_v2", &d.allocate);
    take(library, "cuMemcpyHtoD_v2", &d.upload);
    take(library, "cuMemcpyDtoDAsync_v2", &d.copy);
    take(library, "cuMemsetD8Async", &d.clear);
    take(library, "cuLaunchKernel", &d.launch);
    take(library, "cuLaunchCooperativeKernel", &d.launch_at_once);
    return d;
  }();
  return found;
}

static ffi::Error internal(const std::string& text) {
  return ffi::Error(ffi::ErrorCode::kInternal, "hlo_opt: " + text);
}

static ffi::Error failed(const char* what, CUresult status) {
  const char* text = nullptr;
  driver().get_error(status, &text);
  return internal(std::string(what) + ": " + (text ? text : std::to_string(status)));
}

#define HLO_TRY(what, call) \
  if (const CUresult status = (call)) return failed(what, status)

// ---- a region; hlo_opt/jax/cuda.py has the same

struct Kernel {
  const void* code;
  const char* symbol;
  Word grid, block, cooperative;
};

struct Region {
  Word kernel_count;
  const Kernel* kernels;
  Word word_count;
  const Word* words;
  Word constant_bytes;
  const void* constants;
  Word input_count;
  const Word* input_bytes;
  Word output_count;  // memory for values between kernels is the last one, where there are any
  const Word* output_bytes;
  Word pointers;
  const Word* held;  // for each input, the output that shares its memory, or -1
};

enum { step_launch = 0, step_copy = 1, step_clear = 2 };  // DeviceStep in hlo_opt/jax/device.py

// ---- a region on a device: what stays there as long as the process

struct Resident {
  std::vector<CUfunction> functions;
  CUdeviceptr constants = 0;
};

static std::map<std::pair<std::string, CUcontext>, std::unique_ptr<Resident>>& residents() {
  static auto* const found = new std::map<std::pair<std::string, CUcontext>, std::unique_ptr<Resident>>;
  return *found;
}
static std::mutex loading;

struct Current {  // XLA need not have made the stream's context the thread's
  bool is_pushed = false;
  ~Current() {
    CUcontext before;
    if (is_pushed) driver().pop(&before);
  }
};

static ffi::Error resident(const std::string& key, const Region& region, CUcontext context, Resident** found) {
  std::lock_guard<std::mutex> guard(loading);
  auto& place = residents()[{key, context}];
  if (!place) {
    auto made = std::make_unique<Resident>();
    for (Word k = 0; k < region.kernel_count; ++k) {
      CUmodule module;
      CUfunction function;
      HLO_TRY("cuModuleLoadData", driver().load(&module, region.kernels[k].code));
      HLO_TRY("cuModuleGetFunction", driver().function_of(&function, module, region.kernels[k].symbol));
      made->functions.push_back(function);
    }
    if (region.constant_bytes) {
      HLO_TRY("cuMemAlloc", driver().allocate(&made->constants, (size_t)region.constant_bytes));
      HLO_TRY("cuMemcpyHtoD", driver().upload(made->constants, region.constants, (size_t)region.constant_bytes));
    }
    place = std::move(made);
  }
  *found = place.get();
  return ffi::Error::Success();
}

// ---- the handler

static ffi::Error ready(State* state, CUstream stream, Current* current, Resident** found) {
  driver();
  if (!driver_fault.empty()) return internal(driver_fault);
  CUcontext context;
  HLO_TRY("cuStreamGetCtx", driver().context_of(stream, &context));
  HLO_TRY("cuCtxPushCurrent", driver().push(context));
  current->is_pushed = true;
  return resident(state->key, *state->region, context, found);
}

// here and not in a call: nothing may be loaded while XLA captures one
static ffi::Error initialize(CUstream stream, State* state) {
  Current current;
  Resident* found;
  return ready(state, stream, &current, &found);
}

static ffi::Error execute(CUstream stream, State* state, ffi::RemainingArgs args, ffi::RemainingRets rets) {
  const Region& r = *state->region;
  const auto input_bytes = [&](Word k) { return r.input_bytes[k]; };
  const auto output_bytes = [&](Word k) { return r.output_bytes[k]; };
  if (ffi::Error fault = misfit(args, r.input_count, input_bytes, rets, r.output_count, output_bytes); fault.failure())
    return fault;
  Current current;
  Resident* on_device = nullptr;
  if (ffi::Error fault = ready(state, stream, &current, &on_device); fault.failure()) return fault;
  std::vector<CUdeviceptr> bases;
  bases.reserve((size_t)(r.input_count + r.output_count + 1));
  for (Word k = 0; k < r.input_count; ++k)
    bases.push_back((CUdeviceptr)args.get<ffi::AnyBuffer>((size_t)k)->untyped_data());
  for (Word k = 0; k < r.output_count; ++k)
    bases.push_back((CUdeviceptr)(*rets.get<ffi::AnyBuffer>((size_t)k))->untyped_data());
  for (Word k = 0; k < r.input_count; ++k) {  // kernels write such an output where the input is
    if (r.held[k] < 0) continue;
    const CUdeviceptr made = bases[(size_t)(r.input_count + r.held[k])];
    if (made != bases[(size_t)k])
      HLO_TRY("cuMemcpyDtoDAsync", driver().copy(made, bases[(size_t)k], (size_t)r.input_bytes[k], stream));
    bases[(size_t)k] = made;
  }
  bases.push_back(on_device->constants);
  std::vector<CUdeviceptr> pointers((size_t)r.pointers);
  std::vector<void*> addresses((size_t)r.pointers);
  const Word* at = r.words;
  const auto place = [&] {
    const CUdeviceptr found = bases[(size_t)at[0]] + (CUdeviceptr)at[1];
    at += 2;
    return found;
  };
  while (at < r.words + r.word_count) {
    switch (*at++) {
      case step_launch: {
        const Word number = *at++, count = *at++;
        for (Word k = 0; k < count; ++k) {
          pointers[(size_t)k] = place();
          addresses[(size_t)k] = &pointers[(size_t)k];
        }
        const Kernel& kernel = r.kernels[number];
        const CUfunction function = on_device->functions[(size_t)number];
        if (kernel.cooperative) {
          HLO_TRY("cuLaunchCooperativeKernel",
                  driver().launch_at_once(function, (unsigned)kernel.grid, 1, 1, (unsigned)kernel.block, 1, 1, 0,
                                          stream, addresses.data()));
        } else {
          HLO_TRY("cuLaunchKernel", driver().launch(function, (unsigned)kernel.grid, 1, 1, (unsigned)kernel.block, 1, 1,
                                                    0, stream, addresses.data(), nullptr));
        }
        break;
      }
      case step_copy: {
        const CUdeviceptr to = place(), from = place();
        HLO_TRY("cuMemcpyDtoDAsync", driver().copy(to, from, (size_t)*at++, stream));
        break;
      }
      case step_clear: {
        const CUdeviceptr to = place();
        HLO_TRY("cuMemsetD8Async", driver().clear(to, 0, (size_t)*at++, stream));
        break;
      }
      default:
        return internal("unknown step");
    }
  }
  __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
  return ffi::Error::Success();
}

HLO_SEEN XLA_FFI_Error* HloOptInitialize(XLA_FFI_CallFrame*);
XLA_FFI_DEFINE_HANDLER_SYMBOL(HloOptInitialize, initialize,
                              ffi::Ffi::Bind<ffi::ExecutionStage::kInitialize>()
                                  .Ctx<ffi::PlatformStream<CUstream>>()
                                  .Ctx<ffi::State<State>>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    HloOptExecute, execute,
    ffi::Ffi::Bind().Ctx<ffi::PlatformStream<CUstream>>().Ctx<ffi::State<State>>().RemainingArgs().RemainingRets(),
    {ffi::Traits::kCmdBufferCompatible});
