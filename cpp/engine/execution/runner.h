#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/execution/executor.h"
#include "engine/execution/flight.h"

namespace sirtaki {

/// Keeps batches under way: one in each track of the backend, in the order in which they came. Only
/// the driver calls it.
class Runner {
 public:
  /// What happens to batches, in the driver.
  struct Events {
    std::function<void(Flight&)> begun;
    /// One that had waited longer than polling takes goes on.
    std::function<void(Flight&)> goes_on;
    /// With the error that all members have found, if there is one.
    std::function<void(Flight&, const std::optional<Error>&)> done;
    /// The last batch's turn has come.
    std::function<void()> closed;
  };

  Runner(Executor& executor, Events events) : executor_(executor), events_(std::move(events)) {}

  void add(Batch batch) {
    queue_.push_back(std::move(batch));
    held_up_ = false;  // its track may be free
  }

  /// Nothing is left to do.
  bool idle() const { return queue_.empty() && flights_.empty(); }
  /// Begins what can begin and goes on with what can go on; false if that was nothing. Throws what
  /// ends the world.
  bool advance();
  /// Whether `advance` would get something further.
  bool is_ready();
  /// Adds what is waited for.
  void prepare(Sleep& sleep) const;
  /// Drops everything, in the middle or not begun, and returns it.
  std::vector<Item> drop();

  /// What is under way, the oldest first.
  const std::vector<std::unique_ptr<Flight>>& flights() const { return flights_; }

 private:
  bool begin_some();
  bool may_begin(int track, const std::vector<int>& held) const;
  void begin(Batch batch, int track);
  bool go_on(Flight& flight);
  void fail(Flight& flight, const Error& error);
  void remove(size_t index);

  Executor& executor_;
  Events events_;
  std::deque<Batch> queue_;  ///< not begun
  bool held_up_ = false;     ///< none of them can begin before something under way is done
  std::vector<std::unique_ptr<Flight>> flights_;
};

}  // namespace sirtaki
