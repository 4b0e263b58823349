#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "fakequant/core/backend/cuda/runtime/check.h"
#include "fakequant/core/backend/cuda/runtime/runtime.h"
#include "fakequant/core/backend/cuda/runtime/stream.h"

namespace fq::cuda {
namespace {

std::mutex check_mutex;
std::shared_ptr<const WaitCheck> check_in_force;  // a waiting thread keeps the check it began with

std::shared_ptr<const WaitCheck> wait_check() {
  const std::scoped_lock lock(check_mutex);
  return check_in_force;
}

/// Calls `query` until the work is no longer in progress.
template <class Query>
void poll(const Query& query, const char* call, const WaitCheck& check_wait) {
  using Clock = std::chrono::steady_clock;
  // Most waits are short: yielding first gives them a short delay. Long waits leave the core to other
  // threads.
  constexpr std::chrono::microseconds spin(20000), pause(50);
  const auto start = Clock::now();
  for (;;) {
    const cudaError_t status = query();
    if (status != cudaErrorNotReady) return check(status, call);
    static_cast<void>(cudaGetLastError());
    const auto waited = Clock::now() - start;
    check_wait(std::chrono::duration<double>(waited).count());
    if (waited < spin)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(pause);
  }
}

}  // namespace

void set_wait_check(WaitCheck check) {
  auto next = check ? std::make_shared<const WaitCheck>(std::move(check)) : nullptr;
  const std::scoped_lock lock(check_mutex);
  check_in_force = std::move(next);
}

void wait(cudaStream_t stream) {
  count_wait();
  // A blocking wait could not be interrupted when a rank is lost.
  if (const auto check = wait_check())
    return poll([&] { return cudaStreamQuery(stream); }, "cudaStreamQuery", *check);
  FQ_CUDA(cudaStreamSynchronize(stream));
}

void wait(cudaEvent_t event) {
  count_wait();
  if (const auto check = wait_check())
    return poll([&] { return cudaEventQuery(event); }, "cudaEventQuery", *check);
  FQ_CUDA(cudaEventSynchronize(event));
}

}  // namespace fq::cuda
