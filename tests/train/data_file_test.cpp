#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data_files.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/train/data/hdf5_dataset.h"
#include "fakequant/train/data/loader.h"
#include "folder.h"
#include "sanitized.h"

namespace fq::data_file_test {
namespace {

using test::DataFile;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string kDigits = FAKEQUANT_SOURCE_DIR "/data/digits.h5";

template <class T>
std::vector<T> counting(std::size_t count, int modulus = 251) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(static_cast<int>(i) % modulus);
  return values;
}

class Hdf5DatasetTest : public testing::Test {
 protected:
  [[nodiscard]] std::string path() const { return folder_.file("data.h5"); }
  [[nodiscard]] std::string error_text(Hdf5DatasetOptions options = {}) const {
    return file_error(path(), std::move(options));
  }
  static std::string file_error(const std::string& path, Hdf5DatasetOptions options = {}) {
    try {
      const Hdf5Dataset data(path, std::move(options));
      std::vector<std::int64_t> rows(static_cast<std::size_t>(data.size()));
      std::iota(rows.begin(), rows.end(), std::int64_t{0});
      (void)data.read(rows);
    } catch (const FileError& error) {
      EXPECT_THAT(error.what(), AllOf(Not(HasSubstr("\n")), Not(HasSubstr("no reason")), HasSubstr(path)));
      return error.what();
    } catch (const Error& error) {
      return std::string("another error: ") + error.what();
    }
    return "no error";
  }

