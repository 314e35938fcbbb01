#include "engine/requests/request.h"

#include "collectives/kinds.h"
#include "engine/requests/checks.h"

namespace sirtaki {
namespace {

std::string scale_text(const Scale& scale) {
  return "prescale " + std::to_string(scale.pre) + " and postscale " + std::to_string(scale.post);
}

bool shapes_agree(const Shape& a, const Shape& b, ShapeRule rule) {
  if (rule == ShapeRule::kNone) return true;
  if (rule == ShapeRule::kAll) return a == b;
  if (a.size() != b.size()) return false;
  return a.empty() || std::equal(a.begin() + 1, a.end(), b.begin() + 1);
}

template <class Differ>
std::string shape_mismatch(const Request& a, const Request& b, Differ differ) {
  if (a.shapes.size() != b.shapes.size()) {
    return differ("numbers of tensors", std::to_string(a.shapes.size()),
                  std::to_string(b.shapes.size()));
  }
  const ShapeRule rule = traits_of(a.kind).shapes;
  for (size_t t = 0; t < a.shapes.size(); ++t) {
    if (!shapes_agree(a.shapes[t], b.shapes[t], rule)) {
      const std::string what = rule == ShapeRule::kAll
                                   ? "tensor shapes"
                                   : "tensor shapes (only the first dimension may differ)";
      const std::string which = a.shapes.size() == 1 ? "" : " of tensor " + std::to_string(t);
      const bool tells_rows = !a.tells_rows_with_data();
      return differ(what + which, shape_text(a.shapes[t], tells_rows),
                    shape_text(b.shapes[t], tells_rows));
    }
  }
  return "";
}

}  // namespace

std::string shape_text(const Shape& shape, bool tells_rows) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i > 0 ? ", " : "") + (i == 0 && !tells_rows ? "*" : std::to_string(shape[i]));
  }
  text += "]";
  return text;
}

bool has_sizes(const Request& request) {
  return traits_of(request.kind).takes_each() && !request.tells_rows_with_data();
}

int64_t elements(const Shape& shape) {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return count;
}

int64_t bytes_of(const Request& request) {
  int64_t count = 0;
  for (const Shape& shape : request.shapes) count += elements(shape);
  return count * static_cast<int64_t>(size_of(request.dtype));
}

int64_t row_elements(const Shape& shape) {
  int64_t count = 1;
  for (size_t i = 1; i < shape.size(); ++i) count *= shape[i];
  return count;
}

int64_t rows_of(int64_t rows, int members, int member) {
  return rows / members + (member < rows % members ? 1 : 0);
}

void Request::encode(Writer& out) const {
  if (!tells_rows_with_data()) return fields(*this, out);
  Request told = *this;
  told.splits.clear();
  for (Shape& shape : told.shapes) {
    if (!shape.empty()) shape[0] = 0;
  }
  fields(told, out);
}

Request Request::decode(Reader& in) {
  Request r;
  fields(r, in);
  if (const std::string why = malformed(r); !why.empty()) {
    throw Error(ErrorCode::kInternal, "malformed control message: " + why);
  }
  return r;
}

std::string mismatch(const Request& a, int rank_a, const Request& b, int rank_b) {
  const auto differ = [&](const std::string& what, const std::string& of_a,
                          const std::string& of_b) {
    return "different " + what + ": rank " + std::to_string(rank_a) + " has " + of_a + ", rank " +
           std::to_string(rank_b) + " has " + of_b;
  };
  const KindTraits& traits = traits_of(a.kind);
  if (a.kind != b.kind) return differ("operations", traits.name, traits_of(b.kind).name);
  if (a.dtype != b.dtype) return differ("data types", name(a.dtype), name(b.dtype));
  if (a.codec != b.codec) return differ("codecs", name(a.codec), name(b.codec));
  if (a.device != b.device) {
    return differ("devices", a.device ? "a GPU tensor" : "a CPU tensor",
                  b.device ? "a GPU tensor" : "a CPU tensor");
  }
  if (traits.rooted && a.root != b.root) {
    return differ("root ranks", std::to_string(a.root), std::to_string(b.root));
  }
  if (traits.reduces && a.reduce != b.reduce) {
    return differ("reduce operations", name(a.reduce), name(b.reduce));
  }
  if (traits.reduces && a.scale != b.scale) {
    return differ("scale factors", scale_text(a.scale), scale_text(b.scale));
  }
  if (a.kind == Kind::kAddSet && a.splits != b.splits) {
    return differ("lists of ranks", shape_text(a.splits), shape_text(b.splits));
  }
  return shape_mismatch(a, b, differ);
}

bool can_fuse(const Request& a, const Request& b) {
  const KindTraits& traits = traits_of(a.kind);
  if (!traits.fusable || a.kind != b.kind || a.set != b.set) return false;
  if (a.dtype != b.dtype || a.codec != b.codec || a.device != b.device) return false;
  if (traits.rooted && a.root != b.root) return false;
  return !traits.reduces || (a.reduce == b.reduce && a.scale == b.scale);
}

std::string match_key(const Request& request, uint64_t ordinal) {
  if (!request.name.empty() && request.set == 0) return request.name;
  // A name cannot begin with a control character, so these keys never clash with names.
  const std::string set = std::to_string(request.set);
  if (request.name.empty()) return "\x01" + set + "." + std::to_string(ordinal);
  return "\x02" + set + "." + request.name;
}

std::string describe(const Request& request, uint64_t ordinal) {
  const std::string kind = traits_of(request.kind).name;
  if (request.name.empty()) return kind + " 'noname." + std::to_string(ordinal) + "'";
  const bool prefixed = request.name.starts_with(kind + ".");
  return kind + " '" + request.name.substr(prefixed ? kind.size() + 1 : 0) + "'";
}

}  // namespace sirtaki
