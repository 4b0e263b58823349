#include "fakequant/bench/arrays.h"

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>

#include <fmt/format.h>

#include "fakequant/core/blocks/detail/channels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/error.h"

namespace fq::bench {
namespace {

std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::filesystem::path array_file(const std::filesystem::path& folder, const std::string& name) {
  return folder / (name + ".bin");
}

Tensor unpacked(const Tensor& mask) {
  Tensor out = Tensor::empty(mask.shape(), DType::u8);
  const auto* bits = static_cast<const std::uint8_t*>(mask.raw());
  auto* bytes = out.mutable_data<std::uint8_t>();
  for (std::int64_t i = 0; i < mask.numel(); ++i) bytes[i] = cpu::get_bit(bits, i) ? 1 : 0;
  return out;
}

bool equal(float a, float b, Zeros zeros) {
  if (std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b)) return true;
  return (std::isnan(a) && std::isnan(b)) || (zeros == Zeros::equal && a == 0 && b == 0);
}

}  // namespace

Tensor bell(Shape shape, std::uint64_t seed) {
  constexpr std::uint64_t kPart = (1u << 21) - 1;
  Tensor x = Tensor::empty(std::move(shape));
  auto* values = x.mutable_data<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const std::uint64_t bits = mix((seed << 40) + static_cast<std::uint64_t>(i) + 1);
    const std::uint64_t sum = (bits & kPart) + ((bits >> 21) & kPart) + ((bits >> 42) & kPart);
    values[i] = static_cast<float>(static_cast<std::int64_t>(sum) - 0x300000) * 0x1p-20f;
  }
  return x;
}

void put_specials(Tensor& x, float amax) {
  using limits = std::numeric_limits<float>;
  const float inf = limits::infinity(), step = amax / 127;
  const float specials[] = {0.0f,
                            inf,
                            amax,
                            std::nextafter(amax, inf),
                            std::nextafter(amax, 0.0f),
                            limits::denorm_min(),
                            limits::min(),
                            limits::max(),
                            0.5f * step,
                            1.5f * step,
                            2.5f * step,
                            126.5f * step};
  auto* values = x.mutable_data<float>();
  *values++ = limits::quiet_NaN();
  for (const float special : specials) {
    *values++ = special;
    *values++ = -special;
  }
}

void write_array(const std::filesystem::path& folder, const std::string& name, const Tensor& values) {
  const Tensor bytes = values.dtype() == DType::u1 ? unpacked(values) : values;
  const auto path = array_file(folder, name);
  std::ofstream file(path, std::ios::binary);
  file.write(static_cast<const char*>(bytes.raw()), bytes.nbytes());
  file.close();
  if (!file)
    throw FileError(path.string(), "",
                    fmt::format("[bench] cannot write {}: is the disk full?", path.string()));
}

Tensor read_array(const std::filesystem::path& folder, const std::string& name, Shape shape, DType dtype) {
  Tensor out = Tensor::empty(std::move(shape), dtype);
  const auto path = array_file(folder, name);
  std::ifstream file(path, std::ios::binary);
  file.read(static_cast<char*>(out.mutable_raw()), out.nbytes());
  if (!file || file.peek() != std::ifstream::traits_type::eof())
    throw FileError(path.string(), "",
                    fmt::format("[bench] {} does not hold the {} bytes of {}", path.string(), out.nbytes(),
                                out.describe()));
  return out;
}

std::string first_difference(const std::string& name, const Tensor& ours, const Tensor& expected,
                             Zeros zeros) {
  const auto *a = ours.data<float>(), *b = expected.data<float>();
  for (std::int64_t i = 0; i < ours.numel(); ++i)
    if (!equal(a[i], b[i], zeros))
      return fmt::format("{}[{}]: ours {} ({:a}), expected {} ({:a})", name, i, a[i], a[i], b[i], b[i]);
  return {};
}

std::string first_mask_difference(const Tensor& ours, const Tensor& expected) {
  const auto *a = static_cast<const std::uint8_t*>(ours.raw()),
             *b = static_cast<const std::uint8_t*>(expected.raw());
  for (std::int64_t i = 0; i < ours.numel(); ++i)
    if (cpu::get_bit(a, i) != cpu::get_bit(b, i))
      return fmt::format("mask[{}]: ours {}, expected {}", i, cpu::get_bit(a, i), cpu::get_bit(b, i));
  return {};
}

}  // namespace fq::bench
