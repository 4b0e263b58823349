#include <cmath>
#include <functional>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cuda_device.h"
#include "fakequant/core/error.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/reference/modelopt.h"
#include "fakequant/reference/pytorch_quantization.h"
#include "same_numbers.h"
#include "vector_patterns.h"

namespace fq::cuda_fake_quant_test {
namespace {

class CudaFakeQuant : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
};

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};

using Function = std::function<Variable(const Variable&)>;

/// Expects values, dtype, layout and gradient of the CPU.
void compare(const Tensor& x, const Function& f, const std::string& what) {
  const Variable host(x, true), gpu(x.to(Device::cuda()), true);
  const Variable expected = f(host), got = f(gpu);
  ASSERT_EQ(got.device(), Device::cuda()) << what;
  ASSERT_EQ(got.layout(), expected.layout()) << what;
  ASSERT_TRUE(same_numbers(got.tensor(), expected.tensor())) << what << " of " << x.describe();
  Tensor dy = Tensor::empty(expected.shape(), DType::f32);
  auto* d = dy.mutable_data<float>();
  for (std::int64_t i = 0; i < dy.numel(); ++i) d[i] = static_cast<float>(i % 37) - 18.0f;
  const DType own = expected.tensor().dtype(), dtype = is_floating(own) ? own : DType::f32;
  expected.backward(dy.to(dtype));
  got.backward(dy.to(dtype).to(Device::cuda()));
  ASSERT_EQ(gpu.grad().device(), Device::cuda()) << what;
  ASSERT_TRUE(same_numbers(gpu.grad(), host.grad())) << what << ", gradient of " << x.describe();
}

/// Numbers of many magnitudes, some of them zeros, infinities and NaN.
Tensor numbers(const Shape& shape, DType dtype = DType::f32, bool specials = true) {
  Tensor out = Tensor::empty(shape);
  auto* v = out.mutable_data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    v[i] = std::ldexp(std::sin(static_cast<float>(i) * 0.37f), static_cast<int>(i % 23) - 12);
    if (i % 61 == 7) v[i] = -0.0f;
    if (specials && i % 97 == 3) v[i] = kNaN;
    if (specials && i % 149 == 5) v[i] = i % 2 == 0 ? kInf : -kInf;
  }
  return out.to(dtype);
}

Tensor ranges(const Shape& shape) {
  Tensor out = Tensor::empty(shape);
  auto* v = out.mutable_data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i) v[i] = 0.1f + 0.7f * static_cast<float>(i % 11);
  for (std::int64_t i = 3; i < out.numel(); i += 17) v[i] = i % 2 == 0 ? 0.0f : 0x1p-25f;
  return out;
}

TEST_F(CudaFakeQuant, MatchesTheCpuForEveryIntegerFormat) {
  const auto all = patterns();
  const Tensor every = Tensor::from(all, {static_cast<std::int64_t>(all.size())});
  for (const DType dtype : kTypes)
    compare(
        every.to(dtype), [](const Variable& x) { return fake_tensor_quant(x, 1.7); }, "int8");
  const Tensor x = numbers({7, 331}), positive = Tensor::from(std::vector<float>(2317, 0.37f), {7, 331});
  for (int bits = 2; bits <= 16; ++bits)
    for (const bool narrow : {false, true})
      for (const bool is_unsigned : {false, true})
        compare(
            is_unsigned ? positive : x,
            [=](const Variable& v) { return fake_tensor_quant(v, 1.3, {}, bits, is_unsigned, narrow); },
            fmt::format("{} bits", bits));
}

