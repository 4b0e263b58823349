#include "fakequant/core/cuda/exact.h"

#include <algorithm>
#include <optional>

#include "fakequant/core/cpu/exact_parts.h"
#include "fakequant/core/cuda/code_sums.h"
#include "fakequant/core/cuda/conv.h"
#include "fakequant/core/cuda/matmul.h"
#include "fakequant/core/cuda/runtime.h"
#include "fakequant/core/storage.h"

namespace fq::cuda {
namespace {

std::int64_t rounded_up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }
std::int32_t* integers(Storage& storage) { return reinterpret_cast<std::int32_t*>(storage.mutable_data()); }
const std::byte* at(const void* bytes, std::int64_t offset) {
  return static_cast<const std::byte*>(bytes) + offset;
}

/// int8 products, of sizes that cuBLASLt has kernels for: products in 16s, outputs in 4s.
struct ByteProducts {
  ColumnShape shape;
  std::int64_t outputs;
  Storage weights, corrections, scratch, padded;
  bool shifted;
  Device device;

  ByteProducts(const ConvShape& conv, const Codes& x, const Codes& w, Device where)
      : shape(ColumnShape::of(conv, 16)),
        outputs(rounded_up(shape.group_outputs(), 4)),
        shifted(x.dtype == DType::u8),
        device(where) {
    const std::int64_t rows = conv.groups * outputs;
    weights = Storage(rows * shape.row, device);
    pack_weights(shape, w.data, 1, outputs, weights.mutable_data(), device);
    if (!shifted) return;
    corrections = Storage(rows * 4, device);
    shift_corrections(reinterpret_cast<const std::int8_t*>(weights.data()), rows, shape.row,
                      integers(corrections), device);
  }

  const void* columns(const std::byte* x, std::int64_t images) {
    const bool aligned = reinterpret_cast<std::uintptr_t>(x) % 16 == 0;
    if (!shifted && aligned && shape.trivial()) return x;
    if (scratch.bytes() < images * shape.image()) scratch = Storage(images * shape.image(), device);
    take_windows(shape.images(images), x, 1, shifted, scratch.mutable_data(), device);
    return scratch.data();
  }

  void multiply(const std::byte* x, std::int64_t images, std::int32_t* sums) {
    const auto& conv = shape.conv;
    const std::int64_t pixels = images * conv.oh * conv.ow, stride = conv.groups * outputs;
    const bool padding = outputs != shape.group_outputs();
    if (padding && padded.bytes() < pixels * stride * 4) padded = Storage(pixels * stride * 4, device);
    std::int32_t* to = padding ? integers(padded) : sums;
    gemm({columns(x, images), DType::i8, pixels, shape.row, false, conv.groups * shape.row, shape.row},
         {weights.data(), DType::i8, shape.row, outputs, true}, {to, DType::i32, stride, outputs},
         conv.groups, device);
    finish_sums({to, pixels, conv.groups, shape.group_outputs(), outputs},
                shifted ? integers(corrections) : nullptr, sums, device);
  }
};

/// Products of code values, in parts that floats hold.
struct FloatProducts {
  ColumnShape shape;
  DType type;
  std::int64_t part;
  Storage weights;
  Device device;

  FloatProducts(const ConvShape& conv, const Codes& x, const Codes& w, DType values, Device where)
      : shape(ColumnShape::of(conv)),
        type(values),
        part(std::max<std::int64_t>(cpu::exact_limit / std::max<std::int64_t>(x.largest * w.largest, 1), 1)),
        weights(conv.o * shape.products() * bytes(), where),
        device(where) {
    const Storage decoded = decode(w, numel(conv.w_shape()));
    pack_weights(shape, decoded.data(), static_cast<int>(bytes()), shape.group_outputs(),
                 weights.mutable_data(), device);
  }

  [[nodiscard]] std::int64_t bytes() const { return bit_width(type) / 8; }
  [[nodiscard]] Storage decode(const Codes& codes, std::int64_t count) const {
    Storage out(count * bytes(), device);
    decode_codes(codes, count, type, out.mutable_data(), device);
    return out;
  }

  /// Calls f(begin, end) for parts of `length` products.
  template <class F>
  void for_parts(std::int64_t length, F&& f) const {
    for (std::int64_t k = 0; k < length; k += part) f(k, std::min(length, k + part));
  }

