#include "fakequant/train/ptq/detail/input_statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/linear.h"
#include "fakequant/core/ops/operators.h"
#include "fakequant/train/ptq/detail/float_run.h"
#include "fakequant/train/ptq/detail/matrices.h"
#include "fakequant/train/ptq/detail/weighted_layers.h"
#include "fakequant/train/ranks/detail/binned_sum.h"

namespace fq::ptq {
namespace {

/// Sums of the input rows that a layer multiplies.
class InputSums {
 public:
  /// `layer` must outlive this object.
  InputSums(const WeightedLayer& layer, const StatisticsOptions& options);

  /// Adds the input of one batch, row-major on the CPU. Throws NumericError with the layer for a NaN or
  /// infinity.
  void add(const Tensor& x);
  /// Returns the statistics of the batches of all ranks. All ranks must call it.
  [[nodiscard]] InputStatistics merged(Communicator& ranks);

 private:
  void add_channels(const Tensor& x);
  void add_gram(const Tensor& x);
  [[nodiscard]] std::vector<Tensor> mean_gram(std::int64_t rows) const;

  const WeightedLayer& layer_;
  std::int64_t positions_;
  std::vector<float> largest_;
  BinnedSum magnitudes_, gram_;  // gram_ covers all groups; empty unless requested
  std::int64_t values_ = 0, rows_ = 0;
};

/// Convolution geometry. A 1-D convolution has height 1.
struct Geometry {
  std::int64_t images, channels, height, width;
  std::int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  std::int64_t out_h, out_w;
};

// Reads one side of a convolution option: one number for both sides, or [vertical, horizontal]. 1-D
// convolutions have `of_height_one` vertically.
std::int64_t option(const std::vector<std::int64_t>& list, bool vertical, bool flat, std::int64_t fallback,
                    std::int64_t of_height_one) {
  if (flat && vertical) return of_height_one;
  if (list.empty()) return fallback;
  return vertical ? list.front() : list.back();
}

Geometry geometry(const WeightedLayer& layer, const Shape& x) {
  const bool flat = x.size() == 3;
  const Shape w = layer.weight.shape();
  const auto& o = layer.options;
  Geometry g{.images = x[0],
             .channels = w[1],
             .height = flat ? 1 : x[2],
             .width = x.back(),
             .kernel_h = flat ? 1 : w[2],
             .kernel_w = w.back(),
             .stride_h = option(o.stride, true, flat, 1, 1),
             .stride_w = option(o.stride, false, flat, 1, 1),
             .pad_h = option(o.padding, true, flat, 0, 0),
             .pad_w = option(o.padding, false, flat, 0, 0),
             .dilation_h = option(o.dilation, true, flat, 1, 1),
             .dilation_w = option(o.dilation, false, flat, 1, 1),
             .out_h = 0,
             .out_w = 0};
  g.out_h = (g.height + 2 * g.pad_h - g.dilation_h * (g.kernel_h - 1) - 1) / g.stride_h + 1;
  g.out_w = (g.width + 2 * g.pad_w - g.dilation_w * (g.kernel_w - 1) - 1) / g.stride_w + 1;
  return g;
}

/// Returns the i-th of `taken` positions in an image. Each image starts at another position.
std::int64_t position(const Geometry& g, std::int64_t image, std::int64_t i, std::int64_t taken) {
  const std::int64_t all = g.out_h * g.out_w;
  // The start moves by 7 positions per image, so that the images together see more positions.
  return (i * all / taken + image * (taken < all ? 7 : 0)) % all;
}

/// Copies the values that tap (channel, kh, kw) reads at the chosen positions.
void fill_tap(const Geometry& g, const float* plane, std::int64_t plane_stride, std::int64_t kh,
              std::int64_t kw, std::int64_t taken, float* out) {
  for (std::int64_t image = 0; image < g.images; ++image)
    for (std::int64_t i = 0; i < taken; ++i) {
      const std::int64_t p = position(g, image, i, taken);
      const std::int64_t row = p / g.out_w * g.stride_h - g.pad_h + kh * g.dilation_h;
      const std::int64_t column = p % g.out_w * g.stride_w - g.pad_w + kw * g.dilation_w;
      const bool inside = row >= 0 && row < g.height && column >= 0 && column < g.width;
      // Positions in the padding are zeros.
      *out++ = inside ? plane[image * plane_stride + row * g.width + column] : 0.0f;
    }
}

/// Returns the input rows of one group as f32 [columns, positions]: weight column k multiplies element k of
/// position p. Takes at most `limit` evenly spaced output positions per image, with another start in each
/// image. `x` is the layer's input, row-major. Takes all rows of a linear layer.
Tensor patches(const WeightedLayer& layer, const Tensor& x, std::int64_t group, std::int64_t limit) {
  if (layer.linear()) return transposed(x, layer.columns());
  const Geometry g = geometry(layer, x.shape());
  const std::int64_t taken = std::min(limit, g.out_h * g.out_w), plane = g.height * g.width;
  Tensor out = Tensor::empty({layer.columns(), g.images * taken});
  auto* to = out.mutable_data<float>();
  const auto* from = x.data<float>() + group * g.channels * plane;
  // out: [columns, images * taken]; columns are ordered as the weight: channel, kernel row, kernel column.
  for (std::int64_t c = 0; c < g.channels; ++c)
    for (std::int64_t kh = 0; kh < g.kernel_h; ++kh)
      for (std::int64_t kw = 0; kw < g.kernel_w; ++kw, to += g.images * taken)
        fill_tap(g, from + c * plane, layer.channels() * plane, kh, kw, taken, to);
  return out;
}

InputSums::InputSums(const WeightedLayer& layer, const StatisticsOptions& options)
    : layer_(layer),
      positions_(options.positions),
      largest_(static_cast<std::size_t>(layer.channels()), 0.0f),
      magnitudes_(layer.channels()),
      gram_(options.gram ? layer.groups() * layer.columns() * layer.columns() : 0) {}

void InputSums::add(const Tensor& x) {
  if (x.numel() == 0) return;
  add_channels(x);
  if (gram_.size() > 0) add_gram(x);
}

/// Channels are on axis 1 of images and on the last axis of rows.
void InputSums::add_channels(const Tensor& x) {
  const std::int64_t channels = layer_.channels(),
                     inner = layer_.linear() ? 1 : numel(x.shape()) / x.dim(0) / channels;
  const std::int64_t outer = x.numel() / channels / inner;
  std::vector<double> sums(largest_.size(), 0.0);
  const auto* values = x.data<float>();
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::size_t c = 0; c < sums.size(); ++c)
      for (std::int64_t i = 0; i < inner; ++i) {
        const float magnitude = std::abs(*values++);
        largest_[c] = std::max(largest_[c], magnitude);
        sums[c] += double(magnitude);
      }
  values_ += outer * inner;
  if (!magnitudes_.add(sums))
    throw NumericError(fmt::format("[ptq] the input of '{}' has a NaN or an infinity", layer_.path));
}

void InputSums::add_gram(const Tensor& x) {
  std::vector<float> products;
  products.reserve(static_cast<std::size_t>(gram_.size()));
  std::int64_t rows = 0;
  for (std::int64_t g = 0; g < layer_.groups(); ++g) {
    // product = X X^T: [columns, columns]. The order of BinnedSum's terms does not change the result.
    const Variable columns(patches(layer_, x, g, positions_));
    const Tensor product = ops::linear(columns, columns).tensor();
    products.insert(products.end(), product.data<float>(), product.data<float>() + product.numel());
    rows = columns.dim(1);
  }
  rows_ += rows;
  if (!gram_.add(products))
    throw NumericError(fmt::format("[ptq] squares of the input of '{}' are beyond f32", layer_.path));
}

std::vector<Tensor> InputSums::mean_gram(std::int64_t rows) const {
  const double share = 1.0 / double(std::max<std::int64_t>(1, rows));
  const auto sums = gram_.values();
  const auto* sum = sums.data();
  std::vector<Tensor> out;
  for (std::int64_t g = 0; g < layer_.groups(); ++g) {
    out.push_back(Tensor::empty({layer_.columns(), layer_.columns()}));
    auto* to = out.back().mutable_data<float>();
    for (std::int64_t i = 0; i < out.back().numel(); ++i) to[i] = static_cast<float>(*sum++ * share);
  }
  return out;
}

InputStatistics InputSums::merged(Communicator& ranks) {
  std::vector<std::int64_t> bits, counts{values_, rows_};
  for (const float v : largest_) bits.push_back(std::bit_cast<std::int32_t>(v));  // in the order of floats
  ranks.max(bits);
  ranks.sum(counts);
  magnitudes_.merge(ranks);
  InputStatistics out{.largest = {}, .magnitudes = magnitudes_.values(), .values = counts[0], .gram = {}};
  for (const auto v : bits) out.largest.push_back(std::bit_cast<float>(static_cast<std::int32_t>(v)));
  if (gram_.size() == 0) return out;
  gram_.merge(ranks);
  out.gram = mean_gram(counts[1]);
  return out;
}

class InputRecorder : public Recorder {
 public:
  InputRecorder(const std::vector<WeightedLayer>& layers, const StatisticsOptions& options) {
    for (const auto& layer : layers) layers_.try_emplace(layer.path, layer, options);
  }

