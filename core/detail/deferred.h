#pragma once

/// Float results that a GPU computes when they are first read. The kernel that computes them then also rounds
/// them for the reader, so that no tensor of floats is written and read between two operators.

#include <string>
#include <utility>

#include "fakequant/core/quantized.h"

namespace fq::detail {

/// A result of a float operator, f32, not computed yet. Its inputs are kept until then. Thread-safe.
class Deferred {
 public:
  Deferred(Shape shape, Layout layout, Device device)
      : shape_(std::move(shape)), layout_(layout), device_(device) {}
  Deferred(const Deferred&) = delete;
  Deferred& operator=(const Deferred&) = delete;
  virtual ~Deferred() = default;

  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  [[nodiscard]] Layout layout() const noexcept { return layout_; }
  [[nodiscard]] Device device() const noexcept { return device_; }

  /// Computes the values. Throws ArgumentError if an input was written to since the operator was called.
  [[nodiscard]] virtual Tensor floats() = 0;
  /// Fills out.codes and, if defined, out.mask with the bits of `quantize(floats(), out.grid)`, an integer
  /// grid with one scale. Throws as `floats`, and raises an alarm with `nan_text` for a NaN.
  virtual void codes(QuantizedTensor& out, const std::string& nan_text) = 0;

 private:
  Shape shape_;
  Layout layout_;
  Device device_;
};

}  // namespace fq::detail
