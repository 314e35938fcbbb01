#pragma once

#include <exception>
#include <memory>
#include <string>
#include <utility>

namespace sirtaki {

enum class ErrorCode { kInternal, kPeerLost, kTimeout, kMismatch, kInvalid };

/// The parties that an error affects.
enum class Scope {
  kCall,        ///< only the caller: no rank waits for its part
  kAllMembers,  ///< all members of an operation, before they have exchanged anything
  kWorld,       ///< peers may wait for this rank's part, so their world must end, too
};

/// Copies share the message, and several threads may hold them. (Copies of std::runtime_error share
/// it too, but count their owners where a thread sanitizer does not see it.)
struct Error : std::exception {
  Error(ErrorCode error_code, std::string message, Scope its_scope = Scope::kWorld)
      : code(error_code),
        scope(its_scope),
        text(std::make_shared<const std::string>(std::move(message))) {}

  /// The same error with its cause: what failed, then why, on a line each.
  Error because(const std::string& why) const {
    return {code, *text + "\n  because " + why, scope};
  }

  const char* what() const noexcept override { return text->c_str(); }

  ErrorCode code;
  Scope scope;
  std::shared_ptr<const std::string> text;
};

/// The caller's request is invalid.
inline Error invalid(std::string message) {
  return {ErrorCode::kInvalid, std::move(message), Scope::kCall};
}

/// A transport noticed that `rank` is gone; the engine adds who noticed it, and in which operation.
struct PeerLost : Error {
  explicit PeerLost(int lost_rank)
      : Error(ErrorCode::kPeerLost, "lost rank " + std::to_string(lost_rank)), rank(lost_rank) {}

  int rank;
};

}  // namespace sirtaki
