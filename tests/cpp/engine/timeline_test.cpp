#include "engine/observe/timeline.h"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "engine/execution/flight.h"
#include "requests.h"

namespace sirtaki {
namespace {

size_t tracks_named(const std::string& text, const std::string& name) {
  size_t count = 0;
  const std::string told = "\"args\": {\"name\": \"" + name + "\"}";
  for (size_t at = text.find(told); at != std::string::npos; at = text.find(told, at + 1)) ++count;
  return count;
}

TEST_CASE("a timeline remembers the tracks of names, but not those of operations without one") {
  const Log log("test", LogLevel::kError, false);
  const std::string path = "/tmp/sirtaki-timeline-" + std::to_string(getpid());
  {
    Timeline timeline(path, false, log);
    for (const std::string name : {"grad", ""}) {
      auto response = std::make_shared<Response>();
      response->base = testing::sum_of(name);
      std::vector<Item> items(1);
      items[0].response = response;
      items[0].ordinal = 7;
      for (int step = 0; step < 3; ++step) {
        timeline.negotiate_begin(response->base, 7);
        timeline.negotiate_end(response->base, 7);
        timeline.run_begin(items);
        timeline.run_end(items);
      }
    }
  }
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  unlink(path.c_str());
  CHECK(tracks_named(text, "grad") == 1);
  CHECK(tracks_named(text, "allreduce.noname.7") == 3);  // its place in memory was free
}

}  // namespace
}  // namespace sirtaki
