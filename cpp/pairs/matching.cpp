#include "pairs/matching.h"

#include <algorithm>
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

template <class Kept, class Wanted>
std::vector<std::unique_ptr<Kept>> Matching::drop(Shelf<Kept>& shelf, Wanted wanted) {
  std::vector<std::unique_ptr<Kept>> dropped;
  for (auto it = shelf.begin(); it != shelf.end();) {
    if (!wanted(it->first)) {
      ++it;
      continue;
    }
    for (auto& kept : it->second) dropped.push_back(std::move(kept));
    it = shelf.erase(it);
  }
  return dropped;
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

std::vector<std::unique_ptr<Transfer>> Matching::drop_posted() {
  return drop(posted_, [](const Label&) { return true; });
}
std::vector<std::unique_ptr<Transfer>> Matching::drop_posted(int32_t communicator) {
  return drop(posted_, [&](const Label& label) { return label.communicator == communicator; });
}
std::vector<std::unique_ptr<Arrived>> Matching::drop_arrived() {
  return drop(arrived_, [](const Label&) { return true; });
}
std::vector<std::unique_ptr<Arrived>> Matching::drop_arrived(int32_t communicator) {
  return drop(arrived_, [&](const Label& label) { return label.communicator == communicator; });
}

const Transfer* Matching::waiting() const {
  return posted_.empty() ? nullptr : posted_.begin()->second.front().get();
}

}  // namespace sirtaki
