#pragma once

/// Scaling of rotary positions, for networks that read longer texts than they were trained on.
///
///     const RotaryScaling scaling{.kind = RotaryScaling::Kind::llama3, .factor = 8, .context = 8192};
///     Attention layer({.width = 256, .heads = 4, .causal = true, .rotary = true, .rotary_scaling =
///     scaling});

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fq {

/// Changes the angles of rotary positions. ops::Rotary uses w_i = base^(-2i / dims) per position for pair i.
/// The scalings and names follow Hugging Face's transformers.
struct RotaryScaling {
  /// - linear: w_i / factor (Chen et al., arXiv:2306.15595);
  /// - dynamic: if the text has t > `context` tokens, the base is multiplied by
  ///   (factor * t / context - factor + 1)^(dims / (dims - 2)); t includes the tokens of a KV cache;
  /// - llama3: depends on the wave length l_i = 2 pi / w_i. The angle is w_i / factor above context / low,
  ///   w_i below context / high, and between them (1 - u) * w_i / factor + u * w_i,
  ///   u = (context / l_i - low) / (high - low);
  /// - yarn: (1 - u_i) * w_i / factor + u_i * w_i. u_i falls from 1 to 0 between the pairs that make `fast`
  ///   and `slow` rotations in `context` tokens. Rotated elements are multiplied by `magnitude` (Peng et al.,
  ///   arXiv:2309.00071).
  enum class Kind : unsigned char { none, linear, dynamic, llama3, yarn };
  Kind kind = Kind::none;
  double factor = 1;
  std::int64_t context = 0;    ///< tokens of the training texts; unused for linear
  double low = 1, high = 4;    ///< llama3
  double fast = 32, slow = 1;  ///< yarn
  bool whole_pairs = true;     ///< yarn: rounds both ends outwards to whole pairs
  double magnitude = 0;        ///< yarn; 0: 0.1 ln(factor) + 1

  friend bool operator==(const RotaryScaling&, const RotaryScaling&) = default;
};

/// Returns "none", "linear", "dynamic", "llama3" or "yarn".
[[nodiscard]] std::string_view name(RotaryScaling::Kind kind) noexcept;
/// Returns all names except "none".
[[nodiscard]] const std::vector<std::string>& rotary_scalings();
/// Returns the kind with that name. Throws ArgumentError for an unknown name.
[[nodiscard]] RotaryScaling::Kind rotary_scaling_kind(std::string_view name);

/// Throws ArgumentError for a factor below 1, a missing context, low >= high, or slow >= fast.
void check_rotary_scaling(const RotaryScaling& scaling);
/// Returns the angle per position of each pair of `dims` elements, for a text of `tokens` tokens. Throws
/// ArgumentError for yarn with a base of 1.
[[nodiscard]] std::vector<double> rotary_frequencies(const RotaryScaling& scaling, double base,
                                                     std::int64_t dims, std::int64_t tokens);
/// Returns the factor of rotated elements: 1 except for yarn.
[[nodiscard]] double rotary_magnitude(const RotaryScaling& scaling);

}  // namespace fq
