#include "fakequant/export/onnx/import.h"

#include <limits>
#include <nlohmann/json.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "export/onnx_model.h"
#include "fakequant/core/error.h"
#include "fakequant/core/ops/ops.h"
#include "fakequant/core/tape.h"
#include "layers/networks.h"

namespace fq::import_test {
namespace {

using test::Ints;
using test::OnnxGraph;
using test::random_tensor;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kHuge = std::int64_t{1} << 62;

Tensor run(const OnnxModel& model, const Tensor& x) {
  const NoGrad no_grad;
  const auto network = import_onnx(model).build();
  network->eval();
  return (*network)(Variable(x)).tensor();
}

void expect_near(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  const auto x = a.to_vector<float>(), y = b.to_vector<float>();
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_NEAR(x[i], y[i], 1e-5) << i;  // a few roundings of values near 1
}

std::vector<std::string> types(const OnnxModel& model) {
  std::vector<std::string> out;
  const auto imported = import_onnx(model);
  for (const auto& node : imported.spec.nodes()) out.push_back(node.type);
  return out;
}

std::string error_text(const OnnxModel& model, const ImportOptions& options = {}) {
  try {
    (void)import_onnx(model, options);
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "nothing was refused";
}

/// One node of that operator between x and y.
OnnxModel one(const Ints& input, const std::string& op, test::Attributes attributes = {}) {
  return OnnxGraph(input).node(op, {"x"}, "y", std::move(attributes)).model;
}

OnnxModel conv(const Ints& input, const Shape& weight, test::Attributes attributes) {
  return OnnxGraph(input)
      .fixed("w", random_tensor(weight, -1, 1))
      .node("Conv", {"x", "w"}, "y", std::move(attributes))
      .model;
}

TEST(OnnxImport, GemmAcceptsAlphaBetaAndBothOrders) {
  const Tensor w = random_tensor({3, 4}, -1, 1), x = random_tensor({2, 3}, -1, 1, 2);
  const auto model = OnnxGraph({-1, 3})
                         .fixed("w", w)
                         .fixed("b", Tensor::from({1.0f, 2.0f, 3.0f, 4.0f}, {1, 4}))
                         .node("Gemm", {"x", "w", "b"}, "y", {{"alpha", 0.5f}, {"beta", 2.0f}})
                         .model;
  const Variable bias(Tensor::from({2.0f, 4.0f, 6.0f, 8.0f}));
  const Tensor expected = ops::add(ops::scale(ops::matmul(Variable(x), Variable(w)), 0.5), bias).tensor();
  expect_near(run(model, x), expected);
}

TEST(OnnxImport, UnequalPadsBecomeZeroTaps) {
  const Tensor x = random_tensor({2, 2, 7, 6}, -1, 1), w = random_tensor({3, 2, 3, 2}, -1, 1);
  const auto pad = [&](Ints pads, const char* mode) {
    test::Attributes attributes{{"strides", Ints{2, 1}}};
    if (*mode != '\0') attributes.emplace_back("auto_pad", std::string(mode));
    if (!pads.empty()) attributes.emplace_back("pads", pads);
    return conv({-1, 2, 7, 6}, w.shape(), attributes);
  };
  const auto expected = [&](std::int64_t top, std::int64_t left, std::int64_t bottom, std::int64_t right) {
    Tensor padded = Tensor::zeros({2, 2, 7 + top + bottom, 6 + left + right});
    for (std::int64_t i = 0; i < 4; ++i)
      for (std::int64_t h = 0; h < 7; ++h)
        std::copy_n(x.data<float>() + (i * 7 + h) * 6, 6,
                    padded.mutable_data<float>() + (i * padded.dim(2) + h + top) * padded.dim(3) + left);
    return ops::conv2d(Variable(padded), Variable(w), {},
                       {.stride = {2, 1}, .padding = {}, .dilation = {}, .groups = 1})
        .tensor();
  };
  expect_near(run(pad({0, 1, 1, 0}, ""), x), expected(0, 1, 1, 0));
  expect_near(run(pad({2, 0, 1, 1}, "NOTSET"), x), expected(2, 0, 1, 1));
  expect_near(run(pad({}, "SAME_UPPER"), x), expected(1, 0, 1, 1));
  expect_near(run(pad({}, "SAME_LOWER"), x), expected(1, 1, 1, 0));
  expect_near(run(pad({}, "VALID"), x), expected(0, 0, 0, 0));
  const auto padded = OnnxGraph({-1, 2, 7, 6})
                          .fixed("w", w)
                          .ints("p", {0, 0, 0, 1, 0, 0, 1, 0})
                          .node("Pad", {"x", "p"}, "z", {{"mode", std::string("constant")}})
                          .node("Conv", {"z", "w"}, "y", {{"strides", Ints{2, 1}}})
                          .model;
  expect_near(run(padded, x), expected(0, 1, 1, 0));
}

TEST(OnnxImport, ClipBecomesTheNarrowestActivation) {
  const auto clip = [](const std::vector<std::string>& inputs) {
    return types(OnnxGraph({-1, 4})
                     .number("zero", 0)
                     .number("six", 6)
                     .number("two", 2)
                     .node("Clip", inputs, "y")
                     .model)
        .at(0);
  };
  EXPECT_EQ(clip({"x", "zero", "six"}), "relu6");
  EXPECT_EQ(clip({"x", "zero"}), "relu");
  EXPECT_EQ(clip({"x", "zero", "two"}), "clip");
  EXPECT_EQ(clip({"x", "", "six"}), "clip");
  auto old = one({-1, 4}, "Clip", {{"min", 0.0f}, {"max", 6.0f}});
  old.opset = 6;
  EXPECT_EQ(types(old).at(0), "relu6");
}

TEST(OnnxImport, WholeImageMeansBecomeGlobalPools) {
  using Types = std::vector<std::string>;
  const auto mean = [](Ints axes, std::int64_t keep) {
    return types(OnnxGraph({-1, 3, 4, 5})
                     .ints("a", axes)
                     .node("ReduceMean", {"x", "a"}, "y", {{"keepdims", keep}})
                     .model);
  };
  EXPECT_EQ(mean({2, 3}, 1), Types{"global_avg_pool"});
  EXPECT_EQ(mean({-1, -2}, 0), (Types{"global_avg_pool", "flatten"}));
  EXPECT_EQ(types(one({1, 3, 4, 5}, "AveragePool", {{"kernel_shape", Ints{4, 5}}})),
            Types{"global_avg_pool"});
  EXPECT_EQ(types(one({1, 3, 4, 5}, "GlobalMaxPool")), Types{"max_pool"});
  EXPECT_EQ(mean({1, 2}, 1), Types{"mean"});
  EXPECT_THAT(
      error_text(OnnxGraph({-1, 3, 4, 5}).ints("a", {0, 2}).node("ReduceMean", {"x", "a"}, "y").model),
      HasSubstr("it mixes samples: axis 0 is one of its axes"));
}

TEST(OnnxImport, ResolvesComputedReshapes) {
  const auto model = OnnxGraph({-1, 3, 4, 5})
                         .number("unused", 1)
                         .ints("zero", {0})
                         .ints("rest", {-1})
                         .node("Shape", {"x"}, "s")
                         .node("Gather", {"s", "zero"}, "n")
                         .node("Concat", {"n", "rest"}, "to", {{"axis", std::int64_t{0}}})
                         .node("Reshape", {"x", "to"}, "y")
                         .model;
  EXPECT_EQ(types(model), std::vector<std::string>{"flatten"});
  EXPECT_EQ(import_onnx(model).output_shape, Shape{60});
}

TEST(OnnxImport, GeneralizesAFixedBatchInAReshape) {
  for (const std::int64_t batch : {1, 8}) {
    const auto model =
        OnnxGraph({batch, 3, 4}).ints("to", {batch, 2, 6}).node("Reshape", {"x", "to"}, "y").model;
    EXPECT_EQ(run(model, random_tensor({5, 3, 4}, -1, 1)).shape(), (Shape{5, 2, 6}));
  }
}

TEST(OnnxImport, NumbersLayersWithEqualNames) {
  OnnxGraph graph({-1, 4});
  for (int i = 0; i < 16384; ++i)
    graph.node("Relu", {i == 0 ? "x" : "v" + std::to_string(i - 1)},
               i == 16383 ? "y" : "v" + std::to_string(i));
  EXPECT_EQ(import_onnx(graph.model).spec.nodes().back().name, "relu_16383");
  graph.model.outputs[0].name = "z";
  EXPECT_THAT(error_text(graph.node("Relu", {"y"}, "z").model), HasSubstr("more than 16384 layers"));
}

TEST(OnnxImport, UsesModulePathsAsNames) {
  OnnxGraph graph({-1, 4});
  graph.fixed("block.0.fc.weight", random_tensor({4, 4}, -1, 1));
  for (const char* to : {"a", "b"}) graph.node("Relu", {to == std::string("a") ? "x" : "a"}, to);
  graph.node("MatMul", {"b", "block.0.fc.weight"}, "c").node("Add", {"c", "x"}, "d").node("Tanh", {"d"}, "y");
  const char* names[] = {"/block/block.0/act/Relu", "/block/block.0/Relu", "node_17", "/block/block.0/Add",
                         "/a b.c/Tanh"};
  for (std::size_t i = 0; i < 5; ++i) graph.model.nodes[i].name = names[i];
  std::vector<std::string> found;
  const auto imported = import_onnx(graph.model);
  for (const auto& node : imported.spec.nodes()) found.push_back(node.name);
  EXPECT_EQ(found,
            (std::vector<std::string>{"block_0_act", "block_0_relu", "block_0_fc", "block_0_add", "a_b_c"}));
  EXPECT_TRUE(imported.state.contains("parameters/block_0_fc.weight"));
}

TEST(OnnxImport, PassThroughGraphIsAnIdentity) {
  EXPECT_EQ(types(one({-1, 4}, "Identity")), std::vector<std::string>{"identity"});
}

TEST(OnnxImport, ReportsAllUnsupportedOperatorsAtOnce) {
  auto graph = OnnxGraph({-1, 4}).number("two", 2);
  graph.node("Scan", {"x"}, "a")
      .node("Scan", {"a"}, "b")
      .node("ScatterElements", {"b", "two"}, "c")
      .node("ScatterElements", {"x", "two"}, "d");
  graph.node("Add", {"c", "d"}, "e").node("Fused", {"e"}, "y");
  graph.model.nodes.back().domain = "com.example";
  graph.node("Resize", {"x"}, "nobody reads it");
  EXPECT_THAT(error_text(graph.model),
              AllOf(HasSubstr("not supported: Scan (2: 'a', 'b'), ScatterElements (2: 'c', 'd'), "
                              "com.example.Fused (1: 'y')"),
                    HasSubstr("torch.cat"), HasSubstr("other domains")));
  const auto quantized = OnnxGraph({-1, 4}).number("s", 1).node("QuantizeLinear", {"x", "s"}, "y").model;
  EXPECT_THAT(error_text(quantized),
              AllOf(HasSubstr("QuantizeLinear (1: 'y')"), HasSubstr("the checkpoint")));
}

/// Also after another unsupported node, and next to nodes with wrong attributes. Problems that follow only
/// from a guess are not reported.
TEST(OnnxImport, ReportsAllMissingItemsInOneMessage) {
  auto graph = OnnxGraph({-1, 2, 8, 8}).number("two", 2).fixed("w", random_tensor({4, 2, 3, 3}, -1, 1));
  graph.node("Conv", {"x", "w"}, "wide", {{"group", kHuge}})
      .node("Resize", {"x"}, "resized")
      .node("Mul", {"resized", "two"}, "scaled")
      .node("Conv", {"scaled", "w"}, "conv")
      .node("Flatten", {"conv"}, "rows")
      .fixed("v", random_tensor({7, 3}, -1, 1))
      .node("Gemm", {"rows", "v"}, "gemm")
      .node("Mul", {"gemm", "two"}, "last")
      .node("Scan", {"wide"}, "lstm")
      .node("Concat", {"last", "lstm"}, "y", {{"axis", std::int64_t{1}}});
  const std::string message = error_text(graph.model);
  EXPECT_THAT(message, AllOf(HasSubstr("Scan (1: 'lstm')"), HasSubstr("'resized' (Resize): it has neither"),
                             HasSubstr("node 'wide' (Conv): its attribute 'group'")));
  EXPECT_THAT(message, Not(HasSubstr("gemm'")));
  EXPECT_THAT(message, Not(HasSubstr("\n")));
}

TEST(OnnxImport, RejectsMismatchedInputsAndOutputs) {
  EXPECT_THAT(error_text(one({-1, 3, -1, 8}, "Relu")),
              HasSubstr("['n', 3, 'n', 8]: use the shape of one sample"));
  EXPECT_EQ(import_onnx(one({-1, 3, -1, 8}, "Relu"), {{3, 4, 8}, "net"}).output_shape, (Shape{3, 4, 8}));
  EXPECT_THAT(error_text(one({-1, 3, 8, 8}, "Relu"), {{1, 8, 8}}), HasSubstr("[1, 8, 8] does not fit"));
  EXPECT_THAT(error_text(one({-1, 3, 8, 8}, "Relu"), {{8, 8}}), HasSubstr("[8, 8] does not fit"));
  EXPECT_THAT(error_text(one({}, "Relu")), HasSubstr("up to 7 axes"));
  const auto numbers = import_onnx(one({-1}, "Relu"));
  EXPECT_EQ(numbers.sample_shape, Shape{1});
  EXPECT_EQ(numbers.output_shape, Shape{});
  EXPECT_THAT(error_text(one({-1, 0}, "Relu")), HasSubstr("it is empty"));
  EXPECT_THAT(error_text(one({-1, kHuge, kHuge}, "Relu")), HasSubstr("more than"));
  EXPECT_THAT(error_text(OnnxGraph({-1, 4}, DType::u8).node("Relu", {"x"}, "y").model), HasSubstr("is u8"));
  auto two = one({-1, 4}, "Relu");
  two.inputs.push_back(two.inputs[0]);
  EXPECT_THAT(error_text(two), HasSubstr("2 inputs"));
  two = one({-1, 4}, "Relu");
  two.outputs.push_back(two.outputs[0]);
  EXPECT_THAT(error_text(two), HasSubstr("2 outputs: name the one to train, 'y', 'y'"));
  two.outputs[1].name = "z";
  EXPECT_EQ(import_onnx(two, {{}, "net", "y"}).output_shape, Shape{4});
  EXPECT_THAT(error_text(two, {{}, "net", "w"}), HasSubstr("no output 'w': its outputs are 'y', 'z'"));
  EXPECT_THAT(error_text(OnnxGraph({-1, 4}).number("n", 1).node("Identity", {"n"}, "y").model),
              HasSubstr("does not depend on the input"));
  EXPECT_THAT(error_text(OnnxGraph({-1, 4}).node("Relu", {"nothing"}, "y").model),
              HasSubstr("it reads 'nothing'"));
}

TEST(OnnxImport, RejectsInvalidAttributesAndNamesTheNode) {
  EXPECT_THAT(error_text(conv({-1, 2, 8, 8}, {4, 2, 3, 3}, {{"group", kHuge}})),
              HasSubstr("node 'y' (Conv): its attribute 'group'"));
  EXPECT_THAT(error_text(conv({-1, 2, 8, 8}, {4, 2, 3, 3}, {{"group", std::int64_t{3}}})),
              HasSubstr("2 channels"));
  EXPECT_THAT(error_text(conv({-1, 2, 8, 8}, {4, 2, 3, 3}, {{"pads", Ints{-1, 0, 0, 0}}})),
              HasSubstr("'pads' has -1"));
  EXPECT_THAT(error_text(conv({-1, 2, 8, 8}, {4, 2, 3, 3}, {{"pads", Ints{0, 0, 1 << 30, 0}}})),
              HasSubstr("it pads by 1073741824"));
  EXPECT_THAT(error_text(conv({-1, 2, 8, 8}, {4, 2, 3, 3}, {{"pads", Ints{1, 1}}})),
              HasSubstr("4 are needed"));
  EXPECT_THAT(error_text(conv({-1, 2, 8, 8}, {4, 2, 3, 3}, {{"strides", Ints{kHuge, 1}}})),
              HasSubstr("'strides'"));
  EXPECT_THAT(error_text(conv({-1, 2, 8, 8}, {4, 2, 3, 3}, {{"kernel_shape", Ints{5, 5}}})),
              HasSubstr("'kernel_shape' is [5, 5]"));
  EXPECT_THAT(error_text(conv({-1, 2, 8, 8}, {4, 2, 3, 3}, {{"group", 1.0f}})),
              HasSubstr("attribute 'group' is a float: it must be an integer"));
  EXPECT_THAT(error_text(conv({-1, 2, 8, 8}, {4, 2, 9, 9}, {})), HasSubstr("node 'y' (Conv)"));
  EXPECT_THAT(error_text(conv({-1, 2, 8, 8}, {4, 2, 3, 3, 3}, {})), HasSubstr("its input has 4 axes"));
  EXPECT_THAT(error_text(conv({-1, 2, 8, 8}, {0, 2, 3, 3}, {})), HasSubstr("no elements"));
  EXPECT_THAT(error_text(one({-1, 2, 8, 8}, "MaxPool")), HasSubstr("'kernel_shape' is missing"));
  EXPECT_THAT(error_text(one({-1, 2, 8, 8}, "MaxPool", {{"kernel_shape", Ints{kHuge, 2}}})),
              HasSubstr("'kernel_shape'"));
  EXPECT_THAT(
      error_text(one({-1, 2, 8, 8}, "MaxPool", {{"kernel_shape", Ints{2, 2}}, {"pads", Ints{0, 0, 5, 5}}})),
      HasSubstr("padding 0 and 5"));
  EXPECT_THAT(error_text(one({-1, 2, 8, 8}, "Flatten", {{"axis", std::int64_t{2}}})),
              HasSubstr("its first axis must be the batch"));
  EXPECT_THAT(error_text(one({-1, 2, 8, 8}, "Transpose", {{"perm", Ints{1, 0, 2, 3}}})),
              HasSubstr("'y' is [2, N, 8, 8]: its first axis must be the batch"));
  EXPECT_THAT(error_text(one({-1, 2, 8, 8}, "Transpose", {{"perm", Ints{1, 0, 2}}})),
              HasSubstr("[1, 0, 2] of 4"));
  EXPECT_THAT(error_text(one({-1, 4}, "LeakyRelu", {{"alpha", -1.0f}})), HasSubstr("node 'y' (LeakyRelu)"));
  EXPECT_THAT(error_text(one({-1, 4}, "LeakyRelu", {{"alpha", std::numeric_limits<float>::quiet_NaN()}})),
              HasSubstr("nan"));
}

TEST(OnnxImport, RejectsReshapesThatMixSamples) {
  const auto reshape = [](const Ints& to) {
    return OnnxGraph({-1, 3, 4}).ints("to", to).node("Reshape", {"x", "to"}, "y").model;
  };
  EXPECT_THAT(error_text(reshape({-1, 5})), HasSubstr("cannot become its shape"));
  EXPECT_THAT(error_text(reshape({-1, 4})), HasSubstr("its first axis must be the batch"));
  EXPECT_THAT(error_text(reshape({-1, -1})), HasSubstr("several"));
  EXPECT_THAT(error_text(reshape({0, -2})), HasSubstr("-2"));
  EXPECT_THAT(error_text(reshape({0, kHuge, 4, 4})), HasSubstr("2^63"));
  EXPECT_THAT(error_text(reshape({0, 0, 0, 0})), HasSubstr("it keeps axis 3 of 3"));
}

TEST(OnnxImport, BoundsAllocations) {
  const auto expand = [](const Ints& to) {
    return OnnxGraph({-1, 4})
        .number("one", 1)
        .ints("to", to)
        .node("Expand", {"one", "to"}, "b")
        .node("Add", {"x", "b"}, "y")
        .model;
  };
  EXPECT_THAT(error_text(expand({1 << 20, 1 << 20})), HasSubstr("too many"));
  EXPECT_THAT(error_text(expand({kHuge, kHuge})), HasSubstr("2^63"));
  OnnxGraph shared({-1, 512});
  shared.fixed("w", random_tensor({512, 512}, -1, 1));
  for (int i = 0; i < 40; ++i)
    shared.node("MatMul", {i == 0 ? "x" : "v" + std::to_string(i - 1), "w"},
                i == 39 ? "y" : "v" + std::to_string(i));
  EXPECT_THAT(error_text(shared.model), HasSubstr("a model may have"));
}

TEST(OnnxImport, RepeatedIndicesAreNotTheWholeAxis) {
  const auto gather = [](const Ints& places) {
    return OnnxGraph({-1, 3})
        .ints("places", places)
        .node("Gather", {"x", "places"}, "y", {{"axis", std::int64_t{1}}})
        .model;
  };
  const Tensor x = Tensor::from({1.0F, 2.0F, 3.0F}, {1, 3});
  EXPECT_EQ(run(gather({0, 0, 2}), x).to_vector<float>(), (std::vector<float>{1, 1, 3}));
  EXPECT_EQ(run(gather({0, 1, 2}), x).to_vector<float>(), (std::vector<float>{1, 2, 3}));
}

TEST(OnnxImport, SupportsGathersOfSeveralAxes) {
  const Tensor x = random_tensor({2, 3, 4}, -1, 1, 6);
  const auto v = x.to_vector<float>();
  const auto gather = OnnxGraph({-1, 3, 4})
                          .fixed("places", Tensor::from<std::int64_t>({0, 3, -1, 1}, {2, 2}))
                          .node("Gather", {"x", "places"}, "y", {{"axis", std::int64_t{2}}})
                          .model;
  const Tensor y = run(gather, x);
  EXPECT_EQ(y.shape(), (Shape{2, 3, 2, 2}));
  EXPECT_EQ(y.to_vector<float>()[4], v[4]);
  EXPECT_EQ(y.to_vector<float>()[6], v[7]);
  const auto nd = OnnxGraph({-1, 3, 4})
                      .node("Transpose", {"x"}, "turned", {{"perm", Ints{1, 2, 0}}})
                      .fixed("places", Tensor::from<std::int64_t>({2, -1, 0, 1}, {2, 2}))
                      .node("GatherND", {"turned", "places"}, "picked")
                      .node("Transpose", {"picked"}, "y", {{"perm", Ints{1, 0}}})
                      .model;
  EXPECT_EQ(run(nd, x).to_vector<float>(), (std::vector<float>{v[11], v[1], v[23], v[13]}));
}

TEST(OnnxImport, SupportsOperatorsOfSeveralLayers) {
  const Tensor x = Tensor::from({1.0F, -2.5F, 3.0F, 0.5F}, {1, 4});
  const auto sums = [](test::Attributes attributes) {
    return OnnxGraph({-1, 4})
        .number("axis", 1)
        .node("CumSum", {"x", "axis"}, "y", std::move(attributes))
        .model;
  };
  const auto with_axis = [](OnnxModel model) {
    model.initializers[0].value = Tensor::from<std::int64_t>({1}, {});
    return model;
  };
  EXPECT_EQ(run(with_axis(sums({})), x).to_vector<float>(), (std::vector<float>{1, -1.5F, 1.5F, 2}));
  EXPECT_EQ(run(with_axis(sums({{"reverse", std::int64_t{1}}})), x).to_vector<float>(),
            (std::vector<float>{2, 1, 3.5F, 0.5F}));
  EXPECT_EQ(run(with_axis(sums({{"exclusive", std::int64_t{1}}})), x).to_vector<float>(),
            (std::vector<float>{0, 1, -1.5F, 1.5F}));
  const auto product = OnnxGraph({-1, 4}).ints("axes", {1}).node("ReduceProd", {"x", "axes"}, "y").model;
  EXPECT_EQ(run(product, x).to_vector<float>(), std::vector<float>{-3.75F});
  const auto modulo = [](std::int64_t fmod) {
    return OnnxGraph({-1, 4}).number("by", 2).node("Mod", {"x", "by"}, "y", {{"fmod", fmod}}).model;
  };
  EXPECT_EQ(run(modulo(0), x).to_vector<float>(), (std::vector<float>{1, 1.5F, 1, 0.5F}));
  EXPECT_EQ(run(modulo(1), x).to_vector<float>(), (std::vector<float>{1, -0.5F, 1, 0.5F}));
}

TEST(OnnxImport, FoldsPartsOfConstants) {
  const auto model = OnnxGraph({-1, 2})
                         .fixed("w", Tensor::from({1.0F, 2.0F, 3.0F, 4.0F}, {2, 2}))
                         .node("Split", {"w"}, "first", {{"axis", std::int64_t{0}}})
                         .model;
  OnnxModel split = model;
  split.nodes[0].outputs.emplace_back("second");
  split.nodes.push_back({"Add", "y", "", {"x", "second"}, {"y"}, {}});
  EXPECT_EQ(run(split, Tensor::zeros({1, 2})).to_vector<float>(), (std::vector<float>{3, 4}));
}

/// y = x * mask + scale, with the mask of ids and a scale of no batch.
OnnxModel three_input_model() {
  OnnxGraph graph({-1, 4});
  graph.model.inputs.push_back({"mask", OnnxKind::tensor, DType::i64, true, {{-1, "n"}, {4, ""}}});
  graph.model.inputs.push_back({"scale", OnnxKind::tensor, DType::f32, true, {}});
  graph.model.inputs.push_back({"unread", OnnxKind::tensor, DType::f32, true, {{-1, "n"}, {9, ""}}});
  graph.node("Cast", {"mask"}, "weights", {{"to", std::int64_t{1}}});
  graph.node("Mul", {"x", "weights"}, "kept").node("Add", {"kept", "scale"}, "y");
  return graph.model;
}

TEST(OnnxImport, FixesInputsSharedByAllSamples) {
  const Tensor x = random_tensor({3, 4}, -1, 1, 2);
  ImportOptions options;
  options.fixed_inputs = {{"mask", Tensor::from<std::int64_t>({1, 0, 2, 1}, {4})},
                          {"scale", Tensor::scalar(0.5, DType::f64)}};
  const auto network = import_onnx(three_input_model(), options).build();
  const auto y = (*network)(Variable(x)).tensor().to_vector<float>(), v = x.to_vector<float>();
  const float mask[] = {1, 0, 2, 1};
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_FLOAT_EQ(y[i], v[i] * mask[i % 4] + 0.5F);
  options.fixed_inputs["mask"] = Tensor::scalar(1);
  options.fixed_inputs["scale"] = Tensor::scalar(0);
  expect_near((*import_onnx(three_input_model(), options).build())(Variable(x)).tensor(), x);
}

TEST(OnnxImport, NamesUnfixedInputsAndTheRemedy) {
  EXPECT_THAT(error_text(three_input_model()),
              AllOf(HasSubstr("3 inputs, 'x' f32 ['n', 4], 'mask' i64 ['n', 4], 'scale' f32 []"),
                    HasSubstr("--fix-input mask=1 scale=1"), Not(HasSubstr("unread"))));
  ImportOptions options;
  options.fixed_inputs = {{"mask", Tensor::scalar(0.5)}, {"scale", Tensor::scalar(1)}};
  EXPECT_THAT(error_text(three_input_model(), options), HasSubstr("fixed by 0.5: whole numbers are needed"));
  options.fixed_inputs["mask"] = Tensor::zeros({3});
  EXPECT_THAT(error_text(three_input_model(), options), HasSubstr("does not fit one sample of it"));
  options.fixed_inputs = {
      {"masc", Tensor::scalar(1)}, {"mask", Tensor::scalar(1)}, {"scale", Tensor::scalar(1)}};
  EXPECT_THAT(error_text(three_input_model(), options),
              HasSubstr("no input 'masc': its inputs are 'x', 'mask', 'scale'"));
  options.fixed_inputs = {
      {"x", Tensor::scalar(1)}, {"mask", Tensor::scalar(1)}, {"scale", Tensor::scalar(1)}};
  EXPECT_THAT(error_text(three_input_model(), options), HasSubstr("all inputs are fixed"));
}

TEST(OnnxImport, FixedInputShapeIncludesTheBatch) {
  OnnxGraph graph({-1, 4});
  graph.model.inputs.push_back({"start", OnnxKind::tensor, DType::f32, true, {{-1, "n"}, {2, ""}}});
  graph.node("Shape", {"start"}, "sizes").ints("first", {0}).node("Gather", {"sizes", "first"}, "batch");
  graph.ints("rest", {2, 2}).node("Concat", {"batch", "rest"}, "shape", {{"axis", std::int64_t{0}}});
  graph.node("Reshape", {"x", "shape"}, "y");
  ImportOptions options;
  options.fixed_inputs = {{"start", Tensor::scalar(0)}};
  EXPECT_EQ(import_onnx(graph.model, options).output_shape, (Shape{2, 2}));
}

}  // namespace
}  // namespace fq::import_test
