#include "fakequant/cli/engines/layer_recorder.h"

#include <algorithm>

#include <fmt/format.h>

#include "fakequant/core/variable.h"

namespace fq::cli {
namespace {

Tensor on_host(const Tensor& value) { return value.to(Device::cpu()).to(Layout::row_major).clone(); }

}  // namespace

void LayerRecorder::on_op(std::string_view op, const std::vector<Variable>& inputs, const Variable& output,
                          Attributes attributes) {
  if (op != "linear") return;
  const std::string at = fmt::format("layers/{:04} {}/", count_++, module_path());
  layers_.set(at + "x", on_host(inputs.at(0).tensor()));
  layers_.set(at + "y", on_host(output.tensor()));
  if (inputs.size() > 2 && inputs[2].defined()) layers_.set(at + "bias", on_host(inputs[2].tensor()));
  const bool by_rows = std::ranges::any_of(attributes, [](const auto& a) { return a.first == "engine"; });
  if (const QuantizedTensor* codes = inputs.at(1).quantized(); by_rows && codes != nullptr) {
    layers_.set(at + "codes", on_host(codes->codes));
    layers_.set(at + "scale", on_host(codes->grid.scale));
  }
}

}  // namespace fq::cli
