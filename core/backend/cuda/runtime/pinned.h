#pragma once

/// Page-locked host memory, which a device copies from and to by itself. CUDA builds only.

#include <cstddef>

#include "fakequant/core/backend/cuda/runtime/handle.h"
#include "fakequant/core/backend/cuda/runtime/stream.h"

namespace fq::cuda {

/// Blocks are kept and given out again: to lock pages takes longer than to copy them.
class Pinned {
 public:
  Pinned() = default;
  /// Throws SystemError when memory is short.
  explicit Pinned(std::size_t bytes);
  ~Pinned();
  Pinned(Pinned&& other) noexcept;
  Pinned& operator=(Pinned&& other) noexcept;
  Pinned(const Pinned&) = delete;  // one owner
  Pinned& operator=(const Pinned&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A new event, without times.
[[nodiscard]] Event make_event();

}  // namespace fq::cuda
