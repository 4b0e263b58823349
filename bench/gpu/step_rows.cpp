#include <cmath>

#include <fmt/format.h>

#include "fakequant/bench/arrays.h"
#include "fakequant/bench/gpu/rows.h"
#include "fakequant/bench/networks.h"
#include "fakequant/core/detail/check.h"

namespace fq::bench {
namespace {

constexpr double kStepShare = 1.05;  // of the float step

std::shared_ptr<TrainingStep> step_on(Device device, const NetworkSize& size, Numbers numbers) {
  Network network = make_network(size, numbers);
  network.model->to(device);
  network.x = network.x.to(device);
  network.labels = network.labels.to(device);
  return std::make_shared<TrainingStep>(std::move(network));
}

GpuRow step_row(const std::string& name, const NetworkSize& size) {
  GpuRow row{fmt::format("step.{}.qat_int8/own_fp32", name), kStepShare, {}};
  row.make = [=](Device device, std::int64_t) {
    const auto ours = step_on(device, size, Numbers::int8), theirs = step_on(device, size, Numbers::fp32);
    GpuRow::Work work;
    work.ours = [ours] { ours->run(); };
    work.theirs = [theirs] { theirs->run(); };
    work.check = [ours] {
      ours->run();
      const double loss = ours->loss().item();
      return std::isfinite(loss) ? std::string() : fmt::format("the loss of ours is {}", loss);
    };
    return work;
  };
  return row;
}

}  // namespace

std::vector<GpuRow> gpu_step_rows() {
  return {step_row("resnet20_b512", {"resnet20", {}, {512, 3, 32, 32}}),
          step_row("mlp4096_b512", {"mlp", R"({"widths": [4096, 4096]})", {512, 1, 28, 28}})};
}

}  // namespace fq::bench
