#include "case.h"

#include <fmt/format.h>

#include "fakequant/core/error.h"

namespace fq::golden {

bool Case::has(const std::string& attribute) const {
  return numbers.contains(attribute) || texts.contains(attribute);
}

double Case::number(const std::string& attribute, double otherwise) const {
  const auto found = numbers.find(attribute);
  return found == numbers.end() || found->second.empty() ? otherwise : found->second[0];
}

int Case::integer(const std::string& attribute, int otherwise) const {
  return static_cast<int>(number(attribute, otherwise));
}

bool Case::flag(const std::string& attribute, bool otherwise) const {
  return number(attribute, otherwise ? 1 : 0) != 0;
}

std::string Case::text(const std::string& attribute, const std::string& otherwise) const {
  const auto found = texts.find(attribute);
  return found == texts.end() ? otherwise : found->second;
}

std::vector<std::int64_t> Case::integers(const std::string& attribute) const {
  const auto found = numbers.find(attribute);
  if (found == numbers.end()) return {};
  return {found->second.begin(), found->second.end()};
}

std::optional<int> Case::optional_integer(const std::string& attribute) const {
  return numbers.contains(attribute) ? std::optional(integer(attribute, 0)) : std::nullopt;
}

Tensor Case::tensor(const std::string& input) const {
  const auto found = inputs.find(input);
  return found == inputs.end() ? Tensor() : found->second.tensor;
}

std::vector<Tensor> Case::batches() const {
  std::vector<Tensor> out;
  for (auto next = inputs.find("batch_000"); next != inputs.end();
       next = inputs.find(fmt::format("batch_{:03}", out.size())))
    out.push_back(next->second.tensor);
  return out;
}

Case Case::on(Device device) const {
  Case out = *this;
  for (auto& [input, value] : out.inputs) value.tensor = value.tensor.to(device);
  return out;
}

}  // namespace fq::golden
