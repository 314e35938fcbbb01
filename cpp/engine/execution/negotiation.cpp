#include "engine/execution/negotiation.h"

#include <algorithm>

#include "engine/requests/carried.h"
#include "engine/requests/checks.h"

namespace sirtaki {

// ---- Submissions of this rank ----

Entry& Negotiation::add(std::unique_ptr<Entry> entry) {
  const Request& asked = entry->request;
  if (asked.name.empty()) entry->ordinal = ordinals_[asked.set];
  std::unique_ptr<Entry>& place = entries_[match_key(asked, entry->ordinal)];
  if (place != nullptr) {
    throw invalid(describe(asked, entry->ordinal) +
                  ": a tensor with the same name as another tensor that is currently being "
                  "processed; give every operation in flight a name of its own, or wait for "
                  "the first");
  }
  if (asked.name.empty()) ++ordinals_[asked.set];
  place = std::move(entry);
  return *place;
}

std::string Negotiation::announcement(Entry& entry) const {
  if (const uint32_t id = id_of(entry.encoded); id != 0) {
    const size_t carried = waiting() == 1 ? response_of(id)->carried : 0;
    if (carried == 0) return message_of(Up::kReady, id);
    std::string message = message_of(Up::kCarry, id);
    append_numbers(message, entry, carried);
    entry.carried_as = id;
    return message;
  }
  std::string message = message_of(Up::kRequest);
  message.append(entry.encoded);
  return message;
}

void Negotiation::withdraw(const Entry& entry) {
  if (entry.request.name.empty()) --ordinals_[entry.request.set];
  entries_.erase(match_key(entry.request, entry.ordinal));
}

std::vector<std::unique_ptr<Entry>> Negotiation::drop() {
  std::vector<std::unique_ptr<Entry>> dropped;
  for (auto& [key, entry] : entries_) dropped.push_back(std::move(entry));
  entries_.clear();
  return dropped;
}

uint32_t Negotiation::id_of(const std::string& encoded) const {
  const auto found = ids_.find(encoded);
  return found == ids_.end() ? 0 : found->second;
}

// ---- Messages of the sequencer ----

void Negotiation::receive(std::string_view message) {
  Reader in(message);
  switch (in.get<Down>()) {
    case Down::kBatch:
      return receive_batch(in);
    case Down::kError:
      return receive_error(in);
    case Down::kFlush:
      return receive_flush();
    case Down::kTune:
      return listener_.receive_tune(in.get<int64_t>());
    case Down::kMeet:
      return listener_.receive_meet(in.get<int32_t>());
    case Down::kShutdown:
      return listener_.receive_shutdown(in.get<int32_t>());
    case Down::kTell:
      return listener_.receive_states(in);
    case Down::kOffer:
      return receive_offer(in);
  }
  throw Error(ErrorCode::kInternal, "unknown control message");
}

void Negotiation::receive_batch(Reader& in) {
  std::vector<Item> items;
  try {
    receive_items(in, items);
  } catch (...) {
    listener_.receive_batch(std::move(items));  // those before the wrong one must be failed, too
    throw;
  }
  listener_.receive_batch(std::move(items));
}

void Negotiation::receive_items(Reader& in, std::vector<Item>& items) {
  const auto count = in.get<uint32_t>();
  if (count == 0) throw Error(ErrorCode::kInternal, "a batch of nothing");
  for (uint32_t i = 0; i < count; ++i) {
    items.push_back(receive_item(in));
    const bool alone = !items[0].result.empty() || !items[i].result.empty();
    if (i > 0 && (alone || !can_fuse(items[0].response->base, items[i].response->base))) {
      throw Error(ErrorCode::kInternal, "a batch of operations that cannot be run as one");
    }
  }
}

Item Negotiation::receive_item(Reader& in) {
  Item item;
  const bool full = in.get<bool>();
  const auto id = in.get<uint32_t>();
  item.ordinal = in.get<uint64_t>();
  if (full) {
    const auto response = std::make_shared<Response>();
    in(*response);
    item.response = response;
    if (id != 0) known_[id] = item.response;
  } else {
    item.response = response_of(id);
  }
  item.result = in.get_string();
  const Request& base = item.response->base;
  follow_sets(base, item.ordinal);
  const std::string key = match_key(base, item.ordinal);
  drop_offer(key);
  auto node = entries_.extract(key);
  if (!node.empty()) item.entry = std::move(node.mapped());
  check(item);
  if (full && id != 0 && item.entry != nullptr) ids_[item.entry->encoded] = id;
  return item;
}

std::shared_ptr<const Response> Negotiation::response_of(uint32_t id) const {
  const auto found = known_.find(id);
  if (found != known_.end()) return found->second;
  throw Error(ErrorCode::kInternal, "no operation has the id " + std::to_string(id));
}

void Negotiation::follow_sets(const Request& base, uint64_t ordinal) {
  if (base.kind == Kind::kJoin) ordinals_[base.set] = std::max(ordinals_[base.set], ordinal);
  if (base.kind != Kind::kRemoveSet) return;
  ordinals_.erase(base.root);  // another set will have its number
  ids_.clear();
  offer_.reset();
}

// ---- Offers ----

void Negotiation::receive_offer(Reader& in) {
  Offer offer{};
  in(offer.id)(offer.ordinal)(offer.numbers);
  const Response& response = *response_of(offer.id);
  const Request& base = response.base;
  const bool for_two = sets_.contains(base.set) && sets_.ranks(base.set) == std::vector{0, rank_};
  if (!for_two || response.carried == 0 || offer.numbers.size() != response.carried) {
    throw Error(ErrorCode::kInternal, "rank 0 offers numbers that are of no use");
  }
  offer.key = match_key(base, offer.ordinal);
  offer_ = std::move(offer);
  use_offer();
}

void Negotiation::use_offer() {
  if (!offer_) return;
  const auto found = entries_.find(offer_->key);
  if (found == entries_.end() || found->second->carried_as != offer_->id) return;
  constexpr int kOnHosts[] = {1, 1};
  Item item;
  item.response = response_of(offer_->id);
  item.ordinal = offer_->ordinal;
  append_numbers(offer_->numbers, *found->second, item.response->carried);
  item.result = carried_sum(op_of(item.response->base, 2), kOnHosts, offer_->numbers);
  item.entry = std::move(found->second);
  entries_.erase(found);
  offer_.reset();
  std::vector<Item> items;
  items.push_back(std::move(item));
  listener_.receive_batch(std::move(items));
}

/// The operation is decided: later ones of its name are others.
void Negotiation::drop_offer(const std::string& key) {
  if (offer_ && offer_->key == key) offer_.reset();
}

void Negotiation::check(const Item& item) {
  const Request* own = item.entry != nullptr ? &item.entry->request : nullptr;
  std::string why = contradiction(*item.response, own, sets_, rank_);
  const size_t bytes = item.result.size();
  if (why.empty() && bytes > 0 && bytes != item.response->carried) {
    why = "its result has " + std::to_string(bytes) + " bytes";
  }
  if (why.empty()) return;
  const Error error(ErrorCode::kInternal, "cannot run " +
                                              describe(item.response->base, item.ordinal) +
                                              " as rank 0 has decided: " + why);
  if (own != nullptr) listener_.receive_refusal(*item.entry, error);
  throw error;
}

void Negotiation::receive_error(Reader& in) {
  const std::string key = in.get_string();
  drop_offer(key);
  const auto node = entries_.extract(key);
  const auto code = static_cast<ErrorCode>(in.get<uint8_t>());
  const std::string text = in.get_string();
  if (!node.empty())
    listener_.receive_refusal(*node.mapped(), Error(code, text, Scope::kAllMembers));
}

void Negotiation::receive_flush() {
  offer_.reset();
  ids_.clear();
  known_.clear();
  listener_.receive_flush(message_of(Up::kFlushed));
}

}  // namespace sirtaki