  void record_op(std::string_view op, const std::vector<Variable>& inputs, const Variable&,
                 Attributes) override {
    const auto layer = layers_.find(module_path());
    // The recorder sees all operators of a layer; the product is the one with a weight.
    if (busy_ || layer == layers_.end() || !traits(op).has_weight) return;
    busy_ = true;  // the operators of `add` are not part of the model
    layer->second.add(inputs[0].tensor().to(Layout::row_major));
    busy_ = false;
  }

  // Layers are in the order of their paths on all ranks, so that ranks merge the same layer together.
  std::map<std::string, InputStatistics> finish(Communicator& ranks) {
    std::map<std::string, InputStatistics> out;
    for (auto& [path, sums] : layers_) out[path] = sums.merged(ranks);
    return out;
  }

 private:
  std::map<std::string, InputSums> layers_;
  bool busy_ = false;
};

}  // namespace

std::map<std::string, InputStatistics> input_statistics(Module& model, DataLoader& data,
                                                        const std::vector<WeightedLayer>& layers,
                                                        const StatisticsOptions& options,
                                                        const std::string& function) {
  const FloatScope float_scope(model);
  const NoGrad no_grad;
  const auto ranks = ranks_or_one(options.ranks);
  InputRecorder recorder(layers, options);
  run_batches(model, data, options.samples, *ranks, &recorder, function);
  return recorder.finish(*ranks);
}