  test::Folder folder_;
};

TEST_F(Hdf5DatasetTest, ReadsTheDigits) {
  const Hdf5Dataset data(kDigits);
  EXPECT_EQ(data.size(), 1437);
  EXPECT_EQ(data.sample_shape(), (Shape{1, 8, 8}));
  EXPECT_EQ(data.classes(), 10);
  const std::vector<std::int64_t> rows{1436, 0, 0};
  const auto batch = data.read(rows);
  EXPECT_EQ(batch.x.shape(), (Shape{3, 1, 8, 8}));
  EXPECT_EQ(batch.y.shape(), (Shape{3}));
  EXPECT_TRUE(bitwise_equal(batch.x.slice(1, 2), batch.x.slice(2, 3)));
  const auto values = batch.x.to_vector<float>();
  EXPECT_EQ(*std::max_element(values.begin(), values.end()), 1.0f);
  EXPECT_EQ(Hdf5Dataset(kDigits, {.split = "test"}).size(), 360);
}

TEST_F(Hdf5DatasetTest, ReadsEveryImageType) {
  const std::vector<std::int64_t> y{0, 1, 2};
  const std::vector<double> expected{0, 1, 2, 3, 4, 5};
  DataFile(path())
      .put("a/x", {3, 2}, counting<std::uint8_t>(6))
      .put("a/y", {3}, y)
      .put("b/x", {3, 2}, counting<float>(6))
      .put("b/y", {3, 1}, y)
      .put("c/x", {3, 2}, counting<double>(6))
      .put("c/y", {3}, counting<std::uint8_t>(3))
      .put("d/x", {3, 2}, counting<std::int32_t>(6))
      .put("d/y", {3}, counting<std::int32_t>(3))
      .put("e/x", {3, 2}, counting<std::uint16_t>(6))
      .put("e/y", {3}, counting<std::uint16_t>(3));
  for (const char* split : {"a", "b", "c", "d", "e"}) {
    const Hdf5Dataset data(path(), {.split = split});
    const std::vector<std::int64_t> rows{0, 1, 2};
    const auto batch = data.read(rows);
    EXPECT_EQ(data.token_ids(), split[0] >= 'd') << split;
    EXPECT_EQ(batch.x.dtype(), data.token_ids() ? DType::i64 : DType::f32);
    EXPECT_EQ(batch.x.to(DType::f64).to_vector<double>(), expected) << split;
    EXPECT_EQ(batch.y.to_vector<std::int64_t>(), y) << split;
    EXPECT_EQ(data.classes(), 3);
  }
}

TEST_F(Hdf5DatasetTest, ReadsHalfPrecision) {
  const hid_t half = H5Tcopy(H5T_IEEE_F32LE);
  H5Tset_fields(half, 15, 10, 5, 0, 10);
  H5Tset_size(half, 2);
  H5Tset_ebias(half, 15);
  DataFile(path()).claim("train/x", half, {2, 3}, {1, 3}).put("train/y", {2}, counting<std::int64_t>(2));
  const hid_t file = H5Fopen(path().c_str(), H5F_ACC_RDWR, H5P_DEFAULT),
              x = H5Dopen2(file, "train/x", H5P_DEFAULT);
  const std::vector<float> values{0.5f, -2, 65504, 0x1p-24f, 0, 1};
  H5Dwrite(x, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
  H5Dclose(x);
  H5Fclose(file);
  H5Tclose(half);
  const std::vector<std::int64_t> rows{0, 1};
  EXPECT_EQ(Hdf5Dataset(path()).read(rows).x.to_vector<float>(), values);
}

TEST_F(Hdf5DatasetTest, AppliesScaleThenMeanAndDeviationPerChannel) {
  DataFile(path())
      .put("train/x", {1, 2, 1, 2}, std::vector<std::uint8_t>{0, 10, 20, 30})
      .put("train/y", {1}, counting<std::int64_t>(1))
      .attribute("train/x", "scale", {0.1})
      .attribute("train/x", "mean", {1, 2})
      .attribute("train/x", "std", {0.5, 4});
  const Hdf5Dataset data(path());
  const std::vector<std::int64_t> rows{0};
  const float s = 0.1f;
  EXPECT_THAT(data.read(rows).x.to_vector<float>(),
              ElementsAre((0 * s - 1) / 0.5f, (10 * s - 1) / 0.5f, (20 * s - 2) / 4, (30 * s - 2) / 4));
  EXPECT_THAT(data.background(), ElementsAre(-2.0f, -0.5f));
}

TEST_F(Hdf5DatasetTest, IsInvariantToChunkShape) {
  const auto x = counting<std::uint8_t>(100 * 3 * 8 * 8);
  const auto y = counting<std::int64_t>(100, 7);
  std::vector<std::int64_t> rows(100);
  for (std::size_t i = 0; i < 100; ++i) rows[i] = static_cast<std::int64_t>(i * 37 % 100);
  std::optional<Batch> first;
  for (const std::vector<hsize_t>& chunk :
       {std::vector<hsize_t>{}, {1, 3, 8, 8}, {7, 1, 4, 4}, {100, 3, 8, 8}, {64, 2, 8, 3}})
    for (const std::int64_t cache : {std::int64_t{0}, std::int64_t{3000}, std::int64_t{1} << 30}) {
      DataFile(path())
          .put("train/x", {100, 3, 8, 8}, x, chunk, chunk.empty() ? 0 : 1)
          .put("train/y", {100}, y);
      const Hdf5Dataset data(path(), {.cache_bytes = cache});
      const auto batch = data.read(rows);
      if (!first) first = batch;
      EXPECT_TRUE(bitwise_equal(batch.x, first->x));
      EXPECT_TRUE(bitwise_equal(batch.y, first->y));
      EXPECT_EQ(batch.x.to_vector<float>()[0],
                static_cast<float>(x[static_cast<std::size_t>(rows[0]) * 192]));
    }
}

// Chunks are decoded here; HDF5's own reading is the measure. The last rows are never written.
TEST_F(Hdf5DatasetTest, FilteredChunksMatchHdf5) {
  using Filters = std::function<void(hid_t)>;
  const Filters deflate = [](hid_t made) { H5Pset_deflate(made, 1); };
  const Filters shuffle = [](hid_t made) { H5Pset_shuffle(made); };
  const Filters sum = [](hid_t made) { H5Pset_fletcher32(made); };
  const Filters plain_edges = [](hid_t made) {
    H5Pset_chunk_opts(made, H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS);
  };
  const std::vector<std::vector<Filters>> lists{{deflate},
                                                {shuffle},
                                                {sum},
                                                {shuffle, deflate},
                                                {deflate, shuffle},
                                                {shuffle, deflate, sum},
                                                {sum, shuffle, deflate},
                                                {sum, deflate, sum},
                                                {deflate, plain_edges}};
  const std::vector<hsize_t> shape{50, 3, 7, 5};
  const auto values = counting<float>(40 * 3 * 7 * 5);
  for (const hid_t type : {H5T_STD_U8LE, H5T_IEEE_F32BE, H5T_IEEE_F64LE})
    for (const std::vector<hsize_t>& chunk :
         {std::vector<hsize_t>{1, 3, 7, 5}, {8, 3, 7, 5}, {8, 1, 7, 5}, {7, 2, 3, 2}, {64, 3, 7, 5}})
      for (const auto& filters : lists) {
        const hid_t made = H5Pcreate(H5P_DATASET_CREATE), access = H5Pcreate(H5P_FILE_ACCESS);
        const int fill = 9;
        H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_LATEST);
        H5Pset_chunk(made, 4, chunk.data());
        H5Pset_fill_value(made, H5T_NATIVE_INT, &fill);
        for (const auto& filter : filters) filter(made);
        const hid_t file = H5Fcreate(path().c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access);
        const std::vector<hsize_t> most{H5S_UNLIMITED, 3, 7, 5}, start(4, 0), written{40, 3, 7, 5};
        const hid_t space = H5Screate_simple(4, shape.data(), most.data()),
                    memory = H5Screate_simple(4, written.data(), nullptr),
                    x = H5Dcreate2(file, "x", type, space, H5P_DEFAULT, made, H5P_DEFAULT);
        H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, written.data(), nullptr);
        ASSERT_GE(H5Dwrite(x, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, values.data()), 0);
        std::vector<float> expected(50 * 3 * 7 * 5);
        ASSERT_GE(H5Dread(x, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, expected.data()), 0);
        for (const hid_t id : {x, space, memory, file, made, access}) H5Idec_ref(id);
        const Hdf5Dataset data(path(), {.split = "", .labels = false, .cache_bytes = 3000});
        std::vector<std::int64_t> rows(50);
        std::iota(rows.begin(), rows.end(), std::int64_t{0});
        EXPECT_EQ(data.read(rows).x.to_vector<float>(), expected);
      }
}

