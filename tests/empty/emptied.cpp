#include "emptied.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace fq::empty {
namespace {

using golden::Case;

Tensor make_shaped(const Tensor& like, Shape shape) {
  return Tensor::zeros(std::move(shape), like.dtype(), like.device());
}

/// Axis `axis`, counted from the back, of size 0; false where there is no such axis.
bool empty_axis(Tensor& t, int axis) {
  if (t.rank() < axis) return false;
  Shape shape = t.shape();
  shape[shape.size() - static_cast<std::size_t>(axis)] = 0;
  t = make_shaped(t, std::move(shape));
  return true;
}

void empty_axes(const Case& c, std::vector<Emptied>& out) {
  bool found = true;
  for (int axis = 1; found; ++axis) {
    found = false;
    Emptied all{c, fmt::format("axis -{} of all", axis)};
    for (const auto& [name, value] : c.inputs) {
      if (!empty_axis(all.changed.inputs.at(name).tensor, axis)) continue;
      out.push_back({c, fmt::format("axis -{} of {}", axis, name)});
      out.back().changed.inputs.at(name) = all.changed.inputs.at(name);
      found = true;
    }
    if (found) out.push_back(std::move(all));
  }
}

void empty_lists(const Case& c, std::vector<Emptied>& out) {
  Emptied all{c, "all"};
  for (const auto& [name, value] : c.inputs) {
    all.changed.inputs.at(name).tensor = make_shaped(value.tensor, {0});
    out.push_back({c, name});
    out.back().changed.inputs.at(name) = all.changed.inputs.at(name);
  }
  out.push_back(std::move(all));
}

void empty_numbers(const Case& c, std::vector<Emptied>& out) {
  for (const auto& [name, numbers] : c.numbers) {
    out.push_back({c, name});
    out.back().changed.numbers.at(name) = {0.0};
    out.push_back({c, "the list " + name});
    out.back().changed.numbers.at(name).clear();
  }
}

/// Properties by which cases differ here.
std::string signature(const Case& c) {
  std::string out;
  for (const auto& [name, value] : c.inputs)
    out += fmt::format("{} {}{} ", name, fq::name(value.tensor.dtype()), value.tensor.rank());
  for (const auto& [name, text] : c.texts)
    if (name != "error_message") out += fmt::format("{}={} ", name, text);
  for (const auto& [name, numbers] : c.numbers) out += fmt::format("{}:{} ", name, numbers.size());
  return out;
}

}  // namespace

std::vector<Emptied> emptied(const Case& c) {
  std::vector<Emptied> out;
  empty_axes(c, out);
  empty_lists(c, out);
  empty_numbers(c, out);
  return out;
}

std::vector<Case> unlike(const std::vector<Case>& cases, std::size_t most) {
  std::set<std::string> seen;
  std::vector<Case> out;
  for (const Case& c : cases)
    if (out.size() < most && seen.insert(signature(c)).second) out.push_back(c);
  return out;
}

}  // namespace fq::empty
