#include "fakequant/train/data/reader/images/image_source.h"

#include <algorithm>
#include <cstring>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/threads.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/io/detail/file_kind.h"
#include "fakequant/core/io/detail/file_reader.h"

namespace fq::detail {
namespace {

constexpr std::int64_t kAhead = 64;             // images
constexpr std::int64_t kBeginning = 256 << 10;  // of a file: more than most headers take

/// What reads a file fails with BadImage where the file itself cannot be read.
template <class Read>
auto reading(Read&& read) {
  try {
    return read();
  } catch (const FileError& error) {
    throw BadImage(fmt::format("is no file that can be read: {}", error.what()));
  }
}

/// The header of a file, of which no more is read than it takes.
ImageInfo info_of(const std::string& path) {
  const FileReader file(path);
  if (file.size() > kMostImageBytes) throw BadImage(fmt::format("has {} bytes", file.size()));
  std::string bytes(std::size_t(std::min(file.size(), kBeginning)), '\0');
  file.read(0, bytes.data(), bytes.size());
  if (file.size() <= kBeginning) return image_info(bytes);
  try {
    return image_info(bytes);
  } catch (const BadImage&) {
    return image_info(read_file(path, kMostImageBytes));
  }
}

/// "is a GIF image, which is not read: convert it to PNG" for what is known to be another format.
std::string reason_of(const std::string& path, const std::string& reason) {
  const std::string kind = file_kind(path);
  if (reason != "is no PNG or JPEG image" || kind.empty()) return reason;
  return fmt::format("is {}, not PNG or JPEG: convert it", kind);
}

}  // namespace

ImageSource::ImageSource(std::vector<std::string> paths, const ImageSourceOptions& options)
    : paths_(std::move(paths)), options_(options) {
  own_size_ = options_.form.width == 0;
  if (own_size_ || options_.form.channels == 0) survey();
  const ImageForm& form = options_.form;
  type_.shape = {form.channels, form.height, form.width};
  type_.dtype = form.bits == 16 ? DType::f32 : DType::u8;
  type_.scale = form.bits == 16 ? 1.0 / 65535 : 1.0 / 255;
}

/// Whatever cannot be read here is told when its turn comes.
void ImageSource::survey() {
  ImageForm& form = options_.form;
  int channels = 1;
  std::string first, reason;
  std::int64_t looked_at = 0;
  for (const auto& path : paths_) {
    if (options_.survey) options_.survey(++looked_at);
    try {
      const ImageInfo info = reading([&] { return info_of(path); });
      channels = std::max(channels, info.channels);
      if (first.empty()) first = path;
      if (form.width == 0) form.width = info.width, form.height = info.height;
      if (own_size_ && (form.width != info.width || form.height != info.height))
        throw FileError(
            path, "",
            fmt::format("[dataset] {} has {} x {} pixels, {} has {} x {}: give the size of all by --size, "
                        "as --size 32 or --size 64x48",
                        path, info.width, info.height, first, form.width, form.height));
    } catch (const BadImage& bad) {
      if (reason.empty()) reason = path + " " + reason_of(path, bad.what());
    }
  }
  if (first.empty())
    throw FileError(paths_.front(), "",
                    fmt::format("[dataset] none of the {} images can be read: {}", paths_.size(), reason));
  if (form.channels == 0) form.channels = channels;
}

ImageSource::Decoded ImageSource::decode(const std::string& path) const {
  Decoded out;
  try {
    Image image = decode_image(reading([&] { return read_file(path, kMostImageBytes); }));
    if (own_size_ && (image.info.width != options_.form.width || image.info.height != options_.form.height))
      throw BadImage(fmt::format("has {} x {} pixels, other than the rest: give --size", image.info.width,
                                 image.info.height));
    out.narrowed = image.info.bits > options_.form.bits;
    out.image = formed(std::move(image), options_.form);
  } catch (const BadImage& bad) {
    out.reason = reason_of(path, bad.what());
  }
  return out;
}

void ImageSource::decode_ahead() {
  ahead_begin_ = next_;
  const std::int64_t count = std::min(kAhead, size() - next_);
  ahead_.assign(std::size_t(count), {});
  FirstError error;
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t i = 0; i < count; ++i)
    error.keep([&] { ahead_[std::size_t(i)] = decode(paths_[std::size_t(ahead_begin_ + i)]); });
  error.rethrow();
}

void ImageSource::leave_out(const std::string& path, const std::string& reason) {
  if (options_.strict)
    throw FileError(path, "", fmt::format("[dataset] {} {}: without --strict it is left out", path, reason));
  skipped_.push_back({path, reason});
}

bool ImageSource::read(std::int64_t row, std::byte* to) {
  for (; next_ <= row; ++next_) {
    if (next_ >= ahead_begin_ + std::ssize(ahead_)) decode_ahead();
    Decoded& decoded = ahead_[std::size_t(next_ - ahead_begin_)];
    if (next_ < row) continue;
    if (!decoded.image) {
      leave_out(paths_[std::size_t(row)], decoded.reason);
      ++next_;
      return false;
    }
    narrowed_ += decoded.narrowed ? 1 : 0;
    const auto& samples = decoded.image->samples;
    for (std::size_t i = 0; i < samples.size(); ++i)
      if (type_.dtype == DType::u8) {
        to[i] = std::byte(samples[i]);
      } else {
        const auto value = float(samples[i]);
        std::memcpy(to + i * sizeof value, &value, sizeof value);
      }
    decoded.image.reset();
  }
  return true;
}

}  // namespace fq::detail
