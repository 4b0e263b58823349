/// fakequant_soak MINUTES DIGITS: trains, evaluates and calls the library's front doors in a loop for so
/// long, at least a thousand rounds, in the current folder. The memory of the process (RSS) may grow by 1 %
/// between the first fifth and the end, the count of open descriptors not at all; else 1 is returned.
/// scripts/soak runs it.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "fakequant/fakequant.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kCallsARound = 10, kLeastRounds = 1000;
constexpr double kMostGrowth = 1.01;

struct Held {
  long bytes = 0, descriptors = 0;
};

Held held() {
  long pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return {resident * ::sysconf(_SC_PAGESIZE), static_cast<long>(std::distance(begin(all), end(all)))};
}

struct Soak {
  std::string path;
  std::shared_ptr<fq::Hdf5Dataset> data;
  fq::DataLoader batches{data, {.batch_size = 128, .seed = 1}},
      test{data, {.batch_size = 360, .shuffle = false}};
  std::shared_ptr<fq::Sequential> model = network();
  std::unique_ptr<fq::Adam> optimizer;
  fq::Tensor x = fq::Tensor::empty({16, 1, 8, 8});

  explicit Soak(std::string digits)
      : path(std::move(digits)),
        data(std::make_shared<fq::Hdf5Dataset>(path, fq::Hdf5DatasetOptions{.split = "train"})) {
    fq::fill_normal(x, 0, 1, 7);
    fq::quantize(*model, fq::QuantConfig::preset("int8"), {1, 1, 8, 8});
    fq::calibrate(*model, test);
    optimizer = std::make_unique<fq::Adam>(model->named_parameters(), fq::AdamOptions{.learning_rate = 1e-4});
  }

  static std::shared_ptr<fq::Sequential> network() {
    auto net = std::make_shared<fq::Sequential>();
    net->add("flat", fq::make_flatten());
    net->add("fc1", std::make_shared<fq::Linear>(64, 32));
    net->add("relu", fq::make_relu());
    net->add("fc2", std::make_shared<fq::Linear>(32, 10));
    return net;
  }

  void step() {
    model->train();
    auto batch = batches.next();
    if (!batch) batch = batches.next();
    optimizer->zero_grad();
    fq::ops::cross_entropy((*model)(fq::Variable(batch->x)), batch->y).backward();
    optimizer->step();
  }
  void predict() const {
    const fq::NoGrad no_grad;
    model->eval();
    (void)(*model)(fq::Variable(x)).tensor();
  }
  void fake_quantize() const { (void)fq::fake_tensor_quant(fq::Variable(x), fq::Tensor::scalar(2.0F)); }
  void configure() const {
    const auto net = network();
    fq::quantize(*net, fq::QuantConfig::preset("w4a8"), {1, 1, 8, 8});
    (void)fq::trace(*net, {1, 1, 8, 8});
  }
  void files() const {
    fq::save_scales("scales", *model);
    (void)fq::load_state("scales.h5", "scales");
    (void)fq::Hdf5Dataset(path);
  }
  void refusals() const {
    for (const char* name : {"nowhere.h5", "scales.json"}) try {
        (void)fq::load_state(name, "scales");
        std::abort();
      } catch (const fq::FileError&) {
      }
    try {
      (void)fq::QuantConfig::preset("int");
      std::abort();
    } catch (const fq::ArgumentError&) {
    }
  }
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) return std::fprintf(stderr, "fakequant_soak MINUTES DIGITS\n"), 2;
  const auto length = std::chrono::duration<double>(60 * std::atof(argv[1]));
  Soak soak(argv[2]);
  const std::vector<std::pair<std::string, std::function<void()>>> doors = {
      {"training step", [&] { soak.step(); }},
      {"prediction", [&] { soak.predict(); }},
      {"fake_tensor_quant", [&] { soak.fake_quantize(); }},
      {"quantize, trace", [&] { soak.configure(); }},
      {"files", [&] { soak.files(); }},
      {"refusals", [&] { soak.refusals(); }}};
  const auto begun = Clock::now();
  Held early;
  long rounds = 0;
  for (; rounds < kLeastRounds || Clock::now() - begun < length; ++rounds) {
    if (rounds % 100 == 0) (void)fq::evaluate(*soak.model, soak.test);
    for (const auto& [name, call] : doors)
      for (int i = 0; i < kCallsARound; ++i) call();
    if (early.bytes == 0 && rounds >= kLeastRounds / 5 && Clock::now() - begun >= length / 5) {
      early = held();
      std::printf("after %ld rounds: %.1f MB, %ld descriptors\n", rounds, double(early.bytes) / 1e6,
                  early.descriptors);
      std::fflush(stdout);
    }
  }
  const Held late = held();
  const double minutes = std::chrono::duration<double>(Clock::now() - begun).count() / 60;
  std::printf("after %ld rounds, %.1f minutes: %.1f MB, %ld descriptors; %ld calls of each of %zu doors\n",
              rounds, minutes, double(late.bytes) / 1e6, late.descriptors, rounds * kCallsARound,
              doors.size());
  const bool flat = double(late.bytes) <= kMostGrowth * double(early.bytes);
  if (!flat)
    std::fprintf(stderr, "memory grew by %.2f %%\n", 100.0 * double(late.bytes) / double(early.bytes) - 100);
  if (late.descriptors != early.descriptors) std::fprintf(stderr, "descriptors are left open\n");
  return flat && late.descriptors == early.descriptors ? 0 : 1;
} catch (const fq::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
