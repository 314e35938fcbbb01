#include "simulation/program.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "requests.h"

namespace sirtaki::testing {
namespace {

using Kind = sirtaki::Kind;

constexpr size_t kMostFloats = 12'000;
constexpr size_t kWorldFloats = 60'000;  ///< of all ranks together

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kAllreduce:
      return "allreduce";
    case Kind::kBroadcast:
      return "broadcast";
    case Kind::kAllgather:
      return "allgather";
    case Kind::kReducescatter:
      return "reducescatter";
    case Kind::kAlltoall:
      return "alltoall";
    default:
      return "barrier";
  }
}

std::vector<int> some_of(int size, std::mt19937_64& random) {
  std::vector<int> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  std::vector<int> some;
  std::ranges::sample(all, std::back_inserter(some), 1 + static_cast<int>(random() % all.size()),
                      random);
  return some;
}

}  // namespace

bool Planned::concerns(int rank) const { return std::ranges::find(ranks, rank) != ranks.end(); }

std::string Planned::text() const {
  const std::string size = std::to_string(floats) + " floats";
  if (kind == kMessage) {
    return "message " + std::to_string(number) + " of " + size + " from rank " +
           std::to_string(ranks[0]) + " to rank " + std::to_string(ranks[1]);
  }
  return std::string(name_of(operation)) + " " + std::to_string(number) + " of " + size +
         " in set " + std::to_string(set);
}

std::string Planned::name() const {
  if (unnamed) return "";
  if (!recurs) return std::to_string(number);
  return std::string(name_of(operation)) + " of " + std::to_string(floats) + " from " +
         std::to_string(root) + " as " + sirtaki::name(codec);
}

Program Program::random(int size, std::mt19937_64& random) {
  constexpr Kind kKinds[] = {Kind::kAllreduce, Kind::kAllreduce,     Kind::kBroadcast,
                             Kind::kAllgather, Kind::kReducescatter, Kind::kAlltoall,
                             Kind::kBarrier};
  constexpr size_t kSizes[] = {1, 7, 1000, 5000, kMostFloats};
  Program program;
  program.window = 1 + random() % 4;
  program.sets.push_back({});
  for (int rank = 0; rank < size; ++rank) program.sets[0].push_back(rank);
  for (size_t more = random() % 3; more > 0; --more) {
    std::vector<int> members = some_of(size, random);
    const bool is_new = std::ranges::find(program.sets, members) == program.sets.end();
    if (is_new) program.sets.push_back(std::move(members));
  }
  const size_t count = 3 + random() % 8;
  for (size_t i = 0; i < count; ++i) {
    Planned planned;
    planned.number = static_cast<int>(i);
    planned.floats = std::min(kSizes[random() % std::size(kSizes)],
                              std::max<size_t>(1, kWorldFloats / static_cast<size_t>(size)));
    if (size > 1 && random() % 3 == 0) {
      planned.kind = Planned::kMessage;
      const auto from = static_cast<int>(random() % static_cast<size_t>(size));
      const auto step = 1 + static_cast<int>(random() % static_cast<size_t>(size - 1));
      planned.ranks = {from, (from + step) % size};
    } else {
      planned.operation = kKinds[random() % std::size(kKinds)];
      planned.set = random() % program.sets.size();
      planned.ranks = program.sets[planned.set];
      planned.root = planned.ranks[random() % planned.ranks.size()];
      planned.in_place = random() % 2 == 0 && planned.operation == Kind::kAllreduce;
      const bool rounds = random() % 4 == 0 && planned.operation == Kind::kAllreduce;
      if (rounds) planned.codec = CodecId::kBF16;
      if (planned.operation == Kind::kAlltoall)
        planned.floats = std::min<size_t>(planned.floats, 64);
      planned.unnamed = random() % 2 == 0;
      // Of a name there may be one at a time.
      planned.recurs = program.window == 1;
    }
    program.list.push_back(std::move(planned));
  }
  return program;
}

// ---- One of them, on one rank ----

Floats Begun::input_of(int rank) const {
  const bool sums =
      planned_.operation == Kind::kAllreduce || planned_.operation == Kind::kReducescatter;
  const bool in_rows =
      planned_.operation == Kind::kReducescatter || planned_.operation == Kind::kAlltoall;
  Floats values(in_rows ? planned_.floats * planned_.ranks.size() : planned_.floats);
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t value = static_cast<size_t>(rank + planned_.number) + i;
    // Sums of zeros and ones are exact in every codec.
    values[i] =
        static_cast<float>(sums && planned_.kind == Planned::kCollective ? value % 2 : value % 977);
  }
  return values;
}

