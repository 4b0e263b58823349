#include "fakequant/train/calibration/calibration_report.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "fakequant/calib/detail/histogram_methods.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/calibration/detail/calibration_targets.h"
#include "fakequant/train/calibration/detail/calibration_undo.h"
#include "fakequant/train/calibration/detail/quantizer_report.h"

namespace fq {
namespace {

using nlohmann::json;
using Methods = std::map<const TensorQuantizer*, std::string>;

constexpr const char* kReport = "calibration_report";

std::vector<NamedQuantizer> enabled_quantizers(Module& model) {
  auto out = named_quantizers(model);
  std::erase_if(out, [](const auto& entry) { return !entry.quantizer->params().enabled; });
  FQ_CHECK(!out.empty(), kReport, "the model has no quantizer that is enabled: quantize it first");
  return out;
}

Methods methods_of(const std::vector<NamedQuantizer>& entries) {
  Methods out;
  for (const auto& entry : entries) out[entry.quantizer] = entry.quantizer->descriptor().calib_method();
  return out;
}

void check_options(const AmaxOptions& options) {
  FQ_CHECK(options.percentile >= 0 && options.percentile <= 100, kReport, "a percentile of {}: use 0 to 100",
           options.percentile);
}

std::vector<QuantizerReport> reports(Module& model, const std::vector<NamedQuantizer>& entries,
                                     const Methods& methods, const AmaxOptions& options) {
  const auto weights = detail::weights_of(model);
  std::vector<QuantizerReport> out;
  for (const auto& entry : entries) {
    const auto weight = weights.find(entry.quantizer);
    out.push_back(detail::quantizer_report(entry, weight == weights.end() ? Variable() : weight->second,
                                           methods.at(entry.quantizer), options));
  }
  return out;
}

/// In the order in which they were saved.
std::vector<std::string> names_in(const StateDict& quantizers) {
  std::vector<std::string> out;
  const auto add = [&out](const std::string& key) {
    const std::string name = key.substr(0, key.find('/'));
    if (std::ranges::find(out, name) == out.end()) out.push_back(name);
  };
  for (const auto& [key, value] : quantizers.tensors()) add(key);
  for (const auto& [key, value] : quantizers.attributes().items()) add(key);
  return out;
}

/// A quantizer with the settings that were saved with what it collected.
std::unique_ptr<TensorQuantizer> saved_quantizer(const StateDict& state, const std::string& name) {
  json fields = state.attribute(name + "/settings"), options = state.attribute(name + "/calibrator_options");
  FQ_CHECK(fields.is_object() && options.is_object(), kReport, "settings are no objects");
  fields.erase("pre_quant_scale");
  for (const char* of_calibrator : {"axis", "stop_multiplier", "multiplier_step"})
    options.erase(of_calibrator);
  fields.update(options);
  auto out = std::make_unique<TensorQuantizer>(QuantDescriptor::from_dict(fields));
  out->set_name(name);
  out->observer().load(state, name);
  return out;
}

}  // namespace

const std::vector<std::string>& report_methods() {
  static const auto methods = [] {
    std::vector<std::string> out{"max"};
    for (const auto& reading : detail::histogram_readings()) out.emplace_back(reading.name);
    return out;
  }();
  return methods;
}

std::vector<QuantizerReport> calibration_report(Module& model, const AmaxOptions& options) {
  check_options(options);
  check_not_compressed(model, kReport);
  const auto entries = enabled_quantizers(model);
  return reports(model, entries, methods_of(entries), options);
}

std::vector<QuantizerReport> calibration_report(Module& model, DataLoader& data, std::int64_t samples,
                                                const AmaxOptions& options,
                                                std::shared_ptr<Communicator> ranks) {
  check_options(options);
  check_not_compressed(model, kReport);
  const auto entries = enabled_quantizers(model);
  const Methods methods = methods_of(entries);
  std::vector<TensorQuantizer*> activations;
  for (const auto& target : detail::calibration_targets(model, false))
    if (!target.is_weight()) activations.push_back(target.entry.quantizer);
  const detail::CalibrationUndo undo(activations);
  (void)collect_ranges(model, data, {.method = "one_pass", .samples = samples, .ranks = std::move(ranks)});
  return reports(model, entries, methods, options);
}

std::vector<QuantizerReport> calibration_report(const StateDict& state, const std::string& path,
                                                const AmaxOptions& options) {
  check_options(options);
  const StateDict quantizers = state.sub("quantizers");
  std::vector<QuantizerReport> out;
  for (const auto& name : names_in(quantizers)) {
    try {
      const auto quantizer = saved_quantizer(quantizers, name);
      out.push_back(detail::quantizer_report({name, quantizer.get(), {}}, Variable(),
                                             quantizer->descriptor().calib_method(), options));
    } catch (const ArgumentError& error) {
      throw FileError(path, "quantizers/" + name,
                      fmt::format("[{}] {}: {} cannot be read: {}", kReport, path, name, error.what()));
    }
  }
  if (out.empty())
    throw FileError(path, "quantizers",
                    fmt::format("[{}] {} holds nothing that was collected", kReport, path));
  return out;
}

}  // namespace fq
