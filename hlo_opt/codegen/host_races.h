// Watched kernels: the compiler calls a function at each access to memory (-fsanitize=thread; the functions are these).
// Blocks and threads run in an order that a seed decides, and two threads that touch the same element, at least one of
// them writing, with no barrier between them, are a finding. The threads of a warp are no exception: since compute
// capability 7.0 only __syncwarp orders what they write (CUDA C++ Programming Guide, "Independent Thread Scheduling").
#pragma once

extern "C" {
void* calloc(__SIZE_TYPE__, __SIZE_TYPE__) noexcept;
void free(void*) noexcept;
}

namespace hlo {

// of the thread that runs now: the block's number among all that ran, how many barriers the thread has passed, and how
// often it has met all blocks
struct Place { unsigned int block, thread, barriers, warp_barriers, grids; };
inline Place here;
inline unsigned int blocks_run = 0, block_now = 0;  // of all launches; the number of the block that runs
inline unsigned long long seed = 0, turns = 0;
inline bool is_launched = false;

// who touched an element: the last writer, the last atomic update, the last reader and one before it of another thread.
// Block 0: nobody
struct Touched { Place writer, update, reader, other; };

// an array of a launch, and the bytes of its elements
struct Watched {
  char *start, *end;
  const char* name;
  long long size;
  int bits;
  bool puts, of_block;
  Touched* touched;
};
const long long most_watched = 1ll << 22;  // elements of an array; of larger ones the rest is not watched
const int most_arrays = 4096;
inline Watched watched[most_arrays];
inline int arrays = 0;

HLO_UNSEEN inline bool is_concurrent(const Watched& of, const Place& before) {
  if (!before.block) return false;
  if (before.block != here.block) return !of.of_block && before.grids >= here.grids;
  if (before.thread == here.thread || before.barriers != here.barriers) return false;
  return before.thread / 32 != here.thread / 32 || before.warp_barriers == here.warp_barriers;
}

HLO_UNSEEN __attribute__((noinline)) inline void report(const char* what, const Watched& of, long long index,
                                                        const Place& before) {
  if (before.block == here.block)
    HLO_FOUND("%s %s[%lld] by threads %u and %u of a block, with no barrier between them", what, of.name, index,
              before.thread, here.thread);
  else
    HLO_FOUND("%s %s[%lld] by two blocks", what, of.name, index);
}

HLO_UNSEEN inline void note_read(const Watched& of, long long index) {
  Touched& at = of.touched[index];
  if (of.of_block && at.writer.block != here.block) HLO_FOUND("%s[%lld] is read before it is written", of.name, index);
  if (is_concurrent(of, at.writer)) report("write and read of", of, index, at.writer);
  if (is_concurrent(of, at.update)) report("atomic update and read of", of, index, at.update);
  if (at.reader.block != here.block || at.reader.thread != here.thread) at.other = at.reader;
  at.reader = here;
}

HLO_UNSEEN inline void note_write(const Watched& of, long long index) {
  Touched& at = of.touched[index];
  if (is_concurrent(of, at.writer)) report("two writes of", of, index, at.writer);
  if (is_concurrent(of, at.update)) report("atomic update and write of", of, index, at.update);
  if (is_concurrent(of, at.reader)) report("read and write of", of, index, at.reader);
  if (is_concurrent(of, at.other)) report("read and write of", of, index, at.other);
  at.writer = here;
}

HLO_UNSEEN inline void note_update(const Watched& of, long long index) {
  Touched& at = of.touched[index];
  if (is_concurrent(of, at.writer)) report("write and atomic update of", of, index, at.writer);
  if (is_concurrent(of, at.reader)) report("read and atomic update of", of, index, at.reader);
  if (is_concurrent(of, at.other)) report("read and atomic update of", of, index, at.other);
  at.update = here;
}

HLO_UNSEEN inline const Watched* find(const char* address) {
  static int last = 0;
  if (last < arrays && address >= watched[last].start && address < watched[last].end) return &watched[last];
  for (int k = 0; k < arrays; ++k)
    if (address >= watched[k].start && address < watched[k].end) return &watched[last = k];
  return 0;
}

HLO_UNSEEN inline void watch(void* start, long long bytes, const char* name, long long size, int bits, bool puts,
                             bool of_block, bool is_watched) {
  for (int k = 0; k < arrays; ++k) {
    if (watched[k].start != start) continue;  // arrays that begin at one address are one
    if (!is_watched || watched[k].size != size) watched[k].size = 0;
    return;
  }
  if (arrays < most_arrays && bytes && start)
    watched[arrays++] = {(char*)start, (char*)start + bytes, name, is_watched ? size : 0, bits, puts, of_block, 0};
}

// what blocks leave for the one that comes last (codegen/parts.py): a thread fences what it wrote, and what others of
// its block wrote before a barrier, and counts the block; other blocks read it after that only. It lies in the kernel's
// own memory, which is volatile
struct Left { const void* address; Place writer; bool is_fenced, is_counted; };
const int most_left = 1 << 15;
inline Left left[most_left];
inline int lefts = 0;

HLO_UNSEEN inline Left* left_at(const void* address) {
  for (unsigned int k = (unsigned int)((__UINTPTR_TYPE__)address / 4 * 2654435761u);; ++k) {
    Left& at = left[k % most_left];
    if (at.address == address) return &at;
    if (at.address) continue;
    if (lefts >= most_left / 2) return 0;
    ++lefts;
    at.address = address;
    return &at;
  }
}

// where the blocks of a launch that runs all of them at a time count themselves: a block has met the others once it has
// seen that all have come, and passed a fence after that
inline const void* meeting;
inline unsigned int blocks_meet = 0;  // of the launch; 0 where they do not
inline unsigned long long arrivals;
inline Place fenced, looked;  // the last fence, and the last look at the count with what it showed

HLO_UNSEEN inline void arrive(const void* at) {
  if (!meeting) meeting = at;
  if (at != meeting) return;
  ++arrivals;
  if (fenced.block != here.block || fenced.thread != here.thread || fenced.barriers != here.barriers)
    HLO_FOUND("a block meets the others before what it wrote is fenced");
}

HLO_UNSEEN inline bool look(const void* at) {
  if (at != meeting || !blocks_meet) return false;
  looked = here;
  looked.grids = (unsigned int)(arrivals / blocks_meet);
  return true;
}

// the block of which a thread has seen the flag of another, with no fence after that; by the thread's number
inline unsigned int flagged[1024];

HLO_UNSEEN inline void publish() {
  if (flagged[here.thread] == here.block) flagged[here.thread] = 0;
  if (blocks_meet) {
    fenced = here;
    if (looked.block == here.block && looked.thread == here.thread && looked.grids > here.grids)
      here.grids = looked.grids;
  }
  for (Left& at : left)
    if (at.address && at.writer.block == here.block)
      at.is_fenced |= at.writer.thread == here.thread || at.writer.barriers < here.barriers;
}

// a block counts itself
HLO_UNSEEN inline void count_block() {
  for (Left& at : left) {
    if (!at.address || at.writer.block != here.block) continue;
    if (at.writer.thread != here.thread && at.writer.barriers == here.barriers)
      HLO_FOUND("a part of a result has no barrier behind it when its block is counted");
    if (!at.is_fenced) HLO_FOUND("a part of a result is not fenced when its block is counted");
    at.is_counted = true;
  }
}

// a block sets a flag for all that it has left so far, and a thread looks at one
HLO_UNSEEN inline void set_flag(volatile unsigned int* flag) {
  if (is_launched) count_block();
  *flag = 1u;
}
HLO_UNSEEN inline unsigned int flag_at(const volatile unsigned int* flag) {
  if (*flag) flagged[here.thread] = here.block;
  return *flag;
}

HLO_UNSEEN inline void begin(const Launch& launch, void** pointers) {
  seed = launches;
  for (int k = 0; k < launch.inputs + launch.outputs; ++k) {
    const Array& a = launch.arrays[k];
    const long long size = a.count && a.bits >= 8 ? a.bits / 8 : 1;
    watch(pointers[k], a.bytes, a.name, size, a.bits, a.puts, false, a.is_watched);
  }
  watch(launch.shared, launch.shared_end - launch.shared, "shared memory", 1, 8, false, true, true);
  for (int k = 0; k < arrays; ++k) {
    Watched& of = watched[k];
    if (!of.size) continue;
    long long count = (of.end - of.start) / of.size * (of.bits < 8 ? 8 / of.bits : 1);
    if (!of.of_block && count > most_watched) count = most_watched;
    of.touched = (Touched*)calloc(count, sizeof(Touched));
    if (!of.touched) of.size = 0;
    of.end = of.start + count * of.size / (of.bits < 8 ? 8 / of.bits : 1);
  }
  for (Left& at : left) at.address = 0;
  __builtin_memset(flagged, 0, sizeof flagged);
  lefts = 0;
  meeting = 0;
  arrivals = 0;
  blocks_meet = launch.together && !launch.in_turn ? launch.grid : 0;
  fenced = looked = Place();
  is_launched = true;
}

// who touched shared memory: of the block that runs now, or `kept` for another
HLO_UNSEEN inline void exchange_shared(Touched*& kept) {
  for (int k = 0; k < arrays; ++k) {
    Watched& of = watched[k];
    if (!of.of_block || !of.size) continue;
    if (!kept) kept = (Touched*)calloc((of.end - of.start) / of.size, sizeof(Touched));
    if (!kept) { of.size = 0; continue; }
    Touched* const other = of.touched;
    of.touched = kept;
    kept = other;
  }
}

HLO_UNSEEN inline void end() {
  is_launched = false;
  for (int k = 0; k < arrays; ++k) free(watched[k].touched);
  arrays = 0;
}

enum Access : int { reads, writes, reads_now, writes_now };  // the last two of volatile memory

HLO_UNSEEN inline void seen(const void* address, long long bytes, Access access) {
  if (!is_launched) return;
  const Watched* found = find((const char*)address);
  if (!found) {
    if (access == writes_now) {
      if (Left* at = left_at(address)) *at = {address, here, false, false};
    } else if (access == reads_now) {
      if (look(address)) return;
      const Left* at = left_at(address);
      if (at && !at->writer.block) HLO_FOUND("a part of a result is read before it is written");
      else if (at && at->writer.block != here.block && !at->is_counted)
        HLO_FOUND("a part of a result is read by another block before its own is counted");
      else if (at && at->writer.block != here.block && flagged[here.thread] == here.block)
        HLO_FOUND("a part of a result is read with no fence after its flag");
    }
    return;
  }
  const Watched& of = *found;
  if (!of.size || access == reads_now) return;
  if (of.bits < 8) {  // which of the elements of a byte is read, nobody sees
    if (access != writes) return;
    const int per_byte = 8 / of.bits;
    for (long long k = 0; k < bytes * per_byte; ++k) note_write(of, ((const char*)address - of.start) * per_byte + k);
    return;
  }
  const long long step = !of.of_block ? of.size : bytes > 4 ? 4 : bytes;
  for (long long k = 0; k < bytes && (const char*)address + k < of.end; k += step) {
    const long long index = ((const char*)address + k - of.start) / of.size;
    if (access == reads) note_read(of, index);
    else note_write(of, index);
  }
}

// An atomic operation. One that swaps a word may change one element of several in it, and only those are
// touched that change.
template <typename T> HLO_UNSEEN static inline void updated(T* p, T old, T made, bool is_swap) {
  if (!is_launched) return;
  const Watched* found = find((const char*)p);
  if (!found && blocks_meet) return arrive(p);
  if (!found) return is_swap ? void() : count_block();
  const Watched& of = *found;
  if (!of.size) return;
  if (!is_swap) return note_update(of, ((char*)p - of.start) / of.size);
  const int bits = of.bits < 8 ? of.bits : 8 * (int)of.size;
  unsigned long long before = 0, after = 0;
  __builtin_memcpy(&before, &old, sizeof(T));
  __builtin_memcpy(&after, &made, sizeof(T));
  const unsigned long long changed = before ^ after, mask = bits < 64 ? (1ull << bits) - 1 : ~0ull;
  for (int k = 0; k < 8 * (int)sizeof(T); k += bits) {
    const long long index = (((char*)p - of.start) * 8 + k) / bits;
    if (!(changed >> k & mask) || (char*)p + k / 8 >= of.end) continue;
    if (of.puts) note_write(of, index);
    else note_update(of, index);
  }
}

}  // namespace hlo

