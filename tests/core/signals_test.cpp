#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <thread>

#include <gtest/gtest.h>
#include <pthread.h>

#include "core/products.h"
#include "fakequant/core/backend/cpu/engine/engine.h"
#include "fakequant/core/detail/threads.h"

namespace fq::signals_test {
namespace {

std::atomic<int> handled{0}, astray{0};
std::uintptr_t stack_begin = 0, stack_end = 0;

void handle_signal(int) {
  const int here = 0;
  const auto at = reinterpret_cast<std::uintptr_t>(&here);
  ++handled;
  if (at < stack_begin || at >= stack_end) ++astray;
}

void find_stack() {
  pthread_attr_t attributes;
  void* begin = nullptr;
  std::size_t bytes = 0;
  ASSERT_EQ(pthread_getattr_np(pthread_self(), &attributes), 0);
  ASSERT_EQ(pthread_attr_getstack(&attributes, &begin, &bytes), 0);
  pthread_attr_destroy(&attributes);
  stack_begin = reinterpret_cast<std::uintptr_t>(begin);
  stack_end = stack_begin + bytes;
}

void multiply_floats() {
  for (const auto& [m, n, k] : {std::array{64, 64, 64}, {64, 32, 3000}, {300, 200, 5000}})
    for (const bool ta : {false, true})
      for (const bool tb : {false, true}) {
        const Tensor a = test::uniform({m * k}, 1), b = test::uniform({k * n}, 2);
        Tensor c = Tensor::empty({m, n});
        cpu::gemm({a.raw(), DType::f32, m, k, ta}, {b.raw(), DType::f32, k, n, tb}, c.mutable_data<float>());
      }
}

/// oneDNN takes the stack register for its products of floats: a handler that ran then wrote to the heap.
TEST(Signals, HandlersRunOnTheStackDuringProducts) {
  find_stack();
  const int before = detail::threads();
  detail::set_threads(1);
  struct sigaction action {
  }, former{};
  action.sa_handler = handle_signal;
  action.sa_flags = SA_RESTART;
  ASSERT_EQ(sigaction(SIGUSR1, &action, &former), 0);
  std::atomic<bool> stop{false};
  std::thread sender([&stop, to = pthread_self()] {
    while (!stop) {
      pthread_kill(to, SIGUSR1);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  for (int i = 0; i < 200 && (handled < 300 || i < 3); ++i) multiply_floats();
  stop = true;
  sender.join();
  sigaction(SIGUSR1, &former, nullptr);
  detail::set_threads(before);
  EXPECT_GT(handled, 0);
  EXPECT_EQ(astray, 0);
}

}  // namespace
}  // namespace fq::signals_test
