#pragma once

/// Where a tensor's bytes are.

#include <string>
#include <string_view>

namespace fq {

/// `cpu`; `cuda:N`; or `meta`, on which shapes and byte sizes flow and nothing is computed or stored.
struct Device {
  enum class Type : unsigned char { cpu, cuda, meta };
  Type type = Type::cpu;
  int index = 0;

  [[nodiscard]] static constexpr Device cpu() noexcept { return {}; }
  [[nodiscard]] static constexpr Device cuda(int index = 0) noexcept { return {Type::cuda, index}; }
  [[nodiscard]] static constexpr Device meta() noexcept { return {Type::meta, 0}; }
  /// "cpu", "cuda", "cuda:1" or "meta". Throws ArgumentError on anything else.
  [[nodiscard]] static Device parse(std::string_view text);

  [[nodiscard]] constexpr bool is_cpu() const noexcept { return type == Type::cpu; }
  [[nodiscard]] constexpr bool is_cuda() const noexcept { return type == Type::cuda; }
  [[nodiscard]] constexpr bool is_meta() const noexcept { return type == Type::meta; }
  friend constexpr bool operator==(const Device&, const Device&) = default;
};

[[nodiscard]] std::string to_string(const Device& device);

}  // namespace fq
