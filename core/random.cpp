#include "fakequant/core/random.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "fakequant/core/detail/convert.h"
#include "fakequant/core/numerics/detail/philox.h"

namespace fq {
namespace {

/// The high bit of the last word separates the random numbers of fills from those used by operators.
constexpr std::uint32_t fill_domain = 0x80000000u;

struct Filler {
  std::uint64_t seed, stream;

  [[nodiscard]] std::array<std::uint32_t, 4> draw(std::int64_t block) const noexcept {
    const auto at = static_cast<std::uint64_t>(block);
    return philox(
        {static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32),
         static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32) | fill_domain},
        {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  }
};

/// Elements 4b to 4b + 3 are make(words of block b).
template <class F>
void fill_blocks(Tensor& out, const Filler& filler, std::string_view function, F make) {
  if (out.device().is_meta()) return;
  // Values depend on the logical index only. They are made on the host in row-major order, then copied to any
  // device and layout.
  const bool in_place = out.device().is_cpu() && out.layout() == Layout::row_major;
  Tensor rows = in_place ? out : Tensor::empty(out.shape(), out.dtype());
  detail::visit_float(rows.dtype(), function, [&]<class T>(T) {
    T* values = rows.mutable_data<T>();
    const std::int64_t count = rows.numel();
#pragma omp parallel for schedule(static) if (count > 16384)
    for (std::int64_t block = 0; block < (count + 3) / 4; ++block) {
      const std::array<double, 4> four = make(filler.draw(block));
      for (std::int64_t i = 4 * block; i < std::min(count, 4 * block + 4); ++i)
        values[i] = static_cast<T>(four[static_cast<std::size_t>(i % 4)]);
    }
  });
  if (!in_place) out.copy_from(rows);
}

/// Two independent standard normal values from two words.
std::array<double, 2> box_muller(std::uint32_t a, std::uint32_t b) {
  // (a + 1) * 2^-32 is in (0, 1], so the logarithm is finite.
  const double radius = std::sqrt(-2.0 * std::log((static_cast<double>(a) + 1.0) * 0x1p-32));
  const double angle = 2.0 * std::numbers::pi * (static_cast<double>(b) * 0x1p-32);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key) noexcept {
  return detail::philox_words(counter, key);
}

void fill_uniform(Tensor& out, double low, double high, std::uint64_t seed, std::uint64_t stream) {
  fill_blocks(out, {seed, stream}, "fill_uniform", [=](const std::array<std::uint32_t, 4>& words) {
    std::array<double, 4> four{};
    for (std::size_t i = 0; i < 4; ++i)
      four[i] = low + (high - low) * (static_cast<double>(words[i]) * 0x1p-32);
    return four;
  });
}

void fill_normal(Tensor& out, double mean, double deviation, std::uint64_t seed, std::uint64_t stream) {
  fill_blocks(out, {seed, stream}, "fill_normal", [=](const std::array<std::uint32_t, 4>& words) {
    const auto a = box_muller(words[0], words[1]), b = box_muller(words[2], words[3]);
    return std::array<double, 4>{mean + deviation * a[0], mean + deviation * a[1], mean + deviation * b[0],
                                 mean + deviation * b[1]};
  });
}

}  // namespace fq