TEST_F(CudaFakeQuant, AcceptsRangesOfEveryKind) {
  for (const double amax : {0.0, 0x1p-24, 0x1p-23, 1e-30, 3e38, double{kInf}, double{kNaN}, 1e30})
    for (const DType dtype : kTypes) {
      compare(
          numbers({2, 7013}, dtype), [=](const Variable& x) { return fake_tensor_quant(x, amax); },
          fmt::format("int8 with amax {}", amax));
      compare(
          numbers({2, 7013}, dtype), [=](const Variable& x) { return scaled_e4m3(x, amax); },
          fmt::format("e4m3 with amax {}", amax));
    }
  Tensor some = ranges({7, 1});
  some.mutable_data<float>()[2] = kNaN;
  compare(
      numbers({7, 100}), [=](const Variable& x) { return fake_tensor_quant(x, some); }, "a NaN in amax");
}

TEST_F(CudaFakeQuant, BroadcastsRanges) {
  const Shape shape{5, 6, 7, 3};
  for (const Shape& range : {Shape{}, Shape{1}, Shape{3}, Shape{7, 1}, Shape{6, 1, 1}, Shape{1, 6, 1, 1},
                             Shape{5, 1, 1, 1}, Shape{6, 1, 3}, Shape{5, 1, 7, 1}, shape})
    for (const DType dtype : kTypes)
      for (const Layout layout : {Layout::row_major, Layout::channels_last}) {
        const Tensor x = numbers(shape, dtype).to(layout), amax = ranges(range);
        const std::string what = fmt::format("ranges of {} {}", to_string(range), name(layout));
        compare(
            x, [=](const Variable& v) { return fake_tensor_quant(v, amax, {}, 4); }, what);
        compare(
            x, [=](const Variable& v) { return scaled_e4m3(v, amax); }, what);
        compare(
            x, [=](const Variable& v) { return scaled_e4m3(v, amax.to(Device::cuda()), {}, 4, 3, true); },
            what);
      }
  for (const Shape& whole :
       {Shape{1, 8}, Shape{37, 48}, Shape{5, 3, 16}, Shape{9001, 24}})  // whole groups of columns
    for (const DType dtype : kTypes) {
      const Tensor x = numbers(whole, dtype), amax = ranges({whole.back()});
      compare(
          x, [=](const Variable& v) { return fake_tensor_quant(v, amax); }, "columns");
      compare(
          x, [=](const Variable& v) { return scaled_e4m3(v, amax); }, "columns of E4M3");
    }
  for (const Shape& wide :
       {Shape{3, 4099}, Shape{40, 3, 100}, Shape{9000, 2}})  // more than one sweep of a small grid
    for (const Shape& range : {Shape{wide[0], 1}, Shape{wide.back()}})
      if (wide.size() == 2)
        compare(
            numbers(wide), [amax = ranges(range)](const Variable& v) { return fake_tensor_quant(v, amax); },
            "wide");
}

TEST_F(CudaFakeQuant, HandlesSizesSlicesAndEmptyTensors) {
  for (const std::int64_t count : {0, 1, 7, 8, 9, 6143, 6144, 6145, 100003})
    for (const DType dtype : kTypes)
      compare(
          numbers({count}, dtype), [](const Variable& x) { return fake_tensor_quant(x, 2.0); }, "sizes");
  for (const DType dtype : kTypes) {
    const Tensor x = numbers({5, 1001}, dtype), gpu = x.to(Device::cuda());
    const Tensor got = fake_tensor_quant(gpu.slice(1, 4), ranges({1001}));
    EXPECT_TRUE(same_numbers(got, fake_tensor_quant(x.slice(1, 4), ranges({1001}))));
  }
  compare(
      numbers({4, 0}),
      [](const Variable& x) {
        return scaled_e4m3(x, ranges({4, 1}));
      },
      "no columns");
}

