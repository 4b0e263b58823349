#include "fakequant/core/ops/detail/attention_samples.h"

#include "fakequant/core/backend/cpu/engine/engine.h"
#include "fakequant/core/backend/cpu/engine/threads.h"
#include "fakequant/core/backend/kernels.h"

namespace fq::detail {
namespace {

struct Nothing {};

}  // namespace

/// Matrices of the heads of a sample: side by side in rows, or scores, which lie behind each other.
struct AttentionSamples::Part {
  Tensor tensor;
  std::int64_t rows, columns;
  bool beside = true;
};

bool AttentionSamples::takes(const AttentionShape& shape, bool causal, Device device, DType dtype) {
  if (!device.is_cpu() || dtype != DType::f32 || !cpu::multiplies_side_by_side()) return false;
  const AttentionRows rows{shape.heads, shape.queries, shape.keys, 0, causal, 1.0, {}};
  return numel(shape.y()) > 0 && numel(shape.q()) > 0 &&
         AttentionBlocks(shape, rows, device).may_be_samples();
}

AttentionSamples::AttentionSamples(const AttentionShape& shape, bool causal, double scale)
    : shape_(shape), rows_{shape.heads, shape.queries, shape.keys, 0, causal, scale, {}} {}

void AttentionSamples::multiply(const Part& a, bool a_turned, const Part& b, bool b_turned, Part out) const {
  const auto matrix = [&](const Part& x, bool turned) {
    return cpu::Matrix{
        x.tensor.raw(), x.tensor.dtype(),           turned ? x.columns : x.rows, turned ? x.rows : x.columns,
        turned,         x.beside ? shape_.heads : 1};
  };
  cpu::gemm(matrix(a, a_turned), matrix(b, b_turned), out.tensor.mutable_data<float>(), shape_.heads,
            Sharing::by_threads, out.beside ? shape_.heads : 1);
}

Tensor AttentionSamples::weights(std::int64_t sample, const Tensor& q, const Tensor& k) const {
  Tensor p = Tensor::empty({shape_.heads, shape_.queries, shape_.keys}, DType::f32);
  multiply({q.slice(sample, sample + 1), shape_.queries, shape_.width}, false,
           {k.slice(sample, sample + 1), shape_.keys, shape_.width}, true,
           {p, shape_.queries, shape_.keys, false});
  AttentionRows rows = rows_;
  rows.first = sample * shape_.heads * shape_.queries;
  run(p.device(), &Kernels::attention_weights, rows, Tensor(), p);
  return p;
}

Tensor AttentionSamples::forward(const Tensor& q, const Tensor& k, const Tensor& v) const {
  Tensor y = Tensor::empty({shape_.samples, shape_.queries, shape_.heads * shape_.value_width}, DType::f32);
  cpu::parallel_tasks<Nothing>(shape_.samples, [&](Nothing&, std::int64_t i) {
    multiply({weights(i, q, k), shape_.queries, shape_.keys, false}, false,
             {v.slice(i, i + 1), shape_.keys, shape_.value_width}, false,
             {y.slice(i, i + 1), shape_.queries, shape_.value_width});
  });
  return y;
}

std::vector<Tensor> AttentionSamples::backward(const Tensor& dy, const Tensor& q, const Tensor& k,
                                               const Tensor& v, DType factors) const {
  const auto empty = [](const Tensor& x) { return Tensor::empty(x.shape(), DType::f32); };
  const std::vector<Tensor> out{empty(q), empty(k), empty(v)};
  cpu::parallel_tasks<Nothing>(shape_.samples, [&](Nothing&, std::int64_t i) {
    const auto part = [i](const Tensor& x, std::int64_t rows, std::int64_t columns) {
      return Part{x.slice(i, i + 1), rows, columns};
    };
    const auto factor = [&](const Tensor& x, std::int64_t rows, std::int64_t columns) {
      return Part{x.slice(i, i + 1).to(factors), rows, columns};
    };
    const auto scores = [&](const Tensor& x) { return Part{x, shape_.queries, shape_.keys, false}; };
    const Tensor p = weights(i, q, k);
    const Part rows = factor(dy, shape_.queries, shape_.value_width);
    multiply(scores(p.to(factors)), true, rows, false, part(out[2], shape_.keys, shape_.value_width));
    Tensor dp = empty(p);
    multiply(rows, false, factor(v, shape_.keys, shape_.value_width), true, scores(dp));
    run(dp.device(), &Kernels::attention_weights_backward, p, rows_.scale, dp);
    const Part slopes = scores(dp.to(factors));
    multiply(slopes, false, factor(k, shape_.keys, shape_.width), false,
             part(out[0], shape_.queries, shape_.width));
    multiply(slopes, true, factor(q, shape_.queries, shape_.width), false,
             part(out[1], shape_.keys, shape_.width));
  });
  return out;
}

}  // namespace fq::detail
