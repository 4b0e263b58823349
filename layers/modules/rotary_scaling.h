#pragma once

/// Rotary positions of networks that were made to read longer texts than they had been trained on.
///
///     const RotaryScaling scaling{.kind = RotaryScaling::Kind::llama3, .factor = 8, .context = 8192};
///     Attention layer({.width = 256, .heads = 4, .causal = true, .rotary = true, .rotary_scaling =
///     scaling});

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fq {

/// How the angles of rotary positions differ from those of ops::Rotary, w_i = base^(-2i / dims) a position
/// for pair i: as Hugging Face's transformers computes it under the same names.
struct RotaryScaling {
  /// - linear: w_i / factor (Chen et al., arXiv:2306.15595);
  /// - dynamic: with t tokens, more than `context`, the base is multiplied by
  ///   (factor * t / context - factor + 1)^(dims / (dims - 2)); t counts the tokens of a KV cache too;
  /// - llama3: by wave length l_i = 2 pi / w_i, w_i / factor above context / low, w_i below context / high,
  ///   and between them (1 - u) * w_i / factor + u * w_i, u = (context / l_i - low) / (high - low);
  /// - yarn: (1 - u_i) * w_i / factor + u_i * w_i, u_i falling from 1 to 0 between the pairs that turn `fast`
  ///   and `slow` times in `context` tokens, and what is turned times `magnitude` (Peng et al.,
  ///   arXiv:2309.00071).
  enum class Kind : unsigned char { none, linear, dynamic, llama3, yarn };
  Kind kind = Kind::none;
  double factor = 1;
  std::int64_t context = 0;    ///< tokens that the network was trained on; not of linear
  double low = 1, high = 4;    ///< llama3
  double fast = 32, slow = 1;  ///< yarn
  bool whole_pairs = true;     ///< yarn: both ends are rounded outwards to whole pairs
  double magnitude = 0;        ///< yarn; 0 for 0.1 ln(factor) + 1

  friend bool operator==(const RotaryScaling&, const RotaryScaling&) = default;
};

/// "none", "linear", "dynamic", "llama3", "yarn".
[[nodiscard]] std::string_view name(RotaryScaling::Kind kind) noexcept;
/// Every name but "none".
[[nodiscard]] const std::vector<std::string>& rotary_scalings();
/// Throws ArgumentError for another name.
[[nodiscard]] RotaryScaling::Kind rotary_scaling_kind(std::string_view name);

/// Throws ArgumentError for a factor below 1, a missing context, a low that is not below high, and a slow
/// that is not below fast.
void check_rotary_scaling(const RotaryScaling& scaling);
/// The angles of a position, one for each pair of `dims` elements, in a text of that many tokens. Throws
/// ArgumentError for yarn with a base of 1.
[[nodiscard]] std::vector<double> rotary_frequencies(const RotaryScaling& scaling, double base,
                                                     std::int64_t dims, std::int64_t tokens);
/// What rotated elements are multiplied by: 1 but for yarn.
[[nodiscard]] double rotary_magnitude(const RotaryScaling& scaling);

}  // namespace fq
