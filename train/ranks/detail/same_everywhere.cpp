#include "fakequant/train/ranks/detail/same_everywhere.h"

#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/crc32c.h"
#include "fakequant/layers/modules/module.h"

namespace fq::detail {

void check_same_everywhere(Communicator& ranks, const nlohmann::json& own) {
  const auto texts = ranks.gather(own.flatten().dump());
  const auto first = nlohmann::json::parse(texts.front());
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    const auto other = nlohmann::json::parse(texts[rank]);
    for (const auto& [key, value] : first.items())
      FQ_CHECK(other.value(key, nlohmann::json()) == value, "ranks",
               "{} is {} on rank {}, {} on rank 0: start all ranks with the same program, flags and files",
               key.substr(1), other.value(key, nlohmann::json()).dump(), rank, value.dump());
    FQ_CHECK(other.size() == first.size(), "ranks", "rank {} has settings that rank 0 has not", rank);
  }
}

std::uint32_t fingerprint_of(Module& model) {
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
