#include "fakequant/train/ranks/detail/gather_states.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "fakequant/core/io/detail/json_text.h"

namespace fq::detail {
namespace {

using nlohmann::json;

/// A line that lists attributes and tensors, then the tensors' bytes.
std::string packed(const StateDict& state) {
  json tensors = json::array();
  std::string bytes;
  for (const auto& [name, tensor] : state.tensors()) {
    const Tensor here = tensor.to(Device::cpu()).to(Layout::row_major);
    tensors.push_back({name, fq::name(here.dtype()), here.shape()});
    bytes.append(static_cast<const char*>(here.raw()), static_cast<std::size_t>(here.nbytes()));
  }
  return json{{"attributes", state.attributes()}, {"tensors", tensors}}.dump() + '\n' + bytes;
}

StateDict unpacked(const std::string& text) {
  const auto line = text.find('\n');
  const json listing = json::parse(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(line));
  StateDict out;
  for (const auto& [name, value] : listing["attributes"].items()) out.set_attribute(name, value);
  const char* bytes = text.data() + line + 1;
  for (const auto& entry : listing["tensors"]) {
    Tensor tensor =
        Tensor::empty(whole_values<std::int64_t>(entry[2]), dtype_from_name(entry[1].get<std::string>()));
    std::memcpy(tensor.mutable_raw(), bytes, static_cast<std::size_t>(tensor.nbytes()));
    bytes += tensor.nbytes();
    out.set(entry[0].get<std::string>(), tensor);
  }
  return out;
}

}  // namespace

std::vector<StateDict> gather_states(Communicator& ranks, const StateDict& own) {
  if (ranks.size() == 1) return {own};
  std::vector<StateDict> out;
  for (const auto& text : ranks.gather(packed(own))) out.push_back(unpacked(text));
  return out;
}

}  // namespace fq::detail
