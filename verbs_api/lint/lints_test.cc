#include "verbs_api/lint/lints.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace verbs_api::lint {
namespace {

Settings Parse(std::string_view text) {
  Settings settings;
  std::string wrong;
  EXPECT_TRUE(ParseSettings(text, &settings, &wrong)) << text << ": " << wrong;
  return settings;
}

TEST(LintsTest, NumbersAndNamesAreUnique) {
  std::set<int> numbers;
  std::set<std::string_view> names;
  for (const LintText& text : Lints()) {
    EXPECT_TRUE(numbers.insert(text.number).second) << text.number;
    EXPECT_TRUE(names.insert(text.name).second) << text.name;
    EXPECT_NE(text.name[0], '-');
  }
}

TEST(LintsTest, OffByDefault) {
  EXPECT_TRUE(Parse("").on.none());
  EXPECT_TRUE(Parse("0").on.none());
}

TEST(LintsTest, OneIsTheDefaultOnes) {
  const Settings settings = Parse("1");
  for (const LintText& text : Lints()) {
    EXPECT_EQ(settings.IsOn(text.lint), text.group == Group::kDefault)
        << text.name;
  }
}

TEST(LintsTest, Suppression) {
  for (const char* const text :
       {"-unsignaled", "1,-unsignaled", "-unsignaled,1"}) {
    const Settings settings = Parse(text);
    EXPECT_FALSE(settings.IsOn(Lint::kUnsignaled)) << text;
    EXPECT_TRUE(settings.IsOn(Lint::kUnpolled)) << text;
  }
  const Settings two = Parse("-timeout,-rnr-retry");
  EXPECT_FALSE(two.IsOn(Lint::kTimeout));
  EXPECT_FALSE(two.IsOn(Lint::kRnrRetry));
  EXPECT_TRUE(two.IsOn(Lint::kRnrTimer));
}

TEST(LintsTest, StrictAndNamed) {
  EXPECT_FALSE(Parse("1").IsOn(Lint::kBufferChanged));
  EXPECT_FALSE(Parse("strict").IsOn(Lint::kLeak));
  EXPECT_TRUE(Parse("strict").IsOn(Lint::kUnsignaled));
  const Settings strict = Parse("leak,strict,-buffer-changed");
  EXPECT_FALSE(strict.IsOn(Lint::kBufferChanged));
  EXPECT_TRUE(strict.IsOn(Lint::kUndefinedField));
  EXPECT_TRUE(strict.IsOn(Lint::kLeak));
}

TEST(LintsTest, AnUnknownNameIsReportedAndTheOthersApply) {
  Settings settings;
  std::string wrong;
  EXPECT_FALSE(ParseSettings("-unsignalled,-timeout", &settings, &wrong));
  EXPECT_EQ(wrong, "-unsignalled");
  EXPECT_FALSE(settings.IsOn(Lint::kTimeout));
  EXPECT_TRUE(settings.IsOn(Lint::kUnsignaled));
}

}  // namespace
}  // namespace verbs_api::lint
