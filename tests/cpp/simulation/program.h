#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"

// What the ranks of a simulated world do: a list that all of them go through.
namespace sirtaki::testing {

using Floats = std::vector<float>;

/// One operation of a set's members, or a message.
struct Planned {
  enum Kind { kCollective, kMessage } kind = kCollective;
  sirtaki::Kind operation = sirtaki::Kind::kBarrier;
  int number = 0;
  std::vector<int> ranks;  ///< the members; of a message who sends and who receives
  size_t set = 0;          ///< which of the program's sets
  size_t floats = 0;       ///< of each member; of a reducescatter, a row of each
  int root = 0;
  bool in_place = false;
  CodecId codec = CodecId::kNone;
  bool recurs = false;   ///< it has the name of all that are like it
  bool unnamed = false;  ///< and so matched by its order in the set

  bool concerns(int rank) const;
  std::string name() const;
  std::string text() const;
};

struct Program {
  std::vector<std::vector<int>> sets;  ///< the first is the world
  std::vector<Planned> list;
  size_t window = 1;  ///< so many of its operations a rank has under way

  static Program random(int size, std::mt19937_64& random);
};

/// One that a rank has begun.
class Begun {
 public:
  Begun(Engine& engine, const Planned& planned, int32_t set);

  bool done() const { return handle_->done(); }
  const std::optional<Error>& error() const { return handle_->error(); }
  /// What is wrong now that it is done; empty: nothing.
  std::string wrong() const;
  const Planned& planned() const { return planned_; }

 private:
  Floats input_of(int rank) const;
  Floats expected() const;
  Floats result() const;

  const Planned planned_;
  const int rank_;
  Floats in_;
  Floats out_;
  std::shared_ptr<Handle> handle_;
};

}  // namespace sirtaki::testing
