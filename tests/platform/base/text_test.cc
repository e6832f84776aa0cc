// Escaping for terminals and JSON, UTF-8, patterns and suggestions.
#include "platform/base/text.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "platform/base/rng.h"

namespace ff {
namespace {

using namespace std::string_view_literals;

std::string json(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

TEST(Text, PrintableEscapesControlsAndBrokenUtf8) {
  EXPECT_EQ(printable("model.layers.0"), "model.layers.0");
  EXPECT_EQ(printable("\x1b[31m\r\n\t\0\x7f"sv), "\\x1b[31m\\x0d\\x0a\\x09\\x00\\x7f");
  EXPECT_EQ(printable("grün 漢 🔥"), "grün 漢 🔥");
  EXPECT_EQ(printable("a\xff"
                      "b"),
            "a\\xffb");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m");                      // CSI as one character
  EXPECT_EQ(printable("\xe6\xbc"), "\\xe6\\xbc");  // cut in the middle
  EXPECT_EQ(printable(""), "");
}

TEST(Text, PrintableOfAnyBytesIsPrintable) {
  SeededRng rng(2);
  for (int i = 0; i < 2000; ++i) {
    SCOPED_TRACE(i);
    std::string bytes(rng.below(40), '\0');
    for (char& c : bytes) c = static_cast<char>(rng.next());
    const std::string out = printable(bytes);
    EXPECT_TRUE(valid_utf8(out));
    for (const char c : out) {
      EXPECT_GE(static_cast<unsigned char>(c), 0x20);
      EXPECT_NE(c, 0x7f);
    }
    EXPECT_EQ(printable(out), out);
  }
}

TEST(Text, JsonStrings) {
  EXPECT_EQ(json("plain"), R"("plain")");
  EXPECT_EQ(json("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(json("\n\t\r\x1b\0"sv), R"("\n\t\u000d\u001b\u0000")");
  EXPECT_EQ(json("</script>"), R"("\u003c/script>")");
  EXPECT_EQ(json("\x7f\xc2\x9b"), R"("\u007f\u009b")");
  EXPECT_EQ(json("a\xff\xfe"), "\"a\xef\xbf\xbd\xef\xbf\xbd\"");
  EXPECT_EQ(json("漢🔥"), "\"漢🔥\"");
  std::string out = "x:";
  append_json_string(out, "y");
  EXPECT_EQ(out, "x:\"y\"");
}

TEST(Text, ValidUtf8) {
  for (const auto text :
       {""sv, "a"sv, "\0"sv, "\xc2\x80"sv, "\xdf\xbf"sv, "\xe0\xa0\x80"sv, "\xed\x9f\xbf"sv,
        "\xee\x80\x80"sv, "\xf0\x90\x80\x80"sv, "\xf4\x8f\xbf\xbf"sv}) {
    EXPECT_TRUE(valid_utf8(text)) << printable(text);
  }
  for (const auto text :
       {"\x80"sv, "\xbf"sv, "\xc0\x80"sv, "\xc1\xbf"sv, "\xc2"sv, "\xc2\x41"sv, "\xe0\x9f\xbf"sv,
        "\xed\xa0\x80"sv, "\xed\xbf\xbf"sv, "\xe6\xbc"sv, "\xf0\x8f\xbf\xbf"sv,
        "\xf4\x90\x80\x80"sv, "\xf5\x80\x80\x80"sv, "\xff"sv, "ok\xf0\x9f\x94"sv}) {
    EXPECT_FALSE(valid_utf8(text)) << printable(text);
  }
}

TEST(Text, GlobMatches) {
  struct Case {
    const char* pattern;
    const char* name;
    bool match;
  };
  const Case cases[] = {
      {"", "", true},
      {"", "a", false},
      {"*", "", true},
      {"*", "a/b", true},
      {"**", "abc", true},
      {"a*c", "abc", true},
      {"a*c", "ac", true},
      {"a*c", "abd", false},
      {"a?c", "abc", true},
      {"a?c", "ac", false},
      {"?", "", false},
      {"*.bin", "x.bin", true},
      {"*.bin", "x.bin.y", false},
      {"*a*b*", "xxaxxbxx", true},
      {"*ab", "aab", true},
      {"[a-c]x", "bx", true},
      {"[a-c]x", "dx", false},
      {"[!a-c]x", "dx", true},
      {"[!a-c]x", "bx", false},
      {"[abc]", "b", true},
      {"[]x]", "]", true},
      {"[]x]", "x", true},
      {"[!]]", "]", false},
      {"[a-]", "-", true},
      {"[-a]", "-", true},
      {"[\\]]", "]", true},
      {"[\\!a]", "!", true},
      {"[ab", "[ab", true},
      {"[", "[", true},
      {"[ab", "a", false},
      {"\\*", "*", true},
      {"\\*", "a", false},
      {"a\\", "a\\", true},
      {"\\?x", "?x", true},
      {"layers.[0-9].*", "layers.7.w", true},
      {"layers.[0-9].*", "layers.17.w", false},
      {"*[0-9]", "step12", true},
      {"*\\", "x\\", true},
      {"ABC", "abc", false},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(glob_match(c.pattern, c.name), c.match) << c.pattern << " on " << c.name;
  }
}

TEST(Text, GlobTakesBoundedStepsOnHostilePatterns) {
  // A matcher with exponential time would never return from this one.
  std::string pattern;
  for (int i = 0; i < 50; ++i) pattern += "*a";
  EXPECT_FALSE(glob_match(pattern + "b", std::string(2000, 'a')));
}

TEST(Text, NearestSuggestsSlips) {
  const std::vector<std::string> names = {"save", "load", "verify", "forget", "prune", "ls"};
  EXPECT_EQ(nearest("svae", names), "save");      // swapped
  EXPECT_EQ(nearest("lod", names), "load");       // missing
  EXPECT_EQ(nearest("prunee", names), "prune");   // doubled
  EXPECT_EQ(nearest("verifi", names), "verify");  // wrong
  EXPECT_EQ(nearest("varefy", names), "verify");  // two of six
  EXPECT_EQ(nearest("vorefi", names), "");        // three of six
  EXPECT_EQ(nearest("save", names), "save");
  EXPECT_EQ(nearest("l", names), "ls");
  EXPECT_EQ(nearest("zzz", names), "");
  EXPECT_EQ(nearest("x", {}), "");
  EXPECT_EQ(nearest(std::string(100000, 's'), names), "");
  const std::vector<std::string> long_names = {std::string(100000, 's'), "sb", "sc"};
  EXPECT_EQ(nearest("sa", long_names), "sb");  // the first of equals
}

TEST(Text, OneWordOfAShell) {
  EXPECT_EQ(shell_quote(""), "''");
  EXPECT_EQ(shell_quote("a b$c\n\""), "'a b$c\n\"'");
  EXPECT_EQ(shell_quote("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_quote_if_needed("/a-b_c.d:1,2=@%+"), "/a-b_c.d:1,2=@%+");
  for (const char* const word : {"", "a b", "a^b", "~a", "a*", "#a", "a\nb", "\xc3\xa4"}) {
    EXPECT_EQ(shell_quote_if_needed(word), shell_quote(word));
  }
}

TEST(Text, ListsOfProcessors) {
  using List = std::vector<unsigned>;
  EXPECT_EQ(parse_cpu_list("0-3,8,10-11"), (List{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(parse_cpu_list("5"), List{5});
  EXPECT_EQ(parse_cpu_list("65535"), List{65'535});
  for (const char* const none :
       {"", ",", "1,", "3-1", "a", "1-b", "-1", "1-2-3", "65536", "0-4294967295", "0-65535,0"}) {
    EXPECT_TRUE(parse_cpu_list(none).empty()) << none;
  }
}

}  // namespace
}  // namespace ff
