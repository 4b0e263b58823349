#include "fakequant/core/backend/cuda/engine/conv.h"

#include <algorithm>
#include <initializer_list>
#include <optional>

#include "fakequant/core/backend/cuda/engine/matmul.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/storage.h"

namespace fq::cuda {
namespace {

DType product_type(DType factor) { return factor == DType::f64 ? DType::f64 : DType::f32; }
int byte_width(DType type) { return bit_width(type) / 8; }

const std::byte* at(const void* data, std::int64_t elements, DType type) {
  return static_cast<const std::byte*>(data) + elements * byte_width(type);
}
std::byte* at(void* data, std::int64_t elements, DType type) {
  return static_cast<std::byte*>(data) + elements * byte_width(type);
}

// im2col: each row of the columns is the input of one output pixel, so the convolution is a matrix product.
/// Columns of images [first, first + count) of x; x itself if it has the order of columns.
struct FloatColumns {
  ColumnShape shape;
  DType type;
  Device device;
  Storage scratch;

  const void* of(const void* x, std::int64_t first, std::int64_t count) {
    const auto& conv = shape.conv;
    const auto* images = at(x, first * conv.h * conv.w * conv.c, type);
    if (shape.trivial()) return images;
    const std::int64_t bytes = count * shape.image() * byte_width(type);
    if (scratch.bytes() < bytes) scratch = Storage(bytes, device);
    take_windows(shape.images(count), images, byte_width(type), false, scratch.mutable_data(), device);
    return scratch.data();
  }
};

/// Sizes of the product of one group: pixels, outputs, columns.
struct GroupSizes {
  std::int64_t image_pixels, outputs, row, all_outputs, groups;

  static GroupSizes of(const ColumnShape& s) {
    return {s.conv.oh * s.conv.ow, s.group_outputs(), s.row, s.conv.o, s.conv.groups};
  }
  /// Return the matrices [pixels, outputs] of y, [pixels, row] of the columns, and [outputs, row] of the
  /// packed weights.
  // Groups are a batch of products: their matrices lie side by side in the rows of y and of the columns.
  [[nodiscard]] Matrix y(const void* data, DType type, std::int64_t pixels, bool transposed = false) const {
    return {data,        type,   transposed ? outputs : pixels, transposed ? pixels : outputs, transposed,
            all_outputs, outputs};
  }
  [[nodiscard]] Matrix columns(const void* data, DType type, std::int64_t pixels) const {
    return {data, type, pixels, row, false, groups * row, row};
  }
  [[nodiscard]] Matrix weights(const void* data, DType type, bool transposed) const {
    return {data, type, transposed ? row : outputs, transposed ? outputs : row, transposed};
  }
};

/// Weights in the order of columns; the original weights if they have this order.
struct PackedWeights {
  Storage own;
  const void* data;

