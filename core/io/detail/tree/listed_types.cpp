#include "fakequant/core/io/detail/tree/listed_types.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/dtype.h"
#include "fakequant/core/io/detail/hdf5_tree.h"
#include "fakequant/core/io/detail/json_text.h"

namespace fq::detail {
namespace {

const std::string& text_of(const FileReader& file, const std::string& name, const TreeObject& object,
                           const char* key) {
  const auto found = object.texts.find(key);
  if (found == object.texts.end())
    refuse_part(file, name, fmt::format("lacks an attribute '{}' that is a text", key));
  return found->second;
}

Shape packed_shape(const FileReader& file, const std::string& name, const TreeObject& object) {
  Shape out;
  const auto sizes = parse_json<nlohmann::json>(text_of(file, name, object, "shape"));
  if (!sizes.is_array()) refuse_part(file, name, "has an attribute 'shape' that is no list of sizes");
  for (const auto& size : sizes) {
    const auto whole = whole_if<std::int64_t>(size, 0, kLargestListed);
    if (!whole) refuse_part(file, name, "has an attribute 'shape' that is no list of sizes");
    out.push_back(*whole);
  }
  return out;
}

}  // namespace

void take_listed_types(const FileReader& file, std::vector<ListedDataset>& listing) {
  auto tree = read_hdf5_tree(file);
  for (auto& entry : listing) {
    const auto node = tree.extract(entry.name);
    if (node.empty()) refuse_part(file, entry.name, "is listed, and not there");
    const TreeObject& object = node.mapped();
    if (entry.bytes > 0 && object.elements != entry.offset - kHeaderBytes)
      refuse_part(file, entry.name, "is listed at another place than it is");
    entry.dtype = kListedJson;
    if (entry.name == "attributes") continue;
    entry.dtype = text_of(file, entry.name, object, "dtype");
    try {
      const bool packed = bit_width(dtype_from_name(entry.dtype)) < 8;
      entry.shape = packed ? packed_shape(file, entry.name, object) : object.shape;
    } catch (const ArgumentError& error) {
      refuse_part(file, entry.name, fmt::format("is not well formed: {}", error.what()));
    }
    if (std::ranges::any_of(entry.shape, [](std::int64_t size) { return size < 0; }))
      refuse_part(file, entry.name, "has a shape that is none");
  }
  if (!tree.empty()) refuse_part(file, tree.begin()->first, "is there, and not listed");
}

}  // namespace fq::detail
