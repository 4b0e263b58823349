#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "fakequant/core/blocks/detail/block_map.h"
#include "fakequant/core/quantized.h"
#include "fakequant/reference/modelopt.h"
#include "fakequant/reference/onnx.h"
#include "fakequant/reference/tensorrt.h"
#include "fakequant/reference/torch_ref.h"
#include "fakequant/reference/torchao.h"
#include "sanitized.h"

namespace fq::large_tensor_test {
namespace {

constexpr std::int64_t k2To31 = std::int64_t{1} << 31;

std::int64_t available_kilobytes() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  for (std::int64_t value = 0; file >> name;)
    if (name == "MemAvailable:" && file >> value) return value;
  return 0;
}

TEST(LargeTensor, BlocksAreCountedIn64Bits) {
  const Shape x{3, k2To31 / 2 + 7, 5};
  std::int64_t next = 0, last = 0, runs = 0;
  detail::visit_block_runs(x, {1, k2To31 / 8, 5}, [&](auto begin, auto end, auto j, auto) {
    EXPECT_EQ(begin, next);
    EXPECT_EQ(j, runs++);
    next = end;
    last = j;
  });
  EXPECT_EQ(next, numel(x));
  EXPECT_EQ(last, 3 * 5 - 1);
}

TEST(LargeTensor, ShapesFlowOnMeta) {
  const Tensor x = Tensor::empty({k2To31, 4}, DType::f32, Device::meta());
  const std::int64_t count = x.numel();
  EXPECT_EQ(fake_tensor_quant(x, 1.0).numel(), count);
  EXPECT_EQ(scaled_e4m3(x, 1.0).nbytes(), 4 * count);
  EXPECT_EQ(modelopt::dynamic_block_quantize(x, {2, 1}, {8, 0}, 16).numel(), count);
  EXPECT_EQ(torch_ref::fake_quantize_per_tensor_affine(x, 1, 0, -128, 127).numel(), count);
  EXPECT_EQ(torch_ref::cast_float8(x, DType::f8_e4m3).nbytes(), count);
  EXPECT_EQ(onnx::quantize_linear(x, 1, {}, 1, 0, true, DType::i4).nbytes(), count / 2);
  EXPECT_EQ(
      torchao::quantize_affine(x, x.shape(), Tensor::scalar(1), Tensor::full({}, 0, DType::i32), {}).numel(),
      count);
}

/// The input is mapped and only its end touched; the codes take 2 GiB.
TEST(LargeTensor, QuantizesPast2To31Elements) {
  if (test::sanitized() || available_kilobytes() < std::int64_t{6} << 20)
    GTEST_SKIP() << "needs 6 GiB, and no sanitizer";
  Tensor x = Tensor::empty({k2To31 + 4}, DType::f16);
  auto* end = x.mutable_data<float16>() + k2To31;
  for (int k = 0; k < 4; ++k) end[k] = float16(static_cast<float>(3 * k));
  const Tensor codes = tripy::quantize(x, 2, DType::i8);
  const auto* last = codes.data<std::int8_t>() + k2To31;
  EXPECT_EQ((std::vector<int>(last, last + 4)), (std::vector<int>{0, 2, 3, 4}));
}

}  // namespace
}  // namespace fq::large_tensor_test
