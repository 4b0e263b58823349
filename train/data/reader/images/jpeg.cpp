#include <csetjmp>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>
#include <jpeglib.h>
// after jpeglib.h
#include <jerror.h>

#include "fakequant/train/data/reader/images/codecs.h"

namespace fq::detail {
namespace {

/// Errors of libjpeg come back by longjmp: what lies between has no destructors.
struct Errors {
  jpeg_error_mgr base;  // libjpeg takes the address of one for that of the other
  std::jmp_buf back;
  char text[JMSG_LENGTH_MAX];
};

[[noreturn]] void leave(j_common_ptr state) {
  auto* errors = reinterpret_cast<Errors*>(state->err);
  state->err->format_message(state, errors->text);
  std::longjmp(errors->back, 1);
}

/// Whether samples behind the warning are made up.
bool is_damage(int code) {
  return code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
         code == JWRN_ARITH_BAD_CODE || code == JWRN_BOGUS_PROGRESSION || code == JWRN_MUST_RESYNC ||
         code == JWRN_NOT_SEQUENTIAL;
}

void warn(j_common_ptr state, int level) {
  if (level < 0 && is_damage(state->err->msg_code)) leave(state);
}

void say_nothing(j_common_ptr) {}

/// One image being read; everything that libjpeg allocates goes with it.
struct JpegDecoding {
  jpeg_decompress_struct state{};
  Errors errors{};

  JpegDecoding() {
    state.err = jpeg_std_error(&errors.base);
    errors.base.error_exit = leave;
    errors.base.emit_message = warn;
    errors.base.output_message = say_nothing;
    jpeg_create_decompress(&state);
  }
  ~JpegDecoding() { jpeg_destroy_decompress(&state); }
  JpegDecoding(const JpegDecoding&) = delete;  // libjpeg holds addresses of its parts
  JpegDecoding& operator=(const JpegDecoding&) = delete;

  [[nodiscard]] bool is_cmyk() const {
    return state.jpeg_color_space == JCS_CMYK || state.jpeg_color_space == JCS_YCCK;
  }
};

bool read_header(JpegDecoding& from, std::string_view bytes) {
  if (setjmp(from.errors.back) != 0) return false;
  jpeg_mem_src(&from.state, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_save_markers(&from.state, JPEG_APP0 + 1, 0xffff);
  jpeg_read_header(&from.state, TRUE);
  return true;
}

/// Rows of bytes into `to`, which has room for them.
bool read_rows(JpegDecoding& from, unsigned char* to) {
  if (setjmp(from.errors.back) != 0) return false;
  jpeg_start_decompress(&from.state);
  const auto row = std::size_t(from.state.output_width) * std::size_t(from.state.output_components);
  while (from.state.output_scanline < from.state.output_height) {
    JSAMPROW at = to + row * from.state.output_scanline;
    jpeg_read_scanlines(&from.state, &at, 1);
  }
  jpeg_finish_decompress(&from.state);
  return true;
}

int orientation_of(const jpeg_decompress_struct& state) {
  constexpr std::string_view kExif("Exif\0\0", 6);
  for (auto* marker = state.marker_list; marker != nullptr; marker = marker->next) {
    const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
    if (data.starts_with(kExif)) return exif_orientation(data.substr(kExif.size()));
  }
  return 1;
}

/// Inks are stored inverted, as Adobe does: 255 is none.
void from_inks(const std::vector<unsigned char>& inks, std::vector<std::uint16_t>& to) {
  to.reserve(inks.size() / 4 * 3);
  for (std::size_t i = 0; i + 4 <= inks.size(); i += 4)
    for (std::size_t c = 0; c < 3; ++c) to.push_back(std::uint16_t((inks[i + c] * inks[i + 3] + 127) / 255));
}

}  // namespace

StoredInfo read_jpeg(std::string_view bytes, Image* image) {
  JpegDecoding from;
  const auto refuse = [&] {
    throw BadImage(fmt::format("is a truncated or damaged JPEG image: {}", from.errors.text));
  };
  if (!read_header(from, bytes)) refuse();
  StoredInfo stored;
  const bool grey = from.state.jpeg_color_space == JCS_GRAYSCALE;
  stored.info = {from.state.image_width, from.state.image_height, grey ? 1 : 3, 8};
  stored.orientation = orientation_of(from.state);
  if (image == nullptr) return stored;
  if (stored.info.width * stored.info.height > kMostPixels)
    throw BadImage(
        fmt::format("has {} x {} pixels, at most {}", stored.info.width, stored.info.height, kMostPixels));
  from.state.out_color_space = grey ? JCS_GRAYSCALE : from.is_cmyk() ? JCS_CMYK : JCS_RGB;
  std::vector<unsigned char> rows(std::size_t(stored.info.width * stored.info.height) * (grey ? 1u
                                                                                         : from.is_cmyk()
                                                                                             ? 4u
                                                                                             : 3u));
  if (!read_rows(from, rows.data())) refuse();
  image->info = stored.info;
  if (from.is_cmyk())
    from_inks(rows, image->samples);
  else
    image->samples.assign(rows.begin(), rows.end());
  return stored;
}

}  // namespace fq::detail