  PackedWeights(const ColumnShape& s, const void* w, DType type, Device device) : data(w) {
    if (s.packed(s.group_outputs())) return;
    own = Storage(s.conv.o * s.row * byte_width(type), device);
    pack_weights(s, w, byte_width(type), s.group_outputs(), own.mutable_data(), device);
    data = own.data();
  }
};

// y [pixels, outputs] = columns [pixels, row] * weights [outputs, row] transposed, for parts of the images.
void convolve(const ColumnShape& s, const void* x, const void* w, DType type, void* y, Device device) {
  const auto& conv = s.conv;
  const auto sizes = GroupSizes::of(s);
  const PackedWeights weights(s, w, type, device);
  const DType out = product_type(type);
  FloatColumns columns{s, type, device, {}};
  visit_images(conv.n, s.image() * byte_width(type), [&](std::int64_t first, std::int64_t count) {
    const std::int64_t pixels = count * sizes.image_pixels;
    const Product product{at(y, first * sizes.image_pixels * conv.o, out), out, conv.o, sizes.outputs};
    gemm(sizes.columns(columns.of(x, first, count), type, pixels), sizes.weights(weights.data, type, true),
         product, conv.groups, device);
  });
}

/// Returns whether floats use the depthwise kernels. Their results have 4 bytes, and all memory must be
/// aligned.
bool uses_depthwise(const ConvShape& conv, DType type, std::initializer_list<const void*> memory) {
  const auto whole = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; };
  return type != DType::f64 && takes_depthwise(conv) && std::ranges::all_of(memory, whole);
}

/// Returns whether bf16 factors use implicit GEMM. Windows of single pixels have no columns, and cuBLASLt is
/// faster.
bool uses_implicit(const ConvShape& conv, bool transposed, DType type, const void* x) {
  return type == DType::bf16 && !ColumnShape::of(conv).trivial() &&
         takes_implicit(conv, transposed, byte_width(type), x);
}

/// Returns the gradient as a convolution of dy, if its columns take at most twice the memory of the columns
/// of dx.
// Gathering dy gives dx in one product. The alternative writes a product of columns and adds the columns up.
std::optional<ColumnShape> columns_of_gradient(const ConvShape& conv, DType type) {
  const auto gradient = ColumnShape::gradient_conv(conv);
  if (!gradient || conv.o * byte_width(type) > 2 * conv.c * byte_width(product_type(type)))
    return std::nullopt;
  if (ColumnShape::of(conv).trivial()) return std::nullopt;
  return ColumnShape::float_shape(*gradient, byte_width(type), true);
}

/// Returns whether the kernels of implicit GEMM support the sizes: they count chunks of 16 bytes in int.
bool fits_implicit(const ConvShape& s) {
  constexpr std::int64_t most = std::int64_t{1} << 28;
  const auto fits = [](std::int64_t size) { return size < most; };
  for (const std::size_t axis : {0, 1})
    if (const std::int64_t taps = axis == 0 ? s.kh : s.kw, size = axis == 0 ? s.oh : s.ow;
        !fits((size + 1) * s.stride[axis]) || !fits(taps * s.dilation[axis]) || !fits(s.padding[axis]))
      return false;
  return s.groups == 1 && fits(numel(s.x_shape()) / 8) && fits(numel(s.y_shape()) / 8) &&
         fits(numel(s.w_shape())) && fits(s.n * s.h * s.w) && fits(s.n * s.oh * s.ow);
}

bool is_chunk(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

/// Most outputs of a product for which implicit GEMM should be faster than cuBLASLt with columns.
// A model of an H200, not measured: the columns of a pixel with K products are 2 K bytes in bf16, written and
// read at 4.3 TB/s. 2 K O operations take 0.0013 ps more with mma.sync (350 TFLOP/s) than with cuBLASLt (650
// TFLOP/s). Both are equal at O = 350. Codes have half the bytes at twice the speed.
constexpr std::int64_t most_implicit_outputs = 256;

}  // namespace

bool takes_implicit(const ConvShape& s, bool transposed, int bytes, const void* x) {
  const std::int64_t channels = transposed ? s.o : s.c, outputs = transposed ? s.c : s.o;
  // A block of the transposed kernel computes pixels of one phase: pixels `stride` apart.
  constexpr std::int64_t most_stride = 8;
  return fits_implicit(s) && is_chunk(x) && channels > 0 && channels * bytes % 16 == 0 &&
         outputs <= most_implicit_outputs &&
         (!transposed || std::max(s.stride[0], s.stride[1]) <= most_stride);
}

bool takes_implicit_weights(const ConvShape& s, const void* x, const void* dy) {
  return fits_implicit(s) && numel(s.x_shape()) > 0 && numel(s.y_shape()) > 0 &&
         !ColumnShape::of(s).trivial() && is_chunk(x) && is_chunk(dy) && s.c % 8 == 0 && s.o % 8 == 0 &&
         s.o <= most_implicit_outputs;
}

void visit_images(std::int64_t count, std::int64_t bytes,
                  const std::function<void(std::int64_t, std::int64_t)>& f) {
  // Bounds the memory of columns, which are kh * kw times as large as x.
  constexpr std::int64_t most = std::int64_t{256} << 20;
  const std::int64_t images =
      std::clamp<std::int64_t>(most / std::max<std::int64_t>(bytes, 1), 1, std::max<std::int64_t>(count, 1));
  for (std::int64_t first = 0; first < count; first += images) f(first, std::min(images, count - first));
}

void conv_forward(const ConvShape& conv, const void* x, const void* w, DType type, void* y, Device device) {
  if (uses_depthwise(conv, type, {x, y}))
    return depthwise_forward(conv, x, w, type, static_cast<float*>(y), device);
  if (uses_implicit(conv, false, type, x))
    return implicit_conv(conv, false, x, w, static_cast<float*>(y), device);
  convolve(ColumnShape::float_shape(conv, byte_width(type)), x, w, type, y, device);
}

void conv_backward_data(const ConvShape& conv, const void* dy, const void* w, DType type, void* dx,
                        Device device) {
  if (uses_depthwise(conv, type, {dy, dx}))
    return depthwise_backward_data(conv, dy, w, type, static_cast<float*>(dx), device);
  if (uses_implicit(conv, true, type, dy))
    return implicit_conv(conv, true, dy, w, static_cast<float*>(dx), device);
  if (const auto gradient = columns_of_gradient(conv, type))
    return convolve(*gradient, dy, w, type, dx, device);
  const auto s = ColumnShape::float_shape(conv, byte_width(type));
  const auto sizes = GroupSizes::of(s);
  const PackedWeights weights(s, w, type, device);
  const DType out = product_type(type);
  visit_images(conv.n, s.image() * byte_width(out), [&](std::int64_t first, std::int64_t count) {
    const std::int64_t pixels = count * sizes.image_pixels;
    const auto* rows = at(dy, first * sizes.image_pixels * conv.o, type);
    auto* images = at(dx, first * conv.h * conv.w * conv.c, out);
    Storage scratch(s.trivial() ? 0 : count * s.image() * byte_width(out), device);
    auto* columns = s.trivial() ? images : scratch.mutable_data();
    gemm(sizes.y(rows, type, pixels), sizes.weights(weights.data, type, false),
         {columns, out, conv.groups * sizes.row, sizes.row}, conv.groups, device);
    if (!s.trivial()) add_windows(s.images(count), columns, out, images, device);
  });
}

void conv_backward_weights(const ConvShape& conv, const void* x, const void* dy, DType type, void* dw,
                           Device device) {
  if (uses_depthwise(conv, type, {x, dy}))
    return depthwise_backward_weights(conv, x, dy, type, static_cast<float*>(dw), device);
  if (type == DType::bf16 && takes_implicit_weights(conv, x, dy))
    return implicit_conv_weights(conv, x, dy, static_cast<float*>(dw), device);
  const auto s = ColumnShape::float_shape(conv, byte_width(type));
  const auto sizes = GroupSizes::of(s);
  const DType out = product_type(type);
  const bool packed = s.packed(sizes.outputs);
  Storage scratch(packed ? 0 : conv.o * s.row * byte_width(out), device);
  auto* products = packed ? static_cast<std::byte*>(dw) : scratch.mutable_data();
  if (conv.n == 0)
    // Without images there is no product that would write dw.
    fill_bytes(products, 0,
               static_cast<std::size_t>(conv.o * s.row) * static_cast<std::size_t>(byte_width(out)), device);
  FloatColumns columns{s, type, device, {}};
  visit_images(conv.n, s.image() * byte_width(type), [&](std::int64_t first, std::int64_t count) {
    const std::int64_t pixels = count * sizes.image_pixels;
    const auto* rows = at(dy, first * sizes.image_pixels * conv.o, type);
    gemm(sizes.y(rows, type, pixels, true), sizes.columns(columns.of(x, first, count), type, pixels),
         // The products of all parts are added in dw.
         {products, out, 0, 0, first > 0}, conv.groups, device);
  });
  if (!packed) unpack_weights(s, products, byte_width(out), dw, device);
}

}  // namespace fq::cuda
