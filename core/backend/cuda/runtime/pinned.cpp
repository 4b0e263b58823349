#include "fakequant/core/backend/cuda/runtime/pinned.h"

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "fakequant/core/backend/cuda/runtime/check.h"

namespace fq::cuda {
namespace {

struct FreeBlocks {
  std::mutex mutex;
  std::map<std::size_t, std::vector<std::byte*>> blocks;
};

FreeBlocks& free_blocks() {
  static auto* all = new FreeBlocks;  // handles with static lifetime may outlive any other static object
  return *all;
}

}  // namespace

// Rounded up to a power of two, so that blocks of similar sizes can be reused.
Pinned::Pinned(std::size_t bytes) : bytes_(std::bit_ceil(std::max<std::size_t>(bytes, 4096))) {
  const std::scoped_lock lock(free_blocks().mutex);
  auto& blocks = free_blocks().blocks[bytes_];
  if (!blocks.empty()) {
    data_ = blocks.back();
    blocks.pop_back();
    return;
  }
  void* fresh = nullptr;
  // Portable: page-locked for all devices, because blocks are cached for all of them.
  FQ_CUDA(cudaHostAlloc(&fresh, bytes_, cudaHostAllocPortable));
  data_ = static_cast<std::byte*>(fresh);
}

Pinned::~Pinned() {
  if (data_ == nullptr) return;
  const std::scoped_lock lock(free_blocks().mutex);
  try {
    free_blocks().blocks[bytes_].push_back(data_);
  } catch (...) {
    static_cast<void>(cudaFreeHost(data_));
  }
}

Pinned::Pinned(Pinned&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Pinned& Pinned::operator=(Pinned&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

// Events without timing are cheaper to record and to wait for.
Event make_event() {
  Event event;
  FQ_CUDA(cudaEventCreateWithFlags(event.out(), cudaEventDisableTiming));
  return event;
}

}  // namespace fq::cuda
