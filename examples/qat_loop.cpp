// Quantization-aware training in a loop of your own: a float network is trained on handwritten digits,
// folded, quantized, calibrated and fine-tuned on codes. Checks that 8-bit codes cost it next to nothing.

#include <algorithm>
#include <cstdio>
#include <memory>

#include "fakequant/fakequant.h"

namespace {

std::shared_ptr<fq::Graph> digit_net() {
  const fq::ops::ConvOptions same{.stride = {}, .padding = {1}, .dilation = {}, .groups = 1};
  std::vector<fq::GraphNode> nodes;
  nodes.push_back({"conv1", std::make_shared<fq::Conv2d>(1, 16, fq::Shape{3}, same, false), {"input"}});
  nodes.push_back({"bn1", std::make_shared<fq::BatchNorm>(16), {"conv1"}});
  nodes.push_back({"relu1", fq::make_relu(), {"bn1"}});
  nodes.push_back({"pool", fq::make_max_pool({}), {"relu1"}});
  nodes.push_back({"conv2", std::make_shared<fq::Conv2d>(16, 32, fq::Shape{3}, same, false), {"pool"}});
  nodes.push_back({"bn2", std::make_shared<fq::BatchNorm>(32), {"conv2"}});
  nodes.push_back({"relu2", fq::make_relu(), {"bn2"}});
  nodes.push_back({"gap", std::make_shared<fq::GlobalAvgPool2d>(), {"relu2"}});
  nodes.push_back({"flat", fq::make_flatten(), {"gap"}});
  nodes.push_back({"fc", std::make_shared<fq::Linear>(32, 10), {"flat"}});
  return std::make_shared<fq::Graph>(std::move(nodes));
}

void train(fq::Module& model, fq::DataLoader& data, fq::Optimizer& optimizer, int epochs) {
  model.train();
  for (int epoch = 0; epoch < epochs; ++epoch)
    while (const auto batch = data.next()) {
      optimizer.zero_grad();
      fq::ops::cross_entropy(model(fq::Variable(batch->x)), batch->y).backward();
      optimizer.step();
    }
}

double accuracy(fq::Module& model, fq::DataLoader& data) {
  const fq::NoGrad no_grad;
  model.eval();
  std::int64_t right = 0, count = 0;
  while (const auto batch = data.next()) {
    const fq::Tensor logits = model(fq::Variable(batch->x)).tensor();
    const auto* row = logits.data<float>();
    for (std::int64_t i = 0; i < logits.dim(0); ++i, row += logits.dim(1)) {
      const auto best = std::max_element(row, row + logits.dim(1)) - row;
      right += best == batch->y.data<std::int64_t>()[i];
    }
    count += logits.dim(0);
  }
  return 100.0 * static_cast<double>(right) / static_cast<double>(count);
}

}  // namespace

int main(int argc, char** argv) try {
  const char* path = argc > 1 ? argv[1] : "data/digits.h5";
  const auto images = std::make_shared<fq::Hdf5Dataset>(path, fq::Hdf5DatasetOptions{.split = "train"});
  const auto unseen = std::make_shared<fq::Hdf5Dataset>(path, fq::Hdf5DatasetOptions{.split = "test"});
  fq::DataLoader batches(images, {.batch_size = 64, .seed = 1});
  fq::DataLoader test(unseen, {.batch_size = 120, .shuffle = false});

  const fq::RandomScope seed(1, 0);
  auto model = digit_net();
  fq::Adam optimizer(model->named_parameters(), {.learning_rate = 4e-3});
  train(*model, batches, optimizer, 20);
  const double floats = accuracy(*model, test);

  const fq::Shape input{1, 1, 8, 8};
  fq::fold_batch_norm(*model, input);
  fq::quantize(*model, fq::QuantConfig::preset("int8"), input);
  fq::calibrate(*model, batches);
  const double rounded = accuracy(*model, test);

  fq::Adam fine_tuning(model->named_parameters(), {.learning_rate = 2e-4});
  train(*model, batches, fine_tuning, 2);
  const double trained = accuracy(*model, test);

  std::printf("float %.2f %%, int8 after rounding %.2f %%, int8 after training %.2f %%\n", floats, rounded,
              trained);
  const bool good = floats > 94 && rounded > floats - 1.5 && trained > floats - 1.5;
  return good ? 0 : 1;
} catch (const fq::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
