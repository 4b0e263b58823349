#include <algorithm>
#include <bit>
#include <csetjmp>
#include <cstring>

#include <fmt/format.h>
#include <png.h>
#include <zlib.h>

#include "fakequant/train/data/reader/images/codecs.h"

namespace fq::detail {
namespace {

constexpr png_alloc_size_t kMostChunk = 64 << 20;
constexpr png_uint_32 kWidest = 1'000'000;

/// What callbacks of libpng need; errors come back by longjmp: what lies between has no destructors.
struct Source {
  const char* at;
  std::size_t left;
  char text[128];
};

[[noreturn]] void leave(png_structp state, png_const_charp message) {
  auto* source = static_cast<Source*>(png_get_error_ptr(state));
  std::strncpy(source->text, message, sizeof source->text - 1);
  png_longjmp(state, 1);
}

void say_nothing(png_structp, png_const_charp) {}

void take(png_structp state, png_bytep to, std::size_t bytes) {
  auto* source = static_cast<Source*>(png_get_io_ptr(state));
  if (bytes > source->left) png_error(state, "it ends early");
  std::memcpy(to, source->at, bytes);
  source->at += bytes;
  source->left -= bytes;
}

/// One image being read; everything that libpng allocates goes with it.
struct PngDecoding {
  Source source;
  png_structp state;
  png_infop info;

  explicit PngDecoding(std::string_view bytes)
      : source{bytes.data(), bytes.size(), {}},
        state(png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, leave, say_nothing)),
        info(state == nullptr ? nullptr : png_create_info_struct(state)) {
    if (info == nullptr) throw std::bad_alloc();
    png_set_read_fn(state, &source, take);
    png_set_user_limits(state, kWidest, kWidest);
    png_set_chunk_malloc_max(state, kMostChunk);
  }
  ~PngDecoding() { png_destroy_read_struct(&state, &info, nullptr); }
  PngDecoding(const PngDecoding&) = delete;  // libpng holds addresses of its parts
  PngDecoding& operator=(const PngDecoding&) = delete;
};

bool read_header(PngDecoding& from) {
  if (setjmp(png_jmpbuf(from.state)) != 0) return false;
  png_read_info(from.state, from.info);
  return true;
}

bool choose_samples(PngDecoding& from) {
  if (setjmp(png_jmpbuf(from.state)) != 0) return false;
  png_set_expand(from.state);
  png_set_strip_alpha(from.state);
  if (std::endian::native == std::endian::little) png_set_swap(from.state);
  png_set_interlace_handling(from.state);
  png_read_update_info(from.state, from.info);
  return true;
}

bool read_rows(PngDecoding& from, png_bytepp rows) {
  if (setjmp(png_jmpbuf(from.state)) != 0) return false;
  png_read_image(from.state, rows);
  png_read_end(from.state, from.info);
  return true;
}

int orientation_of(PngDecoding& from) {
#ifdef PNG_eXIf_SUPPORTED
  png_bytep exif = nullptr;
  png_uint_32 bytes = 0;
  if (png_get_eXIf_1(from.state, from.info, &bytes, &exif) != 0)
    return exif_orientation({reinterpret_cast<const char*>(exif), bytes});
#endif
  return 1;
}

template <class Sample>
void widen(const std::vector<png_byte>& bytes, std::vector<std::uint16_t>& to) {
  to.resize(bytes.size() / sizeof(Sample));
  for (std::size_t i = 0; i < to.size(); ++i) {
    Sample value;
    std::memcpy(&value, bytes.data() + i * sizeof(Sample), sizeof(Sample));
    to[i] = value;
  }
}

void read_samples(PngDecoding& from, const ImageInfo& info, std::vector<std::uint16_t>& to) {
  const auto refuse = [&] {
    throw BadImage(fmt::format("is a truncated or damaged PNG image: {}", from.source.text));
  };
  if (!choose_samples(from)) refuse();
  const std::size_t row_bytes = png_get_rowbytes(from.state, from.info);
  std::vector<png_byte> bytes(row_bytes * std::size_t(info.height));
  std::vector<png_bytep> rows;
  for (std::size_t y = 0; y < std::size_t(info.height); ++y) rows.push_back(bytes.data() + y * row_bytes);
  if (!read_rows(from, rows.data())) refuse();
  info.bits == 16 ? widen<std::uint16_t>(bytes, to) : widen<std::uint8_t>(bytes, to);
}

}  // namespace

StoredInfo read_png(std::string_view bytes, Image* image) {
  PngDecoding from(bytes);
  if (!read_header(from))
    throw BadImage(fmt::format("is a truncated or damaged PNG image: {}", from.source.text));
  const int type = png_get_color_type(from.state, from.info);
  StoredInfo stored;
  stored.info = {std::int64_t(png_get_image_width(from.state, from.info)),
                 std::int64_t(png_get_image_height(from.state, from.info)),
                 (type & PNG_COLOR_MASK_COLOR) != 0 ? 3 : 1,
                 png_get_bit_depth(from.state, from.info) == 16 ? 16 : 8};
  stored.orientation = orientation_of(from);
  if (image == nullptr) return stored;
  if (stored.info.width * stored.info.height > kMostPixels)
    throw BadImage(
        fmt::format("has {} x {} pixels, at most {}", stored.info.width, stored.info.height, kMostPixels));
  image->info = stored.info;
  read_samples(from, stored.info, image->samples);
  stored.orientation = orientation_of(from);  // it may stand behind the samples, too
  return stored;
}

namespace {

constexpr std::size_t kHeaderBytes = 33;  // signature and IHDR

std::string big_endian(std::uint32_t value) {
  return {char(value >> 24), char(value >> 16), char(value >> 8), char(value)};
}

std::string software_chunk() {
  const std::string body(kPngSoftware);
  const auto crc = ::crc32(0, reinterpret_cast<const Bytef*>(body.data()), uInt(body.size()));
  return big_endian(std::uint32_t(body.size() - 4)) + body + big_endian(std::uint32_t(crc));
}

}  // namespace

std::string encode_png(const std::vector<std::uint8_t>& samples, std::int64_t width, std::int64_t height,
                       int channels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = png_uint_32(width);
  image.height = png_uint_32(height);
  image.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string file(bytes, '\0');
  if (png_image_write_to_memory(&image, file.data(), &bytes, 0, samples.data(), 0, nullptr) == 0)
    throw std::bad_alloc();
  file.resize(bytes);
  return file.insert(kHeaderBytes, software_chunk());
}

}  // namespace fq::detail
