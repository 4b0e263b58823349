#include "fakequant/cli/engines/expected.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include <fmt/format.h>

#include "fakequant/cli/evaluation.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/random.h"
#include "fakequant/core/trace.h"
#include "fakequant/core/variable.h"
#include "fakequant/network/detail/data_checks.h"
#include "fakequant/network/qat.h"
#include "fakequant/train/data/dataset.h"
#include "fakequant/train/data/loader.h"

namespace fq::cli {
namespace {

/// Records input and output of each linear layer in execution order: "layers/0003 block1.fc1/x" and "/y", f32
/// in logical order, and "/bias" if there is one. For a layer whose engine rounds rows at run time, also
/// records "/codes" [N, K] and "/scale", f32 in the shape of its blocks.
class LayerRecorder : public Recorder {
 public:
  void record_op(std::string_view op, const std::vector<Variable>& inputs, const Variable& output,
                 Attributes attributes) override;
  [[nodiscard]] const StateDict& layers() const noexcept { return layers_; }
  /// Returns the number of layers.
  [[nodiscard]] std::int64_t count() const noexcept { return count_; }

 private:
  StateDict layers_;
  std::int64_t count_ = 0;
};

Tensor host_copy(const Tensor& value) { return value.to(Device::cpu()).to(Layout::row_major).clone(); }

void LayerRecorder::record_op(std::string_view op, const std::vector<Variable>& inputs,
                              const Variable& output, Attributes attributes) {
  // Inputs of a linear operator: x, weight and, if there is one, bias.
  if (op != "linear") return;
  const std::string at = fmt::format("layers/{:04} {}/", count_++, module_path());
  layers_.set(at + "x", host_copy(inputs.at(0).tensor()));
  layers_.set(at + "y", host_copy(output.tensor()));
  if (inputs.size() > 2 && inputs[2].defined()) layers_.set(at + "bias", host_copy(inputs[2].tensor()));
  // The attribute "engine" marks layers that quantize their input rows at run time (targets ggml, xnnpack,
  // ort_dynamic). Their weight codes are compared with the codes of the engine.
  const bool by_rows = std::ranges::any_of(attributes, [](const auto& a) { return a.first == "engine"; });
  if (const QuantizedTensor* codes = inputs.at(1).quantized(); by_rows && codes != nullptr) {
    layers_.set(at + "codes", host_copy(codes->codes));
    layers_.set(at + "scale", host_copy(codes->grid.scale));
  }
}

/// Smallest and largest value of all samples.
struct ValueRange {
  float low = 0, high = 0;
};

/// Random data: `count` samples of uniform values in `range`. Sample i depends only on (seed, i).
class UniformSamples : public Dataset {
 public:
  UniformSamples(Shape sample_shape, std::int64_t count, ValueRange range, std::uint64_t seed)
      : shape_(std::move(sample_shape)), count_(count), range_(range), seed_(seed) {}

  [[nodiscard]] std::int64_t size() const noexcept override { return count_; }
  [[nodiscard]] const Shape& sample_shape() const noexcept override { return shape_; }
  [[nodiscard]] std::int64_t classes() const noexcept override { return 0; }
  [[nodiscard]] Batch read(std::span<const std::int64_t> rows) const override;

 private:
  Shape shape_;
  std::int64_t count_;
  ValueRange range_;
  std::uint64_t seed_;
};

/// Random data: `count` samples of token ids below `tokens`. Sample i depends only on (seed, i).
class UniformTokens : public Dataset {
 public:
  UniformTokens(Shape sample_shape, std::int64_t count, std::int64_t tokens, std::uint64_t seed)
      : shape_(std::move(sample_shape)), count_(count), tokens_(tokens), seed_(seed) {}

  [[nodiscard]] std::int64_t size() const noexcept override { return count_; }
  [[nodiscard]] const Shape& sample_shape() const noexcept override { return shape_; }
  [[nodiscard]] std::int64_t classes() const noexcept override { return 0; }
  [[nodiscard]] bool token_ids() const noexcept override { return true; }
  [[nodiscard]] Batch read(std::span<const std::int64_t> rows) const override;

