// Quantizers with blocks, in both arithmetics.

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/detail/moves.h"
#include "fakequant/core/error.h"
#include "fakequant/core/numerics/detail/minifloat.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/layers/quantizer/sequential_quantizer.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"
#include "fakequant/reference/modelopt.h"
#include "layers/networks.h"

namespace fq::blocks_test {
namespace {

using namespace test;
using ::testing::HasSubstr;

QuantDescriptor dynamic_blocks(NumBits bits, std::int64_t length, std::optional<NumBits> scale_bits) {
  return QuantDescriptor(
      {.num_bits = bits,
       .block_sizes = {.lengths = {{-1, length}}, .type = BlockType::dynamic, .scale_bits = scale_bits}});
}

QuantDescriptor static_blocks(NumBits bits, std::map<int, std::int64_t> lengths,
                              std::optional<NumBits> scale_bits = {}) {
  return QuantDescriptor(
      {.num_bits = bits, .block_sizes = {.lengths = std::move(lengths), .scale_bits = scale_bits}});
}

/// Calibrates on x where a range is needed.
std::unique_ptr<TensorQuantizer> make_quantizer(const QuantDescriptor& d, const Tensor& x,
                                                Arithmetic arithmetic = Arithmetic::deployed) {
  auto q = std::make_unique<TensorQuantizer>(d, arithmetic);
  q->set_name("q");
  if (!d.needs_amax()) return q;
  q->observer().collect(x);
  q->load_calibrated_amax();
  return q;
}

float largest(const Tensor& x, const std::vector<std::int64_t>& at) {
  float out = 0;
  for (const auto i : at) out = std::max(out, std::fabs(x.data<float>()[i]));
  return out;
}

/// Row-major indices of each block of `rows` x `columns` of a matrix.
std::vector<std::vector<std::int64_t>> block_members(const Tensor& x, std::int64_t rows,
                                                     std::int64_t columns) {
  std::vector<std::vector<std::int64_t>> out;
  for (std::int64_t r = 0; r < x.dim(0); r += rows)
    for (std::int64_t c = 0; c < x.dim(1); c += columns) {
      auto& block = out.emplace_back();
      for (std::int64_t i = r; i < std::min(r + rows, x.dim(0)); ++i)
        for (std::int64_t j = c; j < std::min(c + columns, x.dim(1)); ++j) block.push_back(i * x.dim(1) + j);
    }
  return out;
}

float code(float x, float scale, const Format& format) {
  if (format.is_integer()) return scalar::quantize_code(x, scale, format.lower(), format.bound());
  return Minifloat::of(format.floating()).round(x / scale);
}

void expect_codes_times_scales(const QuantDescriptor& d, std::int64_t rows, std::int64_t columns,
                               const std::function<float(float amax, float global)>& block_scale) {
  Tensor x = random_tensor({5, 37}, -3, 3);
  for (std::int64_t i = 0; i < 37; ++i) x.mutable_data<float>()[2 * 37 + i] = 0;
  const auto q = make_quantizer(d, x);
  Variable input(x, true);
  const Variable y = (*q)(input);
  ASSERT_NE(y.quantized(), nullptr);
  const auto values = y.tensor().to_vector<float>();
  std::vector<std::int64_t> all(static_cast<std::size_t>(x.numel()));
  std::iota(all.begin(), all.end(), 0);
  for (const auto& block : block_members(x, rows, columns)) {
    const float scale = block_scale(largest(x, block), largest(x, all));
    for (const auto i : block)
      ASSERT_EQ(values[static_cast<std::size_t>(i)], code(x.data<float>()[i], scale, d.format()) * scale)
          << to_string(d) << " at " << i;
  }
  y.backward(Tensor::full(x.shape(), 1.0));
  for (const float g : input.grad().to_vector<float>()) EXPECT_EQ(g, 1.0f);
}

float e8m0(float v) { return v == 0 ? 0x1p-127f : std::exp2(std::ceil(std::log2(v))); }

TEST(Blocks, DeployedValuesEqualCodesTimesScales) {
  const auto plain = [](float bound, float small) {
    return [=](float amax, float) { return (amax <= 0x1p-24f ? small : amax) / bound; };
  };
  expect_codes_times_scales(static_blocks(4, {{-1, 16}}), 1, 16, plain(7, 0x1p-24f));
  expect_codes_times_scales(static_blocks(12, {{-1, 8}}), 1, 8, plain(2047, 0x1p-24f));
  expect_codes_times_scales(static_blocks({4, 3}, {{-1, 16}, {-2, 2}}), 2, 16, plain(448, 1));
  expect_codes_times_scales(static_blocks(8, {{0, 2}, {1, -1}}), 2, 37, plain(127, 0x1p-24f));
  expect_codes_times_scales(dynamic_blocks({4, 3}, 8, {}), 1, 8, plain(448, 1));
  expect_codes_times_scales(
      QuantDescriptor({.num_bits = {4, 3}, .block_sizes = {.lengths = {{-1, -1}}}, .dynamic = true}), 1, 37,
      plain(448, 1));
}

TEST(Blocks, SupportEightBitDeployedScales) {
  for (const NumBits bits :
       {NumBits(4, 3), NumBits(5, 2), NumBits(3, 2), NumBits(2, 3), NumBits(2, 1), NumBits(8)}) {
    const float bound = dynamic_blocks(bits, 32, {{8, 0}}).format().bound();
    expect_codes_times_scales(dynamic_blocks(bits, 32, {{8, 0}}), 1, 32,
                              [&](float amax, float) { return e8m0(amax / bound); });
  }
  const auto two_level = [](float amax, float global) {
    const float unit = global / (448.0f * 6.0f);
    return std::max(scalar::round_e4m3(amax / 6.0f / unit), 0x1p-9f) * unit;
  };
  expect_codes_times_scales(dynamic_blocks({2, 1}, 16, {{4, 3}}), 1, 16, two_level);
  expect_codes_times_scales(static_blocks({2, 1}, {{-1, 16}}, {{4, 3}}), 1, 16, two_level);
}

TEST(Blocks, ReadersShareTheCodesOfOneGrid) {
  const Tensor x = random_tensor({6, 32}, -3, 3);
  for (const auto& d : {dynamic_blocks({2, 1}, 16, {{4, 3}}), dynamic_blocks(8, 16, {{8, 0}}),
                        QuantDescriptor({.num_bits = 8, .dynamic = true})}) {
    const auto q = make_quantizer(d, x);
    Variable input(x.clone(), true);
    const Variable codes = (*q)(input);
    const auto shared = [&] { return (*q)(input).node() == codes.node(); };
    EXPECT_TRUE(shared()) << to_string(d);
    EXPECT_NE((*make_quantizer(d, x))(input).node(), codes.node()) << "of another quantizer";
    EXPECT_NE((*q)(Variable(x, true)).node(), codes.node()) << "of another value";
    EXPECT_FALSE(shared()) << "of the value before the last";
    const Variable again = (*q)(input);
    EXPECT_TRUE(bitwise_equal(again.tensor(), codes.tensor()));
    {
      const NoGrad quiet;
      EXPECT_NE((*q)(input).node(), again.node()) << "a gradient was recorded without need";
    }
  }
}

TEST(Blocks, RecomputeCodesForAnotherRangeOrValue) {
  const Tensor x = random_tensor({6, 32}, -3, 3);
  const auto q = make_quantizer(dynamic_blocks({2, 1}, 16, {{4, 3}}), x);
  Variable input(x.clone(), true);
  const Variable codes = (*q)(input);
  q->set_amax(Tensor::scalar(5));
  const Variable other = (*q)(input);
  EXPECT_NE(other.node(), codes.node());
  input.mutable_tensor().mutable_data<float>()[0] = 7;
  const Variable written = (*q)(input);
  EXPECT_NE(written.node(), other.node());
  EXPECT_TRUE(bitwise_equal(written.tensor(), (*q)(Variable(input.tensor().clone())).tensor()));
  q->update([](QuantParams& params) { params.pass_through_bwd = true; });
  EXPECT_NE((*q)(input).node(), written.node());
}

TEST(Blocks, SharedCodesSumTheGradientsOfTheirReaders) {
  const Tensor x = random_tensor({6, 32}, -3, 3);
  const auto q = make_quantizer(dynamic_blocks({2, 1}, 16, {{4, 3}}), x);
  Variable input(x.clone(), true);
  const Variable first = (*q)(input), second = (*q)(input);
  EXPECT_EQ(first.node(), second.node());
  ops::add(first, second).backward(Tensor::full(x.shape(), 1.0));
  for (const float g : input.grad().to_vector<float>()) EXPECT_EQ(g, 2.0f);
  EXPECT_NE((*q)(input).node(), first.node()) << "that was passed backward";
}

TEST(Blocks, ReferenceMatchesModelOpt) {
  const Tensor x = random_tensor({6, 32}, -3, 3);
  const auto same = [&](const QuantDescriptor& d, const Tensor& expected) {
    EXPECT_TRUE(bitwise_equal((*make_quantizer(d, x, Arithmetic::reference))(Variable(x)).tensor(), expected))
        << to_string(d);
  };
  const Amax global(static_cast<double>(largest(x, block_members(x, 6, 32)[0])));
  same(dynamic_blocks({2, 1}, 16, {{4, 3}}),
       modelopt::dynamic_block_quantize(x, {2, 1}, {4, 3}, 16, global, modelopt::BlockKernel::triton));
  for (const NumBits bits : {NumBits(4, 3), NumBits(3, 2), NumBits(2, 1), NumBits(8)})
    same(dynamic_blocks(bits, 32, {{8, 0}}), modelopt::dynamic_block_quantize(x, bits, {8, 0}, 32));
  std::vector<float> ranges;
  for (const auto& block : block_members(x, 1, 16)) ranges.push_back(largest(x, block));
  const Tensor amax = Tensor::from(ranges, {12, 1});
  same(static_blocks({2, 1}, {{-1, 16}}, {{4, 3}}), modelopt::static_blockwise_fp4_fake_quant(x, amax));
  same(static_blocks(4, {{-1, 16}}),
       fake_tensor_quant(x.reshape({12, 16}), amax, {}, 4, false, false).reshape({6, 32}));
}

TEST(Blocks, SeveralAxesHaveOneRangePerIndexPair) {
  const Tensor x = random_tensor({3, 4, 5}, -2, 2);
  const QuantDescriptor d({.num_bits = 6, .axis = {0, -1}});
  const auto deployed = make_quantizer(d, x), reference = make_quantizer(d, x, Arithmetic::reference);
  EXPECT_EQ(deployed->amax().shape(), (Shape{15}));
  EXPECT_EQ(reference->amax().shape(), (Shape{3, 1, 5}));
  const auto ranges = reference->amax().to_vector<float>(),
             values = (*deployed)(Variable(x)).tensor().to_vector<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const float scale = ranges[static_cast<std::size_t>(i / 20 * 5 + i % 5)] / 31;
    ASSERT_EQ(values[static_cast<std::size_t>(i)], code(x.data<float>()[i], scale, d.format()) * scale);
  }
  EXPECT_TRUE(bitwise_equal((*reference)(Variable(x)).tensor(),
                            fake_tensor_quant(x, reference->amax(), {}, 6, false, false)));
  auto dynamic = d.options();
  dynamic.dynamic = true;
  for (const Arithmetic arithmetic : {Arithmetic::deployed, Arithmetic::reference})
    EXPECT_TRUE(bitwise_equal(TensorQuantizer(QuantDescriptor(dynamic), arithmetic)(Variable(x)).tensor(),
                              (*make_quantizer(d, x, arithmetic))(Variable(x)).tensor()));
}

TEST(Blocks, RangeShapeDependsOnTheArithmetic) {
  const Tensor x = random_tensor({4, 6}, -1, 1);
  const auto d = static_blocks(8, {{0, 2}, {1, 3}});
  EXPECT_EQ(make_quantizer(d, x)->amax().shape(), (Shape{4}));
  auto reference = make_quantizer(d, x, Arithmetic::reference);
  EXPECT_EQ(reference->amax().shape(), (Shape{2, 1, 2, 1}));
  EXPECT_EQ(export_amax(*reference, x.shape()).shape(), (Shape{2, 1, 2, 1}));
  EXPECT_THROW((void)export_amax(*reference), ArgumentError);
  reference->update([](QuantParams& s) { s.arithmetic = Arithmetic::deployed; });
  EXPECT_EQ(reference->amax().shape(), (Shape{4}));
  EXPECT_EQ(export_amax(*make_quantizer(static_blocks(8, {{-1, 4}}), x), x.shape()).shape(), (Shape{4, 2}));
  TensorQuantizer given(static_blocks(8, {{-1, 4}}), Arithmetic::reference);
  given.set_amax(Tensor::scalar(1));
  EXPECT_EQ(export_amax(given, {0, 3}).shape(), (Shape{}));
}

TEST(Blocks, ReturnCodesAndScalesWithoutFakeQuant) {
  auto options = static_blocks({2, 1}, {{-1, 4}}).options();
  options.fake_quant = false;
  const Tensor x = Tensor::from({-6.0f, 3.0f, 0.6f, 0.0f, 12.0f}, {1, 5});
  const auto q = make_quantizer(QuantDescriptor(options), x);
  const Variable codes = (*q)(Variable(x));
  EXPECT_EQ(codes.tensor().dtype(), DType::f4_e2m1);
  EXPECT_EQ(q->scale().to_vector<float>(), (std::vector<float>{1, 2}));
  const auto* bytes = static_cast<const std::uint8_t*>(codes.tensor().raw());
  EXPECT_EQ(std::vector<int>(bytes, bytes + 3), (std::vector<int>{0x5f, 0x01, 0x07}));
  EXPECT_THROW((void)TensorQuantizer(QuantDescriptor(options), Arithmetic::reference)(Variable(x)),
               ArgumentError);
}

TEST(Blocks, SequencesQuantizeThePreviousOutput) {
  const Tensor x = random_tensor({4, 32}, -2, 2);
  for (const Arithmetic arithmetic : {Arithmetic::deployed, Arithmetic::reference}) {
    std::vector<std::shared_ptr<TensorQuantizer>> parts{
        make_quantizer(static_blocks(4, {{-1, 16}}), x, arithmetic),
        make_quantizer(QuantDescriptor({.num_bits = {4, 3}}), x, arithmetic)};
    const Tensor expected = (*parts[1])((*parts[0])(Variable(x)).as_float()).tensor();
    SequentialQuantizer sequence(parts);
    EXPECT_TRUE(bitwise_equal(sequence(Variable(x)).tensor(), expected));
    Variable w(x, true);
    const Variable y = sequence.weight(w);
    EXPECT_TRUE(bitwise_equal(y.tensor(), expected));
    y.backward(Tensor::full(x.shape(), 1.0));
    EXPECT_TRUE(bitwise_equal(w.grad(), Tensor::full(x.shape(), 1.0)));
    sequence.set_enabled(false);
    EXPECT_TRUE(bitwise_equal(sequence(Variable(x)).tensor(), x));
  }
  EXPECT_THROW(SequentialQuantizer({}), ArgumentError);
  EXPECT_THROW(SequentialQuantizer({nullptr}), ArgumentError);
  auto codes = std::make_shared<TensorQuantizer>(QuantDescriptor({.fake_quant = false}));
  EXPECT_THROW(SequentialQuantizer({codes, std::make_shared<TensorQuantizer>()}), ArgumentError);
}

TEST(Blocks, SixteenBitInputsKeepTheGradientType) {
  const Tensor x = random_tensor({3, 8}, -2, 2).to(DType::f16);
  Variable input(x, true);
  const auto q = make_quantizer(static_blocks(8, {{-1, 4}}), x);
  const Variable y = (*q)(input);
  y.backward(Tensor::full(x.shape(), 1.0));
  EXPECT_EQ(input.grad().dtype(), DType::f16);
}

TEST(Blocks, SupportPassThroughBackward) {
  const Tensor x = Tensor::from({-3.0f, 0.5f});
  for (const bool pass : {false, true}) {
    TensorQuantizer q;
    q.set_amax(Tensor::scalar(1));
    q.update([&](QuantParams& s) { s.pass_through_bwd = pass; });
    Variable input(x, true);
    q(input).backward(Tensor::full({2}, 1.0));
    EXPECT_EQ(input.grad().to_vector<float>(), (std::vector<float>{pass ? 1.0f : 0.0f, 1}));
  }
}

TEST(Blocks, RejectMismatchedShapes) {
  const Tensor x = random_tensor({4, 32}, -2, 2);
  const auto error_text = [&](const QuantDescriptor& d, Arithmetic arithmetic,
                              const Tensor& amax = {}) -> std::string {
    try {
      TensorQuantizer q(d, arithmetic);
      q.set_name("q");
      if (amax.defined()) q.set_amax(amax);
      (void)q(Variable(x)).tensor();
    } catch (const ArgumentError& error) {
      return error.what();
    }
    return "no error";
  };
  const auto deployed = Arithmetic::deployed, reference = Arithmetic::reference;
  EXPECT_THAT(error_text(static_blocks(4, {{-1, 16}}), deployed), HasSubstr("'q' has no amax"));
  EXPECT_THAT(error_text(static_blocks(4, {{-1, 16}}), deployed, Tensor::full({3}, 1.0)),
              HasSubstr("has 8 blocks"));
  EXPECT_THAT(error_text(static_blocks(4, {{2, 16}}), deployed, Tensor::full({8}, 1.0)), HasSubstr("axis 2"));
  EXPECT_THAT(error_text(dynamic_blocks({2, 1}, 16, {{4, 3}}), deployed), HasSubstr("no amax"));
  EXPECT_THAT(error_text(dynamic_blocks({2, 1}, 16, {{4, 3}}), deployed, Tensor::full({8}, 1.0)),
              HasSubstr("use one for a "));
  EXPECT_THAT(error_text(dynamic_blocks({2, 1}, 16, {{8, 0}}), deployed, Tensor::scalar(1)),
              HasSubstr("from each input"));
  EXPECT_THAT(error_text(dynamic_blocks({4, 3}, 16, {}), reference), HasSubstr("without scale_bits"));
  EXPECT_THAT(error_text(static_blocks(8, {{-1, 16}}, {{8, 0}}), reference, Tensor::full({8}, 1.0)),
              HasSubstr("keeps their scales as floats"));
  EXPECT_THAT(error_text(static_blocks(8, {{-1, 16}}, 8), deployed), HasSubstr("only packed tensors"));
  EXPECT_THAT(error_text(dynamic_blocks({2, 1}, 64, {{8, 0}}), reference), HasSubstr("block"));
  TensorQuantizer dynamic(dynamic_blocks({4, 3}, 32, {{8, 0}}));
  EXPECT_THROW((void)dynamic.grid(), ArgumentError);
}

TEST(Blocks, ConcatenatePackedCodesAtAnyBit) {
  const auto codes = [](std::initializer_list<float> values) {
    auto options = static_blocks({2, 1}, {{-1, -1}}).options();
    options.fake_quant = false;
    TensorQuantizer q{QuantDescriptor(options)};
    q.set_amax(Tensor::scalar(6));
    return q(Variable(Tensor::from(values, {1, static_cast<std::int64_t>(values.size())}))).tensor();
  };
  const Tensor joined = detail::join({codes({1, 2, 3}), codes({4, 6, 0.5})}, 0);
  const auto* bytes = static_cast<const std::uint8_t*>(joined.raw());
  EXPECT_EQ(std::vector<int>(bytes, bytes + 3), (std::vector<int>{0x42, 0x65, 0x17}));
}

}  // namespace
}  // namespace fq::blocks_test
