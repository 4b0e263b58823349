#include "fakequant/layers/model/model_file.h"

#include <cmath>
#include <fstream>
#include <random>
#include <sstream>

#include <gmock/gmock.h>

#include "fakequant/core/ops/operators.h"
#include "fakequant/layers/model/model_types.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/modules/linear.h"
#include "model_text.h"

namespace fq::model_file_test {
namespace {

using test::build_error;
using test::parse_error;
using ::testing::AllOf;
using ::testing::HasSubstr;

const char* const kEveryType = R"(// all layer types
{"name": "all", "nodes": [
  {"name": "c1", "type": "conv2d", "options": {"in_channels": 2, "out_channels": 6, "kernel": [3, 3], "padding": 1,
                                               "stride": 1, "dilation": 1, "groups": 2, "bias": false}},
  {"name": "b1", "type": "batch_norm", "options": {"eps": 1e-3, "momentum": 0.2}},
  {"name": "r1", "type": "relu6"},
  {"name": "i1", "type": "identity", "inputs": "r1"},
  {"name": "block", "type": "sequential", "inputs": ["r1"], "nodes": [
    {"type": "conv2d", "options": {"out_channels": 6, "kernel": 1}}, {"type": "gelu"}]},
  {"name": "inner", "type": "graph", "inputs": ["r1"], "nodes": [
    {"name": "a", "type": "silu"}, {"name": "b", "type": "tanh", "inputs": ["input"]},
    {"name": "m", "type": "multiply", "inputs": ["a", "b"]}]},
  {"name": "sum", "type": "add", "inputs": ["block", "inner"]},
  {"name": "cat", "type": "concat", "inputs": ["sum", "i1"], "options": {"axis": 1}},
  {"name": "t1", "type": "conv_transpose2d",
   "options": {"out_channels": 4, "kernel": 2, "stride": 2, "output_padding": 1}},
  {"type": "leaky_relu", "options": {"slope": 0.1}},
  {"type": "max_pool", "options": {"kernel": 2}},
  {"type": "avg_pool", "options": {"kernel": 2, "stride": 1, "padding": 1, "count_include_pad": false}},
  {"type": "clip", "options": {"low": -1, "high": 1}},
  {"type": "reshape", "options": {"shape": [4, -1]}},
  {"type": "conv1d", "options": {"out_channels": 4, "kernel": 3}},
  {"type": "transpose", "options": {"axes": [0, 2, 1]}},
  {"type": "layer_norm"},
  {"type": "reshape", "options": {"shape": [47, 2, -1]}},
  {"type": "global_avg_pool"},
  {"type": "flatten"},
  {"type": "dropout", "options": {"p": 0.25}}, {"type": "drop_path", "options": {"p": 0.1}},
  {"type": "alpha_dropout", "options": {"p": 0.1}}, {"type": "channel_dropout", "options": {"p": 0.1}},
  {"type": "linear", "options": {"out_features": "classes"}},
  {"type": "softmax"},
  {"type": "log_softmax"}
]})";

/// A network [2, 4, 6, 6] of the types for volumes, and of signals that come back from them.
const char* const kVolumes = R"({"name": "volumes", "nodes": [
  {"type": "conv3d", "options": {"out_channels": 4, "kernel": [3, 3, 2], "padding": [1, 0, 1], "groups": 2, "bias": false}},
  {"type": "batch_norm"}, {"type": "relu"}, {"type": "group_norm", "options": {"groups": 2}},
  {"type": "max_pool", "options": {"kernel": [2, 1, 2], "padding": [0, 0, 1], "dilation": [1, 1, 2], "ceil_mode": true}},
  {"type": "conv_transpose3d", "options": {"out_channels": 3, "kernel": 2, "stride": 2, "output_padding": [1, 0, 0]}},
  {"type": "avg_pool", "options": {"kernel": 2, "stride": [1, 2, 2], "padding": 1, "count_include_pad": false}},
  {"type": "adaptive_avg_pool", "options": {"size": [2, 3, 3]}}, {"type": "reshape", "options": {"shape": [3, 18]}},
  {"type": "conv1d", "options": {"out_channels": 4, "kernel": 4, "padding": "same", "dilation": 2, "padding_mode": "circular"}},
  {"type": "conv_transpose1d", "options": {"out_channels": 2, "kernel": 3, "stride": 2, "output_padding": 1}},
  {"type": "reshape", "options": {"shape": [2, 1, 2, -1]}}, {"type": "global_avg_pool"}, {"type": "flatten"},
  {"type": "linear", "options": {"out_features": "classes"}}
]})";

