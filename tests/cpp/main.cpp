// The test runner's entry, and what it says of a test that fails.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <iostream>
#include <string>

#include "doctest/doctest.h"

namespace {

/// Shows the command that runs a failed case alone.
class Alone : public doctest::IReporter {
 public:
  explicit Alone(const doctest::ContextOptions& options) : program_(options.binary_name.c_str()) {}

  void test_case_start(const doctest::TestCaseData& data) override { name_ = data.m_name; }
  void test_case_reenter(const doctest::TestCaseData& data) override { name_ = data.m_name; }
  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
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