Tensor times_gram(const WeightedLayer& layer, const InputStatistics& statistics, const Tensor& difference) {
  const NoGrad no_grad;
  const std::int64_t rows = layer.rows() / layer.groups(), columns = layer.columns();
  const Tensor all = difference.reshape({layer.rows(), columns});
  Tensor out = Tensor::empty(all.shape());
  for (std::int64_t g = 0; g < layer.groups(); ++g) {
    // Rows of group g: [rows, columns] times gram [columns, columns].
    const Variable part(all.slice(g * rows, (g + 1) * rows));
    const Variable gram(statistics.gram.at(static_cast<std::size_t>(g)));  // symmetric
    out.slice(g * rows, (g + 1) * rows).copy_from(ops::linear(part, gram).tensor());
  }
  return out;
}

std::vector<double> row_errors(const WeightedLayer& layer, const InputStatistics& statistics,
                               const Tensor& difference) {
  const Tensor product = times_gram(layer, statistics, difference);
  const auto* p = product.data<float>();
  const auto* d = difference.data<float>();
  std::vector<double> out(static_cast<std::size_t>(layer.rows()), 0.0);
  // d^T gram d per row, summed in f64.
  for (double& sum : out)
    for (std::int64_t k = 0; k < layer.columns(); ++k) sum += double(*p++) * double(*d++);
  return out;
}

}  // namespace fq::ptq
