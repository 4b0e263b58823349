#include "fakequant/train/ptq/detail/input_statistics.h"

#include "fakequant/core/ops/linear.h"
#include "fakequant/core/ops/operators.h"
#include "fakequant/train/ptq/detail/float_run.h"
#include "fakequant/train/ptq/detail/input_sums.h"

namespace fq::ptq {
namespace {

class InputRecorder : public Recorder {
 public:
  InputRecorder(const std::vector<WeightedLayer>& layers, const StatisticsOptions& options) {
    for (const auto& layer : layers) layers_.try_emplace(layer.path, layer, options);
  }

  void record_op(std::string_view op, const std::vector<Variable>& inputs, const Variable&,
                 Attributes) override {
    const auto layer = layers_.find(module_path());
    // The recorder sees all operators of a layer; the product is the one with a weight.
    if (busy_ || layer == layers_.end() || !traits(op).has_weight) return;
    busy_ = true;  // the operators of `add` are not part of the model
    layer->second.add(inputs[0].tensor().to(Layout::row_major));
    busy_ = false;
  }

  // Layers are in the order of their paths on all ranks, so that ranks merge the same layer together.
  std::map<std::string, InputStatistics> finish(Communicator& ranks) {
    std::map<std::string, InputStatistics> out;
    for (auto& [path, sums] : layers_) out[path] = sums.merged(ranks);
    return out;
  }

 private:
  std::map<std::string, InputSums> layers_;
  bool busy_ = false;
};

}  // namespace

std::map<std::string, InputStatistics> input_statistics(Module& model, DataLoader& data,
                                                        const std::vector<WeightedLayer>& layers,
                                                        const StatisticsOptions& options,
                                                        const std::string& function) {
  const FloatScope float_scope(model);
  const NoGrad no_grad;
  const auto ranks = ranks_or_one(options.ranks);
  InputRecorder recorder(layers, options);
  run_batches(model, data, options.samples, *ranks, &recorder, function);
  return recorder.finish(*ranks);
}

Tensor times_gram(const WeightedLayer& layer, const InputStatistics& statistics, const Tensor& difference) {
  const NoGrad no_grad;
  const std::int64_t rows = layer.rows() / layer.groups(), columns = layer.columns();
  const Tensor all = difference.reshape({layer.rows(), columns});
  Tensor out = Tensor::empty(all.shape());
  for (std::int64_t g = 0; g < layer.groups(); ++g) {
    // Rows of group g: [rows, columns] times gram [columns, columns].
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
  // d^T gram d per row, summed in f64.
  for (double& sum : out)
    for (std::int64_t k = 0; k < layer.columns(); ++k) sum += double(*p++) * double(*d++);
  return out;
}

}  // namespace fq::ptq
