// Memory of a thread, kept from call to call unless it is large: fresh pages cost more than most kernels take. Stands
// before handler.cpp and bundle.cpp: see native.py.
#include <stdlib.h>

static const size_t kept_bytes = size_t(256) << 20;

struct Memory {
  char* start = nullptr;
  size_t size = 0;
  ~Memory() { free(start); }
  char* of(size_t wanted) {
    if (wanted > size) {
      free(start);
      start = (char*)aligned_alloc(64, wanted);
      size = start ? wanted : 0;
    }
    return start;
  }
  void trim() {
    if (size <= kept_bytes) return;
    free(start);
    start = nullptr;
    size = 0;
  }
};

static inline size_t rounded(size_t bytes) { return (bytes + 63) / 64 * 64; }

// an array's last word must be whole for kernels, and its first on a multiple of 16; what callers give may end before
static inline bool is_whole(const void* data, long long bytes) { return bytes % 4 == 0 && (size_t)data % 16 == 0; }

// Bytes of an array's copy for kernels; none where it can stay.
static inline size_t copy_bytes(const void* data, long long bytes) {
  return !bytes || is_whole(data, bytes) ? 0 : rounded((size_t)bytes + 4);
}
