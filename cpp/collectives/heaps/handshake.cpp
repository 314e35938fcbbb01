#include "collectives/heaps/handshake.h"

#include <cstring>
#include <string>

namespace sirtaki {
namespace {

// A table: the number of streams; for each stream, the number of segments; for each segment, its
// size and its offset in the heap of its member.
constexpr size_t kWords = Region::kSmallBytes / sizeof(uint64_t);
constexpr uint64_t kDeclined = UINT64_MAX;  ///< in place of the number of streams
constexpr uint64_t kNowhere = UINT64_MAX;

/// Reads a table that a peer wrote.
class Table {
 public:
  explicit Table(const std::byte* words) : words_(words) {}

  /// Returns an impossible value past the end.
  uint64_t next() {
    if (at_ == kWords) return kDeclined;
    uint64_t word;
    std::memcpy(&word, words_ + at_++ * sizeof word, sizeof word);
    return word;
  }

 private:
  const std::byte* words_;
  size_t at_ = 0;
};

}  // namespace

Handshake::~Handshake() {
  if (!open_ || written_ < 0) return;
  for (const Segment& segment : seen(group_.rank(), static_cast<size_t>(written_)).list()) {
    if (segment.data != nullptr) group_.heaps()->abandon(segment.data, segment.bytes);
  }
}

Task Handshake::meet(std::vector<const Segments*> own, int written) {
  const int which = co_await group_.begin_small();
  std::byte* table = group_.small_slot(group_.rank(), which);
  show(own, table);
  read(group_.rank(), table);  // this member must use the same table that the others see
  written_ = written;
  open_ = !declined_;
  group_.publish();
  co_await group_.all_published(1);
  for (int m = 0; m < group_.size(); ++m) {
    if (m != group_.rank()) read(m, group_.small_slot(m, which));
  }
}

const Segments& Handshake::seen(int member, size_t stream) const {
  const auto& streams = seen_[static_cast<size_t>(member)];
  if (stream >= streams.size()) refuse(member);
  return streams[stream];
}

const Segments& Handshake::seen(int member, size_t stream, size_t bytes) const {
  const Segments& found = seen(member, stream);
  if (found.bytes() != bytes) refuse(member);
  return found;
}

Task Handshake::part(size_t bytes) {
  group_.publish();
  co_await group_.all_published(2);
  group_.heaps()->count(bytes);
  end(true);
}

void Handshake::end(bool shared) {
  open_ = false;
  group_.end();
  group_.handshakes().met(kind_, bytes_, shared);
}

void Handshake::show(const std::vector<const Segments*>& own, std::byte* table) const {
  std::vector<uint64_t> words;
  if (!maps_all() || !list(own, words)) words = {kDeclined};
  std::memcpy(table, words.data(), words.size() * sizeof words[0]);
}

bool Handshake::maps_all() const {
  for (int m = 0; m < group_.size(); ++m) {
    if (group_.heaps()->base(group_.place(m)) == nullptr) return false;
  }
  return true;
}

/// False if there are too many segments. Adjacent ones that lie in no heap count as one.
bool Handshake::list(const std::vector<const Segments*>& own, std::vector<uint64_t>& words) const {
  words.push_back(own.size());
  for (const Segments* stream : own) {
    const size_t count = words.size();
    words.push_back(0);
    for (const Segment& segment : stream->list()) {
      if (segment.bytes == 0) continue;
      const uint64_t at = group_.heaps()->offset_of(segment.data, segment.bytes).value_or(kNowhere);
      if (at == kNowhere && words[count] > 0 && words.back() == kNowhere) {
        words[words.size() - 2] += segment.bytes;
        continue;
      }
      words.insert(words.end(), {segment.bytes, at});
      ++words[count];
    }
    if (words.size() > kWords) return false;
  }
  return true;
}

void Handshake::read(int member, const std::byte* words) {
  const int place = group_.place(member);
  const uint64_t room = group_.heaps()->bytes(place);
  Table table(words);
  const uint64_t streams = table.next();
  declined_ |= streams == kDeclined;
  if (declined_) return;
  if (streams > kWords) refuse(member);
  auto& seen = seen_[static_cast<size_t>(member)];
  seen.resize(streams);
  for (Segments& stream : seen) {
    const uint64_t segments = table.next();
    if (segments > kWords) refuse(member);
    for (uint64_t s = 0; s < segments; ++s) {
      const uint64_t bytes = table.next();
      const uint64_t at = table.next();
      const bool nowhere = at == kNowhere;
      if (!nowhere && (bytes > room || at > room - bytes)) refuse(member);
      stream.add(nowhere ? nullptr : group_.heaps()->base(place) + at, bytes);
    }
  }
}

/// Rejects a table that no member writes for this operation.
void Handshake::refuse(int member) const {
  // The other members need not detect it: the world ends.
  throw Error(ErrorCode::kPeerLost,
              "rank " + std::to_string(group_.world_ranks()[static_cast<size_t>(member)]) +
                  " says what cannot be of where its tensors lie: do all ranks run the same "
                  "version?");
}

}  // namespace sirtaki