/// A network [2, 6, 6] of the types that are an operator each, but no plain function.
const char* const kEveryOperator = R"({"name": "operators", "nodes": [
  {"name": "x", "type": "sigmoid"}, {"name": "own", "type": "parameter", "options": {"shape": [2, 1, 1]}},
  {"name": "fixed", "type": "parameter", "options": {"shape": [2, 6, 6], "trained": false, "repeat": true},
   "inputs": ["input"]},
  {"name": "f", "type": "add", "inputs": ["x", "own"]}, {"type": "add", "inputs": ["f", "fixed"]}, {"type": "prelu", "options": {"per_channel": true}},
  {"type": "group_norm", "options": {"groups": 1}}, {"type": "instance_norm"}, {"type": "rms_norm"},
  {"type": "local_response_norm", "options": {"size": 2}},
  {"type": "pixel_unshuffle", "options": {"factor": 2}}, {"type": "glu", "options": {"axis": 1}},
  {"type": "pixel_shuffle", "options": {"factor": 2}}, {"type": "drop_block", "options": {"block": 3}}, {"type": "pad", "options": {"before": [1, 0], "after": [0, 1]}},
  {"type": "resize", "options": {"sizes": [8, 8], "mode": "linear"}}, {"type": "slice", "options": {"axis": 2, "step": 2}},
  {"type": "index_select", "options": {"axis": -1, "indices": [0, 5, -1]}}, {"name": "rows", "type": "sum", "options": {"axes": [2], "keep_axes": true}},
  {"name": "wide", "type": "expand", "options": {"shape": [-1, 4, -1]}}, {"type": "mean", "options": {"axes": [-1]}},
  {"name": "most", "type": "max", "options": {"axes": [-1]}}, {"type": "min", "options": {"axes": [2]}, "inputs": ["wide"]},
  {"name": "image", "type": "reshape", "options": {"shape": [-1, 1, 2, 3], "whole": true}, "inputs": ["wide"]},
  {"type": "adaptive_avg_pool", "options": {"size": [1, 3]}}, {"type": "reshape", "options": {"shape": [-1, 2, 3], "whole": true}},
  {"type": "lstm", "options": {"hidden_size": 4, "bidirectional": true, "layers": 2, "dropout": 0.1}}, {"type": "gru", "options": {"hidden_size": 3}},
  {"type": "positions", "options": {"context": 2}}, {"type": "attention", "options": {"heads": 1, "head_size": 2, "rotary": true, "rotary_scaling": "yarn", "rotary_factor": 2, "rotary_context": 4, "qk_norm": 1e-6, "dropout": 0.1}},
  {"name": "heads", "type": "reshape", "options": {"shape": [1, 2, 3]}},
  {"type": "scaled_dot_product_attention", "options": {"causal": true, "scale": 0.5}, "inputs": ["heads", "heads", "heads"]},
  {"type": "reshape", "options": {"shape": [2, 3]}},
  {"type": "rnn", "options": {"hidden_size": 4, "nonlinearity": "relu"}},
  {"type": "flatten"},
  {"type": "linear", "options": {"out_features": "classes"}}
]})";

std::string one_node(const std::string& type, const std::string& options) {
  return R"([{"name": "n", "type": ")" + type + R"(", "options": )" + options + "}]";
}

