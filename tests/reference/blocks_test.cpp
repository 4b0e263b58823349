#include <gtest/gtest.h>

#include "fakequant/core/blocks/detail/block_map.h"
#include "fakequant/reference/detail/float_blocks.h"

namespace fq::blocks_test {
namespace {

/// The block of each element by its coordinates.
std::vector<std::int64_t> expected_blocks(const Shape& x, const Shape& block) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(numel(x)));
  for (std::int64_t i = 0; i < numel(x); ++i) {
    std::int64_t rest = i, j = 0, stride = 1;
    for (std::size_t a = x.size(); a-- > 0; rest /= x[a]) {
      j += rest % x[a] / block[a] * stride;
      stride *= (x[a] + block[a] - 1) / block[a];
    }
    out[static_cast<std::size_t>(i)] = j;
  }
  return out;
}

struct ShapeAndBlock {
  Shape x, block;
};

class Blocks : public testing::TestWithParam<ShapeAndBlock> {};

TEST_P(Blocks, VisitEveryElementOnceInItsBlock) {
  const auto& [x, block] = GetParam();
  std::vector<std::int64_t> blocks;
  detail::visit_block_runs(x, block, [&](auto begin, auto end, auto j, auto step) {
    EXPECT_EQ(begin, static_cast<std::int64_t>(blocks.size()));
    for (auto i = begin; i < end; ++i) blocks.push_back(j + (i - begin) * step);
  });
  EXPECT_EQ(blocks, expected_blocks(x, block));
}

TEST_P(Blocks, VisitEveryChunk) {
  const auto& [shape, block] = GetParam();
  Tensor x = Tensor::zeros(shape, DType::bf16), y = Tensor::zeros(shape, DType::i32);
  detail::map_blocks(x, block, y, [](const float* in, float* out, auto count, auto j, auto step) {
    for (std::int64_t k = 0; k < count; ++k) out[k] = in[k] + static_cast<float>(j + k * step);
  });
  const auto expected = expected_blocks(shape, block);
  EXPECT_EQ(y.to(DType::i64).to_vector<std::int64_t>(), expected);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Blocks,
    testing::Values(ShapeAndBlock{{}, {}}, ShapeAndBlock{{7}, {7}}, ShapeAndBlock{{7}, {1}},
                    ShapeAndBlock{{7}, {3}}, ShapeAndBlock{{3, 5, 4}, {3, 5, 4}},
                    ShapeAndBlock{{3, 5, 4}, {1, 5, 4}}, ShapeAndBlock{{3, 5, 4}, {3, 1, 4}},
                    ShapeAndBlock{{3, 5, 4}, {3, 5, 1}}, ShapeAndBlock{{3, 5, 4}, {1, 1, 4}},
                    ShapeAndBlock{{3, 5, 4}, {1, 1, 1}}, ShapeAndBlock{{4, 6}, {2, 3}},
                    ShapeAndBlock{{5, 7}, {2, 3}}, ShapeAndBlock{{2, 1, 6}, {1, 1, 3}},
                    ShapeAndBlock{{3, 5000}, {1, 2500}}, ShapeAndBlock{{2, 3000}, {2, 1}},
                    ShapeAndBlock{{1, 1}, {1, 1}}, ShapeAndBlock{{0, 3}, {1, 3}}));

}  // namespace
}  // namespace fq::blocks_test
