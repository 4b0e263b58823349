#include "fakequant/core/storage.h"

#include <atomic>
#include <utility>

#include "fakequant/core/backend/kernels.h"

namespace fq {
namespace {

/// Returns the first version of a new block. Blocks start 2^24 apart, so that versions of different blocks
/// differ.
std::uint64_t first_version() noexcept {
  constexpr std::uint64_t kApart = std::uint64_t{1} << 24;
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(kApart, std::memory_order_relaxed) + kApart;
}

}  // namespace

Storage::Block::Block(std::int64_t size, Device where)
    : bytes(size), device(where), version(first_version()) {
  data =
      static_cast<std::byte*>(detail::Kernels::of(device).allocate(static_cast<std::size_t>(size), device));
}

Storage::Block::Block(std::byte* memory, std::int64_t size, Device where, std::function<void()> at_end)
    : data(memory),
      bytes(size),
      device(where),
      version(first_version()),
      borrowed(true),
      release(std::move(at_end)) {}

Storage::Block::~Block() {
  // find_kernels does not throw. The allocation proves that the device has kernels.
  if (!borrowed)
    detail::find_kernels(device)->deallocate(data, static_cast<std::size_t>(bytes), device);
  else if (release)
    release();
}

Storage::Storage(std::int64_t bytes, Device device) : block_(std::make_shared<Block>(bytes, device)) {}

Storage Storage::borrow(void* data, std::int64_t bytes, Device device, std::function<void()> release) {
  Storage out;
  out.block_ = std::make_shared<Block>(static_cast<std::byte*>(data), bytes, device, std::move(release));
  return out;
}

void Storage::touched(bool written) const noexcept {
  detail::find_kernels(block_->device)->touched(*this, block_->data, written);
}

void Storage::mark_written() noexcept {
  if (!block_) return;
  block_->version.fetch_add(1);
  // CUDA graph captures keep the storages that they use.
  if (block_->device.is_cuda()) touched(true);
}

std::byte* Storage::mutable_data() noexcept {
  mark_written();
  return block_ ? block_->data : nullptr;
}

}  // namespace fq
