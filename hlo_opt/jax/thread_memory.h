// Memory of a thread, kept from call to call unless it is large. Stands before handler.cpp and bundle.cpp: see
// native.py.
#include <stdlib.h>

static const size_t kept_bytes = size_t(64) << 20;

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
