#pragma once

namespace sirtaki::testing {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// The test suite of a case that takes ten seconds under a sanitizer, and less than one without.
inline constexpr const char* kSlowSanitized = kSanitized ? "slow" : "";

}  // namespace sirtaki::testing
