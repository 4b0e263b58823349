#pragma once

/// Reads tensors of an ONNX file: stored as raw bytes, in typed fields, or as external data.

#include <cstdint>
#include <string>

#include "fakequant/core/tensor.h"

namespace onnx {
class TensorProto;
}

namespace fq::detail {

/// Reads the tensors of the file at `path`. A `place`, "tensor 'w'", names the tensor in messages.
class OnnxTensorReader {
 public:
  explicit OnnxTensorReader(std::string path) : path_(std::move(path)) {}

  /// Throws FileError that names the place for element types without a DType, and if shape and data do not
  /// fit each other.
  [[nodiscard]] Tensor read(const onnx::TensorProto& value, const std::string& place) const;
  /// Returns the path of external data at `location`. Throws FileError unless it is in the model's folder or
  /// below.
  [[nodiscard]] std::string external_path(const std::string& location, const std::string& place) const;
  /// Throws FileError with the path and the place.
  [[noreturn]] void fail(const std::string& place, const std::string& why) const;

 private:
  [[nodiscard]] Shape tensor_shape(const onnx::TensorProto& value, const std::string& place) const;
  [[nodiscard]] Tensor wide_unsigned(const onnx::TensorProto& value, const std::string& place) const;
  [[nodiscard]] Tensor typed(const onnx::TensorProto& value, const Shape& shape, DType dtype,
                             const std::string& place) const;
  template <class T, class Field>
  [[nodiscard]] Tensor numbers(const Field& field, const Shape& shape, DType dtype,
                               const std::string& place) const;
  [[nodiscard]] Tensor external(const onnx::TensorProto& value, const Shape& shape, DType dtype,
                                std::size_t bytes, const std::string& place) const;
  [[nodiscard]] std::int64_t parse_count(const std::string& text, const std::string& place) const;

  std::string path_;
};

}  // namespace fq::detail
