#include "fakequant/core/io/detail/hdf5_links.h"

#include <set>
#include <vector>

#include <fmt/format.h>

#include "fakequant/core/detail/utf8.h"

namespace fq::detail::h5 {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& name, std::string_view why) {
  throw FileError(path, name, fmt::format("[hdf5] {}:{} {}", path, one_line_name(name), why));
}

void check_hard(H5L_type_t type, const std::string& path, const std::string& name) {
  if (type != H5L_TYPE_HARD)
    refuse(path, name,
           "is a soft or external link, which are not followed: put the object itself there, as with h5copy");
}

struct Link {
  std::string name;
  H5L_type_t type;
};

herr_t collect(hid_t, const char* name, const H5L_info_t* info, void* links) {
  static_cast<std::vector<Link>*>(links)->push_back({name, info->type});
  return 0;
}

class Walk {
 public:
  Walk(const std::string& path, const std::function<void(const std::string&, const Dataset&)>& take)
      : path_(path), take_(take) {}

  void group(hid_t group, const std::string& prefix, int depth) {
    if (depth > kDeepestGroup)
      refuse(path_, prefix, fmt::format("lies more than {} groups deep", kDeepestGroup));
    enter(group, prefix);
    std::vector<Link> links;
    const auto listed = H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, collect, &links);
    check(listed, path_, prefix, "cannot be listed");
    for (const auto& link : links) {
      const std::string name = prefix.empty() ? link.name : prefix + "/" + link.name;
      check_hard(link.type, path_, name);
      object(check(H5Oopen(group, link.name.c_str(), H5P_DEFAULT), path_, name, "cannot be opened"), name,
             depth);
    }
  }

 private:
  void enter(hid_t object, const std::string& name) {
    H5O_info_t info{};
    check(H5Oget_info2(object, &info, H5O_INFO_BASIC), path_, name, "is unreadable");
    if (!seen_.insert(info.addr).second) refuse(path_, name, "is there under another name too");
  }

  void object(hid_t id, const std::string& name, int depth) {
    const auto kind = H5Iget_type(id);
    if (kind == H5I_DATASET) {
      const Dataset dataset(id);
      enter(id, name);
      return take_(name, dataset);
    }
    const Object other(id);
    if (kind != H5I_GROUP) refuse(path_, name, "is neither a group nor a dataset");
    group(id, name, depth + 1);
  }

  const std::string& path_;
  const std::function<void(const std::string&, const Dataset&)>& take_;
  std::set<haddr_t> seen_;
};

}  // namespace

bool has_object(hid_t file, const std::string& path, const std::string& name) {
  const Lock lock;
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string step = name.substr(0, end);
    begin = end + 1;
    if (step.empty() || step.back() == '/') continue;
    if (H5Lexists(file, step.c_str(), H5P_DEFAULT) <= 0) return false;
    H5L_info_t info{};
    check(H5Lget_info(file, step.c_str(), &info, H5P_DEFAULT), path, step, "is an unreadable link");
    check_hard(info.type, path, step);
  }
  return true;
}

void for_each_dataset(hid_t file, const std::string& path,
                      const std::function<void(const std::string&, const Dataset&)>& take) {
  const Lock lock;
  const Object root(check(H5Oopen(file, "/", H5P_DEFAULT), path, "", "has no root"));
  Walk(path, take).group(root.get(), "", 0);
}

}  // namespace fq::detail::h5
