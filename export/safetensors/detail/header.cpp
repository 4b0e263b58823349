#include "fakequant/export/safetensors/detail/header.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include <fmt/format.h>

namespace fq::detail {
namespace {

using nlohmann::json;

constexpr std::size_t kMostAxes = 64;
constexpr std::size_t kMostMetadata = 65536;  // a short pair costs many times its text

/// Parses exactly the structure of a header, event by event. It stores no other data.
// A document of the whole JSON takes many times the length of its text, which a file may choose.
class HeaderReader : public json::json_sax_t {
 public:
  explicit HeaderReader(SafetensorsHeader& out) : out_(out) {}

  bool key(string_t& name) override {
    if (in_ == In::root) return begin_member(name);
    if (in_ == In::metadata) {
      key_ = std::move(name);
      if (out_.metadata.size() == kMostMetadata) bad("__metadata__ has more than {} texts", kMostMetadata);
      if (out_.metadata.contains(key_)) bad("'{}' is twice in __metadata__", key_);
      return true;
    }
    // JSON parsers disagree about repeated keys, so a file with one could be read in two ways.
    if (!fields_.insert(name).second) bad("'{}' has '{}' twice", entry().name, name);
    if (name != "dtype" && name != "shape" && name != "data_offsets")
      bad("'{}' has the key '{}': only dtype, shape and data_offsets are allowed", entry().name, name);
    key_ = std::move(name);
    return true;
  }
  // Members of the root are tensors, or the metadata if `metadata_` is set. Deeper objects are errors.
  bool start_object(std::size_t) override {
    if (in_ == In::start)
      in_ = In::root;
    else if (in_ == In::root && !metadata_)
      in_ = In::tensor;
    else if (in_ == In::root)
      in_ = In::metadata;
    else
      wrong();
    return true;
  }
  bool end_object() override {
    if (in_ == In::tensor && fields_.size() != 3)
      bad("'{}' needs dtype, shape and data_offsets", entry().name);
    if (in_ == In::tensor && offsets_.size() != 2) bad("data_offsets of '{}' are not two", entry().name);
    // The fields may come in any order, so the offsets are complete only here.
    if (in_ == In::tensor) std::tie(entry().begin, entry().end) = std::pair(offsets_[0], offsets_[1]);
    in_ = in_ == In::root ? In::end : In::root;
    return true;
  }
  bool start_array(std::size_t) override {
    if (in_ != In::tensor || key_ == "dtype") wrong();
    in_ = key_ == "shape" ? In::shape : In::offsets;
    return true;
  }
  bool end_array() override {
    in_ = In::tensor;
    return true;
  }
  bool string(string_t& text) override {
    if (in_ == In::metadata)
      out_.metadata.emplace(std::move(key_), std::move(text));
    else if (in_ == In::tensor && key_ == "dtype")
      entry().dtype = std::move(text);
    else
      wrong();
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (in_ != In::shape && in_ != In::offsets) wrong();
    // Numbers up to 2^62 fit int64, and so do their differences.
    if (value > std::uint64_t{1} << 62) bad("'{}' has a size or offset of {}", entry().name, value);
    auto& list = in_ == In::shape ? entry().shape : offsets_;
    if (list.size() == kMostAxes) bad("'{}' has more than {} sizes", entry().name, kMostAxes);
    list.push_back(static_cast<std::int64_t>(value));
    return true;
  }
  bool null() override { return wrong(); }
  bool boolean(bool) override { return wrong(); }
  bool number_integer(number_integer_t) override { return wrong(); }
  bool number_float(number_float_t, const string_t&) override { return wrong(); }
  bool binary(binary_t&) override { return wrong(); }
  bool parse_error(std::size_t position, const std::string&, const json::exception&) override {
    bad("it is not JSON at byte {}", position);
  }

 private:
  enum class In : unsigned char { start, root, metadata, tensor, shape, offsets, end };

  template <class... Args>
  [[noreturn]] static void bad(fmt::format_string<Args...> text, Args&&... args) {
    throw BadHeader(fmt::format(text, std::forward<Args>(args)...));
  }
  // Events return bool, so they can return this call.
  [[noreturn]] bool wrong() const {
    if (out_.entries.empty()) bad("it is not an object of tensors");
    bad("a value in or after '{}' has the wrong type", entry().name);
  }
  SafetensorsEntry& entry() const { return out_.entries.back(); }

