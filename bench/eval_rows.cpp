#include <memory>

#include "fakequant/bench/arrays.h"
#include "fakequant/bench/networks.h"
#include "fakequant/bench/row.h"
#include "fakequant/layers/modules/quant_modules.h"

namespace fq::bench {
namespace {

constexpr const char* kLayers[] = {"conv1", "conv2", "conv3", "fc"};

/// Writes the arrays from which the peer builds the same integer network: <layer>.weight, .bias,
/// .weight_scale, .scale and .zero_point (both of the layer's input).
void write_layer(const Settings& settings, Module& model, const std::string& name) {
  auto& layer = model.at(name);
  const auto& quant = dynamic_cast<const QuantModule&>(layer);
  const auto write = [&](const char* what, const Tensor& values) {
    write_array(settings.exchange, name + "." + what, values);
  };
  const auto input = quant.input_quantizers().front();
  for (const auto& [parameter, value] : layer.named_parameters()) write(parameter.c_str(), value.tensor());
  write("weight_scale", quant.weight_quantizer()->scale());
  write("scale", input->scale());
  write("zero_point", Tensor::scalar(input->params().zero_point));
}

Tensor logits(const Network& network) {
  const NoGrad no_grad;
  return (*network.model)(network.x).tensor();
}

Row eval_row() {
  Row row{"eval.cnn.int8/onnxruntime_int8", "ms", Clock::cpu, true, {}};
  row.make = [](const Settings& settings) {
    const auto network = std::make_shared<Network>(make_network("cnn", Numbers::int8, BatchNorm::folded));
    network->model->eval();
    write_array(settings.exchange, "x", network->x);
    for (const char* layer : kLayers) write_layer(settings, *network->model, layer);
    Work work;
    work.ours.run = [network] { static_cast<void>(logits(*network)); };
    work.check = [network, settings] {
      const auto theirs = read_array(settings.exchange, "y", {network->x.dim(0), kClasses});
      return first_difference("logits", logits(*network), theirs, Zeros::equal);
    };
    return work;
  };
  return row;
}

}  // namespace

std::vector<Row> eval_rows() { return {eval_row()}; }

}  // namespace fq::bench
