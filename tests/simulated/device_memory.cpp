#include "simulated/device_memory.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>

namespace fq::simulated {
namespace {

constexpr std::size_t kSpace = std::size_t{1} << 40;  // of addresses; pages are there once written
constexpr std::size_t kAlignment = 256;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kPoisoned = std::size_t{4} << 20;  // pages once written make every access slower

std::size_t rounded_up(std::size_t n, std::size_t step) { return (n + step - 1) / step * step; }

/// Pages that are there make every change of access slower.
void drop_pages(void* block, std::size_t bytes) {
  const auto begin = (reinterpret_cast<std::uintptr_t>(block) + kPage - 1) / kPage * kPage;
  const auto end = (reinterpret_cast<std::uintptr_t>(block) + bytes) / kPage * kPage;
  if (end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace

DeviceMemory::DeviceMemory()
    : fences_(std::getenv("FAKEQUANT_SIMULATED_FENCES") != nullptr), limit_(std::size_t{8} << 30) {
  void* space = mmap(nullptr, kSpace, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) std::abort();
  base_ = static_cast<std::byte*>(space);
}

/// The block ends at the end of a page, as nearly as 16-byte alignment allows.
void* DeviceMemory::take_fenced(std::size_t size, Pool pool) {
  const std::size_t pages = rounded_up(size, kPage);
  std::byte* first = base_ + top_;
  if (mprotect(first, pages, PROT_READ | PROT_WRITE) != 0) std::abort();
  top_ += pages + kPage;
  in_use_ += size;
  void* block = first + pages - size;
  taken_[block] = {size, pool};
  return block;
}

void* DeviceMemory::take(std::size_t bytes, Pool pool) {
  const std::size_t size = rounded_up(bytes, fences_ ? 16 : kAlignment);
  if (in_use_ + size > limit_) return nullptr;
  if (fences_) return take_fenced(size, pool);
  auto& blocks = free_[{pool, size}];
  void* block = nullptr;
  if (!blocks.empty()) {
    block = blocks.back();
    blocks.pop_back();
  } else {
    block = base_ + top_;
    top_ += size;
  }
  in_use_ += size;
  taken_[block] = {size, pool};
  return block;
}

void DeviceMemory::poison(void* block) const {
  const auto found = taken_.find(block);
  if (found != taken_.end() && (fences_ || found->second.size <= kPoisoned))
    std::memset(block, 0xff, found->second.size);
}

std::size_t DeviceMemory::give(void* pointer) {
  const auto found = taken_.find(pointer);
  if (found == taken_.end()) return 0;
  const auto [size, pool] = found->second;
  in_use_ -= size;
  if (never_waits(pool))
    given_[pointer] = found->second;
  else if (!fences_)
    free_[{pool, size}].push_back(pointer);
  taken_.erase(found);
  return size;
}

void DeviceMemory::drop(void* block, std::size_t bytes) {
  const auto given = given_.extract(block);
  if (!given.empty() && !fences_) free_[{given.mapped().pool, given.mapped().size}].push_back(block);
  if (!fences_) return drop_pages(block, bytes);
  const auto address = reinterpret_cast<std::uintptr_t>(block), first = address / kPage * kPage;
  const std::size_t pages = address + bytes - first;
  if (mprotect(reinterpret_cast<void*>(first), pages, PROT_NONE) != 0 ||
      madvise(reinterpret_cast<void*>(first), pages, MADV_DONTNEED) != 0)
    std::abort();
}

bool DeviceMemory::holds(const void* pointer) const {
  const auto* at = static_cast<const std::byte*>(pointer);
  return base_ <= at && at < base_ + kSpace;
}

void DeviceMemory::protect(bool open) const {
  if (top_ != 0 && !fences_ && mprotect(base_, top_, open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
    std::abort();
}

DeviceMemory::Open::Open(DeviceMemory& memory) : memory_(memory) { memory_.protect(true); }
DeviceMemory::Open::~Open() { memory_.protect(false); }

}  // namespace fq::simulated
