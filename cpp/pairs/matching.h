#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "pairs/message.h"

namespace sirtaki {

/// A message that came before somebody wanted it.
struct Arrived {
  int source;
  int32_t communicator;
  int64_t tag;
  uint64_t bytes;
  std::unique_ptr<std::byte[]> data{};  ///< none if it was only offered
  bool offered = false;
  uint64_t key = 0;
  bool shown = false;  ///< in the sender's shared heap
  uint64_t address = 0;
};

/// The receives that wait for a message and the messages that wait for a receive. Whichever comes
/// takes the first that fits, so messages of one pair, communicator and tag overtake nobody.
class Matching {
 public:
  /// A message that fits the receive, no longer kept here; null: none has come.
  std::unique_ptr<Arrived> take_arrived(const Transfer& receive);
  void post(std::unique_ptr<Transfer> receive);

  /// A receive that fits such a message, no longer kept here; null: nobody waits for it.
  std::unique_ptr<Transfer> take_posted(int source, int32_t communicator, int64_t tag);
  void keep(std::unique_ptr<Arrived> message);

  /// The receive of this owner; null: it does not wait here. Looks at all of them.
  std::unique_ptr<Transfer> take_posted(const std::shared_ptr<void>& owner);

  /// What is kept, of one communicator or all, in no particular order.
  std::vector<std::unique_ptr<Transfer>> drop_posted(std::optional<int32_t> communicator = {}) {
    return drop(posted_, communicator);
  }
  std::vector<std::unique_ptr<Arrived>> drop_arrived(std::optional<int32_t> communicator = {}) {
    return drop(arrived_, communicator);
  }

  /// A receive that waits and that `fits`; null: none.
  template <class Fits>
  const Transfer* find(Fits fits) const {
    for (const auto& [label, list] : posted_) {
      for (const auto& receive : list) {
        if (fits(*receive)) return receive.get();
      }
    }
    return nullptr;
  }
  /// Calls `visit` with every receive that waits.
  template <class Visit>
  void each_posted(Visit visit) const {
    for (const auto& [label, list] : posted_) {
      for (const auto& receive : list) visit(*receive);
    }
  }

 private:
  struct Label {
    int32_t communicator;
    int64_t tag;
    bool operator==(const Label&) const = default;
  };
  struct Hash {
    size_t operator()(const Label& label) const {
      const auto mixed = static_cast<uint64_t>(label.tag) * 0x9e3779b97f4a7c15u;
      return static_cast<size_t>(mixed ^ mixed >> 32 ^ static_cast<uint32_t>(label.communicator));
    }
  };
  template <class Kept>
  using Shelf = std::unordered_map<Label, std::list<std::unique_ptr<Kept>>, Hash>;

  template <class Kept, class Fits>
  static std::unique_ptr<Kept> take(Shelf<Kept>& shelf, typename Shelf<Kept>::iterator found,
                                    Fits fits);
  template <class Kept>
  static std::vector<std::unique_ptr<Kept>> drop(Shelf<Kept>& shelf,
                                                 std::optional<int32_t> communicator);

  Shelf<Transfer> posted_;
  Shelf<Arrived> arrived_;
};

}  // namespace sirtaki
