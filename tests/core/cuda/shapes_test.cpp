// Assignment of elements to threads by arithmetic alone, also for sizes that no test can allocate.

#include <gtest/gtest.h>

#include "fakequant/core/backend/cuda/loops/divisor.h"
#include "fakequant/core/backend/cuda/loops/launch_shape.h"
#include "fakequant/core/backend/cuda/loops/reduction_shape.h"
#include "fakequant/core/backend/cuda/loops/row_shapes.h"
#include "fakequant/core/blocks/detail/block_map.h"
#include "fakequant/core/blocks/detail/pool_windows.h"

namespace fq::cuda_shapes_test {
namespace {

using cuda::block_threads;
using cuda::ChannelView;
using cuda::ReductionShape;
using cuda::Thread;

constexpr std::int64_t kSizes[] = {
    1, 7, 255, 256, 257, 4097, (1LL << 31) - 1, 1LL << 31, (1LL << 32) + 5, (1LL << 40) + 3};

std::int64_t count_items(Thread t, std::int64_t items) {
  return t.first() >= items ? 0 : (items - t.first() - 1) / t.step() + 1;
}

TEST(LaunchShape, AssignsOneThreadToEveryItem) {
  for (const std::int64_t items : kSizes)
    for (const std::int64_t resident : {1, 3, 264, 2112}) {
      const std::int64_t blocks = cuda::grid_blocks(items, resident);
      ASSERT_GE(blocks, 1);
      ASSERT_LE(blocks, resident);
      std::int64_t sum = 0;
      for (std::int64_t b = 0; b < blocks; ++b)
        for (int t = 0; t < block_threads; ++t) sum += count_items({b, blocks, t}, items);
      EXPECT_EQ(sum, items) << resident;
    }
}

TEST(LaunchShape, LaunchesNoIdleAndNoMissingBlock) {
  EXPECT_EQ(cuda::grid_blocks(0, 100), 1);
  EXPECT_EQ(cuda::grid_blocks(block_threads, 100), 1);
  EXPECT_EQ(cuda::grid_blocks(block_threads + 1, 100), 2);
  EXPECT_EQ(cuda::grid_blocks(std::int64_t{1} << 60, std::int64_t{1} << 40), cuda::most_blocks);
}

TEST(Quotient, MatchesIntegerDivision) {
  for (const std::int64_t a : {std::int64_t{0}, std::int64_t{5}, (std::int64_t{1} << 32) - 1,
                               std::int64_t{1} << 32, (std::int64_t{1} << 45) + 17})
    for (const std::int64_t b :
         {std::int64_t{1}, std::int64_t{3}, (std::int64_t{1} << 31) + 1, std::int64_t{1} << 33})
      EXPECT_EQ(cuda::quotient(a, b), a / b) << a << '/' << b;
}

TEST(Divisor, MatchesIntegerDivision) {
  for (std::int64_t d = 1; d < 1 << 16; d += d < 300 ? 1 : 97)
    for (const std::int64_t top :
         {d, 5 * d, (std::int64_t{1} << 31) / d * d, (std::int64_t{1} << 40) / d * d})
      for (const std::int64_t n : {top - 1, top, top + d - 1})
        ASSERT_EQ(cuda::Divisor(d).quotient(n), n / d) << n << '/' << d;
  for (const std::int64_t d : kSizes)
    for (const std::int64_t n : kSizes)
      for (const std::int64_t step : {-1, 0, 1}) {
        std::int64_t rest = n + step;
        EXPECT_EQ(cuda::Divisor(d).take_remainder(rest), (n + step) % d) << n + step << '/' << d;
        EXPECT_EQ(rest, (n + step) / d) << n + step << '/' << d;
      }
}

TEST(ChannelView, ElementsAndChannelsAgree) {
  for (const ChannelView view : {ChannelView{5, 1, 5 * 1001}, ChannelView{3, 7, 3 * 7 * 11},
                                 ChannelView{1, 1, 99}, ChannelView{64, 1 << 20, 64LL * (1 << 20) * 129}}) {
    const std::int64_t last = view.length() - 1;
    for (const std::int64_t c : {std::int64_t{0}, view.channels - 1})
      for (const std::int64_t k : {std::int64_t{0}, last / 2, last}) {
        const std::int64_t i = view.element(c, k);
        ASSERT_GE(i, 0);
        ASSERT_LT(i, view.count);
        EXPECT_EQ(view.channel(i), c);
      }
    EXPECT_EQ(view.element(view.channels - 1, last), view.count - 1);
  }
}

TEST(ReductionShape, PartsCoverEveryElementOnce) {
  for (const std::int64_t channels : {1, 2, 31, 32, 33, 4096})
    for (const std::int64_t length :
         {std::int64_t{1}, std::int64_t{255}, std::int64_t{70000}, std::int64_t{1} << 33})
      for (const std::int64_t inner : {std::int64_t{1}, length}) {
        const auto s = ReductionShape::of({channels, inner, channels * length});
        EXPECT_EQ(s.width * s.lanes, block_threads);
        EXPECT_GE(s.tiles * s.width, channels);
        EXPECT_LT((s.tiles - 1) * s.width, channels);
        EXPECT_GE(s.parts * s.part_length, length);
        EXPECT_LT((s.parts - 1) * s.part_length, length);
        EXPECT_LE(s.parts, 1024);
      }
}

TEST(ReductionShape, HandlesEmptyInput) {
  for (const std::int64_t channels : {1, 16, 100, 3072})
    for (const std::int64_t parts : {2, 9, 33, 300, 1024}) {
      const auto s = ReductionShape::join_shape({channels, parts, channels * parts});
      EXPECT_EQ(s.parts, 1);
      EXPECT_EQ(s.part_length, parts);
      EXPECT_EQ(s.width * s.lanes, block_threads);
      EXPECT_TRUE(s.lanes == block_threads || s.lanes >= parts || s.lanes == 8);
      EXPECT_GE(s.tiles * s.width, channels);
      EXPECT_LT((s.tiles - 1) * s.width, channels);
      EXPECT_LE(s.warp_lanes(), s.lanes);
    }
  const auto s = ReductionShape::of({4, 1, 0});
  EXPECT_EQ(s.parts, 1);
  EXPECT_EQ(s.part_length, 0);
  EXPECT_EQ(ReductionShape::of({0, 1, 0}).tiles, 0);
}

TEST(AxisBlocks, HandlesChannelsOfLargeTensors) {
  using detail::AxisBlocks;
  const Shape shape{1 << 20, 3, 1 << 7, 1 << 6};  // 3 * 2^33 elements
  const auto rows = AxisBlocks::of(shape, Layout::row_major, 1);
  const auto last = AxisBlocks::of(shape, Layout::channels_last, 1);
  for (const std::int64_t i : {std::int64_t{0}, (std::int64_t{1} << 31) + 77, numel(shape) - 1}) {
    EXPECT_EQ(rows.place(i).index, i / (1 << 13) % 3);
    EXPECT_EQ(last.place(i).index, i % 3);
    EXPECT_EQ(AxisBlocks::of(shape, Layout::row_major, -1).place(i).index, 0);
    EXPECT_EQ(AxisBlocks::repeating(numel(shape), 48).place(i).index, i % 48);
  }
}

TEST(BlockMap, MapsElementsToTheirBlocks) {
  using detail::BlockMap;
  for (const auto& [shape, block] :
       {std::pair<Shape, Shape>{{5, 7}, {2, 3}}, {{3, 5, 4}, {1, 5, 3}}, {{6}, {4}}}) {
    const auto view = BlockMap::of(shape, block);
    std::vector<std::int64_t> seen(static_cast<std::size_t>(numel(shape)), -1);
    for (std::int64_t b = 0; b <= view.block_index(numel(shape) - 1); ++b)
      for (std::int64_t k = 0; k < view.length(); ++k)
        if (const std::int64_t i = view.element(b, k); i >= 0) seen.at(static_cast<std::size_t>(i)) = b;
    for (std::int64_t i = 0; i < numel(shape); ++i)
      EXPECT_EQ(seen[static_cast<std::size_t>(i)], view.block_index(i));
  }
}

TEST(BlockMap, HandlesLargeTensors) {
  const Shape shape{1 << 20, 3 << 13};  // 3 * 2^33 elements
  const auto groups = detail::BlockMap::of(shape, {1, 16}), tiles = detail::BlockMap::of(shape, {128, 128});
  for (const std::int64_t i : {std::int64_t{0}, (std::int64_t{1} << 32) + 77, numel(shape) - 1}) {
    const std::int64_t row = i / shape[1], column = i % shape[1];
    EXPECT_EQ(groups.block_index(i), i / 16);
    EXPECT_EQ(tiles.block_index(i), row / 128 * (shape[1] / 128) + column / 128);
    EXPECT_EQ(groups.element(i / 16, i % 16), i);
    EXPECT_EQ(tiles.element(tiles.block_index(i), row % 128 * 128 + column % 128), i);
  }
}

TEST(RowBlocks, AssignsOneLaneToEveryRowGroup) {
  for (const std::int64_t length : {1, 8, 9, 129, 2048, 2049, 50257})
    for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{255}, (std::int64_t{1} << 33) + 1}) {
      const auto shape = cuda::RowBlocks::of(rows, length);
      EXPECT_EQ(block_threads % shape.lanes, 0);
      EXPECT_TRUE(shape.lanes == block_threads || shape.lanes * 8 >= length) << length;
      EXPECT_TRUE(shape.lanes == 1 || shape.lanes / 2 * 8 < length) << length;
      const auto last = shape.place({shape.blocks() - 1, shape.blocks(), 0});
      EXPECT_LT(last.row, rows);
      EXPECT_GE(last.row + shape.rows_of_block(), rows);
      const auto place = shape.place({1, 2, block_threads - 1});
      EXPECT_EQ(place.row, 2 * shape.rows_of_block() - 1);
      EXPECT_EQ(place.first + place.lane, block_threads - 1);
      EXPECT_EQ(place.lane, shape.lanes - 1);
    }
}

