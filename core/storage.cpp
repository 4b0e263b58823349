#include "fakequant/core/storage.h"

#include "fakequant/core/backend/kernels.h"

namespace fq {

Storage::Block::Block(std::int64_t size, Device where) : bytes(size), device(where) {
  data =
      static_cast<std::byte*>(detail::Kernels::of(device).allocate(static_cast<std::size_t>(size), device));
}

Storage::Block::~Block() {
  detail::find_kernels(device)->deallocate(data, static_cast<std::size_t>(bytes), device);
}

Storage::Storage(std::int64_t bytes, Device device) : block_(std::make_shared<Block>(bytes, device)) {}

void Storage::touched(bool written) const noexcept {
  detail::find_kernels(block_->device)->touched(*this, block_->data, written);
}

void Storage::mark_written() noexcept {
  if (!block_) return;
  block_->version.fetch_add(1);
  if (block_->device.is_cuda()) touched(true);
}

std::byte* Storage::mutable_data() noexcept {
  mark_written();
  return block_ ? block_->data : nullptr;
}

}  // namespace fq
