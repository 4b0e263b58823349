#pragma once

/// Storage: reference-counted bytes on a device, with a version that changes at every write. Tensors are
/// built on it; users rarely need it.
///
///     const Storage bytes(1024, Device::cpu());
///     const Storage same = bytes;                 // two handles of one block
///     const bool shared = same.shares(bytes);     // true

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "fakequant/core/device.h"

namespace fq {

/// A handle to a block of bytes. Copies share the block. The last handle returns it to the allocator of its
/// device, which keeps it for the next tensor. On `meta` a block has a size but no bytes. Handles may be
/// copied and dropped on any thread.
class Storage {
 public:
  Storage() = default;
  /// Allocates `bytes` bytes with unspecified contents. Throws SystemError if memory is exhausted,
  /// BackendError if the device cannot be used.
  Storage(std::int64_t bytes, Device device);
  /// Wraps memory of another owner without copying it. `release` is called once, on the thread that drops
  /// the last handle. It must not throw and may be empty. Code that writes to the memory from outside must
  /// call `mark_written`.
  [[nodiscard]] static Storage borrow(void* data, std::int64_t bytes, Device device,
                                      std::function<void()> release);

  /// False for a default-constructed handle.
  [[nodiscard]] bool defined() const noexcept { return block_ != nullptr; }
  /// Requested size in bytes; 0 when undefined.
  [[nodiscard]] std::int64_t bytes() const noexcept { return block_ ? block_->bytes : 0; }
  /// Device of the bytes; the CPU when undefined.
  [[nodiscard]] Device device() const noexcept { return block_ ? block_->device : Device{}; }
  /// Returns the bytes for reading, in the device's memory; null on `meta` and when undefined.
  [[nodiscard]] const std::byte* data() const noexcept {
    if (!block_) return nullptr;
    if (block_->device.is_cuda()) touched(false);
    return block_->data;
  }
  /// Returns the bytes for writing. Counts as a write even if nothing is written.
  [[nodiscard]] std::byte* mutable_data() noexcept;
  /// Changes the version. For code that wrote through an older pointer.
  void mark_written() noexcept;
  /// A number that changes with each write and differs between blocks. Values saved for backward store it to
  /// detect later writes.
  [[nodiscard]] std::uint64_t version() const noexcept { return block_ ? block_->version.load() : 0; }
  /// Whether both handles share a block, so that a write through one is visible through the other.
  [[nodiscard]] bool shares(const Storage& other) const noexcept { return block_ == other.block_; }
  /// The number of handles of this block, including this one; 0 when undefined.
  [[nodiscard]] long use_count() const noexcept { return block_.use_count(); }

 private:
  struct Block {
    Block(std::int64_t size, Device where);
    Block(std::byte* memory, std::int64_t size, Device where, std::function<void()> at_end);
    ~Block();
    Block(const Block&) = delete;  // one owner of the bytes; handles share the block
    Block& operator=(const Block&) = delete;

    std::byte* data = nullptr;
    std::int64_t bytes;
    Device device;
    std::atomic<std::uint64_t> version{0};
    bool borrowed = false;
    std::function<void()> release = {};  // of borrowed bytes
  };
  void touched(bool written) const noexcept;

  std::shared_ptr<Block> block_;
};

}  // namespace fq