TEST_F(Hdf5DatasetTest, NeverOpensOtherGroups) {
  std::filesystem::copy_file(kDigits, path());
  const hid_t file = H5Fopen(path().c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  ASSERT_GE(H5Ldelete(file, "test", H5P_DEFAULT), 0);
  H5Fclose(file);
  EXPECT_EQ(error_text(), "no error");
  EXPECT_THAT(error_text({.split = "test"}), HasSubstr("has no group 'test', but train"));
}

TEST_F(Hdf5DatasetTest, NamesMissingDatasets) {
  DataFile(path())
      .put("train/images", {2, 3}, counting<float>(6))
      .put("train/y", {2}, counting<std::int64_t>(2));
  EXPECT_THAT(error_text(), HasSubstr(":train/x is missing, there is images, y"));
  DataFile(path()).put("train/x", {2, 3}, counting<float>(6));
  EXPECT_THAT(error_text(), HasSubstr(":train/y is missing, there is x"));
  EXPECT_EQ(error_text({.labels = false}), "no error");
  DataFile(path()).put("x", {2, 3}, counting<float>(6)).put("y", {2}, counting<std::int64_t>(2));
  EXPECT_THAT(error_text(), HasSubstr("has no group 'train', but x, y"));
  EXPECT_EQ(error_text({.split = ""}), "no error");
}

TEST_F(Hdf5DatasetTest, RejectsInvalidLabels) {
  const auto with = [&](const std::vector<std::int64_t>& y, std::vector<hsize_t> shape) {
    DataFile(path()).put("train/x", {3, 2}, counting<float>(6)).put("train/y", std::move(shape), y);
  };
  with({0, -1, 2}, {3});
  EXPECT_THAT(error_text(), HasSubstr("has the label -1 in row 1"));
  with({0, 1, 7}, {3});
  EXPECT_THAT(error_text({.classes = 7}), HasSubstr("has the label 7 in row 2: labels are 0 to 6"));
  EXPECT_EQ(error_text(), "no error");
  with({0, 1, std::int64_t{1} << 40}, {3});
  EXPECT_THAT(error_text(), HasSubstr("in row 2: labels are 0 to"));
  with({0, 1}, {2});
  EXPECT_THAT(error_text(), HasSubstr("has 2 labels, x has 3 images"));
  with({0, 1, 2, 3, 4, 5}, {3, 2});
  EXPECT_THAT(error_text(), HasSubstr("has the shape [3, 2]: use [N]"));
  DataFile(path()).put("train/x", {2, 3}, counting<float>(6)).put("train/y", {2}, counting<float>(2));
  EXPECT_THAT(error_text(), HasSubstr("is f32: labels of classes are integers"));
  EXPECT_THAT(error_text({.label_type = LabelType::integers}),
              HasSubstr("is f32: labels of classes are integers"));
  DataFile(path()).put("train/x", {2, 3}, counting<float>(6)).put("train/y", {2, 0}, counting<float>(0));
  EXPECT_THAT(error_text({.label_type = LabelType::numbers}), HasSubstr("an axis is empty"));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  DataFile(path())
      .put("train/x", {2, 3}, counting<float>(6))
      .put("train/y", {2, 2}, std::vector<float>{0, 1, 2, nan});
  EXPECT_THAT(error_text({.label_type = LabelType::numbers}),
              HasSubstr("train/y has a NaN or infinity in row 1"));
}

TEST_F(Hdf5DatasetTest, ReadsNumbersAsLabels) {
  DataFile(path()).put("train/x", {3, 2}, counting<float>(6)).put("train/y", {3, 2}, counting<double>(6));
  const Hdf5Dataset data(path(), {.label_type = LabelType::numbers});
  const std::vector<std::int64_t> rows{2, 0};
  EXPECT_EQ(data.classes(), 0);
  EXPECT_EQ(data.read(rows).y.shape(), (Shape{2, 2}));
  EXPECT_THAT(data.read(rows).y.to_vector<float>(), ElementsAre(4, 5, 0, 1));
  EXPECT_EQ(data.labels().dtype(), DType::f64);
}

TEST_F(Hdf5DatasetTest, ReadsDenseClassLabels) {
  DataFile(path())
      .put("train/x", {3, 2}, counting<float>(6))
      .put("train/y", {3, 2}, counting<std::uint8_t>(6));
  const std::vector<std::int64_t> rows{2, 0};
  for (const auto type : {LabelType::numbers, LabelType::integers}) {
    const auto data = std::make_shared<Hdf5Dataset>(path(), Hdf5DatasetOptions{.label_type = type});
    EXPECT_EQ(data->classes(), 0);
    EXPECT_THAT(data->read(rows).y.to_vector<std::int64_t>(), ElementsAre(4, 5, 0, 1));
    EXPECT_EQ(Subset(data, {1}).labels().shape(), (Shape{1, 2}));
  }
}

TEST_F(Hdf5DatasetTest, OneIntegerPerSampleIsAlwaysAClass) {
  DataFile(path())
      .put("train/x", {3, 2}, counting<float>(6))
      .put("train/y", {3, 1}, counting<std::int64_t>(3));
  const Hdf5Dataset data(path(), {.label_type = LabelType::numbers});
  const std::vector<std::int64_t> rows{2, 0};
  EXPECT_EQ(data.classes(), 3);
  EXPECT_THAT(data.read(rows).y.to_vector<std::int64_t>(), ElementsAre(2, 0));
}

TEST_F(Hdf5DatasetTest, NamesTheRowOfANaNOrInfinity) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    auto x = counting<float>(40);
    x[27] = bad;
    DataFile(path()).put("train/x", {10, 4}, x).put("train/y", {10}, counting<std::int64_t>(10));
    EXPECT_THAT(error_text(), HasSubstr(":train/x has a NaN or infinity in row 6"));
  }
}

