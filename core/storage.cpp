#include "fakequant/core/storage.h"

#include "fakequant/core/allocator.h"
#include "fakequant/core/cuda/runtime.h"

namespace fq {

Storage::Block::Block(std::int64_t size, Device where) : bytes(size), device(where) {
  const auto count = static_cast<std::size_t>(size);
  if (device.is_cpu()) data = static_cast<std::byte*>(detail::allocate(count));
  if (device.is_cuda()) data = static_cast<std::byte*>(cuda::allocate(count, device));
  if (device.is_meta()) detail::count_meta(count, true);
}

Storage::Block::~Block() {
  if (device.is_cpu()) detail::deallocate(data, static_cast<std::size_t>(bytes));
  if (device.is_cuda()) cuda::deallocate(data, static_cast<std::size_t>(bytes), device);
  if (device.is_meta()) detail::count_meta(static_cast<std::size_t>(bytes), false);
}

Storage::Storage(std::int64_t bytes, Device device) : block_(std::make_shared<Block>(bytes, device)) {}

void Storage::touched(bool written) const noexcept { cuda::touched(*this, block_->data, written); }

std::byte* Storage::mutable_data() noexcept {
  if (!block_) return nullptr;
  block_->version.fetch_add(1);
  if (block_->device.is_cuda()) touched(true);
  return block_->data;
}

}  // namespace fq