TEST(ModelFile, EveryTypeBuildsAndRuns) {
  const auto model = build_model(ModelSpec::parse(kEveryType), {2, 6, 6}, 5);
  model->eval();
  const Tensor y = (*model)(Variable(Tensor::full({3, 2, 6, 6}, 0.5))).tensor();
  EXPECT_EQ(y.shape(), (Shape{3, 5}));
  EXPECT_EQ(trace(*model, {7, 2, 6, 6}).values.back().shape, (Shape{7, 5}));
  const auto operators = build_model(ModelSpec::parse(kEveryOperator), {2, 6, 6}, 5);
  operators->eval();
  const Tensor z = (*operators)(Variable(Tensor::full({3, 2, 6, 6}, 0.5))).tensor();
  EXPECT_EQ(z.shape(), (Shape{3, 5}));
  for (const float v : z.to_vector<float>()) EXPECT_TRUE(std::isfinite(v));
  const auto volumes = build_model(ModelSpec::parse(kVolumes), {2, 4, 6, 6}, 5);
  volumes->eval();
  EXPECT_EQ((*volumes)(Variable(Tensor::full({3, 2, 4, 6, 6}, 0.5))).shape(), (Shape{3, 5}));
  std::ostringstream printed;
  printed << *model << *operators << *volumes;
  for (const auto& type : layer_types()) {
    const OperatorSchema* row = operator_schema(type);
    const bool elsewhere =
        type == "embedding" || type == "input_part" || (row != nullptr && row->run != nullptr);
    EXPECT_TRUE(elsewhere || printed.str().find(": " + type + "(") != std::string::npos) << type;
  }
}

TEST(ModelFile, PoolsAcceptSequences) {
  const auto model = build_model(ModelSpec::parse(R"([
    {"type": "conv1d", "options": {"out_channels": 4, "kernel": 3, "padding": 1}},
    {"type": "max_pool", "options": {"kernel": 2}}, {"type": "avg_pool", "options": {"kernel": 3, "stride": 1, "padding": 1}},
    {"type": "adaptive_avg_pool", "options": {"size": 4}}, {"type": "global_avg_pool"}, {"type": "flatten"},
    {"type": "linear", "options": {"out_features": "classes"}}])"),
                                 {2, 16}, 3);
  EXPECT_EQ((*model)(Variable(Tensor::full({5, 2, 16}, 0.5))).shape(), (Shape{5, 3}));
}

/// Shape of one output of a convolution of two channels.
Shape built_shape(const std::string& type, const std::string& options, Shape sample) {
  const auto model = build_model(ModelSpec::parse(one_node(type, options)), sample, 0);
  sample.insert(sample.begin(), 1);
  return (*model)(Variable(Tensor::zeros(sample))).shape();
}

TEST(ModelFile, SupportsConvolutionPaddings) {
  EXPECT_EQ(built_shape("conv2d", R"({"out_channels": 1, "kernel": [4, 3], "padding": "same"})", {2, 6, 5}),
            (Shape{1, 1, 6, 5}));
  EXPECT_EQ(built_shape("conv2d", R"({"out_channels": 1, "kernel": 3, "padding": "valid"})", {2, 6, 5}),
            (Shape{1, 1, 4, 3}));
  EXPECT_EQ(built_shape("conv2d", R"({"out_channels": 1, "kernel": 3, "padding": [0, 1], "padding_end": 2})",
                        {2, 6, 5}),
            (Shape{1, 1, 6, 6}));
  EXPECT_EQ(
      built_shape("conv3d", R"({"out_channels": 1, "kernel": 3, "padding": 1, "padding_mode": "replicate"})",
                  {2, 3, 6, 5}),
      (Shape{1, 1, 3, 6, 5}));
  const auto error_text = [](const std::string& options) {
    return build_error(one_node("conv2d", R"({"out_channels": 1, "kernel": 3, )" + options + "}"));
  };
  EXPECT_THAT(error_text(R"("padding": "some")"), HasSubstr("'some'"));
  EXPECT_THAT(error_text(R"("padding": "same", "stride": 2)"), HasSubstr("needs a stride of 1"));
  EXPECT_THAT(error_text(R"("padding": "same", "padding_end": 1)"),
              HasSubstr("'padding_end' is for a 'padding' of sizes"));
  EXPECT_THAT(error_text(R"("padding": 1, "padding_mode": "mirror")"), HasSubstr("'mirror'"));
  EXPECT_THAT(error_text(R"("padding": 100, "padding_mode": "reflect")"),
              HasSubstr("cannot be padded by 100"));
}

