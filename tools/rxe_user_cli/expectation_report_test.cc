#include "tools/rxe_user_cli/expectation_report.h"

#include <signal.h>

#include <string>

#include "gtest/gtest.h"

namespace rxe_user_cli {
namespace {

RunResult Sample() {
  RunResult result;
  result.program = "ib_write_bw";
  result.command = "rxe-user run --expect 'repeated == 0' -- ib_write_bw";
  result.folder = "/home/a b";
  result.begin = 1'700'000'000;
  result.duration = 1'234'567'890;
  result.host = "ci1";
  result.expectations = {
      {"wc(*) > 0", {Verdict::kTrue, "", ""}},
      {"repeated == 0",
       {Verdict::kFalse, "repeated is 3", "the first: PSN 2005"}},
      {"rx_calls < 5 and naks < 2",
       {Verdict::kNotKnown, "rx_calls is not known: x still runs", ""}}};
  return result;
}

TEST(ExpectationReport, Lines) {
  EXPECT_EQ(
      ResultAsLines(Sample()),
      "rxe-user run: expectation failed: repeated == 0: repeated is 3; the "
      "first: PSN 2005\n"
      "rxe-user run: expectation not known: rx_calls < 5 and naks < 2: "
      "rx_calls is not known: x still runs\n"
      "rxe-user run: to repeat it: cd '/home/a b' && rxe-user run --expect "
      "'repeated == 0' -- ib_write_bw\n");
  RunResult good = Sample();
  good.expectations.resize(1);
  EXPECT_TRUE(good.is_as_expected());
  EXPECT_EQ(ResultAsLines(good), "");
}

TEST(ExpectationReport, Tap) {
  EXPECT_EQ(ResultAsTap(Sample()),
            "TAP version 13\n"
            "1..4\n"
            "ok 1 - the program ends with status 0\n"
            "ok 2 - wc(*) > 0\n"
            "not ok 3 - repeated == 0\n"
            "  ---\n"
            "  message: \"repeated is 3\"\n"
            "  detail: \"the first: PSN 2005\"\n"
            "  ...\n"
            "not ok 4 - rx_calls < 5 and naks < 2\n"
            "  ---\n"
            "  message: \"not known: rx_calls is not known: x still runs\"\n"
            "  ...\n"
            "# to repeat it: cd '/home/a b' && rxe-user run --expect 'repeated "
            "== 0' -- ib_write_bw\n");
  RunResult killed = Sample();
  killed.expectations.clear();
  killed.wait_status = SIGTERM;
  EXPECT_TRUE(ResultAsTap(killed).starts_with(
      "TAP version 13\n1..1\nnot ok 1 - the program ends with status 0\n"
      "  ---\n  message: \"it ended with signal 15 (Terminated)\"\n  ...\n"));
}

TEST(ExpectationReport, JUnit) {
  EXPECT_EQ(
      ResultAsJUnit(Sample()),
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<testsuites>\n"
      "<testsuite name=\"rxe-user run ib_write_bw\" package=\"rxe-user\" "
      "id=\"0\" tests=\"4\" failures=\"1\" errors=\"1\" time=\"1.235\" "
      "timestamp=\"2023-11-14T22:13:20\" hostname=\"ci1\">\n"
      "<properties>\n"
      "<property name=\"command\" value=\"rxe-user run --expect &#39;repeated "
      "== 0&#39; -- ib_write_bw\"/>\n"
      "<property name=\"folder\" value=\"/home/a b\"/>\n"
      "</properties>\n"
      "<testcase classname=\"rxe-user.ib_write_bw\" name=\"the program ends "
      "with status 0\" time=\"1.235\"/>\n"
      "<testcase classname=\"rxe-user.ib_write_bw\" name=\"wc(*) &gt; 0\" "
      "time=\"0.000\"/>\n"
      "<testcase classname=\"rxe-user.ib_write_bw\" name=\"repeated == 0\" "
      "time=\"0.000\">\n"
      "<failure message=\"repeated is 3\" type=\"expectation failed\">the "
      "first: PSN 2005. To repeat it: cd &#39;/home/a b&#39; &amp;&amp; "
      "rxe-user run --expect &#39;repeated == 0&#39; -- ib_write_bw"
      "</failure>\n"
      "</testcase>\n"
      "<testcase classname=\"rxe-user.ib_write_bw\" name=\"rx_calls &lt; 5 and "
      "naks &lt; 2\" time=\"0.000\">\n"
      "<error message=\"rx_calls is not known: x still runs\" "
      "type=\"expectation not known\">To repeat it: cd &#39;/home/a b&#39; "
      "&amp;&amp; rxe-user run --expect &#39;repeated == 0&#39; -- ib_write_bw"
      "</error>\n"
      "</testcase>\n"
      "<system-out></system-out>\n"
      "<system-err></system-err>\n"
      "</testsuite>\n"
      "</testsuites>\n");
}

// No text in a program's name or argument can break a line or an element.
TEST(ExpectationReport, HostileText) {
  RunResult hostile = Sample();
  hostile.program = "a\n\"<&>]]>\x01\xff#";
  hostile.command =
      QuoteForShell({"rxe-user", "a\nb", "it's", "", "\xc3\xa4", "$x `y`"});
  hostile.expectations[1].second.first = hostile.program;
  hostile.expectations[1].first = "naks == 0\n# x";
  EXPECT_EQ(hostile.command,
            "rxe-user $'a\\x0ab' 'it'\\''s' '' '\xc3\xa4' '$x `y`'");
  const std::string xml = ResultAsJUnit(hostile);
  EXPECT_NE(xml.find("name=\"rxe-user run a?&quot;&lt;&amp;&gt;]]&gt;??#\""),
            std::string::npos)
      << xml;
  EXPECT_NE(ResultAsTap(hostile).find("not ok 3 - naks == 0?\\# x\n"),
            std::string::npos);
  for (const std::string& text :
       {xml, ResultAsTap(hostile), ResultAsLines(hostile)}) {
    EXPECT_EQ(text.find('\x01'), std::string::npos);
    EXPECT_EQ(text.find('\xff'), std::string::npos);
  }
}

}  // namespace
}  // namespace rxe_user_cli
