#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "export/onnx_model.h"
#include "fakequant/core/error.h"
#include "fakequant/core/ops/ops.h"
#include "fakequant/core/tape.h"
#include "fakequant/export/onnx/exporter.h"
#include "fakequant/export/onnx/import.h"
#include "fakequant/layers/model/model_file.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"
#include "layers/networks.h"
#include "thrown.h"

namespace fq::several_inputs_test {
namespace {

using test::Ints;
using test::OnnxGraph;
using test::random_tensor;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// y = W x + rows of a table by ids, where mask is not 0: of three inputs of three types.
OnnxModel three_input_model(Ints mask = {-1, 2}) {
  OnnxGraph graph({-1, 4});
  OnnxValueInfo info{"mask", OnnxKind::boolean, DType::u8, true, {}};
  for (const auto size : mask) info.shape.push_back({size, ""});
  graph.model.inputs.push_back(info);
  graph.model.inputs.push_back({"a id", OnnxKind::tensor, DType::i32, true, {{-1, ""}}});
  graph.fixed("w", random_tensor({4, 2}, -1, 1))
      .fixed("table", random_tensor({9, 2}, -1, 1, 3))
      .number("zero", 0);
  graph.node("MatMul", {"x", "w"}, "p").node("Gather", {"table", "a id"}, "t").node("Add", {"p", "t"}, "s");
  graph.node("Where", {"mask", "s", "zero"}, "y");
  return graph.model;
}

Tensor run_rows(Module& network, const Tensor& rows) {
  const NoGrad no_grad;
  network.eval();
  return network(Variable(rows)).tensor();
}

TEST(SeveralInputs, ArePartsOfEachRow) {
  const auto imported = import_onnx(three_input_model());
  EXPECT_EQ(imported.sample_shape, (Shape{7}));
  const auto network = imported.build();
  const Tensor y = run_rows(*network, Tensor::from({1.0F, 0.0F, 0.0F, 0.0F, 1.0F, 0.0F, 8.0F}, {1, 7}));
  const auto w = random_tensor({4, 2}, -1, 1).to_vector<float>(),
             table = random_tensor({9, 2}, -1, 1, 3).to_vector<float>();
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{w[0] + table[16], 0}));
  EXPECT_EQ(run_rows(*network, Tensor::from<std::int64_t>({1, 0, 0, 0, 1, 0, 8}, {1, 7})).to_vector<float>(),
            y.to_vector<float>());
}

TEST(SeveralInputs, AreInputsOfTheExport) {
  const auto network = import_onnx(three_input_model()).build();
  network->eval();
  const OnnxModel file = export_onnx(*network, {7});
  ASSERT_EQ(file.inputs.size(), 3U);
  const auto is = [&](std::size_t i, const char* name, OnnxKind kind, DType dtype, std::size_t rank) {
    const auto& input = file.inputs[i];
    EXPECT_TRUE(input.name == name && input.kind == kind && input.shape.size() == rank) << input.name;
    EXPECT_TRUE(kind == OnnxKind::boolean || input.dtype == dtype) << input.name;
    EXPECT_EQ(input.shape[0].size, -1) << input.name;
  };
  is(0, "x", OnnxKind::tensor, DType::f32, 2);
  is(1, "mask", OnnxKind::boolean, DType::u8, 2);
  is(2, "a id", OnnxKind::tensor, DType::i32, 1);
  const Tensor rows = Tensor::from({1.0F, 2.0F, 3.0F, 4.0F, 0.0F, 1.0F, 5.0F}, {1, 7});
  EXPECT_EQ(run_rows(*import_onnx(file).build(), rows).to_vector<float>(),
            run_rows(*network, rows).to_vector<float>());
}

TEST(SeveralInputs, HaveTheBatchFirst) {
  EXPECT_THAT(
      test::error_message([] {
        (void)import_onnx(three_input_model({2, 2}));
      }),
      AllOf(HasSubstr("3 inputs"), HasSubstr("'mask' bool [2, 2]"),
            HasSubstr("the batch of 'x' is 'n', the batch of 'mask' 2"), HasSubstr("--fix-input mask=1")));
  OnnxModel permuted = three_input_model({2, -1});
  permuted.inputs[0].shape[0].symbol = permuted.inputs[1].shape[1].symbol = "n";
  EXPECT_THAT(test::error_message([&] { (void)import_onnx(permuted); }),
              HasSubstr("'mask' has it on axis 1"));
  OnnxModel text = three_input_model();
  text.inputs[1].kind = OnnxKind::text;
  EXPECT_THAT(test::error_message([&] { (void)import_onnx(text); }),
              HasSubstr("'mask' is not a tensor of numbers"));
}

