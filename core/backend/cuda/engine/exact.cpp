#include "fakequant/core/backend/cuda/engine/exact.h"

#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "fakequant/core/backend/cuda/engine/blas_lt.h"
#include "fakequant/core/backend/cuda/engine/conv.h"
#include "fakequant/core/backend/cuda/engine/exact_products.h"
#include "fakequant/core/backend/cuda/runtime/capturing.h"
#include "fakequant/core/backend/exact_check.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/log.h"
#include "fakequant/core/storage.h"

namespace fq::cuda {
namespace {

// The check has codes and sums on the host, for all backends.
struct OnDevice {
  Device device;

  [[nodiscard]] Storage copied(const Codes& codes, std::int64_t count) const {
    Storage out(count, device);
    copy_bytes(out.mutable_data(), device, codes.data, Device::cpu(), static_cast<std::size_t>(count));
    return out;
  }
  /// Runs product(x, w, sums) on the device, for codes and sums on the host of the given sizes.
  template <class F>
  void run(const Codes& x, std::int64_t x_count, const Codes& w, std::int64_t w_count, std::int32_t* sums,
           std::int64_t count, F&& product) const {
    const Storage a = copied(x, x_count), b = copied(w, w_count);
    Storage out(count * 4, device);
    product(Codes{a.data(), x.dtype, x.largest}, Codes{b.data(), w.dtype, w.largest},
            reinterpret_cast<std::int32_t*>(out.mutable_data()));
    copy_bytes(sums, Device::cpu(), out.data(), device, static_cast<std::size_t>(count) * 4);
  }
};

// Forcing the type avoids a call of exact_choice, which holds its mutex.
std::string why_not(ExactType type, Device device) {
  const cpu::ForceExactType only(type);
  const OnDevice on{device};
  return fq::detail::why_sums_are_wrong(
      {[&](std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x, const Codes& w,
           std::int32_t* sums) {
         on.run(x, m * k, w, n * k, sums, m * n, [&](const Codes& a, const Codes& b, std::int32_t* out) {
           exact_gemm(m, n, k, a, b, out, device);
         });
       },
       [&](const ConvShape& s, const Codes& x, const Codes& w, std::int32_t* sums) {
         on.run(x, numel(s.x_shape()), w, numel(s.w_shape()), sums, numel(s.y_shape()),
                [&](const Codes& a, const Codes& b, std::int32_t* out) { exact_conv(s, a, b, out, device); });
       }});
}

ExactChoice first_that_works(Device device) {
  static_cast<void>(blas_lt());  // every type needs cuBLASLt: throws if it is missing
  ExactChoice out{ExactType::f32, {}};
  for (const ExactType type : {ExactType::s8, ExactType::bf16}) {
    const std::string reason = why_not(type, device);
    if (reason.empty()) {
      out.type = type;
      break;
    }
    out.reason += fmt::format("{}{}: {}", out.reason.empty() ? "" : "; ", cpu::name(type), reason);
  }
  if (!out.reason.empty())
    log(LogLevel::warning, fmt::format("{} multiplies codes as {}, which is slower ({})", to_string(device),
                                       cpu::name(out.type), out.reason));
  return out;
}

}  // namespace

const ExactChoice& exact_choice(Device device) {
  static std::mutex mutex;
  static std::map<int, ExactChoice> known;
  const std::scoped_lock lock(mutex);
  // One entry per device: the GPUs of a machine may differ.
  const auto found = known.find(device.index);
  if (found != known.end()) return found->second;
  ExactChoice choice;
  run_uncaptured([&] { choice = first_that_works(device); });  // the test reads sums back
  return known.emplace(device.index, std::move(choice)).first->second;
}

ExactType best_exact_type(Device device) {
  if (const auto forced = cpu::forced_exact_type()) return *forced;
  return exact_choice(device).type;
}

namespace {

const std::byte* at(const void* bytes, std::int64_t offset) {
  return static_cast<const std::byte*>(bytes) + offset;
}

bool uses_depthwise_codes(const ConvShape& conv, const Codes& x, const std::int32_t* sums) {
  const auto whole = [](const void* p, std::uintptr_t bytes) {
    return reinterpret_cast<std::uintptr_t>(p) % bytes == 0;
  };
  return takes_depthwise(conv) && whole(x.data, 4) && whole(sums, 16);
}

/// Returns the value type for w: int8 products support only signed weights.
DType choose_value_type(const Codes& w, Device device) {
  const ExactType type = best_exact_type(device);
  if (type == ExactType::s8 && w.dtype == DType::i8) return DType::i8;
  return type == ExactType::f32 ? DType::f32 : DType::bf16;
}

/// Returns whether codes are multiplied by implicit GEMM.
bool uses_implicit(const ConvShape& conv, bool transposed, const Codes& x, const Codes& w, Device device) {
  if (!takes_implicit(conv, transposed, 1, x.data)) return false;
  // The columns of single pixels are x itself, and cuBLASLt multiplies i8 codes faster. u8 codes would be
  // shifted to i8 in memory, which pays only for products with few blocks.
  constexpr std::int64_t enough_pixels = std::int64_t{1} << 14;
  const bool pixels = ColumnShape::of(conv).trivial();
  if (pixels && (x.dtype != DType::u8 || conv.n * conv.h * conv.w < enough_pixels)) return false;
  return choose_value_type(w, device) == DType::i8;
}

/// Returns a convolution of single pixels. Its output channels are the products of `conv`.
// The columns of dx are dy [pixels, o] * weights [o, products]: a convolution of single pixels with products
// as its outputs.
ConvShape pixel_products(const ConvShape& conv, std::int64_t products) {
  ConvShape out{conv.n, conv.o, conv.oh, conv.ow, conv.groups * products, 1, 1, conv.oh, conv.ow};
  out.groups = conv.groups;
  return out;
}

/// Returns the weights for `pixel_products`: [groups, K, outputs].
Storage transposed_weights(const ColumnShape& shape, const Codes& w, Device device) {
  Storage out(shape.conv.o * shape.products(), device);
  pack_weights_transposed(shape, w.data, 1, shape.group_outputs(), out.mutable_data(), device);
  return out;
}

/// Computes the sums of a convolution. `computes_dx` has the meaning of ColumnShape::computes_dx.
void convolve(const ConvShape& conv, const Codes& x, const Codes& w, std::int32_t* sums, Device device,
              bool computes_dx) {
  const DType type = choose_value_type(w, device);
  const std::int64_t image = conv.h * conv.w * conv.c, out = conv.oh * conv.ow * conv.o;
  // Bytes of the columns of an image, with rows padded to 16 codes.
  const std::int64_t columns = ColumnShape::of(conv, 16).image();
  if (type == DType::i8) {
    ByteProducts products(conv, x, w, device, computes_dx);
    return visit_images(conv.n, columns, [&](std::int64_t first, std::int64_t count) {
      products.multiply(at(x.data, first * image), count, sums + first * out);
    });
  }
  const FloatProducts products(conv, x, w, type, device, computes_dx);
  visit_images(conv.n, columns * products.bytes(), [&](std::int64_t first, std::int64_t count) {
    products.multiply({at(x.data, first * image), x.dtype, x.largest}, count, sums + first * out);
  });
}

}  // namespace

void exact_conv(const ConvShape& conv, const Codes& x, const Codes& w, std::int32_t* sums, Device device) {
  if (uses_depthwise_codes(conv, x, sums)) return depthwise_codes(conv, false, x, w, sums, device);
  if (uses_implicit(conv, false, x, w, device)) return implicit_conv_codes(conv, false, x, w, sums, device);
  convolve(conv, x, w, sums, device, false);
}

void exact_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x, const Codes& w,
                std::int32_t* sums, Device device) {
  if (k == 0) return fill_bytes(sums, 0, static_cast<std::size_t>(m * n) * 4, device);
  // m images of one pixel and k channels: the columns are x itself.
  exact_conv({m, k, 1, 1, n, 1, 1, 1, 1}, x, w, sums, device);
}

