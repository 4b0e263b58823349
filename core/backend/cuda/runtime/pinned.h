#pragma once

/// Page-locked host memory, for asynchronous copies. CUDA builds only.

#include <cstddef>

#include "fakequant/core/backend/cuda/runtime/handle.h"
#include "fakequant/core/backend/cuda/runtime/stream.h"

namespace fq::cuda {

/// A block of page-locked memory. Freed blocks are cached, because locking pages takes longer than copying
/// them.
class Pinned {
 public:
  Pinned() = default;
  /// Throws SystemError if there is not enough memory.
  explicit Pinned(std::size_t bytes);
  ~Pinned();
  Pinned(Pinned&& other) noexcept;
  Pinned& operator=(Pinned&& other) noexcept;
  Pinned(const Pinned&) = delete;  // single owner
  Pinned& operator=(const Pinned&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Returns a new event without timing.
[[nodiscard]] Event make_event();

}  // namespace fq::cuda
