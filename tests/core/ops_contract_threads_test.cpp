#include <gtest/gtest.h>

#include "core/gradient_check.h"
#include "fakequant/core/detail/threads.h"
#include "fakequant/core/ops/ops.h"
#include "fakequant/core/random.h"

namespace fq::ops_contract_threads_test {
namespace {

struct Large {
  std::string name;
  Shape shape;
  test::Function apply;
};

/// The output and gradients with that number of threads; the inputs are large enough to be split.
std::vector<Tensor> run(const Large& op, int threads) {
  const int before = detail::threads();
  detail::set_threads(threads);
  std::vector<Variable> inputs{Variable(test::random_values(op.shape, 1).to(DType::f32), true),
                               Variable(test::random_values({op.shape[1]}, 2).to(DType::f32), true)};
  const Variable y = op.apply(inputs);
  std::vector<Tensor> out{y.tensor()};
  y.backward(test::random_values(y.shape(), 3).to(DType::f32));
  for (const auto& x : inputs) out.push_back(x.grad());
  detail::set_threads(before);
  return out;
}

std::vector<Large> large_operators() {
  using Vars = std::vector<Variable>;
  const Shape image{8, 24, 20, 20}, rows{700, 160};
  return {
      {"relu", image, [](const Vars& v) { return ops::relu(v[0]); }},
      {"gelu", rows, [](const Vars& v) { return ops::gelu(v[0]); }},
      {"multiply", rows, [](const Vars& v) { return ops::multiply(v[0], v[1]); }},
      {"batch_norm", image, [](const Vars& v) { return ops::batch_norm(v[0], v[1], v[1], {}, {}, true); }},
      {"layer_norm", rows, [](const Vars& v) { return ops::layer_norm(v[0], v[1], v[1]); }},
      {"max_pool2d", image,
       [](const Vars& v) {
         return ops::max_pool2d(v[0], {{3, 3}, {2, 2}, {1, 1}});
       }},
      {"avg_pool2d", image,
       [](const Vars& v) {
         return ops::avg_pool2d(v[0], {{3, 3}, {2, 2}, {1, 1}});
       }},
      {"global_avg_pool2d", image, [](const Vars& v) { return ops::global_avg_pool2d(v[0]); }},
      {"softmax", rows, [](const Vars& v) { return ops::softmax(v[0]); }},
      {"transpose", image,
       [](const Vars& v) {
         return ops::transpose(v[0], {0, 2, 3, 1});
       }},
      {"mse_loss", rows, [](const Vars& v) { return ops::mse_loss(v[0], ops::scale(v[0], 0.5)); }},
      {"dropout", image,
       [](const Vars& v) {
         const RandomScope scope(1, 2);
         return ops::dropout(v[0], 0.5, true);
       }},
  };
}

TEST(Threads, ChangeNoBitOfOutputsAndGradients) {
  for (const auto& op : large_operators()) {
    const auto one = run(op, 1);
    for (const int threads : {2, 4}) {
      const auto more = run(op, threads);
      for (std::size_t i = 0; i < one.size(); ++i)
        EXPECT_TRUE(!one[i].defined() || bitwise_equal(one[i], more[i]))
            << op.name << ' ' << i << ' ' << threads;
    }
  }
}

}  // namespace
}  // namespace fq::ops_contract_threads_test
