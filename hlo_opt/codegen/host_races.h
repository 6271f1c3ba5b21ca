// Kernels whose every access to memory is watched: blocks and threads run in an order that a seed decides, and two threads that touch the same element, at least one
// of them writing, with no barrier between them, end the process. The threads of a warp are no exception: since compute capability 7.0 only __syncwarp orders what
// they write (CUDA C++ Programming Guide, "Independent Thread Scheduling").
#pragma once

extern "C" {
void* calloc(__SIZE_TYPE__, __SIZE_TYPE__) noexcept;
void free(void*) noexcept;
int dprintf(int, const char*, ...);
void _exit(int) __attribute__((noreturn));
}

namespace hlo {

// of the thread that runs now: the block's number among all that ran, and how many barriers the thread has passed
struct Place { unsigned int block, thread, barriers, warp_barriers; };
static Place here;
static unsigned int blocks_run = 0;  // of all launches
static unsigned long long seed = 0;

// numbers 0 ... count - 1 in an order of its own for each seed
struct Order {
  unsigned long long count, step, first;
  Order(unsigned long long count, unsigned long long seed) : count(count), step(1), first(0) {
    if (count < 2) return;
    first = seed * 0x9E3779B97F4A7C15ull % count;
    for (step = (seed * 2654435761ull >> 3) % count | 1; common(step, count) != 1; step += 2) {}
  }
  static unsigned long long common(unsigned long long a, unsigned long long b) {
    while (b) { const unsigned long long rest = a % b; a = b; b = rest; }
    return a;
  }
  unsigned long long operator[](unsigned long long k) const { return (first + k % count * (step % count)) % count; }
};

// who touched an element: the last writer, the last atomic update, the last reader and one before it of another thread. Block 0: nobody
struct Touched { Place writer, update, reader, other; };

static bool is_shared = false;  // of the element at hand: other blocks have their own

static bool is_concurrent(const Place& before) {
  if (!before.block) return false;
  if (before.block != here.block) return !is_shared;
  if (before.thread == here.thread || before.barriers != here.barriers) return false;
  return before.thread / 32 != here.thread / 32 || before.warp_barriers == here.warp_barriers;
}

__attribute__((noinline)) static void report(const char* what, const char* name, long long index, const Place& before) {
  if (before.block == here.block)
    dprintf(2, "race: %s %s[%lld] by threads %u and %u of a block, with no barrier between them\n", what, name, index, before.thread, here.thread);
  else
    dprintf(2, "race: %s %s[%lld] by two blocks\n", what, name, index);
  _exit(97);
}

__attribute__((noinline)) static void report_barrier(const char* what, int one, int other) {
  dprintf(2, "race: threads %d and %d of a block wait at different places (%s)\n", one, other, what);
  _exit(97);
}

static void note_read(Touched& at, const char* name, long long index) {
  if (is_concurrent(at.writer)) report("write and read of", name, index, at.writer);
  if (is_concurrent(at.update)) report("atomic update and read of", name, index, at.update);
  if (at.reader.block != here.block || at.reader.thread != here.thread) at.other = at.reader;
  at.reader = here;
}

static void note_write(Touched& at, const char* name, long long index) {
  if (is_concurrent(at.writer)) report("two writes of", name, index, at.writer);
  if (is_concurrent(at.update)) report("atomic update and write of", name, index, at.update);
  if (is_concurrent(at.reader)) report("read and write of", name, index, at.reader);
  if (is_concurrent(at.other)) report("read and write of", name, index, at.other);
  at.writer = here;
}

static void note_update(Touched& at, const char* name, long long index) {
  if (is_concurrent(at.writer)) report("write and atomic update of", name, index, at.writer);
  if (is_concurrent(at.reader)) report("read and atomic update of", name, index, at.reader);
  if (is_concurrent(at.other)) report("read and atomic update of", name, index, at.other);
  at.update = here;
}

// an element; `touched` is 0 where it is not watched
template <typename T> struct Cell {
  T* element;
  Touched* touched;
  const char* name;
  long long index;
  bool of_block;
  operator T() const {
    is_shared = of_block;
    if (touched) {
      if (of_block && touched->writer.block != here.block) {
        dprintf(2, "race: %s[%lld] is read before it is written\n", name, index);
        _exit(97);
      }
      note_read(*touched, name, index);
    }
    return *element;
  }
  Cell& operator=(T value) {
    is_shared = of_block;
    if (touched) note_write(*touched, name, index);
    *element = value;
    return *this;
  }
  Cell& operator=(const Cell& value) { return *this = (T)value; }
  T* operator&() const {
    is_shared = of_block;
    if (touched) note_update(*touched, name, index);
    return element;
  }
};

const long long most_watched = 1ll << 22;  // elements of an array; of larger ones the rest is not watched
const int most_arrays = 4096;

// what lies in global memory during a launch: arrays that begin at one address are one
struct Watched { void* start; Touched* touched; long long count, size; };
static Watched watched[most_arrays];
static int arrays = 0;

static Touched* watch(void* start, long long count, long long size) {
  for (int k = 0; k < arrays; ++k)
    if (watched[k].start == start) return watched[k].size == size && watched[k].count >= count ? watched[k].touched : 0;
  if (arrays == most_arrays || !count || !start) return 0;
  const long long kept = count < most_watched ? count : most_watched;
  Touched* made = (Touched*)calloc(kept, sizeof(Touched));
  watched[arrays++] = {start, made, count, size};
  return made;
}

static void forget() {
  for (int k = 0; k < arrays; ++k) free(watched[k].touched);
  arrays = 0;
}

template <typename T> struct Array {
  T* elements;
  Touched* touched;
  const char* name;
  Array(void* start, long long count, const char* name) : elements((T*)start), touched(watch(start, count, sizeof(T))), name(name) {}
  template <typename I> Cell<T> operator[](I index) const {
    const long long at = (long long)index;
    return {elements + index, this->at(at), name, at, false};
  }
  Touched* at(long long index) const { return touched && index >= 0 && index < most_watched ? touched + index : 0; }
};

// shared memory; what is read before it is written in the block is reported
template <typename T, int count> struct Shared {
  const char* name;
  T elements[count];
  Touched touched[count];
  template <typename I> Cell<T> operator[](I index) {
    const long long at = (long long)index;
    if (at < 0 || at >= count) {
      dprintf(2, "race: %s[%lld], which has %d elements\n", name, at, count);
      _exit(97);
    }
    return {elements + at, touched + at, name, at, true};
  }
};


// elements of less than a byte, each watched by itself: the helpers of a kernel's own text take plain memory, these are found for arrays
#define HLO_PACKED(bits) \
  template <typename I> static unsigned char hlo_get_##bits(const Array<unsigned char>& array, I position) { \
    Touched* const touched = array.at((long long)position); \
    is_shared = false; \
    if (touched) note_read(*touched, array.name, (long long)position); \
    return (unsigned char)(array.elements[position / (8 / bits)] >> position % (8 / bits) * bits & ((1 << bits) - 1)); \
  } \
  template <typename I> static unsigned char hlo_get_##bits(const Array<unsigned char>& array, I first, int number) { \
    return hlo_get_##bits(array, (long long)first + number); \
  } \
  template <typename I> static unsigned int hlo_seen_##bits(const Array<unsigned char>& array, I position) { \
    Touched* const touched = array.at((long long)position); \
    is_shared = false; \
    if (touched) note_update(*touched, array.name, (long long)position); \
    return array.elements[position / (8 / bits)]; \
  } \
  template <typename I> static void set_##bits(const Array<unsigned char>& array, I position, unsigned char value, long long count) { \
    const int shift = (int)(position % (8 / bits)) * bits; \
    const unsigned int mask = (position + 1 == count ? 255u >> shift : (1u << bits) - 1) << shift; \
    unsigned char& byte = array.elements[position / (8 / bits)]; \
    byte = (unsigned char)((byte & ~mask) | ((unsigned int)value << shift)); \
  } \
  template <typename I> static bool hlo_swapped_##bits(const Array<unsigned char>& array, I position, unsigned int& seen, unsigned char value, long long count = 0) { \
    Touched* const touched = array.at((long long)position); \
    is_shared = false; \
    if (touched) note_update(*touched, array.name, (long long)position); \
    set_##bits(array, position, value, count); \
    return true; \
  } \
  template <typename I> static void hlo_put_##bits(const Array<unsigned char>& array, I position, unsigned char value, long long count = 0) { \
    Touched* const touched = array.at((long long)position); \
    is_shared = false; \
    if (touched) note_write(*touched, array.name, (long long)position); \
    set_##bits(array, position, value, count); \
  } \
  template <typename I, int size> static void hlo_fill_##bits(const Array<unsigned char>& array, I first, const unsigned char (&values)[size]) { \
    for (int k = 0; k < size; ++k) hlo_put_##bits(array, (long long)first + k, values[k]); \
  }
