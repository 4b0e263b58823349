#include "fakequant/core/io/detail/tree/structure_reader.h"

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/state_header.h"

namespace fq::detail {

std::string StructureReader::bytes(std::int64_t at, std::int64_t count) {
  const std::int64_t room = file_.size() - kHeaderBytes;
  if (at < 0 || at > room || count < 0 || count > room - at)
    refuse("", "has a structure that leads out of it");
  if ((read_ += count) > 4 * file_.size()) refuse("", "has structures that lie over each other");
  std::string out(static_cast<std::size_t>(count), '\0');
  file_.read(kHeaderBytes + at, out.data(), out.size());
  return out;
}

std::int64_t StructureReader::number(std::string_view text, std::int64_t at, int count) const {
  if (at + count > static_cast<std::int64_t>(text.size())) refuse("", "has a structure that ends too early");
  std::uint64_t value = 0;
  for (int i = count; i-- > 0;)
    value = value << 8 | static_cast<unsigned char>(text[static_cast<std::size_t>(at + i)]);
  return static_cast<std::int64_t>(value);
}

void StructureReader::refuse(const std::string& name, const std::string& why) const {
  throw FileError(file_.path(), name,
                  fmt::format("[load_state] {}{}{} {}", file_.path(), name.empty() ? "" : ":", name, why));
}

}  // namespace fq::detail
