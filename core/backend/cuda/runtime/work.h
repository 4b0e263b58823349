#pragma once

/// Counts of the work of each kernel, while `count_work` (runtime.h) is on. CUDA builds only.

#include <atomic>
#include <cstdint>

namespace fq::cuda {

enum class WorkKind : unsigned char { launch, product, copy };

namespace work {
inline std::atomic<bool> counting{false};
void count(WorkKind kind) noexcept;
void use(const void* operand, std::int64_t bytes, bool written);
}  // namespace work

/// Counts work of the kernel that this thread runs.
inline void note_work(WorkKind kind) noexcept {
  if (work::counting.load(std::memory_order_relaxed)) work::count(kind);
}
/// Adds the bytes of an operand of the next launch, product or copy. An operand that is noted twice counts
/// once.
inline void note_read(const void* operand, std::int64_t bytes) {
  if (work::counting.load(std::memory_order_relaxed)) work::use(operand, bytes, false);
}
inline void note_written(const void* operand, std::int64_t bytes) {
  if (work::counting.load(std::memory_order_relaxed)) work::use(operand, bytes, true);
}

/// Names the kernel that this thread runs. Work outside of any scope belongs to the kernel "other".
class KernelScope {
 public:
  explicit KernelScope(const char* name);
  ~KernelScope();
  KernelScope(const KernelScope&) = delete;  // restores the outer kernel once
  KernelScope& operator=(const KernelScope&) = delete;

 private:
  void* outer_;
};

}  // namespace fq::cuda
