#include "pairs/matching.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace sirtaki {

template <class Kept, class Fits>
std::unique_ptr<Kept> Matching::take(Shelf<Kept>& shelf, typename Shelf<Kept>::iterator found,
                                     Fits fits) {
  if (found == shelf.end()) return nullptr;
  auto& list = found->second;
  const auto first =
      std::find_if(list.begin(), list.end(), [&](const auto& kept) { return fits(*kept); });
  if (first == list.end()) return nullptr;
  std::unique_ptr<Kept> taken = std::move(*first);
  list.erase(first);
  if (list.empty()) shelf.erase(found);
  return taken;
}

std::unique_ptr<Arrived> Matching::take_arrived(const Transfer& receive) {
  const auto label = arrived_.find({receive.communicator, receive.tag});
  return take(arrived_, label, [&](const Arrived& message) {
    return receive.peer == kAnySource || receive.peer == message.source;
  });
}

void Matching::post(std::unique_ptr<Transfer> receive) {
  auto& list = posted_[{receive->communicator, receive->tag}];
  list.push_back(std::move(receive));
}

std::unique_ptr<Transfer> Matching::take_posted(int source, int32_t communicator, int64_t tag) {
  return take(posted_, posted_.find({communicator, tag}), [&](const Transfer& receive) {
    return receive.peer == kAnySource || receive.peer == source;
  });
}

std::unique_ptr<Transfer> Matching::take_posted(const std::shared_ptr<void>& owner) {
  const auto fits = [&](const Transfer& receive) { return receive.owner == owner; };
  for (auto label = posted_.begin(); label != posted_.end(); ++label) {
    if (auto receive = take(posted_, label, fits)) return receive;
  }
  return nullptr;
}

void Matching::keep(std::unique_ptr<Arrived> message) {
  auto& list = arrived_[{message->communicator, message->tag}];
  list.push_back(std::move(message));
}

template <class Kept>
std::vector<std::unique_ptr<Kept>> Matching::drop(Shelf<Kept>& shelf,
                                                  std::optional<int32_t> communicator) {
  std::vector<std::unique_ptr<Kept>> dropped;
  for (auto it = shelf.begin(); it != shelf.end();) {
    if (communicator && it->first.communicator != *communicator) {
      ++it;
    } else {
      std::ranges::move(it->second, std::back_inserter(dropped));
      it = shelf.erase(it);
    }
  }
  return dropped;
}

template std::vector<std::unique_ptr<Transfer>> Matching::drop(Shelf<Transfer>&,
                                                               std::optional<int32_t>);
template std::vector<std::unique_ptr<Arrived>> Matching::drop(Shelf<Arrived>&,
                                                              std::optional<int32_t>);

}  // namespace sirtaki
