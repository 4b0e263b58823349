// Functions of a model on a GPU give the results of the CPU, and the model stays on its
// device.

#include "export/cuda/functions.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cuda_device.h"
#include "export/temporary.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/export/gguf/model.h"
#include "fakequant/export/onnx/exporter.h"
#include "fakequant/export/safetensors/compressed_tensors.h"
#include "fakequant/export/safetensors/file.h"
#include "fakequant/export/safetensors/modelopt.h"
#include "fakequant/export/safetensors/weights.h"
#include "fakequant/export/scales.h"
#include "fakequant/export/tensorrt_cache.h"
#include "fakequant/layers/model/float_operators.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/calibration/calibration_report.h"
#include "fakequant/train/loop/average.h"
#include "fakequant/train/loop/checkpoint.h"
#include "fakequant/train/loop/evaluate.h"
#include "fakequant/train/low_rank.h"
#include "fakequant/train/memory_plan.h"
#include "fakequant/train/qat_defaults.h"
#include "fakequant/train/sensitivity/auto_quantize.h"
#include "fakequant/train/sensitivity/sensitivity.h"

namespace fq::cuda_functions_test {
namespace {

using test::function_data;
using test::kFunctionBatch;
using Outcome = test::FunctionOutcome;
using Case = test::FunctionCase;

// Tolerance relative to the largest number of a tensor: sums in another order differed by 2e-6. Divergences
// are differences of logarithms near 1, with an error of 1e-8: smaller results count as kSmall.
constexpr double kClose = 1e-5, kSmall = 1e-2;

Case algorithm(const char* name) {
  return {name, nullptr, [name](Module& model, DataLoader& loader, Outcome& out) {
            auto config = QuantConfig::preset("int8");
            config.weight_algorithm = name;
            fold_batch_norm(model, kFunctionBatch);
            quantize(model, config, kFunctionBatch);
            const ptq::Algorithm algorithm(config, 32);
            out.add(algorithm.before(model, loader));
            calibrate(model, loader);
            out.add(algorithm.after(model, loader));
          }};
}

std::vector<Case> cases() {
  std::vector<Case> all = {
      {"fold_batch_norm", nullptr,
       [](Module& m, DataLoader&, Outcome& out) { out.words = fold_batch_norm(m, kFunctionBatch); }},
      {"reestimate_batch_norm", nullptr,
       [](Module& m, DataLoader& d, Outcome& out) {
         out.add("batches", double(reestimate_batch_norm(m, d, 2)));
       }},
      {"equalize", nullptr,
       [](Module& m, DataLoader&, Outcome& out) { out.add(ptq::equalize(m, kFunctionBatch)); }},
      {"plan_memory", nullptr,
       [](Module& m, DataLoader&, Outcome& out) {
         out.add("peak", double(plan_memory(m, kFunctionBatch).peak));
       }},
      {"float_accuracy", nullptr,
       [](Module& m, DataLoader&, Outcome& out) { out.add("accuracy", float_accuracy(m, function_data())); }},
      {"quantize", nullptr,
       [](Module& m, DataLoader& d, Outcome& out) {
         out.words = quantize(m, QuantConfig::preset("w4a4"), kFunctionBatch);
         out.add("quantizers", calibrate(m, d).quantizers);
       }},
      {"auto_quantize", nullptr,
       [](Module& m, DataLoader& d, Outcome& out) {
         check_auto_quantize(m, kFunctionBatch, {.constraint = {.effective_bits = 6}});
         out.add(auto_quantize(m, d, {.constraint = {.effective_bits = 6}}).to_json());
       }},
      {"model_state", nullptr,
       [](Module& m, DataLoader&, Outcome&) { load_model_state(m, model_state(m), "itself"); }},
      {"WeightAverage", nullptr,
       [](Module& m, DataLoader&, Outcome& out) {
         WeightAverage average(m, 0.5);
         average.update();
         const StateDict state = average.state_dict();
         average.load_state(state);
         average.swap();
         out.add(state);
       }},
      {"float_operators", "int8",
       [](Module& m, DataLoader&, Outcome& out) {
         out.words = {describe(float_operators(m, kFunctionBatch, Target::ort))};
       }},
      {"sensitivity", "int8",
       [](Module& m, DataLoader& d, Outcome& out) { out.add(sensitivity(m, d).to_json()); }},
      {"compress", "int4_blockwise",
       [](Module& m, DataLoader&, Outcome& out) {
         for (const auto& weight : compress(m)) out.add(weight.name, double(weight.code_bytes));
         decompress(m);
       }},
      {"quantize_weights", "nvfp4", [](Module& m, DataLoader&, Outcome&) { quantize_weights(m); }},
      {"fold_weight", "int8", [](Module& m, DataLoader&, Outcome&) { fold_weight(m); }},
      {"learn_ranges", "int8",
       [](Module& m, DataLoader&, Outcome& out) {
         out.add("ranges", learn_ranges(m) + learn_weight_ranges(m));
       }},
      {"save_quantizers", "w4a4",
       [](Module& m, DataLoader&, Outcome& out) {
         StateDict state;
         save_quantizers(m, state);
         load_quantizers(m, state);
         out.add(state);
       }},
      {"set_quantizer_attributes", "int8",
       [](Module& m, DataLoader&, Outcome& out) {
         out.add("set", set_quantizer_attributes(m, "*weight_quantizer", {{"num_bits", 6}}));
       }},
      {"print_quant_summary", "int8",
       [](Module& m, DataLoader&, Outcome& out) {
         std::ostringstream text;
         print_quant_summary(m, text);
         out.add("lines", double(std::ranges::count(text.str(), '\n')));
       }},
      {"calibration_state", "int8",
       [](Module& m, DataLoader& d, Outcome& out) {
         const CalibrationReport seen = collect_ranges(m, d, {.method = "max"});
         const StateDict state = calibration_state(m, seen.samples);
         out.add("merged", double(merge_calibration_state(m, state, "itself")));
         out.add("ranges", choose_ranges(m).quantizers);
       }},
      {"postprocess_amax", "int8",
       [](Module& m, DataLoader&, Outcome& out) {
         out.add("changed", postprocess_amax(m, "*", [](float amax) { return 2 * amax; }));
       }},
      {"calibration_report", "int8",
       [](Module& m, DataLoader& d, Outcome& out) {
         for (const auto& q : calibration_report(m, d)) out.add(q.name, q.in_force.sqnr_db.value_or(-1));
       }},
      {"compute_quantization_mse", "int8",
       [](Module& m, DataLoader& d, Outcome& out) {
         for (const auto& e : compute_quantization_mse(m, d)) out.add(e.name, e.mse);
       }},
      {"quantizer_findings", "w2a2",
       [](Module& m, DataLoader& d, Outcome& out) {
         d.start_epoch(0);
         const Tensor x = d.next()->x.to(m.device());
         for (const auto& found : quantizer_findings(m, x)) out.words.push_back(found.quantizer);
       }},
      {"LowRankAdapters", "int8",
       [](Module& m, DataLoader&, Outcome& out) {
         LowRankAdapters adapters(m, {.rank = 1});
         adapters.merge();
         adapters.load_state(adapters.state_dict());
         out.add("adapters", double(adapters.state_dict().tensors().size()));
       }},
      {"export_onnx", "int8",
       [](Module& m, DataLoader&, Outcome& out) {
         const OnnxModel model = export_onnx(m, {1, 8, 8});
         for (const auto& node : model.nodes) out.words.push_back(node.name);
         for (const auto& value : model.initializers) out.add(value.name, value.value);
       }},
      {"scales_json", "int8",
       [](Module& m, DataLoader&, Outcome& out) { out.add(nlohmann::ordered_json(scales_json(m))); }},
      {"ClipCounter", "int8",
       [](Module& m, DataLoader& d, Outcome& out) {
         ClipCounter counter(m);
         const RecordScope scope(counter);
         static_cast<void>(predict(m, d));
         for (const auto& [name, clip] : counter.counts())
           out.add(name, double(clip.clipped) / double(clip.count));
       }},
      {"save_scales_h5", "int8",
       [](Module& m, DataLoader&, Outcome& out) {
         save_scales(test::temporary("scales"), m);
         out.add(load_state(test::temporary("scales.h5"), "scales"));
       }},
      {"layer_sums", "int8",
       [](Module& m, DataLoader&, Outcome& out) {
         for (const auto& [path, layer] : m.named_modules())
           if (const auto sums = layer_sums(*layer)) {
             out.add(path + " scale", sums->scale);
             if (sums->bias.defined()) out.add(path + " bias", sums->bias);
           }
       }},
      {"gguf_model", nullptr,
       [](Module& m, DataLoader&, Outcome& out) {
         const GgufModel file = gguf_model(m, kFunctionBatch);
         for (const auto& tensor : file.tensors) out.add(tensor.name, tensor.data);
       },
       true},
      {"import_ranges", "int8",
       [](Module& m, DataLoader&, Outcome& out) {
         save_safetensors(test::temporary("ranges.safetensors"),
                          {{"conv2.input_quantizer._amax", Tensor::scalar(0.5)}});
         out.words = import_ranges(m, test::temporary("ranges.safetensors")).set;
       }},
      {"compressed_tensors", "int8_weight_only",
       [](Module& m, DataLoader&, Outcome& out) {
         for (const auto& [name, tensor] : compressed_tensors(m)) out.add(name, tensor);
       },
       true},
      {"load_weights", nullptr,
       [](Module& m, DataLoader&, Outcome& out) {
         NamedTensors tensors;
         for (const auto& [name, value] : m.named_parameters())
           tensors.emplace_back(name, Tensor::full(value.tensor().shape(), 0.25));
         for (const auto& [name, value] : m.named_buffers())
           tensors.emplace_back(name, Tensor::full(value.shape(), 0.25));
         save_safetensors(test::temporary("weights.safetensors"), tensors);
         out.add("set", double(load_weights(m, test::temporary("weights.safetensors")).set.size()));
       }},
      {"modelopt_tensors", "fp8",
       [](Module& m, DataLoader&, Outcome& out) {
         for (const auto& [name, tensor] : modelopt_tensors(m)) out.add(name, tensor);
       }},
      {"tensorrt_cache", nullptr,
       [](Module& m, DataLoader& d, Outcome& out) {
         auto config = QuantConfig::preset("int8");
         config.target = Target::tensorrt;
         quantize(m, config, kFunctionBatch);
         calibrate(m, d);
         for (const auto& [name, scale] : tensorrt_cache(m).scales) out.add(name, scale);
       }},
  };
  for (const char* name :
       {"smoothquant", "awq_lite", "awq_clip", "awq_full", "gptq", "adaround", "bias_correction"})
    all.push_back(algorithm(name));
  return all;
}

Outcome outcome(const Case& c, Device device) {
  const auto model = test::function_network(c);
  model->to(device);
  DataLoader loader(function_data(), test::sequential_options());
  Outcome out;
  c.call(*model, loader, out);
  EXPECT_EQ(model->device(), device);
  out.add(model_state(*model));
  return out;
}

class CudaFunctions : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
};

TEST_P(CudaFunctions, MatchTheCpu) {
  const Outcome host = outcome(GetParam(), Device::cpu()), gpu = outcome(GetParam(), Device::cuda());
  EXPECT_EQ(gpu.words, host.words);
  ASSERT_EQ(gpu.numbers.size(), host.numbers.size());
  std::map<std::string, double> largest;
  for (const auto& [name, right] : host.numbers)
    if (std::isfinite(right)) largest[name] = std::max({largest[name], std::abs(right), kSmall});
  double most = 0;
  std::string worst;
  for (std::size_t i = 0; i < host.numbers.size(); ++i) {
    const auto& [name, right] = host.numbers[i];
    EXPECT_EQ(gpu.numbers[i].first, name);
    const double value = gpu.numbers[i].second;
    if (std::isnan(right) && std::isnan(value)) continue;
    ASSERT_EQ(std::isfinite(value), std::isfinite(right))
        << name << ": " << value << ", on the CPU " << right;
    const double off = std::abs(value - right) / largest[name];
    if (!(off > most)) continue;
    most = off;
    worst = fmt::format("{}: {}, on the CPU {}", name, value, right);
  }
  RecordProperty("most", fmt::format("{}", most));
  EXPECT_LT(most, kClose) << worst;
}

INSTANTIATE_TEST_SUITE_P(All, CudaFunctions, testing::ValuesIn(cases()),
                         [](const auto& about) { return std::string(about.param.name); });

}  // namespace
}  // namespace fq::cuda_functions_test
