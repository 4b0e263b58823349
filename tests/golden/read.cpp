#include <fmt/format.h>

#include "case.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/hdf5.h"

namespace fq::golden {
namespace {

namespace h5 = fq::detail::h5;

struct Reader {
  std::string path;
  std::string place;  // the case, then the dataset, for messages

  template <class Result>
  Result check(Result result, std::string_view what) const {
    return h5::check(result, path, place, what);
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw FileError(path, place, fmt::format("[golden] {}:{} {}", path, place, what));
  }
};

std::string read_text(const Reader& at, hid_t attribute, hid_t type) {
  if (H5Tis_variable_str(type) > 0) at.fail("has text of variable length: use fixed-length ASCII");
  std::string text(H5Tget_size(type), '\0');
  at.check(H5Aread(attribute, type, text.data()), "has an unreadable attribute");
  return text.substr(0, text.find('\0'));
}

struct Attributes {
  std::map<std::string, std::vector<double>> numbers;
  std::map<std::string, std::string> texts;
  std::string text(const std::string& name) const {
    const auto found = texts.find(name);
    return found == texts.end() ? std::string() : found->second;
  }
};

Attributes read_attributes(const Reader& at, hid_t object) {
  std::vector<std::string> names;
  const auto collect = [](hid_t, const char* name, const H5A_info_t*, void* list) -> herr_t {
    static_cast<std::vector<std::string>*>(list)->emplace_back(name);
    return 0;
  };
  at.check(H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, nullptr, collect, &names), "has no attributes");
  Attributes out;
  for (const auto& name : names) {
    const h5::Attribute attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT));
    const h5::Type type(H5Aget_type(attribute.get()));
    if (H5Tget_class(type.get()) == H5T_STRING) {
      out.texts[name] = read_text(at, attribute.get(), type.get());
      continue;
    }
    const h5::Space space(H5Aget_space(attribute.get()));
    std::vector<double> values(
        static_cast<std::size_t>(numel(h5::dataspace_shape(space.get(), at.path, at.place))));
    at.check(H5Aread(attribute.get(), H5T_NATIVE_DOUBLE, values.data()), "has an unreadable attribute");
    out.numbers[name] = std::move(values);
  }
  return out;
}

DType read_dtype(const Reader& at, hid_t type, const std::string& named) {
  if (named == "bfloat16") return DType::bf16;
  if (named == "float8_e4m3fn") return DType::f8_e4m3;
  if (named == "float8_e5m2") return DType::f8_e5m2;
  if (named == "float8_e8m0fnu") return DType::f8_e8m0;
  const std::size_t size = H5Tget_size(type);
  if (H5Tget_class(type) == H5T_FLOAT && size != 1)
    return size == 2 ? DType::f16 : size == 4 ? DType::f32 : DType::f64;
  const bool is_signed = H5Tget_sign(type) == H5T_SGN_2;
  switch (size) {
    case 1:
      return is_signed ? DType::i8 : DType::u8;
    case 2:
      return is_signed ? DType::i16 : DType::u16;
    case 4:
      return DType::i32;
    case 8:
      return DType::i64;
    default:
      at.fail(fmt::format("has elements of {} bytes", size));
  }
}

std::vector<std::string> children(const Reader& at, hid_t group) {
  std::vector<std::string> names;
  const auto collect = [](hid_t, const char* name, const H5L_info_t*, void* list) -> herr_t {
    static_cast<std::vector<std::string>*>(list)->emplace_back(name);
    return 0;
  };
  at.check(H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, nullptr, collect, &names), "cannot be listed");
  return names;
}

Value read_value(const Reader& at, hid_t group, const std::string& name) {
  const h5::Dataset set(at.check(H5Dopen2(group, name.c_str(), H5P_DEFAULT), "cannot be opened"));
  const Attributes attributes = read_attributes(at, set.get());
  const h5::Type type(H5Dget_type(set.get()));
  const h5::Space space(H5Dget_space(set.get()));
  Value out{{}, attributes.text("dtype"), attributes.text("compare")};
  out.tensor = Tensor::empty(h5::dataspace_shape(space.get(), at.path, at.place),
                             read_dtype(at, type.get(), out.dtype));
  at.check(H5Dread(set.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, out.tensor.mutable_raw()),
           "cannot be read");
  return out;
}

std::map<std::string, Value> read_values(Reader at, hid_t group, const char* part) {
  std::map<std::string, Value> out;
  if (H5Lexists(group, part, H5P_DEFAULT) <= 0) return out;
  const h5::Object inner(at.check(H5Oopen(group, part, H5P_DEFAULT), "cannot be opened"));
  const std::string parent = at.place;
  for (const auto& name : children(at, inner.get())) {
    at.place = fmt::format("{}/{}/{}", parent, part, name);
    out.emplace(name, read_value(at, inner.get(), name));
  }
  return out;
}

}  // namespace

std::vector<Case> read_cases(const std::string& path) {
  const h5::Lock lock;
  Reader at{path, "/"};
  const h5::File file = h5::open(path);
  const Attributes root = read_attributes(at, file.get());
  if (root.text("schema") != "fakequant-golden" || !root.numbers.contains("version") ||
      root.numbers.at("version")[0] != 1)
    at.fail("is not a golden file: its root needs schema \"fakequant-golden\" and version 1");
  std::vector<Case> out;
  for (const auto& name : children(at, file.get())) {
    at.place = name;
    const h5::Object group(at.check(H5Oopen(file.get(), name.c_str(), H5P_DEFAULT), "cannot be opened"));
    Attributes attributes = read_attributes(at, group.get());
    Case c{name, std::move(attributes.numbers), std::move(attributes.texts), {}, {}};
    c.inputs = read_values(at, group.get(), "in");
    c.outputs = read_values(at, group.get(), "out");
    out.push_back(std::move(c));
  }
  return out;
}

}  // namespace fq::golden
