#include "fakequant/cli/quantization.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/import_ranges.h"
#include "fakequant/core/check.h"
#include "fakequant/core/json_text.h"
#include "fakequant/layers/quant_config.h"
#include "fakequant/train/calibrate.h"
#include "fakequant/train/data/loader.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

/// Where in the file the key stands that the message quotes first; the whole file when there is none.
std::string pointer_to(const ordered_json& config, const std::string& message) {
  const auto begin = message.find('\'') + 1;
  const std::string step = "/" + message.substr(begin, message.find('\'', begin) - begin) + "/";
  const ordered_json leaves = config.flatten();
  for (const auto& [pointer, value] : leaves.items())
    if (const auto at = (pointer + "/").find(step); at != std::string::npos)
      return pointer.substr(0, at + step.size() - 1);
  return {};
}

/// Calls `use`, and gives its errors the line of --config that they quote a key of.
template <class Use>
void with_place(const Flags& flags, Use&& use) {
  try {
    use();
  } catch (const ArgumentError& error) {
    if (!flags.given("config")) throw;
    const auto text = fq::detail::JsonText::load(flags.text("config"), "quantize");
    const std::string message = error.what(), pointer = pointer_to(text->value(), message);
    if (pointer.empty()) throw;
    text->fail(pointer, message.substr(message.find("] ") + 2));
  }
}

/// Rules as lists: checkpoints keep objects sorted by key, and the order of rules counts.
void list_rules(ordered_json& config) {
  for (const char* key : {"quant_cfg", "rules"}) {
    if (!config.contains(key) || !config[key].is_object()) continue;
    ordered_json list = ordered_json::array();
    for (const auto& [pattern, fields] : config[key].items()) {
      ordered_json entry = key == std::string("rules") ? fields : ordered_json{{pattern, fields}};
      if (key == std::string("rules")) entry["pattern"] = pattern;
      list.insert(pattern == "default" ? list.begin() : list.end(), std::move(entry));
    }
    config[key] = std::move(list);
  }
}

const std::vector<std::string> kMethods{"max", "moving_average", "percentile", "entropy", "mse", "octav",
                                        "lsq", "mse_search",     "none"};

}  // namespace

nlohmann::json read_quantization(const Flags& flags) {
  FQ_CHECK(!flags.given("preset") || !flags.given("config"), flags.command(),
           "--preset and --config: give one");
  ordered_json config = flags.given("config")
                            ? fq::detail::JsonText::load(flags.text("config"), "quantize")->value()
                            : ordered_json{{"preset", flags.given("preset") ? flags.text("preset") : "int8"}};
  FQ_CHECK(config.is_object(), "quantize", "{}: a quantization config is a JSON object",
           flags.text("config"));
  if (flags.given("target")) config["target"] = flags.choice("target", {"ort", "tensorrt", "none"});
  if (flags.given("scale")) config["scale"] = flags.choice("scale", {"free", "pow2"});
  if (flags.on("strict")) config["strict"] = true;
  if (flags.given("method") && flags.text("method") != "none")
    config["algorithm"] = flags.choice("method", kMethods);
  with_place(flags, [&] { static_cast<void>(QuantConfig::from_json(config)); });
  list_rules(config);
  return config;
}

void quantize_and_calibrate(Network& network, const Flags& flags, std::shared_ptr<const Dataset> data,
                            Output& output, bool calibrate) {
  const auto config = read_quantization(flags);
  const auto samples = flags.integer("samples", 1, std::int64_t{1} << 40);
  const auto batch = flags.integer("batch", 1, 1 << 20);
  if (!flags.on("keep-bn") && !network.folded()) fold_network(network);
  with_place(flags, [&] { quantize_network(network, config); });
  calibrate = calibrate && data != nullptr && flags.text("method") != "none";
  const bool imports = flags.knows("import") && flags.given("import");
  if (imports) import_ranges(network, flags, calibrate, output);
  if (!calibrate) return;
  data = some_samples(std::move(data), samples, 0);
  output.line(fmt::format("calibrating on {} images", data->size()));
  DataLoader loader(data, {.batch_size = batch, .shuffle = false});
  CalibrateOptions options;
  options.method = QuantConfig::from_json(config).algorithm;
  options.amax.percentile = flags.number("percentile", 0, 100);
  options.keep_known = imports;
  fq::calibrate(*network.module, loader, options);
  if (stop_requested()) throw Interrupted("[calibrate] stopped by Ctrl-C: nothing was written");
}

}  // namespace fq::cli
