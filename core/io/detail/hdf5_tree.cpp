#include "fakequant/core/io/detail/hdf5_tree.h"

#include <set>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/state_header.h"
#include "fakequant/core/io/detail/tree/object_header.h"
#include "fakequant/core/io/detail/tree/structure_reader.h"

namespace fq::detail {
namespace {

constexpr int kDeepestGroup = 64, kDeepestNode = 16;
constexpr std::string_view kSuperblock("\x89HDF\r\n\x1a\n\0", 9);

class Hdf5Tree {
 public:
  explicit Hdf5Tree(const FileReader& file) : from_(file) {}

  std::map<std::string, TreeObject> read() {
    const std::string block = from_.bytes(0, 96);
    if (!block.starts_with(kSuperblock) || block[13] != 8 || block[14] != 8 ||
        from_.number(block, 24, 8) != kHeaderBytes)
      from_.refuse("", "is not an HDF5 file as fakequant wrote it");
    group(object(from_.number(block, 64, 8), ""), "", 0);
    return std::move(found_);
  }

 private:
  TreeObject object(std::int64_t at, const std::string& name) {
    if (!seen_.insert(at).second) from_.refuse(name, "is there under another name too");
    return read_object_header(from_, at, name);
  }

  void group(const TreeObject& object, const std::string& prefix, int depth) {
    if (!object.nodes) from_.refuse(prefix, "is neither a group nor a dataset");
    if (depth > kDeepestGroup)
      from_.refuse(prefix, fmt::format("lies more than {} groups deep", kDeepestGroup));
    const std::string heap = from_.bytes(*object.heap, 32);
    if (!heap.starts_with("HEAP")) from_.refuse(prefix, "has no names");
    node(*object.nodes, from_.bytes(from_.number(heap, 24, 8), from_.number(heap, 8, 8)), prefix, depth, 0);
  }

  void node(std::int64_t at, const std::string& names, const std::string& prefix, int depth, int level) {
    if (level > kDeepestNode || !seen_.insert(at).second)
      from_.refuse(prefix, "has a list of names that leads back");
    const std::string head = from_.bytes(at, 24);
    if (head.starts_with("SNOD")) return entries(at, from_.number(head, 6, 2), names, prefix, depth);
    if (!head.starts_with("TREE") || head[4] != 0) from_.refuse(prefix, "has no list of names");
    const std::int64_t count = from_.number(head, 6, 2);
    const std::string children = from_.bytes(at + 24, 8 + 16 * count);
    for (std::int64_t i = 0; i < count; ++i)
      node(from_.number(children, 8 + 16 * i, 8), names, prefix, depth, level + 1);
  }

  void entries(std::int64_t at, std::int64_t count, const std::string& names, const std::string& prefix,
               int depth) {
    const std::string all = from_.bytes(at + 8, 40 * count);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t from = from_.number(all, 40 * i, 8);
      if (from < 0 || from >= static_cast<std::int64_t>(names.size()))
        from_.refuse(prefix, "has a name that is not there");
      const std::string step = names.c_str() + from;
      const std::string name = prefix.empty() ? step : prefix + "/" + step;
      if (from_.number(all, 40 * i + 16, 4) == 2)
        from_.refuse(name, "is a soft or external link, which are not followed");
      TreeObject found = object(from_.number(all, 40 * i + 8, 8), name);
      if (found.elements)
        found_.emplace(name, std::move(found));
      else
        group(found, name, depth + 1);
    }
  }

  StructureReader from_;
  std::set<std::int64_t> seen_;
  std::map<std::string, TreeObject> found_;
};

}  // namespace

std::map<std::string, TreeObject> read_hdf5_tree(const FileReader& file) { return Hdf5Tree(file).read(); }

}  // namespace fq::detail
