#include "fakequant/cli/engines/expected.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include <fmt/format.h>

#include "fakequant/cli/data.h"
#include "fakequant/cli/engines/layer_recorder.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/folding.h"
#include "fakequant/cli/initial_weights.h"
#include "fakequant/cli/uniform_samples.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/state_file.h"
#include "fakequant/network/detail/data_checks.h"
#include "fakequant/network/qat.h"

namespace fq::cli {
namespace {

constexpr std::int64_t kPartBytes = std::int64_t{128} << 20;  // of predictions in one file
constexpr std::int64_t kLayerSamples = 4;                     // whose layers are compared one by one
constexpr std::int64_t kMostSamples = std::int64_t{1} << 40;

Network load_to_compare(const Flags& flags, const VerifyEngine& engine) {
  Network network = load_network(flags.required("checkpoint"));
  check_calibrated(network, "verify");
  check_target(engine, network);
  network.module().to(device_of(flags));
  return network;
}

/// The first of several inputs that is of whole numbers; empty where none is.
std::string whole_input(const Network& network) {
  for (const auto& node : network.identity().model.json().at("nodes")) {
    if (node.value("type", std::string()) != "input_part") continue;
    const auto& options = node.at("options");
    if (!options.value("type", std::string("f32")).starts_with('f'))
      return options.at("name").get<std::string>();
  }
  return {};
}

/// The data, and random samples where they are asked for.
std::vector<std::shared_ptr<const Dataset>> samples_of(Network& network, const Flags& flags) {
  const auto random = flags.integer("random", 0, kMostSamples);
  const auto seed = static_cast<std::uint64_t>(flags.integer("seed", 0, std::int64_t{1} << 62));
  const auto data = open_data(flags, flags.text("split"), 0, false);
  check_fits(network, *data, "verify");
  FQ_CHECK(random == 0 || whole_input(network).empty(), "verify",
           "--random {}: samples of the input '{}' are whole numbers: leave it out", random,
           whole_input(network));
  if (random == 0) return {data};
  const auto batch = flags.integer("batch", 1, 1 << 20);
  if (data->token_ids())
    return {data,
            std::make_shared<UniformTokens>(data->sample_shape(), random, tokens_of(data, batch), seed)};
  return {data, std::make_shared<UniformSamples>(data->sample_shape(), random, range_of(data, batch), seed)};
}

void count_expected(const StateDict& state, Expected& expected) {
  expected.samples += state.at("x").dim(0);
  expected.logits += state.at("logits").numel();
  const StateDict codes = state.sub("codes");
  for (const auto& name : codes.names()) expected.codes[name] += codes.at(name).numel();
}

/// Files of what a network computes; `use` is called with what is in each.
std::vector<std::string> write_predictions(Network& network, const Flags& flags, const VerifyEngine& engine,
                                           const std::string& prefix,
                                           const std::function<void(const StateDict&)>& use, Output& output) {
  const PredictionOptions options{.inputs = true, .codes = engine.codes, .part_bytes = kPartBytes};
  const auto batch = flags.integer("batch", 1, 1 << 20);
  std::vector<std::string> files;
  const auto save = [&](const StateDict& state) {
    files.push_back(fmt::format("{}{}.h5", prefix, files.size()));
    save_state(files.back(), state, "predictions");
    use(state);
  };
  for (const auto& samples : samples_of(network, flags))
    predict_parts(network, samples, batch, options, save, output, "verify");
  return files;
}

/// What the linear layers do with the first samples; empty where there is no such layer.
std::string write_layers(Network& network, const Flags& flags, const std::string& path, Output& output) {
  const auto data = open_data(flags, flags.text("split"), 0, false);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(std::min(kLayerSamples, data->size())));
  std::iota(rows.begin(), rows.end(), 0);
  LayerRecorder recorder;
  Tensor x;
  {
    const RecordScope scope(recorder);
    for_each_batch(
        network, std::make_shared<Subset>(data, rows), kLayerSamples,
        [&](const Batch& samples, const Variable&) { x = samples.x; }, output, "verify");
  }
  StateDict state = recorder.layers();
  if (recorder.count() == 0) return {};
  state.set("x", x);
  save_state(path, state, "predictions");
  return path;
}

}  // namespace

Expected write_expected(const Flags& flags, const VerifyEngine& engine, const TemporaryFolder& folder,
                        Output& output) {
  Network network = load_to_compare(flags, engine);
  Expected expected;
  expected.files = write_predictions(
      network, flags, engine, folder.file("part"),
      [&](const StateDict& state) { count_expected(state, expected); }, output);
  if (engine.layers) expected.layers = write_layers(network, flags, folder.file("layers.h5"), output);
  if (network.live_batch_norms() == 0 || network.fold() == 0) return expected;
  expected.folded = write_predictions(
      network, flags, engine, folder.file("folded"), [](const StateDict&) {}, output);
  return expected;
}

}  // namespace fq::cli
