#include <algorithm>
#include <set>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/file_reader.h"
#include "fakequant/export/gguf/detail/types.h"

namespace fq {
namespace {

using detail::GgufKind;

// 16 MiB, a limit for texts of damaged files.
constexpr std::uint64_t kLongestText = 1 << 24;

class Reading {
 public:
  explicit Reading(const std::string& path) : file_(path) {}

  GgufModel run() {
    GgufModel model;
    std::string magic(4, '\0');
    bytes(magic.data(), magic.size());
    if (magic != detail::gguf_magic) fail("it is no GGUF file");
    if (const auto version = number<std::uint32_t>(); version != detail::gguf_version)
      fail(fmt::format("it has version {}: version {} is supported", version, detail::gguf_version));
    // Smallest sizes in bytes. Tensor: length of the name 8, axes 4, type 4, offset 8. Key: length of the
    // name 8, type 4.
    const std::uint64_t tensors = count(24), keys = count(12);
    std::set<std::string> seen;
    for (std::uint64_t i = 0; i < keys; ++i) {
      std::string key = text();
      if (!seen.insert(key).second) fail(fmt::format("the key '{}' is there twice", key));
      model.metadata.emplace_back(key, value(key));
    }
    std::vector<std::int64_t> offsets;
    for (std::uint64_t i = 0; i < tensors; ++i) model.tensors.push_back(entry(offsets));
    read_data(model, offsets);
    return model;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw FileError(file_.path(), {}, fmt::format("[load_gguf] {}: {}", file_.path(), why));
  }
  void bytes(void* to, std::size_t size) {
    if (static_cast<std::uint64_t>(file_.size() - at_) < size) fail("it ends too early");
    file_.read(at_, to, size);
    at_ += static_cast<std::int64_t>(size);
  }
  template <class T>
  T number() {
    T out{};
    bytes(&out, sizeof out);
    return out;
  }
  // Reads a count of elements of at least `least` bytes each. A larger count than the file can hold is an
  // error, so that the size of the file limits the allocated memory.
  std::uint64_t count(std::uint64_t least) {
    const auto out = number<std::uint64_t>();
    if (out > static_cast<std::uint64_t>(file_.size()) / least)
      fail(fmt::format("{} entries do not fit its {} bytes", out, file_.size()));
    return out;
  }
  std::string text() {
    const auto size = count(1);
    if (size > kLongestText) fail(fmt::format("a text of {} bytes", size));
    std::string out(size, '\0');
    bytes(out.data(), out.size());
    return out;
  }
  GgufKind kind(const std::string& key) {
    const auto number_of_kind = number<std::uint32_t>();
    // The numbers of GgufKind are contiguous from 0.
    if (number_of_kind > static_cast<std::uint32_t>(GgufKind::f64))
      fail(fmt::format("'{}' has the unknown type {}", key, number_of_kind));
    return static_cast<GgufKind>(number_of_kind);
  }

  GgufValue value(const std::string& key) {
    switch (const GgufKind of = kind(key)) {
      case GgufKind::u8:
        return std::uint32_t{number<std::uint8_t>()};
      case GgufKind::i8:
        return std::int32_t{number<std::int8_t>()};
      case GgufKind::u16:
        return std::uint32_t{number<std::uint16_t>()};
      case GgufKind::i16:
        return std::int32_t{number<std::int16_t>()};
      case GgufKind::u32:
        return number<std::uint32_t>();
      case GgufKind::i32:
        return number<std::int32_t>();
      case GgufKind::f32:
        return number<float>();
      case GgufKind::boolean:
        return number<std::uint8_t>() != 0;
      case GgufKind::text:
        return text();
      case GgufKind::u64:
        return number<std::uint64_t>();
      case GgufKind::i64:
        return number<std::int64_t>();
      case GgufKind::f64:
        return number<double>();
      case GgufKind::array:
        (void)of;
        return list(key);
    }
    fail("it is damaged");
  }
  GgufValue list(const std::string& key) {
    switch (const GgufKind of = kind(key)) {
      case GgufKind::i32:
        return values<std::int32_t>();
      case GgufKind::f32:
        return values<float>();
      case GgufKind::text: {
        std::vector<std::string> out;
        // Each text has at least the 8 bytes of its length.
        for (auto left = count(8); left > 0; --left) out.push_back(text());
        return out;
      }
      default:
        fail(fmt::format("'{}' is a list of type {}: lists of i32, f32 and texts are supported", key,
                         static_cast<std::uint32_t>(of)));
    }
  }
  template <class T>
  std::vector<T> values() {
    std::vector<T> out(count(sizeof(T)));
    bytes(out.data(), out.size() * sizeof(T));
    return out;
  }

