#include <gtest/gtest.h>

#include "cuda_device.h"
#include "fakequant/core/accumulator.h"
#include "fakequant/core/detail/moves.h"
#include "fakequant/core/error.h"
#include "fakequant/core/quantized.h"

namespace fq::cuda_join_test {
namespace {

class CudaJoin : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
};

/// Bytes that differ; the bits after the last element are 0.
Tensor bytes(const Shape& shape, DType dtype, Layout layout, int seed) {
  Tensor out = Tensor::empty(shape, dtype, Device::cpu(), layout);
  auto* v = static_cast<unsigned char*>(out.mutable_raw());
  for (std::int64_t i = 0; i < out.nbytes(); ++i) v[i] = static_cast<unsigned char>(i * 73 + i / 251 + seed);
  const std::int64_t left = out.numel() * bit_width(dtype) % 8;
  if (left != 0) v[out.nbytes() - 1] &= static_cast<unsigned char>((1 << left) - 1);
  return out;
}

Shape with_size(Shape shape, int axis, std::int64_t size) {
  shape[static_cast<std::size_t>(axis)] = size;
  return shape;
}

constexpr DType kTypes[] = {DType::u1, DType::i8, DType::f16, DType::f32, DType::f64};
const Shape kShapes[] = {{2, 3, 5, 7}, {4, 16, 2, 8}, {1, 5, 1, 1}, {40, 3, 11, 3}};

TEST_F(CudaJoin, ConcatenatesParts) {
  for (const Shape& shape : kShapes)
    for (const DType dtype : kTypes)
      for (const Layout layout : {Layout::row_major, Layout::channels_last})
        for (int axis = 0; axis < 4; ++axis) {
          std::vector<Tensor> parts, gpu;
          for (const std::int64_t size : {3, 0, 16, 1, 8}) {
            parts.push_back(bytes(with_size(shape, axis, size), dtype, layout, static_cast<int>(size)));
            gpu.push_back(parts.back().to(Device::cuda()));
          }
          const Tensor joined = detail::join(gpu, axis);
          EXPECT_EQ(joined.device(), Device::cuda());
          EXPECT_TRUE(bitwise_equal(joined, detail::join(parts, axis)))
              << to_string(shape) << " axis " << axis << ' ' << name(dtype) << ' ' << name(layout);
        }
}

TEST_F(CudaJoin, CopiesAFewPartsInOneLaunch) {
  const auto part = [](std::int64_t rows) {
    return Tensor::full({rows, 3}, 1.0, DType::f32, Device::cuda());
  };
  const std::vector<Tensor> parts{part(3), part(1), part(8)};
  const auto before = test::launches_so_far();
  (void)detail::join(parts, 0);
  EXPECT_EQ(test::launches_so_far() - before, 1);
}

/// Rows that follow each other in one storage are joined without a copy.
TEST_F(CudaJoin, AdjacentRowsShareTheStorage) {
  for (const Device device : {Device::cpu(), Device::cuda()})
    for (const DType dtype : kTypes) {
      const Tensor x = bytes({10, 16}, dtype, Layout::row_major, 1).to(device);
      const auto parts = detail::split_rows(x, {3, 0, 2, 4});
      const Tensor joined = detail::adjacent_rows(parts);
      ASSERT_TRUE(joined.defined());
      EXPECT_EQ(joined.raw(), x.raw());
      EXPECT_TRUE(bitwise_equal(joined, x.slice(0, 9)));
      const auto is_joined = [](const std::vector<Tensor>& all) {
        return detail::adjacent_rows(all).defined();
      };
      EXPECT_FALSE(is_joined({parts[2], parts[0]}));
      EXPECT_FALSE(is_joined({parts[0], parts[0]}));
      EXPECT_FALSE(is_joined({parts[0], parts[2].clone()}));
      EXPECT_FALSE(is_joined({parts[0], parts[2].reshape({4, 8})}));
      EXPECT_FALSE(is_joined({parts[0], Tensor()}));
      EXPECT_FALSE(is_joined({Tensor(), Tensor()}));
    }
}

TEST_F(CudaJoin, SlicesRanges) {
  for (const Shape& shape : kShapes)
    for (const DType dtype : kTypes)
      for (const Layout layout : {Layout::row_major, Layout::channels_last})
        for (int axis = 0; axis < 4; ++axis) {
          const Tensor x = bytes(with_size(shape, axis, 9), dtype, layout, 1), gpu = x.to(Device::cuda());
          for (const auto& [begin, end] : {std::pair{0, 9}, {2, 7}, {4, 4}, {8, 9}})
            EXPECT_TRUE(bitwise_equal(detail::cut(gpu, axis, begin, end), detail::cut(x, axis, begin, end)))
                << to_string(shape) << " axis " << axis << ' ' << name(dtype);
        }
}

TEST_F(CudaJoin, RejectsPartsOnTwoDevices) {
  const Tensor x = Tensor::zeros({2, 3});
  EXPECT_THROW((void)detail::join({x, x.to(Device::cuda())}, 0), ArgumentError);
}

TEST_F(CudaJoin, ConcatenatesAndReshapesSums) {
  const auto sums = [](std::int64_t channels, int seed) {
    Tensor out = Tensor::empty({2, channels, 3, 5}, DType::i32);
    auto* v = out.mutable_data<std::int32_t>();
    for (std::int64_t i = 0; i < out.numel(); ++i)
      v[i] = static_cast<std::int32_t>((i + seed) * 7919 % 20011) - 10005;
    return out.to(Layout::channels_last);
  };
  const auto part = [&](std::int64_t channels, Device device, bool relu) {
    return Accumulator{
        ProductSums{sums(channels, 5).to(device), {}, Tensor::full({}, 1.3e-4, DType::f32, device), 1}, relu};
  };
  const auto whole = [&](Device device) {
    return Accumulator{AccumulatorConcat{{part(3, device, true), part(6, device, false)}, 1}, true};
  };
  const auto grid = Grid::from_amax(IntFormat{}, {}, Tensor::scalar(1.1), "q");
  const auto flat = [&](Device device) {
    return Accumulator{AccumulatorMove{{whole(device)}, ReshapeMove{{2, 9 * 15}}}, false};
  };
  for (const bool reshaped : {false, true}) {
    const Accumulator x = reshaped ? flat(Device::cuda()) : whole(Device::cuda());
    const Accumulator host = reshaped ? flat(Device::cpu()) : whole(Device::cpu());
    Tensor mask, expected_mask;
    EXPECT_TRUE(bitwise_equal(to_float(x, &mask), to_float(host, &expected_mask)));
    EXPECT_EQ(mask.defined(), expected_mask.defined());
    EXPECT_TRUE(!mask.defined() || bitwise_equal(mask, expected_mask));
    const auto codes = requantize(x, grid.to(Device::cuda())), expected = requantize(host, grid);
    EXPECT_TRUE(bitwise_equal(codes.codes, expected.codes));
    EXPECT_TRUE(bitwise_equal(codes.mask, expected.mask));
  }
}

TEST_F(CudaJoin, ConcatenatesPackedCodes) {
  for (const DType dtype : {DType::i2, DType::u2, DType::i4, DType::u4, DType::f4_e2m1})
    for (const Shape& shape : {Shape{2, 3, 5, 7}, Shape{1}, Shape{4096, 3}, Shape{0}}) {
      const Tensor codes = bytes(shape, DType::u8, Layout::row_major, 3);
      const Tensor packed = pack_codes(codes.to(Device::cuda()), dtype);
      EXPECT_TRUE(bitwise_equal(packed, pack_codes(codes, dtype))) << name(dtype);
      EXPECT_TRUE(bitwise_equal(unpack_codes(packed), unpack_codes(packed.to(Device::cpu())))) << name(dtype);
    }
}

}  // namespace
}  // namespace fq::cuda_join_test
