#pragma once

/// Images of a folder as samples.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/train/data/reader/images/resample.h"
#include "fakequant/train/data/reader/sample_source.h"

namespace fq::detail {

/// An image that is left out, and why.
struct SkippedImage {
  std::string path, reason;
};

struct ImageSourceOptions {
  ImageForm form = {};  ///< channels 0: as the images have, and 3 where they differ
  bool strict = false;  ///< an image that cannot be read is an error
  std::function<void(std::int64_t looked_at)> survey = {};  ///< called meanwhile; what it throws ends it
};

/// [channels, height, width], u8 or, of 16 bits, f32 with values up to 65535. Decoded some ahead on all
/// threads, a file at a time: no more than those are in memory.
class ImageSource final : public SampleSource {
 public:
  /// Looks at the beginning of every file where size or channels are open. Throws FileError where images
  /// differ in size and none is given, and where none can be read.
  ImageSource(std::vector<std::string> paths, const ImageSourceOptions& options);

  /// What was left out, of those read so far.
  [[nodiscard]] const std::vector<SkippedImage>& skipped() const noexcept { return skipped_; }
  /// Files of 16 bits a sample that are kept as 8, of those read so far.
  [[nodiscard]] std::int64_t narrowed() const noexcept { return narrowed_; }

  [[nodiscard]] std::int64_t size() const override { return std::int64_t(paths_.size()); }
  [[nodiscard]] const SampleType& type() const override { return type_; }
  [[nodiscard]] std::string first_left_out() const override {
    return skipped_.empty() ? std::string() : skipped_[0].path + " " + skipped_[0].reason;
  }
  [[nodiscard]] bool read(std::int64_t row, std::byte* to) override;
  [[nodiscard]] std::string place_of(std::int64_t row) const override { return paths_[std::size_t(row)]; }

 private:
  struct Decoded {
    std::optional<Image> image;
    std::string reason;
    bool narrowed = false;
  };

  void survey();
  void decode_ahead();
  [[nodiscard]] Decoded decode(const std::string& path) const;
  void leave_out(const std::string& path, const std::string& reason);

  std::vector<std::string> paths_;
  ImageSourceOptions options_;
  SampleType type_;
  std::vector<Decoded> ahead_;
  bool own_size_ = false;  // whether images are stored as they are, all of one size
  std::int64_t ahead_begin_ = 0, next_ = 0, narrowed_ = 0;
  std::vector<SkippedImage> skipped_;
};

}  // namespace fq::detail