TEST_F(Hdf5DatasetTest, RejectsOtherShapes) {
  const auto y = counting<std::int64_t>(2);
  DataFile(path())
      .put("train/x", {0, 3}, std::vector<float>{})
      .put("train/y", {0}, std::vector<std::int64_t>{});
  EXPECT_THAT(error_text(), HasSubstr("has zero images"));
  DataFile(path()).put("train/x", {2, 0}, std::vector<float>{}).put("train/y", {2}, y);
  EXPECT_THAT(error_text(), HasSubstr("an axis is empty"));
  DataFile(path()).put("train/x", {2}, counting<float>(2)).put("train/y", {2}, y);
  EXPECT_THAT(error_text(), HasSubstr("use [N, ..]"));
  DataFile(path()).put("train/x", {2, 1, 2, 2}, counting<std::int64_t>(8)).put("train/y", {2}, y);
  EXPECT_THAT(error_text(), HasSubstr("images are u8, i8, f16, f32 or f64"));
  DataFile(path()).claim("train/x", H5T_C_S1, {2, 2}, {1, 2}).put("train/y", {2}, y);
  EXPECT_THAT(error_text(), HasSubstr("has elements other than integers and IEEE floats"));
  DataFile(path()).put("train/x/y", {2}, y).put("train/y", {2}, y);
  EXPECT_THAT(error_text(), HasSubstr("is not a dataset that can be opened"));
}

