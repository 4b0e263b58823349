#include "fakequant/cli/quantization.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/data.h"
#include "fakequant/cli/json_text.h"
#include "fakequant/core/check.h"
#include "fakequant/layers/quant_config.h"
#include "fakequant/train/calibrate.h"
#include "fakequant/train/data/loader.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

/// The first key of the file that the message quotes, for its line.
std::string place(const JsonText& file, const std::string& message) {
  const auto begin = message.find('\'');
  const auto end = message.find('\'', begin + 1);
  if (begin == std::string::npos || end == std::string::npos) return file.path;
  return file.where(message.substr(begin + 1, end - begin - 1));
}

ordered_json read_config_file(const std::string& path) {
  const JsonText file = read_json_text(path);
  try {
    static_cast<void>(QuantConfig::from_json(file.json));
  } catch (const ArgumentError& error) {
    throw ArgumentError(fmt::format("[quantize] {}: {}", place(file, error.what()), error.what()));
  }
  return file.json;
}

const std::vector<std::string> kMethods{"max", "moving_average", "percentile", "entropy", "mse", "none"};

}  // namespace

nlohmann::json read_quantization(const Flags& flags) {
  FQ_CHECK(!flags.given("preset") || !flags.given("config"), flags.command(),
           "--preset and --config: give one");
  ordered_json config = flags.given("config")
                            ? read_config_file(flags.text("config"))
                            : ordered_json{{"preset", flags.given("preset") ? flags.text("preset") : "int8"}};
  if (flags.given("target")) config["target"] = flags.choice("target", {"ort", "tensorrt", "none"});
  if (flags.given("scale")) config["scale"] = flags.choice("scale", {"free", "pow2"});
  if (flags.given("method") && flags.text("method") != "none")
    config["algorithm"] = flags.choice("method", kMethods);
  static_cast<void>(QuantConfig::from_json(config));
  return config;
}

void quantize_and_calibrate(Network& network, const Flags& flags, std::shared_ptr<const Dataset> data,
                            Output& output, bool calibrate) {
  const auto config = read_quantization(flags);
  const auto samples = flags.integer("samples", 1, std::int64_t{1} << 40);
  const auto batch = flags.integer("batch", 1, 1 << 20);
  if (!flags.on("keep-bn") && !network.folded()) fold_network(network);
  quantize_network(network, config);
  if (!calibrate || flags.text("method") == "none") return;
  data = some_samples(std::move(data), samples, 0);
  output.line(fmt::format("calibrating on {} images", data->size()));
  DataLoader loader(data, {.batch_size = batch, .shuffle = false});
  CalibrateOptions options;
  options.method = QuantConfig::from_json(config).algorithm;
  options.amax.percentile = flags.number("percentile", 0, 100);
  fq::calibrate(*network.module, loader, options);
}

}  // namespace fq::cli
