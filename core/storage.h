#pragma once

/// Reference-counted bytes on a device, with a version that every writer bumps.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "fakequant/core/device.h"

namespace fq {

/// A handle of bytes; Tensor is made of one. Copies share the bytes, which are freed with the last handle. On
/// `meta` it has a size and no bytes.
class Storage {
 public:
  Storage() = default;
  /// `bytes` bytes of unspecified contents. Throws SystemError when memory is short, BackendError without the
  /// device.
  Storage(std::int64_t bytes, Device device);

  [[nodiscard]] bool defined() const noexcept { return block_ != nullptr; }
  [[nodiscard]] std::int64_t bytes() const noexcept { return block_ ? block_->bytes : 0; }
  [[nodiscard]] Device device() const noexcept { return block_ ? block_->device : Device{}; }
  /// The bytes to read, in the device's memory; null on `meta` and when undefined.
  [[nodiscard]] const std::byte* data() const noexcept {
    if (!block_) return nullptr;
    if (block_->device.is_cuda()) touched(false);
    return block_->data;
  }
  /// The bytes to write to; counts as a change.
  [[nodiscard]] std::byte* mutable_data() noexcept;
  /// Counts as a change although nobody here writes, for who wrote through an older pointer.
  void mark_written() noexcept;
  /// How often the bytes were changed. Values saved for backward keep it and refuse another one.
  [[nodiscard]] std::uint64_t version() const noexcept { return block_ ? block_->version.load() : 0; }
  /// Whether both are handles of the same bytes.
  [[nodiscard]] bool shares(const Storage& other) const noexcept { return block_ == other.block_; }
  /// Handles of these bytes, this one included; 0 when undefined.
  [[nodiscard]] long use_count() const noexcept { return block_.use_count(); }

 private:
  struct Block {
    Block(std::int64_t size, Device where);
    ~Block();
    Block(const Block&) = delete;  // one owner of the bytes; handles share the block
    Block& operator=(const Block&) = delete;

    std::byte* data = nullptr;
    std::int64_t bytes;
    Device device;
    std::atomic<std::uint64_t> version{0};
  };
  void touched(bool written) const noexcept;

  std::shared_ptr<Block> block_;
};

}  // namespace fq
