#include "fakequant/cli/engines/expected.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include <fmt/format.h>

#include "fakequant/cli/engines/layer_recorder.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/folding.h"
#include "fakequant/cli/uniform_samples.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/network/detail/data_checks.h"
#include "fakequant/network/qat.h"

namespace fq::cli {
namespace {

constexpr std::int64_t kPartBytes = std::int64_t{128} << 20;  // of predictions in one file
constexpr std::int64_t kLayerSamples = 4;                     // whose layers are compared one by one

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

using Data = std::shared_ptr<const Dataset>;

/// Returns the data and the random samples.
std::vector<Data> samples_to_compare(const Data& data, const ExpectedOptions& options) {
  const auto& [batch, random, seed] = options;
  if (random == 0) return {data};
  const auto stream = static_cast<std::uint64_t>(seed);
  if (data->token_ids())
    return {data,
            std::make_shared<UniformTokens>(data->sample_shape(), random, tokens_of(data, batch), stream)};
  return {data,
          std::make_shared<UniformSamples>(data->sample_shape(), random, range_of(data, batch), stream)};
}

void count_expected(const StateDict& state, Expected& expected) {
  expected.samples += state.at("x").dim(0);
  expected.logits += state.at("logits").numel();
  const StateDict codes = state.sub("codes");
  for (const auto& name : codes.names()) expected.codes[name] += codes.at(name).numel();
}

/// Writes the predictions of a network to files; `use` is called with the content of each.
std::vector<std::string> write_predictions(Network& network, const std::vector<Data>& samples,
                                           std::int64_t batch, const PredictionOptions& options,
                                           const std::string& prefix,
                                           const std::function<void(const StateDict&)>& use, Output& output) {
  std::vector<std::string> files;
  const auto save = [&](const StateDict& state) {
    files.push_back(fmt::format("{}{}.h5", prefix, files.size()));
    save_state(files.back(), state, "predictions");
    use(state);
  };
  for (const Data& part : samples) predict_parts(network, part, batch, options, save, output, "verify");
  return files;
}

/// Writes inputs and outputs of the linear layers for the first samples. Returns an empty path without such
/// layers.
std::string write_layers(Network& network, const Data& data, const std::string& path, Output& output) {
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

void check_random(const Network& network, std::int64_t random) {
  FQ_CHECK(random == 0 || whole_input(network).empty(), "verify",
           "--random {}: samples of the input '{}' are whole numbers: leave it out", random,
           whole_input(network));
}

Expected write_expected(Network& network, const std::shared_ptr<const Dataset>& data,
                        const ExpectedOptions& options, const VerifyEngine& engine,
                        const TemporaryFolder& folder, Output& output) {
  const PredictionOptions predicted{.inputs = true, .codes = engine.codes, .part_bytes = kPartBytes};
  const auto samples = samples_to_compare(data, options);
  Expected expected;
  expected.files = write_predictions(
      network, samples, options.batch, predicted, folder.file("part"),
      [&](const StateDict& state) { count_expected(state, expected); }, output);
  if (engine.layers) expected.layers = write_layers(network, data, folder.file("layers.h5"), output);
  if (network.live_batch_norms() == 0 || network.fold() == 0) return expected;
  expected.folded = write_predictions(
      network, samples, options.batch, predicted, folder.file("folded"), [](const StateDict&) {}, output);
  return expected;
}

}  // namespace fq::cli
