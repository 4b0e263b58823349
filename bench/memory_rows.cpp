#include <fmt/format.h>

#include "fakequant/bench/networks.h"
#include "fakequant/bench/row.h"
#include "fakequant/core/device.h"

namespace fq::bench {
namespace {

/// MiB that forward leaves behind for backward: neither parameters nor the input, which were there before.
double saved_mebibytes(TrainingStep& step) {
  for (int i = 0; i < 2; ++i) step.run();
  step.zero_grad();
  const auto before = memory_stats().in_use;
  const Variable loss = step.loss();
  return static_cast<double>(memory_stats().in_use - before) * 0x1p-20;
}

Row saved_bytes(const std::string& what, std::string_view peer, const std::function<Network()>& network) {
  Row row{fmt::format("memory.saved_bytes.{}/{}", what, peer), "MiB", Clock::wall, true, {}};
  row.make = [=](const Settings&) {
    TrainingStep step(network());
    Work work;
    work.ours.value = [saved = saved_mebibytes(step)] { return saved; };
    return work;
  };
  return row;
}

}  // namespace

std::vector<Row> memory_rows() {
  std::vector<Row> rows;
  for (const char* peer : {"torch_qat", "modelopt"})
    for (const std::string network : {"mlp", "cnn", "resnet20"})
      rows.push_back(saved_bytes(network + ".qat_int8_folded", peer, [network] {
        return make_network(network, Numbers::int8, BatchNorm::folded);
      }));
  rows.push_back(saved_bytes("gpt.qat_int8", "modelopt", [] { return make_gpt(Numbers::int8); }));
  return rows;
}

}  // namespace fq::bench
