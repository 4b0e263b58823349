#pragma once

/// Products of an input and weights, shared by linear, convolutions and matmul: products of floats, minifloat
/// codes or integer codes, forward and backward. f32 uses the engine, f64 plain loops. `meta` computes
/// nothing.

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#include "fakequant/core/backend/product_shapes.h"
#include "fakequant/core/context.h"
#include "fakequant/core/quantized.h"
#include "fakequant/core/tape.h"
#include "fakequant/core/variable.h"

namespace fq::detail {

/// A product of an input and weights, linear in both, with checked shapes. Its functions use the tensor form
/// of the engine, with the channels innermost: `input` and `weight` convert to this form, `output` converts
/// back. Tensors are f32, f64, or bf16 with f32 results.
class Product {
 public:
  virtual ~Product() = default;

  std::string_view name;      ///< name of the operator, a literal
  std::int64_t channels = 0;  ///< number of output channels
  std::int64_t terms = 0;     ///< number of products in one output
  int weight_axis = 0;        ///< axis of the output channels in the weights
  int output_axis = 1;        ///< axis of the channels in the output
  bool same_weights = true;   ///< whether all rows along the input's first axis share the weights
  /// Smallest number of input rows for which a row's gradient does not depend on the number of rows.
  std::size_t fewest_rows = 1;
  bool recomputes_sums = false;  ///< whether backward recomputes sums of codes instead of keeping them
  Attributes attributes;

  [[nodiscard]] virtual Tensor input(const Tensor& x) const = 0;
  [[nodiscard]] virtual Tensor weight(const Tensor& w) const = 0;
  [[nodiscard]] virtual Tensor output(const Tensor& y) const = 0;
  /// Converts a gradient of the output to the form of the engine.
  [[nodiscard]] virtual Tensor gradient(const Tensor& dy) const = 0;

  [[nodiscard]] virtual Tensor forward(const Tensor& x, const Tensor& w) const = 0;
  /// Returns `forward` with scales and a bias, which may be undefined, applied as in `scale_products`.
  [[nodiscard]] virtual Tensor scaled(const Tensor& x, const Tensor& w, const Tensor& scale,
                                      const Variable& bias) const;
  /// Returns exact int32 sums of integer codes. `x` and `w` are results of `input` and `weight`.
  [[nodiscard]] virtual Tensor exact_sums(const Codes& x, const Codes& w, Device device) const = 0;
  /// Returns gradients in the shapes of the operator's own input and weights. The gradient of x has as many
  /// rows along the first axis as `dy`.
  [[nodiscard]] virtual Tensor backward_x(const Tensor& dy, const Tensor& w) const = 0;
  [[nodiscard]] virtual Tensor backward_w(const Tensor& x, const Tensor& dy) const = 0;
};

/// Computes y, records it and reports it under the name of the product. `bias` may be undefined.
[[nodiscard]] Variable apply(std::shared_ptr<const Product> product, const Variable& x, const Variable& w,
                             const Variable& bias);

/// Throws ArgumentError unless both have the same float type and device.
void check_factors(const Tensor& x, const Tensor& w, std::string_view function);
/// Throws ArgumentError unless `bias` is undefined or [channels] with the dtype and device of the factors.
void check_bias(const Variable& bias, std::int64_t channels, const Variable& x, std::string_view function);

/// Returns the dtype of a product with this factor: f64 for f64, else f32.
[[nodiscard]] DType product_dtype(const Tensor& factor);

/// Writes the product to all of out [batch, a.rows, b.columns], row-major; f32 for bf16 factors.
void multiply(const Factor& a, const Factor& b, Tensor& out, std::int64_t batch = 1,
              Sharing sharing = Sharing::by_shape);

/// Multiplies the numbers of codes, then applies `scale_products`. `bias` may be undefined.
void multiply_scaled(const Factor& a, const Factor& b, const Tensor& scale, const Variable& bias,
                     Tensor& out);

/// Convolves channels_last activations with row-major weights. Returns new y, dx and dw; f32 for bf16
/// factors.
[[nodiscard]] Tensor conv_y(const ConvShape& shape, const Tensor& x, const Tensor& w,
                            Sharing sharing = Sharing::by_shape);
[[nodiscard]] Tensor conv_dx(const ConvShape& shape, const Tensor& dy, const Tensor& w,
                             Sharing sharing = Sharing::by_shape);
[[nodiscard]] Tensor conv_dw(const ConvShape& shape, const Tensor& x, const Tensor& dy);

/// Adds bias[c] to y[.., c], where the channels are innermost in memory: channels_last, or the last axis of
/// row-major.
void add_bias(Tensor& y, const Variable& bias);
/// Returns the sum of dy over all axes except the innermost `channels`, with the same bits for any number of
/// threads.
[[nodiscard]] Tensor bias_gradient(const Tensor& dy, std::int64_t channels);

// Products of codes, forward and backward. The algebra of the backward pass is in the comment on
// BackwardType.

enum class CodeKind : unsigned char {
  floats,    ///< not both quantized, or not both usable as factors: dequantize
  integers,  ///< up to 8 bits, one scale for x and one per channel for w: exact sums
  factors,   ///< sums of products of factors, in f32
};

/// Returns how the codes are multiplied as numbers of at most 8 significant bits, which bfloat16 represents
/// exactly: x * w = s_x * s_w[c] * sum f_x*f_w. A factor f is the code, with one scale or one for each output
/// channel. For blocks whose scales have few bits, it is the code times (scale / unit), with s = unit.
[[nodiscard]] CodeKind code_kind(const Variable& x, const Variable& w, int w_axis);
/// Returns whether the codes are their own factors, with one scale or one along `axis` (-1: none).
[[nodiscard]] bool codes_are_factors(const QuantizedTensor& x, int axis);
/// Returns the scales of the factors: f32, rank 0 or [channels along `axis`].
[[nodiscard]] Tensor factor_scale(const QuantizedTensor& x, int axis);

/// Returns fl(s_x * s_w[c % channels of the weights]) for each of `channels`; rank 0 if w has one scale.
[[nodiscard]] Tensor product_scale(const QuantizedTensor& x, const QuantizedTensor& w, int w_axis,
                                   std::int64_t channels);

/// Returns the largest magnitude of a sum of `terms` products. Throws ArgumentError if it exceeds int32.
[[nodiscard]] std::int64_t largest_sum(const QuantizedTensor& x, const QuantizedTensor& w, std::int64_t terms,
                                       std::string_view function);

/// Returns the raw codes of an integer format, in memory order.
[[nodiscard]] Codes as_codes(const QuantizedTensor& x, const Tensor& codes);

/// Returns the accumulator of sums with the channels along `axis`. `bias` may be undefined.
[[nodiscard]] Accumulator product_sums(Tensor sums, const QuantizedTensor& x, const QuantizedTensor& w,
                                       const Variable& bias, int w_axis, int axis, std::int64_t largest_sum);

/// Computes y[.., c] = fl(y[.., c] * scale[c]) + bias[c] in place, with the channels innermost in memory.
void scale_products(Tensor& y, const Tensor& scale, const Variable& bias);

/// Returns the factors of the codes as bf16 numbers, stored as bf16 or f32, in the layout of the codes.
[[nodiscard]] Tensor code_factor(const QuantizedTensor& x, int axis, DType dtype);
/// Returns the dtype of factors on the device: bf16 where the device multiplies it, else f32.
[[nodiscard]] DType code_factor_dtype(Device device);

/// Factors of codes that several products read. The first product in a backward pass makes them, and the last
/// one frees them. Each product holds one reference.
class SharedFactors {
 public:
  /// Returns the object that all recorded products of x share.
  [[nodiscard]] static std::shared_ptr<SharedFactors> of(const Variable& x);
  /// Returns the factors, made by `make` if no product made them before. They are kept unless `own` is the
  /// last reference.
  template <class Make>
  [[nodiscard]] static Tensor get(const std::shared_ptr<SharedFactors>& own, const Make& make) {
    const std::scoped_lock lock(own->mutex_);
    const Tensor factors = own->factors_.defined() ? own->factors_ : make();
    own->factors_ = own.use_count() > 1 ? factors : Tensor();
    return factors;
  }