HLO_PACKED(2)
HLO_PACKED(4)
#undef HLO_PACKED

// What blocks leave for the one that comes last (codegen/parts.py): each element must be written and fenced by its thread, with a barrier before another thread of the block
// counts the block, and is read by other blocks after that only.
struct Left { Place writer; unsigned long long launch; bool is_fenced, is_counted; const char* name; long long index; };
const int most_left = 1 << 14;
static Left* left[most_left];
static int lefts = 0;

static void publish() {
  for (int k = 0; k < lefts; ++k)
    if (left[k]->writer.block == here.block && left[k]->writer.thread == here.thread) left[k]->is_fenced = true;
}

__attribute__((noinline)) static void report_left(const Left& at, const char* what) {
  dprintf(2, "race: %s[%lld] %s\n", at.name, at.index, what);
  _exit(97);
}

// a block counts itself
static unsigned int count_block(unsigned int* count, unsigned int one) {
  int kept = 0;
  for (int k = 0; k < lefts; ++k) {
    Left& at = *left[k];
    if (at.writer.block != here.block) {
      left[kept++] = &at;
      continue;
    }
    if (!at.is_fenced) report_left(at, "is not fenced when its block is counted");
    if (at.writer.thread != here.thread && at.writer.barriers == here.barriers) report_left(at, "has no barrier behind it when its block is counted");
    at.is_counted = true;
  }
  lefts = kept;
  const unsigned int found = *count;
  *count = found + one;
  return found;
}

template <typename T> struct LeftCell {
  T* element;
  Left* at;
  operator T() const {
    if (at->launch != seed) report_left(*at, "is read before it is written");
    if (at->writer.block != here.block && !at->is_counted) report_left(*at, "is read by another block before its own is counted");
    return *element;
  }
  void operator=(T value) const {
    *at = {here, seed, false, false, at->name, at->index};
    if (lefts < most_left) left[lefts++] = at;
    *element = value;
  }
};

template <typename T, int count> struct Kept {
  const char* name;
  T elements[count];
  Left at[count];
  template <typename I> LeftCell<T> operator[](I index) {
    at[index].name = name;
    at[index].index = (long long)index;
    return {elements + index, at + index};
  }
};

}  // namespace hlo
