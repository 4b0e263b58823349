#pragma once

/// Memory of captured work, whose tensors have the same addresses in every launch. CUDA builds only.

#include <cstddef>
#include <map>
#include <memory>

#include "fakequant/core/backend/cuda/runtime/device_state.h"

namespace fq::cuda {

/// Large pieces of the device's pool, cut into blocks: what is given back serves what is taken after it. Once
/// the arena is closed, pieces go as soon as none of their blocks is in use.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  [[nodiscard]] static std::shared_ptr<Arena> make(DeviceState& state);
  Arena(const Arena&) = delete;  // blocks point into it
  Arena& operator=(const Arena&) = delete;

  /// 256-byte aligned. Throws SystemError when memory is short.
  [[nodiscard]] void* take(std::size_t bytes);
  /// Nothing is taken from now on.
  void close() noexcept;

  [[nodiscard]] bool holds(const void* pointer) const noexcept;
  /// A block to the arena that it was taken from; false for one of no arena.
  [[nodiscard]] static bool give_back(void* block) noexcept;

 private:
  explicit Arena(DeviceState& state) : state_(state) {}
  void add_piece(std::size_t bytes);
  void give(std::byte* block) noexcept;
  void give_back_pieces() noexcept;

  using Ranges = std::map<std::byte*, std::size_t>;  // sizes, by address

  DeviceState& state_;
  bool closed_ = false;
  Ranges pieces_, free_, taken_;
};

}  // namespace fq::cuda
