#include "fakequant/core/io/detail/json_text.h"

#include <ctime>
#include <fstream>

#include <gmock/gmock.h>

#include "fakequant/core/error.h"
#include "thrown.h"

namespace fq::json_text_test {
namespace {

using detail::JsonText;
using detail::JsonValue;
using test::error_message;
using ::testing::HasSubstr;

std::string parse(const std::string& text) {
  return error_message([&] { const JsonText parsed(text, "test"); });
}

TEST(JsonText, RecordsTheLineOfEachValue) {
  const JsonText text("// first\n{\n  \"a\": [1,\n    22 // two\n    , {\"b/c\":\n true}],\n\"d\": -1.5\n}\n",
                      "test");
  EXPECT_EQ(text.line(""), 2);
  EXPECT_EQ(text.line("/a"), 3);
  EXPECT_EQ(text.line("/a/0"), 3);
  EXPECT_EQ(text.line("/a/1"), 4);
  EXPECT_EQ(text.line("/a/2"), 5);
  EXPECT_EQ(text.line("/a/2/b~1c"), 5);
  EXPECT_EQ(text.line("/d"), 7);
  EXPECT_EQ(text.line("/a/9/x"), 3);  // the nearest around it
}

TEST(JsonText, ValuesMatchTheParser) {
  const std::string source = R"({"b": [1, -2, 3.5, "x\n", null, true], "a": {"z": {}, "y": []}})";
  EXPECT_EQ(JsonText(source, "test").value(), nlohmann::ordered_json::parse(source));
}

// Reference implementation: walks over the value and counts lines.
TEST(JsonText, LinesMatchAFullScan) {
  std::string text = "{\"first\": 0";
  std::vector<std::string> pointers{"/first"};
  for (int i = 0; i < 40; ++i) {
    const std::string key = "k~/" + std::to_string(i), token = "/k~0~1" + std::to_string(i);
    text += ",\n\"" + key + "\": {\"" + key + "\": [1, [],\n{\"x\": {}}], // { [ \"\n \"first\": null}";
    pointers.insert(pointers.end(), {token, token + token + "/2/x", token + "/first"});
  }
  const JsonText parsed(text + "}", "test");
  int line = 1;
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    if (i > 0) ++line;
    EXPECT_EQ(parsed.line(pointers[i]), line) << pointers[i];
    EXPECT_EQ(parsed.line(pointers[i] + "/none/0"), line) << pointers[i];
  }
  EXPECT_EQ(parsed.line("/none"), 1);
}

// Kinds of long texts: each may take about ten times as long as one long string, not minutes.
TEST(JsonText, TakesLinearTime) {
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  const auto seconds = [](const std::string& text) {
    const auto start = std::clock();
    (void)JsonText(text, "test").line("/none");
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  };
  const auto make_list = [&](const std::string& item) {
    std::string text = "[" + item;
    while (text.size() < kBytes) text += "," + item;
    return text + "]";
  };
  std::string object = "{\"k\": 0";
  for (int i = 0; i < 9999; ++i) object += ",\"" + std::to_string(i) + "\":0";
  const double one = seconds("[\"" + std::string(kBytes, 'x') + "\"]");
  for (const auto& item :
       {std::string("1"), std::string("{}"), std::string(R"({"a":{"b":[0]}})"), object + "}"})
    EXPECT_LT(seconds(make_list(item)), 20 * one + 0.5) << item.substr(0, 20);
}

TEST(JsonText, RejectsInvalidJson) {
  EXPECT_THAT(parse("{\n\"a\": 1,\n}"), HasSubstr("[test] line 3: "));
  EXPECT_THAT(parse(""), HasSubstr("[test] line 1: "));
  EXPECT_THAT(parse("[1]\n x"), HasSubstr("line 2"));
  EXPECT_THAT(parse("[1e999]"), HasSubstr("number overflow"));
  EXPECT_THAT(parse("{\"a\": 1,\n\"a\": 2}"), HasSubstr("line 2: the key 'a' is given twice"));
  EXPECT_THAT(parse("[\"\xff\"]"), HasSubstr("line 1"));
}

TEST(JsonText, EnforcesLimits) {
  EXPECT_THAT(parse(std::string(1000, '[')), HasSubstr("more than 64 levels of nesting"));
  EXPECT_THAT(parse(std::string((16 << 20) + 1, ' ')), HasSubstr("larger than 16 MiB"));
  std::string keys = "{\"k\": 0";
  for (int i = 0; i < 10000; ++i) keys += ", \"k" + std::to_string(i) + "\": 0";
  EXPECT_THAT(parse(keys + "}"), HasSubstr("more than 10000 keys"));
}

TEST(JsonText, ErrorsNameTheFile) {
  EXPECT_THAT(error_message<FileError>([] { (void)JsonText::load("none.json", "test"); }),
              HasSubstr("there is no file 'none.json'"));
  const std::string path = ::testing::TempDir() + "json_text_test.json";
  std::ofstream(path) << "\n[1,]";
  EXPECT_THAT(error_message<FileError>([&] { (void)JsonText::load(path, "test"); }),
              HasSubstr(path + ":2: "));
}

TEST(JsonValue, ReadersCheckTypes) {
  const JsonText text(R"({"n": 3, "x": 1.5, "big": 18446744073709551615, "s": "rel6", "l": [1], "b": true})",
                      "test");
  const JsonValue root(text);
  EXPECT_EQ(root.at("n").integer(1, 3), 3);
  EXPECT_EQ(root.at("n").number(0, 5), 3.0);
  EXPECT_TRUE(root.at("b").boolean());
  const auto message = [&](auto read) { return error_message([&] { read(); }); };
  EXPECT_THAT(message([&] { (void)root.at("n").integer(4, 9); }),
              HasSubstr("'n': 3 is not a whole number from 4 to 9"));
  EXPECT_THAT(message([&] { (void)root.at("x").integer(); }), HasSubstr("1.5 is not a whole number"));
  EXPECT_THAT(message([&] { (void)root.at("big").integer(); }), HasSubstr("is not a whole number"));
  EXPECT_THAT(message([&] { (void)root.at("l").string(); }), HasSubstr("a list is not a text"));
  EXPECT_THAT(message([&] {
                (void)root.at("s").choice({"gelu", "relu6"});
              }),
              HasSubstr("did you mean 'relu6'?"));
  EXPECT_THAT(message([&] { (void)root.at("none"); }), HasSubstr("the key 'none' is missing"));
  EXPECT_THAT(message([&] {
                root.expect_keys({"n", "x", "big", "s", "l"}, "of this");
              }),
              HasSubstr("unknown key 'b' of this"));
}

TEST(JsonText, RejectsIntegersOutOfRange) {
  using Json = nlohmann::json;
  EXPECT_EQ(detail::whole_value<int>(Json(-3)), -3);
  EXPECT_EQ(detail::whole_value<std::uint64_t>(Json(~std::uint64_t{0})), ~std::uint64_t{0});
  EXPECT_EQ(detail::whole_values<std::int64_t>(Json{1, 8, 8}), (std::vector<std::int64_t>{1, 8, 8}));
  for (const char* text :
       {"8e+30", "8.0", "-0.5", "4294967304", "-2147483649", "true", "null", "\"8\"", "[8]"})
    EXPECT_THROW((void)detail::whole_value<int>(Json::parse(text)), ArgumentError) << text;
  EXPECT_THROW((void)detail::whole_value<std::int64_t>(Json(~std::uint64_t{0})), ArgumentError);
  EXPECT_THROW((void)detail::whole_values<int>(Json(8)), ArgumentError);
}

}  // namespace
}  // namespace fq::json_text_test