  bool begin_member(string_t& name) {
    metadata_ = name == "__metadata__";
    if (metadata_ && std::exchange(had_metadata_, true)) bad("__metadata__ is there twice");
    if (metadata_) return true;
    fields_.clear();
    offsets_.clear();
    out_.entries.push_back({std::move(name), {}, {}});
    return true;
  }

  SafetensorsHeader& out_;
  In in_ = In::start;
  bool metadata_ = false, had_metadata_ = false;
  std::string key_;
  std::set<std::string> fields_;
  Shape offsets_;
};

/// Returns -1 if the number of bytes is not an integer or overflows.
std::int64_t entry_bytes(const SafetensorsEntry& entry, int bits) {
  std::int64_t all = bits;
  for (const auto size : entry.shape)
    if (__builtin_mul_overflow(all, size, &all)) return -1;
  return all % 8 == 0 ? all / 8 : -1;
}

void check_entry(const SafetensorsEntry& e) {
  const SafetensorsType* type = safetensors_type(e.dtype);
  if (type == nullptr) throw BadHeader(fmt::format("'{}' is of the unknown type '{}'", e.name, e.dtype));
  if (e.begin > e.end || e.end - e.begin != entry_bytes(e, type->bits))
    throw BadHeader(fmt::format("'{}' of {} {} has the bytes {} to {}, which do not fit", e.name, e.dtype,
                                to_string(e.shape), e.begin, e.end));
}

void check_names(const std::vector<SafetensorsEntry>& entries) {
  std::set<std::string_view> names;
  for (const auto& entry : entries)
    if (!names.insert(entry.name).second) throw BadHeader(fmt::format("'{}' is there twice", entry.name));
}

// entries: sorted by `begin`. A gap could hide data, and an overlap would make two tensors share bytes.
void check_cover(const std::vector<SafetensorsEntry>& entries, std::int64_t data_bytes) {
  std::int64_t end = 0;
  for (const auto& entry : entries) {
    if (entry.begin != end)
      throw BadHeader(fmt::format("'{}' begins at byte {}, the tensor before it ends at {}", entry.name,
                                  entry.begin, end));
    end = entry.end;
  }
  if (end != data_bytes)
    throw BadHeader(fmt::format("the tensors take {} bytes, the file has {} for them", end, data_bytes));
}

// In the order of the reference's enum `Dtype`. Its writer sorts tensors by this order.
constexpr auto kSafetensorsTypes = std::to_array<SafetensorsType>({
    {"BOOL", 8, {}},
    {"F4", 4, DType::f4_e2m1},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"U8", 8, DType::u8},
    {"I8", 8, DType::i8},
    {"F8_E5M2", 8, DType::f8_e5m2},
    {"F8_E4M3", 8, DType::f8_e4m3},
    {"F8_E8M0", 8, DType::f8_e8m0},
    {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},
    {"I16", 16, DType::i16},
    {"U16", 16, DType::u16},
    {"F16", 16, DType::f16},
    {"BF16", 16, DType::bf16},
    {"I32", 32, DType::i32},
    {"U32", 32, {}},
    {"F32", 32, DType::f32},
    {"C64", 64, {}},
    {"F64", 64, DType::f64},
    {"I64", 64, DType::i64},
    {"U64", 64, {}},
});

constexpr auto ranked() {
  auto types = kSafetensorsTypes;
  for (std::size_t i = 0; i < types.size(); ++i) types[i].rank = static_cast<int>(i);
  return types;
}
constexpr auto kRanked = ranked();

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, std::int64_t data_bytes) {
  // The format requires the brace as the first byte. The parser alone would accept spaces before it.
  if (!text.starts_with('{')) throw BadHeader("it does not begin with '{'");
  SafetensorsHeader out;
  HeaderReader reader(out);
  json::sax_parse(text.begin(), text.end(), &reader);
  check_names(out.entries);
  for (const auto& entry : out.entries) check_entry(entry);
  // The header may list tensors in any order. An empty tensor comes before the tensor at the same offset.
  std::ranges::sort(out.entries, {}, [](const auto& e) { return std::pair(e.begin, e.end); });
  check_cover(out.entries, data_bytes);
  return out;
}

const SafetensorsType* safetensors_type(std::string_view name) noexcept {
  for (const auto& type : kRanked)
    if (type.name == name) return &type;
  return nullptr;
}

const SafetensorsType* safetensors_type(DType dtype) noexcept {
  for (const auto& type : kRanked)
    if (type.dtype == dtype) return &type;
  return nullptr;
}

}  // namespace fq::detail