TEST_F(CudaFakeQuant, HandlesBiasesDoublesAndCasts) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    const Tensor x = numbers({4, 3, 5, 7}, dtype).to(Layout::channels_last), bias = ranges({3, 1, 1});
    compare(
        x, [=](const Variable& v) { return fake_tensor_quant(v, 1.5, bias); }, "a bias for each channel");
    compare(
        x,
        [=](const Variable& v) {
          return scaled_e4m3(v, ranges({3, 1, 1}), Tensor::scalar(0.3));
        },
        "one bias");
    compare(
        x, [=](const Variable& v) { return scaled_e4m3(v, 1.5, bias.to(Device::cuda())); },
        "a bias of the GPU");
    compare(
        x, [](const Variable& v) { return scaled_e4m3(v); }, "e4m3 alone");
    compare(
        x, [](const Variable& v) { return modelopt::int_cast_ste(v, 6); }, "integers");
  }
}

TEST_F(CudaFakeQuant, UnsignedRejectsNegativeValues) {
  const Tensor negative = Tensor::from({1.0f, -1.0f, 2.0f}), nan = Tensor::from({1.0f, -1.0f, kNaN});
  EXPECT_THROW((void)fake_tensor_quant(negative.to(Device::cuda()), 1.0, {}, 8, true), ArgumentError);
  compare(
      nan, [](const Variable& x) { return fake_tensor_quant(x, 1.0, {}, 8, true); }, "unsigned with a NaN");
  EXPECT_THROW((void)pytorch_quantization::tensor_quant(negative.to(Device::cuda()), 1.0, 8, true),
               ArgumentError);
  Tensor large = Tensor::full({50001}, 1.0);
  large.mutable_data<float>()[49999] = -0.5f;
  EXPECT_THROW((void)fake_tensor_quant(large.to(Device::cuda()), 1.0, {}, 8, true), ArgumentError);
}

TEST_F(CudaFakeQuant, KeepsRangesOnTheGpu) {
  const Tensor x = numbers({5, 300});
  for (const DType dtype : kTypes)
    for (const Shape& shape : {Shape{5, 1}, Shape{300}, Shape{}, Shape{5, 300}}) {
      const Tensor amax = ranges(shape).to(dtype), own = amax.to(Device::cuda());
      const Variable host(x, true), gpu(x.to(Device::cuda()), true);
      const Variable expected = fake_tensor_quant(host, Amax(amax));
      const auto waits = test::waits_so_far();
      const Variable got = fake_tensor_quant(gpu, own), scaled = scaled_e4m3(gpu, own);
      EXPECT_EQ(test::waits_so_far(), waits);
      EXPECT_TRUE(same_numbers(scaled.tensor(), scaled_e4m3(host, amax).tensor())) << to_string(shape);
      EXPECT_TRUE(same_numbers(scaled_e4m3(gpu.tensor(), own), scaled.tensor())) << to_string(shape);
      EXPECT_TRUE(same_numbers(got.tensor(), expected.tensor())) << to_string(shape);
      expected.backward(x);
      got.backward(x.to(Device::cuda()));
      EXPECT_TRUE(same_numbers(gpu.grad(), host.grad())) << to_string(shape);
    }
  const Tensor small = Tensor::from({0.0f, 0x1p-30f, kNaN, 2.0f}).reshape({4, 1}), y = numbers({4, 50});
  EXPECT_TRUE(same_numbers(fake_tensor_quant(y.to(Device::cuda()), small.to(Device::cuda())),
                           fake_tensor_quant(y, Amax(small))));
}

TEST_F(CudaFakeQuant, ReportsANegativeGpuRangeOnRead) {
  const Tensor amax = Tensor::from({1.0f, -1.0f}).reshape({2, 1}).to(Device::cuda());
  const Tensor y = fake_tensor_quant(numbers({2, 9}).to(Device::cuda()), amax);
  EXPECT_THROW((void)y.to(Device::cpu()), NumericError);
}