TEST(RowGroups, PartsCoverEveryColumnOnce) {
  for (const std::int64_t width : {1, 7, 8, 9, 64, 67})
    for (const int most : {1, 8}) {
      const cuda::RowGroups groups(width, most);
      for (const std::int64_t row : {std::int64_t{0}, (std::int64_t{1} << 32) + 3}) {
        std::int64_t next = 0;
        for (std::int64_t g = 0; g < groups.groups; ++g) {
          const auto part = groups.part(row * groups.groups + g);
          EXPECT_EQ(part.row, row);
          EXPECT_EQ(part.column, next);
          EXPECT_LE(part.count, most);
          next += part.count;
        }
        EXPECT_EQ(next, width);
      }
    }
}

TEST(Covering, AJumpMatchesSmallSteps) {
  for (const std::int64_t kernel : {1, 2, 3, 7})
    for (const std::int64_t stride : {1, 2, 5})
      for (const std::int64_t windows : {1, 4}) {
        detail::Covering steps{kernel, stride, windows}, jump = steps;
        for (std::int64_t at = 0; at < kernel + stride * windows + 3; ++at) {
          steps.advance(at);
          jump.seek(at);
          if (steps.begin == steps.end) {
            EXPECT_GE(jump.begin, jump.end);
            continue;
          }
          EXPECT_EQ(jump.begin, steps.begin) << at;
          EXPECT_EQ(jump.end, steps.end) << at;
        }
      }
}

}  // namespace
}  // namespace fq::cuda_shapes_test
