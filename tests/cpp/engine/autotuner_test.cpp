#include "engine/sequencer/autotuner.h"

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "doctest/doctest.h"

namespace sirtaki {
namespace {

constexpr int64_t kMillisecond = 1'000'000;

/// Takes samples of two steps, none of them for warming up.
EngineOptions sampling() {
  EngineOptions options;
  options.autotune.enabled = true;
  options.autotune.warmup_samples = 0;
  options.autotune.steps_per_sample = 2;
  return options;
}

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

TEST_CASE("a sample lasts from the first time of an operation until it has returned so often") {
  EngineOptions options = sampling();
  options.autotune.max_samples = 1;
  options.autotune.log = "autotuner_test." + std::to_string(__LINE__) + ".csv";
  Autotuner tuner(options);
  tuner.record({"broadcast of parameters"}, 1'000'000, kMillisecond);
  tuner.record({"gradient"}, 1000, 500 * kMillisecond);
  tuner.record({"gradient"}, 3000, 501 * kMillisecond);
  CHECK_FALSE(tuner.done());
  tuner.record({"gradient"}, 1000, 502 * kMillisecond);
  CHECK(tuner.done());
  const std::vector<std::string> lines = lines_of(options.autotune.log);
  std::remove(options.autotune.log.c_str());
  REQUIRE(lines.size() > 1);
  CHECK(lines[1] == "96,128,2.000");
}

TEST_CASE("operations that only ever come once are no steps") {
  Autotuner tuner(sampling());
  for (int i = 0; i < 100; ++i) {
    CHECK_FALSE(tuner.record({std::to_string(i)}, 1000, i * kMillisecond));
  }
}

}  // namespace
}  // namespace sirtaki
