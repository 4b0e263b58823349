#pragma once

/// Reference-counted bytes on a device, with a version that every writer bumps. A Tensor is made of one;
/// users rarely touch it.
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

/// A handle of bytes. Copies share the bytes, which go back to the allocator of their device with the last
/// handle; the allocator keeps them for the next tensor. On `meta` it has a size and no bytes. Handles may be
/// copied and dropped on any thread.
class Storage {
 public:
  Storage() = default;
  /// `bytes` bytes whose contents are unspecified. Throws SystemError when memory is short, BackendError
  /// where the device cannot be used.
  Storage(std::int64_t bytes, Device device);
  /// A handle of memory that somebody else owns: nothing is copied. `release` is called once, when the last
  /// handle goes, on whichever thread that is; it must not throw, and may be empty. Who writes to the memory
  /// from outside calls `mark_written`.
  [[nodiscard]] static Storage borrow(void* data, std::int64_t bytes, Device device,
                                      std::function<void()> release);

  /// False for a handle that was made by the default constructor.
  [[nodiscard]] bool defined() const noexcept { return block_ != nullptr; }
  /// The size that was asked for, in bytes; 0 when undefined.
  [[nodiscard]] std::int64_t bytes() const noexcept { return block_ ? block_->bytes : 0; }
  /// Where the bytes are; the CPU when undefined.
  [[nodiscard]] Device device() const noexcept { return block_ ? block_->device : Device{}; }
  /// The bytes to read, in the device's memory; null on `meta` and when undefined.
  [[nodiscard]] const std::byte* data() const noexcept {
    if (!block_) return nullptr;
    if (block_->device.is_cuda()) touched(false);
    return block_->data;
  }
  /// The bytes to write to; asking for them counts as a change, whether or not anything is written.
  [[nodiscard]] std::byte* mutable_data() noexcept;
  /// Counts as a change although nobody here writes, for code that wrote through an older pointer.
  void mark_written() noexcept;
  /// A number that differs after each change, and from that of other bytes. Values that are saved for backward
  /// keep it and refuse another one.
  [[nodiscard]] std::uint64_t version() const noexcept { return block_ ? block_->version.load() : 0; }
  /// Whether both are handles of the same bytes: a write through one is then seen through the other.
  [[nodiscard]] bool shares(const Storage& other) const noexcept { return block_ == other.block_; }
  /// The number of handles of these bytes, this one included; 0 when undefined.
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
