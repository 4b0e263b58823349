#include <cmath>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calib/magnitudes.h"
#include "fakequant/calib/calibrator.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/state_dict.h"

namespace fq::calibrator_merge_test {
namespace {

using test::magnitudes;
using test::tensor;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// Splits shuffled values into batches for several calibrators, and merges these in a random tree.
std::unique_ptr<Calibrator> split_and_merged(const std::vector<float>& v, std::string_view method,
                                             const CalibratorOptions& options, std::mt19937& random) {
  std::vector<std::pair<std::size_t, std::size_t>> batches;
  for (std::size_t from = 0; from < v.size();) {
    const std::size_t count = std::min<std::size_t>(1 + random() % 700, v.size() - from);
    batches.emplace_back(from, count);
    from += count;
  }
  std::ranges::shuffle(batches, random);
  std::vector<std::unique_ptr<Calibrator>> parts(1 + random() % 6);
  for (auto& part : parts) part = make_calibrator(method, options);
  for (const auto& [from, count] : batches)
    parts[random() % parts.size()]->collect(tensor({v.begin() + static_cast<std::ptrdiff_t>(from),
                                                    v.begin() + static_cast<std::ptrdiff_t>(from + count)}));
  while (parts.size() > 1) {
    std::swap(parts[random() % parts.size()], parts.back());
    parts[random() % (parts.size() - 1)]->merge(*parts.back());
    parts.pop_back();
  }
  return std::move(parts.front());
}

TEST(CalibratorMerge, IsBitwiseInvariantToSplitAndOrder) {
  std::mt19937 random(11);
  for (const std::string_view method : {"max", "one_pass", "one_pass_entropy", "one_pass_mse"})
    for (int trial = 0; trial < 25; ++trial) {
      const CalibratorOptions options{.num_bins = 130, .skip_zeros = trial % 2 == 0};
      const auto v = magnitudes(2000 + random() % 3000, random());
      const auto whole = make_calibrator(method, options);
      whole->collect(tensor(v));
      const auto merged = split_and_merged(v, method, options, random);
      EXPECT_TRUE(bitwise_equal(merged->state_dict(), whole->state_dict())) << method << trial;
      EXPECT_EQ(merged->minimum(), whole->minimum());
      EXPECT_TRUE(bitwise_equal(merged->compute_amax(), whole->compute_amax()));
    }
}

TEST(CalibratorMerge, IsAssociative) {
  std::vector<std::unique_ptr<Calibrator>> left, right;
  for (std::uint32_t k = 0; k < 3; ++k)
    for (auto* side : {&left, &right}) {
      side->push_back(make_calibrator("one_pass"));
      side->back()->collect(tensor(magnitudes(1000, k)).to(DType::bf16));
    }
  left[0]->merge(*left[1]);
  left[0]->merge(*left[2]);
  right[1]->merge(*right[2]);
  right[0]->merge(*right[1]);
  EXPECT_TRUE(bitwise_equal(left[0]->state_dict(), right[0]->state_dict()));
}

TEST(CalibratorMerge, KeepsAxesAndAcceptsEmptyCalibrators) {
  MaxCalibrator a(1), b(1), none(1), whole(1);
  const Tensor first = tensor(magnitudes(60, 1)).reshape({2, 3, 10}),
               second = tensor(magnitudes(60, 2)).reshape({2, 3, 10});
  a.collect(first);
  b.collect(second);
  whole.collect(second);
  whole.collect(first);
  none.merge(a);
  none.merge(b);
  none.merge(MaxCalibrator(1));
  EXPECT_TRUE(bitwise_equal(none.state_dict(), whole.state_dict()));
  MaxCalibrator nothing(1);
  nothing.merge(MaxCalibrator(1));
  EXPECT_TRUE(nothing.empty());
}

/// Expects the merge to be refused with the text, and neither calibrator to change.
void expect_error(Calibrator& a, const Calibrator& b, const std::string& text) {
  const StateDict before = a.state_dict(), other = b.state_dict();
  EXPECT_THAT([&] { a.merge(b); }, ThrowsMessage<ArgumentError>(HasSubstr(text)));
  EXPECT_TRUE(bitwise_equal(a.state_dict(), before));
  EXPECT_TRUE(bitwise_equal(b.state_dict(), other));
}

std::unique_ptr<Calibrator> collected(std::string_view method, const CalibratorOptions& options = {}) {
  auto calibrator = make_calibrator(method, options);
  calibrator->collect(tensor(magnitudes(600, 5)).reshape({2, 3, 100}));
  return calibrator;
}

TEST(CalibratorMerge, RejectsIncompatibleCalibrators) {
  const auto one_pass = collected("one_pass"), max = collected("max", {.axis = 1});
  for (const std::string_view method : {"moving_average", "histogram", "percentile", "entropy", "mse"})
    expect_error(*collected(method), *collected(method), "depends on the order of its batches");
  expect_error(*one_pass, *max, "'one_pass' and 'max' do not merge");
  expect_error(*one_pass, *collected("one_pass_mse"), "of one method");
  expect_error(*one_pass, *collected("one_pass", {.num_bins = 100}), "2048 bins");
  expect_error(*one_pass, *collected("one_pass", {.skip_zeros = true}), "skip_zeros");
  expect_error(*max, *collected("max"), "different axes");
  MaxCalibrator narrow(1), half(1);
  narrow.collect(Tensor::zeros({2, 7, 4}));
  expect_error(*max, narrow, "use batches of one shape");
  half.collect(Tensor::zeros({2, 3, 100}).to(DType::f16));
  expect_error(*max, half, "use one dtype for both");
}

TEST(CalibratorMerge, RejectsCountsAbove2To62) {
  const auto a = collected("one_pass", {.num_bins = 2});
  StateDict state = a->state_dict();
  state.set("counts", Tensor::from(std::vector<std::int64_t>{0, 0, 0, std::int64_t{1} << 62}, {4}));
  const auto full = make_calibrator("one_pass", {.num_bins = 2});
  full->load_state(state);
  expect_error(*a, *full, "2^62");
}

}  // namespace
}  // namespace fq::calibrator_merge_test