TEST(ModelFile, EmbeddingReadsTokens) {
  const auto model =
      build_model(ModelSpec::parse(R"([{"type": "embedding", "options": {"vocabulary": 11, "width": 3}},
    {"type": "flatten"}, {"type": "linear", "options": {"out_features": 2}}])"),
                  {4}, 2);
  EXPECT_EQ(test::parameter_count(*model), 11 * 3 + 12 * 2 + 2);
  EXPECT_EQ((*model)(Variable(Tensor::full({5, 4}, 10))).shape(), (Shape{5, 2}));
}

TEST(ModelFile, RoundTripsAsText) {
  const auto spec = ModelSpec::parse(kEveryType);
  const auto again = ModelSpec::parse(spec.text());
  EXPECT_EQ(spec, again);
  EXPECT_EQ(spec.text(), again.text());
  EXPECT_EQ(spec.name(), "all");
  EXPECT_FALSE(spec == ModelSpec::parse(one_node("relu", "{}")));
}

TEST(ModelFile, SeedDeterminesTheParameters) {
  const auto spec = ModelSpec::parse(kEveryType);
  const auto values = [&](std::uint64_t seed) {
    std::vector<float> out;
    for (const auto& [name, parameter] : build_model(spec, {2, 6, 6}, 5, {.seed = seed})->named_parameters())
      for (const float v : parameter.tensor().to_vector<float>()) out.push_back(v);
    return out;
  };
  EXPECT_EQ(values(1), values(1));
  EXPECT_NE(values(1), values(2));
}

TEST(ModelFile, SupportsUserLayerTypes) {
  register_layer_type("my_linear", {"width"}, [](const LayerOptions& options) {
    const auto in = options.inferred("width", -1);
    options.reserve({in, in});
    return std::make_shared<Linear>(in, in);
  });
  EXPECT_EQ(test::parameter_count(*build_model(ModelSpec::parse(one_node("my_linear", "{}")), {4}, 4)), 20);
  EXPECT_THAT(build_error(one_node("my_linear", R"({"width": 5})"), {4}, 4),
              HasSubstr("leave it out, or give 4"));
  EXPECT_THROW(register_layer_type("", {}, nullptr), ArgumentError);
}

