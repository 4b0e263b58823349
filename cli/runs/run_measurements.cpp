#include "fakequant/cli/runs/run_measurements.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "fakequant/cli/tables/class_table.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/export/scales.h"
#include "fakequant/layers/modules/detail/module_scopes.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/report/detail/html.h"
#include "fakequant/report/detail/picture.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/data/subset.h"
#include "fakequant/train/loop/evaluate.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kClipSamples = 64;

/// Returns the name of a kind of work for people.
/// Kinds of the profiler without a phase of their own are parts of the forward pass.
std::string phase_name(const std::string& kind) {
  if (kind == "loader") return "waiting for data";
  if (kind == "dX" || kind == "dW" || kind.ends_with(" backward")) return "backward";
  if (kind == "quantize" || kind == "optimizer" || kind == "other") return kind;
  return "forward";
}

// Runs one batch through the network. The counter records the input of every quantizer.
ClipCounts count_clips(Module& model, const Tensor& x) {
  const NoGrad no_grad;
  const fq::detail::EvaluationMode evaluating(model);
  ClipCounter counter(model);
  const RecordScope scope(counter);
  (void)model(Variable(x));
  return counter.counts();
}

}  // namespace

ordered_json phase_times(const Profile& profile) {
  ordered_json out = ordered_json::object();
  for (const auto& row : profile.rows) {
    const std::string phase = phase_name(row.kind);
    out[phase] = out.value(phase, 0.0) + row.milliseconds;
  }
  return out;
}

Tensor some_inputs(const Run& run) {
  if (!run.network.quantized()) return {};
  // Every epoch measures the same samples, so that curves of clipping are comparable.
  DataLoader loader(some_samples(run.data, kClipSamples, 0), {.batch_size = kClipSamples, .shuffle = false});
  const auto batch = loader.next();
  return batch ? batch->x.to(run.network.module().device()) : Tensor();
}

ordered_json quantizer_ranges(Module& model, const Tensor& x) {
  ordered_json out = ordered_json::object();
  const auto of_weights = weight_quantizers(model);
  std::set<std::string> weights;
  for (const auto& entry : named_quantizers(model)) {
    if (of_weights.contains(entry.quantizer)) weights.insert(entry.name);
    const Tensor amax = entry.quantizer->amax();
    if (!entry.quantizer->params().enabled || !amax.defined()) continue;
    const auto values = amax.to_vector<float>();
    if (!values.empty()) out[entry.name] = {{"amax", *std::ranges::max_element(values)}};
  }
  if (!x.defined() || !uncalibrated_quantizers(model).empty()) return out;
  for (const auto& [name, clips] : count_clips(model, x))
    // Clipping of weights depends on the range alone and is no measure of the data.
    if (clips.count > 0 && out.contains(name) && !weights.contains(name))
      out[name]["clipped"] = static_cast<double>(clips.clipped) / static_cast<double>(clips.count);
  return out;
}

namespace {

using nlohmann::ordered_json;

constexpr std::size_t kWorst = 16;

/// A sample with a wrong prediction.
struct Mistake {
  std::int64_t row = 0, label = 0, prediction = 0;
  double probability = 0;  // of the right class
};

// Softmax of one row. Subtracting the maximum avoids overflow of exp.
double label_probability(const float* logits, std::int64_t classes, std::int64_t label) {
  const float most = *std::max_element(logits, logits + classes);
  double sum = 0;
  for (std::int64_t c = 0; c < classes; ++c) sum += std::exp(double(logits[c] - most));
  return std::exp(double(logits[label] - most)) / sum;
}

bool is_image(const Dataset& data) {
  const Shape& shape = data.sample_shape();
  return !data.token_ids() && shape.size() == 3;
}

// Samples are normalised. The data set gives the values of black and white in the same units.
std::string shown_sample(const Dataset& data, std::int64_t row) {
  const Batch batch = data.read(std::vector<std::int64_t>{row});
  const std::int64_t values = numel(data.sample_shape());
  const Picture picture = make_picture({batch.x.data<float>(), std::size_t(values)}, data.sample_shape(),
                                       data.background(), data.white());
  return fmt::format("<img alt=\"row {}\" src=\"{}\">", row, html::picture_uri(picture));
}

ordered_json mistake_json(const Mistake& of) {
  return {{"row", of.row}, {"label", of.label}, {"answer", of.prediction}, {"probability", of.probability}};
}

}  // namespace

ClassExamples class_examples(const Network& network, const std::shared_ptr<const Dataset>& data,
                             const std::vector<std::int64_t>& rows, std::int64_t batch) {
  const auto some = std::make_shared<Subset>(data, rows);
  DataLoader loader(some, {.batch_size = batch, .shuffle = false, .device = network.module().device()});
  // logits: [N, classes] f32 on the host, in the order of `rows`.
  const Tensor logits = predict(network.module(), loader), predicted = predictions(logits),
               label = some->labels();
  const std::int64_t classes = logits.shape()[1], samples = some->size();
  // confusion[label][prediction] is a count.
  std::vector<std::vector<std::int64_t>> confusion;
  confusion.resize(std::size_t(classes), std::vector<std::int64_t>(std::size_t(classes), 0));
  std::vector<Mistake> mistakes;
  for (std::int64_t i = 0; i < samples; ++i) {
    const std::int64_t actual = label.data<std::int64_t>()[i], prediction = predicted.data<std::int64_t>()[i];
    if (prediction < 0) continue;  // a NaN
    ++confusion[std::size_t(actual)][std::size_t(prediction)];
    if (actual != prediction)
      mistakes.push_back({rows[std::size_t(i)], actual, prediction,
                          label_probability(logits.data<float>() + i * classes, classes, actual)});
  }
  // The smallest probability of the right class first. Equal ones stay in the order of the rows.
  std::ranges::stable_sort(mistakes, {}, &Mistake::probability);
  if (mistakes.size() > kWorst) mistakes.resize(kWorst);
  ClassExamples out;
  out.counts = {{"samples", samples}, {"names", network.identity().class_names}, {"confusion", confusion}};
  out.counts["worst"] = ordered_json::array();
  for (const auto& mistake : mistakes) {
    out.counts["worst"].push_back(mistake_json(mistake));
    if (is_image(*data)) out.shown[mistake.row] = shown_sample(*data, mistake.row);
  }
  return out;
}

}  // namespace fq::cli