Begun::Begun(Engine& engine, const Planned& planned, int32_t set)
    : planned_(planned), rank_(engine.rank()), in_(input_of(rank_)) {
  if (planned.kind == Planned::kMessage) {
    const bool sends = planned.ranks[0] == rank_;
    out_ = sends ? in_ : Floats(planned.floats, -1);
    handle_ =
        engine.start({sends, planned.ranks[sends ? 1 : 0], 0, planned.number,
                      reinterpret_cast<std::byte*>(out_.data()), out_.size() * sizeof(float)});
    return;
  }
  const auto members = static_cast<int64_t>(planned.ranks.size());
  Request request = named(planned.operation, planned.name());
  request.set = set;
  request.root = planned.root;
  request.codec = planned.codec;
  request.shapes = {{static_cast<int64_t>(planned.floats)}};
  std::vector<void*> outputs;
  switch (planned.operation) {
    case Kind::kAllreduce:
    case Kind::kBroadcast:
      out_ = planned.in_place ? in_ : Floats(planned.floats, -1);
      outputs = {out_.data()};
      break;
    case Kind::kReducescatter:
      request.shapes = {{members, static_cast<int64_t>(planned.floats)}};
      break;
    case Kind::kAlltoall:
      request.shapes = {{members * static_cast<int64_t>(planned.floats)}};
      request.splits.assign(planned.ranks.size(), static_cast<int64_t>(planned.floats));
      break;
    case Kind::kAllgather:
      break;
    default:
      request.shapes.clear();
  }
  std::vector<const void*> inputs = {planned.in_place ? out_.data() : in_.data()};
  if (planned.operation == Kind::kBarrier) inputs.clear();
  handle_ = engine.submit({std::move(request), std::move(inputs), std::move(outputs)});
}

Floats Begun::expected() const {
  const auto at =
      static_cast<size_t>(std::ranges::find(planned_.ranks, rank_) - planned_.ranks.begin());
  if (planned_.kind == Planned::kMessage) return input_of(planned_.ranks[0]);
  Floats result;
  switch (planned_.operation) {
    case Kind::kBroadcast:
      return input_of(planned_.root);
    case Kind::kAllreduce:
    case Kind::kReducescatter:
      result = input_of(0);
      for (float& value : result) {  // as many ones as ranks have that parity
        const int parity = static_cast<int>(value) ^ 1;
        value = static_cast<float>(
            std::ranges::count_if(planned_.ranks, [&](int rank) { return (rank % 2 == parity); }));
      }
      break;
    case Kind::kAllgather:
    case Kind::kAlltoall:
      for (const int rank : planned_.ranks) {
        Floats one = input_of(rank);
        if (planned_.operation == Kind::kAlltoall) {
          const auto from = one.begin() + static_cast<ptrdiff_t>(at * planned_.floats);
          one = Floats(from, from + static_cast<ptrdiff_t>(planned_.floats));
        }
        result.insert(result.end(), one.begin(), one.end());
      }
      break;
    default:
      break;
  }
  if (planned_.operation != Kind::kReducescatter) return result;
  const auto from = result.begin() + static_cast<ptrdiff_t>(at * planned_.floats);
  return {from, from + static_cast<ptrdiff_t>(planned_.floats)};
}

Floats Begun::result() const {
  if (planned_.kind == Planned::kMessage || handle_->outputs.empty()) return out_;
  const Buffer& buffer = *handle_->outputs[0];
  const auto* values = reinterpret_cast<const float*>(buffer.data());
  return {values, values + buffer.bytes() / sizeof(float)};
}

std::string Begun::wrong() const {
  const bool sends = planned_.kind == Planned::kMessage && planned_.ranks[0] == rank_;
  if (!planned_.in_place && in_ != input_of(rank_)) return "its input has changed";
  if (sends && out_ != in_) return "what it sends has changed";
  if (error() || sends || planned_.operation == Kind::kBarrier) return "";
  return result() == expected() ? "" : "it has a wrong result";
}

}  // namespace sirtaki::testing
