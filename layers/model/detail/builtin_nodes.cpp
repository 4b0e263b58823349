#include "fakequant/layers/model/detail/builtin_nodes.h"

#include <fmt/format.h>

namespace fq::detail {

std::string BuiltinNodes::add(const std::string& name, const char* type, NodeOptions options, Inputs inputs) {
  list_.push_back({.name = name, .type = type, .options = std::move(options), .inputs = std::move(inputs)});
  return name;
}

std::string BuiltinNodes::conv_bn(const std::string& name, std::int64_t width, int kernel, int stride,
                                  const Inputs& inputs) {
  NodeOptions options{{"out_channels", width}, {"kernel", kernel}};
  // Defaults are left out, so that the written files stay short.
  if (stride != 1) options["stride"] = stride;
  if (kernel > 1) options["padding"] = kernel / 2;
  // The batch norm behind has a bias.
  options["bias"] = false;
  add(name, convolution_, std::move(options), inputs);
  return add(name + "_bn", "batch_norm");
}

std::string BuiltinNodes::linear(const std::string& name, NodeOption features) {
  return add(name, "linear", {{"out_features", std::move(features)}});
}

bool BuiltinOptions::has(const char* name) const { return given_ != nullptr && given_->has(name); }

std::int64_t BuiltinOptions::integer(const char* name, std::int64_t fallback, std::int64_t low,
                                     std::int64_t high) const {
  return has(name) ? given_->at(name).integer(low, high) : fallback;
}

bool BuiltinOptions::on(const char* name, bool fallback) const {
  return has(name) ? given_->at(name).boolean() : fallback;
}

double BuiltinOptions::share(const char* name) const {
  return has(name) ? given_->at(name).number(0, 0.999) : 0;
}

std::string BuiltinOptions::choice(const char* name, const std::vector<std::string>& allowed) const {
  return has(name) ? given_->at(name).choice(allowed) : allowed.front();
}

std::vector<std::int64_t> BuiltinOptions::sizes(const char* name, std::vector<std::int64_t> fallback) const {
  if (!has(name)) return fallback;
  const auto value = given_->at(name);
  std::vector<std::int64_t> out;
  for (const auto& width : value.elements()) out.push_back(width.integer(1, kLargestWidth));
  if (out.empty() || out.size() > 100)
    value.fail(fmt::format("'{}' has {} numbers: use 1 to 100", name, out.size()));
  return out;
}

void BuiltinOptions::fail(const char* name, const std::string& message) const {
  given_->at(name).fail(message);
}

}  // namespace fq::detail
