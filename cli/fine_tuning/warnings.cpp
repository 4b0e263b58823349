#include "fakequant/cli/fine_tuning/warnings.h"

#include <fmt/format.h>

#include "fakequant/core/log.h"

namespace fq::cli {
namespace {

constexpr std::size_t kTold = 3;

std::string advice(const QuantizerFinding& found, bool trained) {
  if (found.kind == QuantizerFinding::Kind::zeros || found.kind == QuantizerFinding::Kind::constant)
    return "the layers before it give nothing: look at them, in float too";
  if (trained) return "give it a smaller --lr, more bits (--preset, --config), or --amax frozen";
  const char* method = found.of_weight ? "--weight-method" : "--method";
  return fmt::format("give it another {}, or more bits (--preset, --config)", method);
}

}  // namespace

void warn_of_quantizers(const Network& network, const std::shared_ptr<const Dataset>& data,
                        const std::string& command) {
  auto all = quantizer_findings(network, data);
  if (command == "calibrate")  // which names them itself
    std::erase_if(all, [](const auto& each) { return each.kind == QuantizerFinding::Kind::zeros; });
  for (std::size_t i = 0; i < all.size() && i < kTold; ++i)
    log(LogLevel::warning,
        fmt::format("[{}] {}: {}", command, all[i].text(), advice(all[i], command == "qat")));
  if (all.size() > kTold)
    log(LogLevel::warning, fmt::format("[{}] {} other quantizers have such faults: fakequant inspect FILE "
                                       "--calibration --data FILE shows the ranges of all",
                                       command, all.size() - kTold));
}

void warn_of_loss(const SampleAccuracy& before, const SampleAccuracy& after, const std::string& command) {
  if (!after.lost(before) && !after.near_chance()) return;
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

void warn_unless_exportable(const Network& network, const std::string& command) {
  if (const std::string problem = export_problem(network); !problem.empty())
    log(LogLevel::warning,
        fmt::format("[{}] this network cannot be exported to ONNX for {}: {}. --target none asks for no file",
                    command, name(target_of(network.module())), problem));
}

}  // namespace fq::cli
