#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "fakequant/bench/arrays.h"
#include "fakequant/bench/gpu/rows.h"
#include "fakequant/bench/networks.h"
#include "fakequant/core/detail/check.h"

namespace fq::bench {
namespace {

constexpr double kStepShare = 1.05;  // of the float step

using MakeNetwork = std::function<Network(Numbers)>;

std::shared_ptr<TrainingStep> device_step(Device device, Network network) {
  network.model->to(device);
  network.x = network.x.to(device);
  network.labels = network.labels.to(device);
  return std::make_shared<TrainingStep>(std::move(network));
}

GpuRow step_row(std::string_view name, std::string_view what, Numbers numbers, const MakeNetwork& make) {
  GpuRow row{fmt::format("step.{}.{}/own_fp32", name, what), kStepShare, {}};
  row.make = [=](Device device, std::int64_t) {
    const auto ours = device_step(device, make(numbers)), theirs = device_step(device, make(Numbers::fp32));
    GpuRow::Work work;
    work.ours = [ours] { ours->run(); };
    work.prepare = [ours] { ours->run(1); };
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

MakeNetwork network_maker(const NetworkSize& size) {
  return [=](Numbers numbers) { return make_network(size, numbers); };
}
MakeNetwork gpt_maker(const GptSize& size) {
  return [=](Numbers numbers) { return make_gpt(numbers, size); };
}

}  // namespace

std::vector<GpuRow> gpu_step_rows() {
  const struct {
    const char* name;
    MakeNetwork make;
  } networks[] = {{"resnet20_b512", network_maker({"resnet20", {}, {512, 3, 32, 32}})},
                  {"mlp4096_b512", network_maker({"mlp", R"({"hidden": [4096, 4096]})", {512, 1, 28, 28}})},
                  {"gpt", gpt_maker({})},
                  {"gpt768_b32", gpt_maker({12, 768, 12, 256, 32, 96})}};
  std::vector<GpuRow> rows;
  for (const auto& [name, make] : networks) {
    rows.push_back(step_row(name, "qat_int8", Numbers::int8, make));
    rows.push_back(step_row(name, "qat_nvfp4", Numbers::nvfp4, make));
    if (std::string_view(name).starts_with("gpt")) {  // rows that llama.cpp and XNNPACK round as they run
      rows.push_back(step_row(name, "qat_q4_0", Numbers::q4_0, make));
      rows.push_back(step_row(name, "qat_8da4w", Numbers::w8da4, make));
    }
  }
  return rows;
}

}  // namespace fq::bench
