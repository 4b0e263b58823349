#include <cmath>

#include "fakequant/core/ops/activation.h"
#include "fakequant/core/ops/detail/operator.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/ops/pool.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/core/random.h"

namespace fq::ops {
namespace {

constexpr std::string_view kDropout = "dropout";

/// Returns a u8 mask with 1 for kept elements, in the layout of x.
Tensor keep_mask(const Tensor& x, double p, const RandomStream& stream) {
  Tensor mask = Tensor::empty(x.shape(), DType::u8, x.device());
  detail::run(x.device(), &detail::Kernels::keep_mask, detail::DropoutBlocks(p, stream), mask);
  return mask.to(x.layout());
}

Tensor kept(const Tensor& x, const Tensor& mask, double scale) {
  Tensor y = detail::empty_like(x);
  detail::run(x.device(), &detail::Kernels::keep, x, mask, scale, y);
  return y;
}

/// SELU's scale times its alpha.
constexpr double kSeluFloor = 1.7580993408473766;

/// Returns a constant of the given shape and the dtype of x: `value` where elements are kept, else 0.
Variable kept_mask(const Tensor& x, const Shape& shape, double p, double value) {
  Tensor mask = Tensor::empty(shape, DType::u8, x.device()),
         out = Tensor::empty(shape, x.dtype(), x.device());
  detail::run(x.device(), &detail::Kernels::keep_mask, detail::DropoutBlocks(p, random_stream()), mask);
  if (!x.device().is_meta()) ++random_stream().op;
  detail::run(x.device(), &detail::Kernels::keep, Tensor::full(shape, 1.0, x.dtype(), x.device()), mask,
              value, out);
  return out;
}

/// Returns the first `axes` sizes of x, and 1 for the others.
Shape leading(const Shape& x, std::size_t axes) {
  Shape out(x.size(), 1);
  std::copy_n(x.begin(), axes, out.begin());
  return out;
}

/// Applies `make` to x as floats, as one operator. Returns x itself if nothing is dropped.
template <class Make>
Variable dropped(std::string_view op, const Variable& x, double p, bool training, int rank,
                 const Make& make) {
  FQ_CHECK(p >= 0 && p <= 1, op, "p is {}: use 0 to 1", p);
  FQ_CHECK(x.defined(), op, "the input is undefined");
  FQ_CHECK(x.rank() >= rank, op, "the input is {}: it needs {} axes or more", to_string(x.shape()), rank);
  if (!training || p == 0) return x;
  const auto floats = detail::floats(x, op);
  auto attributes = detail::traced([&] { return Attributes{{"p", p}}; });
  return detail::composite(op, {floats.variable}, std::move(attributes),
                           [&] { return make(floats.variable, floats.tensor); });
}

Variable dropped_slices(std::string_view op, const Variable& x, double p, bool training, std::size_t axes) {
  return dropped(op, x, p, training, static_cast<int>(axes), [&](const Variable& in, const Tensor& values) {
    return multiply(in, kept_mask(values, leading(values.shape(), axes), p, p < 1 ? 1.0 / (1.0 - p) : 0.0));
  });
}

}  // namespace

Variable dropout(const Variable& input, double p, bool training) {
  FQ_CHECK(p >= 0 && p <= 1, kDropout, "p is {}: use 0 to 1", p);
  FQ_CHECK(input.defined(), kDropout, "the input is undefined");
  if (!training || p == 0) return input;
  const auto x = detail::floats(input, kDropout);
  const double scale = p < 1 ? 1.0 / (1.0 - p) : 0.0;
  const Tensor mask = keep_mask(x.tensor, p, random_stream());
  // Tracing must not advance the random stream: a traced and an untraced run drop the same elements.
  if (!x.tensor.device().is_meta()) ++random_stream().op;
  const auto backward = [mask, scale](const Tensor& dy) {
    return std::vector<Tensor>{kept(dy, mask, scale)};
  };
  return detail::record(kDropout, kept(x.tensor, mask, scale), {x.variable}, backward, detail::traced([&] {
                          return Attributes{{"p", p}};
                        }));
}

Variable channel_dropout(const Variable& x, double p, bool training) {
  return dropped_slices("channel_dropout", x, p, training, 2);
}

Variable drop_path(const Variable& x, double p, bool training) {
  return dropped_slices("drop_path", x, p, training, 1);
}

Variable alpha_dropout(const Variable& x, double p, bool training, bool channels) {
  return dropped("alpha_dropout", x, p, training, channels ? 2 : 0, [&](const Variable& in, const Tensor& t) {
    if (p == 1) return scale(in, 0.0);
    const Shape shape = channels ? leading(t.shape(), 2) : t.shape();
    const double factor = 1.0 / std::sqrt((kSeluFloor * kSeluFloor * p + 1.0) * (1.0 - p)),
                 floor = -kSeluFloor * factor;
    const Variable mask =
        kept_mask(t, shape, p, 1.0);  // kept: x * factor - p * floor; dropped: (1 - p) * floor
    return add(multiply(in, scale(mask, factor)), shift(scale(mask, -floor), (1.0 - p) * floor));
  });
}

Variable drop_block2d(const Variable& x, double p, std::int64_t block, bool training) {
  constexpr std::string_view op = "drop_block2d";
  FQ_CHECK(x.defined() && x.rank() == 4, op, "the input is no image: use [N, C, H, W]");
  const Shape shape = x.shape();
  FQ_CHECK(block > 0 && block % 2 == 1 && block <= shape[2] && block <= shape[3], op,
           "a block of {} in {}: use an odd number up to the image's size", block, to_string(shape));
  return dropped(op, x, p, training, 4, [&](const Variable& in, const Tensor& t) {
    const std::int64_t h = shape[2] - block + 1, w = shape[3] - block + 1, side = block / 2;
    // gamma of DropBlock (Ghiasi et al., arXiv:1810.12890): the probability of a block center such that a
    // share p of the elements is dropped. Centers keep the block inside the image.
    const double share = p * double(shape[2] * shape[3]) / double(block * block * h * w);
    const Variable seeds =
        shift(scale(kept_mask(t, {shape[0], shape[1], h, w}, std::min(share, 1.0), 1.0), -1.0), 1.0);
    const Variable wide = pad(seeds, {{0, 0}, {0, 0}, {side, side}, {side, side}});
    const Variable hit =
        max_pool2d(wide, {.kernel = {block, block}, .stride = {1, 1}, .padding = {side, side}});
    const Variable left = shift(scale(hit, -1.0), 1.0);
    const Variable all = shift(sum(left), 1e-6);
    return multiply(
        in, multiply(left, div(Variable(Tensor::full({}, double(t.numel()), t.dtype(), t.device())), all)));
  });
}

}  // namespace fq::ops
