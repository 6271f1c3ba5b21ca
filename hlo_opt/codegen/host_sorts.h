// Sorts of lines on a CPU: the order that the network of a sort kernel gives, by merging. Merges take the next element
// without a branch, from both ends at once.
#pragma once

namespace hlo {

// Whether there was no memory for merges since somebody asked.
static __thread bool sorts_failed = false;

inline int asked_for_failure() {
  const bool failed = sorts_failed;
  sorts_failed = false;
  return failed;
}

// One of two without a branch: of `a ? b : c` a compiler makes two copies of what follows.
template <class T> inline const T* chosen(bool is_one, const T* one, const T* other) {
  return (const T*)((unsigned long long)other ^
                    (((unsigned long long)one ^ (unsigned long long)other) & -(unsigned long long)is_one));
}

// `before(one, two)`: whether `two` comes before `one`, which stands in front of it. Only then they change places, so
// that equal elements stay in order.

template <class T, class Before> inline void merge_runs(const T* from, int size, T* to, const Before& before) {
  const int half = size / 2;
  const T *left = from, *right = from + half, *left_last = from + half - 1, *right_last = from + size - 1;
  T *first = to, *last = to + size - 1;
  for (int i = 0; i < half; ++i) {
    const bool is_right = before(*left, *right);
    *first++ = *chosen(is_right, right, left);
    right += is_right;
    left += !is_right;
    const bool is_left = before(*left_last, *right_last);
    *last-- = *chosen(is_left, left_last, right_last);
    right_last -= !is_left;
    left_last -= is_left;
  }
  if (size % 2) {
    const bool is_left = left <= left_last;
    *first = *(is_left ? left : right);
    left += is_left;
    right += !is_left;
  }
  if (left == left_last + 1 && right == right_last + 1) return;
  // both ends met elsewhere: the comparator is no order, and from one end alone nothing is taken twice
  left = from, right = from + half, first = to;
  const T *middle = right, *end = from + size;
  while (left < middle && right < end) {
    const bool is_right = before(*left, *right);
    *first++ = *chosen(is_right, right, left);
    right += is_right;
    left += !is_right;
  }
  while (left < middle) *first++ = *left++;
  while (right < end) *first++ = *right++;
}

template <class T, class Before> inline void sort_four(const T* from, T* to, const Before& before) {
  const bool swap_first = before(from[0], from[1]), swap_last = before(from[2], from[3]);
  const T *a = from + swap_first, *b = from + !swap_first, *c = from + 2 + swap_last, *d = from + 2 + !swap_last;
  const bool low = before(*a, *c), high = before(*b, *d);
  const T *least = low ? c : a, *most = high ? b : d;
  const T *left = low ? a : (high ? c : b), *right = high ? d : (low ? b : c);
  const bool swap = before(*left, *right);
  to[0] = *least;
  to[1] = *(swap ? right : left);
  to[2] = *(swap ? left : right);
  to[3] = *most;
}

template <class T, class Before> inline void sort_few(const T* from, int size, T* to, const Before& before) {
  int done = size < 4 ? (size > 0) : 4;
  if (size >= 4)
    sort_four(from, to, before);
  else if (size > 0)
    to[0] = from[0];
  for (; done < size; ++done) {
    const T taken = from[done];
    int at = done;
    for (; at > 0 && before(to[at - 1], taken); --at) to[at] = to[at - 1];
    to[at] = taken;
  }
}

// Sorts `held`; the result is there, or in `spare` where `to_spare`.
template <class T, class Before> void merge_sort(T* held, T* spare, int size, bool to_spare, const Before& before) {
  if (size < 8) {
    T few[8];
    sort_few(held, size, few, before);
    for (int i = 0; i < size; ++i) (to_spare ? spare : held)[i] = few[i];
    return;
  }
  const int half = size / 2;
  merge_sort(held, spare, half, !to_spare, before);
  merge_sort(held + half, spare + half, size - half, !to_spare, before);
  merge_runs(to_spare ? held : spare, size, to_spare ? spare : held, before);
}

// The first `kept` of `held` in order, and in its place; `spare` has room for twice as many. What comes after the last
// one found so far is passed over, the rest is merged in, `kept` at a time.
template <class T, class Before> void sort_first(T* held, T* spare, int size, int kept, const Before& before) {
  merge_sort(held, spare, kept, false, before);
  T* const waiting = spare + kept;
  int count = 0;
  for (int i = kept; i < size || count; ++i) {
    if (i < size && before(held[kept - 1], held[i])) waiting[count++] = held[i];
    if (count < kept && i + 1 < size) continue;
    merge_sort(waiting, spare, count, false, before);
    int left = 0, right = 0;
    for (int n = 0; n < kept; ++n) {
      const bool is_right = right < count && before(held[left], waiting[right]);
      spare[n] = is_right ? waiting[right] : held[left];
      right += is_right;
      left += !is_right;
    }
    for (int n = 0; n < kept; ++n) held[n] = spare[n];
    count = 0;
  }
}

}  // namespace hlo
