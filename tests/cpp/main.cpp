// The test runner's entry, what it prints of a test that fails, and the limit of each test.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <unistd.h>

#include <csignal>
#include <iostream>
#include <string>

#include "doctest/doctest.h"

namespace {

// The slowest takes two minutes on a busy machine.
constexpr unsigned kLimitSeconds = 900;

/// Shows the command that runs a failed case alone, and ends one that hangs.
class Alone : public doctest::IReporter {
 public:
  explicit Alone(const doctest::ContextOptions& options) : program_(options.binary_name.c_str()) {
    // The runner reports the case in which this signal arrives.
    std::signal(SIGALRM, [](int) { std::raise(SIGTERM); });
  }

  void test_case_start(const doctest::TestCaseData& data) override {
    name_ = data.m_name;
    alarm(kLimitSeconds);
  }
  void test_case_reenter(const doctest::TestCaseData& data) override { name_ = data.m_name; }
  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    alarm(0);
    if (!stats.testCaseSuccess) {
      std::cout << "to run it alone: " << program_ << " --test-case='" << name_ << "'\n";
    }
  }

  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}

 private:
  std::string program_;
  std::string name_;
};

}  // namespace

REGISTER_LISTENER("alone", 1, Alone);
