#include "fakequant/layers/modules/rotary_scaling.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "fakequant/core/detail/check.h"

namespace fq {
namespace {

using Kind = RotaryScaling::Kind;

constexpr const char* kScaling = "rotary_scaling";
constexpr std::string_view kKinds[] = {"none", "linear", "dynamic", "llama3", "yarn"};

// Llama 3.1: pairs that turn rarely within the trained context are slowed by the factor, fast ones stay, and
// a linear blend lies between. `turns` = context / wavelength.
double llama3_frequency(const RotaryScaling& s, double w) {
  const double turns = static_cast<double>(s.context) * w / (2 * std::numbers::pi);
  if (turns < s.low) return w / s.factor;
  if (turns > s.high) return w;
  const double share = (turns - s.low) / (s.high - s.low);
  return (1 - share) * w / s.factor + share * w;
}

// Range of pairs for YaRN's transition from w to w / factor (Peng et al. 2023): pairs that turn more than
// `fast` times within the trained context keep their frequency, pairs below `slow` are interpolated.
struct Ramp {
  double begin = 0, end = 1;

  Ramp(const RotaryScaling& s, double base, std::int64_t dims) {
    if (s.kind != Kind::yarn) return;
    const auto pair_that_turns = [&](double times) {
      return static_cast<double>(dims) *
             std::log(static_cast<double>(s.context) / (times * 2 * std::numbers::pi)) / (2 * std::log(base));
    };
    begin = pair_that_turns(s.fast);
    end = pair_that_turns(s.slow);
    if (s.whole_pairs) {
      begin = std::floor(begin);
      end = std::ceil(end);
    }
    begin = std::max(begin, 0.0);
    end = std::min(end, static_cast<double>(dims - 1));
    // Avoids 0 / 0 in share().
    if (begin == end) end += 0.001;
  }
  [[nodiscard]] double share(std::int64_t pair) const {
    return std::clamp((static_cast<double>(pair) - begin) / (end - begin), 0.0, 1.0);
  }
};

// Dynamic NTK scaling: the base grows with the text, so that the slowest pair spans the longer context. dims
// / (dims - 2) makes this exact for the last pair.
double dynamic_base(const RotaryScaling& s, double base, std::int64_t dims, std::int64_t tokens) {
  if (tokens <= s.context || dims <= 2) return base;
  const double longer = static_cast<double>(tokens) / static_cast<double>(s.context);
  return base * std::pow(s.factor * longer - (s.factor - 1),
                         static_cast<double>(dims) / static_cast<double>(dims - 2));
}

}  // namespace

std::string_view name(Kind kind) noexcept { return kKinds[static_cast<std::size_t>(kind)]; }

const std::vector<std::string>& rotary_scalings() {
  static const std::vector<std::string> names(std::begin(kKinds) + 1, std::end(kKinds));
  return names;
}

Kind rotary_scaling_kind(std::string_view name) {
  const auto* found = std::ranges::find(kKinds, name);
  FQ_CHECK(found != std::end(kKinds), kScaling, "'{}' is unknown: use linear, dynamic, llama3 or yarn", name);
  return static_cast<Kind>(found - std::begin(kKinds));
}

void check_rotary_scaling(const RotaryScaling& s) {
  FQ_CHECK(s.factor >= 1, kScaling, "the factor is {}: use 1 or more", s.factor);
  FQ_CHECK(s.kind == Kind::none || s.kind == Kind::linear || s.context > 0, kScaling,
           "{} needs the context that the network was trained on: it is {}", name(s.kind), s.context);
  FQ_CHECK(s.low > 0 && s.low < s.high, kScaling, "low is {}, high {}: use 0 < low < high", s.low, s.high);
  FQ_CHECK(s.slow > 0 && s.slow < s.fast, kScaling, "slow is {}, fast {}: use 0 < slow < fast", s.slow,
           s.fast);
  FQ_CHECK(s.magnitude >= 0, kScaling, "the magnitude is {}: use more than 0, or 0 for the default",
           s.magnitude);
}

std::vector<double> rotary_frequencies(const RotaryScaling& s, double base, std::int64_t dims,
                                       std::int64_t tokens) {
  FQ_CHECK(s.kind != Kind::yarn || base > 1, kScaling, "yarn needs a base above 1: it is {}", base);
  if (s.kind == Kind::dynamic) base = dynamic_base(s, base, dims, tokens);
  const Ramp ramp(s, base, dims);
  std::vector<double> out;
  for (std::int64_t i = 0; i < dims / 2; ++i) {
    const double w = std::pow(base, -static_cast<double>(2 * i) / static_cast<double>(dims));
    switch (s.kind) {
      case Kind::none:
      case Kind::dynamic:
        out.push_back(w);
        break;
      case Kind::linear:
        out.push_back(w / s.factor);
        break;
      case Kind::llama3:
        out.push_back(llama3_frequency(s, w));
        break;
      case Kind::yarn:
        out.push_back(w / s.factor * ramp.share(i) + w * (1 - ramp.share(i)));
        break;
    }
  }
  return out;
}

double rotary_magnitude(const RotaryScaling& s) {
  if (s.kind != Kind::yarn) return 1;
  // YaRN's attention factor, 0.1 ln(factor) + 1.
  return s.magnitude > 0 ? s.magnitude : 0.1 * std::log(s.factor) + 1;
}

}  // namespace fq