TEST_F(Hdf5DatasetTest, RejectsInvalidAttributes) {
  const auto with = [&](const char* name, const std::vector<double>& values) {
    DataFile(path())
        .put("train/x", {2, 3, 1, 1}, counting<std::uint8_t>(6))
        .put("train/y", {2}, counting<std::int64_t>(2))
        .attribute("train/x", name, values);
    return error_text();
  };
  EXPECT_THAT(with("mean", {1, 2}), HasSubstr("has an attribute 'mean' of 2 values: use 1 or 3"));
  EXPECT_THAT(with("std", {1, 0, 1}), HasSubstr("'std' that is not positive"));
  EXPECT_THAT(with("scale", {-1}), HasSubstr("'scale' that is not positive"));
  EXPECT_THAT(with("mean", {std::nan("")}), HasSubstr("'mean' that is not finite"));
  EXPECT_EQ(with("mean", {1, 2, 3}), "no error");
}

TEST_F(Hdf5DatasetTest, RejectsIncompleteFiles) {
  EXPECT_THAT(error_text(), HasSubstr("No such file"));
  write_file(path(), "this is a text file, not a data set");
  EXPECT_THAT(error_text(), HasSubstr("is not an HDF5 file"));
  const auto whole = read_file(kDigits);
  for (std::size_t length = 8; length < whole.size(); length += whole.size() / 50) {
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << whole.substr(0, length);
    EXPECT_THAT(error_text(), HasSubstr("is a damaged or truncated HDF5 file")) << length;
  }
}

// Sizes that a small file only claims are refused, or read a piece at a time; nothing is allocated for them.
TEST_F(Hdf5DatasetTest, DoesNotAllocateClaimedSizes) {
  const hsize_t huge = hsize_t{1} << 40;
  DataFile(path())
      .claim("train/x", H5T_NATIVE_UINT8, {huge, 4}, {1024, 4})
      .claim("train/y", H5T_NATIVE_INT64, {huge}, {1024});
  EXPECT_THAT(error_text(), HasSubstr("x claims 1099511627776 times 4 bytes, but 0 are stored"));
  DataFile(path())
      .claim("train/x", H5T_NATIVE_UINT8, {2, huge}, {1, 1024})
      .put("train/y", {2}, counting<std::int64_t>(2));
  EXPECT_THAT(error_text(), HasSubstr("has rows of 1099511627776 bytes: at most 1 GiB"));
  DataFile(path())
      .claim("train/x", H5T_NATIVE_UINT8, {1 << 20, 4096}, {1 << 19, 4096})
      .put("train/y", {2}, counting<std::int64_t>(2));
  EXPECT_THAT(error_text(), HasSubstr("has chunks of more than 1 GiB"));
  DataFile(path())
      .claim("train/x", H5T_NATIVE_FLOAT, {huge, huge}, {1, 1024})
      .put("train/y", {2}, counting<std::int64_t>(2));
  EXPECT_THAT(error_text(), HasSubstr("claims more than 2^60 elements"));
}

TEST_F(Hdf5DatasetTest, ReadsStateFilesWithData) {
  StateDict state;
  state.set("train/x", Tensor::full({4, 2}, 3));
  state.set("train/y", Tensor::zeros({4}, DType::i64));
  save_state(path(), state, "data");
  EXPECT_EQ(error_text(), "no error");
}

// 4 GiB of rows in a process that may have 1.5 GB of addresses: batches of a whole pass over the blocks.
TEST_F(Hdf5DatasetTest, ReadsFilesLargerThanMemory) {
  if (test::addresses_held() > 1e9) GTEST_SKIP() << "a sanitizer holds more addresses than the limit";
  constexpr hsize_t kRows = 1 << 18, kRow = 1 << 14;
  DataFile(path())
      .claim("train/x", H5T_NATIVE_UINT8, {kRows, 1, 128, 128}, {64, 1, 128, 128})
      .put("train/y", {kRows}, counting<std::int64_t>(kRows, 10), {4096}, 1);
  static_assert(kRows * kRow == hsize_t{4} << 30);
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{1'500'000'000, 1'500'000'000};
    ::setrlimit(RLIMIT_AS, &limit);
    try {
      DataLoader loader(std::make_shared<Hdf5Dataset>(path()), {.batch_size = 256});
      std::int64_t seen = 0;
      while (const auto batch = loader.next()) {
        seen += batch->size();
        if (seen >= static_cast<std::int64_t>(kRows / 4)) break;
      }
      std::_Exit(seen >= static_cast<std::int64_t>(kRows / 4) ? 7 : 1);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    std::_Exit(2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
}

}  // namespace
}  // namespace fq::data_file_test
