#include <cmath>
#include <limits>
#include <string>

#include "base/clock.h"
#include "base/decimal.h"
#include "doctest/doctest.h"

// Time limits of any length, and numbers as other programs read them.
namespace sirtaki {
namespace {

TEST_CASE("no time limit is so long that it wraps round, nor shorter than none") {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  CHECK(ns_of(1.5) == 1'500'000'000);
  for (const double huge : {1e9 + 1, 9.2e9, 1e19, 1e300, kInf}) CHECK(ns_of(huge) == kLongestNs);
  for (const double none : {0.0, -0.0, -1.0, -kInf, std::nan("")}) CHECK(ns_of(none) == 0);
  CHECK(kLongestNs < kForever / 4);
}

TEST_CASE("numbers are written as in the C locale") {
  CHECK(fixed_text(860023.25, 3) == "860023.250");
  CHECK(fixed_text(-0.5, 0) == "-0");
  CHECK(fixed_text(1e300, 1).size() == 303);
  CHECK(short_text(0.5) == "0.5");
  CHECK(short_text(128) == "128");
  CHECK(short_text(1234567) == "1.23457e+06");
}

}  // namespace
}  // namespace sirtaki
