#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "export/onnx_model.h"
#include "fakequant/core/error.h"
#include "fakequant/core/tape.h"
#include "fakequant/export/onnx/import.h"
#include "layers/networks.h"

namespace fq::import_recurrent_test {
namespace {

using test::OnnxGraph;
using test::random_tensor;
using ::testing::HasSubstr;

/// A recurrent node over 5 steps of 3 features with state width 2, and optional inputs after its weights.
OnnxModel recurrent(const std::string& op, test::Attributes attributes, const Tensor& lengths = {},
                    const Tensor& peepholes = {}) {
  const std::int64_t gates = op == "LSTM" ? 4 : op == "GRU" ? 3 : 1;
  attributes.emplace_back("hidden_size", std::int64_t{2});
  if (op == "GRU") attributes.emplace_back("linear_before_reset", std::int64_t{1});
  OnnxGraph graph({-1, 5, 3});
  graph.node("Transpose", {"x"}, "steps", {{"perm", std::vector<std::int64_t>{1, 0, 2}}})
      .fixed("w", random_tensor({1, gates * 2, 3}, -1, 1, 2))
      .fixed("r", random_tensor({1, gates * 2, 2}, -1, 1, 3));
  if (lengths.defined()) graph.fixed("lengths", lengths);
  if (peepholes.defined()) graph.fixed("p", peepholes);
  std::vector<std::string> inputs{"steps", "w", "r", "", lengths.defined() ? "lengths" : ""};
  if (peepholes.defined()) inputs.insert(inputs.end(), {"", "", "p"});
  graph.node(op, inputs, "out", std::move(attributes))
      .ints("axis", {1})
      .node("Squeeze", {"out", "axis"}, "way")
      .node("Transpose", {"way"}, "y", {{"perm", std::vector<std::int64_t>{1, 0, 2}}});
  return graph.model;
}

std::string error_text(const OnnxModel& model) {
  try {
    (void)import_onnx(model);
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "nothing was refused";
}

Tensor run(const OnnxModel& model) {
  const NoGrad no_grad;
  const auto network = import_onnx(model).build();
  network->eval();
  return (*network)(Variable(random_tensor({2, 5, 3}, -1, 1))).tensor();
}

Tensor lengths(std::vector<std::int64_t> values) {
  const auto size = static_cast<std::int64_t>(values.size());
  return Tensor::from(values, {size}).to(DType::i32);
}

TEST(OnnxImportRecurrent, AcceptsAttributesWithoutEffect) {
  for (const char* op : {"LSTM", "GRU", "RNN"}) {
    const Tensor plain = run(recurrent(op, {}));
    EXPECT_EQ(plain.shape(), (Shape{2, 5, 2}));
    EXPECT_TRUE(bitwise_equal(run(recurrent(op, {}, lengths({5, 5}))), plain)) << op;
  }
  EXPECT_TRUE(
      bitwise_equal(run(recurrent("LSTM", {}, {}, Tensor::zeros({1, 6}))), run(recurrent("LSTM", {}))));
  using Names = std::vector<std::string>;
  EXPECT_TRUE(bitwise_equal(run(recurrent("LSTM", {{"activations", Names{"Sigmoid", "Tanh", "Tanh"}}})),
                            run(recurrent("LSTM", {}))));
  EXPECT_TRUE(
      bitwise_equal(run(recurrent("RNN", {{"activations", Names{"Tanh"}}})), run(recurrent("RNN", {}))));
  const auto relu = run(recurrent("RNN", {{"activations", Names{"Relu"}}})).to_vector<float>();
  EXPECT_GE(*std::ranges::min_element(relu), 0);
}

TEST(OnnxImportRecurrent, RejectsUnsupportedOptionsByName) {
  using Names = std::vector<std::string>;
  EXPECT_THAT(error_text(recurrent("GRU", {}, lengths({5, 3}))), HasSubstr("a sequence has 3 of 5 steps"));
  EXPECT_THAT(error_text(recurrent("LSTM", {}, {}, Tensor::full({1, 6}, 0.5))), HasSubstr("peepholes"));
  EXPECT_THAT(error_text(recurrent("LSTM", {{"clip", 3.0f}})), HasSubstr("'clip'"));
  EXPECT_THAT(error_text(recurrent("LSTM", {{"input_forget", std::int64_t{1}}})),
              HasSubstr("'input_forget'"));
  EXPECT_THAT(error_text(recurrent("GRU", {{"activations", Names{"HardSigmoid", "Tanh"}}})),
              HasSubstr("its activations are HardSigmoid, Tanh: layers support Sigmoid, Tanh"));
  EXPECT_THAT(error_text(recurrent("RNN", {{"activations", Names{"Affine"}}})), HasSubstr("Tanh or Relu"));
  EXPECT_THAT(error_text(recurrent("RNN", {{"layout", std::int64_t{1}}})),
              HasSubstr("its input is [5, N, 3]: [N, steps, features] is needed"));
}

}  // namespace
}  // namespace fq::import_recurrent_test
