#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "export/temporary.h"
#include "fakequant/core/error.h"
#include "fakequant/export/safetensors/file.h"
#include "fakequant/export/safetensors/modelopt.h"
#include "layers/networks.h"

namespace fq::import_ranges_test {
namespace {

std::string temporary_path(const std::string& name) { return test::temporary(name); }

std::shared_ptr<Graph> quantized(const char* config = R"({"preset": "int8"})") {
  auto model = test::residual_net();
  quantize(*model, QuantConfig::parse(config), {1, 1, 8, 8});
  return model;
}

std::map<std::string, Tensor> model_ranges(Module& model) {
  std::map<std::string, Tensor> out;
  for (const auto& [name, q, aliases] : named_quantizers(model))
    if (q->enabled() && q->amax().defined()) out[name] = q->amax().clone();
  return out;
}

/// State of a calibrated model with the names and shapes of ModelOpt or pytorch-quantization.
NamedTensors make_state(Module& model, bool pytorch_quantization) {
  NamedTensors out{{"conv1.weight", Tensor::zeros({8, 1, 3, 3})}};
  for (const auto& [name, range] : model_ranges(model)) {
    const auto dot = name.rfind('.');
    const Shape shape =
        range.rank() == 0 ? (pytorch_quantization ? Shape{1} : Shape{}) : Shape{range.numel(), 1, 1};
    const std::string key =
        pytorch_quantization ? name.substr(0, dot + 1) + "_" + name.substr(dot + 1) : name;
    out.emplace_back(key + "._amax", range.reshape(shape));
  }
  return out;
}

ImportedRanges import(Module& model, const NamedTensors& state) {
  save_safetensors(temporary_path("state"), state);
  return import_ranges(model, temporary_path("state"));
}

std::string error_text(Module& model, const NamedTensors& state) {
  try {
    (void)import(model, state);
  } catch (const FileError& error) {
    return error.what();
  }
  return {};
}

TEST(ImportRanges, AcceptsBothSpellings) {
  auto calibrated = quantized();
  test::observe(*calibrated, test::random_tensor({4, 1, 8, 8}, -1, 1));
  const auto expected_ranges = model_ranges(*calibrated);
  for (const bool pytorch_quantization : {false, true}) {
    auto model = quantized();
    const ImportedRanges done = import(*model, make_state(*calibrated, pytorch_quantization));
    EXPECT_TRUE(done.missing.empty() && done.unused.empty());
    EXPECT_EQ(done.set.size(), expected_ranges.size());
    const auto found = model_ranges(*model);
    ASSERT_EQ(found.size(), expected_ranges.size());
    for (const auto& [name, range] : expected_ranges)
      EXPECT_TRUE(bitwise_equal(found.at(name), range)) << name;
  }
}

TEST(ImportRanges, AcceptsSixteenBitFloats) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f64}) {
    auto model = quantized();
    (void)import(*model, {{"fc.input_quantizer._amax", Tensor::scalar(1.5).to(dtype)}});
    EXPECT_EQ(dynamic_cast<TensorQuantizer&>(model->at("fc.input_quantizer")).amax().item(), 1.5);
  }
}

TEST(ImportRanges, SharedQuantizersUseTheirNameElseTheLargestRange) {
  auto model = quantized();
  std::string own, alias;
  for (const auto& [name, q, aliases] : named_quantizers(*model))
    if (!aliases.empty()) {
      own = name;
      alias = aliases[0];
    }
  ASSERT_FALSE(own.empty());
  auto& q = dynamic_cast<TensorQuantizer&>(model->at(own));
  (void)import(*model, {{alias + "._amax", Tensor::scalar(3)}});
  EXPECT_EQ(q.amax().item(), 3);
  (void)import(*model, {{alias + "._amax", Tensor::scalar(3)}, {own + "._amax", Tensor::scalar(2)}});
  EXPECT_EQ(q.amax().item(), 2);
}