void exact_conv_transpose(const ConvShape& conv, const Codes& x, const Codes& w, std::int32_t* sums,
                          Device device) {
  if (uses_depthwise_codes(conv, x, sums)) return depthwise_codes(conv, true, x, w, sums, device);
  if (uses_implicit(conv, true, x, w, device)) return implicit_conv_codes(conv, true, x, w, sums, device);
  if (const auto gradient = ColumnShape::gradient_conv(conv))
    return convolve(*gradient, x, w, sums, device, true);
  const auto shape = ColumnShape::of(conv);
  const DType type = choose_value_type(w, device);
  const std::int64_t rows = conv.oh * conv.ow, image = conv.h * conv.w * conv.c;
  Storage weights;  // must outlive the products that read it
  std::optional<ByteProducts> bytes;
  std::optional<FloatProducts> floats;
  if (type == DType::i8) {
    weights = transposed_weights(shape, w, device);
    bytes.emplace(pixel_products(conv, shape.products()), x, Codes{weights.data(), w.dtype, w.largest},
                  device);
  } else {
    floats.emplace(conv, x, w, type, device);
  }
  // For strides above 1, or padding beyond the windows: the sums of all columns are written, and add_windows
  // adds the columns of each pixel of dx. Both steps are exact in int32.
  visit_images(conv.n, shape.image() * 4, [&](std::int64_t first, std::int64_t count) {
    Storage storage(count * shape.image() * 4, device);
    auto* columns = reinterpret_cast<std::int32_t*>(storage.mutable_data());
    const auto* codes = at(x.data, first * rows * conv.o);
    if (bytes)
      bytes->multiply(codes, count, columns);
    else
      floats->multiply_back({codes, x.dtype, x.largest}, count * rows, columns);
    add_windows(shape.images(count), columns, DType::i32, sums + first * image, device);
  });
}

}  // namespace fq::cuda
