// Handing scales to an engine: a quantized network's scales are written as JSON and HDF5, read back, and one
// weight is rebuilt from its codes as an engine would.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>

#include "fakequant/fakequant.h"

int main() try {
  const fq::RandomScope seed(5, 0);
  auto model = std::make_shared<fq::Sequential>();
  auto layer = std::make_shared<fq::Linear>(16, 4);
  model->add("fc", layer);
  fq::quantize(*model, fq::QuantConfig::preset("int8"), {1, 16});

  fq::Tensor x = fq::Tensor::empty({256, 16});
  fq::fill_normal(x, 0, 1, 7);
  const auto data = std::make_shared<fq::TensorDataset>(x);
  fq::DataLoader batches(data, {.batch_size = 64, .shuffle = false});
  fq::calibrate(*model, batches);

  const auto folder = std::filesystem::temp_directory_path() / "fakequant_export_scales";
  std::filesystem::create_directories(folder);
  const std::string json = folder / "scales.json", h5 = folder / "scales.h5";
  fq::save_scales_json(json, *model);
  fq::save_scales_h5(h5, *model);
  std::cout << std::ifstream(json).rdbuf() << std::flush;

  const fq::StateDict scales = fq::load_state(h5, "scales");
  const auto s = scales.at("fc.weight_quantizer/scale").to_vector<float>();
  auto& quantizer = dynamic_cast<fq::TensorQuantizer&>(model->at("fc.weight_quantizer"));
  const auto rebuilt = quantizer.weight(layer->weight()).tensor().to_vector<float>();
  const auto weight = layer->weight().tensor().to_vector<float>();
  bool good = s.size() == 4;
  for (std::size_t i = 0; good && i < weight.size(); ++i) {
    const float scale = s[i / 16];
    const float code = std::min(std::max(std::nearbyint(weight[i] / scale), -127.0f), 127.0f);
    good = code * scale == rebuilt[i];
  }
  std::filesystem::remove_all(folder);
  std::printf("every weight is code * scale: %s\n", good ? "yes" : "no");
  return good ? 0 : 1;
} catch (const fq::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
