#include "fakequant/core/backend/cuda/engine/conv.h"

#include <algorithm>

#include "fakequant/core/backend/cuda/engine/matmul.h"
#include "fakequant/core/backend/cuda/runtime/runtime.h"
#include "fakequant/core/storage.h"

namespace fq::cuda {
namespace {

DType product_type(DType factor) { return factor == DType::f64 ? DType::f64 : DType::f32; }
int bytes_of(DType type) { return bit_width(type) / 8; }

const std::byte* at(const void* data, std::int64_t elements, DType type) {
  return static_cast<const std::byte*>(data) + elements * bytes_of(type);
}
std::byte* at(void* data, std::int64_t elements, DType type) {
  return static_cast<std::byte*>(data) + elements * bytes_of(type);
}

/// Columns of images [first, first + count) of x; x itself where it has their order.
struct FloatColumns {
  ColumnShape shape;
  DType type;
  Device device;
  Storage scratch;

  const void* of(const void* x, std::int64_t first, std::int64_t count) {
    const auto& conv = shape.conv;
    const auto* images = at(x, first * conv.h * conv.w * conv.c, type);
    if (shape.trivial()) return images;
    const std::int64_t bytes = count * shape.image() * bytes_of(type);
    if (scratch.bytes() < bytes) scratch = Storage(bytes, device);
    take_windows(shape.images(count), images, bytes_of(type), false, scratch.mutable_data(), device);
    return scratch.data();
  }
};

/// The sizes of a product of one group: pixels, outputs, products.
struct GroupSizes {
  std::int64_t image_pixels, outputs, products, all_outputs, groups;

  static GroupSizes of(const ColumnShape& s) {
    return {s.conv.oh * s.conv.ow, s.group_outputs(), s.products(), s.conv.o, s.conv.groups};
  }
  /// [pixels, outputs] of y, [pixels, products] of the columns, [outputs, products] of the packed weights.
  [[nodiscard]] Matrix y(const void* data, DType type, std::int64_t pixels, bool transposed = false) const {
    return {data,        type,   transposed ? outputs : pixels, transposed ? pixels : outputs, transposed,
            all_outputs, outputs};
  }
  [[nodiscard]] Matrix columns(const void* data, DType type, std::int64_t pixels) const {
    return {data, type, pixels, products, false, groups * products, products};
  }
  [[nodiscard]] Matrix weights(const void* data, DType type, bool transposed) const {
    return {data, type, transposed ? products : outputs, transposed ? outputs : products, transposed};
  }
};

Storage packed_weights(const ColumnShape& s, const void* w, DType type, Device device) {
  Storage packed(s.conv.o * s.products() * bytes_of(type), device);
  pack_weights(s, w, bytes_of(type), s.group_outputs(), packed.mutable_data(), device);
  return packed;
}

}  // namespace

void for_images(std::int64_t count, std::int64_t bytes,
                const std::function<void(std::int64_t, std::int64_t)>& f) {
  constexpr std::int64_t most = std::int64_t{256} << 20;
  const std::int64_t images =
      std::clamp<std::int64_t>(most / std::max<std::int64_t>(bytes, 1), 1, std::max<std::int64_t>(count, 1));
  for (std::int64_t first = 0; first < count; first += images) f(first, std::min(images, count - first));
}

void conv_forward(const ConvShape& conv, const void* x, const void* w, DType type, void* y, Device device) {
  const auto s = ColumnShape::of(conv);
  const auto sizes = GroupSizes::of(s);
  const Storage weights = packed_weights(s, w, type, device);
  const DType out = product_type(type);
  FloatColumns columns{s, type, device, {}};
  for_images(conv.n, s.image() * bytes_of(type), [&](std::int64_t first, std::int64_t count) {
    const std::int64_t pixels = count * sizes.image_pixels;
    const Product product{at(y, first * sizes.image_pixels * conv.o, out), out, conv.o, sizes.outputs};
    gemm(sizes.columns(columns.of(x, first, count), type, pixels), sizes.weights(weights.data(), type, true),
         product, conv.groups, device);
  });
}

void conv_backward_data(const ConvShape& conv, const void* dy, const void* w, DType type, void* dx,
                        Device device) {
  const auto s = ColumnShape::of(conv);
  const auto sizes = GroupSizes::of(s);
  const Storage weights = packed_weights(s, w, type, device);
  const DType out = product_type(type);
  for_images(conv.n, s.image() * bytes_of(out), [&](std::int64_t first, std::int64_t count) {
    const std::int64_t pixels = count * sizes.image_pixels;
    const auto* rows = at(dy, first * sizes.image_pixels * conv.o, type);
    auto* images = at(dx, first * conv.h * conv.w * conv.c, out);
    Storage scratch(s.trivial() ? 0 : count * s.image() * bytes_of(out), device);
    auto* columns = s.trivial() ? images : scratch.mutable_data();
    gemm(sizes.y(rows, type, pixels), sizes.weights(weights.data(), type, false),
         {columns, out, conv.groups * sizes.products, sizes.products}, conv.groups, device);
    if (!s.trivial()) add_windows(s.images(count), columns, out, images, device);
  });
}

void conv_backward_weights(const ConvShape& conv, const void* x, const void* dy, DType type, void* dw,
                           Device device) {
  const auto s = ColumnShape::of(conv);
  const auto sizes = GroupSizes::of(s);
  const DType out = product_type(type);
  Storage packed(conv.o * s.products() * bytes_of(out), device);
  if (conv.n == 0) fill_bytes(packed.mutable_data(), 0, static_cast<std::size_t>(packed.bytes()), device);
  FloatColumns columns{s, type, device, {}};
  for_images(conv.n, s.image() * bytes_of(type), [&](std::int64_t first, std::int64_t count) {
    const std::int64_t pixels = count * sizes.image_pixels;
    const auto* rows = at(dy, first * sizes.image_pixels * conv.o, type);
    gemm(sizes.y(rows, type, pixels, true), sizes.columns(columns.of(x, first, count), type, pixels),
         {packed.mutable_data(), out, 0, 0, first > 0}, conv.groups, device);
  });
  unpack_weights(s, packed.data(), bytes_of(out), dw, device);
}

}  // namespace fq::cuda
