#include <cmath>
#include <nlohmann/json.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/calib/calibrator.h"
#include "fakequant/calib/detail/calib_methods.h"
#include "fakequant/calib/detail/histogram_methods.h"
#include "fakequant/calib/detail/one_pass_calibrator.h"
#include "fakequant/core/descriptor.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/state_dict.h"

namespace fq::calibrator_state_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Tensor batch(int k) {
  std::vector<float> v;
  for (int i = 0; i < 600; ++i) v.push_back(std::sin(static_cast<float>(i * k)) * static_cast<float>(k));
  return Tensor::from(v, {2, 3, 100}).to(DType::bf16);
}

/// The passes after the first.
void finish(Calibrator& calibrator) {
  for (int pass = 1; pass < calibrator.passes(); ++pass) {
    calibrator.next_pass();
    for (int k = 1; k <= 4; ++k) calibrator.collect(batch(k));
  }
}

void resumes(std::string_view method, const CalibratorOptions& options) {
  const auto whole = make_calibrator(method, options), first = make_calibrator(method, options),
             second = make_calibrator(method, options);
  for (int k = 1; k <= 4; ++k) whole->collect(batch(k));
  for (int k = 1; k <= 2; ++k) first->collect(batch(k));
  const StateDict state = first->state_dict();
  first->collect(batch(9));  // a saved state does not follow
  second->load_state(state);
  for (int k = 3; k <= 4; ++k) second->collect(batch(k));
  for (auto* calibrator : {whole.get(), second.get()}) finish(*calibrator);
  EXPECT_TRUE(bitwise_equal(second->compute_amax(), whole->compute_amax())) << method;
  EXPECT_TRUE(bitwise_equal(second->state_dict(), whole->state_dict())) << method;
  EXPECT_EQ(second->minimum(), whole->minimum());
  second->load_state(make_calibrator(method, options)->state_dict());
  EXPECT_TRUE(second->empty());
}

TEST(MakeCalibrator, CreatesEveryMethodByName) {
  for (const std::string_view method : QuantDescriptor::calib_methods())
    for (const Axes& axis : {Axes(), Axes(0)}) {
      const auto made = make_calibrator(method, {.axis = axis});
      EXPECT_EQ(made->method(), method);
      made->collect(batch(1));
      for (int pass = 1; pass < made->passes(); ++pass) {
        made->next_pass();
        made->collect(batch(1));
      }
      EXPECT_EQ(made->compute_amax().numel(), axis.empty() ? 1 : 2) << method;
    }
  EXPECT_THAT([] { (void)make_calibrator("one_past"); },
              ThrowsMessage<ArgumentError>(HasSubstr("did you mean 'one_pass'?")));
}

TEST(MakeCalibrator, CreatesEveryHistogramMethod) {
  for (const std::string_view method : QuantDescriptor::calib_methods()) {
    const auto reading = detail::histogram_reading(method);
    EXPECT_TRUE(reading.empty() || detail::find_histogram_reading(reading) != nullptr) << method;
  }
  EXPECT_EQ(detail::histogram_reading("two_pass_mse"), "mse");
  EXPECT_EQ(detail::histogram_reading("max"), "");
  EXPECT_THAT([] { OnePassCalibrator("two_pass"); },
              ThrowsMessage<ArgumentError>(
                  HasSubstr("use one_pass, one_pass_entropy, one_pass_mse or one_pass_octav")));
}

TEST(CalibratorState, ResumesBitwise) {
  for (const std::string_view method : QuantDescriptor::calib_methods())
    if (method != "scale_sweep")  // takes one tensor
      for (const Axes& axis : {Axes(), Axes(1), Axes({0, 2})})
        resumes(method, {.axis = axis, .num_bins = 160, .momentum = 0.7});
}

TEST(CalibratorState, RejectsForeignAndDamagedStates) {
  const auto max = make_calibrator("max"), histogram = make_calibrator("histogram");
  max->collect(batch(1));
  histogram->collect(batch(1));
  EXPECT_THAT([&] { max->load_state(histogram->state_dict()); },
              ThrowsMessage<ArgumentError>(HasSubstr("this one is 'max'")));
  StateDict bad = max->state_dict();
  bad.set("amax", Tensor::from({-1.0f}));
  EXPECT_THROW(max->load_state(bad), ArgumentError);
  bad = max->state_dict();
  bad.set_attribute("minimum", "low");
  EXPECT_THROW(max->load_state(bad), ArgumentError);
  bad = histogram->state_dict();
  bad.set("edges", Tensor::zeros({2049}));
  EXPECT_THROW(histogram->load_state(bad), ArgumentError);
  bad = histogram->state_dict();
  bad.set("counts", Tensor::zeros({7}, DType::i64));
  EXPECT_THROW(histogram->load_state(bad), ArgumentError);
  EXPECT_EQ(max->compute_amax().numel(), 1);
}

}  // namespace
}  // namespace fq::calibrator_state_test