TEST(ImportRanges, ReportsMissingAndUnusedRanges) {
  auto model = quantized(R"({"preset": "int8", "rules": [{"pattern": "gap.*", "amax": 4.0}]})");
  const ImportedRanges done = import(*model, {{"fc.input_quantizer._amax", Tensor::scalar(1)},
                                              {"fc.output_quantizer._amax", Tensor::scalar(1)},
                                              {"gap.input_quantizer._amax", Tensor::scalar(1)},
                                              {"conf1.input_quantizer._amax", Tensor::scalar(1)}});
  EXPECT_EQ(done.set, (std::vector<std::string>{"fc.input_quantizer"}));
  EXPECT_EQ(done.unused, (std::vector<std::string>{"conf1.input_quantizer._amax", "fc.output_quantizer._amax",
                                                   "gap.input_quantizer._amax"}));
  EXPECT_NE(std::ranges::find(done.missing, "fc.weight_quantizer"), done.missing.end());
  EXPECT_EQ(std::ranges::find(done.missing, "gap.input_quantizer"), done.missing.end());
}

TEST(ImportRanges, AcceptsInputFactors) {
  auto model = quantized();
  (void)import(*model, {{"fc.input_quantizer._pre_quant_scale", Tensor::full({8}, 0.5).to(DType::bf16)}});
  EXPECT_EQ(dynamic_cast<TensorQuantizer&>(model->at("fc.input_quantizer"))
                .params()
                .pre_quant_scale.to_vector<float>(),
            std::vector<float>(8, 0.5f));
  auto weights = quantized(R"({"preset": "int8_weight_only"})");
  EXPECT_NE(
      error_text(*weights, {{"fc.input_quantizer._pre_quant_scale", Tensor::full({8}, 0.5)}}).find("is off"),
      std::string::npos);
}

TEST(ImportRanges, AcceptsBlockAndTensorRanges) {
  auto nvfp4 = quantized(R"({"preset": "nvfp4", "target": "none"})");
  EXPECT_EQ(import(*nvfp4, {{"fc.weight_quantizer._amax", Tensor::scalar(1)}}).set.size(), 1u);
  EXPECT_NE(error_text(*nvfp4, {{"fc.weight_quantizer._amax", Tensor::full({10}, 1)}}).find("10 elements"),
            std::string::npos);
  const char* blocks =
      R"({"rules": [{"pattern": "*weight_quantizer", "num_bits": 4, "block_sizes": {"-1": 4}}]})";
  auto int4 = quantized(blocks);
  EXPECT_EQ(import(*int4, {{"fc.weight_quantizer._amax", Tensor::full({20, 1}, 1)}}).set.size(), 1u);
  EXPECT_NE(error_text(*int4, {{"fc.weight_quantizer._amax", Tensor::full({10, 1}, 1)}}).find("[10, 2]"),
            std::string::npos);
}

TEST(ImportRanges, NamesKeyAndQuantizerOfAnError) {
  const std::string weight = "fc.weight_quantizer._amax", input = "fc.input_quantizer._amax";
  for (const auto& [state, expected] : std::vector<std::pair<NamedTensors, std::string>>{
           {{{weight, Tensor::full({3, 1}, 1)}},
            "3 elements [3, 1], the quantizer 'fc.weight_quantizer' has ranges"},
           {{{weight, Tensor::scalar(1)}}, "1 elements"},
           {{{input, Tensor::full({2}, 1)}},
            "2 elements [2], the quantizer 'fc.input_quantizer' has ranges []"},
           {{{input, Tensor::scalar(-1)}}, "value -1"},
           {{{input, Tensor::scalar(std::numeric_limits<double>::infinity())}}, "value inf"},
           {{{input, Tensor::scalar(std::numeric_limits<double>::quiet_NaN())}}, "value nan"},
           {{{input, Tensor::scalar(1, DType::i32)}}, "is i32"},
           {{{"fc.input_quantizer._pre_quant_scale", Tensor::scalar(0)}}, "value 0"},
           {{{input, Tensor::scalar(1)}, {"fc._input_quantizer._amax", Tensor::scalar(1)}},
            "name one quantizer"}}) {
    auto model = quantized();
    const std::string message = error_text(*model, state);
    EXPECT_NE(message.find(expected), std::string::npos) << expected << ": " << message;
    EXPECT_NE(message.find(temporary_path("state")), std::string::npos) << message;
  }
}

TEST(ImportRanges, ChangesNothingOnAnInvalidFile) {
  auto model = quantized();
  EXPECT_NE(error_text(*model, {{"conv1.input_quantizer._amax", Tensor::scalar(1)},
                                {"fc.input_quantizer._amax", Tensor::scalar(-1)}}),
            "");
  EXPECT_TRUE(model_ranges(*model).empty());
  EXPECT_THROW((void)import_ranges(*model, temporary_path("nowhere")), FileError);
}

}  // namespace
}  // namespace fq::import_ranges_test
