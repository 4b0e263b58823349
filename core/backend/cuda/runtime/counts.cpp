#include "fakequant/core/backend/cuda/runtime/counts.h"

#include <atomic>

namespace fq::cuda {
namespace {

std::atomic<std::int64_t> launches, waits, graphs;

void count_one(std::atomic<std::int64_t>& number) noexcept { number.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

Counts counts() noexcept { return {launches.load(), waits.load(), graphs.load()}; }
void count_launch() noexcept { count_one(launches); }
void count_wait() noexcept { count_one(waits); }
void count_graph() noexcept { count_one(graphs); }

}  // namespace fq::cuda
