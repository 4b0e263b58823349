// Choosing ranges from data: one network calibrated on handwritten digits by several methods, and the ranges
// that each of them gives to its input and its layers.

#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "fakequant/fakequant.h"

namespace {

std::shared_ptr<fq::Sequential> network() {
  auto model = std::make_shared<fq::Sequential>();
  model->add("flat", fq::make_flatten())
      .add("fc1", std::make_shared<fq::Linear>(64, 48))
      .add("relu", fq::make_relu())
      .add("fc2", std::make_shared<fq::Linear>(48, 10));
  return model;
}

std::map<std::string, double> ranges(fq::Module& model) {
  std::map<std::string, double> out;
  for (const auto& entry : fq::named_quantizers(model))
    if (entry.quantizer->enabled() && entry.quantizer->amax().numel() == 1)
      out[entry.name] = entry.quantizer->amax().item();
  return out;
}

}  // namespace

int main(int argc, char** argv) try {
  const char* path = argc > 1 ? argv[1] : "data/digits.h5";
  const auto images = std::make_shared<fq::Hdf5Dataset>(path, fq::Hdf5DatasetOptions{.split = "train"});
  fq::DataLoader batches(images, {.batch_size = 128, .shuffle = false});

  std::map<std::string, std::map<std::string, double>> results;
  for (const char* method : {"max", "percentile", "entropy", "mse"}) {
    const fq::RandomScope seed(3, 0);
    auto model = network();
    fq::quantize(*model, fq::QuantConfig::preset("int8"), {1, 1, 8, 8});
    const auto report = fq::calibrate(*model, batches, {.method = method, .samples = 1024});
    if (report.samples != 1024) return 1;
    results[method] = ranges(*model);
    for (const auto& [name, amax] : results[method])
      std::printf("%-10s %-20s amax %.5f\n", method, name.c_str(), amax);
  }

  bool good = true;
  for (const auto& [method, by_name] : results)
    for (const auto& [name, amax] : by_name) {
      // No method exceeds the largest observed value; a histogram's range ends at the edge of a bin.
      const double largest = results["max"][name];
      good = good && amax > 0 && amax <= largest * (1 + 1e-6);
    }
  return good && results["max"].size() == 2 ? 0 : 1;
} catch (const fq::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
