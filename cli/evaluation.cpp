#include "fakequant/cli/evaluation.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/network_tokenizer.h"
#include "fakequant/cli/system/ranks.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/log.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/loop/detail/evaluation.h"
#include "fakequant/train/ranks/shares.h"

namespace fq::cli {
namespace {

class BatchProgress {
 public:
  BatchProgress(Output& output, const std::string& label, const Dataset& data)
      : output_(output), label_(label), samples_(sample_noun(data)), total_(data.size()) {}

  [[nodiscard]] std::int64_t done() const { return done_; }
  void add(std::int64_t samples) {
    done_ += samples;
    // The first batch may take less than the resolution of the clock.
    const double rate = double(done_) / std::max(watch_.seconds(), 1e-9);
    output_.progress({label_, done_, total_, 0, -1, rate, double(total_ - done_) / rate, samples_});
  }

 private:
  Output& output_;
  const std::string& label_;
  const Stopwatch watch_;
  const std::string samples_;
  std::int64_t total_, done_ = 0;
};

}  // namespace

void visit_outputs(const Network& network, std::shared_ptr<const Dataset> data, std::int64_t batch,
                   const std::function<void(const Tensor&, const Tensor&)>& visit, Output& output,
                   const std::string& label) {
  const GracefulStop stop;
  DataLoader loader(data, share_of_rank({.batch_size = batch, .shuffle = false}, *run_ranks()));
  BatchProgress progress(output, label, *data);
  const auto next = [&](const Tensor& logits, const Tensor& labels) {
    if (stop_requested()) return false;
    visit(logits, labels);
    // Batches have the size `batch`, except for the last one. Logits of sequences do not show the number of
    // samples.
    progress.add(std::min(batch, data->size() - progress.done()));
    return true;
  };
  // The library stops on all ranks if `next` returns false on one of them.
  if (!fq::detail::visit_outputs(network.module(), loader, run_ranks().get(), next)) throw Interrupted(label);
}

void visit_batches(const Network& network, std::shared_ptr<const Dataset> data, std::int64_t batch,
                   const std::function<void(const Batch&, const Variable&)>& visit, Output& output,
                   const std::string& label) {
  const NoGrad no_grad;
  const GracefulStop stop;
  // Batch norm then uses its running statistics, and dropout is off.
  network.module().eval();
  BatchProgress progress(output, label, *data);
  DataLoader loader(std::move(data), {.batch_size = batch, .shuffle = false});
  while (auto next = loader.next()) {
    if (stop_requested()) throw Interrupted(label);
    visit(*next, (network.module())(Variable(next->x.to(network.module().device()))));
    progress.add(next->size());
  }
}

void predict_parts(const Network& network, const std::shared_ptr<const Dataset>& data, std::int64_t batch,
                   const PredictionOptions& options, const std::function<void(const StateDict&)>& use,
                   Output& output, const std::string& label) {
  PredictionParts parts(network, options, use);
  // Codes are recorded on the process that computes them, so ranks do not share these batches.
  if (options.inputs || options.codes)
    visit_batches(
        network, data, batch,
        [&](const Batch& samples, const Variable& y) { parts.add(samples.x, y.tensor()); }, output, label);
  else
    visit_outputs(
        network, data, batch, [&](const Tensor& y, const Tensor&) { parts.add({}, y); }, output, label);
  parts.finish();
}

FoldChange compare(const Network& before, const Network& after, const std::shared_ptr<const Dataset>& data,
                   std::int64_t batch, Output& output) {
  // `visit_batches` runs the network before folding. The comparison runs the folded one on the same batch.
  FoldComparison comparison(before, after, *data, token_metric_options(before));
  visit_batches(
      before, data, batch,
      [&](const Batch& samples, const Variable& logits) { comparison.add(samples, logits.tensor()); }, output,
      "compare");
  return comparison.change();
}

void print(const FoldChange& change, Output& output) {
  // A float network has no codes to compare.
  if (change.codes > 0)
    output.line(fmt::format("{} of {} codes changed ({:.3g} %)", change.different, change.codes,
                            100 * double(change.different) / double(change.codes)));
  if (change.accuracy)
    output.line(fmt::format("accuracy {} before, {} after",
                            percent(change.before.accuracy, change.before.count),
                            percent(change.after.accuracy, change.after.count)));
  else
    output.line(fmt::format("loss {:.6f} before, {:.6f} after", change.before.loss, change.after.loss));
}

nlohmann::ordered_json to_json(const FoldChange& change) {
  nlohmann::ordered_json out{{"codes", change.codes}, {"different_codes", change.different}};
  const auto put = [&](const std::string& when, const Evaluation& found) {
    if (change.accuracy) out["accuracy_" + when] = 100 * found.accuracy;
    out["loss_" + when] = found.loss;
  };
  put("before", change.before);
  put("after", change.after);
  out["count"] = change.before.count;
  return out;
}

namespace {

constexpr std::size_t kShownFindings = 3;

std::string advice(const QuantizerFinding& found, bool trained) {
  // More bits do not help a quantizer whose input is constant.
  if (found.kind == QuantizerFinding::Kind::zeros || found.kind == QuantizerFinding::Kind::constant)
    return "the layers before it output zeros or a constant: check them, also in float";
  if (trained) return "use a smaller --lr, more bits (--preset, --config), or --amax frozen";
  const char* method = found.of_weight ? "--weight-method" : "--method";
  return fmt::format("use another {}, or more bits (--preset, --config)", method);
}

}  // namespace

void warn_of_quantizers(const Network& network, const std::shared_ptr<const Dataset>& data,
                        const std::string& command) {
  auto all = quantizer_findings(network, data);
  if (command == "calibrate")  // calibrate reports them itself
    std::erase_if(all, [](const auto& each) { return each.kind == QuantizerFinding::Kind::zeros; });
  for (std::size_t i = 0; i < all.size() && i < kShownFindings; ++i)
    log(LogLevel::warning,
        fmt::format("[{}] {}: {}", command, all[i].text(), advice(all[i], command == "qat")));
  // A broken network may have a finding for every quantizer.
  if (all.size() > kShownFindings)
    log(LogLevel::warning,
        fmt::format("[{}] {} other quantizers have similar problems. fakequant inspect FILE "
                    "--calibration --data FILE shows all ranges",
                    command, all.size() - kShownFindings));
}

void warn_of_loss(const SampleAccuracy& before, const SampleAccuracy& after, const std::string& command) {
  if (!after.lost(before) && !after.near_chance()) return;
  log(LogLevel::warning,
      fmt::format("[{}] ends at {:.1f} % of {} training samples, {:.1f} % before it, and chance is {:.1f} %: "
                  "use another --lr, more --epochs or more bits. --val-fraction 0.1 saves the best epoch, "
                  "or the start",
                  command, 100 * after.quantized, after.images, 100 * before.quantized, 100 * after.chance));
}

void warn_near_chance(const SampleAccuracy& found, const Network& network, const std::string& command) {
  if (!found.near_chance()) return;
  const std::string named = network.identity().preset();
  const std::string preset = named.empty() ? "the quantized network" : named;
  log(LogLevel::warning,
      fmt::format(
          "[{}] {}: {}, and chance is {:.1f} %: fine-tune it (fakequant qat), or use more bits "
          "(--preset, --edge-bits 8) or ranges of least error (--method one_pass_mse, --weight-method "
          "mse)",
          command, preset, found.text(), 100 * found.chance));
}

void warn_unless_exportable(const Network& network, const std::string& command) {
  if (const std::string problem = export_problem(network); !problem.empty())
    log(LogLevel::warning,
        fmt::format(
            "[{}] this network cannot be exported to ONNX for {}: {}. With --target none there is no export",
            command, name(model_target(network.module())), problem));
}

}  // namespace fq::cli
