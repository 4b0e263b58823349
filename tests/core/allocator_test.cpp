#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "fakequant/core/backend/cpu/memory/host_memory.h"
#include "fakequant/core/device.h"
#include "fakequant/core/error.h"
#include "fakequant/core/tensor.h"

namespace fq::allocator_test {
namespace {

TEST(Allocator, ReusesBlocks) {
  { const Tensor warm = Tensor::empty({1 << 20}); }
  const MemoryStats before = memory_stats();
  for (int i = 0; i < 100; ++i) const Tensor again = Tensor::empty({(1 << 20) - i});
  const MemoryStats after = memory_stats();
  EXPECT_EQ(after.system_calls, before.system_calls);
  EXPECT_EQ(after.in_use, before.in_use);
}

TEST(Allocator, TracksThePeakAndReleasesMemory) {
  reset_peak_memory();
  const auto start = memory_stats().in_use;
  { const Tensor large = Tensor::empty({4 << 20}); }
  EXPECT_GE(memory_stats().peak, start + (16 << 20));
  EXPECT_EQ(memory_stats().in_use, start);
  release_cached_memory();
  EXPECT_LT(memory_stats().reserved, start + (16 << 20));
}

TEST(Allocator, CountsBytesOfMetaTensors) {
  const MemoryStats host = memory_stats(), before = memory_stats(Device::meta());
  reset_peak_memory(Device::meta());
  {
    const Tensor large = Tensor::empty({1 << 20}, DType::f32, Device::meta());
    EXPECT_EQ(memory_stats(Device::meta()).in_use, before.in_use + (4 << 20));
  }
  EXPECT_EQ(memory_stats(Device::meta()).in_use, before.in_use);
  EXPECT_EQ(memory_stats(Device::meta()).peak, before.in_use + (4 << 20));
  EXPECT_EQ(memory_stats(Device::meta()).system_calls, 0);
  EXPECT_EQ(memory_stats().in_use, host.in_use);
}

TEST(Allocator, PoisonFillsFloatsWithNaN) {
  cpu::set_poison(true);
  const Tensor x = Tensor::empty({100});
  cpu::set_poison(false);
  for (const float v : x.to_vector<float>()) EXPECT_NE(v, v);
}

TEST(Allocator, RejectsExcessiveSizes) {
  EXPECT_THROW((void)Tensor::empty({std::int64_t{1} << 50}), SystemError);
  EXPECT_THROW((void)Tensor::empty({std::int64_t{1} << 62}), ArgumentError);
  EXPECT_EQ(Tensor::empty({std::int64_t{1} << 50}, DType::f32, Device::meta()).nbytes(),
            std::int64_t{1} << 52);
}

TEST(ThreadsAllocator, BlocksNeverOverlap) {
  const auto work = [](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::pair<Tensor, std::uint8_t>> held;
    for (int i = 0; i < 2000; ++i) {
      auto& [tensor, mark] =
          held.emplace_back(Tensor::empty({1 + static_cast<std::int64_t>(random() % 5000)}, DType::u8),
                            static_cast<std::uint8_t>(random()));
      std::memset(tensor.mutable_raw(), mark, static_cast<std::size_t>(tensor.nbytes()));
      if (held.size() < 8) continue;
      const auto pick = static_cast<std::ptrdiff_t>(random() % held.size());
      const auto& [old, expected] = held[static_cast<std::size_t>(pick)];
      for (const auto byte : old.to_vector<std::uint8_t>()) ASSERT_EQ(byte, expected);
      held.erase(held.begin() + pick);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) threads.emplace_back(work, i);
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace fq::allocator_test
