#include "fakequant/core/backend/cuda/runtime/work.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "fakequant/core/backend/cuda/runtime/runtime.h"

namespace fq::cuda {
namespace {

/// Counters of a kernel. Threads may run the same kernel.
struct Counters {
  std::atomic<std::int64_t> launches{0}, products{0}, copies{0}, read{0}, written{0};

  void clear() noexcept {
    for (auto* each : {&launches, &products, &copies, &read, &written}) each->store(0);
  }
};

struct Table {
  std::mutex mutex;
  std::map<std::string, Counters, std::less<>> rows;  // rows stay: threads keep their addresses

  Counters& row(const char* name) {
    const std::scoped_lock lock(mutex);
    return rows.try_emplace(name).first->second;
  }
};

Table& table() {
  // Never destroyed: other threads may still run kernels at exit.
  static auto* one = new Table;
  return *one;
}

thread_local Counters* current = nullptr;

/// Operands that this thread has noted since its last launch.
struct Operand {
  const void* address;
  std::int64_t bytes;
  bool written;
  bool operator==(const Operand&) const = default;
};
thread_local std::vector<Operand> noted;

Counters& counters() { return current != nullptr ? *current : table().row("other"); }

void add(std::atomic<std::int64_t>& number, std::int64_t by) noexcept {
  number.fetch_add(by, std::memory_order_relaxed);
}

}  // namespace

namespace work {

void count(WorkKind kind) noexcept {
  Counters& own = counters();
  add(kind == WorkKind::launch ? own.launches : kind == WorkKind::product ? own.products : own.copies, 1);
  noted.clear();
}

void use(const void* operand, std::int64_t bytes, bool written) {
  const Operand own{operand, bytes, written};
  if (operand == nullptr || std::ranges::find(noted, own) != noted.end()) return;
  noted.push_back(own);
  add(written ? counters().written : counters().read, bytes);
}

}  // namespace work

KernelScope::KernelScope(const char* name) : outer_(current) {
  if (work::counting.load(std::memory_order_relaxed)) current = &table().row(name);
}
KernelScope::~KernelScope() { current = static_cast<Counters*>(outer_); }

void count_work(bool on) {
  if (on) {
    const std::scoped_lock lock(table().mutex);
    for (auto& [name, row] : table().rows) row.clear();
  }
  work::counting = on;
}

std::vector<KernelWork> counted_work() {
  std::vector<KernelWork> out;
  const std::scoped_lock lock(table().mutex);
  for (const auto& [name, row] : table().rows)
    if (row.launches + row.products + row.copies > 0)
      out.push_back({name, row.launches, row.products, row.copies, row.read, row.written});
  return out;
}

}  // namespace fq::cuda
