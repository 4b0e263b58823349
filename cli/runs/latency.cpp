#include "fakequant/cli/runs/latency.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "fakequant/cli/initial_weights.h"
#include "fakequant/cli/python_script.h"
#include "fakequant/cli/system/temporary_folder.h"
#include "fakequant/cli/tables/output.h"
#include "fakequant/core/detail/threads.h"
#include "fakequant/core/error.h"
#include "fakequant/export/onnx/exporter.h"
#include "fakequant/layers/modules/detail/module_scopes.h"
#include "fakequant/network/network.h"

namespace fq::cli {
namespace {

constexpr int kLeastTimed = 20, kMostTimed = 2000;
constexpr double kSecondsTimed = 0.5;
constexpr double kSecondsOfEngine = 60;

std::optional<Latency> in_onnx_runtime(const Network& network, const std::string& python, int threads) try {
  const TemporaryFolder folder;
  const Shape batch = network.input_shape();
  save_onnx(folder.file("net.onnx"), export_onnx(network.module(), {batch.begin() + 1, batch.end()}));
  const std::vector<std::string> arguments{folder.file("net.onnx"), std::to_string(kLeastTimed),
                                           std::to_string(kMostTimed), std::to_string(kSecondsTimed),
                                           std::to_string(threads)};
  const ProgramEnd end =
      run_program(module_words("compare", python, "fakequant.engines.onnx_session", arguments),
                  {folder.file("out"), folder.file("errors"), kSecondsOfEngine});
  std::ifstream words(folder.file("out"));
  Latency found;
  if (end.status != 0 || !(words >> found.milliseconds >> std::ws)) return std::nullopt;
  std::getline(words, found.engine);
  return found;
} catch (const Error&) {  // no Python, or a network that has no ONNX file
  return std::nullopt;
}

std::optional<Latency> in_this_library(const Network& network, Device device) try {
  const NoGrad no_grad;
  const fq::detail::EvaluationMode evaluating(network.module());
  network.module().to(device);
  const Tensor x = Tensor::zeros(network.input_shape()).to(device);
  const auto answer = [&] { (void)(network.module())(Variable(x)).tensor().to(Device::cpu()); };
  answer();  // codes of weights are made once
  std::vector<double> times;
  for (const Stopwatch all; std::ssize(times) < kLeastTimed ||
                            (all.seconds() < kSecondsTimed && std::ssize(times) < kMostTimed);) {
    const Stopwatch one;
    answer();
    times.push_back(1000 * one.seconds());
  }
  std::ranges::sort(times);
  return Latency{times[times.size() / 2], "fakequant"};
} catch (const Error&) {
  return std::nullopt;
}

}  // namespace

std::optional<Latency> measure_latency(const std::string& checkpoint, const std::string& python,
                                       const GeneralOptions& options) {
  const int threads = options.threads ? fq::detail::threads() : 1;
  fq::detail::set_threads(threads);
  const Network network = load_network(checkpoint);
  const Device device = chosen_device(options, "compare");
  auto found = device.is_cuda() ? std::nullopt : in_onnx_runtime(network, python, threads);
  return found ? found : in_this_library(network, device);
}

}  // namespace fq::cli
