// Allocations that the simulated device rejects.

#include <cstdlib>

#include <gtest/gtest.h>

#include "simulated/device_memory.h"

namespace fq::device_memory_test {
namespace {

using simulated::DeviceMemory;

char read(const void* block, std::int64_t at) { return static_cast<const volatile char*>(block)[at]; }

TEST(SimulatedMemoryDeathTest, IsClosedToTheHost) {
  DeviceMemory memory;
  void* block = memory.take(100, nullptr);
  EXPECT_DEATH((void)read(block, 0), "");
  const DeviceMemory::Open open(memory);
  memory.poison(block);
  EXPECT_EQ(read(block, 99), '\xff');
}

TEST(SimulatedMemoryDeathTest, HasFencesOnRequest) {
  ::setenv("FAKEQUANT_SIMULATED_FENCES", "1", 1);
  DeviceMemory memory;
  ::unsetenv("FAKEQUANT_SIMULATED_FENCES");
  for (const std::size_t size : {16, 100, 4096, 5000}) {
    void* block = memory.take(size, nullptr);
    memory.poison(block);
    const auto end = static_cast<std::int64_t>((size + 15) / 16 * 16);
    EXPECT_EQ(read(block, end - 1), '\xff') << size;
    EXPECT_DEATH((void)read(block, end), "") << size;
    memory.drop(block, memory.give(block));
    EXPECT_DEATH((void)read(block, 0), "") << size;
    EXPECT_EQ(memory.give(block), 0u);
  }
}

}  // namespace
}  // namespace fq::device_memory_test
