#include "fakequant/train/ranks/detail/collectives.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/crc32c.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/layers/modules/module.h"

namespace fq::detail {
namespace {

using nlohmann::json;

/// Returns a JSON line of attributes and tensors, then the bytes of the tensors.
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

// The text comes from a rank of the same program, so that it is not checked as a file.
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
  // Shared tensors, not copies, for one process.
  if (ranks.size() == 1) return {own};
  std::vector<StateDict> out;
  for (const auto& text : ranks.gather(packed(own))) out.push_back(unpacked(text));
  return out;
}

void check_same_everywhere(Communicator& ranks, const nlohmann::json& own) {
  // Flattened, so that a message names the JSON pointer of the setting that differs.
  const auto texts = ranks.gather(own.flatten().dump());
  const auto first = nlohmann::json::parse(texts.front());
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    const auto other = nlohmann::json::parse(texts[rank]);
    for (const auto& [key, value] : first.items())
      FQ_CHECK(other.value(key, nlohmann::json()) == value, "ranks",
               "{} is {} on rank {}, {} on rank 0: start all ranks with the same program, flags and files",
               key.substr(1), other.value(key, nlohmann::json()).dump(), rank, value.dump());
    FQ_CHECK(other.size() == first.size(), "ranks", "rank {} has settings that rank 0 does not have", rank);
  }
}

std::uint32_t model_fingerprint(Module& model) {
  std::uint32_t crc = 0;
  const auto add = [&crc](const Tensor& values) {
    const Tensor here = values.to(Device::cpu());
    crc = crc32c(here.raw(), static_cast<std::size_t>(here.nbytes()), crc);
  };
  for (const auto& [name, parameter] : model.named_parameters()) add(parameter.tensor());
  for (const auto& [name, buffer] : model.named_buffers()) add(buffer);
  return crc;
}

}  // namespace fq::detail
