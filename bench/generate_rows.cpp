#include <memory>
#include <string>

#include "fakequant/bench/networks.h"
#include "fakequant/bench/row.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/export/onnx/exporter.h"
#include "fakequant/layers/model/generate.h"

namespace fq::bench {
namespace {

constexpr std::int64_t kTokens = 128;  // of a call

/// Tokens of one text whose window has slid for a while, by keys and values that are kept; the peer runs the
/// exported file once for each token.
Row generate_row(const std::string& name, const GptSize& size) {
  Row row{"generate." + name + ".int8/onnxruntime", "ms/token", Clock::cpu, true, {}};
  row.make = [size](const Settings& settings) {
    const auto network = std::make_shared<Network>(make_gpt(Numbers::int8, size));
    network->model->eval();
    save_onnx((settings.exchange / "gpt.onnx").string(), export_onnx(*network->model, {size.context}));
    const GenerateOptions options{.tokens = kTokens, .temperature = 0, .context = size.context};
    Work work;
    work.units_per_second = 1e3 / static_cast<double>(kTokens);
    work.ours.run = [network, options] { static_cast<void>(generate(*network->model, network->x, options)); };
    work.check = [network, options] {
      const Tensor ids = generate(*network->model, network->x, options);
      return ids.dim(1) == options.context + kTokens ? std::string() : "ours ends early: " + ids.describe();
    };
    return work;
  };
  return row;
}

}  // namespace

std::vector<Row> generate_rows() {
  return {generate_row("gpt", {.batch = 1}),
          generate_row("gpt_small", {.layers = 2, .width = 64, .context = 64, .batch = 1})};
}

}  // namespace fq::bench