TEST_F(CudaFakeQuant, MatchesTheCpuForFp4WithGivenScales) {
  for (const DType dtype : kTypes)
    for (const std::int64_t block : {1, 5, 8, 16, 24, 600})
      for (const std::int64_t count : {1, 9, 130})
        for (const bool quantized : {false, true})
          compare(
              numbers({count, block}, dtype),
              [=](const Variable& x) {
                return modelopt::static_blockwise_fp4_fake_quant(x, ranges({count}), {}, quantized);
              },
              fmt::format("{} blocks of {}", count, block));
  for (const DType dtype : kTypes) {
    const Tensor x = numbers({2, 3, 4, 8}, dtype).to(Layout::channels_last);
    compare(
        x, [](const Variable& v) { return modelopt::fp4_cast_ste(v); }, "a cast to fp4");
    compare(
        x, [](const Variable& v) { return modelopt::fp4_cast_ste(v, DType::f16); }, "a cast to fp4 in f16");
    compare(
        x, [](const Variable& v) { return modelopt::static_blockwise_fp4_fake_quant(v, ranges({24}), 4.0); },
        "channels_last");
  }
}

TEST_F(CudaFakeQuant, MatchesTheCpuForDynamicBlocks) {
  using modelopt::dynamic_block_quantize;
  constexpr NumBits e4m3{4, 3}, e8m0{8, 0};
  for (const NumBits& bits : {NumBits(4, 3), NumBits(5, 2), NumBits(3, 2), NumBits(2, 3), NumBits(2, 1),
                              NumBits(1, 2), NumBits(0, 3), NumBits(3, 0), NumBits(8)})
    for (const std::int64_t block : {8, 16, 32})
      for (const Shape& shape : {Shape{3, 32}, Shape{70, 96}, Shape{5, 71}, Shape{2, 3, 9, 7}})
        for (const DType dtype : kTypes) {
          const Tensor x = numbers(shape, dtype);
          const std::string what = fmt::format("{} in blocks of {}", to_string(bits), block);
          compare(
              x, [=](const Variable& v) { return dynamic_block_quantize(v, bits, e8m0, block); },
              what + " by powers");
          compare(
              x, [=](const Variable& v) { return dynamic_block_quantize(v, bits, e4m3, block); }, what);
        }
  for (const double global : {3.0, 0.0, double{kInf}})
    for (const Shape& shape : {Shape{90, 64}, Shape{5, 71}}) {
      const Tensor x = numbers(shape, DType::bf16), rows = ranges({shape[0]});
      const auto kernel = modelopt::BlockKernel::cuda_ext;
      compare(
          x,
          [=](const Variable& v) {
            return dynamic_block_quantize(v, {2, 1}, e4m3, 16, global, kernel, false);
          },
          "a global range");
      compare(
          x,
          [=](const Variable& v) {
            return dynamic_block_quantize(v, {4, 3}, e4m3, 8, rows, kernel, false);
          },
          "a range for each row");
    }
}

TEST_F(CudaFakeQuant, MatchesTheCpuForNvfp4) {
  for (const DType dtype : kTypes)
    for (const double global : {2688.0, 5.0, 0.0, double{kInf}, 1e-9})
      for (const Shape& shape : {Shape{16}, Shape{700, 48}, Shape{5, 71}, Shape{0, 16}})
        for (const bool pass : {false, true})
          compare(
              numbers(shape, dtype),
              [=](const Variable& v) {
                return modelopt::dynamic_block_quantize(v, {2, 1}, {4, 3}, 16, global,
                                                        modelopt::BlockKernel::triton, pass);
              },
              fmt::format("nvfp4 with {}", global));
}

