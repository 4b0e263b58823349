#include <functional>
#include <limits>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data_files.h"
#include "fakequant/core/error.h"
#include "fakequant/core/log.h"
#include "fakequant/train/data/detail/data_file.h"
#include "fakequant/train/data/detail/sample_layout.h"
#include "fakequant/train/data/hdf5_dataset.h"
#include "fakequant/train/loop/evaluate.h"
#include "folder.h"

namespace fq::data_words_test {
namespace {

using test::DataFile;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class DataWords : public testing::Test {
 protected:
  DataWords() {
    set_log_callback(
        [this](LogLevel, std::string_view message) { warnings_ += std::string(message) + "\n"; });
  }
  ~DataWords() override { set_log_callback({}); }

  [[nodiscard]] std::string path() const { return folder_.file("data.h5"); }
  /// Two samples of that shape, all 0.5, and labels 0 and `label`.
  void write(std::vector<hsize_t> sample, std::int64_t label = 1, float value = 0.5f) const {
    sample.insert(sample.begin(), 2);
    const auto count = std::accumulate(sample.begin(), sample.end(), hsize_t{1}, std::multiplies<>());
    DataFile(path())
        .put("train/x", sample, std::vector<float>(count, value))
        .put("train/y", {2}, std::vector<std::int64_t>{0, label});
  }
  [[nodiscard]] std::string error_text(const Hdf5DatasetOptions& options = {}) const {
    try {
      const Hdf5Dataset data(path(), options);
    } catch (const FileError& error) {
      return error.what();
    }
    return "no error";
  }

  test::Folder folder_;
  std::string warnings_;
};

TEST_F(DataWords, ChecksTheShapeBeforeTheLabels) {
  write({3, 4}, 77);
  EXPECT_THAT(error_text({.classes = 2}), HasSubstr("label 77"));
  EXPECT_THAT(error_text({.classes = 2, .sample_shape = {5, 6}}),
              AllOf(HasSubstr("samples of [3, 4], the network takes [5, 6]"), HasSubstr("another network")));
  EXPECT_THAT(error_text({.classes = 2, .sample_shape = {4, 3}}), HasSubstr("write x.transpose(0, 2, 1)"));
  EXPECT_THAT(error_text({.classes = 2, .sample_shape = {12}}), HasSubstr("write x.reshape(-1, 12)"));
  EXPECT_EQ(error_text({.classes = 78, .sample_shape = {3, 4}}), "no error");
}

TEST_F(DataWords, RejectsChannelsLastUnlessDeclared) {
  write({8, 8, 3});
  EXPECT_THAT(error_text(), HasSubstr("x.transpose(0, 3, 1, 2)"));
  EXPECT_EQ(error_text({.sample_shape = {8, 8, 3}}), "no error");
  EXPECT_EQ(warnings_, "");
  EXPECT_EQ(error_text({.check_layout = false}), "no error");
  EXPECT_THAT(warnings_, HasSubstr("x.transpose(0, 3, 1, 2)"));
  warnings_.clear();
  write({3, 8, 8});
  EXPECT_EQ(error_text(), "no error");
  EXPECT_EQ(warnings_, "");
}

TEST_F(DataWords, EstimatesTheConfidenceOfChannelsLast) {
  using detail::ChannelsLast, detail::looks_channels_last;
  for (const Shape& sure : {Shape{8, 8, 1}, {5, 5, 4}, {32, 24, 3}, {224, 224, 3}})
    EXPECT_EQ(looks_channels_last(sure), ChannelsLast::surely) << to_string(sure);
  EXPECT_EQ(looks_channels_last({40, 98, 1}), ChannelsLast::perhaps);
  for (const Shape& no :
       {Shape{1, 8, 8}, {3, 8, 8}, {4, 4, 4}, {8, 8, 2}, {64, 1, 1}, {8, 3}, {3, 640, 3}, {16, 4, 4}})
    EXPECT_EQ(looks_channels_last(no), ChannelsLast::no) << to_string(no);
}

TEST_F(DataWords, WarnsAboutUnscaledBytes) {
  write({3, 4}, 1, 200);
  EXPECT_EQ(error_text(), "no error");
  EXPECT_THAT(warnings_, HasSubstr("is f32 of values up to 255"));
  warnings_.clear();
  write({3, 4}, 1, 256);
  EXPECT_EQ(error_text(), "no error");
  DataFile(path())
      .put("train/x", {2, 3}, std::vector<std::uint8_t>(6, 255))
      .put("train/y", {2}, std::vector<std::int64_t>{0, 1})
      .attribute("train/x", "scale", {1});
  EXPECT_EQ(error_text(), "no error");
  EXPECT_EQ(warnings_, "");
}

TEST_F(DataWords, AllowsMissingLabelsIfNotRequired) {
  DataFile(path()).put("train/x", {2, 3}, std::vector<float>(6, 0.5f));
  EXPECT_THAT(error_text(), HasSubstr("train/y is missing"));
  {
    const Hdf5Dataset bare(path(), {.may_lack_labels = true});
    EXPECT_EQ(bare.classes(), 0);
    EXPECT_FALSE(bare.read(std::vector<std::int64_t>{0}).y.defined());
  }
  write({3});
  EXPECT_EQ(Hdf5Dataset(path(), {.may_lack_labels = true}).classes(), 2);
}

TEST_F(DataWords, JoinsNames) {
  using detail::split_names;
  EXPECT_THAT(split_names("[\"a\", \"b, c\"]"), ElementsAre("a", "b, c"));
  EXPECT_THAT(split_names("a, b ,c"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(split_names("a, b\r\nc\n"), ElementsAre("a, b", "c"));
  EXPECT_THAT(split_names("one"), ElementsAre("one"));
  for (const char* none : {"", "  \n", "[1, 2]", "['a', 'b']", "{\"a\": 1}", "[\"a\""})
    EXPECT_THAT(split_names(none), IsEmpty()) << none;
  EXPECT_THAT(split_names(std::string(100'000, '[')), IsEmpty());
}

TEST(Predictions, AreTheFirstMaximumAndInvalidForNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor logits = Tensor::from<float>({1, 2, 2, 3, 0, 0, nan, 5, 0, 0, 0, nan}, {4, 3});
  EXPECT_THAT(predictions(logits).to_vector<std::int64_t>(), ElementsAre(1, 0, -1, -1));
  EXPECT_EQ(count_correct(logits, Tensor::from<std::int64_t>({1, 0, 1, 0})), 2);
  EXPECT_EQ(count_correct(logits, Tensor::from<std::int64_t>({2, 1, 0, 2})), 0);
}

}  // namespace
}  // namespace fq::data_words_test
