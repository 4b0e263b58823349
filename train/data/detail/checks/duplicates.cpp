#include "fakequant/train/data/detail/checks/duplicates.h"

#include <algorithm>
#include <tuple>

#include "fakequant/core/io/detail/crc32c.h"

namespace fq::detail {
namespace {

/// FNV-1a.
std::uint64_t hash_of(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const auto byte : bytes) hash = (hash ^ std::uint64_t(byte)) * 0x100000001b3;
  return hash;
}

}  // namespace

void Duplicates::add(std::span<const std::byte> sample, SamplePlace place) {
  entries_.push_back({hash_of(sample), crc32c(sample.data(), sample.size()), place});
}

std::vector<Duplicates::Pair> Duplicates::pairs() const {
  auto sorted = entries_;
  std::ranges::sort(sorted, {}, [](const Entry& entry) {
    return std::tuple(entry.hash, entry.crc, entry.place.group, entry.place.row);
  });
  std::vector<Pair> out;
  for (std::size_t i = 0, first = 0; i < sorted.size(); ++i) {
    if (sorted[i].hash != sorted[first].hash || sorted[i].crc != sorted[first].crc) first = i;
    if (i != first) out.push_back({sorted[first].place, sorted[i].place});
  }
  std::ranges::sort(out, {}, [](const Pair& pair) { return std::pair(pair.second.group, pair.second.row); });
  return out;
}

}  // namespace fq::detail
