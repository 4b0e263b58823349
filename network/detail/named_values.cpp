#include "fakequant/network/detail/named_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"

namespace fq::detail {

std::vector<std::string> split_parts(const std::string& text, char between) {
  std::vector<std::string> out;
  // `begin` may equal the size: a separator at the end is followed by one more part, which is empty.
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(between, begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

bool read_number(std::string_view text, double& value) {
  // from_chars does not depend on the locale, and rejects leading spaces and "+".
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
}

NamedValues::NamedValues(std::string command, std::string flag, const std::string& text,
                         const std::vector<std::string>& names, const Keys& keys)
    : command_(std::move(command)), flag_(std::move(flag)) {
  const auto parts = split_parts(text, ',');
  name_ = parts.front();
  FQ_CHECK(std::ranges::find(names, name_) != names.end(), command_, "--{} has no '{}'{}", flag_, name_,
           fq::detail::did_you_mean(name_, names));
  // Keys depend on the name: "focal" has gamma, "huber" has delta.
  const auto own = keys(name_);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const auto equal = parts[i].find('=');
    const std::string key = parts[i].substr(0, equal);
    FQ_CHECK(std::ranges::find(own, key) != own.end(), command_, "--{} {} has no '{}'{}", flag_, name_, key,
             own.empty() ? ": use its name alone" : fq::detail::did_you_mean(key, own));
    // A key without "=" has an empty value, which `read` rejects as a number.
    const std::string value = equal == std::string::npos ? "" : parts[i].substr(equal + 1);
    FQ_CHECK(values_.emplace(key, value).second, command_, "--{} {} has '{}' twice", flag_, name_, key);
  }
}

std::string NamedValues::text(const std::string& key) const { return has(key) ? values_.at(key) : ""; }

double NamedValues::read(const std::string& key, const std::string& text) const {
  double value = 0;
  FQ_CHECK(read_number(text, value), command_, "--{} {},{}={}: use a number", flag_, name_, key, text);
  return value;
}

std::int64_t NamedValues::read_whole(const std::string& key, const std::string& text) const {
  const double value = read(key, text);
  // Whole numbers below 2^53 are exact in double, so the conversion does not round.
  FQ_CHECK(value == std::trunc(value) && std::abs(value) < 1e12, command_,
           "--{} {},{}={}: use a whole number", flag_, name_, key, text);
  return static_cast<std::int64_t>(value);
}

std::int64_t NamedValues::read_steps(const std::string& key, const std::string& text,
                                     std::int64_t steps_per_epoch) const {
  // "3e" is three epochs. A number like 1e3 ends with a digit.
  if (!text.ends_with('e')) return read_whole(key, text);
  return read_whole(key, text.substr(0, text.size() - 1)) * steps_per_epoch;
}

double NamedValues::number(const std::string& key, double standard) const {
  return has(key) ? read(key, text(key)) : standard;
}

std::int64_t NamedValues::whole(const std::string& key, std::int64_t standard) const {
  return has(key) ? read_whole(key, text(key)) : standard;
}

bool NamedValues::on(const std::string& key, bool standard) const {
  const std::int64_t value = whole(key, standard ? 1 : 0);
  FQ_CHECK(value == 0 || value == 1, command_, "--{} {},{}={}: use 0 or 1", flag_, name_, key, value);
  return value == 1;
}

std::vector<double> NamedValues::numbers(const std::string& key) const {
  std::vector<double> out;
  if (has(key))
    for (const auto& part : split_parts(text(key), ':')) out.push_back(read(key, part));
  return out;
}

std::int64_t NamedValues::steps(const std::string& key, std::int64_t standard,
                                std::int64_t steps_per_epoch) const {
  return has(key) ? read_steps(key, text(key), steps_per_epoch) : standard;
}

std::vector<std::int64_t> NamedValues::step_list(const std::string& key, std::int64_t steps_per_epoch) const {
  std::vector<std::int64_t> out;
  if (has(key))
    for (const auto& part : split_parts(text(key), ':'))
      out.push_back(read_steps(key, part, steps_per_epoch));
  return out;
}

}  // namespace fq::detail
