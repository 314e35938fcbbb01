#pragma once

#include <exception>
#include <memory>
#include <string>
#include <utility>

namespace sirtaki {

enum class ErrorCode { kInternal, kPeerLost, kTimeout, kMismatch, kInvalid };

/// Whom an error concerns.
enum class Scope {
  kCall,        ///< whoever made the call: nobody waits for its part
  kAllMembers,  ///< all members of an operation, before they have exchanged anything
  kWorld,       ///< peers may wait for this rank's part: their world must end, too
};

/// Copies share the message, and may be in several threads. (Those of std::runtime_error do too,
/// but count their owners where a thread sanitizer does not see it.)
struct Error : std::exception {
  Error(ErrorCode error_code, std::string message, Scope its_scope = Scope::kWorld)
      : code(error_code),
        scope(its_scope),
        text(std::make_shared<const std::string>(std::move(message))) {}

  /// The same with its cause: what failed, then why, a line each.
  Error because(const std::string& why) const {
    return {code, *text + "\n  because " + why, scope};
  }

  const char* what() const noexcept override { return text->c_str(); }

  ErrorCode code;
  Scope scope;
  std::shared_ptr<const std::string> text;
};

/// What a caller asks for cannot be.
inline Error invalid(std::string message) {
  return {ErrorCode::kInvalid, std::move(message), Scope::kCall};
}

/// A transport noticed that `rank` is gone; the engine adds who noticed and during what.
struct PeerLost : Error {
  explicit PeerLost(int lost_rank)
      : Error(ErrorCode::kPeerLost, "lost rank " + std::to_string(lost_rank)), rank(lost_rank) {}

  int rank;
};

}  // namespace sirtaki