  GgufTensor entry(std::vector<std::int64_t>& offsets) {
    GgufTensor out;
    out.name = text();
    const auto axes = number<std::uint32_t>();
    if (axes > detail::gguf_most_axes) fail(fmt::format("'{}' has {} axes", out.name, axes));
    for (std::uint32_t i = 0; i < axes; ++i) {
      const auto size = number<std::uint64_t>();
      // The file has the innermost axis first.
      if (size == 0 || size > (std::uint64_t{1} << 40))
        fail(fmt::format("'{}' has an axis of {}", out.name, size));
      out.shape.insert(out.shape.begin(), static_cast<std::int64_t>(size));
    }
    const auto type = number<std::uint32_t>();
    out.type = static_cast<GgufType>(type);
    constexpr GgufType known[] = {GgufType::f32, GgufType::f16, GgufType::q4_0, GgufType::q8_0};
    if (std::ranges::find(known, out.type) == std::end(known))
      fail(fmt::format("'{}' is of type {}: F32, F16, Q4_0 and Q8_0 are supported", out.name, type));
    const auto block = detail::gguf_block(out.type);
    if (block.elements > 1 && (axes == 0 || out.shape.back() % block.elements != 0))
      fail(fmt::format("'{}' is {} of {}, which is not a multiple of the block size", out.name,
                       name(out.type), to_string(out.shape)));
    // Offsets count from the beginning of the data, which follows the last entry.
    const auto offset = number<std::uint64_t>();
    if (offset % static_cast<std::uint64_t>(detail::gguf_alignment) != 0 ||
        offset > static_cast<std::uint64_t>(file_.size()))
      fail(fmt::format("'{}' begins at {}", out.name, offset));
    offsets.push_back(static_cast<std::int64_t>(offset));
    return out;
  }

  void read_data(GgufModel& model, const std::vector<std::int64_t>& offsets) {
    if (const auto* given = model.value("general.alignment"))
      if (const auto* size = std::get_if<std::uint32_t>(given); size == nullptr || *size != 32)
        fail("general.alignment is other than 32");
    // The data begins at the first multiple of the alignment after the entries.
    const std::int64_t data =
        (at_ + detail::gguf_alignment - 1) / detail::gguf_alignment * detail::gguf_alignment;
    std::set<std::string> seen;
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      GgufTensor& t = model.tensors[i];
      if (!seen.insert(t.name).second) fail(fmt::format("the tensor '{}' is there twice", t.name));
      const auto block = detail::gguf_block(t.type);
      // Four axes of up to 2^40 elements overflow int64 but not double.
      double size = static_cast<double>(block.bytes) / static_cast<double>(block.elements);
      for (const auto axis : t.shape) size *= static_cast<double>(axis);
      if (size > static_cast<double>(file_.size() - data - offsets[i]))
        fail(fmt::format("'{}' does not fit: the file was cut, or is damaged", t.name));
      t.data = Tensor::empty(detail::gguf_data_shape(t.type, t.shape), detail::gguf_dtype(t.type));
      file_.read(data + offsets[i], t.data.mutable_raw(), static_cast<std::size_t>(t.data.nbytes()));
    }
  }

  detail::FileReader file_;
  std::int64_t at_ = 0;
};

}  // namespace

const GgufValue* GgufModel::value(std::string_view key) const noexcept {
  const auto found =
      std::ranges::find(metadata, key, [](const auto& entry) -> std::string_view { return entry.first; });
  return found == metadata.end() ? nullptr : &found->second;
}

const GgufTensor* GgufModel::tensor(std::string_view name) const noexcept {
  const auto found =
      std::ranges::find(tensors, name, [](const auto& t) -> std::string_view { return t.name; });
  return found == tensors.end() ? nullptr : &*found;
}

GgufModel load_gguf(const std::string& path) { return Reading(path).run(); }

}  // namespace fq
