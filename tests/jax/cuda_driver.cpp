// A CUDA driver for tests: device memory is memory, a stream does at once what it is told, and kernels are functions that a test names. What is called is written down.
#include <stdlib.h>
#include <string.h>

#include <map>
#include <string>

typedef int CUresult;
typedef unsigned long long CUdeviceptr;
typedef int (*Launcher)(void**, long long, long long);

struct Known {
  Launcher run;
  int pointers;
};

static std::string written;
static std::string failing;
static int depth = 0;
static std::map<std::string, Known>& kernels() {
  static std::map<std::string, Known> found;
  return found;
}

static int called(const char* name) {
  if (!written.empty()) written += " ";
  written += name;
  return failing == name ? 999 : 0;
}

#define SEEN extern "C" __attribute__((visibility("default")))

SEEN void standin_kernel(const char* symbol, Launcher run, int pointers) { kernels()[symbol] = {run, pointers}; }
SEEN const char* standin_written() { return written.c_str(); }
SEEN int standin_depth() { return depth; }
SEEN void standin_begin(const char* fails) {
  written.clear();
  failing = fails;
}

SEEN CUresult cuGetErrorString(CUresult status, const char** text) {
  *text = status == 999 ? "planted" : "unknown";
  return 0;
}
SEEN CUresult cuStreamGetCtx(void* stream, void** context) {
  *context = stream;
  return called("cuStreamGetCtx");
}
SEEN CUresult cuCtxPushCurrent_v2(void*) {
  ++depth;
  return 0;
}
SEEN CUresult cuCtxPopCurrent_v2(void**) {
  --depth;
  return 0;
}
SEEN CUresult cuModuleLoadData(void** module, const void* image) {
  *module = memcmp(image, "\177ELF", 4) ? nullptr : (void*)image;
  const CUresult status = called("cuModuleLoadData");
  return *module ? status : 200;
}
SEEN CUresult cuModuleGetFunction(void** function, void*, const char* symbol) {
  const auto at = kernels().find(symbol);
  if (at == kernels().end()) return 500;
  *function = &at->second;
  return called("cuModuleGetFunction");
}
SEEN CUresult cuMemAlloc_v2(CUdeviceptr* found, size_t bytes) {
  *found = (CUdeviceptr)aligned_alloc(256, (bytes + 255) / 256 * 256);
  return called("cuMemAlloc");
}
SEEN CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  memcpy((void*)to, from, bytes);
  return called("cuMemcpyHtoD");
}
SEEN CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, void*) {
  memcpy((void*)to, (void*)from, bytes);
  return called("cuMemcpyDtoDAsync");
}
SEEN CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, void*) {
  memset((void*)to, value, bytes);
  return called("cuMemsetD8Async");
}

static CUresult run(const char* name, void* function, unsigned grid, unsigned, void** parameters) {
  const Known* kernel = (const Known*)function;
  void* pointers[64];
  for (int k = 0; k < kernel->pointers; ++k) pointers[k] = *(void**)parameters[k];
  const CUresult status = called(name);
  return status ? status : kernel->run(pointers, 0, grid);
}
SEEN CUresult cuLaunchKernel(void* function, unsigned grid, unsigned, unsigned, unsigned block, unsigned, unsigned, unsigned, void*, void** parameters, void**) {
  return run("cuLaunchKernel", function, grid, block, parameters);
}
SEEN CUresult cuLaunchCooperativeKernel(void* function, unsigned grid, unsigned, unsigned, unsigned block, unsigned, unsigned, unsigned, void*, void** parameters) {
  return run("cuLaunchCooperativeKernel", function, grid, block, parameters);
}