 private:
  Shape shape_;
  std::int64_t count_, tokens_;
  std::uint64_t seed_;
};

// Random values outside the range of the data would only saturate the codes.
ValueRange data_range(const std::shared_ptr<const Dataset>& data, std::int64_t batch) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  ValueRange range{infinity, -infinity};
  DataLoader loader(data, {.batch_size = batch, .shuffle = false});
  while (auto next = loader.next()) {
    const auto [low, high] =
        std::minmax_element(next->x.data<float>(), next->x.data<float>() + next->x.numel());
    range = {std::min(range.low, *low), std::max(range.high, *high)};
  }
  return range;
}

/// Returns the largest token id of the data plus one.
std::int64_t count_token_ids(const std::shared_ptr<const Dataset>& data, std::int64_t batch) {
  std::int64_t largest = 0;
  DataLoader loader(data, {.batch_size = batch, .shuffle = false});
  while (auto next = loader.next()) {
    const auto* ids = next->x.data<std::int64_t>();
    largest = std::max(largest, *std::max_element(ids, ids + next->x.numel()));
  }
  return largest + 1;
}

// The row number selects the random stream, so that batch size and order do not change a sample.
Batch UniformSamples::read(std::span<const std::int64_t> rows) const {
  Shape shape = shape_;
  shape.insert(shape.begin(), static_cast<std::int64_t>(rows.size()));
  Batch batch{Tensor::empty(shape), {}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Tensor row = batch.x.slice(static_cast<std::int64_t>(i), static_cast<std::int64_t>(i) + 1);
    fill_uniform(row, range_.low, range_.high, seed_, static_cast<std::uint64_t>(rows[i]));
  }
  return batch;
}

Batch UniformTokens::read(std::span<const std::int64_t> rows) const {
  Shape shape = shape_;
  shape.insert(shape.begin(), static_cast<std::int64_t>(rows.size()));
  Batch batch{Tensor::empty(shape, DType::i64), {}};
  auto* ids = batch.x.mutable_data<std::int64_t>();
  for (const std::int64_t row : rows) {
    Tensor drawn = Tensor::empty(shape_);
    // Truncation maps [0, tokens) to ids of equal probability.
    fill_uniform(drawn, 0, static_cast<double>(tokens_), seed_, static_cast<std::uint64_t>(row));
    for (const float v : drawn.to_vector<float>())
      *ids++ = std::min(static_cast<std::int64_t>(v), tokens_ - 1);  // f32 may round up to `tokens_`
  }
  return batch;
}

constexpr std::int64_t kPartBytes = std::int64_t{128} << 20;  // largest predictions file
constexpr std::int64_t kLayerSamples = 4;                     // samples for the comparison of single layers

/// Returns the name of the first input with integers, of a network with several inputs; else an empty text.
std::string integer_input(const Network& network) {
  for (const auto& node : network.identity().model.nodes())
    if (node.type == "input_part" && !node.options.value_or<std::string>("type", "f32").starts_with('f'))
      return node.options.value_or<std::string>("name", {});
  return {};
}

using Data = std::shared_ptr<const Dataset>;

/// Returns the data and the random samples.
std::vector<Data> samples_to_compare(const Data& data, const ExpectedOptions& options) {
  const auto& [batch, random, seed] = options;
  if (random == 0) return {data};
  const auto stream = static_cast<std::uint64_t>(seed);
  if (data->token_ids())
    return {data, std::make_shared<UniformTokens>(data->sample_shape(), random, count_token_ids(data, batch),
                                                  stream)};
  return {data,
          std::make_shared<UniformSamples>(data->sample_shape(), random, data_range(data, batch), stream)};
}

void count_expected(const StateDict& state, Expected& expected) {
  expected.samples += state.at("x").dim(0);
  expected.logits += state.at("logits").numel();
  const StateDict codes = state.sub("codes");
  for (const auto& name : codes.names()) expected.codes[name] += codes.at(name).numel();
}

/// Writes the predictions of a network to files and calls `use` with the content of each file.
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

/// Writes inputs and outputs of the linear layers for the first samples. Returns an empty path if there are
/// no such layers.
std::string write_layers(Network& network, const Data& data, const std::string& path, Output& output) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(std::min(kLayerSamples, data->size())));
  std::iota(rows.begin(), rows.end(), 0);
  LayerRecorder recorder;
  Tensor x;
  {
    // The scope ends before the state is read, so that copying records nothing.
    const RecordScope scope(recorder);
    visit_batches(
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
  FQ_CHECK(random == 0 || integer_input(network).empty(), "verify",
           "--random {}: samples of the input '{}' are whole numbers: leave it out", random,
           integer_input(network));
}

// Folds the network as its last step: the predictions before must not see the folded weights.
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
  // An exported file has folded batch norms. Both versions are compared: the trained network, and the folded
  // one, which rounds like the file.
  if (network.live_batch_norms() == 0 || network.fold() == 0) return expected;
  expected.folded = write_predictions(
      network, samples, options.batch, predicted, folder.file("folded"), [](const StateDict&) {}, output);
  return expected;
}

}  // namespace fq::cli
