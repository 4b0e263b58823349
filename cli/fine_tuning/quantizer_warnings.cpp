#include "fakequant/cli/fine_tuning/quantizer_warnings.h"

#include <fmt/format.h>

#include "fakequant/cli/data.h"
#include "fakequant/core/log.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/train/calibration/quantizer_findings.h"
#include "fakequant/train/data/loader.h"

namespace fq::cli {
namespace {

constexpr std::int64_t kWarned = 64;
constexpr std::size_t kTold = 3;

std::string advice(const QuantizerFinding& found, bool trained) {
  if (found.kind == QuantizerFinding::Kind::zeros || found.kind == QuantizerFinding::Kind::constant)
    return "the layers before it give nothing: look at them, in float too";
  if (trained) return "give it a smaller --lr, more bits (--preset, --config), or --amax frozen";
  const char* method = found.of_weight ? "--weight-method" : "--method";
  return fmt::format("give it another {}, or more bits (--preset, --config)", method);
}

Tensor some_images(const Network& network, const std::shared_ptr<const Dataset>& data) {
  if (data == nullptr) return {};
  DataLoader loader(some_samples(data, kWarned, 0), {.batch_size = kWarned, .shuffle = false});
  const auto batch = loader.next();
  return batch ? batch->x.to(network.module().device()) : Tensor();
}

}  // namespace

void warn_of_quantizers(const Network& network, const std::shared_ptr<const Dataset>& data,
                        const std::string& command) {
  if (!uncalibrated_quantizers(network.module()).empty()) return;
  auto all = quantizer_findings(network.module(), some_images(network, data));
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

}  // namespace fq::cli
