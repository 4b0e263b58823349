#include "fakequant/cli/fine_tuning/sample_accuracy.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "fakequant/cli/data.h"
#include "fakequant/core/log.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/train/loop/evaluate.h"
#include "fakequant/train/qat_training.h"

namespace fq::cli {
namespace {

constexpr std::int64_t kImages = 512, kBatch = 64;
constexpr double kLeft = 0.25;      // of the way from chance to float, below which a network is near chance
constexpr double kNoise = 0.02;     // of training, that is no loss
constexpr double kKnowledge = 0.1;  // a float network that is no more than that above chance knows nothing

double largest_class(const Dataset& data, std::int64_t images) {
  std::map<std::int64_t, std::int64_t> counts;
  for (const auto label : data.labels().to_vector<std::int64_t>()) ++counts[label];
  const auto most = std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
  return double(most->second) / double(images);
}

}  // namespace

bool SampleAccuracy::near_chance() const {
  return in_float > chance + kKnowledge && quantized < chance + kLeft * (in_float - chance);
}

std::string SampleAccuracy::text() const {
  return fmt::format("{:.1f} % of {} training samples right, {:.1f} % in float", 100 * quantized, images,
                     100 * in_float);
}

std::optional<SampleAccuracy> sample_accuracy(const Network& network,
                                              const std::shared_ptr<const Dataset>& data) {
  if (data == nullptr || data->classes() < 2 || data->classes() > network.classes()) return std::nullopt;
  if (!data->labels().defined() || !one_class_each(network.task(), *data)) return std::nullopt;
  const auto some = some_samples(data, kImages, 0);
  Module& model = network.module();
  DataLoader loader(some, {.batch_size = kBatch, .shuffle = false, .device = model.device()});
  SampleAccuracy out{.images = some->size()};
  out.chance = largest_class(*data, data->size());
  const auto right = [&] { return evaluate(model, loader).accuracy; };
  out.in_float = float_accuracy(model, data);
  out.quantized = uncalibrated_quantizers(model).empty() ? right() : out.in_float;
  return out;
}

void warn_of_loss(const SampleAccuracy& before, const SampleAccuracy& after, const std::string& command) {
  const bool lost = after.quantized < before.quantized - kNoise;
  if (!lost && !after.near_chance()) return;
  log(LogLevel::warning,
      fmt::format("[{}] ends at {:.1f} % of {} training samples, {:.1f} % before it, and chance is {:.1f} %: "
                  "give it another --lr, more --epochs or more bits; with --val-fraction 0.1 the best of "
                  "all epochs and the beginning is kept",
                  command, 100 * after.quantized, after.images, 100 * before.quantized, 100 * after.chance));
}

void warn_near_chance(const SampleAccuracy& found, const Network& network, const std::string& command) {
  if (!found.near_chance()) return;
  const std::string named = network.identity().preset();
  const std::string preset = named.empty() ? "the quantized network" : named;
  log(LogLevel::warning,
      fmt::format(
          "[{}] {}: {}, and chance is {:.1f} %: fine-tune it (fakequant qat), or give it more bits "
          "(--preset, --edge-bits 8) or ranges of least error (--method one_pass_mse, --weight-method "
          "mse)",
          command, preset, found.text(), 100 * found.chance));
}

}  // namespace fq::cli
