#include <gtest/gtest.h>

#include "cuda_device.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/ops/loss.h"
#include "fakequant/layers/model/model_file.h"
#include "fakequant/layers/modules/quant_modules.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/layers/quantizer/detail/weight_codes.h"
#include "layers/networks.h"

namespace fq::cuda_model_test {
namespace {

class CudaModel : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
};

Tensor images(std::int64_t count) {
  Tensor x = Tensor::empty({count, 1, 8, 8});
  auto* v = x.mutable_data<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i)
    v[i] = static_cast<float>((i * 37 + i / 64 * 11) % 101) / 50.0f - 1.0f;
  return x;
}

std::shared_ptr<Module> network() {
  return build_model(ModelSpec::load("cnn", R"({"widths": [8, 8, 16], "features": 16})"), {1, 8, 8}, 10,
                     {.seed = 3});
}

/// Quantized to int8, every range 1.5.
std::shared_ptr<Module> quantized_network() {
  auto model = network();
  quantize(*model, QuantConfig::preset("int8"), {1, 1, 8, 8});
  for (const auto& [path, module] : model->named_modules()) {
    auto* quantizer = dynamic_cast<TensorQuantizer*>(module);
    if (quantizer == nullptr || !quantizer->enabled()) continue;
    const bool per_channel = !quantizer->descriptor().axis().empty();
    if (!per_channel) quantizer->set_amax(Tensor::scalar(1.5));
  }
  for (const auto& [path, module] : model->named_modules())
    if (auto* layer = dynamic_cast<QuantModule*>(module);
        layer != nullptr && layer->weight_quantizer() != nullptr)
      layer->weight_quantizer()->set_amax(Tensor::full({layer->quantized_weight().dim(0)}, 0.4));
  return model;
}

TEST_F(CudaModel, RoundTrips) {
  const auto model = network();
  std::vector<Tensor> before;
  for (const auto& [name, value] : model->named_parameters()) before.push_back(value.tensor().clone());
  for (const auto& [name, value] : model->named_buffers()) before.push_back(value.clone());
  model->to(Device::cuda());
  EXPECT_EQ(model->device(), Device::cuda());
  for (const auto& [name, value] : model->named_parameters())
    EXPECT_EQ(value.device(), Device::cuda()) << name;
  for (const auto& [name, value] : model->named_buffers()) EXPECT_EQ(value.device(), Device::cuda()) << name;
  EXPECT_THROW((void)(*model)(Variable(images(2))), ArgumentError);
  model->to(Device::cpu());
  std::size_t i = 0;
  for (const auto& [name, value] : model->named_parameters())
    EXPECT_TRUE(bitwise_equal(value.tensor(), before[i++]));
  for (const auto& [name, value] : model->named_buffers()) EXPECT_TRUE(bitwise_equal(value, before[i++]));
  EXPECT_THROW(model->to(Device::meta()), ArgumentError);
}

TEST_F(CudaModel, QuantizedNetworkMatchesTheCpuBitwise) {
  const auto model = quantized_network();
  model->eval();
  const NoGrad no_grad;
  const Tensor x = images(5), right = (*model)(Variable(x)).tensor();
  model->to(Device::cuda());
  const Tensor gpu = (*model)(Variable(x.to(Device::cuda()))).tensor();
  EXPECT_EQ(gpu.device(), Device::cuda());
  EXPECT_TRUE(bitwise_equal(gpu, right));
}

TEST_F(CudaModel, GradientsMatchTheCpu) {
  const auto model = quantized_network();
  const Tensor x = images(6);
  Tensor labels = Tensor::empty({6}, DType::i64);
  for (int i = 0; i < 6; ++i) labels.mutable_data<std::int64_t>()[i] = i;
  const auto run = [&](Device device) {
    model->to(device);
    model->zero_grad();
    ops::cross_entropy((*model)(Variable(x.to(device))), labels.to(device)).backward();
    std::vector<std::vector<float>> out;
    for (const auto& [name, value] : model->named_parameters())
      out.push_back(value.grad().defined() ? value.grad().to_vector<float>() : std::vector<float>{});
    return out;
  };
  const auto host = run(Device::cpu()), gpu = run(Device::cuda());
  ASSERT_EQ(host.size(), gpu.size());
  for (std::size_t p = 0; p < host.size(); ++p) {
    ASSERT_EQ(host[p].size(), gpu[p].size());
    double largest = 0;
    for (const float g : host[p]) largest = std::max(largest, std::fabs(static_cast<double>(g)));
    // Products of bf16 gradients, whose f32 sums and roundings differ in order: some 2^-8 of a few terms.
    for (std::size_t i = 0; i < host[p].size(); ++i)
      ASSERT_NEAR(host[p][i], gpu[p][i], 0.02 * largest + 1e-7) << p << ' ' << i;
  }
}

TEST_F(CudaModel, QuantizersLoadStatesOnTheirDevice) {
  TensorQuantizer saved, loaded;
  saved.set_amax(Tensor::scalar(1.5));
  saved.update([](QuantParams& s) { s.pre_quant_scale = Tensor::from<float>({0.5f, 2.0f, 4.0f}); });
  StateDict state;
  saved.save(state, "q");
  loaded.to(Device::cuda());
  loaded.load(state, "q");
  EXPECT_EQ(loaded.params().pre_quant_scale.device(), Device::cuda());
  const Tensor x = Tensor::from<float>({1.0f, -0.3f, 0.2f, 0.0f, 3.0f, 0.7f}, {2, 3});
  const NoGrad no_grad;
  EXPECT_TRUE(bitwise_equal(loaded(Variable(x.to(Device::cuda()))).tensor(), saved(Variable(x)).tensor()));
  StateDict back;
  loaded.save(back, "q");
  EXPECT_TRUE(bitwise_equal(back.at("q/pre_quant_scale"), state.at("q/pre_quant_scale")));
}

TEST_F(CudaModel, QuantizesAllWeightsAtOnce) {
  const auto model = quantized_network();
  model->to(Device::cuda());
  quantize_weights(*model);
  int layers = 0;
  for (const auto& [path, module] : model->named_modules()) {
    auto* layer = dynamic_cast<QuantModule*>(module);
    if (layer == nullptr || layer->weight_quantizer() == nullptr) continue;
    const Variable w = layer->quantized_weight();
    EXPECT_FALSE(layer->weight_quantizer()->weight_codes().request(w).has_value()) << path;
    const Variable codes = layer->weight_quantizer()->weight(w);
    const QuantizedTensor right = quantize(w.tensor().to(Device::cpu()), layer->weight_quantizer()->grid());
    EXPECT_TRUE(bitwise_equal(codes.quantized()->codes, right.codes)) << path;
    EXPECT_TRUE(bitwise_equal(codes.quantized()->mask, right.mask)) << path;
    ++layers;
  }
  EXPECT_GE(layers, 3);
}

}  // namespace
}  // namespace fq::cuda_model_test