/// Blocks of sixteen: the largest number of each, and numbers next to the midpoints between codes.
Tensor values_next_to_fp4_midpoints(float global, std::int64_t blocks) {
  constexpr float middles[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  Tensor out = Tensor::empty({blocks, 16});
  auto* v = out.mutable_data<float>();
  for (std::int64_t b = 0; b < blocks; ++b) {
    const float amax =
        global * std::ldexp(1.0f + static_cast<float>(b % 64) / 64, -static_cast<int>(b % 5) - 1);
    const float scale = scalar::nvfp4_scale(amax, global / 2688);
    v[16 * b] = amax;
    for (int j = 1; j < 16; ++j) {
      const auto bits = std::bit_cast<std::int32_t>(middles[(b + j) % 7] * scale) + (b / 7 + j) % 7 - 3;
      v[16 * b + j] = std::bit_cast<float>(static_cast<std::int32_t>(bits)) * (j % 2 == 0 ? 1.0f : -1.0f);
    }
  }
  return out;
}

TEST_F(CudaFakeQuant, Nvfp4HandlesMidpointsAndUnalignedMemory) {
  for (const float global : {2688.0f, 5.3f, 0.0371f}) {
    const auto f = [=](const Variable& v) {
      return modelopt::dynamic_block_quantize(v, {2, 1}, {4, 3}, 16, double{global},
                                              modelopt::BlockKernel::triton, true);
    };
    compare(values_next_to_fp4_midpoints(global, 3000), f, fmt::format("middles with {}", global));
  }
  for (const DType dtype : kTypes) {
    const Tensor x = numbers({8 * 16 + 3}, dtype), host = x.slice(3, x.numel()).reshape({8, 16});
    const Variable gpu(x.to(Device::cuda()).slice(3, x.numel()).reshape({8, 16}));
    const auto f = [](const Variable& v) {
      return modelopt::dynamic_block_quantize(v, {2, 1}, {4, 3}, 16, 3.0);
    };
    EXPECT_TRUE(same_numbers(f(gpu).tensor(), f(Variable(host)).tensor())) << host.describe();
  }
}

TEST_F(CudaFakeQuant, MatchesTheCpuForPytorchQuantization) {
  using namespace pytorch_quantization;
  for (const DType dtype : kTypes) {
    const Tensor x = numbers({4, 6, 5, 7}, dtype).to(Layout::channels_last);
    for (const Tensor& amax : {Tensor::scalar(1.5), ranges({6, 1, 1})}) {
      compare(
          x, [=](const Variable& v) { return legacy_fake_tensor_quant(v, amax, 5); }, "legacy");
      for (const auto output : {std::optional<DType>(), std::optional(DType::f32), std::optional(DType::i32)})
        compare(
            x, [=](const Variable& v) { return tensor_quant(v, amax, 4, false, false, output).codes; },
            "codes");
      compare(
          x, [=](const Variable& v) { return tensor_quant(v, amax, 4).scale; }, "scale");
      compare(
          x,
          [=](const Variable& v) {
            return fake_affine_tensor_quant(v, Tensor::full(amax.shape(), -0.5), amax);
          },
          "affine");
    }
  }
}

TEST_F(CudaFakeQuant, ClipsAtItsBounds) {
  const auto clipped = [](const Tensor& x, const Tensor& low, const Tensor& high) {
    const Variable v(x, true), lower(low.to(x.device()), true), upper(high.to(x.device()), true);
    const Variable y = pytorch_quantization::clip(v, lower, upper);
    y.backward(Tensor::full(x.shape(), 0.25, y.tensor().dtype(), x.device(), y.layout()));
    return std::vector<Tensor>{y.tensor(), v.grad(), lower.grad(), upper.grad()};
  };
  for (const DType dtype : kTypes)
    for (const Shape& bound : {Shape{}, Shape{1}, Shape{3, 1, 1}, Shape{1, 3, 1, 1}}) {
      const Tensor x = numbers({40, 3, 9, 31}, dtype).to(Layout::channels_last);
      const Tensor low = Tensor::full(bound, -0.3), high = Tensor::full(bound, 0.75);
      const auto expected = clipped(x, low, high), got = clipped(x.to(Device::cuda()), low, high);
      for (std::size_t i = 0; i < got.size(); ++i)  // sums of multiples of 1/4: exact in any order
        EXPECT_TRUE(same_numbers(got[i], expected[i])) << i << " with bounds of " << to_string(bound);
    }
}

}  // namespace
}  // namespace fq::cuda_fake_quant_test
