// fakequant_ptq CHECKPOINT DATA OUTLIERS: test accuracy and loss of a float checkpoint in several formats, by
// rounding to the nearest and by each algorithm on weights and scales. One JSON object a line. Batch norm is
// folded. OUTLIERS above 1: by how much outlier channels are larger (outliers.h).

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "fakequant/bench/ptq/network.h"
#include "fakequant/bench/ptq/outliers.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/data/hdf5_dataset.h"
#include "fakequant/train/loop/evaluate.h"
#include "fakequant/train/ptq/algorithms.h"

namespace {

using nlohmann::json;

constexpr std::int64_t kSamples = 512;

struct FormatColumn {
  const char* name;
  int weight_bits, input_bits;  ///< 0: float
  bool per_channel;             ///< weights
};

constexpr FormatColumn kFormats[] = {{"W8A8", 8, 8, true},
                                     {"W8A8 per tensor", 8, 8, false},
                                     {"W4", 4, 0, true},
                                     {"W4A8", 4, 8, true},
                                     {"W3", 3, 0, true}};

fq::QuantConfig make_config(const FormatColumn& format) {
  json weight{{"pattern", "*weight_quantizer"}, {"narrow_range", true}, {"num_bits", format.weight_bits}};
  if (format.per_channel) weight["axis"] = 0;
  json rules = json::array({weight});
  if (format.input_bits > 0)
    rules.push_back({{"pattern", "*input_quantizer"}, {"num_bits", format.input_bits}});
  return fq::QuantConfig::from_json({{"rules", rules}});
}

struct Digits {
  fq::DataLoader train, test;
};

fq::DataLoader make_loader(const char* path, const char* split) {
  return fq::DataLoader(std::make_shared<fq::Hdf5Dataset>(path, fq::Hdf5DatasetOptions{.split = split}),
                        {.batch_size = 128, .shuffle = false});
}

struct Network {
  const char* path;
  float outliers;

  /// Builds a new model for each run.
  [[nodiscard]] std::shared_ptr<fq::Module> build(fq::DataLoader& data) const {
    auto model = fq::ptq::load_folded(path);
    if (outliers > 1) fq::ptq::add_outliers(*model, data, outliers);
    return model;
  }
};

void print(json line, fq::Module& model, fq::DataLoader& test) {
  const auto result = fq::evaluate(model, test);
  line["accuracy"] = 100 * result.accuracy;
  line["loss"] = result.loss;
  std::puts(line.dump().c_str());
  std::fflush(stdout);
}

void run(const Network& network, Digits& digits, const FormatColumn& format, const std::string& name) {
  fq::QuantConfig config = make_config(format);
  config.weight_algorithm = name;
  const fq::ptq::Algorithm algorithm(config, kSamples);
  auto model = network.build(digits.train);
  const auto begin = std::chrono::steady_clock::now();
  (void)fq::quantize(*model, config, fq::ptq::loader_input_shape(digits.train));
  auto changed = algorithm.before(*model, digits.train).layers.size();
  (void)fq::calibrate(*model, digits.train, {.samples = kSamples});
  changed += algorithm.after(*model, digits.train).layers.size();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  print({{"format", format.name},
         {"algorithm", name.empty() ? "nearest" : name},
         {"layers", changed},
         {"seconds", seconds.count()}},
        *model, digits.test);
}

int table(const char* checkpoint, const char* data, float outliers) {
  const Network network{checkpoint, outliers};
  Digits digits{make_loader(data, "train"), make_loader(data, "test")};
  print({{"format", "float"}, {"algorithm", "float"}}, *network.build(digits.train), digits.test);
  auto algorithms = fq::QuantConfig::weight_algorithm_names();
  algorithms.insert(algorithms.begin(), "");
  for (const auto& format : kFormats)
    for (const auto& algorithm : algorithms) run(network, digits, format, algorithm);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) {
    std::fputs("usage: fakequant_ptq CHECKPOINT DATA OUTLIERS\n", stderr);
    return 2;
  }
  return table(argv[1], argv[2], std::stof(argv[3]));
} catch (const std::exception& error) {
  std::fprintf(stderr, "fakequant_ptq: %s\n", error.what());
  return 1;
}
