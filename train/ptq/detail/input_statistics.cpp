#include "fakequant/train/ptq/detail/input_statistics.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/operators.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/ops/linear.h"
#include "fakequant/train/ptq/detail/float_run.h"
#include "fakequant/train/ptq/detail/patches.h"

namespace fq::ptq {
namespace {

/// Channels along axis 1 of images, along the last of rows.
void add_channels(const WeightedLayer& layer, const Tensor& x, InputStatistics& out) {
  const std::int64_t channels = layer.channels(),
                     inner = layer.linear() ? 1 : numel(x.shape()) / x.dim(0) / channels;
  const std::int64_t outer = x.numel() / channels / inner;
  out.largest.resize(static_cast<std::size_t>(channels), 0.0f);
  out.magnitudes.resize(static_cast<std::size_t>(channels), 0.0);
  const auto* values = x.data<float>();
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::size_t c = 0; c < out.largest.size(); ++c)
      for (std::int64_t i = 0; i < inner; ++i) {
        const float magnitude = std::abs(*values++);
        out.largest[c] = std::max(out.largest[c], magnitude);
        out.magnitudes[c] += double(magnitude);
      }
  out.values += outer * inner;
  const bool finite = std::ranges::all_of(out.magnitudes, [](double sum) { return std::isfinite(sum); });
  if (!finite)
    throw NumericError(fmt::format("[ptq] the input of '{}' has a NaN or an infinity", layer.path));
}

class InputRecorder : public Recorder {
 public:
  InputRecorder(const std::vector<WeightedLayer>& layers, const StatisticsOptions& options)
      : options_(options) {
    for (const auto& layer : layers) {
      layers_[layer.path] = &layer;
      auto& entry = statistics_[layer.path];
      if (options.gram)
        for (std::int64_t g = 0; g < layer.groups(); ++g)
          entry.gram.push_back(Tensor::zeros({layer.columns(), layer.columns()}, DType::f64));
    }
  }

  void on_op(std::string_view op, const std::vector<Variable>& inputs, const Variable&, Attributes) override {
    const auto layer = layers_.find(module_path());
    if (busy_ || layer == layers_.end() || !traits(op).has_weight) return;
    busy_ = true;  // what is computed here is not the model's
    add(*layer->second, inputs[0].tensor().to(Layout::row_major), statistics_.at(layer->first));
    busy_ = false;
  }

  std::map<std::string, InputStatistics> finish() {
    for (auto& [path, entry] : statistics_)
      for (Tensor& gram : entry.gram) {
        const double rows = double(std::max<std::int64_t>(1, rows_[path]));
        gram = ops::scale(Variable(gram), 1.0 / rows).tensor().to(DType::f32);
      }
    return std::move(statistics_);
  }

 private:
  void add(const WeightedLayer& layer, const Tensor& x, InputStatistics& out) {
    if (x.numel() == 0) return;
    add_channels(layer, x, out);
    for (std::size_t g = 0; g < out.gram.size(); ++g) {
      const Variable columns(patches(layer, x, static_cast<std::int64_t>(g), options_.positions));
      const Tensor product = ops::linear(columns, columns).tensor();
      const auto* from = product.data<float>();
      auto* to = out.gram[g].mutable_data<double>();
      for (std::int64_t i = 0; i < product.numel(); ++i) to[i] += double(from[i]);
      if (g == 0) rows_[layer.path] += columns.dim(1);
    }
  }

  StatisticsOptions options_;
  std::map<std::string, const WeightedLayer*> layers_;
  std::map<std::string, InputStatistics> statistics_;
  std::map<std::string, std::int64_t> rows_;
  bool busy_ = false;
};

}  // namespace

std::map<std::string, InputStatistics> input_statistics(Module& model, DataLoader& data,
                                                        const std::vector<WeightedLayer>& layers,
                                                        const StatisticsOptions& options,
                                                        const std::string& function) {
  const FloatScope in_float(model);
  const NoGrad no_grad;
  InputRecorder recorder(layers, options);
  run_batches(model, data, options.samples, &recorder, function);
  return recorder.finish();
}

Tensor times_gram(const WeightedLayer& layer, const InputStatistics& statistics, const Tensor& difference) {
  const NoGrad no_grad;
  const std::int64_t rows = layer.rows() / layer.groups(), columns = layer.columns();
  const Tensor all = difference.reshape({layer.rows(), columns});
  Tensor out = Tensor::empty(all.shape());
  for (std::int64_t g = 0; g < layer.groups(); ++g) {
    const Variable part(all.slice(g * rows, (g + 1) * rows));
    const Variable gram(statistics.gram.at(static_cast<std::size_t>(g)));  // symmetric
    out.slice(g * rows, (g + 1) * rows).copy_from(ops::linear(part, gram).tensor());
  }
  return out;
}

std::vector<double> row_errors(const WeightedLayer& layer, const InputStatistics& statistics,
                               const Tensor& difference) {
  const Tensor product = times_gram(layer, statistics, difference);
  const auto* p = product.data<float>();
  const auto* d = difference.data<float>();
  std::vector<double> out(static_cast<std::size_t>(layer.rows()), 0.0);
  for (double& sum : out)
    for (std::int64_t k = 0; k < layer.columns(); ++k) sum += double(*p++) * double(*d++);
  return out;
}

}  // namespace fq::ptq
