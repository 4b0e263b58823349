#include "fakequant/core/blocks/detail/block_map.h"

#include <random>
#include <set>

#include <gtest/gtest.h>

#include "fakequant/core/blocks/shape.h"

namespace fq::block_map_test {
namespace {

using detail::BlockMap;

struct Case {
  Shape shape, block;
  Layout layout = Layout::row_major;
};

std::string text(const Case& c) {
  return to_string(c.shape) + " in blocks of " + to_string(c.block) +
         (c.layout == Layout::row_major ? "" : ", channels last");
}

/// Small shapes and blocks of all kinds: whole axes, single elements, lengths that divide and that do not.
std::vector<Case> cases() {
  std::vector<Case> out{{{2, 16, 4, 32}, {1, 1, 1, 16}, Layout::channels_last},
                        {{2, 64, 4, 8}, {1, 1, 1, 16}, Layout::channels_last},
                        {{3, 32, 5, 24}, {1, 1, 1, 16}, Layout::channels_last},
                        {{64, 64}, {1, 16}},
                        {{4, 96}, {1, 48}},
                        {{128}, {128}}};
  std::mt19937 random(7);
  const auto pick = [&](std::int64_t most) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most)) + 1;
  };
  for (int k = 0; k < 300; ++k) {
    Case c;
    const std::int64_t rank = pick(4);
    for (std::int64_t a = 0; a < rank; ++a) {
      const std::int64_t size = pick(9);
      c.shape.push_back(size);
      c.block.push_back(random() % 3 == 0 ? 1 : random() % 2 == 0 ? size : pick(size));
    }
    if (rank == 4 && random() % 2 == 0) c.layout = Layout::channels_last;
    out.push_back(c);
  }
  return out;
}

/// The block of each element in memory order, by the definition.
std::vector<std::int64_t> block_indices(const Case& c) {
  const Shape sizes = detail::memory_order(c.shape, c.layout),
              lengths = detail::memory_order(c.block, c.layout);
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < numel(c.shape); ++i) {
    std::int64_t rest = i, block = 0, step = 1;
    for (std::size_t a = sizes.size(); a-- > 0; rest /= sizes[a]) {
      block += rest % sizes[a] / lengths[a] * step;
      step *= (sizes[a] + lengths[a] - 1) / lengths[a];
    }
    out.push_back(block);
  }
  return out;
}

TEST(BlockMapTest, AllLookupsGiveTheSameBlock) {
  for (const auto& c : cases()) {
    SCOPED_TRACE(text(c));
    const auto expected = block_indices(c);
    const auto map = BlockMap::of(c.shape, c.block, c.layout);
    const auto index = map.number_index();
    std::vector<std::int64_t> runs(expected.size(), -1);
    map.visit_runs(0, numel(c.shape),
                   [&](std::int64_t begin, std::int64_t end, std::int64_t j, std::int64_t step) {
                     for (std::int64_t i = begin; i < end; ++i)
                       runs[static_cast<std::size_t>(i)] = j + (i - begin) * step;
                   });
    EXPECT_EQ(runs, expected);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      ASSERT_EQ(map.block_index(at), expected[i]) << i;
      if (index) {
        ASSERT_EQ(index->at(at), expected[i]) << i;
      }
    }
    EXPECT_EQ(map.blocks(), *std::max_element(expected.begin(), expected.end()) + 1);
  }
}

TEST(BlockMapTest, ListsTheElementsOfABlock) {
  for (const auto& c : cases()) {
    SCOPED_TRACE(text(c));
    const auto expected = block_indices(c);
    const auto map = BlockMap::of(c.shape, c.block, c.layout);
    std::set<std::int64_t> seen;
    for (std::int64_t block = 0; block < map.blocks(); ++block)
      for (std::int64_t k = 0; k < map.length(); ++k) {
        const std::int64_t i = map.element(block, k);
        if (i < 0) continue;
        ASSERT_EQ(expected[static_cast<std::size_t>(i)], block);
        ASSERT_TRUE(seen.insert(i).second) << i << " is in two blocks";
      }
    EXPECT_EQ(seen.size(), expected.size());
  }
}

TEST(BlockMapTest, CutsSplitNoBlock) {
  for (const auto& c : cases()) {
    SCOPED_TRACE(text(c));
    const auto blocks = block_indices(c);
    const auto map = BlockMap::of(c.shape, c.block, c.layout);
    for (std::int64_t i = 0; i < numel(c.shape); ++i) {
      const std::int64_t cut = map.cut(i);
      ASSERT_LE(cut, i);
      ASSERT_EQ(map.cut(cut), cut);
      const auto at = blocks.begin() + cut;
      const std::set<std::int64_t> before(blocks.begin(), at), after(at, blocks.end());
      for (const std::int64_t block : before) ASSERT_FALSE(after.contains(block)) << cut;
    }
  }
}

/// Vectors of 16 read one number or 16 that follow each other: where activations of networks are quantized.
TEST(BlockMapTest, VectorsMatchTheBlockNumbersOfTheFields) {
  const auto index = [](const Case& c) { return BlockMap::of(c.shape, c.block, c.layout).number_index(); };
  EXPECT_TRUE(index({{64, 1024}, {1, 16}})->shared());
  EXPECT_TRUE(index({{64, 1024}, {1, 32}})->shared());
  EXPECT_TRUE(index({{8, 64, 28, 28}, {8, 64, 28, 28}, Layout::channels_last})->shared());
  EXPECT_FALSE(index({{8, 16, 32, 32}, {1, 1, 1, 16}, Layout::channels_last})->shared());
  EXPECT_FALSE(index({{8, 64, 8, 8}, {1, 1, 1, 16}, Layout::channels_last}).has_value() &&
               index({{8, 64, 8, 8}, {1, 1, 1, 16}, Layout::channels_last})->shared());
  EXPECT_FALSE(index({{8, 3, 32, 32}, {1, 1, 1, 16}, Layout::channels_last}).has_value());
  EXPECT_FALSE(index({{8, 1000}, {1, 48}}).has_value());
}

}  // namespace
}  // namespace fq::block_map_test
