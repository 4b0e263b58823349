#pragma once

/// Memory of captured work, whose tensors keep the same addresses in every launch. CUDA builds only.

#include <cstddef>
#include <map>
#include <memory>

#include "fakequant/core/backend/cuda/runtime/device_state.h"

namespace fq::cuda {

/// Memory arena of large pieces of the device's pool, cut into blocks. Freed blocks are reused. After
/// `close`, a piece returns to the pool when all its blocks are free.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  [[nodiscard]] static std::shared_ptr<Arena> make(DeviceState& state);
  Arena(const Arena&) = delete;  // blocks point to it
  Arena& operator=(const Arena&) = delete;

  /// Returns 256-byte aligned memory. Throws SystemError if there is not enough memory.
  [[nodiscard]] void* take(std::size_t bytes);
  /// Ends allocation.
  void close() noexcept;

  [[nodiscard]] bool holds(const void* pointer) const noexcept;
  /// Returns a block to the arena that owns it. Returns false if no arena owns the block.
  [[nodiscard]] static bool give_back(void* block) noexcept;

 private:
  explicit Arena(DeviceState& state) : state_(state) {}
  void add_piece(std::size_t bytes);
  void give(std::byte* block) noexcept;
  void give_back_pieces() noexcept;

  using Ranges = std::map<std::byte*, std::size_t>;  // sizes by address

  DeviceState& state_;
  bool closed_ = false;
  Ranges pieces_, free_, taken_;
};

}  // namespace fq::cuda
