// Each rule of rules.h refuses what it should, and lets the rest pass.
#include "tidy/rules.h"

#include <gtest/gtest.h>

#include <string>

namespace ff::tidy {
namespace {

const Layout kSample = {.floors = {{"platform/base", 0},
                                   {"platform/io", 1},
                                   {"platform/db", 1},
                                   {"storage/chunk", 0},
                                   {"training/task", 0},
                                   {"training/checkpoint", 0},
                                   {"ops/shim", 0}},
                        .uses = {{"platform", {}},
                                 {"storage", {"platform/"}},
                                 {"training", {"platform/"}},
                                 {"ops", {"platform/", "training/task/"}}}};

Findings check(Rule rule, std::string path, std::string text) {
  return rule({std::move(path), std::move(text)}, kSample);
}

TEST(TidyRule, Tables) {
  const Layout layout = parse_layout(
      "| group | may include |\n|---|---|\n| `platform/` | nothing |\n| `ops/` | `platform/`, "
      "`training/task/` |\n| 1 | `platform/io/` | x |\n| 0 | `platform/base/` | y |\n");
  EXPECT_EQ(layout.floors.size(), 2U);
  EXPECT_EQ(layout.floors.at("platform/io"), 1);
  EXPECT_TRUE(layout.uses.at("platform").empty());
  EXPECT_EQ(layout.uses.at("ops"), (std::set<std::string>{"platform/", "training/task/"}));
  EXPECT_EQ(table_matches({"platform/base", "platform/io"}, layout).size(), 0u);
  EXPECT_EQ(table_matches({"platform/base", "platform/io", "ops/x"}, layout).size(), 1u);
  EXPECT_EQ(table_matches({"platform/base"}, layout).size(), 1u);
  EXPECT_EQ(table_matches({"lab/x"}, {.floors = {{"lab/x", 0}}, .uses = {}}).size(), 1u);
}

TEST(TidyRule, FileCycles) {
  const Source one{"core/platform/io/a.h", "#include \"platform/io/b.h\"\n"};
  const Source two{"core/platform/io/b.cc", "#include \"platform/io/c.h\"\n"};
  const Source back{"core/platform/io/c.h", "#include \"platform/io/a.h\"\n"};
  const Source self{"core/platform/io/a.cc", "#include \"platform/io/a.h\"\n"};
  EXPECT_TRUE(FileGraph({one, two, self}).cycles().empty());
  EXPECT_EQ(FileGraph({one, two, back, self}).cycles().size(), 1u);
  const Source part{"core/platform/io/a_part.h", "#include \"platform/io/a.h\"\n"};
  const Source user{"core/platform/io/a.cc", "#include \"platform/io/a_part.h\"\n"};
  EXPECT_TRUE(FileGraph({one, part, user}).cycles().empty());
}

TEST(TidyRule, KnownKinds) {
  EXPECT_TRUE(
      known_kinds({"core/platform/io/a.cc", "core/platform/io/a.h", "tests/demo.sh"}).empty());
  EXPECT_EQ(
      known_kinds({"core/platform/io/a.cc.orig", "core/platform/io/a.h~", "core/platform/io/core"})
          .size(),
      3u);
}

TEST(TidyRule, Includes) {
  const auto good = [](const std::string& path, const std::string& header) {
    return check(includes, path, "#include \"" + header + "\"\n").empty();
  };
  EXPECT_TRUE(good("core/platform/io/a.cc", "platform/io/b.h"));
  EXPECT_TRUE(good("core/platform/io/a.cc", "platform/base/b.h"));
  EXPECT_TRUE(check(includes, "core/platform/io/a.cc", "#include <platform/db/x>\n").empty());
  EXPECT_TRUE(good("cmd/a.cc", "cmd/b.h"));
  EXPECT_TRUE(good("tests/e2e/a.cc", "cmd/b.h"));
  EXPECT_FALSE(good("core/platform/base/a.cc", "platform/io/b.h"));  // up
  EXPECT_FALSE(good("core/platform/io/a.cc", "platform/db/b.h"));    // sibling
  const std::string spaced = "  # include \"platform/db/b.h\" // why\n";
  EXPECT_FALSE(check(includes, "core/platform/io/a.cc", spaced).empty());
  // From a tower to the foundation, and to another tower only where the table says so.
  EXPECT_TRUE(good("core/storage/chunk/a.cc", "platform/db/b.h"));
  EXPECT_FALSE(good("core/platform/db/a.cc", "storage/chunk/b.h"));
  EXPECT_FALSE(good("core/training/checkpoint/a.cc", "storage/chunk/b.h"));
  EXPECT_TRUE(good("core/ops/shim/a.cc", "training/task/b.h"));
  EXPECT_FALSE(good("core/ops/shim/a.cc", "training/checkpoint/b.h"));
  EXPECT_FALSE(good("core/training/checkpoint/a.cc", "cmd/b.h"));
  EXPECT_FALSE(good("core/platform/io/a.cc", "b.h"));
  EXPECT_FALSE(good("core/platform/io/a.cc", "../db/b.h"));
  EXPECT_FALSE(check(includes, "core/platform/net/a.cc", "\n").empty());  // in no table
  EXPECT_FALSE(good("core/pch.h", "platform/base/b.h"));
}

TEST(TidyRule, Sizes) {
  std::string lines;
  for (int i = 0; i < 800; ++i) lines += "x\n";
  EXPECT_TRUE(check(sizes, "core/platform/io/a.cc", lines).empty());
  EXPECT_FALSE(check(sizes, "core/platform/io/a.cc", lines + "x\n").empty());
  EXPECT_TRUE(check(sizes, "a.cc", std::string(100, 'x')).empty());
  EXPECT_FALSE(check(sizes, "a.cc", std::string(101, 'x')).empty());
  EXPECT_TRUE(check(sizes, "a.cc", std::string(99, 'x') + "\u00e4").empty());  // 100 characters
}

TEST(TidyRule, PragmaOnce) {
  EXPECT_TRUE(check(pragma_once, "core/platform/io/a.h", "// x\n#pragma once\n").empty());
  EXPECT_FALSE(check(pragma_once, "core/platform/io/a.h", "// #pragma once\nint x;\n").empty());
}

TEST(TidyRule, Purpose) {
  const std::string comment = "// One two three four five six\n// seven eight.\n";
  EXPECT_TRUE(check(purpose, "core/platform/io/none.h", comment + "int x;\n").empty());
  EXPECT_FALSE(
      check(purpose, "core/platform/io/none.h", "// One two three four five.\nint x;\n").empty());
  EXPECT_FALSE(check(purpose, "core/platform/io/none.h", "#pragma once\n" + comment).empty());
  EXPECT_TRUE(check(purpose, "core/platform/base/clock.cc", "// The clocks of clock.h.\n").empty());
  EXPECT_FALSE(check(purpose, "core/platform/base/clock.cc", "// Clocks.\n").empty());
  EXPECT_FALSE(check(purpose, "bootstrap", "#!/bin/bash\n# Builds.\n").empty());
}

TEST(TidyRule, Functions) {
  const auto function = [](int body) {
    std::string text = "namespace a {\n\nint f(int x,\n      int y) {\n";
    for (int i = 0; i < body; ++i) text += i % 9 == 0 ? "\n#ifdef A\n" : "  g();\n";
    return text + "}\n\n}  // namespace a\n";
  };
  EXPECT_TRUE(check(functions, "core/platform/io/a.cc", function(50)).empty());
  EXPECT_FALSE(check(functions, "core/platform/io/a.cc", function(70)).empty());
  EXPECT_TRUE(check(functions, "core/platform/io/a.cc", function(50) + function(50)).empty());
}

TEST(TidyRule, Banned) {
  for (const std::string text :
       {"auto t = std::chrono::steady_clock::now();", "int x = rand();",
        "std::this_thread::sleep_for(1ms);", "clock_gettime(0, &t);", "std::random_device d;",
        "while (co_await event.wait()) {", "std::ranges::copy(from, to.begin());"}) {
    EXPECT_EQ(check(banned, "core/platform/io/a.cc", text).size(), 1u) << text;
  }
  EXPECT_FALSE(
      check(banned, "tests/platform/io/a.cc", "std::this_thread::sleep_for(1ms);").empty());
  EXPECT_TRUE(
      check(banned, "core/platform/base/a.cc", "std::this_thread::sleep_for(1ms);").empty());
  EXPECT_TRUE(check(banned, "core/platform/io/a.cc", "f();  // not rand()").empty());
  EXPECT_TRUE(check(banned, "core/platform/io/a.cc", "int operand(int);").empty());
}

TEST(TidyRule, Unfinished) {
  EXPECT_FALSE(check(unfinished, "core/platform/io/a.cc", "// TODO: finish").empty());
  EXPECT_FALSE(check(unfinished, "bootstrap", "# FIXME").empty());
  EXPECT_TRUE(check(unfinished, "core/platform/io/a.cc", "mkdtemp(\"a-XXXXXX\");").empty());
}

TEST(TidyRule, FileNames) {
  for (const std::string path :
       {"core/platform/io/utils.h", "core/common/a.h", "cmd/json_helper.cc",
        "core/training/checkpoint/manager.h", "core/platform/io/file_util.cc"}) {
    EXPECT_FALSE(check(file_names, path, "").empty()) << path;
  }
  EXPECT_TRUE(check(file_names, "core/storage/cluster/manager.h", "").empty());
  EXPECT_TRUE(check(file_names, "core/platform/io/files.h", "").empty());
}

TEST(TidyRule, DirectOpens) {
  for (const std::string text : {"int fd = ::open(path, flags);", "int fd = open(path, O_RDONLY);",
                                 "FILE* f = fopen(p, \"r\");", "std::ifstream in(path);",
                                 "std::filesystem::remove(path);", "openat(dir, name, flags);"}) {
    EXPECT_EQ(check(direct_opens, "core/training/checkpoint/a.cc", text).size(), 1u) << text;
    EXPECT_TRUE(check(direct_opens, "core/platform/io/a.cc", text).empty()) << text;
  }
  for (const std::string text :
       {"FF_TRY(auto file, disk.open(path, {}));", "Store::open(disk, path);",
        "static Result<Store> open(io::Disk& disk);"}) {
    EXPECT_TRUE(check(direct_opens, "core/training/checkpoint/a.cc", text).empty()) << text;
  }
}

TEST(TidyRule, AwaitedBraces) {
  const std::string await = "co_await ";
  EXPECT_FALSE(
      check(awaited_braces, "core/platform/io/a.cc", await + "f(Options{.x = 1});").empty());
  EXPECT_FALSE(
      check(awaited_braces, "core/platform/io/a.cc", "auto x = " + await + "f(a,\n {1});").empty());
  EXPECT_TRUE(check(awaited_braces, "core/platform/io/a.cc", await + "f(std::move(x));").empty());
  EXPECT_TRUE(
      check(awaited_braces, "core/platform/io/a.cc", "if (" + await + "f()) {\n  g();\n}").empty());
}

TEST(TidyRule, AwaitedDefaults) {
  const auto found = [](const std::string& text) {
    return !check(awaited_defaults, "core/platform/io/a.h", text).empty();
  };
  EXPECT_TRUE(found("Task<void> f(int a, Options b = {});\n"));
  EXPECT_TRUE(
      found("Task<Result<Peer>> f(Connection& a,\n                     Options b = Options());"));
  EXPECT_FALSE(found("Task<void> f(std::string b = {}, std::shared_ptr<int> c = nullptr);\n"));
  EXPECT_FALSE(found("Task<void> f(int a);\nstruct B {\n  Options c = {};\n};\n"));
  EXPECT_FALSE(found("void f(Options b = {});\n"));
}

TEST(TidyRule, SplitAwaits) {
  const auto found = [](const std::string& text) {
    return !check(split_awaits, "core/platform/io/a.cc", text).empty();
  };
  const std::string wait = "co_await ";
  EXPECT_TRUE(found("  auto reading = file.read(a, b);\n  " + wait + "std::move(reading);\n"));
  EXPECT_TRUE(found("  auto reading =\n      read(\"(;\", b);\n  auto x = " + wait +
                    "std::move(reading);\n"));
  EXPECT_TRUE(found("auto a = f();\nFF_CO_TRY(const auto x, " + wait + "std::move(a));\n"));
  EXPECT_TRUE(found("auto a = f();\nco_return " + wait + "std::move(a).shielded();\n"));
  EXPECT_FALSE(found("auto a = f({.x = 1});\n" + wait + "std::move(a);\n"));
  EXPECT_FALSE(found("auto a = b ? f() : g();\n" + wait + "std::move(a);\n"));
  EXPECT_FALSE(found("auto a = f();\nauto b = g();\n" + wait + "std::move(a);\n"));
  EXPECT_FALSE(found("auto a = f();\nkeep(x, " + wait + "std::move(a));\n"));
  EXPECT_FALSE(found("auto a = f();\nwhile (x) {\n  " + wait + "std::move(a);\n}\n"));
}

TEST(TidyRule, RetiredWords) {
  const auto retired = parse_retired(
      "| retired | today |\n|---|---|\n| `Bell` | `Futex` |\n| `obey` | `apply` |\n"
      "| `--mark` | `--label` |\n");
  ASSERT_EQ(retired.size(), 3u);
  const auto found = [&](const std::string& path, const std::string& text) {
    return !retired_words({path, text}, retired).empty();
  };
  EXPECT_TRUE(found("core/a/b/c.h", "class Bell {\n};\n"));
  EXPECT_TRUE(found("core/a/b/c.h", "using Bell = int;\n"));
  EXPECT_TRUE(found("core/a/b/c.cc", "void obey();\n"));
  EXPECT_TRUE(found("man/ff.1", ".B \"\\-\\-mark NAME\"\n"));
  EXPECT_FALSE(found("core/a/b/c.h", "// Bell Labs made it\nclass Bells {\n};\n"));
  EXPECT_FALSE(found("man/ff.1", "--marks\n"));
  EXPECT_FALSE(found("cmd/a.cc", ".alias(\"--mark\"); obeyed();\n"));
}

TEST(TidyRule, SharedTypes) {
  const Source first{"core/platform/io/a.h", "struct Thing {\n};\n"};
  const Source second{"core/platform/net/a.h", "class Thing : public Base {\n};\n"};
  const Source forward{"core/platform/net/b.h", "class Thing;\n  struct Thing {\n};\n"};
  EXPECT_EQ(shared_types({first, second}).size(), 1u);
  EXPECT_TRUE(shared_types({first, forward}).empty());
  EXPECT_TRUE(shared_types({first, {"core/platform/io/b.h", first.text}}).empty());
}

TEST(TidyRule, SharedNames) {
  const auto twice = [](const std::string& first, const std::string& second) {
    const auto source = [](const std::string& path, const std::string& text) {
      return Source{path, "namespace {\n" + text + "\n}  // namespace\n"};
    };
    return shared_names({source("core/platform/io/a.cc", first),
                         source("core/platform/io/b.cc", second),
                         source("core/platform/net/a.cc", first), source("tests/fuzz/a.cc", first),
                         source("tests/fuzz/b.cc", first)});
  };
  EXPECT_EQ(twice("constexpr size_t kPage = 4;", "constexpr int kPage = 5;  // bytes").size(), 1u);
  EXPECT_EQ(twice("struct Step {\n};", "enum class Step { a };").size(), 1u);
  EXPECT_EQ(twice("Result<void> check(int a) {\n}", "bool check(bool b) { return b; }").size(), 1u);
  EXPECT_EQ(twice("const char* const kAll[] = {\"a\"};", "constexpr int kAll[] = {1};").size(), 1u);
  const Source header{"core/platform/io/a.h", "constexpr size_t kPage = 1;\nstruct Step {\n};\n"};
  const auto hidden = [](const char* text) {
    return Source{"core/platform/io/b.cc",
                  fmt::format("namespace {{\n{}\n}}  // namespace\n", text)};
  };
  EXPECT_EQ(shared_names({hidden("constexpr int kPage = 2;"), header}).size(), 1u);
  EXPECT_EQ(shared_names({header, hidden("class Step {\n};")}).size(), 1u);
  EXPECT_TRUE(shared_names({header, hidden("constexpr int kSteps = 2;")}).empty());
  EXPECT_TRUE(twice("using Words = int;", "using Words = int;").empty());
  EXPECT_TRUE(twice("int a() {\n  int b = c(1);\n}", "int b() {\n  return c(2);\n}").empty());
}

TEST(TidyRule, TopLevelAndTestFolders) {
  EXPECT_TRUE(top_level({"cmd", "core", ".ci", ".gitignore", "build", "build-asan"}).empty());
  EXPECT_EQ(top_level({"scripts", "notes.txt", "buildx"}).size(), 3u);
  EXPECT_TRUE(test_folders({"platform/io", "fuzz", "e2e"}, kSample).empty());
  EXPECT_EQ(test_folders({"stuff"}, kSample).size(), 1u);
}

}  // namespace
}  // namespace ff::tidy
