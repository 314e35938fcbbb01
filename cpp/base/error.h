#pragma once

#include <exception>
#include <memory>
#include <string>
#include <utility>

namespace sirtaki {

enum class ErrorCode { kInternal, kPeerLost, kTimeout, kMismatch, kInvalid };

/// Copies share the message, and may be in several threads. (Those of std::runtime_error do too,
/// but count their owners where a thread sanitizer does not see it.)
struct Error : std::exception {
  Error(ErrorCode error_code, std::string message)
      : code(error_code), text(std::make_shared<const std::string>(std::move(message))) {}

  const char* what() const noexcept override { return text->c_str(); }

  ErrorCode code;
  std::shared_ptr<const std::string> text;
};

/// A transport noticed that `rank` is gone; the engine adds who noticed and during what.
struct PeerLost : Error {
  explicit PeerLost(int lost_rank)
      : Error(ErrorCode::kPeerLost, "lost rank " + std::to_string(lost_rank)), rank(lost_rank) {}

  int rank;
};

}  // namespace sirtaki
