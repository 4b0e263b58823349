#include "fakequant/core/backend/cuda/engine/exact_products.h"

#include <algorithm>

#include "fakequant/core/backend/cpu/engine/exact.h"
#include "fakequant/core/backend/cuda/engine/matmul.h"

namespace fq::cuda {
namespace {

std::int64_t rounded_up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }
bool aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }
std::int32_t* integers(Storage& storage) { return reinterpret_cast<std::int32_t*>(storage.mutable_data()); }
const std::byte* at(const Storage& storage, std::int64_t offset) { return storage.data() + offset; }

// Parts of a sum, as in the host's exact_parts.
/// Calls f(begin, end) for parts of `part` elements of `length`.
template <class F>
void visit_parts(std::int64_t length, std::int64_t part, F&& f) {
  for (std::int64_t k = 0; k < length; k += part) f(k, std::min(length, k + part));
}

}  // namespace

ByteProducts::ByteProducts(const ConvShape& conv, const Codes& x, const Codes& w, Device device,
                           bool computes_dx)
    : shape_(ColumnShape::of(conv, 16, computes_dx)),
      // cuBLASLt's int8 kernels require multiples of 4. Rows of 16 codes are aligned to 16 bytes.
      outputs_(rounded_up(shape_.group_outputs(), 4)),
      weights_(w.data),
      shifted_(x.dtype == DType::u8),
      device_(device) {
  const std::int64_t rows = conv.groups * outputs_;
  if (!shape_.packed(outputs_) || !aligned(w.data)) {
    packed_ = Storage(rows * shape_.row, device);
    pack_weights(shape_, w.data, 1, outputs_, packed_.mutable_data(), device);
    weights_ = packed_.data();
  }
  // u8 codes: sum x * w = sum (x - 128) * w + 128 * sum w. The second term depends only on the weights.
  if (!shifted_) return;
  corrections_ = Storage(rows * 4, device);
  shift_corrections(static_cast<const std::int8_t*>(weights_), rows, shape_.row, integers(corrections_),
                    device);
}

const void* ByteProducts::columns(const std::byte* x, std::int64_t images) {
  // No copy is needed if the columns are x itself.
  if (!shifted_ && aligned(x) && shape_.trivial()) return x;
  if (columns_.bytes() < images * shape_.image()) columns_ = Storage(images * shape_.image(), device_);
  take_windows(shape_.images(images), x, 1, shifted_, columns_.mutable_data(), device_);
  return columns_.data();
}

void ByteProducts::multiply(const std::byte* x, std::int64_t images, std::int32_t* sums) {
  const auto& conv = shape_.conv;
  const std::int64_t pixels = images * conv.oh * conv.ow, stride = conv.groups * outputs_;
  const bool padding = outputs_ != shape_.group_outputs();
  // Without padding the product is written directly to `sums`.
  if (padding && padded_.bytes() < pixels * stride * 4) padded_ = Storage(pixels * stride * 4, device_);
  std::int32_t* to = padding ? integers(padded_) : sums;
  gemm({columns(x, images), DType::i8, pixels, shape_.row, false, conv.groups * shape_.row, shape_.row},
       {weights_, DType::i8, shape_.row, outputs_, true}, {to, DType::i32, stride, outputs_}, conv.groups,
       device_);
  finish_sums({to, pixels, conv.groups, shape_.group_outputs(), outputs_},
              shifted_ ? integers(corrections_) : nullptr, sums, device_);
}

FloatProducts::FloatProducts(const ConvShape& conv, const Codes& x, const Codes& w, DType values,
                             Device device, bool computes_dx)
    : shape_(ColumnShape::of(conv, 1, computes_dx)),
      type_(values),
      // The largest number of products whose sum stays within 2^24, the integers that f32 represents.
      part_(std::max<std::int64_t>(cpu::exact_limit / std::max<std::int64_t>(x.largest * w.largest, 1), 1)),
      weights_(conv.o * shape_.products() * bytes(), device),
      device_(device) {
  const Storage decoded = decode(w, numel(conv.w_shape()));
  pack_weights(shape_, decoded.data(), static_cast<int>(bytes()), shape_.group_outputs(),
               weights_.mutable_data(), device);
}

Storage FloatProducts::decode(const Codes& codes, std::int64_t count) const {
  Storage out(count * bytes(), device_);
  decode_codes(codes, count, type_, out.mutable_data(), device_);
  return out;
}

void FloatProducts::multiply(const Codes& x, std::int64_t images, std::int32_t* sums) const {
  const auto& conv = shape_.conv;
  const std::int64_t pixels = images * conv.oh * conv.ow, k = shape_.products();
  const std::int64_t outputs = shape_.group_outputs();
  const Storage values = decode(x, images * conv.h * conv.w * conv.c);
  Storage columns(images * shape_.image() * bytes(), device_), products(pixels * conv.o * 4, device_);
  take_windows(shape_.images(images), values.data(), static_cast<int>(bytes()), false, columns.mutable_data(),
               device_);
  auto* out = reinterpret_cast<float*>(products.mutable_data());
  // Each part has few enough terms for an exact float sum.
  visit_parts(k, part_, [&](std::int64_t begin, std::int64_t end) {
    gemm({at(columns, begin * bytes()), type_, pixels, end - begin, false, conv.groups * k, k},
         {at(weights_, begin * bytes()), type_, end - begin, outputs, true, k, outputs * k},
         {out, DType::f32, conv.o, outputs}, conv.groups, device_);
    add_part(out, pixels * conv.o, begin == 0, sums, device_);
  });
}

// columns [pixels, groups, K] = x [pixels, o] * weights [o, K]: sums run over outputs, so parts are outputs.
void FloatProducts::multiply_back(const Codes& x, std::int64_t pixels, std::int32_t* columns) const {
  const auto& conv = shape_.conv;
  const std::int64_t k = shape_.products(), all = conv.groups * k, outputs = shape_.group_outputs();
  const Storage values = decode(x, pixels * conv.o);
  Storage products(pixels * all * 4, device_);
  auto* out = reinterpret_cast<float*>(products.mutable_data());
  visit_parts(outputs, part_, [&](std::int64_t begin, std::int64_t end) {
    gemm({at(values, begin * bytes()), type_, pixels, end - begin, false, conv.o, outputs},
         {at(weights_, begin * k * bytes()), type_, end - begin, k, false, k, outputs * k},
         {out, DType::f32, all, k}, conv.groups, device_);
    add_part(out, pixels * all, begin == 0, columns, device_);
  });
}

}  // namespace fq::cuda
