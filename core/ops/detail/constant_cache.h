#pragma once

/// Tables of operators that stay on their device.

#include <cstdint>
#include <list>
#include <mutex>

#include "fakequant/core/backend/transfer.h"
#include "fakequant/core/tensor.h"

namespace fq::detail {

/// Cache of tensors by key (a struct with ==) and device. Thread safe. Keeps the most recently used tensors,
/// at most 64 MiB, or the last one if it is larger.
template <class Key>
class ConstantCache {
 public:
  /// Returns the tensor of the key on the device: from the cache, or the CPU tensor that `make()` returns,
  /// copied to the device.
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
  std::list<Entry> entries_;  // most recently used first
  std::int64_t bytes_ = 0;
};

}  // namespace fq::detail
