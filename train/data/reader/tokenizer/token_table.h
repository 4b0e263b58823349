#pragma once

/// Tokens and their ids.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace fq::detail {

/// Both ways: tokens by ids from 0 on, and ids by tokens.
class TokenTable {
 public:
  /// Throws ArgumentError for an id that is taken, and for a token that has another.
  void add(const std::string& token, std::int32_t id);
  /// Throws ArgumentError naming the first id between 0 and the largest that no token has.
  void check_whole() const;
  [[nodiscard]] std::optional<std::int32_t> find(std::string_view token) const;
  [[nodiscard]] const std::string& token(std::int32_t id) const { return tokens_.at(std::size_t(id)); }
  [[nodiscard]] const std::vector<std::string>& tokens() const noexcept { return tokens_; }
  /// Those of the bytes of a text, written as "<0x0A>"; none unless all of them are there.
  [[nodiscard]] std::optional<std::vector<std::int32_t>> bytes_of(std::string_view text) const;

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::vector<std::string> tokens_;
  std::vector<bool> taken_;
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> ids_;
};

/// The byte that a token "<0x0A>" stands for.
[[nodiscard]] std::optional<char> byte_of(std::string_view token);

}  // namespace fq::detail
