// A module of your own: a residual block with a branch, used in a model file by its name and quantized like
// any layer. The tensor that enters the block has two readers, and both get one quantizer.

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <string>

#include "fakequant/fakequant.h"

namespace {

/// relu(conv2(relu(conv1(x))) + x). Children are slots: quantize() puts a QuantConv2d where a Conv2d was.
class ResidualBlock : public fq::Module {
 public:
  explicit ResidualBlock(std::int64_t channels)
      : conv1_(add_module("conv1", std::make_shared<fq::Conv2d>(channels, channels, fq::Shape{3}, same()))),
        conv2_(add_module("conv2", std::make_shared<fq::Conv2d>(channels, channels, fq::Shape{3}, same()))),
        relu1_(add_module("relu1", fq::make_relu())),
        relu2_(add_module("relu2", fq::make_relu())),
        add_(add_module("add", std::make_shared<fq::Add>())) {}
  [[nodiscard]] std::string type() const override { return "residual"; }

 protected:
  fq::Variable forward(const fq::Variable& x) override { return relu2_(add_(conv2_(relu1_(conv1_(x))), x)); }
  using fq::Module::forward;

 private:
  static fq::ops::ConvOptions same() { return {.stride = {}, .padding = {1}, .dilation = {}, .groups = 1}; }

  fq::Child<fq::Conv2d> conv1_, conv2_;
  fq::Child<fq::Module> relu1_, relu2_;
  fq::Child<fq::Add> add_;
};

constexpr const char* model_text = R"([
  {"name": "stem", "type": "conv2d", "options": {"out_channels": 16, "kernel": 3, "stride": 2, "padding": 1}},
  {"name": "relu", "type": "relu"},
  {"name": "block", "type": "residual"},  // ours
  {"name": "average", "type": "global_avg_pool"},
  {"name": "flatten", "type": "flatten"},
  {"name": "fc", "type": "linear", "options": {"out_features": "classes"}}
])";

std::shared_ptr<fq::Graph> make_model() {
  fq::register_layer_type("residual", {"channels"}, [](const fq::LayerOptions& options) {
    const auto channels = options.inferred("channels", 1);
    options.reserve({2, channels, channels, 9});
    return std::make_shared<ResidualBlock>(channels);
  });
  return fq::build_model(fq::ModelSpec::parse(model_text), {1, 8, 8}, 10, {.seed = 1});
}

void train(fq::Module& model, fq::DataLoader& data, int epochs) {
  fq::Adam optimizer(model.named_parameters(), {.learning_rate = 4e-3});
  model.train();
  for (int epoch = 0; epoch < epochs; ++epoch)
    while (const auto batch = data.next()) {
      optimizer.zero_grad();
      fq::ops::cross_entropy(model(fq::Variable(batch->x)), batch->y).backward();
      optimizer.step();
    }
}

int failures = 0;
void check(const std::string& what, bool good) {
  std::cout << (good ? "  yes  " : "  NO   ") << what << "\n";
  failures += good ? 0 : 1;
}

/// Whether `name` is a quantizer of the model that `alias` shares.
bool shares(fq::Module& model, const std::string& name, const std::string& alias) {
  for (const auto& q : fq::named_quantizers(model))
    if (q.name == name) return std::ranges::find(q.aliases, alias) != q.aliases.end();
  return false;
}

}  // namespace

int main(int argc, char** argv) try {
  const char* path = argc > 1 ? argv[1] : "data/digits.h5";
  const auto images = std::make_shared<fq::Hdf5Dataset>(path, fq::Hdf5DatasetOptions{.split = "train"});
  fq::DataLoader batches(images, {.batch_size = 64, .seed = 1});
  const auto model = make_model();
  train(*model, batches, 4);
  model->eval();
  const fq::Tensor x = batches.next()->x;
  const auto floats = (*model)(fq::Variable(x)).tensor().to_vector<float>();

  const fq::Shape input{1, 1, 8, 8};
  fq::quantize(*model, fq::QuantConfig::preset("int8"), input);
  batches.start_epoch(0);
  fq::calibrate(*model, batches);
  fq::print_quant_summary(*model, std::cout);
  check("both readers of the block's input share a quantizer",
        shares(*model, "block.conv1.input_quantizer", "block.add.input_quantizer_1"));
  check("the convolutions run on codes", model->at("block.conv1").type() == "quant_conv2d");

  const fq::Variable logits = (*model)(fq::Variable(x));
  check("codes flow from the input to the last sums", logits.accumulator() != nullptr);
  const auto codes = logits.tensor().to_vector<float>();
  float error = 0, largest = 0;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    error = std::max(error, std::abs(codes[i] - floats[i]));
    largest = std::max(largest, std::abs(floats[i]));
  }
  check("8-bit logits differ from float logits by at most 5 % of the largest", error < 0.05f * largest);
  train(*model, batches, 1);
  check("training on codes reaches every parameter",
        std::ranges::all_of(model->parameters(), [](const auto& p) { return p.grad().defined(); }));
  return failures == 0 ? 0 : 1;
} catch (const fq::Error& error) {
  std::cerr << error.what() << "\n";
  return 2;
}
