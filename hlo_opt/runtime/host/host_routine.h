// What every routine of the host's own begins with. A routine computes a library call, and is compiled only for
// programs that have one. It is given the places of the program's arrays, its words (hlo_opt/runtime/host/words.py
// writes them: first the numbers of its own arrays among `slots`), and what spreads the blocks of a launcher over the
// processors. It returns false without memory.
#include <algorithm>
#include <functional>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef long long Word;
typedef int (*Launcher)(void**, Word, Word);
typedef int (*Spread)(Launcher, void**, Word, int);

namespace {

Spread spread;  // the same at each call

int launch(Launcher launcher, void** pointers, Word grid, int processors) {
  return __atomic_load_n(&spread, __ATOMIC_RELAXED)(launcher, pointers, grid, processors);
}

HLO_HEADERS
}  // namespace

extern "C" __attribute__((visibility("default"))) bool HLO_NAME(
    void** slots, const Word* w, Spread given, int processors) {
  __atomic_store_n(&spread, given, __ATOMIC_RELAXED);
  return HLO_FUNCTION(slots, w, processors);
}
