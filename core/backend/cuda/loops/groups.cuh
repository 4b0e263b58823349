#pragma once

/// Arrays in groups of elements that one thread reads and writes at once, with 16-byte accesses. Groups of
/// eight elements match the eight bits of a mask byte. Groups of 16 bytes (`pack_size` elements) write at
/// full memory speed, because neighbouring threads fill whole 32-byte sectors with one instruction.

#include <bit>
#include <type_traits>

#include "fakequant/core/backend/cuda/loops/launch.cuh"
#include "fakequant/core/numerics/number_formats.h"

namespace fq::cuda {

inline constexpr int group_size = 8;
/// Number of elements in 16 bytes, at most eight.
template <class T>
inline constexpr int pack_size = sizeof(T) >= 2 ? 16 / sizeof(T) : group_size;

namespace loops {

template <class T>
struct alignas(sizeof(T) >= 2 ? 16 : 8) Pack {
  static constexpr int count = (sizeof(T) >= 2 ? 16 : 8) / sizeof(T);
  T v[count];
};

template <class T>
FQ_HD bool packed(const T* p) {
  return reinterpret_cast<std::uintptr_t>(p) % alignof(Pack<T>) == 0;
}

template <class T>
using PackWords = std::conditional_t<sizeof(Pack<T>) == 16, uint4, uint2>;

/// Loads with one instruction: nvcc splits an assignment if the elements are used or stored one by one.
template <class T>
FQ_HD Pack<T> load_pack(const Pack<T>* p) {
  return FQ_BY_TARGET(std::bit_cast<Pack<T>>(*reinterpret_cast<const PackWords<T>*>(p)), *p);
}
template <class T>
FQ_HD void store_pack(Pack<T>* p, const Pack<T>& pack) {
  FQ_BY_TARGET(__stwb(reinterpret_cast<PackWords<T>*>(p), std::bit_cast<PackWords<T>>(pack)), *p = pack);
}

}  // namespace loops

/// Sets v[j] = p[j] for j < count <= size, and the other elements to 0.
template <int size, class T>
FQ_HD void load_group(const T* p, int count, T (&v)[size]) {
  using Pack = loops::Pack<T>;
  if (count == size && loops::packed(p)) {
    for (int i = 0; i < size / Pack::count; ++i) {
      const Pack pack = reinterpret_cast<const Pack*>(p)[i];
      for (int j = 0; j < Pack::count; ++j) v[i * Pack::count + j] = pack.v[j];
    }
    return;
  }
  for (int j = 0; j < size; ++j) v[j] = j < count ? p[j] : T{};
}

/// Sets p[j] = v[j] for j < count <= size.
template <int size, class T>
FQ_HD void store_group(T* p, int count, const T (&v)[size]) {
  using Pack = loops::Pack<T>;
  if (count == size && loops::packed(p)) {
    for (int i = 0; i < size / Pack::count; ++i) {
      Pack pack;
      for (int j = 0; j < Pack::count; ++j) pack.v[j] = v[i * Pack::count + j];
      loops::store_pack(reinterpret_cast<Pack*>(p) + i, pack);
    }
    return;
  }
  for (int j = 0; j < size; ++j)
    if (j < count) p[j] = v[j];
}

/// Returns `count` <= 8 bits of a mask from bit `first`, in the low bits.
FQ_HD unsigned load_bits(const std::uint8_t* mask, std::int64_t first, int count) {
  const std::uint8_t* own = mask + (first >> 3);
  const int shift = static_cast<int>(first & 7);
  unsigned bits = *own;
  if (shift + count > 8) bits |= static_cast<unsigned>(own[1]) << 8;
  return bits >> shift;
}
/// Sets the elements of a group to +0 whose bit of the mask is 0. The mask may be null.
template <class T>
FQ_HD void apply_bits(const std::uint8_t* mask, std::int64_t first, int count, T (&v)[group_size]) {
  if (mask == nullptr) return;
  const unsigned bits = load_bits(mask, first, count);
  for (int j = 0; j < group_size; ++j) v[j] = (bits >> j & 1u) != 0 ? v[j] : T{0};
}

/// Applies load_group and converts to `To`.
template <int size, class To, class T>
FQ_HD void load_converted(const T* p, int count, To (&v)[size]) {
  T own[size];
  load_group(p, count, own);
  for (int j = 0; j < size; ++j) v[j] = static_cast<To>(own[j]);
}
template <int size, class T, class From>
FQ_HD void store_converted(T* p, int count, const From (&v)[size]) {
  T own[size];
  for (int j = 0; j < size; ++j) own[j] = static_cast<T>(v[j]);
  store_group(p, count, own);
}

namespace loops {

template <class Body, int size = group_size>
struct OfGroups {
  Body body;
  std::int64_t count;
  FQ_HD void operator()(std::int64_t g) const {
    const std::int64_t first = g * size, left = count - first;
    body(first, left < size ? static_cast<int>(left) : size);
  }
};

}  // namespace loops

/// Calls body(first, count) for all groups of the elements. count is `size`, or less in the last group.
template <int size = group_size, class Body>
void launch_groups(Device device, std::int64_t elements, Body body) {
  const std::int64_t groups = elements / size + (elements % size != 0 ? 1 : 0);
  launch_each(device, groups, loops::OfGroups<Body, size>{body, elements});
}

}  // namespace fq::cuda