 private:
  std::mutex mutex_;
  Tensor factors_;
};

/// Saved values of y[.., c] = s_x * s_w[c] * sum f_x*f_w for the backward pass: codes without masks.
class CodeGradients {
 public:
  /// `w_axis` is the axis of the output channels in w. x and w have codes.
  CodeGradients(const Variable& x, const Variable& w, int w_axis);

  /// Returns the other factor of both gradient products: dY' as bf16 numbers, or dY itself for `fp32`, with
  /// the channels innermost. With `db`, may set db to the sum of dy over all axes except the channels.
  /// Evaluates dy if no kernel computes its pending steps.
  [[nodiscard]] Tensor dy(PendingGradient& dy, Tensor* db = nullptr) const;
  [[nodiscard]] Tensor x() const;
  [[nodiscard]] Tensor w() const;
  /// Returns the gradient of the weight from the product of `dy` and `x`.
  [[nodiscard]] PendingGradient weight_gradient(Tensor product) const;
  /// Sets the result of `w` to factors that forward has made.
  void keep_w(Tensor factors) { w_factors_ = std::move(factors); }

 private:
  QuantizedTensor x_, w_;
  Tensor w_factors_;
  std::shared_ptr<SharedFactors> x_factors_;
  int w_axis_;
  BackwardType type_;
};

/// Saved values of a product of floats for the backward pass. A factor that was dequantized keeps its codes.
/// If such codes have at most 8 bits, `bf16` rounds dy and both factors to bf16.
class FloatGradients {
 public:
  FloatGradients(const Variable& x, const Variable& w);

  [[nodiscard]] bool rounds() const noexcept { return rounds_; }
  /// As CodeGradients::dy.
  [[nodiscard]] Tensor dy(PendingGradient& dy, Tensor* db = nullptr) const;
  [[nodiscard]] Tensor x() const { return factor(x_); }
  [[nodiscard]] Tensor w() const { return factor(w_); }
  /// As CodeGradients::weight_gradient: the product itself.
  [[nodiscard]] static PendingGradient weight_gradient(Tensor product) { return product; }
  /// Converts another factor to the same number format.
  [[nodiscard]] Tensor rounded(const Tensor& t) const;

 private:
  struct Kept {
    Saved floats;
    std::optional<QuantizedTensor> codes;
    explicit Kept(const Variable& v);
  };
  [[nodiscard]] Tensor factor(const Kept& kept) const;

  Kept x_, w_;
  bool rounds_;
};

}  // namespace fq::detail
