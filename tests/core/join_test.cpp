#include <random>

#include <gtest/gtest.h>

#include "fakequant/core/detail/moves.h"
#include "fakequant/core/quantized.h"

namespace fq::join_test {
namespace {

/// Random bits, those after the last one too.
Tensor random_mask(const Shape& shape, Layout layout, unsigned seed) {
  Tensor out = Tensor::empty(shape, DType::u1, Device::cpu(), layout);
  std::mt19937 random(seed);
  auto* bytes = static_cast<std::uint8_t*>(out.mutable_raw());
  for (std::int64_t i = 0; i < out.nbytes(); ++i) bytes[i] = static_cast<std::uint8_t>(random());
  return out;
}

/// The bits as floats.
Tensor bits(const Tensor& mask) {
  return apply_mask(Tensor::full(mask.shape(), 1.0).to(mask.layout()), mask);
}

const Shape shapes[] = {{2, 3, 5, 7},  {2, 8, 4, 4},  {1, 1, 1, 1},
                        {3, 16, 3, 3}, {2, 24, 8, 7}, {9, 67, 9, 13}};

TEST(Join, MovesMaskBitsWithTheElements) {
  for (const Layout layout : {Layout::row_major, Layout::channels_last})
    for (const Shape& shape : shapes)
      for (const int axis : {0, 1, 2, 3}) {
        Shape wider = shape;
        wider[static_cast<std::size_t>(axis)] += 3;
        const auto a = random_mask(shape, layout, 1), b = random_mask(wider, layout, 2);
        const Tensor joined = detail::join({a, b, a}, axis);
        EXPECT_EQ(joined.layout(), layout);
        EXPECT_TRUE(bitwise_equal(bits(joined), detail::join({bits(a), bits(b), bits(a)}, axis)))
            << to_string(shape) << " along " << axis;
        const auto unused = static_cast<int>(joined.nbytes() * 8 - joined.numel());
        const auto* bytes = static_cast<const std::uint8_t*>(joined.raw());
        EXPECT_EQ(bytes[joined.nbytes() - 1] >> (8 - unused), 0);
      }
}

TEST(Cut, MovesMaskBitsWithTheElements) {
  for (const Layout layout : {Layout::row_major, Layout::channels_last})
    for (const Shape& shape : shapes)
      for (const int axis : {0, 1, 2, 3}) {
        const auto x = random_mask(shape, layout, 5);
        const std::int64_t size = shape[static_cast<std::size_t>(axis)];
        for (const auto& [begin, end] : {std::pair{size / 3, size}, {std::int64_t{0}, (size + 1) / 2}}) {
          const Tensor cut = detail::cut(x, axis, begin, end);
          EXPECT_TRUE(bitwise_equal(bits(cut), detail::cut(bits(x), axis, begin, end)))
              << to_string(shape) << " along " << axis;
          const auto* bytes = static_cast<const std::uint8_t*>(cut.raw());
          const auto unused = cut.nbytes() * 8 - cut.numel();
          EXPECT_TRUE(cut.numel() == 0 || bytes[cut.nbytes() - 1] >> (8 - unused) == 0);
        }
      }
}

TEST(Join, MovesElementsOfEverySize) {
  for (const Layout layout : {Layout::row_major, Layout::channels_last})
    for (const DType dtype : {DType::i8, DType::i16, DType::f32, DType::f64}) {
      const Tensor x = bits(random_mask({2, 30, 40, 50}, layout, 3)).to(dtype);
      const Tensor joined = detail::join({x, x}, 1);
      EXPECT_TRUE(bitwise_equal(detail::cut(joined, 1, 0, 30), x));
      EXPECT_TRUE(bitwise_equal(detail::cut(joined, 1, 30, 60), x));
    }
}

TEST(Layouts, MoveMaskBitsWithTheElements) {
  for (const Shape& shape : shapes)
    for (const Layout from : {Layout::row_major, Layout::channels_last}) {
      const Layout to = from == Layout::row_major ? Layout::channels_last : Layout::row_major;
      const Tensor mask = random_mask(shape, from, 4), moved = mask.to(to);
      EXPECT_TRUE(bitwise_equal(bits(moved), bits(mask))) << to_string(shape);
    }
}

}  // namespace
}  // namespace fq::join_test
