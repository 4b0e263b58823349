#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "core/operator_run.h"
#include "cuda_device.h"
#include "fakequant/core/backend/capture.h"
#include "fakequant/core/random.h"
#include "fakequant/core/trace.h"

namespace fq::cuda_operators_test {
namespace {

using namespace fq::test;

std::string case_name(const OperatorCase& tested) {
  return tested.op + (tested.variant.empty() ? "" : "_" + tested.variant);
}

/// Operators that use only + - * / in one order, or move elements, are exact. The others call exp and similar
/// functions, or sum in another order.
bool is_exact(const OperatorCase& tested) {
  static const std::set<std::string> names{"relu",
                                           "relu6",
                                           "clip",
                                           "leaky_relu",
                                           "hard_sigmoid",
                                           "hard_swish",
                                           "add",
                                           "sub",
                                           "multiply",
                                           "scale",
                                           "neg",
                                           "max_pool2d",
                                           "avg_pool2d",
                                           "max_pool1d",
                                           "avg_pool1d",
                                           "reshape",
                                           "flatten",
                                           "transpose",
                                           "concat",
                                           "slice",
                                           "embedding",
                                           "dropout",
                                           "quantize",
                                           "fake_quantize",
                                           "attach_codes",
                                           "attach_joined_codes",
                                           "global_avg_pool2d"};
  static const std::set<std::string> sums{"add_channels", "add_first", "sub_channels", "multiply_pixels",
                                          "multiply_outer"};  // gradients are sums
  return names.contains(tested.op) && !sums.contains(case_name(tested));
}

/// f64: a few roundings of 1e-16 on values up to some tens, sums of some hundreds of them.
double case_tolerance(const OperatorCase& tested, DType dtype) {
  if (is_exact(tested)) return 0.0;
  return dtype == DType::f64 ? 1e-12 : tested.tolerance;
}

std::vector<Tensor> moved(const std::vector<Tensor>& tensors, Device device, Layout layout) {
  std::vector<Tensor> out;
  for (const auto& t : tensors) out.push_back(t.to(t.rank() == 4 ? layout : t.layout()).to(device));
  return out;
}

class CudaOperator : public testing::TestWithParam<OperatorCase> {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
  [[nodiscard]] const OperatorCase& op() const { return GetParam(); }
};

/// Describes the difference between cuda:0 and the CPU; empty if there is none.
std::string difference_from_cpu(const OperatorCase& tested, DType dtype, Layout layout) {
  const auto inputs = make_inputs(tested, dtype);
  const auto found = run_case(tested, moved(inputs, Device::cuda(), layout));
  const auto expected = run_case(tested, moved(inputs, Device::cpu(), layout));
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!found[i].defined()) continue;
    EXPECT_EQ(found[i].device(), Device::cuda()) << i;
    EXPECT_EQ(found[i].dtype(), expected[i].dtype()) << i;
  }
  EXPECT_EQ(found[0].layout(), expected[0].layout());
  return difference(found, expected, case_tolerance(tested, dtype));
}

TEST_P(CudaOperator, AgreesWithTheCpu) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const Layout layout : {Layout::row_major, Layout::channels_last})
      EXPECT_EQ(difference_from_cpu(op(), dtype, layout), "") << name(dtype) << ' ' << name(layout);
}

TEST_P(CudaOperator, GradientsMatchCentralDifferences) {
  GradientCheck options;
  options.surrogate = op().surrogate;
  const auto inputs = moved(make_inputs(op(), DType::f64), Device::cuda(), Layout::row_major);
  EXPECT_EQ(check_gradients(op().apply, inputs, differentiable_inputs(op()), options), "");
}

TEST_P(CudaOperator, DoesNotSynchronize) {
  const auto variables =
      make_leaves(op(), moved(make_inputs(op(), DType::f32), Device::cuda(), Layout::row_major));
  const auto before = waits_so_far();
  const Variable y = op().apply(variables);
  y.backward(Tensor::full(y.shape(), 1.0, DType::f32, Device::cuda()));
  EXPECT_EQ(waits_so_far(), before);
}

TEST_P(CudaOperator, EmptyBatchGivesEmptyOutputs) {
  if (!op().empty_batch) return;
  const auto inputs = moved(make_inputs(op(), DType::f32, true), Device::cuda(), Layout::row_major);
  for (const auto& tensor : run_case(op(), inputs)) {
    if (!tensor.defined()) continue;
    for (const float v : tensor.to_vector<float>()) EXPECT_TRUE(std::isfinite(v));
  }
}

TEST_P(CudaOperator, IsDeterministic) {
  const auto inputs = moved(make_inputs(op(), DType::f32), Device::cuda(), Layout::row_major);
  const auto a = run_case(op(), inputs), b = run_case(op(), inputs);
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(!a[i].defined() || bitwise_equal(a[i], b[i])) << i;
}

/// A captured step may not copy from the host or wait: an operator that makes a table keeps it on the device.
TEST_P(CudaOperator, CaptureMatchesTheCallBitwise) {
  const auto inputs = moved(make_inputs(op(), DType::f32), Device::cuda(), Layout::row_major);
  detail::Capture capture(Device::cuda());
  std::vector<Tensor> captured;
  capture.add([&] { captured = run_case(op(), inputs); });
  {
    const RandomScope step(3, 14);  // of the cases that draw numbers: a launch draws for the step it is in
    capture.launch(0);
  }
  const auto called = run_case(op(), inputs);
  for (std::size_t i = 0; i < called.size(); ++i)
    EXPECT_TRUE(!called[i].defined() || bitwise_equal(captured[i], called[i])) << i;
}

std::vector<std::string> traced_names(const OperatorCase& tested, Device device) {
  Recorder recorder;
  Variable y;
  {
    const RecordScope scope(recorder);
    y = tested.apply(make_leaves(tested, moved(make_inputs(tested, DType::f32), device, Layout::row_major)));
  }
  std::vector<std::string> out;
  for (const auto& node : recorder.finish(y).nodes) out.push_back(node.op);
  return out;
}

TEST_P(CudaOperator, TracesLikeTheCpu) {
  EXPECT_EQ(traced_names(op(), Device::cuda()), traced_names(op(), Device::cpu()));
}

INSTANTIATE_TEST_SUITE_P(All, CudaOperator, testing::ValuesIn(operator_cases()),
                         [](const auto& tested) { return case_name(tested.param); });

}  // namespace
}  // namespace fq::cuda_operators_test
