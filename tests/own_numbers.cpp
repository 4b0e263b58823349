/// Part of every test_<folder>: a test draws the same random numbers as in a process of its own.

#include <gtest/gtest.h>

#include "fakequant/core/random.h"

namespace fq::own_numbers {
namespace {

class SeedTestRandomNumbers : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { random_stream() = {}; }
};

[[maybe_unused]] const bool added =
    (testing::UnitTest::GetInstance()->listeners().Append(new SeedTestRandomNumbers), true);

}  // namespace
}  // namespace fq::own_numbers
