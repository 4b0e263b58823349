#include <fmt/format.h>

#include "fakequant/bench/networks.h"
#include "fakequant/bench/row.h"
#include "fakequant/core/detail/allocator.h"

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

Row saved_bytes(const std::string& network, std::string_view peer) {
  Row row{
      fmt::format("memory.saved_bytes.{}.qat_int8_folded/{}", network, peer), "MiB", Clock::wall, true, {}};
  row.make = [=](const Settings&) {
    TrainingStep step(make_network(network, Numbers::int8, BatchNorm::folded));
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
    for (const char* network : {"mlp", "cnn", "resnet20"}) rows.push_back(saved_bytes(network, peer));
  return rows;
}

}  // namespace fq::bench
