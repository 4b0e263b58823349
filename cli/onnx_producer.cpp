#include "fakequant/cli/onnx_producer.h"

#include <algorithm>
#include <cstdint>

#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/file_reader.h"

namespace fq::cli {
namespace {

constexpr std::uint64_t kProducer = 2, kGraph = 7;
constexpr std::uint64_t kFields[] = {1, 2, 3, 4, 5, 6, 7, 8, 14, 20, 25, 26};  // of ModelProto
constexpr std::uint64_t kVarint = 0, kBytes = 2;                               // wire types
constexpr std::uint64_t kLongestName = 4096;

/// The fields of a message of protobuf, in their order. Throws FileError at the end of the file.
class Fields {
 public:
  explicit Fields(const std::string& path) : file_(path) {}

  [[nodiscard]] bool more() const { return at_ < file_.size(); }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      unsigned char byte = 0;
      file_.read(at_++, &byte, 1);
      value |= std::uint64_t(byte & 0x7fu) << shift;
      if (byte < 0x80) return value;
    }
    throw FileError(file_.path(), "", "[onnx_producer] a number is too long");
  }

  /// Steps over them; reads those of a short text.
  std::string bytes(bool read) {
    const std::uint64_t length = varint();
    if (length > std::uint64_t(file_.size() - at_))
      throw FileError(file_.path(), "", "[onnx_producer] it ends too early");
    std::string text(read ? std::min(length, kLongestName) : 0, '\0');
    if (!text.empty()) file_.read(at_, text.data(), text.size());
    at_ += std::int64_t(length);
    return text;
  }

 private:
  fq::detail::FileReader file_;
  std::int64_t at_ = 0;
};

}  // namespace

std::optional<std::string> onnx_producer(const std::string& path) try {
  Fields fields(path);
  std::string producer;
  bool graph = false;
  while (fields.more()) {
    const std::uint64_t tag = fields.varint(), field = tag >> 3, type = tag & 7;
    if (std::ranges::find(kFields, field) == std::end(kFields) || (type != kVarint && type != kBytes))
      return std::nullopt;
    graph = graph || field == kGraph;
    if (type == kVarint)
      (void)fields.varint();
    else if (const std::string text = fields.bytes(field == kProducer); field == kProducer)
      producer = text;
  }
  return graph ? std::optional(producer) : std::nullopt;
} catch (const Error&) {
  return std::nullopt;
}

}  // namespace fq::cli
