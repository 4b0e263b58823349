#pragma once

/// Tensors that follow from a few numbers, such as masks and tables of angles.
///
/// An operator that made its table in each call would compute it again for each layer and step, and copy it
/// to the device, which a captured step cannot do. A cached one is made once, outside of any capture.

#include <cstdint>
#include <list>
#include <mutex>
#include <utility>

#include "fakequant/core/backend/transfer.h"

namespace fq::detail {

/// Tensors by key (a struct with ==) and device; safe to use from several threads. Keeps the most recently
/// used ones, at most 64 MiB of them, or the last one if it is larger.
template <class Key>
class ConstantCache {
 public:
  /// The tensor of the key on the device: from the cache, or what `make()` returns (on the CPU), copied
  /// there.
  template <class Make>
  [[nodiscard]] Tensor get(const Key& key, Device device, const Make& make) {
    const std::scoped_lock lock(mutex_);
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (!(entry->key == key) || entry->tensor.device() != device) continue;
      entries_.splice(entries_.begin(), entries_, entry);
      return entry->tensor;
    }
    entries_.push_front({key, constant(make(), device)});
    bytes_ += entries_.front().tensor.nbytes();
    while (bytes_ > kMostBytes && entries_.size() > 1) {
      bytes_ -= entries_.back().tensor.nbytes();
      entries_.pop_back();
    }
    return entries_.front().tensor;
  }

 private:
  static constexpr std::int64_t kMostBytes = std::int64_t{64} << 20;
  struct Entry {
    Key key;
    Tensor tensor;
  };
  std::mutex mutex_;
  std::list<Entry> entries_;  // the most recently used first
  std::int64_t bytes_ = 0;
};

}  // namespace fq::detail
