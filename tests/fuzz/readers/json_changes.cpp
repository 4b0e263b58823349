#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "changes.h"

namespace fq::fuzz {
namespace {

using Json = nlohmann::json;

constexpr int kDeepest = 200;  // writing JSON takes stack for each level

bool is_deep(const std::string& text) {
  int depth = 0, deepest = 0;
  for (const char c : text) {
    depth += int(c == '[' || c == '{') - int(c == ']' || c == '}');
    deepest = std::max(deepest, depth);
  }
  return deepest > kDeepest;
}

const Json& special_values() {
  static const Json values =
      Json::parse(R"([null, true, false, 0, 1, -1, 2, 7, 8, 16, 64, 255, 65536, 2147483647,
      4294967295, 9007199254740993, 9223372036854775807, -9223372036854775808, 18446744073709551615, 0.5, -0.0,
      1e-40, 1e38, 1e308, "", "x", "a\nb", "../x", "\u0000", "nan", "-1", "*", [], {}, [[]], [0], [-1], [2, 3],
      [1, 1, 1, 1, 1, 1, 1, 1, 1], [4294967296, 4294967296], {"": null}, {"type": "linear"}])");
  return values;
}

class JsonChange {
 public:
  JsonChange(Json root, std::uint64_t seed) : root_(std::move(root)), engine_(seed * 0x9e3779b97f4a7c15u) {}

  Json run() {
    for (std::size_t changes = 1 + below(3); changes > 0; --changes) {
      collect();
      change(any());
    }
    return std::move(root_);
  }

 private:
  std::size_t below(std::size_t count) { return std::size_t(engine_() % std::max<std::size_t>(count, 1)); }
  Json& any() { return *values_[below(values_.size())]; }
  std::string any_key() { return keys_.empty() ? "x" : keys_[below(keys_.size())]; }
  Json special() { return special_values()[below(special_values().size())]; }
  Json other() { return below(2) == 0 ? special() : Json(any()); }

  void collect() {
    values_ = {&root_};
    keys_.clear();
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if (!values_[i]->is_structured()) continue;
      for (auto& item : values_[i]->items()) {
        if (values_[i]->is_object()) keys_.push_back(item.key());
        values_.push_back(&item.value());
      }
    }
  }

  void change(Json& value) {
    const bool whole = below(3) == 0;
    if (whole) {
      value = other();
    } else if (value.is_structured()) {
      below(2) == 0 ? leave_out(value) : add(value);
    } else if (value.is_number()) {
      number(value);
    } else if (value.is_string()) {
      text(value.get_ref<std::string&>());
    } else {
      value = special();
    }
  }

  void leave_out(Json& value) {
    if (!value.empty()) value.erase(std::next(value.begin(), std::ptrdiff_t(below(value.size()))));
  }

  void add(Json& value) {
    Json added = other();
    if (value.is_array())
      value.insert(std::next(value.begin(), std::ptrdiff_t(below(value.size() + 1))), std::move(added));
    else
      value[any_key()] = std::move(added);
  }

  void number(Json& value) {
    const bool whole = value.is_number_integer();
    const auto old = whole ? value.get<std::uint64_t>() : std::uint64_t{0};
    const double real = value.get<double>();
    const Json changed[] = {std::int64_t(old + 1),
                            std::int64_t(old - 1),
                            std::int64_t(old * 2),
                            std::int64_t(~old),
                            std::int64_t(old << 32),
                            real / 2,
                            -real,
                            real * 1e30,
                            std::to_string(old),
                            Json::array({value})};
    value = Json(changed[below(std::size(changed))]);
  }

  void text(std::string& value) {
    const std::size_t at = below(value.size());
    switch (below(4)) {
      case 0:
        value = any_key();
        break;
      case 1:
        value.erase(at, 1 + below(8));
        break;
      case 2:
        value.insert(at, any_key());
        break;
      default:
        value.insert(at, 1, char(below(128)));
    }
  }

  Json root_;
  std::mt19937_64 engine_;
  std::vector<Json*> values_;
  std::vector<std::string> keys_;
};

}  // namespace

std::string change_json(const std::string& text, std::uint64_t seed) {
  if (is_deep(text)) return text;
  Json root = Json::parse(text, nullptr, false, true);
  if (root.is_discarded()) return text;
  return JsonChange(std::move(root), seed).run().dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string change_safetensors(const std::string& bytes, std::uint64_t seed) {
  std::uint64_t length = 0;
  if (bytes.size() < sizeof length) return bytes;
  bytes.copy(reinterpret_cast<char*>(&length), sizeof length);
  if (length > bytes.size() - sizeof length) return bytes;
  const std::string header = change_json(bytes.substr(sizeof length, length), seed);
  const std::uint64_t changed = header.size();
  return std::string(reinterpret_cast<const char*>(&changed), sizeof changed) + header +
         bytes.substr(sizeof length + length);
}

}  // namespace fq::fuzz
