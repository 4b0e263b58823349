#pragma once

/// Cases of the golden files: answers of the reference libraries, read where the environment variable
/// FAKEQUANT_GOLDEN_DIR names their folder. Tests that need them are skipped without it.

#include <bit>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <hdf5.h>

#include "fakequant/core/tensor.h"

namespace fq::golden {

/// One case: its attributes as numbers or text, its datasets under in/ and out/.
struct Case {
  std::string name;
  std::map<std::string, std::vector<double>> numbers;
  std::map<std::string, std::string> texts;
  std::map<std::string, Tensor> tensors;  ///< "in/x", "out/y"

  [[nodiscard]] bool has(const std::string& key) const {
    return numbers.contains(key) || tensors.contains(key);
  }
  [[nodiscard]] double number(const std::string& key, double otherwise) const {
    const auto found = numbers.find(key);
    return found == numbers.end() ? otherwise : found->second[0];
  }
  [[nodiscard]] std::string text(const std::string& key) const {
    const auto found = texts.find(key);
    return found == texts.end() ? "" : found->second;
  }
  [[nodiscard]] Tensor tensor(const std::string& key) const {
    const auto found = tensors.find(key);
    return found == tensors.end() ? Tensor{} : found->second;
  }
};

/// The folder, or empty.
inline std::string folder() {
  const char* value = std::getenv("FAKEQUANT_GOLDEN_DIR");
  return value == nullptr ? "" : value;
}

namespace detail {

inline std::string read_text(hid_t attribute, hid_t type) {
  std::string text(H5Tget_size(type), '\0');
  H5Aread(attribute, type, text.data());
  return text.substr(0, text.find('\0'));
}

inline void read_attribute(hid_t object, const char* name, Case& out, const std::string& key) {
  const hid_t attribute = H5Aopen(object, name, H5P_DEFAULT), type = H5Aget_type(attribute);
  if (H5Tget_class(type) == H5T_STRING) {
    out.texts[key] = read_text(attribute, type);
  } else {
    const hid_t space = H5Aget_space(attribute);
    std::vector<double> values(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
    H5Aread(attribute, H5T_NATIVE_DOUBLE, values.data());
    out.numbers[key] = values;
    H5Sclose(space);
  }
  H5Tclose(type);
  H5Aclose(attribute);
}

inline DType dtype_of_dataset(hid_t type, const std::string& hint) {
  const auto size = H5Tget_size(type);
  if (hint == "bfloat16") return DType::bf16;
  if (H5Tget_class(type) == H5T_FLOAT) return size == 2 ? DType::f16 : size == 4 ? DType::f32 : DType::f64;
  const bool is_signed = H5Tget_sign(type) == H5T_SGN_2;
  if (size == 1) return is_signed ? DType::i8 : DType::u8;
  return size == 2 ? DType::i16 : size == 4 ? DType::i32 : DType::i64;
}

inline herr_t read_dataset(hid_t group, const char* name, const H5L_info_t*, void* data) {
  auto& [out, prefix] = *static_cast<std::pair<Case*, std::string>*>(data);
  const hid_t set = H5Dopen2(group, name, H5P_DEFAULT), type = H5Dget_type(set), space = H5Dget_space(set);
  const std::string key = prefix + name;
  if (H5Aexists(set, "dtype") > 0) read_attribute(set, "dtype", *out, key);
  hsize_t sizes[8] = {};
  const int rank = H5Sget_simple_extent_dims(space, sizes, nullptr);
  Tensor values = Tensor::empty(Shape(sizes, sizes + rank), dtype_of_dataset(type, out->text(key)));
  H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.mutable_raw());
  out->tensors[key] = values;
  H5Sclose(space);
  H5Tclose(type);
  H5Dclose(set);
  return 0;
}

inline void read_group(hid_t group, const char* name, Case& out) {
  if (H5Lexists(group, name, H5P_DEFAULT) <= 0) return;
  const hid_t inner = H5Gopen2(group, name, H5P_DEFAULT);
  std::pair<Case*, std::string> state{&out, std::string(name) + "/"};
  H5Literate(inner, H5_INDEX_NAME, H5_ITER_INC, nullptr, read_dataset, &state);
  H5Gclose(inner);
}

inline herr_t collect_name(hid_t, const char* name, const H5L_info_t*, void* data) {
  static_cast<std::vector<std::string>*>(data)->emplace_back(name);
  return 0;
}
inline herr_t collect_attribute(hid_t object, const char* name, const H5A_info_t*, void* data) {
  read_attribute(object, name, *static_cast<Case*>(data), name);
  return 0;
}

}  // namespace detail

/// Calls f(case) for each case of `function` in that file; returns how many there were.
inline int for_each(const std::string& file, const std::string& function,
                    const std::function<void(const Case&)>& f) {
  const hid_t root = H5Fopen((folder() + "/" + file).c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  std::vector<std::string> names;
  H5Literate(root, H5_INDEX_NAME, H5_ITER_INC, nullptr, detail::collect_name, &names);
  int count = 0;
  for (const auto& name : names) {
    Case c{name, {}, {}, {}};
    const hid_t group = H5Gopen2(root, name.c_str(), H5P_DEFAULT);
    H5Aiterate2(group, H5_INDEX_NAME, H5_ITER_INC, nullptr, detail::collect_attribute, &c);
    if (c.text("function") == function) {
      detail::read_group(group, "in", c);
      detail::read_group(group, "out", c);
      f(c);
      ++count;
    }
    H5Gclose(group);
  }
  H5Fclose(root);
  return count;
}

/// Equal dtype, shape and bits, any NaN being equal to any NaN.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  const auto x = a.to(DType::f32).to_vector<float>(), y = b.to(DType::f32).to_vector<float>();
  for (std::size_t i = 0; i < x.size(); ++i)
    if (std::bit_cast<std::uint32_t>(x[i]) != std::bit_cast<std::uint32_t>(y[i]) &&
        (x[i] == x[i] || y[i] == y[i]))
      return false;
  return true;
}

}  // namespace fq::golden

/// Skips the test where the golden files are not there.
#define FQ_GOLDEN_OR_SKIP()                                                                         \
  if (fq::golden::folder().empty()) GTEST_SKIP() << "set FAKEQUANT_GOLDEN_DIR to compare with the " \
                                                    "references"