  void multiply(const Codes& x, std::int64_t images, std::int32_t* sums) const {
    const auto& conv = shape.conv;
    const std::int64_t pixels = images * conv.oh * conv.ow, k = shape.products();
    const Storage values = decode(x, images * conv.h * conv.w * conv.c);
    Storage columns(images * shape.image() * bytes(), device), products(pixels * conv.o * 4, device);
    take_windows(shape.images(images), values.data(), static_cast<int>(bytes()), false,
                 columns.mutable_data(), device);
    auto* out = reinterpret_cast<float*>(products.mutable_data());
    for_parts(k, [&](std::int64_t begin, std::int64_t end) {
      gemm({at(columns.data(), begin * bytes()), type, pixels, end - begin, false, conv.groups * k, k},
           {at(weights.data(), begin * bytes()), type, end - begin, shape.group_outputs(), true, k,
            shape.group_outputs() * k},
           {out, DType::f32, conv.o, shape.group_outputs()}, conv.groups, device);
      add_part(out, pixels * conv.o, begin == 0, sums, device);
    });
  }

  /// columns [pixels, groups, K] of codes [pixels, o]
  void multiply_back(const Codes& x, std::int64_t pixels, std::int32_t* columns) const {
    const auto& conv = shape.conv;
    const std::int64_t k = shape.products(), all = conv.groups * k, outputs = shape.group_outputs();
    const Storage values = decode(x, pixels * conv.o);
    Storage products(pixels * all * 4, device);
    auto* out = reinterpret_cast<float*>(products.mutable_data());
    for_parts(outputs, [&](std::int64_t begin, std::int64_t end) {
      gemm({at(values.data(), begin * bytes()), type, pixels, end - begin, false, conv.o, outputs},
           {at(weights.data(), begin * k * bytes()), type, end - begin, k, false, k, outputs * k},
           {out, DType::f32, all, k}, conv.groups, device);
      add_part(out, pixels * all, begin == 0, columns, device);
    });
  }
};

/// int8 products multiply by signed weights only.
DType values_for(const Codes& w, Device device) {
  const ExactType type = best_exact_type(device);
  if (type == ExactType::s8 && w.dtype == DType::i8) return DType::i8;
  return type == ExactType::f32 ? DType::f32 : DType::bf16;
}

/// A convolution of single pixels, whose output channels are this one's products.
ConvShape pixel_products(const ConvShape& conv, std::int64_t products) {
  ConvShape out{conv.n, conv.o, conv.oh, conv.ow, conv.groups * products, 1, 1, conv.oh, conv.ow};
  out.groups = conv.groups;
  return out;
}

/// The weights of `pixel_products`: [groups, K, outputs].
Storage transposed_weights(const ColumnShape& shape, const Codes& w, Device device) {
  Storage out(shape.conv.o * shape.products(), device);
  pack_weights_transposed(shape, w.data, 1, shape.group_outputs(), out.mutable_data(), device);
  return out;
}

}  // namespace

void exact_conv(const ConvShape& conv, const Codes& x, const Codes& w, std::int32_t* sums, Device device) {
  const DType type = values_for(w, device);
  const std::int64_t image = conv.h * conv.w * conv.c, out = conv.oh * conv.ow * conv.o;
  const std::int64_t columns = ColumnShape::of(conv, 16).image();
  if (type == DType::i8) {
    ByteProducts products(conv, x, w, device);
    return for_images(conv.n, columns, [&](std::int64_t first, std::int64_t count) {
      products.multiply(at(x.data, first * image), count, sums + first * out);
    });
  }
  const FloatProducts products(conv, x, w, type, device);
  for_images(conv.n, columns * products.bytes(), [&](std::int64_t first, std::int64_t count) {
    products.multiply({at(x.data, first * image), x.dtype, x.largest}, count, sums + first * out);
  });
}

void exact_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x, const Codes& w,
                std::int32_t* sums, Device device) {
  if (k == 0) return fill_bytes(sums, 0, static_cast<std::size_t>(m * n) * 4, device);
  exact_conv({m, k, 1, 1, n, 1, 1, 1, 1}, x, w, sums, device);
}

void exact_conv_transpose(const ConvShape& conv, const Codes& x, const Codes& w, std::int32_t* sums,
                          Device device) {
  const auto shape = ColumnShape::of(conv);
  const DType type = values_for(w, device);
  const std::int64_t rows = conv.oh * conv.ow, image = conv.h * conv.w * conv.c;
  std::optional<ByteProducts> bytes;
  std::optional<FloatProducts> floats;
  if (type == DType::i8) {
    const Storage weights = transposed_weights(shape, w, device);
    bytes.emplace(pixel_products(conv, shape.products()), x, Codes{weights.data(), w.dtype, w.largest},
                  device);
  } else {
    floats.emplace(conv, x, w, type, device);
  }
  for_images(conv.n, shape.image() * 4, [&](std::int64_t first, std::int64_t count) {
    Storage columns(count * shape.image() * 4, device);
    const auto* codes = at(x.data, first * rows * conv.o);
    if (bytes)
      bytes->multiply(codes, count, integers(columns));
    else
      floats->multiply_back({codes, x.dtype, x.largest}, count * rows, integers(columns));
    add_windows(shape.images(count), columns.data(), DType::i32, sums + first * image, device);
  });
}

}  // namespace fq::cuda
