// The evaluation of a quantized network against plain loops over integers, by the deployment arithmetic
// alone: every logit bit, for any number of threads and every engine that this machine can run.

#include <cmath>

#include <gtest/gtest.h>

#include "fakequant/core/backend/cpu/engine/exact.h"
#include "fakequant/core/detail/threads.h"
#include "fakequant/layers/model/fold.h"
#include "layers/networks.h"

namespace fq::integer_reference_test {
namespace {

using namespace test;
using Codes = std::vector<int>;

struct IntegerGrid {
  float scale;
  int lower, upper, offset;
};

IntegerGrid integer_grid(Module& model, const std::string& path) {
  const Grid grid = dynamic_cast<TensorQuantizer&>(model.at(path)).grid();
  const IntFormat& f = grid.format.integer();
  return {grid.scale.data<float>()[0], f.lower(), f.upper(), grid.zero_point};
}

int saturate(float v, const IntegerGrid& g) {
  return static_cast<int>(
      std::min(std::max(std::nearbyint(v), static_cast<float>(g.lower)), static_cast<float>(g.upper)));
}

/// A weight as codes and scales per output channel, its bias on the accumulator's grid.
struct Weights {
  Codes codes, bias;
  std::vector<float> scale;  // fl(s_x * s_w)

  Weights(Module& model, const std::string& path, float input_scale) {
    auto& quant = dynamic_cast<QuantModule&>(model.at(path));
    const auto s = quant.weight_quantizer()->grid().scale.to_vector<float>();
    const auto w = quant.quantized_weight().tensor().to_vector<float>();
    std::vector<float> b;
    for (const auto& [name, value] : model.named_parameters())
      if (name == path + ".bias") b = value.tensor().to_vector<float>();
    const std::size_t row = w.size() / s.size();
    for (std::size_t i = 0; i < w.size(); ++i)
      codes.push_back(saturate(w[i] / s[i / row], {0, -127, 127, 0}));
    for (std::size_t c = 0; c < s.size(); ++c) {
      scale.push_back(input_scale * s[c]);
      bias.push_back(static_cast<int>(std::nearbyint(b[c] / scale[c])));
    }
  }
};

/// 3x3, padding 1, 8 output channels; x [channels, n, n].
Codes conv(const Codes& x, int channels, int n, const Weights& w) {
  Codes out(static_cast<std::size_t>(8 * n * n));
  for (int o = 0; o < 8; ++o)
    for (int y = 0; y < n; ++y)
      for (int z = 0; z < n; ++z) {
        int sum = w.bias[static_cast<std::size_t>(o)];
        for (int c = 0; c < channels; ++c)
          for (int i = 0; i < 3; ++i)
            for (int j = 0; j < 3; ++j) {
              const int row = y + i - 1, column = z + j - 1;
              if (row < 0 || column < 0 || row >= n || column >= n) continue;
              sum += x[static_cast<std::size_t>((c * n + row) * n + column)] *
                     w.codes[static_cast<std::size_t>(((o * channels + c) * 3 + i) * 3 + j)];
            }
        out[static_cast<std::size_t>((o * n + y) * n + z)] = sum;
      }
  return out;
}

Codes requantize(const Codes& sums, const std::vector<float>& scale, const IntegerGrid& g) {
  Codes out;
  const std::size_t pixels = sums.size() / scale.size();
  for (std::size_t i = 0; i < sums.size(); ++i)
    out.push_back(saturate(static_cast<float>(sums[i]) * (scale[i / pixels] / g.scale), g));
  return out;
}

Codes max_pool(const Codes& x, int n) {
  Codes out;
  const auto at = [&](int c, int y, int z) { return x[static_cast<std::size_t>((c * n + y) * n + z)]; };
  for (int c = 0; c < 8; ++c)
    for (int y = 0; y < n; y += 2)
      for (int z = 0; z < n; z += 2)
        out.push_back(
            std::max(std::max(at(c, y, z), at(c, y, z + 1)), std::max(at(c, y + 1, z), at(c, y + 1, z + 1))));
  return out;
}

std::vector<float> evaluate(Module& model, const float* image) {
  const IntegerGrid q0 = integer_grid(model, "conv1.input_quantizer"),
                    q1 = integer_grid(model, "conv2.input_quantizer");
  const IntegerGrid qa = integer_grid(model, "add.input_quantizer"),
                    q2 = integer_grid(model, "gap.input_quantizer");
  const IntegerGrid q3 = integer_grid(model, "fc.input_quantizer");
  Codes x;
  for (int i = 0; i < 64; ++i) x.push_back(saturate(image[i] / q0.scale, q0));
  const Weights w1(model, "conv1", q0.scale), w2(model, "conv2", q1.scale), w3(model, "fc", q3.scale);
  const Codes skip =
      max_pool(requantize(conv(x, 1, 8, w1), w1.scale, q1), 8);  // unsigned: the ReLU is the saturation
  const Codes branch = requantize(conv(skip, 8, 4, w2), w2.scale, qa);
  const float ra = qa.scale / q2.scale, rb = q1.scale / q2.scale;
  const float fused = static_cast<float>(q2.offset) -
                      (ra * static_cast<float>(qa.offset) + rb * static_cast<float>(q1.offset));
  Codes sums(8, 0);
  for (std::size_t i = 0; i < skip.size(); ++i) {
    const float inner = std::fma(static_cast<float>(skip[i] + q1.offset), rb, fused);
    const float v = std::fma(static_cast<float>(branch[i] + qa.offset), ra, inner);
    sums[i / 16] += saturate(std::nearbyint(v) - static_cast<float>(q2.offset), q2);
  }
  std::vector<float> logits;
  const float m = q2.scale / (q3.scale * 16.0f);
  Codes features;
  for (const int sum : sums) features.push_back(saturate(static_cast<float>(sum) * m, q3));
  for (std::size_t o = 0; o < 10; ++o) {
    int sum = w3.bias[o];
    for (std::size_t c = 0; c < 8; ++c) sum += features[c] * w3.codes[o * 8 + c];
    logits.push_back(static_cast<float>(sum) * w3.scale[o]);
  }
  return logits;
}

/// A residual network, calibrated.
std::shared_ptr<Graph> int8_net() {
  auto model = residual_net();
  for (unsigned i = 0; i < 3; ++i) (void)(*model)(Variable(random_tensor({16, 1, 8, 8}, 0, 1, 5 + i)));
  fold_batch_norm(*model, {1, 1, 8, 8});
  quantize(*model, QuantConfig::preset("int8"), {1, 1, 8, 8});
  observe(*model, random_tensor({32, 1, 8, 8}, 0, 1, 3));
  return model;
}

TEST(IntegerReference, LogitsMatchPlainIntegerLoopsBitwise) {
  constexpr int images = 10000;
  const auto model = int8_net();
  const Tensor x = random_tensor({images, 1, 8, 8}, -0.1f, 1.2f, 4);
  std::vector<float> expected;
  for (int i = 0; i < images; ++i) {
    const auto logits = evaluate(*model, x.data<float>() + i * 64);
    expected.insert(expected.end(), logits.begin(), logits.end());
  }
  const NoGrad no_grad;
  const int before = detail::threads();
  for (const auto type : {cpu::ExactType::s8, cpu::ExactType::bf16, cpu::ExactType::f32}) {
    if (!cpu::exact_type_works(type)) continue;
    const cpu::ForceExactType force(type);
    for (const int threads : {1, 2, 4}) {
      detail::set_threads(threads);
      EXPECT_EQ((*model)(Variable(x)).tensor().to_vector<float>(), expected) << name(type) << ", " << threads;
    }
  }
  detail::set_threads(before);
}

TEST(IntegerReference, TrainingMatchesEvaluation) {
  const auto model = int8_net();
  const Tensor x = random_tensor({64, 1, 8, 8}, -0.1f, 1.2f, 4);
  model->eval();
  const Tensor evaluated = (*model)(Variable(x)).tensor();
  model->train();
  const Variable trained = (*model)(Variable(x));
  EXPECT_TRUE(trained.requires_grad());
  EXPECT_TRUE(bitwise_equal(trained.tensor(), evaluated));
}

}  // namespace
}  // namespace fq::integer_reference_test
