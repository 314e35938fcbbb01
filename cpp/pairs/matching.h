#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pairs/message.h"

namespace sirtaki {

/// A message that arrived before a receive wanted it.
struct Arrived : Header {
  int source;
  uint64_t number = 0;                  ///< of the messages from that rank
  std::unique_ptr<std::byte[]> data{};  ///< none if it was only offered

  bool offered() const { return note != Note::kEager; }
  /// Whether it is in the sender's shared heap.
  bool shown() const { return note == Note::kShow; }
};

/// The receives that wait for a message and the messages that wait for a receive. Each newcomer
/// takes the first match, so messages of one pair, communicator and tag never overtake each other.
class Matching {
 public:
  /// Removes and returns a message that fits the receive; null: none has arrived.
  std::unique_ptr<Arrived> take_arrived(const Transfer& receive) {
    return arrived_.take({receive.communicator, receive.tag}, [&](const Arrived& message) {
      return receive.peer == kAnySource || receive.peer == message.source;
    });
  }
  void post(std::unique_ptr<Transfer> receive) { posted_.put(std::move(receive)); }

  /// Removes and returns a receive that fits such a message; null: none waits for it.
  std::unique_ptr<Transfer> take_posted(int source, int32_t communicator, int64_t tag) {
    return posted_.take({communicator, tag}, [&](const Transfer& receive) {
      return receive.peer == kAnySource || receive.peer == source;
    });
  }
  void keep(std::unique_ptr<Arrived> message) { arrived_.put(std::move(message)); }

  /// A waiting receive that `fits`; null: there is none. Checks all of them.
  template <class Fits>
  const Transfer* find(Fits fits) const {
    return posted_.find(fits);
  }
  /// Removes and returns the receive of this owner; null: it does not wait here.
  std::unique_ptr<Transfer> take_posted(const std::shared_ptr<void>& owner) {
    const auto fits = [&](const Transfer& receive) { return receive.owner == owner; };
    const Transfer* const found = find(fits);
    return found == nullptr ? nullptr : posted_.take({found->communicator, found->tag}, fits);
  }

  /// Removes and returns what is kept, of one communicator or all, in no particular order.
  std::vector<std::unique_ptr<Transfer>> drop_posted(std::optional<int32_t> communicator = {}) {
    return posted_.drop(communicator);
  }
  std::vector<std::unique_ptr<Arrived>> drop_arrived(std::optional<int32_t> communicator = {}) {
    return arrived_.drop(communicator);
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

  /// Kept items by label; those of one label in their order.
  template <class Kept>
  class Shelf {
   public:
    void put(std::unique_ptr<Kept> kept) {
      const Label label{kept->communicator, kept->tag};
      if (spare_.empty()) return lists_[label].push_back(std::move(kept));
      spare_.key() = label;
      auto put = lists_.insert(std::move(spare_));
      spare_ = std::move(put.node);
      put.position->second.push_back(std::move(kept));
    }

    template <class Fits>
    std::unique_ptr<Kept> take(const Label& label, Fits fits) {
      const auto found = lists_.find(label);
      if (found == lists_.end()) return nullptr;
      auto& list = found->second;
      const auto first = std::ranges::find_if(list, [&](const auto& kept) { return fits(*kept); });
      if (first == list.end()) return nullptr;
      std::unique_ptr<Kept> taken = std::move(*first);
      list.erase(first);
      if (list.empty()) spare_ = lists_.extract(found);
      return taken;
    }

    template <class Fits>
    const Kept* find(Fits fits) const {
      for (const auto& [label, list] : lists_) {
        for (const auto& kept : list) {
          if (fits(*kept)) return kept.get();
        }
      }
      return nullptr;
    }

    std::vector<std::unique_ptr<Kept>> drop(std::optional<int32_t> communicator) {
      std::vector<std::unique_ptr<Kept>> dropped;
      for (auto it = lists_.begin(); it != lists_.end();) {
        if (communicator && it->first.communicator != *communicator) {
          ++it;
        } else {
          std::ranges::move(it->second, std::back_inserter(dropped));
          it = lists_.erase(it);
        }
      }
      return dropped;
    }

   private:
    using Lists = std::unordered_map<Label, std::deque<std::unique_ptr<Kept>>, Hash>;

    Lists lists_;
    typename Lists::node_type spare_;  ///< an empty list, which often saves an allocation
  };

  Shelf<Transfer> posted_;
  Shelf<Arrived> arrived_;
};

}  // namespace sirtaki
