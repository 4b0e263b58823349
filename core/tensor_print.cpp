#include <ostream>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/convert.h"
#include "fakequant/core/tensor.h"

namespace fq {
namespace {

constexpr std::int64_t kEdge = 3;  // elements shown at either end of a long axis

struct Printer {
  std::ostream& out;
  const std::vector<double>& values;
  const Shape& shape;

  void axis(std::size_t depth, std::int64_t offset, std::int64_t stride) const {
    if (depth == shape.size()) {
      out << fmt::format("{:.6g}", values[static_cast<std::size_t>(offset)]);
      return;
    }
    const std::int64_t size = shape[depth];
    const std::int64_t inner = size > 0 ? stride / size : 0;
    out << '[';
    for (std::int64_t i = 0; i < size; ++i) {
      if (i > 0) out << (depth + 1 == shape.size() ? ", " : ",\n" + std::string(depth + 1, ' '));
      if (i == kEdge && size > 2 * kEdge) {
        out << "..., ";
        i = size - kEdge;
      }
      axis(depth + 1, offset + i * inner, inner);
    }
    out << ']';
  }
};

}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor.defined()) return out << "Tensor(undefined)";
  out << "Tensor(";
  if (tensor.device().is_meta())
    out << "no values";
  else if (is_storage_only(tensor.dtype()))
    out << tensor.nbytes() << " packed bytes: dequantize to see values";
  else {
    const auto values = tensor.to(DType::f64).to_vector<double>();
    Printer{out, values, tensor.shape()}.axis(0, 0, tensor.numel());
  }
  return out << ", " << tensor.describe() << ')';
}

}  // namespace fq
