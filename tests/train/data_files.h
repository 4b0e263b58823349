#pragma once

/// Data set files for tests, written with HDF5 as anybody would.

#include <string>
#include <type_traits>
#include <vector>

#include <hdf5.h>

namespace fq::test {

template <class T>
hid_t hdf5_type() {
  if constexpr (std::is_same_v<T, float>)
    return H5T_NATIVE_FLOAT;
  else if constexpr (std::is_same_v<T, double>)
    return H5T_NATIVE_DOUBLE;
  else if constexpr (std::is_same_v<T, std::uint8_t>)
    return H5T_NATIVE_UINT8;
  else if constexpr (std::is_same_v<T, std::uint16_t>)
    return H5T_NATIVE_UINT16;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return H5T_NATIVE_INT32;
  else
    return H5T_NATIVE_INT64;
}

/// A file that is written and closed within one expression.
class DataFile {
 public:
  explicit DataFile(const std::string& path)
      : id_(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)) {}
  ~DataFile() { H5Fclose(id_); }
  DataFile(const DataFile&) = delete;  // owns the open file
  DataFile& operator=(const DataFile&) = delete;

  template <class T>
  DataFile& put(const std::string& name, std::vector<hsize_t> shape, const std::vector<T>& values,
                std::vector<hsize_t> chunk = {}, int deflate = 0) {
    const hid_t dataset = create(name, hdf5_type<T>(), std::move(shape), std::move(chunk), deflate);
    if (!values.empty()) H5Dwrite(dataset, hdf5_type<T>(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
    H5Dclose(dataset);
    return *this;
  }

  /// Without values: chunks that were never written read as zero.
  DataFile& claim(const std::string& name, hid_t type, std::vector<hsize_t> shape,
                  std::vector<hsize_t> chunk) {
    H5Dclose(create(name, type, std::move(shape), std::move(chunk), 0));
    return *this;
  }

  DataFile& attribute(const std::string& object, const char* name, const std::vector<double>& values) {
    const hsize_t count = values.size();
    const hid_t space = values.size() == 1 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &count, nullptr);
    const hid_t made = H5Acreate_by_name(id_, object.c_str(), name, H5T_NATIVE_DOUBLE, space, H5P_DEFAULT,
                                         H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(made, H5T_NATIVE_DOUBLE, values.data());
    H5Aclose(made);
    H5Sclose(space);
    return *this;
  }

 private:
  hid_t create(const std::string& name, hid_t type, std::vector<hsize_t> shape, std::vector<hsize_t> chunk,
               int deflate) {
    const hid_t links = H5Pcreate(H5P_LINK_CREATE), creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_create_intermediate_group(links, 1);
    if (!chunk.empty()) H5Pset_chunk(creation, static_cast<int>(chunk.size()), chunk.data());
    if (deflate > 0) H5Pset_deflate(creation, static_cast<unsigned>(deflate));
    const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
    const hid_t dataset = H5Dcreate2(id_, name.c_str(), type, space, links, creation, H5P_DEFAULT);
    H5Sclose(space);
    H5Pclose(creation);
    H5Pclose(links);
    return dataset;
  }

  hid_t id_;
};

}  // namespace fq::test
