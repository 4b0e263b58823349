#include "fakequant/train/data/detail/npy.h"

#include <cstring>
#include <filesystem>

#include <gmock/gmock.h>

#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/atomic_file.h"

namespace fq::detail {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Writes an array as numpy.save does, and reads it.
Tensor read_array(const std::string& type, const std::string& shape, const std::string& bytes,
                  bool fortran_order = false) {
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}\n", type,
                                   fortran_order ? "True" : "False", shape);
  const auto length = static_cast<char>(header.size());
  const std::string path = (std::filesystem::path(testing::TempDir()) / "array.npy").string();
  write_file(path, std::string("\x93NUMPY\x01\0", 8) + length + std::string(1, '\0') + header + bytes);
  return read_npy(path);
}

template <class T>
std::string value_bytes(const std::vector<T>& values) {
  std::string out(values.size() * sizeof(T), '\0');
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

std::string error_message(const std::string& type, const std::string& shape, const std::string& bytes) {
  try {
    (void)read_array(type, shape, bytes);
  } catch (const FileError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Npy, ReadsNumbersOfEachKind) {
  const Tensor floats = read_array("<f4", "(2, 1)", value_bytes<float>({1.5f, -2.0f}));
  EXPECT_THAT(floats.shape(), ElementsAre(2, 1));
  EXPECT_THAT(floats.to_vector<float>(), ElementsAre(1.5f, -2.0f));
  EXPECT_THAT(read_array("|b1", "(3,)", std::string("\1\0\1", 3)).to_vector<std::uint8_t>(),
              ElementsAre(1, 0, 1));
  EXPECT_THAT(read_array("<u2", "(1,)", value_bytes<std::uint16_t>({65535})).to_vector<std::int32_t>(),
              ElementsAre(65535));
  EXPECT_THAT(read_array("<u4", "(1,)", value_bytes<std::uint32_t>({4294967295u})).to_vector<std::int64_t>(),
              ElementsAre(4294967295));
  EXPECT_THAT(read_array("<f8", "()", value_bytes<double>({0.25})).to_vector<double>(), ElementsAre(0.25));
}

TEST(Npy, RejectsNumbersThatAreTooLarge) {
  EXPECT_THAT(error_message("<u8", "(1,)", value_bytes<std::uint64_t>({std::uint64_t{1} << 63})),
              HasSubstr("values above 2^63 - 1"));
}

TEST(Npy, ReadsBigEndianAndFortranOrder) {
  EXPECT_THAT(read_array(">i2", "(2,)", std::string("\1\2\xff\xfe", 4)).to_vector<std::int16_t>(),
              ElementsAre(0x102, -2));
  // [[1, 2, 3], [4, 5, 6]] by columns
  EXPECT_THAT(read_array("<i4", "(2, 3)", value_bytes<std::int32_t>({1, 4, 2, 5, 3, 6}), true)
                  .to_vector<std::int32_t>(),
              ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(Npy, RejectsOtherFiles) {
  EXPECT_THAT(error_message("<f4", "(3,)", value_bytes<float>({1, 2})), HasSubstr("claims the shape [3]"));
  EXPECT_THAT(error_message("<f4", "(0,)", ""), HasSubstr("has no elements"));
  EXPECT_THAT(error_message("<f4", "(1, 4294967296, 4294967296)", "abcd"), HasSubstr("claims the shape"));
  EXPECT_THAT(error_message("<f4", "(-1,)", "abcd"), HasSubstr("damaged shape"));
  EXPECT_THAT(error_message("<U3", "(1,)", std::string(12, 'a')), HasSubstr("is an array of '<U3'"));
  EXPECT_THAT(error_message("<c8", "(1,)", std::string(8, 'a')), HasSubstr("is an array of '<c8'"));
  EXPECT_THAT(error_message("|O", "(1,)", "abcd"), HasSubstr("never unpickled"));
}

}  // namespace
}  // namespace fq::detail
