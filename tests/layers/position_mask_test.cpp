// Padding in batches of sequences: which elements ranges see, in calibration and with running ranges.

#include "fakequant/layers/quantizer/detail/position_mask.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/calib/calibrator.h"
#include "fakequant/core/error.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq::position_mask_test {
namespace {

using detail::PositionMask;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::int64_t kSamples = 2, kPositions = 3;

/// Positions 0, 1 of the first sample and 0 of the second one hold data.
Tensor mask() { return Tensor::from<float>({1, 1, 0, 1, 0, 0}, {kSamples, kPositions}); }

/// 0, 1, 2, ..
Tensor counted(const Shape& shape) {
  Tensor out = Tensor::empty(shape);
  std::iota(out.mutable_data<float>(), out.mutable_data<float>() + out.numel(), 0.0f);
  return out;
}

Tensor seen(const Shape& shape, const Axes& kept_axes = {}) {
  return PositionMask(mask()).remove_padding(counted(shape), kept_axes);
}

using Values = std::vector<float>;

TEST(PositionMask, DropsPaddingAlongTheSecondAxis) {
  const Tensor x = seen({2, 3, 2});
  EXPECT_EQ(x.shape(), (Shape{1, 3, 2}));
  EXPECT_EQ(x.to_vector<float>(), (Values{0, 1, 2, 3, 6, 7}));
}

TEST(PositionMask, DropsRowsOfPadding) {
  const Tensor x = seen({6, 2});
  EXPECT_EQ(x.shape(), (Shape{3, 2}));
  EXPECT_EQ(x.to_vector<float>(), (Values{0, 1, 2, 3, 6, 7}));
}

TEST(PositionMask, DropsPaddingAlongThePositionAxis) {
  const Tensor x = seen({2, 2, 3, 2});  // [N, heads, T, d]
  EXPECT_EQ(x.shape(), (Shape{1, 2, 3, 2}));
  EXPECT_EQ(x.to_vector<float>(), (Values{0, 1, 2, 3, 12, 13, 6, 7, 8, 9, 18, 19}));
  EXPECT_EQ(seen({2, 5, 3}).shape(), (Shape{1, 5, 3}));  // [N, C, T]
}

TEST(PositionMask, ReadsChannelsLastByItsLogicalAxes) {
  const Tensor x = PositionMask(mask()).remove_padding(counted({2, 2, 3, 2}).to(Layout::channels_last), {});
  EXPECT_EQ(x.to_vector<float>(), seen({2, 2, 3, 2}).to_vector<float>());
}

TEST(PositionMask, KeepsOtherTensors) {
  const PositionMask padding(mask());
  for (const Shape& shape :
       {Shape{2, 3}, Shape{2, 4}, Shape{2, 2, 3, 3}, Shape{3, 3, 2}, Shape{2}, Shape{2, 4, 2}, Shape{}})
    EXPECT_EQ(padding.remove_padding(counted(shape), {}).shape(), shape) << to_string(shape);
  EXPECT_EQ(padding.remove_padding(counted({2, 3, 2}), Axes(1)).shape(), (Shape{2, 3, 2}));
  EXPECT_EQ(padding.remove_padding(counted({2, 3, 2}), Axes(0)).shape(), (Shape{2, 3, 2}));
  EXPECT_EQ(padding.matches(), 0);
  EXPECT_EQ(padding.remove_padding(counted({2, 3, 2}), Axes(-1)).shape(), (Shape{1, 3, 2}));
  EXPECT_EQ(padding.matches(), 1);
}

TEST(PositionMask, DropsAllIfEverythingIsPadding) {
  const PositionMask padding(Tensor::zeros({2, 3}));
  EXPECT_EQ(padding.remove_padding(counted({2, 3, 2}), {}).shape(), (Shape{1, 0, 2}));
}

TEST(PositionMask, RequiresTwoAxes) {
  EXPECT_THAT(
      [] {
        PositionMask{Tensor::zeros({2, 3, 1})};
      },
      ThrowsMessage<ArgumentError>(HasSubstr("use [N, T]")));
  EXPECT_THAT([] { PositionMask{Tensor()}; }, ThrowsMessage<ArgumentError>(HasSubstr("use [N, T]")));
}

/// Shows the quantizer x in each pass that its calibrator has.
void collect(TensorQuantizer& quantizer, const Tensor& x) {
  auto& observer = quantizer.observer();
  observer.collect(x);
  for (int pass = 1; pass < observer.calibrator().passes(); ++pass) {
    observer.calibrator().next_pass();
    observer.collect(x);
  }
}

/// Every method that a calibrator has, with padding 100 times as large as the data.
TEST(PositionMask, ExcludesPaddingFromEveryMethod) {
  Tensor padded = counted({2, 3, 4}), data = Tensor::empty({1, 3, 4});
  const auto rows = mask().to_vector<float>();
  for (std::size_t i = 0, next = 0; i < rows.size(); ++i)
    for (std::size_t c = 0; c < 4; ++c) {
      float& v = padded.mutable_data<float>()[4 * i + c];
      if (rows[i] == 0)
        v *= 100;
      else
        data.mutable_data<float>()[next++] = v;
    }
  for (const auto& method : QuantDescriptor::calib_methods()) {
    if (method == "scale_sweep") continue;  // of static blocks alone
    for (const Axes& axis : {Axes(), Axes(-1)}) {
      const QuantDescriptor descriptor({.axis = axis, .calib_method = std::string(method)});
      TensorQuantizer with_mask(descriptor), alone(descriptor);
      {
        const PositionMask padding(mask());
        const ScopedValue<const PositionMask*> scope(context().position_mask, &padding);
        collect(with_mask, padded);
      }
      collect(alone, data);
      with_mask.load_calibrated_amax();
      alone.load_calibrated_amax();
      EXPECT_EQ(with_mask.amax().to_vector<float>(), alone.amax().to_vector<float>()) << method;
    }
  }
}

TEST(PositionMask, ExcludesPaddingFromRunningRanges) {
  TensorQuantizer quantizer;
  quantizer.update([](QuantParams& s) {
    s.running = true;
    s.momentum = 0.5;
  });
  quantizer.train();
  Tensor x = Tensor::full({2, 3, 2}, 3);
  x.mutable_data<float>()[11] = 1000;  // padding
  const PositionMask padding(mask()), all(Tensor::zeros({2, 3}));
  {
    const ScopedValue<const PositionMask*> scope(context().position_mask, &padding);
    (void)quantizer(Variable(x));
    EXPECT_EQ(quantizer.amax().item(), 3);
  }
  {
    const ScopedValue<const PositionMask*> scope(context().position_mask, &all);
    (void)quantizer(Variable(x));  // padding only
    EXPECT_EQ(quantizer.amax().item(), 3);
  }
  (void)quantizer(Variable(x));
  EXPECT_EQ(quantizer.amax().item(), 501.5);
}

}  // namespace
}  // namespace fq::position_mask_test