static inline void __threadfence() { hlo::publish(); }
#define HLO_SET_FLAG(flag) hlo::set_flag(flag)
#define HLO_FLAG(flag) hlo::flag_at(flag)

#define HLO_SEEN(name, bytes, access)                                                                   \
  extern "C" HLO_UNSEEN __attribute__((weak, visibility("hidden"))) void __tsan_##name(void* address) { \
    hlo::seen(address, bytes, hlo::access);                                                             \
  }
#define HLO_SEEN_OF(bytes)                                \
  HLO_SEEN(read##bytes, bytes, reads) \
  HLO_SEEN(write##bytes, bytes, writes) \
  HLO_SEEN(unaligned_read##bytes, bytes, reads) \
  HLO_SEEN(unaligned_write##bytes, bytes, writes) \
  HLO_SEEN(volatile_read##bytes, bytes, reads_now) \
  HLO_SEEN(volatile_write##bytes, bytes, writes_now) \
  HLO_SEEN(unaligned_volatile_read##bytes, bytes, reads_now) \
  HLO_SEEN(unaligned_volatile_write##bytes, bytes, writes_now)
HLO_SEEN_OF(1)
HLO_SEEN_OF(2)
HLO_SEEN_OF(4)
HLO_SEEN_OF(8)
HLO_SEEN_OF(16)
#undef HLO_SEEN_OF
#undef HLO_SEEN
#define HLO_CALLED(result, name, ...) \
  extern "C" HLO_UNSEEN __attribute__((weak, visibility("hidden"))) result __tsan_##name(__VA_ARGS__)
HLO_CALLED(void, init, void) {}
HLO_CALLED(void, func_entry, void*) {}
HLO_CALLED(void, func_exit, void) {}
HLO_CALLED(void, read_range, void* address, __SIZE_TYPE__ bytes) { hlo::seen(address, (long long)bytes, hlo::reads); }
HLO_CALLED(void, write_range, void* address, __SIZE_TYPE__ bytes) { hlo::seen(address, (long long)bytes, hlo::writes); }
HLO_CALLED(void*, memcpy, void* to, const void* from, __SIZE_TYPE__ bytes) {
  hlo::seen(from, (long long)bytes, hlo::reads);
  hlo::seen(to, (long long)bytes, hlo::writes);
  return __builtin_memcpy(to, from, bytes);
}
HLO_CALLED(void*, memset, void* to, int value, __SIZE_TYPE__ bytes) {
  hlo::seen(to, (long long)bytes, hlo::writes);
  return __builtin_memset(to, value, bytes);
}
#undef HLO_CALLED