TEST(SeveralInputs, AcceptASizeForDynamicAxes) {
  OnnxModel open = three_input_model({-1, -1});
  ImportOptions options;
  EXPECT_THAT(test::error_message([&] { (void)import_onnx(open, options); }), HasSubstr("'mask' is"));
  options.sample_shape = {2};
  EXPECT_EQ(import_onnx(open, options).sample_shape, (Shape{7}));
}

constexpr const char* kTwo = R"({"name": "two", "nodes": [
  {"name": "left", "type": "input_part", "options": {"begin": 0, "shape": [1, 4, 4], "name": "left"}},
  {"name": "right", "type": "input_part", "options": {"begin": 16, "shape": [1, 4, 4], "name": "right"}, "inputs": ["input"]},
  {"name": "a", "type": "conv2d", "options": {"out_channels": 2, "kernel": 3}, "inputs": ["left"]},
  {"name": "b", "type": "conv2d", "options": {"out_channels": 2, "kernel": 3}, "inputs": ["right"]},
  {"name": "rows", "type": "global_avg_pool", "inputs": ["a"]},
  {"name": "others", "type": "global_avg_pool", "inputs": ["b"]},
  {"name": "sum", "type": "sub", "inputs": ["rows", "others"]}]})";

std::shared_ptr<Module> parse_network(std::string text) {
  return build_model(ModelSpec::parse(text), {32}, 0);
}

TEST(SeveralInputs, AcceptSizesByName) {
  OnnxModel model = three_input_model({-1, -1});
  model.inputs[0].shape[1] = {-1, ""};
  const auto sizes = [&](const std::map<std::string, Shape>& shapes) {
    return test::error_message([&] { (void)import_onnx(model, {.input_shapes = shapes}); });
  };
  EXPECT_EQ(import_onnx(model, {.input_shapes = {{"x", {4}}, {"mask", {2}}}}).sample_shape, (Shape{7}));
  EXPECT_EQ(import_onnx(model, {.sample_shape = {4}, .input_shapes = {{"mask", {2}}}}).sample_shape,
            (Shape{7}));
  EXPECT_THAT(sizes({{"x", {4}}}), HasSubstr("the input 'mask' is"));
  EXPECT_THAT(sizes({{"x", {4}}, {"mask", {2}}, {"other", {2}}}), HasSubstr("no input 'other'"));
  EXPECT_THAT(sizes({{"x", {4, 4}}, {"mask", {2}}}), HasSubstr("[4, 4] does not fit"));
}

TEST(SeveralInputs, HaveTheirOwnQuantizers) {
  const auto network = parse_network(kTwo);
  (void)quantize(*network, QuantConfig::preset("int8"), {1, 32});
  EXPECT_NE(&network->at("a.input_quantizer"), &network->at("b.input_quantizer"));
}

TEST(SeveralInputs, CoverTheRowInOrder) {
  const auto error_text = [](const std::string& from, const std::string& to) {
    std::string text = kTwo;
    text.replace(text.find(from), from.size(), to);
    const auto network = parse_network(text);
    network->eval();
    return test::error_message([&] { (void)export_onnx(*network, {32}); });
  };
  EXPECT_THAT(error_text(R"("name": "right"})", R"("name": "left"})"), HasSubstr("are called 'left'"));
  EXPECT_THAT(error_text(R"("begin": 16)", R"("begin": 15)"), HasSubstr("'right' begins with element 15"));
  EXPECT_THAT(error_text(R"("begin": 16, "shape": [1, 4, 4])", R"("begin": 16, "shape": [1, 5, 3])"),
              HasSubstr("31 elements are parts of rows of 32"));
  EXPECT_THAT(test::error_message([] {
                constexpr std::int64_t huge = std::int64_t{1} << 32;
                (void)ops::input_part(Tensor::zeros({2, 7}), {.shape = {huge, huge}, .name = "x"});
              }),
              HasSubstr("not within rows of 7"));
  EXPECT_THAT(test::error_message([] {
                (void)ops::input_part(Tensor::zeros({2, 7}), {.begin = 4, .shape = {2, 2}, .name = "x"});
              }),
              HasSubstr("not within rows of 7"));
  EXPECT_THAT(test::error_message([] {
                (void)ops::input_part(Tensor::zeros({2, 7}), {.name = "x", .type = "u4"});
              }),
              HasSubstr("the type 'u4'"));
}

}  // namespace
}  // namespace fq::several_inputs_test