TEST(ModelFile, ReportsErrorsInTheList) {
  EXPECT_THAT(parse_error("[]"), HasSubstr("at least one node"));
  EXPECT_THAT(parse_error("3"), HasSubstr("not an object"));
  EXPECT_THAT(parse_error(R"({"nodes": [], "nam": ""})"),
              HasSubstr("unknown key 'nam' of a model: did you mean 'name'?"));
  EXPECT_THAT(parse_error("[{\"type\": \"relu\"},\n {\"type\": \"con2d\"}]"),
              HasSubstr("[model] line 2: unknown type 'con2d': did you mean 'conv2d'?"));
  EXPECT_THAT(parse_error(R"([{"name": "a"}])"), HasSubstr("the key 'type' is missing"));
  EXPECT_THAT(parse_error(R"([{"type": "relu", "input": "a"}])"), HasSubstr("did you mean 'inputs'?"));
  EXPECT_THAT(parse_error(one_node("conv2d", R"({"kernal": 3})")),
              HasSubstr("unknown key 'kernal' of conv2d: did you mean 'kernel'?"));
  EXPECT_THAT(parse_error(one_node("relu", R"({"slope": 3})")),
              HasSubstr("unknown key 'slope' of relu: it has no options"));
  for (const char* name : {"a..b", ".a", "a.", "a/b", "a b"})
    EXPECT_THAT(parse_error(fmt::format(R"([{{"name": "{}", "type": "relu"}}])", name)),
                HasSubstr(fmt::format("'{}' is not a name", name)));
  EXPECT_THAT(parse_error(R"([{"name": "input", "type": "relu"}])"), HasSubstr("another name"));
  EXPECT_THAT(parse_error(R"([{"name": "a", "type": "relu"}, {"name": "a", "type": "relu"}])"),
              HasSubstr("two nodes named 'a'"));
  EXPECT_THAT(parse_error(R"([{"name": "conv1", "type": "relu"}, {"type": "relu", "inputs": ["conv"]}])"),
              HasSubstr("'conv' is no earlier node: did you mean 'conv1'?"));
  EXPECT_THAT(parse_error(R"([{"type": "relu", "inputs": []}])"), HasSubstr("'inputs' is empty"));
  EXPECT_THAT(parse_error(R"([{"type": "sequential", "nodes": [{"type": "relu", "inputs": "input"}]}])"),
              HasSubstr("use a \"graph\""));
  EXPECT_THAT(parse_error(R"([{"type": "relu", "nodes": []}])"),
              HasSubstr("only \"sequential\" and \"graph\""));
  EXPECT_THAT(parse_error(R"({"model": "cnm"})"), HasSubstr("did you mean 'cnn'?"));
  EXPECT_THAT(parse_error("{\"model\": \"cnn\",\n\"options\": {\"width\": 3}}"),
              HasSubstr("line 2: unknown key 'width' of cnn: did you mean 'widths'?"));
}

TEST(ModelFile, ReportsErrorsInOptions) {
  EXPECT_THAT(build_error(one_node("conv2d", R"({"kernel": 3})")),
              HasSubstr("the option 'out_channels' is missing"));
  EXPECT_THAT(build_error(one_node("conv2d", R"({"out_channels": 3})")),
              HasSubstr("the option 'kernel' is missing"));
  EXPECT_THAT(build_error(one_node("conv2d", R"({"out_channels": "3", "kernel": 3})")), HasSubstr("'3'"));
  EXPECT_THAT(build_error(one_node("conv2d", R"({"out_channels": -3, "kernel": 3})")),
              HasSubstr("-3 is not a whole"));
  EXPECT_THAT(build_error(one_node("conv2d", R"({"out_channels": 3, "kernel": [1, 2, 3]})")),
              HasSubstr("3 sizes"));
  EXPECT_THAT(build_error(one_node("conv2d", R"({"out_channels": 3, "kernel": 3, "bias": 1})")),
              HasSubstr("'bias': 1 is not true or false"));
  EXPECT_THAT(build_error(one_node("conv2d", R"({"out_channels": 3, "kernel": 3, "groups": 2})")),
              AllOf(HasSubstr("[model] line 1: node 'n': "), HasSubstr("groups must divide")));
  EXPECT_THAT(build_error(one_node("conv2d", R"({"in_channels": 4, "out_channels": 3, "kernel": 3})")),
              HasSubstr("'in_channels' is 4, but the input has 1"));
  EXPECT_THAT(build_error(one_node("conv2d", R"({"out_channels": 3, "kernel": 9})")),
              HasSubstr("node 'n': "));
  EXPECT_THAT(build_error(one_node("linear", R"({"out_features": "classes"})"), {4}, 0),
              HasSubstr("not known here"));
  EXPECT_THAT(build_error(one_node("transpose", R"({"axes": [1, 0]})"), {4}, 4),
              HasSubstr("its first axis must be the batch"));
  EXPECT_THAT(build_error(one_node("add", "{}")), HasSubstr("node 'n': "));
  EXPECT_THAT(build_error(one_node("relu", "{}")),
              HasSubstr("the model's output is [1, 8, 8] for one sample, the data has 10 classes"));
  EXPECT_THAT(build_error(one_node("relu", "{}"), {}), HasSubstr("use the shape of one image"));
  EXPECT_THAT(build_error(one_node("relu", "{}"), {0}), HasSubstr("is empty"));
}

