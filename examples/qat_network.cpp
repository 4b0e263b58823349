// Quantization-aware training in one call: a float network becomes an int8 network that is exact on the
// engine's codes. Arguments: data set, float checkpoint, output checkpoint, preset, epochs, all optional.

#include <cstdio>
#include <memory>
#include <string>

#include "fakequant/fakequant.h"

namespace {

fq::Network train_float(const std::shared_ptr<const fq::Dataset>& images) {
  const auto spec = fq::ModelSpec::builtin("cnn");
  fq::Network network = fq::Network::create(spec, images->sample_shape(), images->classes(), 1);
  fq::TrainerOptions options = fq::qat_training(10);
  options.optimizer.learning_rate = 4e-3;
  fq::fit(network, std::make_shared<fq::DataLoader>(images, fq::LoaderOptions{.seed = 1}), options);
  return network;
}

}  // namespace

int main(int argc, char** argv) try {
  const auto given = [&](int place, const char* fallback) {
    return std::string(argc > place ? argv[place] : fallback);
  };
  const std::string path = given(1, "data/digits.h5"), checkpoint = given(2, ""), out = given(3, "int8.h5");
  const auto images = std::make_shared<fq::Hdf5Dataset>(path, fq::Hdf5DatasetOptions{.split = "train"});
  const auto unseen = std::make_shared<fq::Hdf5Dataset>(path, fq::Hdf5DatasetOptions{.split = "test"});
  fq::Network network = checkpoint.empty() ? train_float(images) : fq::Network::load(checkpoint);
  const double floats = 100 * fq::evaluate(network, unseen).accuracy;

  fq::QatOptions options;
  options.config = given(4, "int8");
  options.training.epochs = std::stoll(given(5, "2"));
  options.choice_callback = [](const std::string& line) { std::puts(line.c_str()); };
  fq::qat(network, images, options);
  network.save(out);

  const double quantized = 100 * fq::evaluate(fq::Network::load(out), unseen).accuracy;
  std::printf("float %.2f %%, quantized %.2f %%\n", floats, quantized);
  return quantized > floats - 3 ? 0 : 1;
} catch (const fq::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
