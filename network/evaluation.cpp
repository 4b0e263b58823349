#include "fakequant/network/evaluation.h"

#include <algorithm>
#include <unordered_map>

#include "fakequant/layers/quantizer/sequential_quantizer.h"
#include "fakequant/network/data_checks.h"
#include "fakequant/network/qat.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/loop/detail/score_sum.h"

namespace fq {

Evaluation evaluate(const Network& network, const std::shared_ptr<const Dataset>& data,
                    std::int64_t batch_size, const MetricOptions& options) {
  check_fits(network, *data, "evaluate");
  check_task(network, *data, "evaluate");
  check_calibrated(network, "evaluate");
  const Task task = network.task();
  DataLoader loader(data, {.batch_size = batch_size, .shuffle = false, .device = network.module().device()});
  return evaluate(network.module(), loader, nullptr, task_loss(task, *data), task_metrics(task, *data),
                  options);
}

struct Scoring::Sum : detail::ScoreSum {
  using ScoreSum::ScoreSum;
};

Scoring::Scoring(const Network& network, const Dataset& data, const MetricOptions& options)
    : sum_(std::make_unique<Sum>(task_loss(network.task(), data), task_metrics(network.task(), data),
                                 options)),
      accuracy_(one_class_each(network.task(), data)) {}
Scoring::~Scoring() = default;

void Scoring::add(const Tensor& logits, const Tensor& labels) { sum_->add(Variable(logits), labels); }
Evaluation Scoring::score() const { return sum_->mean(); }

std::int64_t weight_bytes(const Network& network) {
  struct Codes {
    int bits = 32;
    std::int64_t readers = 0;
  };
  std::unordered_map<const void*, Codes> codes;
  for (auto& [path, module] : network.module().named_modules()) {
    auto* quant = dynamic_cast<QuantModule*>(module);
    auto* quantizer = quant != nullptr ? quant->weight_quantizer() : nullptr;
    if (quantizer == nullptr) continue;
    int bits = 0;
    for (const auto* part : quantizer_parts(*quantizer))
      if (part->enabled()) bits = std::min(bits == 0 ? 32 : bits, part->descriptor().format().bits());
    if (bits == 0) continue;
    Codes& own = codes[quant->quantized_weight().node().get()];
    own = {std::min(own.bits, bits), own.readers + 1};
  }
  const auto named = network.module().named_parameters();
  std::int64_t bytes = 0;
  for (const auto& parameter : network.module().parameters()) {
    const auto* node = parameter.node().get();
    const Codes own = codes.contains(node) ? codes.at(node) : Codes{};
    if (own.readers > 0) bytes += (parameter.numel() * own.bits + 7) / 8;
    if (std::ranges::count(named, node, [](const auto& entry) { return entry.second.node().get(); }) >
        own.readers)
      bytes += 4 * parameter.numel();  // read as floats too, as the table of a tied layer
  }
  return bytes;
}

}  // namespace fq