TEST(ModelFile, ChecksLimitsBeforeAllocation) {
  EXPECT_THAT(build_error(one_node("linear", R"({"out_features": 2147483647})"), {64}),
              HasSubstr("a model may have 8589934592 in all"));
  EXPECT_THAT(
      build_error(one_node("conv2d", R"({"out_channels": 1000, "kernel": [2147483647, 2147483647]})")),
      HasSubstr("in all"));
  EXPECT_THAT(build_error(one_node("linear", R"({"out_features": 10})"), {64}, 10, {.max_elements = 639}),
              HasSubstr("a model may have 639 in all"));
  EXPECT_THAT(build_error(one_node("conv2d", R"({"out_channels": 1, "kernel": 1, "padding": 1000000})")),
              HasSubstr("is too large: at most 2^60 elements"));
}

TEST(ModelFile, ErrorsNameTheFile) {
  const std::string path = ::testing::TempDir() + "model_file_test.json";
  std::ofstream(path) << "// wrong\n[\n{\"type\": \"linear\",\n \"options\": {\"out_features\": 2.5}}]";
  const auto spec = ModelSpec::load(path);
  EXPECT_THAT(test::error_message<FileError>([&] { (void)build_model(spec, {4}, 2); }),
              HasSubstr("[model] " + path + ":4: 'out_features': 2.5 is not a whole number"));
  EXPECT_THROW((void)ModelSpec::load("missing.json"), FileError);
  EXPECT_THAT(test::error_message([] { (void)ModelSpec::load("resnet"); }),
              HasSubstr("did you mean 'resnet20'?"));
  EXPECT_THAT(test::error_message([&] { (void)ModelSpec::load(path, "{}"); }),
              HasSubstr("options are for the built-in"));
}

/// Changes a text at a few places: bytes, numbers, words of JSON, pieces of itself.
std::string mutated(std::string text, std::mt19937& random) {
  const std::vector<std::string> pieces{"{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        ":",
                                        "\"",
                                        "null",
                                        "-1",
                                        "0",
                                        "1e400",
                                        "4294967296",
                                        "99999999999999999999",
                                        "\"classes\"",
                                        "true",
                                        "\"input\"",
                                        "[[[[",
                                        "//",
                                        "\\u0000"};
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  for (std::size_t i = 0, changes = 1 + below(4); i < changes && text.size() > 20; ++i) {
    const auto at = below(text.size() - 16);
    switch (below(6)) {
      case 0:
        text[at] = static_cast<char>(below(256));
        break;
      case 1:
        text.erase(at, 1 + below(12));
        break;
      case 2:
        text.insert(at, text.substr(below(text.size() - 16), 1 + below(40)));
        break;
      case 3:
        text.insert(at, pieces[below(pieces.size())]);
        break;
      default: {
        const auto digit = text.find_first_of("0123456789", at);
        if (digit != std::string::npos) text.replace(digit, 1, pieces[7 + below(pieces.size() - 7)]);
      }
    }
  }
  return text;
}

TEST(ModelFile, MutatedTextsThrowOnlyErrors) {
  std::mt19937 random(7);
  const std::string texts[] = {kEveryType, ModelSpec::builtin("resnet20", R"({"blocks": 1})").text(),
                               R"({"model": "cnn", "options": {"widths": [8, 8, 8], "features": 12}})"};
  int built = 0;
  for (int i = 0; i < 3000; ++i) {
    const auto text = mutated(texts[i % 3], random);
    try {
      const auto spec = ModelSpec::parse(text);
      EXPECT_EQ(ModelSpec::parse(spec.text()), spec);
      (void)build_model(spec, {2, 6, 6}, 5, {.max_elements = 1 << 18});
      ++built;
    } catch (const Error&) {
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what() << " from\n" << text;
    }
  }
  EXPECT_GT(built, 50);
}

}  // namespace
}  // namespace fq::model_file_test
