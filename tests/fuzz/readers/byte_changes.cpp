#include <algorithm>
#include <cstring>
#include <random>

#include "changes.h"

namespace fq::fuzz {
namespace {

constexpr std::uint64_t kNumbers[] = {0,     1,        2,   7,          127,        255,
                                      65535, 1u << 31, ~0u, 1ull << 56, 1ull << 63, ~0ull};
constexpr std::size_t kLongestPiece = 64;

class Mutation {
 public:
  Mutation(const std::vector<std::string>& seeds, std::uint64_t seed)
      : seeds_(seeds), engine_(seed * 0x9e3779b97f4a7c15u), text_(seeds[below(seeds.size())]) {}

  std::string run() {
    for (std::size_t changes = 1 + below(4); changes > 0 && !text_.empty(); --changes) change();
    return text_;
  }

 private:
  std::size_t below(std::size_t count) { return std::size_t(engine_() % std::max<std::size_t>(count, 1)); }
  std::size_t random_length(std::size_t at) { return 1 + below(std::min(kLongestPiece, text_.size() - at)); }

  void change() {
    const std::size_t at = below(text_.size());
    switch (below(8)) {
      case 0:
        text_[at] = char(text_[at] ^ (1 << below(8)));
        break;
      case 1:
        text_[at] = char(below(256));
        break;
      case 2:
        digit(at);
        break;
      case 3:
        number(at);
        break;
      case 4:
        text_.insert(below(text_.size()), text_.substr(at, random_length(at)));
        break;
      case 5:
        text_.erase(at, random_length(at));
        break;
      case 6:
        splice(at);
        break;
      default:
        if (below(4) == 0) text_.resize(at);
    }
  }

  void digit(std::size_t at) {
    const std::size_t found = text_.find_first_of("0123456789", at);
    if (found != text_.npos) text_[found] = char('0' + below(10));
  }

  void number(std::size_t at) {
    const std::uint64_t value = kNumbers[below(std::size(kNumbers))];
    const std::size_t bytes = std::min(std::size_t{1} << below(4), text_.size() - at);
    std::memcpy(text_.data() + at, &value, bytes);
  }

  void splice(std::size_t at) {
    const std::string& other = seeds_[below(seeds_.size())];
    if (!other.empty()) text_.insert(at, other.substr(below(other.size()), 1 + below(kLongestPiece)));
  }

  const std::vector<std::string>& seeds_;
  std::mt19937_64 engine_;
  std::string text_;
};

}  // namespace

std::string mutated(const std::vector<std::string>& seeds, std::uint64_t seed) {
  return Mutation(seeds, seed).run();
}

}  // namespace fq::fuzz
