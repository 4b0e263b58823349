#pragma once

/// Steps of one quantizer on the CPU and on a GPU, and their results.

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cuda_device.h"
#include "fakequant/core/ops/detail/updates.h"
#include "layers/networks.h"

namespace fq::test {

inline constexpr int kSteps = 3;

/// Larger with each step, beyond most ranges here and there.
inline Tensor input(const Shape& shape, int step, Layout layout = Layout::row_major) {
  const auto size = 1.0 + 0.4 * step;
  return random_tensor(shape, -size, size, static_cast<unsigned>(step + 1)).to(layout);
}

/// Results of one step.
struct Step {
  Tensor values, codes, mask, amax, used_amax, scale, dx, range_gradient;
};

using Forward = std::function<Variable(TensorQuantizer&, const Variable&)>;

inline Step step(TensorQuantizer& q, const Tensor& x, const Tensor& dy, const Forward& forward) {
  Variable in(x, true);
  const Variable y = forward(q, in);
  const Tensor values = y.tensor();
  y.backward(dy);
  Step out;
  out.values = values;
  if (const auto* codes = y.quantized(); codes != nullptr) {
    out.codes = codes->codes;
    out.mask = codes->mask;
    out.used_amax = codes->grid.amax;
    out.scale = codes->grid.scale;
  }
  if (Variable range = q.range().learned(); range.defined()) {
    out.range_gradient = range.grad().clone();
    const ops::SgdUpdate update{range.mutable_tensor(), range.grad(), {}, 0.01};
    ops::sgd_step({&update, 1}, {});
    range.zero_grad();
  }
  if (q.amax().defined()) out.amax = q.amax().clone();
  out.dx = in.grad();
  return out;
}

enum class Waits { never, once_a_step, often };

/// Inputs are there before the first step.
inline std::vector<Step> steps(TensorQuantizer& q, const std::vector<Tensor>& inputs, Device device,
                               const Forward& forward, Waits expected) {
  q.to(device);
  std::vector<Tensor> x, dy;
  for (const Tensor& each : inputs) {
    x.push_back(each.to(device));
    dy.push_back(input(each.shape(), 7).to(device));
  }
  std::vector<Step> out;
  // A quantizer without a range looks once whether its first one is zero.
  const bool first = device.is_cuda() && q.params().running && !q.amax().defined() &&
                     !q.descriptor().has_dynamic_blocks();  // these are on the host
  const auto waits = waits_so_far();
  for (std::size_t i = 0; i < x.size(); ++i) out.push_back(step(q, x[i], dy[i], forward));
  const auto own = waits_so_far() - waits;
  const bool counted = device.is_cuda() && expected == Waits::once_a_step;
  if (expected == Waits::often) return out;
  EXPECT_EQ(own, (counted ? std::ssize(x) : 0) + (first ? 1 : 0)) << q.name() << " on " << to_string(device);
  return out;
}

inline void expect_equal(const Tensor& got, const Tensor& right, const std::string& what) {
  ASSERT_EQ(got.defined(), right.defined()) << what;
  EXPECT_TRUE(!right.defined() || bitwise_equal(got, right)) << what << ": " << got << right;
}

inline void expect_equal(const std::vector<Step>& got, const std::vector<Step>& right,
                         const std::string& name) {
  ASSERT_EQ(got.size(), right.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const std::string at = name + ", step " + std::to_string(i) + ", ";
    expect_equal(got[i].values, right[i].values, at + "values");
    expect_equal(got[i].codes, right[i].codes, at + "codes");
    expect_equal(got[i].mask, right[i].mask, at + "mask");
    expect_equal(got[i].amax, right[i].amax, at + "amax");
    expect_equal(got[i].used_amax, right[i].used_amax, at + "amax of the codes");
    expect_equal(got[i].scale, right[i].scale, at + "scale");
    expect_equal(got[i].dx, right[i].dx, at + "dx");
    expect_equal(got[i].range_gradient, right[i].range_gradient, at + "gradient of the range");
  }
}

using Preparation = std::function<void(TensorQuantizer&)>;

inline Variable as_quantized(TensorQuantizer& q, const Variable& x) { return q(x); }

/// Two quantizers of one kind, each on its device.
inline void compare(const std::string& name, const QuantDescriptorOptions& options,
                    const std::vector<Tensor>& inputs, const Preparation& setup = {},
                    const Forward& forward = as_quantized, Waits waits = Waits::never) {
  TensorQuantizer host_copy{QuantDescriptor(options)}, gpu{QuantDescriptor(options)};
  for (auto* q : {&host_copy, &gpu}) {
    q->set_name(name);
    if (setup) setup(*q);
  }
  const auto right = steps(host_copy, inputs, Device::cpu(), forward, Waits::never);
  expect_equal(steps(gpu, inputs, Device::cuda(), forward, waits), right, name);
}

inline std::vector<Tensor> inputs(const Shape& shape, Layout layout = Layout::row_major) {
  std::vector<Tensor> out;
  for (int i = 0; i < kSteps; ++i) out.push_back(input(shape, i, layout));
  return out;
}

inline const Shape kImages{3, 5, 9, 7};

}  // namespace fq::test
